//! Requests to a daemon. The first request to stop lets it drain, the second ends it at once; a
//! request to reload makes it read its credentials again.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Shared between a daemon and all sources of requests: signal handlers, a parent's pipe, a test.
#[derive(Debug, Default)]
pub struct Stop {
    stops: AtomicUsize,
    reloads: AtomicUsize,
}

impl Stop {
    /// Requests a stop. After the first request the daemon replies to all requests that have
    /// arrived and then ends; after any further request it ends at once.
    pub fn ask(&self) {
        self.stops.fetch_add(1, Ordering::AcqRel);
    }

    /// Requests that the daemon reads its credentials again.
    pub fn ask_to_reload(&self) {
        self.reloads.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the number of requests to reload.
    pub fn reloads(&self) -> usize {
        self.reloads.load(Ordering::Acquire)
    }

    /// Returns whether a stop was requested.
    pub fn is_asked(&self) -> bool {
        self.stops.load(Ordering::Acquire) > 0
    }

    /// Returns whether a stop was requested more than once.
    pub fn is_urgent(&self) -> bool {
        self.stops.load(Ordering::Acquire) > 1
    }
}
