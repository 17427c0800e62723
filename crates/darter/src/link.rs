//! A session's clients of the pool, and the recovery of a failed operation: it waits for room, or
//! until the store has joined the pool again, and is then attempted again if that is safe.

use crate::Error;
use crate::batch::Lanes;
use crate::membership::Membership;
use crate::open_index::OpenIndex;
use crate::open_store::{OpenStore, Waits};
use crate::parts::StoreClient;
use darter_fabric::{Counters, Endpoint};
use darter_pool::{PoolError, Room};
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
        if error.is_out_of_space() {
            let store = Arc::clone(&self.store);
            return match store.make_room(&mut self.client, &mut attempts.waits).await {
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
