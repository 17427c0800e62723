//! The driver for threads of other executors: the thread's tasks have their own connections, which
//! one of the tasks drives.
//!
//! Without it, a thread of the fabric drives the connections of such tasks, and every reply must
//! wake a thread. A thread that runs many tasks is faster with its own driver: everything that its
//! tasks have posted leaves together after they have been polled, and one call collects all
//! replies.

use super::thread::{
    Drives, Driving, Progress, Signal, has_external_driver, set_external_driver, signal, wake_on_post,
};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::task::Waker;

/// While it exists, the thread that created it drives the connections of its own tasks. One of the
/// tasks must call [`ExternalDriver::turn`] after the waker of [`ExternalDriver::wake_on_post`] was
/// called, when the driver's file is readable, and once a second, to detect nodes that are silent
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
    /// Makes the calling thread the driver of its tasks' connections.
    ///
    /// # Errors
    /// Fails if the process has no descriptors left, or if this thread already has a driver.
    pub fn enter() -> io::Result<Self> {
        let signal = signal();
        if has_external_driver() {
            return Err(io::Error::other("this thread already has an external driver"));
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

    /// Sets the waker that this thread's next post calls, once.
    pub fn wake_on_post(&self, waker: &Waker) {
        wake_on_post(waker);
    }

    /// Sends the posted verbs, as far as the connections accept them.
    ///
    /// # Errors
    /// Fails if a connection cannot be watched.
    pub fn send(&mut self) -> io::Result<()> {
        self.update()?;
        self.drives.send(&mut self.wakers);
        self.wakers.drain(..).for_each(Waker::wake);
        Ok(())
    }

    /// Sends the posted verbs and delivers the replies that have arrived, without blocking. Returns
    /// whether there is already more to do.
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

    /// Silences the bell and takes over new drives. Later rings are noticed.
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
                    // A closed one has left the set automatically, with its file.
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
