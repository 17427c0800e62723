//! Who lives: the proof of life and of death that reclamation rests on.
//!
//! A process that uses a pool file holds one byte of it locked for each client slot it claimed, far beyond the file's
//! end. The locks are *open-file-description* locks: they conflict between descriptions, also inside one process,
//! and the kernel drops them when the description's last descriptor is gone. A process loses its descriptors only
//! after all its threads have left its memory, so an unlocked slot proves that its holder writes no more, with no
//! clock involved. A paused process keeps its lock, and is left alone.
//!
//! Each identity has a description of its own, opened anew through `/proc/self/fd`, which reaches the same file even
//! when it was renamed or unlinked since.
//!
//! In memory there is no other process, so a set of claimed slots does.

use super::file::PoolFile;
use crate::{FabricError, FenceOutcome, Identity};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};

/// Offset of the lock that every process holds shared while it has the file mapped, and a creator alone.
pub(super) const MAPPED_LOCK: i64 = (1 << 62) - 1;
/// Offset of the lock of client slot 0; slot `n` is `n` bytes further.
const SLOT_LOCKS: i64 = 1 << 62;

/// How a byte is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockKind {
    /// Together with others.
    Shared,
    /// Alone.
    Exclusive,
    /// Not at all. Closing the last descriptor does the same, but a child process that is about to start may have
    /// inherited a copy of it for a moment.
    Unlocked,
}

impl LockKind {
    fn request(self, offset: i64) -> libc::flock {
        let kind = match self {
            Self::Shared => libc::F_RDLCK,
            Self::Exclusive => libc::F_WRLCK,
            Self::Unlocked => libc::F_UNLCK,
        };
        libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: offset,
            l_len: 1,
            l_pid: 0,
        }
    }
}

/// Locks a byte for `file`'s description, without waiting; an earlier lock of it there is replaced. `false` when
/// another description holds it.
pub(super) fn try_lock(file: &File, offset: i64, kind: LockKind) -> io::Result<bool> {
    let request = kind.request(offset);
    // SAFETY: the descriptor is open, and `request` is a valid `flock` that the call only reads.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const request) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

/// Whether another description holds a byte. Asking takes no lock, so it disturbs nobody who tries to.
fn is_locked(file: &File, offset: i64) -> io::Result<bool> {
    let mut request = LockKind::Exclusive.request(offset);
    // SAFETY: the descriptor is open, and `request` is a valid `flock` that the call may overwrite.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut request) } == 0 {
        return Ok(i32::from(request.l_type) != libc::F_UNLCK);
    }
    Err(io::Error::last_os_error())
}

/// A client slot of a pool file, held by the lock of its own description.
#[derive(Debug)]
pub(super) struct FileIdentity {
    description: File,
    offset: i64,
}

impl Identity for FileIdentity {}

impl Drop for FileIdentity {
    fn drop(&mut self) {
        // Should it fail, closing the description still unlocks.
        let _ = try_lock(&self.description, self.offset, LockKind::Unlocked);
    }
}

impl FileIdentity {
    pub(super) fn claim(file: &PoolFile, slot: u32) -> Result<Self, FabricError> {
        let description = file.reopen()?;
        let offset = SLOT_LOCKS + i64::from(slot);
        match try_lock(&description, offset, LockKind::Exclusive) {
            Ok(true) => Ok(Self { description, offset }),
            Ok(false) => Err(FabricError::IdentityTaken { slot }),
            Err(source) => Err(file.error("lock a client slot of it", source)),
        }
    }

    pub(super) fn fence(file: &PoolFile, slot: u32) -> Result<FenceOutcome, FabricError> {
        match is_locked(file.description(), SLOT_LOCKS + i64::from(slot)) {
            Ok(true) => Ok(FenceOutcome::Alive),
            Ok(false) => Ok(FenceOutcome::Fenced),
            Err(source) => Err(file.error("ask for a client's lock on it", source)),
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
        // A set of numbers is whole whatever a panicking thread did beside it.
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
