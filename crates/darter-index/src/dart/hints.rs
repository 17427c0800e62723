//! The client's cache of express nodes: where searches of hot keys began last time (paper, section
//! 5.1).
//!
//! A direct-mapped table shared by the threads of a process, keyed by the express hash of the
//! longest prefix a search would probe. An entry is good as long as no node has been retired since
//! it was read (`retirement.rs`): how many rounds of retirement there have been is mixed into its
//! check word, so that the whole cache is forgotten when there is one more. Check and value are two
//! words that two threads may write at once; they are stored as `check ^ value` and `value`, and a
//! torn pair fails the check.
//!
//! ```text
//!  63      48 47    44 43                        0
//! +----------+--------+---------------------------+
//! | depth 16 | type 4 |  address / 16, 44         |   value; 0 = none
//! +----------+--------+---------------------------+
//! ```

use super::node::{NodeRef, NodeType};
use crate::radix::slot::NodeCode;
use darter_fabric::{GlobalAddr, mutant};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of one entry.
const ENTRY_BYTES: u64 = 16;

/// The cache; empty when its budget is too small to matter.
#[derive(Debug)]
pub(crate) struct HintCache {
    entries: Box<[[AtomicU64; 2]]>,
}

impl HintCache {
    /// A cache of at most `budget` bytes.
    pub(crate) fn new(budget: u64) -> Self {
        let count = match budget / ENTRY_BYTES {
            0..64 => 0,
            count => 1_usize << count.ilog2().min(30),
        };
        Self { entries: (0..count).map(|_| [AtomicU64::new(0), AtomicU64::new(0)]).collect() }
    }

    /// Bytes it takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.entries.len() as u64 * ENTRY_BYTES
    }

    fn check(hash: u64, retirements: u64) -> u64 {
        hash ^ retirements.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// The node remembered for this hash since the last round of retirement.
    #[inline]
    pub(crate) fn get(&self, hash: u64, retirements: u64) -> Option<NodeRef> {
        if self.entries.is_empty() {
            return None;
        }
        let entry = &self.entries[hash as usize & (self.entries.len() - 1)];
        let value = entry[1].load(Ordering::Relaxed);
        let tied = if mutant!("hint-not-tied-to-its-check") { 0 } else { value };
        if value == 0 || entry[0].load(Ordering::Relaxed) ^ tied != Self::check(hash, retirements) {
            return None;
        }
        let ty = NodeType::from_code(value >> 44 & 0xf)?;
        Some(NodeRef {
            addr: GlobalAddr::from_bits((value & ((1 << 44) - 1)) << 4),
            ty,
            depth: (value >> 48) as usize,
        })
    }

    /// Remembers a node for this hash until the next round of retirement.
    #[inline]
    pub(crate) fn put(&self, hash: u64, retirements: u64, node: NodeRef) {
        if self.entries.is_empty() || node.depth > usize::from(u16::MAX) {
            return;
        }
        let value = node.addr.bits() >> 4 | (node.ty as u64) << 44 | (node.depth as u64) << 48;
        let entry = &self.entries[hash as usize & (self.entries.len() - 1)];
        let tied = if mutant!("hint-not-tied-to-its-check") { 0 } else { value };
        entry[0].store(Self::check(hash, retirements) ^ tied, Ordering::Relaxed);
        entry[1].store(value, Ordering::Relaxed);
    }

    /// Forgets what is remembered for this hash: it led nowhere.
    pub(crate) fn forget(&self, hash: u64) {
        if !self.entries.is_empty() {
            self.entries[hash as usize & (self.entries.len() - 1)][1].store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_last_until_the_next_retirement() {
        let cache = HintCache::new(4096);
        assert_eq!(cache.bytes(), 4096);
        let node = NodeRef { addr: GlobalAddr::new(3, 160), ty: NodeType::N12, depth: 9 };
        cache.put(77, 5, node);
        assert_eq!(cache.get(77, 5), Some(node));
        assert_eq!(cache.get(77, 6), None);
        assert_eq!(cache.get(77 + 256, 5), None);
        cache.forget(77);
        assert_eq!(cache.get(77, 5), None);
        HintCache::new(100).put(77, 5, node);
    }

    /// Two threads remember nodes in one place at once, and each word is another's.
    #[test]
    fn a_torn_hint_is_none() {
        let node = |offset| NodeRef { addr: GlobalAddr::new(0, offset), ty: NodeType::N4, depth: 3 };
        let words = |hash, round, offset| {
            let cache = HintCache::new(1024);
            cache.put(hash, round, node(offset));
            assert_eq!(cache.get(hash, round), Some(node(offset)));
            [0, 1].map(|word| cache.entries[0][word].load(Ordering::Relaxed))
        };
        let written = [(0, 5, 160), (64, 5, 320), (0, 6, 480)];
        for (one, two) in written.iter().flat_map(|one| written.iter().map(move |two| (one, two))) {
            let torn = HintCache::new(1024);
            torn.entries[0][0].store(words(one.0, one.1, one.2)[0], Ordering::Relaxed);
            torn.entries[0][1].store(words(two.0, two.1, two.2)[1], Ordering::Relaxed);
            for (hash, round, _) in written {
                let is_whole = one == two && (hash, round) == (one.0, one.1);
                assert_eq!(torn.get(hash, round), is_whole.then(|| node(one.2)));
            }
        }
    }
}
