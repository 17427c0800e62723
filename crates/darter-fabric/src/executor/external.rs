//! The driver for threads of other executors: the thread's tasks have connections of their own, and
//! one of the tasks drives them.
//!
//! Without it, a thread of the fabric drives the connections of such tasks, and every reply must
//! wake a thread. A thread that runs many tasks does better by itself: what all its tasks have
//! posted leaves together after they have been polled, and one call collects all replies.

use super::thread::{
    Drives, Driving, Progress, Signal, has_external_driver, set_external_driver, signal, wake_on_post,
};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::task::Waker;

/// While it exists, the thread that made it drives the connections of its own tasks. One of the
/// tasks must call [`ExternalDriver::turn`] after the waker of [`ExternalDriver::wake_on_post`] was
/// called, when the driver's file is readable, and once a second, to notice nodes that are silent
/// for too long.
pub struct ExternalDriver {
    _driving: Driving,
    signal: Arc<Signal>,
    drives: Drives,
    /// An epoll instance with all sources of a turn.
    sockets: OwnedFd,
    wakers: Vec<Waker>,
    /// Neither `Send` nor `Sync`.
    of_thread: PhantomData<*const ()>,
}

impl ExternalDriver {
    /// Makes the calling thread the driver of what its tasks post.
    ///
    /// # Errors
    /// Fails if the process has no more files, or if this thread has a driver already.
    pub fn enter() -> io::Result<Self> {
        let signal = signal();
        if has_external_driver() {
            return Err(io::Error::other("this thread has an external driver already"));
        }
        let bell = signal.bell()?;
        let sockets = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&sockets, bell, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        signal.answer_bell();
        set_external_driver(true);
        Ok(Self {
            _driving: Driving::begin(),
            drives: Drives::default(),
            sockets,
            wakers: Vec::new(),
            of_thread: PhantomData,
            signal,
        })
    }

    /// Sets the waker that the next post of this thread calls, once.
    pub fn wake_on_post(&self, waker: &Waker) {
        wake_on_post(waker);
    }

    /// Sends what was posted, as far as the connections take it.
    ///
    /// # Errors
    /// Fails if a connection cannot be watched.
    pub fn send(&mut self) -> io::Result<()> {
        self.update()?;
        self.drives.send(&mut self.wakers);
        self.wakers.drain(..).for_each(Waker::wake);
        Ok(())
    }

    /// Sends what was posted and hands out what has arrived, without blocking; returns whether
    /// there is more already.
    ///
    /// # Errors
    /// Fails if a connection cannot be watched.
    pub fn turn(&mut self) -> io::Result<bool> {
        self.update()?;
        let turn = self.drives.turn(true, &mut self.wakers);
        self.wakers.drain(..).for_each(Waker::wake);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let is_readable = poll(&mut [PollFd::new(&self.sockets, PollFlags::IN)], Some(&now))? > 0;
        Ok(is_readable && turn == Progress::Moved)
    }

    /// Silences the bell and takes over new drives. Rings from now on are noticed.
    fn update(&mut self) -> io::Result<()> {
        self.signal.answer_bell();
        if self.drives.update() {
            for drive in self.drives.all() {
                match epoll::add(
                    &self.sockets,
                    drive.readable(),
                    epoll::EventData::new_u64(0),
                    epoll::EventFlags::IN,
                ) {
                    // One that was closed has left by itself, with its file.
                    Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for ExternalDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExternalDriver").field("sockets", &self.sockets).finish_non_exhaustive()
    }
}

impl Drop for ExternalDriver {
    fn drop(&mut self) {
        set_external_driver(false);
    }
}

impl AsFd for ExternalDriver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sockets.as_fd()
    }
}

impl AsRawFd for ExternalDriver {
    fn as_raw_fd(&self) -> RawFd {
        self.sockets.as_raw_fd()
    }
}
