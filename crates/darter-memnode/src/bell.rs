//! A bell: a descriptor that the event loop watches, and that threads beside it make readable.

use crate::error::{MemNodeError, system};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Readable once it has rung, until it is quieted.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    /// Returns one that has not rung.
    ///
    /// # Errors
    /// If the system has no descriptor left; `action` says what it was for.
    pub(crate) fn new(action: &'static str) -> Result<Self, MemNodeError> {
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        made.map(Self).map_err(|error| system(action)(error.into()))
    }

    /// Returns what the event loop watches.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Rings it.
    pub(crate) fn ring(&self) {
        // It can only fail because the bell has rung very often, and then it is rung.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Quiets it, if it has rung.
    pub(crate) fn quiet(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.0, &mut count);
    }
}
