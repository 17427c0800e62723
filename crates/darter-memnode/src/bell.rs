//! A bell: a descriptor that the event loop watches and other threads make readable.

use crate::error::{MemNodeError, system};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A descriptor that is readable from a ring until it is quieted.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    /// Returns a bell that has not rung.
    ///
    /// # Errors
    /// Fails if the system has no descriptor left; `action` is the purpose, for the error.
    pub(crate) fn new(action: &'static str) -> Result<Self, MemNodeError> {
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        made.map(Self).map_err(|error| system(action)(error.into()))
    }

    /// Returns the descriptor for the event loop to watch.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Rings the bell.
    pub(crate) fn ring(&self) {
        // This fails only if the counter is full, and then the bell has rung.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Quiets the bell, if it has rung.
    pub(crate) fn quiet(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.0, &mut count);
    }
}
