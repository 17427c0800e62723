//! The client's cache of inner nodes, at which searches of hot keys start (paper, section 5.1).
//!
//! An entry is one word for one *node*, under the express hash of the node's own prefix, so all the
//! keys that end below a node share it. A search looks up the prefixes of its key, the longest
//! first, at the depths at which any node was ever cached. This probes local memory and needs no
//! verb. Like any hint, a cached node is verified by one read of its bucket (rules R1 and R2).
//!
//! An entry does not show whether its node still exists. A cached node is forgotten before its
//! memory is reused ([`super::retired_log`] contains the argument).
//!
//! A line has eight words: seven entries and a head. A hash selects the line. Only the upper 44
//! bits of the hash count ([`HintHash`]): their upper part selects the line, and the low 17 are the
//! check.
//!
//! ```text
//! line   | head | entry 0 | entry 1 | ... | entry 6 |          64 bytes, aligned
//!
//!         63             47 46  44 43                        0
//! entry  +-----------------+------+---------------------------+
//!        |    check 17     | type |    address / 16, 44       |     0 = none
//!        +-----------------+------+---------------------------+
//!
//!         63             25 24          11  10  9     7 6          0
//! head   +-----------------+--------------+---+--------+------------+
//!        |     era 39      |  far, 2 each | L |  hand  |    used    |
//!        +-----------------+--------------+---+--------+------------+
//! ```
//!
//! *Used* has a bit for each entry at which a search has started since the *hand* last passed: the
//! replacement is CLOCK within a line. A line counts as empty for operations of a later era, so
//! that incrementing the era forgets the whole cache. An operation that caches a node tries the
//! lock *L* and never waits for it: if the lock is taken, the node is not cached.
//!
//! A node high in the tree is a bad start for keys that end far below it, whose deepest nodes the
//! express skip table names in one round trip. *Far* is a saturating counter for each entry. A
//! search that started at the entry increments it if it read two nodes or more below the entry, and
//! decrements it if it ended there. At [`FAR`] and above, no search starts at the entry.

use super::node::{NodeRef, NodeType};
use super::prefix_hash::HashedKey;
use crate::radix::slot::NodeCode;
use darter_fabric::GlobalAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries in a line.
const WAYS: usize = 7;
/// Bytes in a line.
const LINE_BYTES: u64 = 64;
/// Maximum number of lines, so that the bits that select a line and those of the check do not
/// overlap.
const LINES_MAX: u64 = 1 << 27;
/// Nodes at this depth or deeper are not cached.
const DEPTHS: usize = 320;

const ADDR_BITS: u32 = 44;
const CHECK_SHIFT: u32 = 47;
const USED: u64 = (1 << WAYS) - 1;
const HAND_SHIFT: u32 = 7;
const LOCKED: u64 = 1 << 10;
const FAR_SHIFT: u32 = 11;
const ERA_SHIFT: u32 = 25;

/// Value of an entry's *far* counter from which searches no longer start at the entry.
const FAR: u64 = 2;
const FAR_MAX: u64 = 3;
/// Initial counter of a new entry: one search that ends far below is enough.
const FAR_NEW: u64 = 1;

/// The part of an express hash that the cache and the log of retired nodes use: its upper 44 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HintHash(u64);

impl HintHash {
    /// From the express hash of a node's whole prefix.
    pub(crate) const fn new(express: u64) -> Self {
        Self(express >> (64 - ADDR_BITS))
    }

    /// From the 44 bits themselves; other bits are ignored.
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits & ((1 << ADDR_BITS) - 1))
    }

    /// The 44 bits.
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// The check, at its place in an entry.
    fn check(self) -> u64 {
        self.0 << CHECK_SHIFT
    }
}

#[repr(align(64))]
#[derive(Debug, Default)]
struct Line {
    head: AtomicU64,
    entries: [AtomicU64; WAYS],
}

const _: () = assert!(size_of::<Line>() as u64 == LINE_BYTES);

impl Line {
    /// The entry with this check, and its index.
    #[inline]
    fn find(&self, check: u64) -> Option<(usize, u64)> {
        let words = self.entries.iter().map(|entry| entry.load(Ordering::Acquire));
        words.enumerate().find(|&(_, word)| word != 0 && word >> CHECK_SHIFT == check >> CHECK_SHIFT)
    }

    /// The place for an entry with this check, and the updated head: the place that it already has,
    /// else a free one, else the next that was not used since the hand last passed it.
    fn place(&self, check: u64, mut head: u64) -> (usize, u64) {
        let free = || self.entries.iter().position(|entry| entry.load(Ordering::Relaxed) == 0);
        if let Some(at) = self.find(check).map(|(at, _)| at).or_else(free) {
            return (at, head);
        }
        let mut hand = (head >> HAND_SHIFT & 7) as usize % WAYS;
        while head & 1 << hand != 0 {
            head &= !(1 << hand);
            hand = (hand + 1) % WAYS;
        }
        let next = ((hand + 1) % WAYS) as u64;
        (hand, head & !(7 << HAND_SHIFT) | next << HAND_SHIFT)
    }
}

/// An entry's counter, from its line's head.
fn far_of(head: u64, at: usize) -> u64 {
    head >> (FAR_SHIFT + 2 * at as u32) & 3
}

/// The head with an entry's counter replaced.
fn with_far(head: u64, at: usize, far: u64) -> u64 {
    let shift = FAR_SHIFT + 2 * at as u32;
    head & !(3 << shift) | far << shift
}

/// The cache. It uses its whole budget, rounded down to full lines.
#[derive(Debug)]
pub(crate) struct HintCache {
    lines: Box<[Line]>,
    /// The depths at which any node was ever cached, one bit each.
    depths: [AtomicU64; DEPTHS / 64],
}

impl HintCache {
    /// An empty cache of at most `budget` bytes.
    pub(crate) fn new(budget: u64) -> Self {
        let lines = (budget / LINE_BYTES).min(LINES_MAX);
        Self { lines: (0..lines).map(|_| Line::default()).collect(), depths: Default::default() }
    }

    /// Bytes that the cache uses.
    pub(crate) fn bytes(&self) -> u64 {
        self.lines.len() as u64 * LINE_BYTES
    }

    #[inline]
    fn line(&self, hash: HintHash) -> Option<&Line> {
        let at = (u128::from(hash.0) * self.lines.len() as u128) >> ADDR_BITS;
        self.lines.get(at as usize)
    }

    /// The deepest cached node on this key's path, as far as the checks can tell. `era` is that of
    /// the caller's operation.
    #[inline]
    pub(crate) fn deepest(&self, key: &mut HashedKey<'_>, era: u64) -> Option<NodeRef> {
        let longest = key.bytes().len().min(DEPTHS - 1);
        for number in (0..=longest / 64).rev() {
            let mut depths = self.depths[number].load(Ordering::Relaxed);
            if number == longest / 64 {
                depths &= u64::MAX >> (63 - longest % 64);
            }
            while depths != 0 {
                let bit = depths.ilog2();
                depths ^= 1 << bit;
                let depth = number * 64 + bit as usize;
                let hash = HintHash::new(key.express(depth));
                if let Some((addr, ty, is_far)) = self.get(hash, era) {
                    // Any cached nodes above it are farther still.
                    return (!is_far).then_some(NodeRef { addr, ty, depth });
                }
            }
        }
        None
    }

    /// The node cached for this hash in this era or a later one, and whether most searches end far
    /// below it.
    #[inline]
    fn get(&self, hash: HintHash, era: u64) -> Option<(GlobalAddr, NodeType, bool)> {
        let line = self.line(hash)?;
        let head = line.head.load(Ordering::Acquire);
        if head >> ERA_SHIFT < era {
            return None;
        }
        let (at, word) = line.find(hash.check())?;
        let is_far = far_of(head, at) >= FAR;
        if head & 1 << at == 0 && !is_far {
            line.head.fetch_or(1 << at, Ordering::Relaxed);
        }
        let ty = NodeType::from_code(word >> ADDR_BITS & 7)?;
        Some((GlobalAddr::from_bits((word & ((1 << ADDR_BITS) - 1)) << 4), ty, is_far))
    }

    /// Counts a search that started at the node cached for this hash, and either ended there or
    /// read two nodes or more below it.
    #[inline]
    pub(crate) fn note_end(&self, hash: HintHash, is_far: bool) {
        let Some(line) = self.line(hash) else { return };
        let head = line.head.load(Ordering::Relaxed);
        let Some((at, _)) = line.find(hash.check()) else { return };
        let far = far_of(head, at);
        let new = if is_far { (far + 1).min(FAR_MAX) } else { far.saturating_sub(1) };
        if new != far && head & LOCKED == 0 {
            // If another search wins the CAS, this search is not counted.
            let new = with_far(head, at, new);
            let _ = line.head.compare_exchange(head, new, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Caches a node that the calling operation has found in the tree, under the hash of its whole
    /// prefix. `era` was read before that.
    #[inline]
    pub(crate) fn put(&self, hash: HintHash, era: u64, node: NodeRef) {
        let Some(line) = self.line(hash) else { return };
        if node.depth >= DEPTHS {
            return;
        }
        let head = line.head.load(Ordering::Relaxed);
        if head & LOCKED != 0 || head >> ERA_SHIFT > era {
            return;
        }
        let lock = line.head.compare_exchange(head, head | LOCKED, Ordering::Acquire, Ordering::Relaxed);
        if lock.is_err() {
            return;
        }
        let mut head = head;
        if head >> ERA_SHIFT < era {
            line.entries.iter().for_each(|entry| entry.store(0, Ordering::Relaxed));
            head = era << ERA_SHIFT;
        }
        let (at, head) = line.place(hash.check(), head);
        let word = hash.check() | (node.ty as u64) << ADDR_BITS | node.addr.bits() >> 4;
        let old = line.entries[at].swap(word, Ordering::AcqRel);
        let is_known = old != 0 && old >> CHECK_SHIFT == word >> CHECK_SHIFT;
        let far = if is_known { far_of(head, at).saturating_sub(1) } else { FAR_NEW };
        line.head.store(with_far(head & !(1 << at), at, far), Ordering::Release);
        let (number, bit) = (node.depth / 64, 1 << (node.depth % 64));
        if self.depths[number].load(Ordering::Relaxed) & bit == 0 {
            self.depths[number].fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Forgets the node cached under this hash.
    ///
    /// Only an operation that has found the node in the tree since can cache it again.
    pub(crate) fn forget(&self, hash: HintHash) {
        let Some(line) = self.line(hash) else { return };
        for entry in &line.entries {
            let word = entry.load(Ordering::Acquire);
            if word >> CHECK_SHIFT == hash.check() >> CHECK_SHIFT {
                // On failure, another thread has forgotten it or another node has taken its place.
                let _ = entry.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// The node cached under a hash in this era, for tests.
    #[cfg(test)]
    pub(crate) fn remembered(&self, hash: u64, era: u64) -> Option<(GlobalAddr, NodeType)> {
        self.get(HintHash::new(hash), era).map(|(addr, ty, _)| (addr, ty))
    }
}

const _: () = assert!(NodeType::ALL.len() <= 8 && USED < 1 << HAND_SHIFT);

#[cfg(test)]
mod tests {
    use super::super::prefix_hash::HashKeys;
    use super::*;

    const KEYS: [u64; 4] = [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 1];

    fn node(offset: u64, depth: usize) -> NodeRef {
        NodeRef { addr: GlobalAddr::new(3, offset), ty: NodeType::N256, depth }
    }

    #[allow(clippy::unnecessary_wraps)] // for comparison with lookup results
    fn found(node: NodeRef) -> Option<(GlobalAddr, NodeType, bool)> {
        Some((node.addr, node.ty, false))
    }

    /// A hash that falls into one fixed line: only its check varies.
    fn of_one_line(check: u64) -> HintHash {
        HintHash::from_bits(check)
    }

    #[test]
    fn a_budget_is_used_to_its_last_line() {
        assert_eq!(HintCache::new(1000).bytes(), 960);
        assert_eq!(HintCache::new(63).bytes(), 0);
        HintCache::new(63).put(of_one_line(1), 0, node(160, 2));
        assert_eq!(HintCache::new(63).get(of_one_line(1), 0), None);
    }

    #[test]
    fn hints_last_until_they_are_forgotten() {
        let cache = HintCache::new(4096);
        cache.put(of_one_line(77), 5, node(160, 9));
        cache.put(of_one_line(78), 5, node(176, 9));
        assert_eq!(cache.get(of_one_line(77), 5), found(node(160, 9)));
        assert_eq!(cache.get(of_one_line(77), 4), found(node(160, 9)), "for operations that began before");
        assert_eq!(cache.get(of_one_line(79), 5), None);
        cache.forget(of_one_line(77));
        assert_eq!(cache.get(of_one_line(77), 5), None);
        assert_eq!(cache.get(of_one_line(78), 5), found(node(176, 9)));
    }

    /// All 17 bits of the check are compared, and all 44 bits of the address are kept.
    #[test]
    fn no_other_hash_is_taken_for_this_one() {
        for bit in 0..17 {
            let cache = HintCache::new(64);
            let last = GlobalAddr::from_bits(((1 << ADDR_BITS) - 1) << 4);
            cache.put(of_one_line(0), 0, NodeRef { addr: last, ty: NodeType::N4, depth: 1 });
            assert_eq!(cache.get(of_one_line(1 << bit), 0), None, "bit {bit}");
            cache.put(of_one_line(1 << bit), 0, node(320, 1));
            assert_eq!(cache.get(of_one_line(0), 0), Some((last, NodeType::N4, false)));
            assert_eq!(cache.get(of_one_line(1 << bit), 0), found(node(320, 1)));
        }
    }

    #[test]
    fn nothing_of_an_era_is_left_in_the_next() {
        let cache = HintCache::new(64);
        for check in 0..7 {
            cache.put(of_one_line(check), 5, node(160, 9));
        }
        assert_eq!(cache.get(of_one_line(0), 6), None);
        cache.put(of_one_line(0), 6, node(320, 9));
        assert_eq!(cache.get(of_one_line(0), 6), found(node(320, 9)));
        assert!((1..7).all(|check| cache.get(of_one_line(check), 6).is_none()));
        cache.put(of_one_line(1), 5, node(160, 9));
        assert_eq!(cache.get(of_one_line(1), 6), None, "remembered by an operation of the era before");
    }

    #[test]
    fn what_is_used_stays() {
        let cache = HintCache::new(64);
        cache.put(of_one_line(0), 0, node(160, 9));
        for check in 1..100 {
            assert_eq!(cache.get(of_one_line(0), 0), found(node(160, 9)), "before {check}");
            cache.put(of_one_line(check), 0, node(320, 9));
        }
    }

    #[test]
    fn hint_is_far_if_searches_end_far_below_it() {
        let cache = HintCache::new(64);
        let is_far = || cache.get(of_one_line(0), 0).unwrap().2;
        cache.put(of_one_line(0), 0, node(160, 9));
        assert!(!is_far());
        cache.note_end(of_one_line(0), true);
        assert!(is_far());
        cache.put(of_one_line(0), 0, node(160, 9));
        assert!(!is_far(), "a search that began elsewhere has ended there");
        for _ in 0..9 {
            cache.note_end(of_one_line(0), true);
        }
        cache.note_end(of_one_line(0), false);
        assert!(is_far(), "one of three");
        cache.note_end(of_one_line(0), false);
        assert!(!is_far());
        cache.note_end(of_one_line(1), true);
        cache.put(of_one_line(1), 0, node(160, 9));
        assert!(!cache.get(of_one_line(1), 0).unwrap().2);
    }

    #[test]
    fn the_deepest_node_on_the_way_is_found() {
        let cache = HintCache::new(64 << 10);
        let bytes = [7; 400];
        let mut key = HashedKey::new(HashKeys::new(KEYS), &bytes);
        for (at, depth) in [1, 2, 63, 64, 65, 200, 319, 320].into_iter().enumerate() {
            assert_eq!(
                cache.deepest(&mut key, 0).map_or(0, |node| node.depth),
                [0, 1, 2, 63, 64, 65, 200, 319][at]
            );
            cache.put(HintHash::new(key.express(depth)), 0, node(160, depth));
        }
        assert_eq!(cache.deepest(&mut key, 0), Some(node(160, 319)), "deeper ones are not remembered");
        let mut shorter = HashedKey::new(HashKeys::new(KEYS), &bytes[..64]);
        assert_eq!(cache.deepest(&mut shorter, 0), Some(node(160, 64)), "a key may end at a node");
        cache.forget(HintHash::new(key.express(64)));
        assert_eq!(cache.deepest(&mut shorter, 0), Some(node(160, 63)));
    }
}
