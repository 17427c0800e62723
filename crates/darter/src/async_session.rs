//! One task's access to a store.

use crate::Error;
use crate::key_space::KeySpace;
use crate::membership::Membership;
use crate::workers::{Lease, Workers};
use darter_fabric::Counters;
use std::sync::Arc;

/// Access to a [`Store`](crate::Store) for tasks, with the same operations as futures.
///
/// Several operations of one session can be in progress at a time (`join!`, `FuturesUnordered`);
/// each of them uses its own connection to the pool, which the session keeps for later ones. A
/// future is `Send` if the closure and the iterator given to the operation are. Dropping a future
/// at any await is safe: the operation took effect or it did not, and the session can go on.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// let store = darter::Store::open("mem:16M")?;
/// let session = store.async_session()?;
/// darter::block_on(async {
///     session.put("pear", "green").await?;
///     assert_eq!(session.get("pear").await?.as_deref(), Some(&b"green"[..]));
///     Ok(())
/// })
/// # }
/// ```
pub struct AsyncSession {
    workers: Workers,
}

impl AsyncSession {
    /// # Errors
    /// Fails if a memory node cannot be reached.
    pub(crate) fn open(membership: &Arc<Membership>, space: KeySpace) -> Result<Self, Error> {
        let workers = Workers::new(Arc::clone(membership), space, 1);
        // Makes opening fail if the pool cannot be reached.
        drop(workers.lease()?);
        Ok(Self { workers })
    }

    pub(crate) fn workers(&self) -> &Workers {
        &self.workers
    }

    #[inline]
    pub(crate) fn worker(&self) -> Result<Lease<'_>, Error> {
        self.workers.lease()
    }

    /// Returns the costs of this session's operations so far: round trips, verbs, bytes and
    /// retries, by kind of operation. An operation counts when it is complete.
    ///
    /// ```
    /// # use darter::OpKind;
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// let session = store.async_session()?;
    /// darter::block_on(session.get_many(&["pear", "plum"]))?;
    /// assert_eq!(session.counters()[OpKind::MultiGet].ops, 1, "both keys in one operation");
    /// # Ok(())
    /// # }
    /// ```
    pub fn counters(&self) -> Counters {
        self.workers.counters()
    }
}

impl std::fmt::Debug for AsyncSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AsyncSession").field("counters", &self.counters().total()).finish_non_exhaustive()
    }
}
