//! Nodes: 17 slots, one for each edge, that partition a node's keys among pages and child nodes
//! (`docs/quiver.md`, "Node").

use super::hint::{NodeHint, PageHint};
use super::map_copy::{self, COPIES, COPY_WORDS, Copied};
use super::nibble::{EDGES, END, EdgeRange, LAST, identity_depth};
use super::page::PageRef;
use super::word::folded;
use crate::checksum;
use crate::radix::seal::SEAL;
use crate::{IndexError, Result};
use darter_fabric::GlobalAddr;

/// Words before the slots: identity and guard.
pub(super) const HEAD_WORDS: usize = 2;
/// Words of the head and the slots.
pub(super) const SLOTS_END: usize = HEAD_WORDS + EDGES;
/// Words of a node.
pub(super) const NODE_WORDS: usize = SLOTS_END + COPIES * COPY_WORDS;
/// Bytes of a node.
pub(super) const NODE_BYTES: u64 = NODE_WORDS as u64 * 8;
/// Most nibbles that an edge skips.
pub(super) const SKIP_MAX: usize = (1 << 11) - 1;
/// The position of the guard.
pub(super) const GUARD_AT: usize = 1;

const KIND_AT: u32 = 61;
const NONE: u64 = 3;
const PAGE: u64 = 5;
const NODE: u64 = 6;
const GUARD: u64 = 5;
const HI_AT: u32 = 56;
const CLASS_AT: u32 = 44;
const ADDR_BITS: u32 = 44;
const BORN_AT: u32 = 23;
const INVALID: u64 = 7;
/// The position of the 4-bit checks of PAGE and NODE.
const PAGE_CHECK_AT: u32 = 51;
const NODE_CHECK_AT: u32 = 56;
/// The positions of the guard's check: 5 bits each.
const GUARD_CHECK_AT: [u32; 2] = [18, 56];

/// The meaning of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// The slot below it is responsible for its edge.
    Empty,
    /// No key up to and including this edge.
    None {
        /// The last edge it is responsible for.
        hi: u8,
    },
    /// A page.
    Page {
        /// The last edge it is responsible for.
        hi: u8,
        /// Its size class.
        class: u8,
        /// The page's address.
        addr: GlobalAddr,
    },
    /// A child node under this edge alone.
    Node {
        /// Nibbles that the edge skips.
        skip: usize,
        /// The child's address.
        addr: GlobalAddr,
    },
    /// None of these kinds: damage.
    Invalid,
}

/// The meaning of a slot as a word. The word in the pool also has bits that depend on the node and
/// on the slot's place ([`Slot::stored`]), so zeros, another slot's word, or a word with a flipped
/// bit count as damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(pub(super) u64);

impl Slot {
    /// The slot below it is responsible for its edge.
    pub(super) const EMPTY: Self = Self(0);

    /// No key up to and including edge `hi`.
    pub(super) fn none(hi: u8) -> Self {
        Self(NONE << KIND_AT | u64::from(hi) << HI_AT)
    }

    /// A page for the edges up to and including `hi`.
    pub(super) fn page(hi: u8, class: u8, addr: GlobalAddr) -> Self {
        let upper = PAGE << KIND_AT | u64::from(hi) << HI_AT | u64::from(class) << CLASS_AT;
        Self(upper | addr.bits() >> 4)
    }

    /// The slot for a new page.
    pub(super) fn of(PageHint { page, shape, .. }: &PageHint) -> Self {
        Self::page(shape.edges.hi, page.class, page.addr)
    }

    /// A child node after `skip` skipped nibbles, at most [`SKIP_MAX`].
    pub(super) fn node(skip: usize, addr: GlobalAddr) -> Self {
        Self(NODE << KIND_AT | (skip as u64) << CLASS_AT | addr.bits() >> 4)
    }

    /// The root word that names a root node.
    pub(super) fn root_word(root: GlobalAddr) -> u64 {
        Self::node(0, root).stored(0, 0)
    }

    /// The root word read as a slot.
    pub(super) fn from_root_word(word: u64) -> Self {
        Self::loaded(word, 0, 0)
    }

    /// The word in the pool for the slot of an edge, in the node with this identity.
    #[inline]
    pub(super) fn stored(self, identity: u64, edge: u8) -> u64 {
        let salt = (identity ^ u64::from(edge + 1).wrapping_mul(0xff51_afd7_ed55_8ccd))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let word = self.unsealed().0;
        let check = || u64::from(folded(word)) ^ salt >> 60;
        let stored = match word >> KIND_AT {
            0 => (salt >> 3 | 1) & !SEAL,
            NONE => {
                let hi = (word >> HI_AT).wrapping_mul(0xff51_afd7_ed55_8ccd);
                word | ((salt >> 3) ^ hi) & (SEAL - 1)
            }
            PAGE => word | check() << PAGE_CHECK_AT,
            NODE => word | check() << NODE_CHECK_AT,
            _ => word,
        };
        stored | self.0 & SEAL
    }

    /// Decodes a word in the pool; the slot is [`Content::Invalid`] if the word does not belong in
    /// this place.
    #[inline]
    pub(super) fn loaded(word: u64, identity: u64, edge: u8) -> Self {
        let (raw, seal) = (word & !SEAL, word & SEAL);
        let plain = Self(match raw >> KIND_AT {
            0 => 0,
            NONE => raw & (7 << KIND_AT | 31 << HI_AT),
            PAGE => raw & !(15 << PAGE_CHECK_AT),
            NODE => raw & !(15 << NODE_CHECK_AT),
            _ => INVALID << KIND_AT,
        });
        if plain.stored(identity, edge) == raw {
            Self(plain.0 | seal)
        } else {
            Self(INVALID << KIND_AT | seal)
        }
    }

    /// The slot without the seal.
    #[must_use]
    pub(super) const fn unsealed(self) -> Self {
        Self(self.0 & !SEAL)
    }

    /// The slot's meaning, sealed or not.
    #[inline]
    pub(super) fn content(self) -> Content {
        let addr = GlobalAddr::from_bits((self.0 & ((1 << ADDR_BITS) - 1)) << 4);
        let hi = (self.0 >> HI_AT & 31) as u8;
        match self.0 >> KIND_AT {
            0 if self.unsealed() == Self::EMPTY => Content::Empty,
            NONE if hi <= LAST => Content::None { hi },
            PAGE if hi <= LAST => Content::Page { hi, class: (self.0 >> CLASS_AT & 0x7f) as u8, addr },
            NODE => Content::Node { skip: (self.0 >> CLASS_AT & SKIP_MAX as u64) as usize, addr },
            _ => Content::Invalid,
        }
    }
}

/// A node on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeAt {
    pub(super) addr: GlobalAddr,
    /// Nibbles of its prefix.
    pub(super) depth: usize,
}

impl From<NodeHint> for NodeAt {
    fn from(NodeHint { addr, depth, .. }: NodeHint) -> Self {
        Self { addr, depth }
    }
}

/// The guard of the node at an address, with a checksum of the arguments.
pub(super) fn guard(addr: GlobalAddr, identity: u64, born: u32, depth: usize) -> u64 {
    let all = [addr.bits(), identity, u64::from(born) << 32 | depth as u64];
    let check = u64::from(checksum::crc32c(&all));
    let checks = (check & 31) << GUARD_CHECK_AT[0] | (check >> 5 & 31) << GUARD_CHECK_AT[1];
    GUARD << KIND_AT | checks | u64::from(born) << BORN_AT | depth as u64
}

/// Verifies the first words of a node that was found by a slot.
///
/// # Errors
/// [`IndexError::Corrupt`] if they are not those of a node there, of this depth.
pub(super) fn verify_head(at: NodeAt, words: &[u64]) -> Result<()> {
    let (identity, found) = (words[0], words[GUARD_AT] & !SEAL);
    if found != guard(at.addr, identity, born(found), at.depth) || identity_depth(identity) != at.depth {
        return Err(IndexError::corrupt(at.addr, "not a node: invalid head"));
    }
    Ok(())
}

/// Verifies the first words of a node that was found by a slot, and all its slots.
///
/// # Errors
/// As [`verify_head`], and if a slot is of no known kind.
pub(super) fn verify(at: NodeAt, words: &[u64]) -> Result<()> {
    verify_head(at, words)?;
    if slots(words).iter().any(|slot| slot.content() == Content::Invalid) {
        return Err(IndexError::corrupt(at.addr, "slot of unknown kind"));
    }
    Ok(())
}

/// The life of a node, from its guard.
pub(super) fn born(guard: u64) -> u32 {
    (guard >> BORN_AT) as u32
}

/// Whether a word is the guard of a live node: unsealed, and of this life.
pub(super) fn proves(word: u64, born: u32) -> bool {
    word >> KIND_AT == GUARD && word & SEAL == 0 && self::born(word) == born
}

/// The words of the node at an address, with these slots, and copies of the maps of its pages.
pub(super) fn image(
    addr: GlobalAddr,
    identity: u64,
    born: u32,
    depth: usize,
    slots: &[Slot; EDGES],
    pages: &[PageHint],
) -> Vec<u64> {
    let mut words = Vec::with_capacity(NODE_WORDS);
    words.extend([identity, guard(addr, identity, born, depth)]);
    words.extend(slots.iter().zip(0..).map(|(slot, edge)| slot.unsealed().stored(identity, edge)));
    words.resize(NODE_WORDS, 0);
    let mut copied = Copied::default();
    for page in pages {
        if let Some(copy) = map_copy::copy(&page.shape, &page.map) {
            let at = SLOTS_END + copied.assign(page.shape.edges.lo) * COPY_WORDS;
            words[at..at + COPY_WORDS].copy_from_slice(&copy);
        }
    }
    words
}

/// The address of a copy of a map.
pub(super) fn copy_addr(node: GlobalAddr, at: usize) -> GlobalAddr {
    node.plus((SLOTS_END + at * COPY_WORDS) as u64 * 8)
}

/// The copies of maps in a node's words.
pub(super) fn copies(words: &[u64]) -> &[u64] {
    words.get(SLOTS_END..).unwrap_or_default()
}

/// The address of a slot.
pub(super) fn slot_addr(node: GlobalAddr, edge: u8) -> GlobalAddr {
    node.plus((HEAD_WORDS as u64 + u64::from(edge)) * 8)
}

/// The slots in a node's words.
pub(super) fn slots(words: &[u64]) -> [Slot; EDGES] {
    let mut slots = [Slot::EMPTY; EDGES];
    for ((slot, word), edge) in slots.iter_mut().zip(&words[HEAD_WORDS..]).zip(0..) {
        *slot = Slot::loaded(*word, words[0], edge);
    }
    slots
}

/// Returns the slot responsible for an edge: the last one up to it that is not empty.
///
/// # Errors
/// [`IndexError::Corrupt`] if there is none.
pub(super) fn responsible(node: GlobalAddr, slots: &[Slot; EDGES], edge: u8) -> Result<(u8, Slot)> {
    (0..=edge)
        .rev()
        .map(|at| (at, slots[usize::from(at)]))
        .find(|(_, slot)| slot.content() != Content::Empty)
        .ok_or(IndexError::corrupt(node, "node without its first slot"))
}

/// Returns the last edge before the next slot that is not empty.
pub(super) fn last_edge(slots: &[Slot; EDGES], lo: u8) -> u8 {
    let next = (lo + 1..=LAST).find(|&edge| slots[usize::from(edge)].content() != Content::Empty);
    next.map_or(LAST, |next| next - 1)
}

/// Returns the edges that the slot at `lo` is responsible for.
pub(super) fn edges_of(slots: &[Slot; EDGES], lo: u8) -> EdgeRange {
    match slots[usize::from(lo)].content() {
        Content::None { hi } | Content::Page { hi, .. } => EdgeRange { lo, hi: hi.min(last_edge(slots, lo)) },
        _ => EdgeRange::one(lo),
    }
}

/// Returns the first edge that no slot is responsible for.
///
/// There is no gap at any single moment, since the parts of a page are linked from the last to the
/// first. A READ of several words can show one if it reads the slot of a part before the part is
/// linked, and the slot below it afterwards. Then the next READ finds the part's slot in use.
pub(super) fn gap(slots: &[Slot; EDGES]) -> Option<u8> {
    let mut next = END;
    for (slot, edge) in slots.iter().zip(END..) {
        let hi = match slot.content() {
            Content::Empty => continue,
            Content::None { hi } | Content::Page { hi, .. } => hi,
            Content::Node { .. } | Content::Invalid => edge,
        };
        if edge > next {
            return Some(next);
        }
        // Linked parts begin before their page's last edge.
        next = next.max(hi + 1);
    }
    (next <= LAST).then_some(next)
}

/// Whether any word of a node is sealed, so that the node is being replaced.
pub(super) fn is_sealed(words: &[u64]) -> bool {
    words[GUARD_AT..SLOTS_END].iter().any(|word| word & SEAL != 0)
}

/// The child nodes: edge, nibbles skipped, address.
pub(super) fn children(slots: &[Slot; EDGES]) -> impl Iterator<Item = (u8, usize, GlobalAddr)> {
    slots.iter().zip(0..).filter_map(|(slot, edge)| match slot.content() {
        Content::Node { skip, addr } => Some((edge, skip, addr)),
        _ => None,
    })
}

/// The pages that slots point to, each with the slot's edge.
pub(super) fn pages(slots: &[Slot; EDGES]) -> impl Iterator<Item = (u8, PageRef)> {
    slots.iter().zip(0..).filter_map(|(slot, edge)| match slot.content() {
        Content::Page { class, addr, .. } => Some((edge, PageRef { addr, class })),
        _ => None,
    })
}

/// The number of slots that point to something.
pub(super) fn live(slots: &[Slot; EDGES]) -> usize {
    pages(slots).count() + children(slots).count()
}

/// The error for a node whose slots leave a gap.
pub(super) fn without_slot(addr: GlobalAddr) -> IndexError {
    IndexError::corrupt(addr, "edges that no slot is responsible for")
}

/// The error for a node that is deeper than any key.
pub(super) fn too_deep(addr: GlobalAddr) -> IndexError {
    IndexError::corrupt(addr, "node deeper than any key")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_say_what_they_were_made_of() {
        let addr = GlobalAddr::new(255, (1 << 40) - 16);
        for hi in [0, 7, LAST] {
            let page = Slot::page(hi, 127, addr);
            assert_eq!(page.content(), Content::Page { hi, class: 127, addr });
            assert_eq!(Slot(page.0 | SEAL).content(), page.content());
            assert_eq!(Slot::none(hi).content(), Content::None { hi });
        }
        for skip in [0, 1, SKIP_MAX] {
            let node = Slot(Slot::node(skip, addr).0 | SEAL);
            assert_eq!(node.content(), Content::Node { skip, addr });
        }
        assert_eq!(Slot(SEAL).content(), Content::Empty);
        assert_eq!(Slot(u64::MAX).content(), Content::Invalid);
    }

    #[test]
    fn the_last_slot_up_to_an_edge_is_responsible() {
        let mut slots = [Slot::EMPTY; EDGES];
        let node = GlobalAddr::NULL;
        assert!(responsible(node, &slots, 3).is_err());
        slots[0] = Slot::none(4);
        slots[5] = Slot::none(16);
        assert_eq!(responsible(node, &slots, 4).unwrap(), (0, slots[0]));
        assert_eq!(responsible(node, &slots, 5).unwrap(), (5, slots[5]));
        assert_eq!(responsible(node, &slots, 16).unwrap(), (5, slots[5]));
        assert_eq!((last_edge(&slots, 0), last_edge(&slots, 5)), (4, LAST));
        slots[0] = Slot::none(2);
        assert_eq!(edges_of(&slots, 0), EdgeRange { lo: 0, hi: 2 });
        slots[3] = Slot::none(LAST);
        assert_eq!(edges_of(&slots, 3), EdgeRange { lo: 3, hi: 4 });
        slots[3] = Slot::node(0, node);
        assert_eq!(edges_of(&slots, 3), EdgeRange::one(3));
    }

    #[test]
    fn a_gap_is_an_edge_that_no_slot_up_to_it_names() {
        let mut slots = [Slot::EMPTY; EDGES];
        assert_eq!(gap(&slots), Some(END));
        slots[0] = Slot::page(LAST, 3, GlobalAddr::NULL);
        slots[9] = Slot::none(LAST);
        assert_eq!(gap(&slots), None, "a part of the page is linked");
        slots[0] = Slot::page(4, 3, GlobalAddr::NULL);
        assert_eq!(gap(&slots), Some(5));
        slots[5] = Slot::node(0, GlobalAddr::NULL);
        assert_eq!(gap(&slots), Some(6), "a node has its own edge alone");
        slots[6] = Slot::none(8);
        assert_eq!(gap(&slots), None);
        slots[9] = Slot::none(LAST - 1);
        assert_eq!(gap(&slots), Some(LAST));
    }

    #[test]
    fn guards_prove_one_life() {
        let word = guard(GlobalAddr::new(1, 64), u64::MAX, u32::MAX, 131_072);
        assert!(proves(word, u32::MAX) && !proves(word, 0) && !proves(word | SEAL, u32::MAX));
    }

    /// Zeros, a word of another place, and any flipped bit except the seal.
    #[test]
    fn damaged_slots_are_of_no_known_kind() {
        let addr = GlobalAddr::new(1, 4096);
        let slots =
            [Slot::EMPTY, Slot::none(0), Slot::none(LAST), Slot::page(7, 20, addr), Slot::node(3, addr)];
        for identity in [0, 1, 77 << 22 | 4, u64::MAX] {
            for edge in 0..=LAST {
                assert_eq!(Slot::loaded(0, identity, edge).content(), Content::Invalid);
                for slot in slots {
                    let word = slot.stored(identity, edge);
                    assert_eq!(Slot::loaded(word, identity, edge), slot);
                    assert_eq!(Slot::loaded(word | SEAL, identity, edge), Slot(slot.0 | SEAL));
                    for bit in (0..64).filter(|bit| 1 << bit != SEAL) {
                        let damaged = Slot::loaded(word ^ 1 << bit, identity, edge);
                        assert_eq!(damaged.content(), Content::Invalid, "{slot:?}, bit {bit}");
                    }
                }
                for slot in [Slot::EMPTY, Slot::none(LAST)] {
                    let other = slot.stored(identity ^ 1 << 40, edge);
                    assert_eq!(Slot::loaded(other, identity, edge).content(), Content::Invalid);
                }
            }
        }
    }

    /// Every flipped bit of identity, guard and address, and another depth.
    #[test]
    fn damaged_heads_of_nodes_are_noticed() {
        for depth in [0, 7, 131_072] {
            let at = NodeAt { addr: GlobalAddr::new(3, 1 << 20), depth };
            let identity = 0x1234_5678_9abc << 22 | depth as u64;
            let words = [identity, guard(at.addr, identity, 0xdead_beef, depth)];
            verify_head(at, &words).unwrap();
            for bit in (0..128).filter(|bit| *bit != 64 + SEAL.trailing_zeros()) {
                let mut damaged = words;
                damaged[bit as usize / 64] ^= 1 << (bit % 64);
                assert!(verify_head(at, &damaged).is_err(), "bit {bit}");
            }
            for bit in 4..40 {
                let addr = GlobalAddr::from_bits(at.addr.bits() ^ 1 << bit);
                assert!(verify_head(NodeAt { addr, ..at }, &words).is_err(), "address bit {bit}");
            }
        }
    }
}
