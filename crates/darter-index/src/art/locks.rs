//! The locks that a writer holds: on the node it changes and, when it replaces the node, on the one that points to it.
//!
//! Readers never lock (ROWEX). Two nodes can share a lock word, and words of different nodes have no common order, so
//! the second lock is only tried; when it is busy the first is given up, and the second waited for with nothing in hand.

use super::Art;
use crate::IndexError;
use crate::hocl::Locked;
use darter_fabric::{Batch, Fabric, GlobalAddr};
use darter_pool::Pinned;
use smallvec::SmallVec;

/// Locks held, until ended in order; dropped, they are others' to take over. None with [`super::ArtOptions::without_locks`].
#[derive(Debug, Default)]
pub(super) struct Locks(SmallVec<[Locked; 2]>);

impl Locks {
    /// Adds the unlocking WRITEs to the last batch that is posted under the locks.
    pub(super) fn unlock_in(&mut self, batch: &mut Batch) {
        self.0.iter_mut().for_each(|locked| locked.unlock_in(batch));
    }

    /// Ends the locks when all verbs under them have completed; a round trip for each that no batch unlocked.
    ///
    /// # Errors
    /// Those of the fabric.
    pub(super) async fn end<F: Fabric>(self, client: &mut Pinned<'_, F>) -> Result<(), IndexError> {
        for locked in self.0 {
            locked.end(client).await?;
        }
        Ok(())
    }
}

impl<F: Fabric> Art<F> {
    /// Locks a node, or the root word.
    pub(super) async fn lock(
        &self,
        client: &mut Pinned<'_, F>,
        page: GlobalAddr,
    ) -> Result<Locks, IndexError> {
        let mut locks = Locks::default();
        if !self.shared.options.without_locks {
            locks.0.push(self.shared.hocl.lock(client, page).await?);
        }
        Ok(locks)
    }

    /// Locks a node, and what points to it. `None` when the node was busy, which by then it no longer is.
    pub(super) async fn lock_both(
        &self,
        client: &mut Pinned<'_, F>,
        above: GlobalAddr,
        node: GlobalAddr,
    ) -> Result<Option<Locks>, IndexError> {
        let mut locks = self.lock(client, above).await?;
        let Some(first) = locks.0.first() else { return Ok(Some(locks)) };
        if first.covers(&self.shared.hocl, client, node).await? {
            return Ok(Some(locks));
        }
        match self.shared.hocl.try_lock(client, node).await {
            Ok(Some(second)) => {
                locks.0.push(second);
                Ok(Some(locks))
            }
            Ok(None) => {
                locks.end(client).await?;
                self.lock(client, node).await?.end(client).await?;
                Ok(None)
            }
            Err(error) => {
                locks.end(client).await?;
                Err(error)
            }
        }
    }
}
