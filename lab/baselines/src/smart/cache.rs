//! A compute node's cache of inner nodes (SMART, section 4.3 and Figure 9).
//!
//! An entry is the snapshot of a node: its address and slots, under the node's prefix. A lookup
//! finds the deepest entry on a key's path. If the budget is exceeded, entries are evicted in order
//! of insertion (FIFO). An entry counts 1 + 8 + 8 × slots bytes, as in the published system; as
//! there, the index of the entries is not counted: here ordered maps of prefixes, in which two or
//! three searches for a predecessor find the longest prefix of a key.
//!
//! An entry is a hint. The object that it leads to is verified before it is used
//! ([`super::descent`]), but an address must not lead into memory that has become something else.
//! All caches are cleared before such memory is freed ([`super::quarantine`]).

use super::node_type::NodeType;
use super::slot::Slot;
use crate::sync::lock;
use darter_fabric::GlobalAddr;
use darter_index::radix::common_prefix;
use darter_index::radix::slot::edge_of;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};

/// Parts of the cache with a lock each.
const SHARDS: usize = 64;
/// Longest prefix of an entry: its depth has a byte.
const PREFIX_MAX: usize = 255;
/// Queue items in excess of twice the entries before items of removed entries are dropped.
const QUEUE_SLACK: usize = 1024;

/// The cached state of one node.
#[derive(Debug)]
struct Entry {
    node: GlobalAddr,
    ty: NodeType,
    slots: Box<[u64]>,
    /// Its place in the queue.
    ticket: u64,
}

impl Entry {
    fn bytes(&self) -> u64 {
        1 + 8 + 8 * self.slots.len() as u64
    }
}

/// The deepest cached node on a key's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hint {
    pub(super) node: GlobalAddr,
    pub(super) ty: NodeType,
    /// The length of its prefix: the key byte that selects its slots.
    pub(super) depth: usize,
    /// The slot of the key's edge, with its index.
    pub(super) slot: Option<(usize, Slot)>,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<(u64, Box<[u8]>)>,
    next_ticket: u64,
    entries: usize,
}

type Shard = RwLock<BTreeMap<Box<[u8]>, Entry>>;

/// The cache of one compute node.
#[derive(Debug)]
pub(super) struct Cache {
    budget: u64,
    used: AtomicU64,
    shards: Box<[Shard]>,
    queue: Mutex<Queue>,
}

impl Cache {
    pub(super) fn new(budget: u64) -> Self {
        Self {
            budget,
            used: AtomicU64::new(0),
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            queue: Mutex::default(),
        }
    }

    /// Returns the bytes of all entries.
    pub(super) fn bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn shard(&self, prefix: &[u8]) -> &Shard {
        &self.shards[usize::from(prefix.first().copied().unwrap_or(0)) % SHARDS]
    }

    fn write(&self, prefix: &[u8]) -> RwLockWriteGuard<'_, BTreeMap<Box<[u8]>, Entry>> {
        self.shard(prefix).write().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Returns the deepest cached node on a key's path with a prefix shorter than `below`.
    pub(super) fn lookup(&self, key: &[u8], below: usize) -> Option<Hint> {
        let mut len = key.len().min(PREFIX_MAX).min(below.saturating_sub(1));
        if len == 0 || self.budget == 0 {
            return None;
        }
        let shard = self.shard(key).read().unwrap_or_else(PoisonError::into_inner);
        loop {
            let (prefix, entry) =
                shard.range::<[u8], _>((Bound::Unbounded, Bound::Included(&key[..len]))).next_back()?;
            let shared = common_prefix(prefix, &key[..len]);
            if shared == prefix.len() {
                let edge = edge_of(key, shared);
                let of_edge = |(at, &word): (usize, &u64)| {
                    let slot = Slot::from_word(word);
                    slot.is_of(edge).then_some((at, slot))
                };
                // A sealed slot stays the same whatever happens to its child elsewhere: reading it
                // again proves nothing.
                let slot =
                    entry.slots.iter().enumerate().find_map(of_edge).filter(|(_, slot)| !slot.is_sealed());
                return Some(Hint { node: entry.node, ty: entry.ty, depth: shared, slot });
            }
            // The key's longest present prefix is at most the part shared with its predecessor.
            len = shared;
            if len == 0 {
                return None;
            }
        }
    }

    /// Caches a node as it was just read and replaces its old entry.
    pub(super) fn insert(&self, prefix: &[u8], node: GlobalAddr, ty: NodeType, slots: &[u64]) {
        let slots = &slots[..slots.len().min(ty.slots())];
        let bytes = 1 + 8 + 8 * ty.slots() as u64;
        if prefix.is_empty() || prefix.len() > PREFIX_MAX || bytes > self.budget {
            return;
        }
        let mut words = vec![0; ty.slots()];
        words[..slots.len()].copy_from_slice(slots);
        let mut shard = self.write(prefix);
        if let Some(known) = shard.get_mut(prefix) {
            let before = known.bytes();
            (known.node, known.ty, known.slots) = (node, ty, words.into());
            self.used.fetch_add(known.bytes(), Ordering::Relaxed);
            self.used.fetch_sub(before, Ordering::Relaxed);
        } else {
            // The queue is locked inside the shard here, and never in the opposite order.
            let ticket = {
                let mut queue = self.queue();
                let ticket = queue.next_ticket;
                queue.next_ticket += 1;
                queue.entries += 1;
                queue.items.push_back((ticket, prefix.into()));
                ticket
            };
            let entry = Entry { node, ty, slots: words.into(), ticket };
            self.used.fetch_add(entry.bytes(), Ordering::Relaxed);
            shard.insert(prefix.into(), entry);
        }
        drop(shard);
        while self.used.load(Ordering::Relaxed) > self.budget && self.evict() {}
        self.compact();
    }

    /// Drops the oldest entry. Returns false if the queue is empty.
    fn evict(&self) -> bool {
        let Some((ticket, prefix)) = self.queue().items.pop_front() else { return false };
        let mut shard = self.write(&prefix);
        if shard.get(&prefix).is_some_and(|entry| entry.ticket == ticket)
            && let Some(entry) = shard.remove(&prefix)
        {
            self.forget(&entry);
        }
        true
    }

    fn forget(&self, entry: &Entry) {
        self.used.fetch_sub(entry.bytes(), Ordering::Relaxed);
        self.queue().entries -= 1;
    }

    /// Drops queue items of removed entries if there are many.
    fn compact(&self) {
        if let Some(items) = self.take_surplus() {
            self.put_back(items);
        }
    }

    /// Takes all queue items if too many belong to removed entries.
    fn take_surplus(&self) -> Option<VecDeque<(u64, Box<[u8]>)>> {
        let mut queue = self.queue();
        let is_long = queue.items.len() > 2 * queue.entries + QUEUE_SLACK;
        is_long.then(|| std::mem::take(&mut queue.items))
    }

    /// Puts queue items back before those added since, except items of removed entries.
    fn put_back(&self, items: VecDeque<(u64, Box<[u8]>)>) {
        let mut kept: VecDeque<_> = items
            .into_iter()
            .filter(|(ticket, prefix)| {
                let shard = self.shard(prefix).read().unwrap_or_else(PoisonError::into_inner);
                shard.get(prefix).is_some_and(|entry| entry.ticket == *ticket)
            })
            .collect();
        let mut queue = self.queue();
        kept.append(&mut queue.items);
        queue.items = kept;
    }

    /// Drops a node that has changed since it was cached.
    pub(super) fn remove(&self, prefix: &[u8], node: GlobalAddr) {
        let mut shard = self.write(prefix);
        if shard.get(prefix).is_some_and(|entry| entry.node == node)
            && let Some(entry) = shard.remove(prefix)
        {
            self.forget(&entry);
        }
    }

    /// Updates one slot of a cached node.
    pub(super) fn set_slot(&self, prefix: &[u8], node: GlobalAddr, index: usize, slot: Slot) {
        if prefix.is_empty() || prefix.len() > PREFIX_MAX {
            return;
        }
        let mut shard = self.write(prefix);
        if let Some(entry) = shard.get_mut(prefix).filter(|entry| entry.node == node)
            && let Some(word) = entry.slots.get_mut(index)
        {
            *word = slot.word();
        }
    }

    /// Drops everything that was cached before the call. Iterates over the shards, since the queue
    /// lacks items that a thread has taken out of it to evict or to compact.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            for entry in std::mem::take(&mut *shard).values() {
                self.forget(entry);
            }
        }
        self.compact();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_index::radix::slot::END;

    fn node(number: u64) -> GlobalAddr {
        GlobalAddr::new(0, 4096 + number * 64)
    }

    #[test]
    fn the_deepest_entry_on_the_path_is_found() {
        let cache = Cache::new(1 << 20);
        let leaf = Slot::leaf(END, 5, node(99));
        let ty = NodeType::SMALLEST;
        cache.insert(b"a", node(1), ty, &[Slot::tomb(u16::from(b'b')).word()]);
        cache.insert(b"abc", node(2), ty, &[leaf.word()]);
        for other in 0..40 {
            cache.insert(&[b'a', b'b', 40 + other, 7], node(3), ty, &[]);
        }
        let found =
            |key: &[u8], below| cache.lookup(key, below).map(|hint| (hint.node, hint.depth, hint.slot));
        assert_eq!(found(b"abc", usize::MAX), Some((node(2), 3, Some((0, leaf)))));
        assert_eq!(found(b"abcd", usize::MAX), Some((node(2), 3, None)));
        let tomb = Some((0, Slot::tomb(u16::from(b'b'))));
        assert_eq!(found(b"abc", 3), Some((node(1), 1, tomb)));
        assert_eq!(found(b"ab\xff", usize::MAX), Some((node(1), 1, tomb)));
        assert_eq!(found(b"b", usize::MAX), None);
        assert_eq!(found(b"", usize::MAX), None);
        cache.set_slot(b"a", node(1), 0, leaf);
        assert_eq!(found(b"a", usize::MAX), Some((node(1), 1, Some((0, leaf)))));
        cache.remove(b"abc", node(1));
        assert!(found(b"abc", usize::MAX).is_some_and(|(_, depth, _)| depth == 3));
        cache.remove(b"abc", node(2));
        assert!(found(b"abc", usize::MAX).is_some_and(|(_, depth, _)| depth == 1));
        cache.clear();
        assert_eq!((cache.bytes(), found(b"a", usize::MAX)), (0, None));
    }

    #[test]
    fn what_came_first_leaves_first_and_the_budget_holds() {
        let cache = Cache::new(10 * 41);
        for _ in 0..3 {
            for i in 0..200_u64 {
                let prefix = [&i.to_be_bytes()[..], &[7; 200]].concat();
                cache.insert(&prefix[..8 + i as usize % 200], node(i), NodeType::SMALLEST, &[]);
                assert!(cache.bytes() <= 10 * 41);
            }
        }
        assert_eq!(cache.bytes(), 10 * 41);
        assert_eq!(cache.queue().entries, 10);
        for round in 0..5000 {
            cache.insert(b"x", node(round), NodeType::SMALLEST, &[]);
            cache.remove(b"x", node(round));
        }
        let queue = cache.queue();
        assert!(queue.items.len() <= 2 * queue.entries + QUEUE_SLACK + 1);
    }
    #[test]
    fn clear_forgets_what_a_compaction_has_in_hand() {
        let cache = Cache::new(1 << 20);
        cache.insert(b"kept", node(1), NodeType::SMALLEST, &[]);
        let items = (0..2 * QUEUE_SLACK as u64).find_map(|round| {
            cache.insert(b"gone", node(round), NodeType::SMALLEST, &[]);
            cache.remove(b"gone", node(round));
            cache.take_surplus()
        });
        cache.clear();
        cache.put_back(items.unwrap());
        assert_eq!(cache.lookup(b"kept", usize::MAX), None);
        let queue = cache.queue();
        assert_eq!((cache.bytes(), queue.entries, queue.items.len()), (0, 0, 0));
    }

    #[test]
    fn clear_forgets_what_an_eviction_has_in_hand() {
        let cache = Cache::new(1 << 20);
        cache.insert(b"kept", node(1), NodeType::SMALLEST, &[]);
        cache.queue().items.pop_front().unwrap();
        cache.clear();
        assert_eq!((cache.lookup(b"kept", usize::MAX), cache.bytes()), (None, 0));
    }
}
