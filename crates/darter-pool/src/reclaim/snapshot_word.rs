//! The word by which all members know the pool's snapshot, and the process's copy of it.
//!
//! ```text
//! 0                         none
//! id << 2 | ANNOUNCED       one is about to begin: members run rounds of upkeep every millisecond
//! id << 2 | HELD            no operation that changes keys begins; those under way end
//! id << 2 | OPEN            before an operation changes a key, it preserves the key's old value
//!
//! id: the owner's member slot, 8 bits | its incarnation, 20 bits | the epoch, 34 bits
//! ```

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::blocks::MemberId;
use crate::members::MemberTable;

const INCARNATION_BITS: u32 = 20;
const EPOCH_BITS: u32 = 34;

/// What the word says about changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    None = 0,
    Announced = 1,
    Held = 2,
    Open = 3,
}

/// The snapshot's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

impl Word {
    pub(super) const NONE: Self = Self(0);

    /// A new word of this owner. The epoch makes it differ from its earlier ones.
    pub(super) fn new(owner: MemberId, epoch: u64, phase: Phase) -> Self {
        let incarnation = u64::from(owner.incarnation) & ((1 << INCARNATION_BITS) - 1);
        let id = u64::from(owner.member) << INCARNATION_BITS | incarnation;
        let id = id << EPOCH_BITS | epoch & ((1 << EPOCH_BITS) - 1);
        Self(id << 2 | phase as u64)
    }

    pub(super) fn phase(self) -> Phase {
        match self.0 & 3 {
            _ if self.0 == 0 => Phase::None,
            1 => Phase::Announced,
            2 => Phase::Held,
            _ => Phase::Open,
        }
    }

    /// The same snapshot in another phase.
    pub(super) fn with(self, phase: Phase) -> Self {
        Self(self.0 & !3 | phase as u64)
    }

    /// Returns the owner's process id if it is live.
    pub(super) fn live_owner(self, table: &MemberTable) -> Option<(u32, u64)> {
        let slot = (self.0 >> (2 + EPOCH_BITS + INCARNATION_BITS)) as u32;
        let incarnation = self.0 >> (2 + EPOCH_BITS) & ((1 << INCARNATION_BITS) - 1);
        let line = table.lines.get(slot as usize).filter(|line| line.live);
        let is_same = |line: u32| u64::from(line) & ((1 << INCARNATION_BITS) - 1) == incarnation;
        line.filter(|line| is_same(line.incarnation)).map(|line| (slot, line.pid))
    }
}

/// An open snapshot: all changes that had ended when it began, and none that began later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotId(pub(super) u64);

impl SnapshotId {
    /// Returns a number that no other snapshot of the pool has.
    pub fn number(self) -> u64 {
        self.0 >> 2
    }

    pub(super) fn word(self) -> Word {
        Word(self.0)
    }
}

/// The process's copy of the word.
#[derive(Debug, Default)]
pub(super) struct SnapshotCopy {
    pub(super) word: AtomicU64,
    /// The word by which changes are held, and when it was first seen.
    pub(super) held_since: Mutex<Option<(u64, u64)>>,
    /// Whether this process has ended the snapshot of a member that had died.
    pub(super) has_ended: AtomicBool,
}

impl SnapshotCopy {
    pub(super) fn new(word: u64) -> Self {
        Self { word: AtomicU64::new(word), held_since: Mutex::default(), has_ended: AtomicBool::new(false) }
    }

    /// Stores the word that a round of upkeep has read. Call this before the round adopts the epoch.
    pub(super) fn store(&self, word: u64) {
        self.word.store(word, Ordering::SeqCst);
    }

    pub(super) fn load(&self) -> Word {
        Word(self.word.load(Ordering::Acquire))
    }
}
