//! The request that stops a daemon: the first lets it drain, the second ends it at once.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Shared between a daemon and all sources of stop requests: signal handlers, a parent's pipe, a
/// test.
#[derive(Debug, Default)]
pub struct Stop(AtomicUsize);

impl Stop {
    /// Requests a stop. After the first request the daemon replies to all requests that have
    /// arrived and then ends; after any further request it ends at once.
    pub fn ask(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns whether a stop was requested.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }

    /// Returns whether a stop was requested more than once.
    pub fn is_urgent(&self) -> bool {
        self.0.load(Ordering::Acquire) > 1
    }
}
