//! Slots of hot keys (CHIME, section 4.4): a table of fixed size that records the slot in which a
//! search found a key, so that the next search can read only that slot.
//!
//! ```text
//! entry      leaf 48 | slot 6 | 10 bits not used     fingerprint of the key 32 | uses 32      16 bytes
//! ```
//!
//! Its content is a hint: the key and the entry's check decide. The two words of an entry are read
//! and written separately, so they may belong to two entries. Of the four entries in which a key
//! can be recorded, the least used one is replaced, and the others lose one use, so that formerly
//! hot keys age.

use crate::sherman::format::mix;
use darter_fabric::GlobalAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of an entry.
const ENTRY_BYTES: u64 = 16;
/// Entries in which a key can be recorded.
const WAYS: usize = 4;
const SLOT_SHIFT: u32 = 48;

/// A word of leaf and slot, then a word of fingerprint and uses.
#[derive(Debug, Default)]
struct Entry([AtomicU64; 2]);

/// The table of one compute node.
#[derive(Debug)]
pub(super) struct HotSpots {
    entries: Box<[Entry]>,
}

impl HotSpots {
    /// Creates a table of this many bytes; empty if they are too few.
    pub(super) fn new(bytes: u64) -> Self {
        let entries = usize::try_from(bytes / ENTRY_BYTES).unwrap_or(usize::MAX / 32) / WAYS * WAYS;
        Self { entries: (0..entries).map(|_| Entry::default()).collect() }
    }

    /// Returns the bytes in use: the whole table.
    pub(super) fn bytes(&self) -> u64 {
        self.entries.len() as u64 * ENTRY_BYTES
    }

    /// Returns the entries in which a key of a leaf can be recorded, and its fingerprint.
    fn ways(&self, leaf: GlobalAddr, key: u64) -> Option<(&[Entry], u64)> {
        let sets = self.entries.len() / WAYS;
        let hash = mix(mix(0, leaf.bits()), key);
        let set = usize::try_from(hash >> 32).unwrap_or(0).checked_rem(sets)?;
        Some((&self.entries[set * WAYS..][..WAYS], mix(hash, key) >> 32))
    }

    /// Returns the slot of a leaf in which a key was last found, if recorded. `key` is a hash of
    /// the key.
    pub(super) fn find(&self, leaf: GlobalAddr, key: u64) -> Option<usize> {
        let (ways, fingerprint) = self.ways(leaf, key)?;
        ways.iter().find_map(|Entry([place, uses])| {
            let place = place.load(Ordering::Relaxed);
            let is_it = place & ((1 << SLOT_SHIFT) - 1) == leaf.bits()
                && uses.load(Ordering::Relaxed) >> 32 == fingerprint;
            is_it.then_some((place >> SLOT_SHIFT & 63) as usize)
        })
    }

    /// Records that a key was found in a slot of a leaf.
    pub(super) fn remember(&self, leaf: GlobalAddr, key: u64, slot: usize) {
        let Some((ways, fingerprint)) = self.ways(leaf, key) else { return };
        let place = leaf.bits() | (slot as u64) << SLOT_SHIFT;
        let known = |entry: &&Entry| {
            entry.0[0].load(Ordering::Relaxed) & ((1 << SLOT_SHIFT) - 1) == leaf.bits()
                && entry.0[1].load(Ordering::Relaxed) >> 32 == fingerprint
        };
        if let Some(Entry([at, uses])) = ways.iter().find(known) {
            at.store(place, Ordering::Relaxed);
            let count = uses.load(Ordering::Relaxed) as u32;
            uses.store(fingerprint << 32 | u64::from(count.saturating_add(1)), Ordering::Relaxed);
            return;
        }
        let count = |entry: &Entry| entry.0[1].load(Ordering::Relaxed) as u32;
        let Some(coldest) = (0..WAYS).min_by_key(|&way| count(&ways[way])) else { return };
        for entry in ways {
            let word = entry.0[1].load(Ordering::Relaxed);
            entry.0[1].store(word - u64::from(word as u32 > 0), Ordering::Relaxed);
        }
        ways[coldest].0[0].store(place, Ordering::Relaxed);
        ways[coldest].0[1].store(fingerprint << 32 | 1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_where_they_were_and_the_used_ones_stay() {
        let table = HotSpots::new(16 * 4 + 15);
        assert_eq!(table.bytes(), 64);
        let leaf = GlobalAddr::new(1, 4096);
        for key in 0..4 {
            table.remember(leaf, key, key as usize);
        }
        for _ in 0..3 {
            table.remember(leaf, 2, 63);
        }
        assert_eq!(table.find(leaf, 2), Some(63));
        assert_eq!(table.find(GlobalAddr::new(1, 8192), 2), None);
        table.remember(leaf, 9, 7);
        assert_eq!((table.find(leaf, 9), table.find(leaf, 2)), (Some(7), Some(63)));
        let none = HotSpots::new(15);
        none.remember(leaf, 1, 1);
        assert_eq!((none.bytes(), none.find(leaf, 1)), (0, None));
    }
}
