//! Keeps descriptors of the parent's pools from child processes.
//!
//! A child inherits copies of all descriptors: file locks that prove that the parent is alive, and
//! sockets whose closing shows a memory node that it is dead. So a `fork` handler replaces each of
//! them with `/dev/null` in the child. Their numbers stay in use, since the child's copies of our
//! values close them eventually. The handler also counts forks, so that pools that were opened
//! before refuse to work in the child: their member line, epochs and memory belong to the parent.
//!
//! A child that executes another program needs none of this: `exec` closes all descriptors.

use crate::FabricError;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};

/// Number of forks between the process that first opened a pool and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// The list of slots, which only grows.
static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
/// A descriptor of `/dev/null`; -1 before the first use.
static NULL: AtomicI32 = AtomicI32::new(-1);
/// A descriptor is being opened and registered, or the process is forking.
static BUSY: AtomicBool = AtomicBool::new(false);

/// A descriptor that children must not have; -1 if the slot is free.
struct Slot {
    descriptor: AtomicI32,
    next: *const Slot,
}

/// Keeps a descriptor from children until dropped. It must be dropped before the descriptor is
/// closed.
#[derive(Debug)]
pub(crate) struct NotInherited(&'static AtomicI32);

impl Drop for NotInherited {
    fn drop(&mut self) {
        self.0.store(-1, Ordering::Release);
    }
}

/// Opens something and keeps its descriptor from children, without a fork in between. `open` must
/// be short.
pub(crate) fn keep<T: AsRawFd, E>(open: impl FnOnce() -> Result<T, E>) -> Result<(T, NotInherited), E> {
    watch();
    begin();
    let kept = open().map(|opened| {
        let guard = register(opened.as_raw_fd());
        (opened, guard)
    });
    end();
    kept
}

/// Returns the number of forks so far, for [`check`], and starts counting.
pub(crate) fn watch() -> u32 {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        if cfg!(miri) {
            return;
        }
        if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
            NULL.store(null.as_raw_fd(), Ordering::Release);
            // It stays open for the life of the process.
            std::mem::forget(null);
        }
        // SAFETY: the handlers are functions of this library, which call only functions that a
        // signal handler may call. If there is no memory for them, children are as they would be
        // without this module.
        unsafe { libc::pthread_atfork(Some(before), Some(after), Some(in_child)) };
    });
    FORKS.load(Ordering::Relaxed)
}

/// Fails if the process has forked since `born`, and this is the child.
#[inline]
pub(crate) fn check(born: u32) -> Result<(), FabricError> {
    if FORKS.load(Ordering::Relaxed) == born { Ok(()) } else { Err(FabricError::Forked) }
}

fn register(descriptor: RawFd) -> NotInherited {
    let mut at = SLOTS.load(Ordering::Acquire).cast_const();
    // SAFETY: slots are never freed.
    while let Some(slot) = unsafe { at.as_ref() } {
        if slot.descriptor.load(Ordering::Acquire) < 0 {
            slot.descriptor.store(descriptor, Ordering::Release);
            return NotInherited(&slot.descriptor);
        }
        at = slot.next;
    }
    let next = SLOTS.load(Ordering::Acquire).cast_const();
    let slot: &Slot = Box::leak(Box::new(Slot { descriptor: AtomicI32::new(descriptor), next }));
    SLOTS.store(ptr::from_ref(slot).cast_mut(), Ordering::Release);
    NotInherited(&slot.descriptor)
}

/// Spins until it gets the lock, which is held only briefly.
fn begin() {
    while BUSY.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
        // SAFETY: the call touches no memory.
        unsafe { libc::sched_yield() };
    }
}

fn end() {
    BUSY.store(false, Ordering::Release);
}

extern "C" fn before() {
    begin();
}

extern "C" fn after() {
    end();
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    let null = NULL.load(Ordering::Acquire);
    let mut at = SLOTS.load(Ordering::Acquire).cast_const();
    // SAFETY: slots are never freed; the other threads of the parent are not in this process.
    while let Some(slot) = unsafe { at.as_ref() } {
        let descriptor = slot.descriptor.load(Ordering::Acquire);
        if descriptor >= 0 && null >= 0 {
            // SAFETY: the call touches no memory. The descriptor belongs to this library: it is
            // unregistered before it is closed.
            unsafe { libc::dup3(null, descriptor, libc::O_CLOEXEC) };
        }
        at = slot.next;
    }
    end();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, Read};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    /// Runs `also` while an idle child of this process is alive.
    fn beside_a_child(also: impl FnOnce()) {
        let (reader, writer): (PipeReader, _) = std::io::pipe().unwrap();
        // SAFETY: the child calls only functions that a signal handler may call.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut byte = 0_u8;
            // SAFETY: `byte` outlives the call; the parent's end is closed in this process first,
            // so that the read ends with the parent's.
            unsafe {
                libc::close(writer.as_raw_fd());
                libc::read(reader.as_raw_fd(), (&raw mut byte).cast(), 1);
                libc::_exit(0);
            }
        }
        also();
        drop(writer);
        // SAFETY: a child of this process, and no pointer is given.
        unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
    }

    #[test]
    #[cfg_attr(miri, ignore)] // Miri does not fork
    fn a_socket_ends_with_the_parent_although_a_child_lives() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        // Returns at once unless the child has the socket.
        theirs.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        let ((), guard) = {
            let (_, guard) = keep(|| Ok::<_, std::io::Error>(ours.as_fd())).unwrap();
            ((), guard)
        };
        beside_a_child(|| {
            drop(guard);
            drop(ours);
            assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
        });
    }

    #[test]
    #[cfg_attr(miri, ignore)] // Miri does not fork
    fn a_descriptor_that_is_kept_no_longer_is_left_to_children() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(keep(|| Ok::<_, std::io::Error>(writer.as_fd())).unwrap().1);
        let number = writer.as_raw_fd();
        // SAFETY: the child calls only functions that a signal handler may call; `b"x"` is one
        // byte.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe {
                libc::write(number, b"x".as_ptr().cast(), 1);
                libc::_exit(0);
            }
        }
        // SAFETY: a child of this process, and no pointer is given.
        unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
        drop(writer);
        let mut read = Vec::new();
        (&reader).read_to_end(&mut read).unwrap();
        assert_eq!(read, b"x");
    }
}
