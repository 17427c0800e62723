//! The locks that a writer holds: on the node it changes and, if it replaces the node, on the node
//! that points to it.
//!
//! Readers never lock (ROWEX). A writer that needs two locks takes them in the order of their lock
//! words, regardless of the order of the nodes, so that writers never deadlock.

use super::shared::Operation;
use crate::hocl::Locked;
use darter_fabric::{Batch, Fabric, GlobalAddr};
use darter_index::Result;
use darter_pool::Pinned;
use smallvec::SmallVec;

/// Locks held until they are ended; dropped, they can be taken over. None with
/// [`super::ArtOptions::without_locks`].
#[derive(Debug, Default)]
pub(super) struct Locks(SmallVec<[Locked; 2]>);

impl Locks {
    /// Adds the unlocking verbs to the last batch that is posted under the locks.
    pub(super) fn unlock_in<F: Fabric>(&mut self, fabric: &F, batch: &mut Batch) {
        self.0.iter_mut().for_each(|locked| locked.unlock_in(fabric, batch));
    }

    /// Ends the locks after all verbs under them have completed; takes a round trip for each that
    /// no batch unlocked.
    ///
    /// # Errors
    /// Errors of the fabric.
    pub(super) async fn end<F: Fabric>(self, client: &mut Pinned<'_, F>) -> Result<()> {
        for locked in self.0 {
            locked.end(client).await?;
        }
        Ok(())
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Locks a node, or the root word.
    pub(super) async fn lock(&mut self, page: GlobalAddr) -> Result<Locks> {
        let mut locks = Locks::default();
        if !self.shared.options.without_locks {
            locks.0.push(self.shared.hocl.lock(&mut self.client, page).await?);
        }
        Ok(locks)
    }

    /// Locks a node and the node that points to it.
    pub(super) async fn lock_both(&mut self, above: GlobalAddr, node: GlobalAddr) -> Result<Locks> {
        let mut locks = Locks::default();
        if !self.shared.options.without_locks {
            let (first, second) = self.shared.hocl.lock_two(&mut self.client, above, node).await?;
            locks.0.push(first);
            locks.0.extend(second);
        }
        Ok(locks)
    }
}
