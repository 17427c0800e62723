//! Homogeneous adaptive inner nodes and their headers (SMART, section 4.1.1 and Figure 6a).
//!
//! ```text
//! word 0      reverse pointer: the node above, a hint
//! word 1      header
//! words 2 ..  slots, in order of appending
//!
//! header   63      56 55   51 50      48 47                 0
//!         +----------+-------+----------+-------------------+
//!         |   depth  |  type |  length  |  6 partial bytes  |
//!         +----------+-------+----------+-------------------+
//!
//! type      1   2   3   4   5    6    7    8
//! slots     4   8  16  32  64  128  256  257
//! ```
//!
//! A node's memory has room for all slots, so that a type switch moves nothing. The paper has 256
//! slots; the 257th, of type 8, is for a node with a child for every byte and a key that ends
//! there. It fits in the remainder of the pool's size class.
//!
//! The *type* in the header determines which slots exist: a slot beyond does not exist yet. The
//! type in the slot that points to the node is a hint of how much to READ.
//!
//! The *partial bytes* are the last bytes of the node's prefix: those from its depth to the edges
//! of its slots. A client knows at which byte of the key it enters a node; that byte is at or after
//! the header's depth, by at most six. So eight bits of depth determine exactly which bytes remain
//! to be compared, for keys of any length. A header only ever gains bytes, at the front.

pub(super) use super::node_type::{NodeType, SLOTS_MAX};
use super::slot::Slot;
use darter_fabric::GlobalAddr;
use smallvec::SmallVec;

/// Words before the slots.
pub(super) const HEADER_WORDS: usize = 2;
/// Words of a node.
pub(super) const NODE_WORDS: usize = HEADER_WORDS + SLOTS_MAX;
/// Bytes of a node as allocated.
pub(super) const NODE_BYTES: u64 = NODE_WORDS as u64 * 8;
/// Bytes of a node as published.
pub(super) const PUBLISHED_BYTES: u64 = 2064;
/// Partial bytes in a header.
pub(super) const PARTIAL_MAX: usize = 6;

/// Bytes that one node of a chain takes: its header's and its slot's.
pub(super) const CHAIN_BYTES: usize = PARTIAL_MAX + 1;

/// The bytes of a compressed path that a header holds.
pub(super) type Partial = SmallVec<[u8; PARTIAL_MAX]>;

/// A node's header word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header(u64);

impl Header {
    pub(super) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(super) const fn word(self) -> u64 {
        self.0
    }

    /// Creates a header with these partial bytes, at most six, the first of them at `depth`.
    pub(super) fn new(depth: usize, ty: NodeType, partial: &[u8]) -> Self {
        debug_assert!(partial.len() <= PARTIAL_MAX, "{} partial bytes", partial.len());
        let bytes = partial.iter().take(PARTIAL_MAX).enumerate();
        let packed = bytes.fold(0, |word, (at, &byte)| word | u64::from(byte) << (40 - 8 * at));
        let len = partial.len().min(PARTIAL_MAX) as u64;
        Self((depth as u64 & 0xff) << 56 | u64::from(ty.code()) << 51 | len << 48 | packed)
    }

    /// Returns the type; `None` in an invalid header.
    #[inline]
    pub(super) const fn ty(self) -> Option<NodeType> {
        NodeType::from_code((self.0 >> 51 & 31) as u8)
    }

    #[must_use]
    pub(super) const fn with_type(self, ty: NodeType) -> Self {
        Self(self.0 & !(31 << 51) | (ty.code() as u64) << 51)
    }

    const fn depth(self) -> u8 {
        (self.0 >> 56) as u8
    }

    const fn len(self) -> usize {
        (self.0 >> 48 & 7) as usize
    }

    fn byte(self, at: usize) -> u8 {
        (self.0 >> (40 - 8 * at)) as u8
    }

    /// Returns the bytes that remain to be compared after entering at `depth`; `None` if the header
    /// does not reach up to there.
    #[inline]
    pub(super) fn partial_from(self, depth: usize) -> Option<Partial> {
        let skip = usize::from((depth as u8).wrapping_sub(self.depth()));
        let len = self.len();
        (skip <= len && len <= PARTIAL_MAX).then(|| (skip..len).map(|at| self.byte(at)).collect())
    }

    /// Returns whether the edges of a node with this header can be at byte `depth` of a key.
    pub(super) const fn ends_at(self, depth: usize) -> bool {
        self.len() <= PARTIAL_MAX && self.depth().wrapping_add(self.len() as u8) == depth as u8
    }
}

/// Returns the words of a new node; slots beyond `children` are empty.
pub(super) fn image(above: GlobalAddr, header: Header, children: &[Slot]) -> Vec<u64> {
    let mut words = vec![0; NODE_WORDS];
    words[0] = above.bits();
    words[1] = header.word();
    for (word, child) in words[HEADER_WORDS..].iter_mut().zip(children) {
        *word = child.word();
    }
    words
}

/// Returns the address of a node's slot.
pub(super) const fn slot_addr(node: GlobalAddr, index: usize) -> GlobalAddr {
    node.plus(((HEADER_WORDS + index) * 8) as u64)
}

/// Returns the address of a node's header.
pub(super) const fn header_addr(node: GlobalAddr) -> GlobalAddr {
    node.plus(8)
}

/// Returns whether slots read from a node prove that it was in the tree at that time: before a node
/// is removed, all its taken slots and its first empty slot are sealed.
pub(super) fn proves_life(slots: &[u64]) -> bool {
    let taken = slots.iter().take_while(|&&word| !Slot::from_word(word).is_empty()).count();
    slots.iter().take(taken + 1).any(|&word| !Slot::from_word(word).is_sealed())
}

/// Returns the live children among slots in key order, the end of the key first.
pub(super) fn children_in_order(slots: &[u64]) -> SmallVec<[Slot; 16]> {
    let live = slots.iter().map(|&word| Slot::from_word(word).unsealed()).filter(|slot| slot.is_live());
    let mut children: SmallVec<[Slot; 16]> = live.collect();
    children.sort_unstable_by_key(|slot| slot.edge().map(darter_index::radix::slot::order_of));
    children
}

/// Returns the number of live children among slots.
pub(super) fn live_count(slots: &[u64]) -> usize {
    slots.iter().filter(|&&word| Slot::from_word(word).is_live()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip_at_any_depth() {
        for depth in [0_usize, 1, 255, 256, 65_530] {
            for len in 0..=PARTIAL_MAX {
                let bytes: Vec<u8> = (0..len as u8).map(|at| at * 40 + 7).collect();
                let header = Header::new(depth, NodeType::LARGEST, &bytes);
                assert_eq!(header.ty(), Some(NodeType::LARGEST));
                assert!(header.ends_at(depth + len) && !header.ends_at(depth + len + 1));
                for skip in 0..=len {
                    assert_eq!(header.partial_from(depth + skip).unwrap()[..], bytes[skip..]);
                }
                assert!(header.partial_from(depth + len + 1).is_none());
                assert!(depth == 0 || header.partial_from(depth - 1).is_none());
                assert_eq!(
                    header.with_type(NodeType::SMALLEST),
                    Header::new(depth, NodeType::SMALLEST, &bytes)
                );
            }
        }
        assert_eq!(Header::from_word(0).ty(), None);
        assert!(Header::from_word(u64::MAX).partial_from(255).is_none());
    }

    #[test]
    fn types_hold_what_they_say() {
        assert_eq!(NodeType::ALL.map(NodeType::slots), [4, 8, 16, 32, 64, 128, 256, 257]);
        assert_eq!([1, 4, 5, 200, 257].map(|n| NodeType::fit(n).slots()), [4, 4, 8, 256, 257]);
    }

    #[test]
    fn a_node_lives_until_its_first_empty_slot_is_sealed() {
        let (taken, sealed) = (Slot::tomb(3).word(), Slot::tomb(3).sealed().word());
        assert!(proves_life(&[taken, sealed, 0, 0]));
        assert!(proves_life(&[sealed, sealed, 0, 0]));
        assert!(!proves_life(&[sealed, sealed, 1, 0]));
        assert!(!proves_life(&[sealed, sealed]));
        assert!(!proves_life(&[1, 0, 0, 0]));
    }
}
