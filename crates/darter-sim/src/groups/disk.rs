//! A node's disk in the simulated world: the entries of a replica's log, of which a power failure
//! takes some that were not synced.

use super::random::Random;
use darter_group::{Entry, Logged};

/// A disk.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    /// The memory before the first entry.
    image: Vec<u8>,
    entries: Vec<Entry>,
    /// Number of entries that were synced.
    synced: usize,
    /// Number of entries when the current life began.
    begun: usize,
    is_syncing: bool,
}

impl Disk {
    /// Returns a new disk. It has the memory with which the group begins if `image` is given.
    /// Otherwise it has zeros, which are not that memory if `is_void`.
    pub(super) fn new(image: Option<&[u8]>, bytes: usize, is_void: bool) -> Self {
        let image = image.map_or_else(|| vec![0; bytes], <[u8]>::to_vec);
        let entries = if is_void { vec![Entry::Began(std::sync::Arc::default())] } else { Vec::new() };
        Self { image, synced: entries.len(), begun: 0, entries, is_syncing: false }
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// Begins a sync of all entries, if none is in progress and some were not synced. Returns the
    /// number of entries.
    pub(super) fn begin_sync(&mut self) -> Option<usize> {
        let is_due = !self.is_syncing && self.synced < self.entries.len();
        self.is_syncing |= is_due;
        is_due.then_some(self.entries.len())
    }

    /// Ends a sync of this number of entries. Returns how many entries of this life were synced.
    pub(super) fn end_sync(&mut self, entries: usize) -> u64 {
        self.is_syncing = false;
        self.synced = self.synced.max(entries);
        (self.synced - self.begun.min(self.synced)) as u64
    }

    /// Loses power. Returns whether entries were lost.
    pub(super) fn lose_power(&mut self, random: &mut Random) -> bool {
        let unsynced = self.entries.len() - self.synced;
        let kept = random.below(unsynced as u64 + 1) as usize;
        self.entries.truncate(self.synced + kept);
        self.synced = self.entries.len();
        self.is_syncing = false;
        kept < unsynced
    }

    fn restore_from(&self, entries: &[Entry]) -> (Logged, Vec<u8>) {
        let (mut logged, mut content) = (Logged::default(), self.image.clone());
        for entry in entries {
            let is_next = logged.apply(entry, |offset, words| {
                content[offset as usize..offset as usize + words.len()].copy_from_slice(words);
                true
            });
            assert!(is_next, "the log has an entry that does not continue it: {entry:?}");
        }
        (logged, content)
    }

    /// Begins a life under a new name. Returns the state and the memory that the log restores.
    pub(super) fn begin(&mut self, name: u64) -> (Logged, Vec<u8>) {
        let (mut logged, content) = self.restore_from(&self.entries);
        self.entries.push(logged.rename(name));
        // A name is durable before another replica learns of it.
        self.synced = self.entries.len();
        self.begun = self.entries.len();
        self.is_syncing = false;
        (logged, content)
    }

    /// Returns whether the synced entries restore the state of a replica of this name.
    pub(super) fn has(&self, name: u64) -> bool {
        let (logged, _) = self.restore_from(&self.entries[..self.synced]);
        logged.is_whole() && logged.names().contains(&name)
    }
}
