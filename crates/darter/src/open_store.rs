//! What the clones and sessions of a store share, and what happens when the last of them is
//! dropped.

use crate::open_index::OpenIndex;
use crate::upkeep::Upkeep;
use darter_fabric::{Fabric, PoolUrl, block_on};
use std::sync::Arc;

/// An open store. Dropped with the last clone and session.
pub(crate) struct OpenStore<F: Fabric> {
    /// `None` for a program that does the upkeep itself.
    pub(crate) upkeep: Option<Upkeep>,
    pub(crate) open: Arc<OpenIndex<F>>,
    pub(crate) url: Option<PoolUrl>,
    pub(crate) auto_adjust: bool,
}

impl<F: Fabric> Drop for OpenStore<F> {
    /// Ends the thread, then frees what was retired: only the index can scrub what it has unlinked,
    /// so this comes before the pool closes. What cannot be freed, because others hold it back or
    /// the fabric fails, is left to a repair.
    fn drop(&mut self) {
        drop(self.upkeep.take());
        if let Ok(mut client) = self.open.pool.client() {
            let _ = block_on(self.open.settle(&mut client));
        }
    }
}
