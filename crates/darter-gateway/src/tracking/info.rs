//! What other clients can request about a client that tracks keys.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// Whether a client tracks keys.
#[derive(Debug)]
pub(crate) struct TrackingInfo {
    redirection: AtomicI64,
    is_broadcast: AtomicBool,
    is_broken: AtomicBool,
}

impl Default for TrackingInfo {
    fn default() -> Self {
        let (is_broadcast, is_broken) = Default::default();
        Self { redirection: AtomicI64::new(-1), is_broadcast, is_broken }
    }
}

impl TrackingInfo {
    /// Records that the client tracks keys, and the id of the client to which its invalidations go.
    pub(super) fn begin(&self, redirection: Option<u64>, is_broadcast: bool) {
        self.is_broken.store(false, Ordering::Relaxed);
        self.is_broadcast.store(is_broadcast, Ordering::Relaxed);
        self.redirection.store(redirection.unwrap_or(0).cast_signed(), Ordering::Relaxed);
    }

    /// Records that the client tracks no keys.
    pub(super) fn end(&self) {
        self.begin(None, false);
        self.redirection.store(-1, Ordering::Relaxed);
    }

    /// Returns the id of the client to which its invalidations go, 0 if they go to itself, or -1 if it
    /// tracks no keys.
    pub(crate) fn redirection(&self) -> i64 {
        self.redirection.load(Ordering::Relaxed)
    }

    /// Records that the client to which its invalidations go has gone.
    pub(super) fn redirection_broke(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }

    /// Returns whether the client to which its invalidations go has gone.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// Returns whether the client tracks all keys with some prefixes.
    pub(crate) fn is_broadcast(&self) -> bool {
        self.is_broadcast.load(Ordering::Relaxed)
    }
}
