//! Inner nodes: the adaptive hashed layout (paper, section 3.2) with an identity word per bucket.
//!
//! A node is an array of buckets, each one READ. Word 0 of every bucket is the node's *identity*
//! (depth and keyed hash of its whole prefix, [`super::prefix_hash`]); the other words are slots,
//! filled in order.
//!
//! ```text
//! bucket  +----------+--------+--------+-- ... --+--------+
//!         | identity | slot 0 | slot 1 |         | slot k |     8 bytes each
//!         +----------+--------+--------+-- ... --+--------+
//!
//! type   bytes  buckets x words   children     place of an edge
//! N4        32      1 x  4            3        first free slot
//! N8        64      1 x  8            7        first free slot
//! N12       96      1 x 12           11        first free slot
//! N16      128      1 x 16           15        first free slot
//! N32      256      2 x 16           30        bucket edge mod 2, first free slot
//! N64      512      4 x 16           60        bucket edge mod 4
//! N128    1024      8 x 16          120        bucket edge mod 8
//! N256    2304     18 x 16          257        bucket edge / 15, slot edge mod 15 (direct)
//! ```
//!
//! N4 and N12 are not in the paper: they compensate for the memory that the identity word costs
//! (see `docs/dart.md`). The low bits of the edge select the bucket: real key bytes cluster
//! (digits, letters), and their low bits spread evenly.

use super::prefix_hash::{HashedKey, identity_depth};
use crate::radix::slot::{self, END, FANOUT, NodeCode, order_of};
use crate::{IndexError, Result};
use darter_fabric::GlobalAddr;
use smallvec::SmallVec;

/// One slot of a node.
pub(crate) type Slot = slot::Slot<NodeType>;

/// The content of a slot, without the seal.
pub(crate) type Content = slot::Content<NodeType>;

/// The types of inner node, smallest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum NodeType {
    N4,
    N8,
    N12,
    N16,
    N32,
    N64,
    N128,
    N256,
}

/// Slots in a bucket of the direct node.
const DIRECT_SLOTS: u16 = 15;
/// Number of words of the largest node.
pub(crate) const NODE_WORDS_MAX: usize = 288;

impl NodeCode for NodeType {
    fn code(self) -> u8 {
        self as u8
    }

    fn from_code(code: u64) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }
}

impl NodeType {
    pub(crate) const ALL: [Self; 8] =
        [Self::N4, Self::N8, Self::N12, Self::N16, Self::N32, Self::N64, Self::N128, Self::N256];

    pub(crate) const fn name(self) -> &'static str {
        ["N4", "N8", "N12", "N16", "N32", "N64", "N128", "N256"][self as usize]
    }

    pub(crate) const fn buckets(self) -> usize {
        match self {
            Self::N4 | Self::N8 | Self::N12 | Self::N16 => 1,
            Self::N32 => 2,
            Self::N64 => 4,
            Self::N128 => 8,
            Self::N256 => 18,
        }
    }

    /// Number of words of one bucket, including the identity.
    pub(crate) const fn bucket_words(self) -> usize {
        match self {
            Self::N4 => 4,
            Self::N8 => 8,
            Self::N12 => 12,
            _ => 16,
        }
    }

    pub(crate) const fn words(self) -> usize {
        self.buckets() * self.bucket_words()
    }

    pub(crate) const fn bytes(self) -> u64 {
        self.words() as u64 * 8
    }

    /// Number of children that the type holds if its buckets fill evenly.
    pub(crate) const fn capacity(self) -> usize {
        match self {
            Self::N256 => FANOUT,
            _ => self.buckets() * (self.bucket_words() - 1),
        }
    }

    /// Selects the words that a replacement seals: all but the identities.
    pub(crate) fn seals(self) -> impl Fn(usize, u64) -> bool {
        move |at, _| at % self.bucket_words() != 0
    }

    /// Whether an edge has one fixed slot.
    pub(crate) const fn is_direct(self) -> bool {
        matches!(self, Self::N256)
    }

    /// The bucket of an edge.
    #[inline]
    pub(crate) const fn bucket_of(self, edge: u16) -> usize {
        if self.is_direct() { (edge / DIRECT_SLOTS) as usize } else { edge as usize & (self.buckets() - 1) }
    }

    /// The word of an edge's slot in its bucket, if the type fixes it.
    #[inline]
    pub(crate) const fn direct_word(self, edge: u16) -> Option<usize> {
        if self.is_direct() { Some(1 + (edge % DIRECT_SLOTS) as usize) } else { None }
    }

    /// The words that a search reads of an edge's bucket: all of it, or up to the one slot that
    /// matters.
    #[inline]
    pub(crate) const fn search_words(self, edge: u16) -> usize {
        match self.direct_word(edge) {
            Some(word) => word + 1,
            None => self.bucket_words(),
        }
    }

    /// The smallest type that holds these edges, with one slot each.
    pub(crate) fn fit<I: Iterator<Item = u16> + Clone>(edges: I) -> Self {
        Self::fit_leaving(0, edges)
    }

    /// The smallest type that holds these edges and any one further edge.
    pub(crate) fn fit_with_room<I: Iterator<Item = u16> + Clone>(edges: I) -> Self {
        Self::fit_leaving(1, edges)
    }

    /// The smallest type whose buckets hold these edges and have at least `free` free slots each.
    #[allow(clippy::needless_pass_by_value)] // an iterator is a value
    fn fit_leaving<I: Iterator<Item = u16> + Clone>(free: usize, edges: I) -> Self {
        let count = edges.clone().count();
        for ty in Self::ALL {
            if ty.capacity() < count {
                continue;
            }
            if ty.is_direct() {
                break;
            }
            let mut load = [0_usize; 8];
            edges.clone().for_each(|edge| load[ty.bucket_of(edge)] += 1);
            if load.iter().all(|&n| n + free < ty.bucket_words()) {
                return ty;
            }
        }
        Self::N256
    }

    /// Whether a node of this type with `live` children should be rebuilt at a smaller size, or
    /// collapsed.
    ///
    /// The threshold is half the capacity of the next smaller type, so that deleting a key and
    /// inserting it again does not switch types twice.
    pub(crate) fn is_sparse(self, live: usize) -> bool {
        live <= 1 || (self > Self::N4 && live * 2 <= Self::ALL[self as usize - 1].capacity())
    }
}

/// The location of an inner node, with its type and depth as given by the pointer that led here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeRef {
    pub(crate) addr: GlobalAddr,
    pub(crate) ty: NodeType,
    /// Length of the node's prefix in bytes.
    pub(crate) depth: usize,
}

impl NodeRef {
    /// Whether the key has this node's whole prefix, given the node's identity word.
    pub(crate) fn is_on_path(&self, key: &mut HashedKey<'_>, identity: u64) -> bool {
        key.bytes().len() >= self.depth && key.identity(self.depth) == identity
    }

    /// The address of the bucket to which an edge belongs.
    #[inline]
    pub(crate) fn bucket_addr(&self, edge: u16) -> GlobalAddr {
        self.addr.plus((self.ty.bucket_of(edge) * self.ty.bucket_words() * 8) as u64)
    }
}

/// The slots of a whole node with their word positions, without the identity words.
pub(crate) fn slots(ty: NodeType, words: &[u64]) -> impl Iterator<Item = (usize, Slot)> + Clone + '_ {
    words
        .iter()
        .enumerate()
        .filter(move |(at, _)| at % ty.bucket_words() != 0)
        .map(|(at, &word)| (at, Slot::from_word(word)))
}

/// Live children of a whole node in key order, with the end of the key first.
pub(crate) fn children_in_order(ty: NodeType, words: &[u64]) -> SmallVec<[Slot; 16]> {
    let live = |(_, slot): (usize, Slot)| Some(slot.unsealed()).filter(|slot| slot.is_live());
    let mut children: SmallVec<[Slot; 16]> = SmallVec::new();
    if ty.is_direct() {
        // The slots are in the order of their edges, except for the last edge, the end of the key.
        let end = ty.bucket_of(END) * ty.bucket_words() + ty.direct_word(END).unwrap_or(0);
        children.extend(live((end, Slot::from_word(words[end]))));
        children.extend(slots(ty, &words[..end]).filter_map(live));
    } else {
        children.extend(slots(ty, words).filter_map(live));
        children.sort_unstable_by_key(|slot| order_of(slot.edge().unwrap_or(END)));
    }
    children
}

/// Compares the depth in a node's identity with the depth given by its pointers. Depths grow along
/// every path, so this also prevents cycles through pointers of a damaged pool.
///
/// # Errors
/// [`IndexError::Corrupt`] if they differ.
pub(crate) fn verify_depth(node: NodeRef, words: &[u64]) -> Result<()> {
    if identity_depth(words[0]) != node.depth {
        return Err(IndexError::corrupt(node.addr, "node of another depth than its pointer says"));
    }
    Ok(())
}

/// Checks for two children under one edge, and for slots of unknown type, which no copy could hold.
///
/// # Errors
/// [`IndexError::Corrupt`] if there are any.
pub(crate) fn verify_edges(node: NodeRef, words: &[u64]) -> Result<()> {
    let mut seen = [false; FANOUT];
    for (_, slot) in slots(node.ty, words).filter(|(_, slot)| slot.is_live()) {
        let twice = slot.edge().is_some_and(|edge| std::mem::replace(&mut seen[usize::from(edge)], true));
        if twice || slot.content() == Content::Invalid {
            let what = if twice { "two slots of one edge" } else { "slot of unknown type" };
            return Err(IndexError::corrupt(node.addr, what));
        }
    }
    Ok(())
}

/// The words of a node with these children, which must fit `ty`.
pub(crate) fn image(ty: NodeType, identity: u64, children: &[Slot]) -> Vec<u64> {
    let mut words = vec![0; ty.words()];
    let width = ty.bucket_words();
    words.iter_mut().step_by(width).for_each(|word| *word = identity);
    for child in children {
        let edge = child.edge().unwrap_or(END);
        let bucket = ty.bucket_of(edge) * width;
        let at = match ty.direct_word(edge) {
            Some(word) => bucket + word,
            None => (bucket + 1..bucket + width).find(|&at| words[at] == 0).unwrap_or(bucket + width - 1),
        };
        debug_assert_eq!(words[at], 0, "{ty:?} cannot hold {children:?}");
        words[at] = child.word();
    }
    words
}

const _: () = assert!(NodeType::N256.words() == NODE_WORDS_MAX && NodeType::N256.bytes() == 2304);
const _: () = assert!(NodeType::N256.buckets() * DIRECT_SLOTS as usize >= FANOUT);

#[cfg(test)]
mod tests {
    use super::super::seal::SEAL;
    use super::*;

    #[test]
    fn images_hold_every_edge_where_searches_look() {
        for count in [0_usize, 1, 3, 4, 7, 8, 11, 15, 16, 30, 60, 119, 200, 257] {
            // The end of the key takes the place of byte 3, which comes last.
            let edges: Vec<u16> = (0..count as u16)
                .map(|i| [i, END, 3][usize::from(i == 3) + 2 * usize::from(i == 256)])
                .collect();
            let ty = NodeType::fit(edges.iter().copied());
            let children: Vec<Slot> = edges
                .iter()
                .map(|&e| Slot::leaf(e, 4, GlobalAddr::new(0, 4096 + u64::from(e) * 16)))
                .collect();
            let words = image(ty, 77, &children);
            for child in &children {
                let edge = child.edge().unwrap();
                let bucket = &words[ty.bucket_of(edge) * ty.bucket_words()..][..ty.search_words(edge)];
                assert_eq!(bucket[0], 77);
                assert!(bucket[1..].contains(&child.word()), "{ty:?} lost edge {edge}");
            }
            let ordered = children_in_order(ty, &words);
            assert_eq!(ordered.len(), count);
            assert!(
                ordered.windows(2).all(|w| order_of(w[0].edge().unwrap()) < order_of(w[1].edge().unwrap()))
            );
        }
    }

    /// In a pool with flipped bits, a replacement found two slots of one edge. The copy could not
    /// hold them, which caused a panic.
    #[test]
    fn two_slots_of_one_edge_are_noticed() {
        let leaf = |edge| Slot::leaf(edge, 4, GlobalAddr::new(0, 4096)).word();
        let node = NodeRef { addr: GlobalAddr::new(0, 64), ty: NodeType::N4, depth: 0 };
        let tomb = Slot::tomb(9).word();
        assert!(verify_edges(node, &[0, leaf(9), leaf(END), tomb, 0]).is_ok());
        assert!(verify_edges(node, &[0, leaf(9), leaf(END), leaf(9) | SEAL, 0]).is_err());
        assert!(verify_edges(node, &[0, leaf(9), leaf(END), 0xf << 51, 0]).is_err());
    }

    #[test]
    fn fit_is_tight() {
        assert_eq!(NodeType::fit(0..3), NodeType::N4);
        assert_eq!(NodeType::fit(0..4), NodeType::N8);
        assert_eq!(NodeType::fit((0..30).map(|i| i * 2)), NodeType::N64, "even edges fill one bucket of N32");
        assert_eq!(NodeType::fit(0..30), NodeType::N32);
        assert_eq!(NodeType::fit(0..257), NodeType::N256);
        assert_eq!(NodeType::fit_with_room(0..2), NodeType::N4);
        assert_eq!(NodeType::fit_with_room(0..3), NodeType::N8);
        assert_eq!(NodeType::fit_with_room((0..15).map(|i| i * 2)), NodeType::N64);
        assert_eq!(NodeType::fit_with_room(0..257), NodeType::N256);
    }

    #[test]
    fn sparse_leaves_room_to_grow_back() {
        for ty in NodeType::ALL {
            for live in 2..ty.capacity() {
                if ty.is_sparse(live) {
                    assert!(NodeType::ALL[ty as usize - 1].capacity() >= live * 2);
                }
            }
        }
    }
}
