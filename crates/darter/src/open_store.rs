//! What the clones and sessions of a store share, and what happens when the last of them is
//! dropped.

use crate::Error;
use crate::open_index::OpenIndex;
use crate::sweeper::Sweeper;
use crate::upkeep::Upkeep;
use darter_fabric::{Fabric, PoolUrl, block_on};
use darter_index::OrderedIndex;
use std::sync::Arc;

/// An open store. Dropped with the last clone and session.
pub(crate) struct OpenStore<F: Fabric, I: OrderedIndex<F>> {
    /// `None` for a program that does the upkeep itself.
    pub(crate) upkeep: Option<Upkeep>,
    /// `None` for a program that does not want what the dead left to be swept.
    pub(crate) sweeper: Option<Arc<Sweeper<F, I>>>,
    pub(crate) open: Arc<OpenIndex<F, I>>,
    pub(crate) url: Option<PoolUrl>,
    pub(crate) auto_adjust: bool,
    /// Opens the same pool again in the same way; `None` for a store over a fabric of the program.
    pub(crate) reopen: Option<Reopen<F, I>>,
}

/// Opens a store anew.
pub(crate) type Reopen<F, I> = Box<dyn Fn() -> Result<Arc<OpenStore<F, I>>, Error> + Send + Sync>;

impl<F: Fabric, I: OrderedIndex<F>> Drop for OpenStore<F, I> {
    /// Ends the threads, then frees what was retired: only the index can scrub what it has
    /// unlinked, so this comes before the pool closes. What cannot be freed, because others hold it
    /// back or the fabric fails, is left to a repair.
    fn drop(&mut self) {
        drop(self.upkeep.take());
        if let Some(sweeper) = self.sweeper.take() {
            sweeper.stop();
        }
        if let Ok(mut client) = self.open.pool.client() {
            let _ = block_on(self.open.settle(&mut client));
        }
    }
}
