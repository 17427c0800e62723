//! An open pool with its index, shared by the store, its sessions and its upkeep thread.

use crate::Error;
use crate::parts::{StoreClient, StoreIndex, StorePool};
use darter_index::OrderedIndex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Number of upkeep rounds before a walk, so that retired objects are freed and do not count as
/// leaked: a node waits for two grace periods, with scrubbing between them (rule R3), and the last
/// round has no work left.
const SETTLE_ROUNDS: usize = 4;

/// An open pool with its index.
pub(crate) struct OpenIndex {
    pub(crate) index: StoreIndex,
    pub(crate) pool: StorePool,
    /// The error of the last upkeep, if it failed.
    trouble: Mutex<Option<String>>,
    /// Whether the pool refuses all operations of this membership, as detected by upkeep or an
    /// operation.
    is_shut_out: AtomicBool,
}

impl OpenIndex {
    pub(crate) fn new(index: StoreIndex, pool: StorePool) -> Self {
        Self { index, pool, trouble: Mutex::new(None), is_shut_out: AtomicBool::new(false) }
    }

    /// Does all upkeep that is due, once.
    pub(crate) async fn maintain(&self, client: &mut StoreClient, adapt: bool) -> Result<(), Error> {
        self.pool.maintain(client).await?;
        self.index.maintain(client).await?;
        if adapt {
            self.index.adapt(client).await?;
        }
        Ok(())
    }

    /// Frees retired objects, as far as other processes allow.
    pub(crate) async fn settle(&self, client: &mut StoreClient) -> Result<(), Error> {
        for _ in 0..SETTLE_ROUNDS {
            self.pool.settle(client).await?;
            self.index.maintain(client).await?;
        }
        Ok(())
    }

    /// Records the result of upkeep.
    pub(crate) fn note_upkeep(&self, error: Option<&Error>) {
        if error.is_some_and(Error::ends_membership) {
            self.note_shut_out();
        }
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = error.map(ToString::to_string);
    }

    /// Records that the pool refuses all operations of this membership.
    pub(crate) fn note_shut_out(&self) {
        self.is_shut_out.store(true, Ordering::Relaxed);
    }

    /// Returns whether the membership is known to have ended.
    #[inline]
    pub(crate) fn is_shut_out(&self) -> bool {
        self.is_shut_out.load(Ordering::Relaxed)
    }

    /// Returns the error of the last upkeep, if it failed.
    pub(crate) fn upkeep_trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
