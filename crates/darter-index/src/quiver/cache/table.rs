//! The positions of blocks in the log, by the hash of their identity: open addressing, 5 bytes per
//! entry, of which one byte distinguishes most hashes without access to the log.

use std::mem::size_of;

/// No position: blocks begin at even positions.
const EMPTY: u32 = u32::MAX;
/// Entries of the smallest table.
const LEN_MIN: usize = 8;
/// Bytes of an entry.
const ENTRY_BYTES: usize = size_of::<u32>() + size_of::<u8>();

/// A table of positions. It stores no hashes: callers that change it supply those of its positions.
#[derive(Debug, Default)]
pub(super) struct Table {
    slots: Box<[u32]>,
    /// Some bits of the hash of each slot's position.
    tags: Box<[u8]>,
    count: usize,
}

fn tag(hash: u64) -> u8 {
    (hash >> 24) as u8
}

impl Table {
    /// Bytes in use.
    pub(super) fn bytes(&self) -> usize {
        self.slots.len() * ENTRY_BYTES
    }

    /// Bytes in use after one more position is added.
    pub(super) fn bytes_with_another(&self) -> usize {
        self.len_with_another() * ENTRY_BYTES
    }

    fn len_with_another(&self) -> usize {
        let len = self.slots.len();
        if (self.count + 1) * 3 > len * 2 { (len + len / 2).max(LEN_MIN) } else { len }
    }

    /// The slot where the search for a hash begins.
    fn home(&self, hash: u64) -> usize {
        (((hash >> 32) * self.slots.len() as u64) >> 32) as usize
    }

    fn next(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() { 0 } else { slot + 1 }
    }

    /// Returns the slot of the position for which `is_it` returns true.
    fn slot_of(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut slot = self.home(hash);
        while self.slots[slot] != EMPTY {
            if self.tags[slot] == tag(hash) && is_it(self.slots[slot]) {
                return Some(slot);
            }
            slot = self.next(slot);
        }
        None
    }

    /// Returns the position with this hash for which `is_it` returns true.
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        self.slot_of(hash, is_it).map(|slot| self.slots[slot])
    }

    /// Replaces a position by another.
    pub(super) fn replace(&mut self, hash: u64, old: u32, new: u32) {
        if let Some(slot) = self.slot_of(hash, |at| at == old) {
            self.slots[slot] = new;
        }
    }

    /// Adds a position.
    pub(super) fn insert(&mut self, hash: u64, at: u32, hash_of: impl Fn(u32) -> u64) {
        let len = self.len_with_another();
        if len > self.slots.len() {
            let old = std::mem::replace(&mut self.slots, vec![EMPTY; len].into());
            self.tags = vec![0; len].into();
            for at in old.into_iter().filter(|&at| at != EMPTY) {
                self.settle(hash_of(at), at);
            }
        }
        self.settle(hash, at);
        self.count += 1;
    }

    fn settle(&mut self, hash: u64, at: u32) {
        let mut slot = self.home(hash);
        while self.slots[slot] != EMPTY {
            slot = self.next(slot);
        }
        self.slots[slot] = at;
        self.tags[slot] = tag(hash);
    }

    /// Removes a position.
    pub(super) fn remove(&mut self, hash: u64, at: u32, hash_of: impl Fn(u32) -> u64) {
        let Some(mut hole) = self.slot_of(hash, |other| other == at) else { return };
        self.count -= 1;
        // Later entries move up unless that would put them before their home.
        let (len, mut slot) = (self.slots.len(), hole);
        loop {
            slot = self.next(slot);
            if self.slots[slot] == EMPTY {
                break;
            }
            let home = self.home(hash_of(self.slots[slot]));
            if (slot + len - home) % len >= (slot + len - hole) % len {
                self.slots[hole] = self.slots[slot];
                self.tags[hole] = self.tags[slot];
                hole = slot;
            }
        }
        self.slots[hole] = EMPTY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn hash_of(at: u32) -> u64 {
        // Few homes and tags, so that many collide.
        u64::from(at % 5) << 61 | u64::from(at % 3) << 24
    }

    proptest! {
        #[test]
        fn what_is_in_is_found(changes in proptest::collection::vec((any::<bool>(), 0_u32..40), 0..200)) {
            let (mut table, mut model) = (Table::default(), BTreeSet::new());
            for (is_insert, at) in changes {
                if is_insert && model.insert(at) {
                    table.insert(hash_of(at), at, hash_of);
                } else if !is_insert {
                    model.remove(&at);
                    table.remove(hash_of(at), at, hash_of);
                }
                for at in 0..40 {
                    let found = table.find(hash_of(at), |other| other == at);
                    prop_assert_eq!(found, model.get(&at).copied());
                }
            }
        }
    }
}
