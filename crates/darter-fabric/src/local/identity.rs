//! The proof that a client is alive or dead, which reclamation relies on.
//!
//! A process that uses a pool file holds a lock on one byte of it for each client slot that it
//! claimed, far beyond the file's end. The locks are *open-file-description* locks: they conflict
//! between descriptions, even inside one process, and the kernel drops them when the description's
//! last descriptor is closed. A process loses its descriptors only after all its threads have left
//! its memory, so an unlocked slot proves that its holder writes no longer, without relying on a
//! clock. A paused process keeps its lock, and is not fenced. A forked child has no copy of the
//! descriptor (`fork.rs`), so the lock ends with the parent.
//!
//! Each identity has its own description, opened through `/proc/self/fd`, which reaches the same
//! file even if it was renamed or unlinked since.
//!
//! A pool in memory has no other process, so a set of claimed slots suffices.

use super::file::PoolFile;
use crate::files::locks::{LockKind, SLOT_LOCKS, is_locked, try_lock};
use crate::fork::{self, NotInherited};
use crate::{FabricError, FenceOutcome, Identity};
use std::collections::HashSet;
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

/// A client slot of a pool file, held by the lock of its own description.
#[derive(Debug)]
pub(super) struct FileIdentity {
    /// Dropped first.
    _guard: NotInherited,
    description: File,
    offset: i64,
}

impl Identity for FileIdentity {}

impl Drop for FileIdentity {
    fn drop(&mut self) {
        // If this fails, closing the description still unlocks.
        let _ = try_lock(&self.description, self.offset, LockKind::Unlocked);
    }
}

impl FileIdentity {
    pub(super) fn claim(file: &PoolFile, slot: u32) -> Result<Self, FabricError> {
        let (description, guard) = fork::keep(|| file.reopen())?;
        let offset = SLOT_LOCKS + i64::from(slot);
        match try_lock(&description, offset, LockKind::Exclusive) {
            Ok(true) => Ok(Self { _guard: guard, description, offset }),
            Ok(false) => Err(FabricError::IdentityTaken { slot }),
            Err(source) => Err(file.error("lock a client slot of it", source)),
        }
    }

    pub(super) fn fence(file: &PoolFile, slot: u32) -> Result<FenceOutcome, FabricError> {
        match is_locked(file.description(), SLOT_LOCKS + i64::from(slot)) {
            Ok(true) => Ok(FenceOutcome::Alive),
            Ok(false) => Ok(FenceOutcome::Fenced),
            Err(source) => Err(file.error("check a client's lock on it", source)),
        }
    }
}

/// The slots claimed in a pool that no other process can reach.
#[derive(Debug, Default)]
pub(super) struct MemoryIdentities {
    claimed: Arc<Mutex<HashSet<u32>>>,
}

/// A client slot of a pool in memory.
#[derive(Debug)]
pub(super) struct MemoryIdentity {
    slot: u32,
    claimed: Arc<Mutex<HashSet<u32>>>,
}

impl Identity for MemoryIdentity {}

impl MemoryIdentities {
    pub(super) fn claim(&self, slot: u32) -> Result<MemoryIdentity, FabricError> {
        // A panicking thread leaves a set of numbers consistent.
        if self.claimed.lock().unwrap_or_else(PoisonError::into_inner).insert(slot) {
            Ok(MemoryIdentity { slot, claimed: Arc::clone(&self.claimed) })
        } else {
            Err(FabricError::IdentityTaken { slot })
        }
    }

    pub(super) fn fence(&self, slot: u32) -> FenceOutcome {
        if self.claimed.lock().unwrap_or_else(PoisonError::into_inner).contains(&slot) {
            FenceOutcome::Alive
        } else {
            FenceOutcome::Fenced
        }
    }
}

impl Drop for MemoryIdentity {
    fn drop(&mut self) {
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.slot);
    }
}
