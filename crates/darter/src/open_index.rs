//! An open pool with its index, as the store, its sessions and its upkeep thread share it.

use crate::Error;
use crate::parts::{StoreClient, StoreIndex, StorePool};
use darter_index::OrderedIndex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Rounds of upkeep before a walk, so that what was retired is freed and does not count as leaked:
/// a node waits two grace periods, with scrubbing between them (rule R3), and the last round
/// finds nothing to do.
const SETTLE_ROUNDS: usize = 4;

/// An open pool with its index.
pub(crate) struct OpenIndex {
    pub(crate) index: StoreIndex,
    pub(crate) pool: StorePool,
    /// The error of the last upkeep, if it failed.
    trouble: Mutex<Option<String>>,
    /// The pool refuses all operations of this membership, as upkeep or an operation has found.
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

    /// Frees what was retired, as far as other processes allow.
    pub(crate) async fn settle(&self, client: &mut StoreClient) -> Result<(), Error> {
        for _ in 0..SETTLE_ROUNDS {
            self.pool.settle(client).await?;
            self.index.maintain(client).await?;
        }
        Ok(())
    }

    /// Remembers how upkeep went.
    pub(crate) fn note_upkeep(&self, error: Option<&Error>) {
        if error.is_some_and(Error::ends_membership) {
            self.note_shut_out();
        }
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = error.map(ToString::to_string);
    }

    /// Remembers that the pool refuses all operations of this membership.
    pub(crate) fn note_shut_out(&self) {
        self.is_shut_out.store(true, Ordering::Relaxed);
    }

    /// Returns whether the membership is known to be over.
    #[inline]
    pub(crate) fn is_shut_out(&self) -> bool {
        self.is_shut_out.load(Ordering::Relaxed)
    }

    /// Returns the error of the last upkeep, if it failed.
    pub(crate) fn upkeep_trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
