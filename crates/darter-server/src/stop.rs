//! How a daemon is told to stop: asked once it drains, asked again it ends.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Shared with whoever may stop a daemon: signal handlers, a parent's pipe, a test.
#[derive(Debug, Default)]
pub struct Stop(AtomicUsize);

impl Stop {
    /// The first time: let what has arrived be answered, then end. Any later time: end now.
    pub fn ask(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether anybody has asked.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }

    /// Whether somebody could not wait.
    pub fn is_urgent(&self) -> bool {
        self.0.load(Ordering::Acquire) > 1
    }
}
