//! Inner nodes of ART, in two layouts.
//!
//! ```text
//! header     word 0  identity: depth and keyed hash of the whole prefix; a seal shows that the node was or is being replaced
//!            word 1  slot of the key that ends here
//!
//! type    bytes   after the header
//! N4         56   4 key bytes in a word,      4 slots                  the published layouts
//! N16       160   16 key bytes in two words, 16 slots
//! N48       656   index of 256 bytes,        48 slots                  index: slot number + 1, 0 for none
//! N256     2064   256 slots
//!
//! H4         48   4 slots                                              the hashed layout alone (DART, section 5.3)
//! H8         80   8 slots
//! H16       144   16 slots
//! H32       272   2 buckets of 16 slots, edge mod 2
//! H64       528   4 buckets, edge mod 4
//! H128     1040   8 buckets, edge mod 8
//! H256     2064   256 slots, each edge its own
//! ```
//!
//! A slot repeats the key byte of its edge. That uses spare bits and makes torn reads safe: key
//! byte and slot are two words, and a child counts only if they agree. Slots are filled in order,
//! and a taken slot keeps its edge for the life of the node: a delete leaves a tombstone.

use darter_fabric::GlobalAddr;
use darter_index::radix::prefix_hash::{HashedKey, identity_depth};
use darter_index::radix::seal::SEAL;
use darter_index::radix::slot::{END, FANOUT, NodeCode, order_of};
use darter_index::{IndexError, Result};
use darter_pool::size_class::{class_bytes, class_of};
use smallvec::SmallVec;

/// One slot of a node, or a pointer to one. It does not contain the bytes that an edge skips: the
/// node's header has its depth.
pub(super) type Slot = darter_index::radix::slot::Slot<NodeType>;
/// The content of a slot, without the seal.
pub(super) type Content = darter_index::radix::slot::Content<NodeType>;

/// The types of inner node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum NodeType {
    N4,
    N16,
    N48,
    N256,
    H4,
    H8,
    H16,
    H32,
    H64,
    H128,
    H256,
}

/// Words of the header.
pub(super) const HEADER_WORDS: usize = 2;
/// The header's slot of the key that ends at the node.
const END_AT: usize = 1;
/// Slots in a bucket of the hashed layout.
const BUCKET_SLOTS: usize = 16;

/// A layout: its types, smallest first.
pub(super) type Layout = &'static [NodeType];

/// The published layouts.
pub(super) const PUBLISHED: Layout = &[NodeType::N4, NodeType::N16, NodeType::N48, NodeType::N256];
/// The hashed layout.
pub(super) const HASHED: Layout = &[
    NodeType::H4,
    NodeType::H8,
    NodeType::H16,
    NodeType::H32,
    NodeType::H64,
    NodeType::H128,
    NodeType::H256,
];

impl NodeCode for NodeType {
    fn code(self) -> u8 {
        self as u8
    }

    fn from_code(code: u64) -> Option<Self> {
        PUBLISHED.iter().chain(HASHED).nth(code as usize).copied()
    }
}

impl NodeType {
    pub(super) const fn name(self) -> &'static str {
        ["N4", "N16", "N48", "N256", "H4", "H8", "H16", "H32", "H64", "H128", "H256"][self as usize]
    }

    /// Returns the layout of the type.
    pub(super) const fn layout(self) -> Layout {
        if (self as u8) < Self::H4 as u8 { PUBLISHED } else { HASHED }
    }

    /// Returns the number of slots after the header.
    pub(super) const fn capacity(self) -> usize {
        match self {
            Self::N4 | Self::H4 => 4,
            Self::H8 => 8,
            Self::N16 | Self::H16 => 16,
            Self::H32 => 32,
            Self::N48 => 48,
            Self::H64 => 64,
            Self::H128 => 128,
            Self::N256 | Self::H256 => 256,
        }
    }

    /// Returns the first word of the slots after the header.
    const fn slots_at(self) -> usize {
        HEADER_WORDS
            + match self {
                Self::N4 => 1,
                Self::N16 => 2,
                Self::N48 => 32,
                _ => 0,
            }
    }

    pub(super) const fn words(self) -> usize {
        self.slots_at() + self.capacity()
    }

    /// Returns the bytes that are read and written.
    pub(super) const fn bytes(self) -> u64 {
        self.words() as u64 * 8
    }

    /// Returns the bytes of a node in the pool, by its size class.
    pub(super) fn pool_bytes(self) -> u64 {
        class_of(self.bytes()).map_or(0, class_bytes)
    }

    /// Returns the words that a search for an edge reads in addition to the header, or `None` if it
    /// reads the whole node at once.
    pub(super) fn bucket(self, edge: u16) -> Option<(usize, usize)> {
        let edge = usize::from(edge);
        match self {
            Self::H32 | Self::H64 | Self::H128 => {
                let bucket = edge % (self.capacity() / BUCKET_SLOTS);
                Some((HEADER_WORDS + bucket * BUCKET_SLOTS, BUCKET_SLOTS))
            }
            Self::H256 => Some((HEADER_WORDS + edge % 256, 1)),
            _ => None,
        }
    }

    /// Returns the smallest type of a layout that holds these edges, which have at most one slot
    /// each.
    #[allow(clippy::needless_pass_by_value)] // an iterator is a value
    pub(super) fn fit(layout: Layout, edges: impl Iterator<Item = u16> + Clone) -> Self {
        let edges = || edges.clone().filter(|&edge| edge != END);
        let count = edges().count();
        let fits = |ty: Self| {
            if count > ty.capacity() {
                return false;
            }
            let mut load = [0_usize; 8];
            edges().all(|edge| match ty.bucket(edge) {
                Some((at, BUCKET_SLOTS)) => {
                    let load = &mut load[(at - HEADER_WORDS) / BUCKET_SLOTS];
                    *load += 1;
                    *load <= BUCKET_SLOTS
                }
                _ => true,
            })
        };
        layout.iter().copied().find(|&ty| fits(ty)).unwrap_or(layout[layout.len() - 1])
    }

    /// Returns whether a node of this type with `live` children should be rebuilt smaller, or
    /// collapsed: at most half of the next smaller type's capacity, so that deleting and
    /// reinserting a key does not change the type twice.
    pub(super) fn is_sparse(self, live: usize) -> bool {
        let layout = self.layout();
        let smaller = layout.iter().position(|&ty| ty == self).and_then(|at| at.checked_sub(1));
        live <= 1 || smaller.is_some_and(|at| live * 2 <= layout[at].capacity())
    }
}

/// A node's first words.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Header {
    identity: u64,
    end: u64,
}

impl Header {
    pub(super) fn new(words: &[u64]) -> Self {
        Self { identity: words[0], end: words[END_AT] }
    }

    /// Returns whether the node was or is being replaced.
    pub(super) fn is_sealed(self) -> bool {
        self.identity & SEAL != 0
    }

    /// Returns the identity without the seal.
    pub(super) fn identity(self) -> u64 {
        self.identity & !SEAL
    }

    /// Returns the length of the node's prefix in bytes.
    pub(super) fn depth(self) -> usize {
        identity_depth(self.identity)
    }

    /// Returns whether a key has the node's whole prefix.
    pub(super) fn is_on_path(self, key: &mut HashedKey<'_>) -> bool {
        self.depth() <= key.bytes().len() && identity_of(key, self.depth()) == self.identity()
    }
}

/// Returns the identity of a node whose prefix is the first `depth` bytes of a key. One bit of the
/// hash is replaced by the seal.
pub(super) fn identity_of(key: &mut HashedKey<'_>, depth: usize) -> u64 {
    key.identity(depth) & !SEAL
}

/// The words read of a node: its header, and the words from `at` on that an edge needs, or all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    pub(super) ty: NodeType,
    pub(super) header: Header,
    pub(super) at: usize,
    pub(super) words: &'a [u64],
}

/// Room for an edge without a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vacancy {
    /// The index of the slot's word.
    pub(super) at: usize,
    /// The current content of the slot.
    pub(super) slot: Slot,
    /// The word with the edge of the slot, if the layout has one; it is written before the slot.
    pub(super) key: Option<(usize, u64)>,
}

fn byte_of(word: u64, at: usize) -> u16 {
    u16::from(word.to_le_bytes()[at % 8])
}

fn with_byte(word: u64, at: usize, byte: u8) -> u64 {
    let mut bytes = word.to_le_bytes();
    bytes[at % 8] = byte;
    u64::from_le_bytes(bytes)
}

impl<'a> Part<'a> {
    /// Creates the part of a node that was read whole.
    pub(super) fn whole(ty: NodeType, words: &'a [u64]) -> Self {
        Self { ty, header: Header::new(words), at: HEADER_WORDS, words: &words[HEADER_WORDS..] }
    }

    /// Returns a word of the node by its position; 0 if it was not read.
    fn word(&self, at: usize) -> u64 {
        at.checked_sub(self.at).and_then(|at| self.words.get(at)).copied().unwrap_or(0)
    }

    fn slot(&self, at: usize) -> Slot {
        Slot::from_word(self.word(at))
    }

    /// Returns the positions of the slots that an edge can have.
    fn places(&self, edge: u16) -> std::ops::Range<usize> {
        let first = self.ty.slots_at();
        match self.ty {
            NodeType::N256 | NodeType::H256 => first + usize::from(edge)..first + usize::from(edge) + 1,
            _ => match self.ty.bucket(edge) {
                Some((at, words)) => at..at + words,
                None => first..first + self.ty.capacity(),
            },
        }
    }

    /// Returns whether the key bytes confirm that a slot belongs to its edge.
    fn agrees(&self, at: usize, edge: u16) -> bool {
        let number = at.wrapping_sub(self.ty.slots_at());
        match self.ty {
            NodeType::N4 | NodeType::N16 => byte_of(self.word(HEADER_WORDS + number / 8), number) == edge,
            NodeType::N48 => {
                let edge = usize::from(edge);
                usize::from(byte_of(self.word(HEADER_WORDS + edge / 8), edge)) == number + 1
            }
            _ => true,
        }
    }

    /// Returns the slot that an edge has taken, and its position.
    pub(super) fn find(&self, edge: u16) -> Option<(usize, Slot)> {
        if edge == END {
            let slot = Slot::from_word(self.header.end);
            return slot.is_of(END).then_some((END_AT, slot));
        }
        let mut places = self.places(edge);
        places.find(|&at| self.slot(at).is_of(edge) && self.agrees(at, edge)).map(|at| (at, self.slot(at)))
    }

    /// Returns room for an edge without a child: its own tombstone, else the first empty slot;
    /// `None` if the node is full.
    pub(super) fn vacancy(&self, edge: u16) -> Option<Vacancy> {
        if edge == END {
            return Some(Vacancy { at: END_AT, slot: Slot::from_word(self.header.end), key: None });
        }
        if let Some((at, slot)) = self.find(edge) {
            return Some(Vacancy { at, slot, key: None });
        }
        let at = self.places(edge).find(|&at| self.slot(at).is_empty())?;
        let number = at - self.ty.slots_at();
        let key = match self.ty {
            NodeType::N4 | NodeType::N16 => {
                let word = HEADER_WORDS + number / 8;
                Some((word, with_byte(self.word(word), number, edge as u8)))
            }
            NodeType::N48 => {
                let word = HEADER_WORDS + usize::from(edge) / 8;
                Some((word, with_byte(self.word(word), usize::from(edge), number as u8 + 1)))
            }
            _ => None,
        };
        Some(Vacancy { at, slot: self.slot(at), key })
    }

    /// Returns the live slots that were read, with their positions.
    pub(super) fn live(&self) -> impl Iterator<Item = (usize, Slot)> + '_ {
        let first = self.ty.slots_at().max(self.at);
        let rest = (first..self.at + self.words.len()).map(|at| (at, self.slot(at)));
        let rest = rest.filter(|&(at, slot)| {
            slot.is_live() && slot.edge().is_some_and(|edge| edge != END && self.agrees(at, edge))
        });
        let end = Slot::from_word(self.header.end);
        std::iter::once((END_AT, end)).filter(|(_, slot)| slot.is_live()).chain(rest)
    }

    /// Returns the live children in key order, the end of the key first, without seals. The node
    /// was read whole.
    pub(super) fn children(&self) -> SmallVec<[Slot; 16]> {
        let mut children: SmallVec<[Slot; 16]> = self.live().map(|(_, slot)| slot.unsealed()).collect();
        children.sort_unstable_by_key(|slot| order_of(slot.edge().unwrap_or(END)));
        children
    }
}

/// Returns the positions and contents of a whole node's slots, including those that a search cannot
/// find.
pub(super) fn slots(ty: NodeType, words: &[u64]) -> impl Iterator<Item = (usize, Slot)> + '_ {
    std::iter::once(END_AT).chain(ty.slots_at()..ty.words()).map(|at| (at, Slot::from_word(words[at])))
}

/// Returns a predicate for the words that a replacement seals: the header, and the words that can
/// change without a lock, which are only pointers to leaves.
pub(super) fn seals(ty: NodeType) -> impl Fn(usize, u64) -> bool {
    move |at, word| {
        let is_slot = at == END_AT || at >= ty.slots_at();
        let is_open = is_slot && matches!(Slot::from_word(word).content(), Content::Leaf { .. });
        at == 0 || is_open
    }
}

/// Checks for content that a copy cannot have: two children under one edge, or slots of unknown
/// types.
///
/// # Errors
/// [`IndexError::Corrupt`] if there is any.
pub(super) fn verify_edges(addr: GlobalAddr, ty: NodeType, words: &[u64]) -> Result<()> {
    let mut seen = [false; FANOUT];
    for (at, slot) in Part::whole(ty, words).live() {
        let edge = slot.edge().unwrap_or(END);
        let what = if slot.content() == Content::Invalid {
            "slot of an unknown type"
        } else if (edge == END) != (at == END_AT) {
            "slot at the position of another edge"
        } else if std::mem::replace(&mut seen[usize::from(edge)], true) {
            "two slots of one edge"
        } else {
            continue;
        };
        return Err(IndexError::corrupt(addr, what));
    }
    Ok(())
}

/// Returns the words of a node with these children, which must fit in `ty`.
pub(super) fn image(ty: NodeType, identity: u64, children: &[Slot]) -> Vec<u64> {
    let mut words = vec![0; ty.words()];
    words[0] = identity & !SEAL;
    for child in children {
        let vacancy = Part::whole(ty, &words).vacancy(child.edge().unwrap_or(END));
        debug_assert!(
            vacancy.is_some_and(|vacancy| vacancy.slot.is_empty()),
            "{ty:?} cannot hold {children:?}"
        );
        let Some(Vacancy { at, key, .. }) = vacancy else { continue };
        if let Some((at, word)) = key {
            words[at] = word;
        }
        words[at] = child.word();
    }
    words
}

const _: () = assert!(NodeType::N4.bytes() == 56 && NodeType::N16.bytes() == 160);
const _: () = assert!(NodeType::N48.bytes() == 656 && NodeType::N256.bytes() == 2064);

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(edge: u16) -> Slot {
        Slot::leaf(edge, 4, GlobalAddr::new(0, 4096 + u64::from(edge) * 16))
    }

    #[test]
    fn images_hold_every_edge_where_searches_look() {
        for layout in [PUBLISHED, HASHED] {
            for count in [0_u16, 1, 4, 5, 8, 9, 16, 17, 31, 48, 49, 64, 100, 200, 257] {
                // A scattered order, with the end of the key somewhere in it.
                let edges: Vec<u16> = (0..count).map(|i| i * 101 % 257).collect();
                let ty = NodeType::fit(layout, edges.iter().copied());
                assert!(ty.capacity() + 1 >= edges.len() && ty.layout() == layout);
                let children: Vec<Slot> = edges.iter().copied().map(leaf).collect();
                let words = image(ty, 77, &children);
                verify_edges(GlobalAddr::NULL, ty, &words).unwrap();
                let whole = Part::whole(ty, &words);
                for edge in 0..=END {
                    let part = match ty.bucket(edge) {
                        Some((at, len)) => Part { at, words: &words[at..at + len], ..whole },
                        None => whole,
                    };
                    let wanted = edges.contains(&edge).then(|| leaf(edge));
                    assert_eq!(part.find(edge).map(|(_, slot)| slot), wanted, "{ty:?} edge {edge}");
                }
                let ordered: Vec<u16> = whole.children().iter().map(|slot| slot.edge().unwrap()).collect();
                assert_eq!(ordered.len(), edges.len());
                assert!(ordered.windows(2).all(|w| order_of(w[0]) < order_of(w[1])));
            }
        }
    }

    #[test]
    fn what_was_taken_stays_with_its_edge() {
        for &ty in PUBLISHED.iter().chain(HASHED) {
            let mut words = image(ty, 0, &[leaf(7), leaf(9), leaf(END)]);
            for edge in [7, END] {
                let (at, _) = Part::whole(ty, &words).find(edge).unwrap();
                words[at] = Slot::tomb(edge).word();
                let vacancy = Part::whole(ty, &words).vacancy(edge).unwrap();
                assert_eq!((vacancy.at, vacancy.key), (at, None));
            }
            let other = Part::whole(ty, &words).vacancy(8).unwrap();
            assert!(other.slot.is_empty());
            assert_eq!(Part::whole(ty, &words).children().len(), 1);
        }
    }

    /// A reader can see the key byte without the slot or the slot without the key byte; the child
    /// counts only with both.
    #[test]
    fn half_an_insert_is_none() {
        for ty in [NodeType::N4, NodeType::N16, NodeType::N48] {
            let old = image(ty, 0, &[leaf(0), leaf(9)]);
            let vacancy = Part::whole(ty, &old).vacancy(200).unwrap();
            let (key_at, key) = vacancy.key.unwrap();
            let (mut with_key, mut with_slot) = (old.clone(), old.clone());
            with_key[key_at] = key;
            with_slot[vacancy.at] = leaf(200).word();
            for torn in [with_key, with_slot] {
                let part = Part::whole(ty, &torn);
                assert!(part.find(200).is_none() && part.children().len() == 2);
                assert_eq!(part.find(0).map(|(_, slot)| slot), Some(leaf(0)));
            }
        }
    }

    #[test]
    fn sparse_leaves_room_to_grow_back() {
        for layout in [PUBLISHED, HASHED] {
            for pair in layout.windows(2) {
                for live in 2..=pair[1].capacity() {
                    assert!(!pair[1].is_sparse(live) || pair[0].capacity() >= live * 2);
                }
            }
        }
    }
}
