//! At most one addition of a memory node by this process at a time (`nodes`).

use darter_fabric::Orphans;
use std::sync::{Arc, Mutex};

use crate::error::PoolError;
use crate::sync::lock;

/// Whether this process is adding a node.
#[derive(Debug, Default)]
pub(crate) struct Addition {
    under_way: bool,
    /// Verbs that dropped operations of the last addition's endpoint have posted, unless it
    /// completed.
    left: Option<Arc<dyn Orphans>>,
}

/// The one addition of this process, which ends when this is dropped.
pub(super) struct Adding<'a>(&'a Mutex<Addition>);

impl<'a> Adding<'a> {
    pub(super) fn begin(
        addition: &'a Mutex<Addition>,
        orphans: Option<Arc<dyn Orphans>>,
    ) -> Result<Self, PoolError> {
        let mut this = lock(addition);
        if this.under_way {
            return Err(PoolError::Options("this process is adding a memory node; try again"));
        }
        if this.left.as_ref().is_some_and(|left| left.in_flight() > 0) {
            let what = "verbs of a cancelled addition of a memory node are in flight; try again";
            return Err(PoolError::Options(what));
        }
        *this = Addition { under_way: true, left: orphans };
        Ok(Self(addition))
    }

    /// Ends an addition that has no verbs in flight.
    pub(super) fn end(self) {
        lock(self.0).left = None;
    }
}

impl Drop for Adding<'_> {
    fn drop(&mut self) {
        lock(self.0).under_way = false;
    }
}
