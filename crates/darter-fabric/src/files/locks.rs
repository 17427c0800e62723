//! Locks on single bytes of a file, held by an open file description. They lie far beyond the
//! file's end.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Offset of the lock that every process holds shared while it has the file mapped, and a creator
/// holds exclusively.
pub(crate) const MAPPED_LOCK: i64 = (1 << 62) - 1;
/// Offset of the lock that every process holds shared while it reads a snapshot of the file.
pub(crate) const READ_LOCK: i64 = MAPPED_LOCK - 1;
/// Offset of the lock that a process holds exclusively while it writes a file that does not have
/// its final name yet.
pub(crate) const DRAFT_LOCK: i64 = READ_LOCK - 1;
/// Offset of the lock of client slot 0; slot `n` is `n` bytes further.
pub(crate) const SLOT_LOCKS: i64 = 1 << 62;

/// Mode of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockKind {
    /// Shared.
    Shared,
    /// Exclusive.
    Exclusive,
    /// Unlocked. Closing the last descriptor has the same effect, but a child process that is being
    /// started may briefly hold an inherited copy of it.
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

/// Locks a byte for `file`'s description without blocking, replacing an earlier lock there. Returns
/// `false` if another description holds it.
pub(crate) fn try_lock(file: &File, offset: i64, kind: LockKind) -> io::Result<bool> {
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

/// Returns whether another description holds a byte. Takes no lock, so it does not disturb attempts
/// to take one.
pub(crate) fn is_locked(file: &File, offset: i64) -> io::Result<bool> {
    let mut request = LockKind::Exclusive.request(offset);
    // SAFETY: the descriptor is open, and `request` is a valid `flock` that the call may overwrite.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut request) } == 0 {
        return Ok(i32::from(request.l_type) != libc::F_UNLCK);
    }
    Err(io::Error::last_os_error())
}
