//! A session's clients of the pool, and the recovery of a failed operation: it waits for room, or
//! until the store has joined the pool again, and is then attempted again if that is safe.

use crate::Error;
use crate::batch::Lanes;
use crate::membership::Membership;
use crate::open_index::OpenIndex;
use crate::open_store::{OpenStore, Waits};
use crate::parts::{StoreClient, StoreFabric};
use darter_fabric::{Counters, Endpoint};
use darter_pool::{PoolError, Room, SnapshotsHeldBack};
use std::sync::Arc;

/// Maximum number of times that one operation is attempted again with a new membership.
const JOINS_MAX: usize = 3;

/// Whether an operation may be attempted again after the pool has ended the membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// The operation changes nothing.
    Always,
    /// The operation is attempted again if it has certainly had no effect.
    IfUnsent,
    /// The caller has seen a part of the result.
    Never,
}

/// A session's clients.
pub(crate) struct Link {
    pub(crate) client: StoreClient,
    /// Additional clients, for operations on many keys at a time.
    pub(crate) lanes: Lanes,
    pub(crate) open: Arc<OpenIndex>,
    pub(crate) store: Arc<OpenStore>,
    membership: Arc<Membership>,
    /// The costs of former clients.
    spent: Counters,
}

/// Attempts an operation of a link, and again after recovering from an error. This is a macro,
/// since no closure can lend what the attempt borrows to a future that is `Send`.
macro_rules! attempted {
    ($link:expr, $repeat:expr, $attempt:expr) => {{
        if $link.must_rejoin() {
            Box::pin($link.follow()).await?;
        }
        let mut attempts = $crate::link::Attempts::default();
        loop {
            // In a separate statement, which ends the borrows of the attempt.
            let outcome = $attempt;
            match outcome {
                Ok(done) => break Ok::<_, $crate::Error>(done),
                Err(error) => Box::pin($link.recover(error.into(), $repeat, &mut attempts)).await?,
            }
        }
    }};
}
pub(crate) use attempted;

/// Attempts an operation of a link that changes keys, as [`attempted`]: `$attempt` uses `$client`,
/// which is pinned, and the keys' values are preserved for an open snapshot.
macro_rules! changed {
    ($link:expr, $keys:expr, |$client:ident| $attempt:expr) => {
        $crate::link::attempted!($link, $crate::link::Repeat::IfUnsent, {
            match darter_index::snapshot::begin_change(&$link.open.index, &mut $link.client, $keys).await {
                Ok(mut pinned) => {
                    let $client: &mut $crate::parts::StoreClient = &mut pinned;
                    $attempt.map_err($crate::Error::from)
                }
                Err(error) => Err($crate::Error::from(error)),
            }
        })
    };
}
pub(crate) use changed;

/// What one operation has waited for.
#[derive(Default)]
pub(crate) struct Attempts {
    waits: Waits,
    joins: usize,
}

impl Link {
    pub(crate) fn open(membership: &Arc<Membership>) -> Result<Self, Error> {
        let store = membership.current();
        let (client, open) = (store.open.pool.client()?, Arc::clone(&store.open));
        let membership = Arc::clone(membership);
        Ok(Self { client, lanes: Lanes::default(), open, store, membership, spent: Counters::default() })
    }

    /// Returns the costs so far.
    pub(crate) fn counters(&self) -> Counters {
        let own = self.client.endpoint().counters().copied().unwrap_or_default();
        self.spent + own + self.lanes.counters()
    }

    /// Returns whether the membership is known to have ended and the store can join the pool again.
    #[inline]
    pub(crate) fn must_rejoin(&self) -> bool {
        self.open.is_shut_out() && self.membership.rejoins()
    }

    /// Holds snapshots back until the result is dropped.
    ///
    /// # Errors
    /// Fails if a snapshot is open, or begins at this moment.
    pub(crate) async fn begin_load(&mut self) -> Result<SnapshotsHeldBack<StoreFabric>, Error> {
        let pinned = self.client.pin_for_change().await?;
        if pinned.open_snapshot().is_some() {
            return Err(PoolError::SnapshotOpen.into());
        }
        Ok(pinned.pool().hold_snapshots_back())
    }

    /// Switches to the store's next membership, and waits for it.
    ///
    /// # Errors
    /// Fails with [`Error::Outside`] if there is none yet, and with [`Error::Replaced`] if it is a
    /// membership of another pool. In the latter case the link has switched to it.
    #[cold]
    pub(crate) async fn follow(&mut self) -> Result<(), Error> {
        let store = self.membership.after(&self.open).await?;
        let is_same = store.open.pool.id() == self.open.pool.id();
        let client = store.open.pool.client()?;
        self.spent = self.counters();
        self.client = client;
        self.lanes = Lanes::default();
        self.open = Arc::clone(&store.open);
        self.store = store;
        if is_same { Ok(()) } else { Err(Error::Replaced) }
    }

    /// Prepares another attempt after an operation has failed.
    ///
    /// # Errors
    /// Fails with the error to report if the operation must not be attempted again.
    #[cold]
    pub(crate) async fn recover(
        &mut self,
        error: Error,
        repeat: Repeat,
        attempts: &mut Attempts,
    ) -> Result<(), Error> {
        if matches!(error, Error::Pool(PoolError::ChangesHeld)) {
            let store = Arc::clone(&self.store);
            return store.await_changes(&mut self.client).await;
        }
        if error.is_out_of_space() {
            let store = Arc::clone(&self.store);
            let found = store.make_room(&mut self.client, &mut attempts.waits).await;
            if let Some(snapshot) = self.client.open_snapshot().filter(|_| found != Room::Freed) {
                // The values that are preserved for it take room, and so would the next one.
                self.open.pool.end_snapshot(&mut self.client, snapshot).await?;
                return Ok(());
            }
            return match found {
                Room::Freed => Ok(()),
                Room::HeldBack(by) => Err(PoolError::HeldBack(by).into()),
                Room::Full | Room::NotYet => Err(error),
            };
        }
        if !error.ends_membership() {
            return Err(error);
        }
        self.open.note_shut_out();
        if !self.membership.rejoins() {
            return Err(error);
        }
        let may_repeat = match repeat {
            Repeat::Always => true,
            Repeat::IfUnsent => error.is_unsent(),
            Repeat::Never => false,
        };
        if may_repeat && attempts.joins < JOINS_MAX {
            attempts.joins += 1;
            return self.follow().await;
        }
        self.membership.begin(&self.open);
        Err(match repeat {
            Repeat::IfUnsent if !error.is_unsent() => Error::Interrupted(Box::new(error)),
            _ => error,
        })
    }
}
