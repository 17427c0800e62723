//! One thread's access to a store.

use crate::Error;
use crate::key_space::KeySpace;
use crate::membership::Membership;
use crate::worker::Worker;
use crate::workers::{Keeper, Lease};
use darter_fabric::Counters;
use std::cell::RefCell;
use std::sync::Arc;

/// One thread's access to a [`Store`](crate::Store), with the same operations.
///
/// A session has its own connection to the pool. So it is faster than the calls of a store, which
/// borrow one for each operation, and it counts the costs of its operations. It is cheap to open.
/// It can be moved between threads, but not shared by several: open one for each.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// let store = darter::Store::open("mem:16M")?;
/// let session = store.session()?;
/// for number in 0..1000_u32 {
///     session.put(number.to_be_bytes(), "value")?;
/// }
/// println!("{:.2} round trips a put", session.counters()[darter::OpKind::Insert].round_trips_per_op());
/// # Ok(())
/// # }
/// ```
pub struct Session {
    #[allow(clippy::vec_box, reason = "each operation moves a worker out and in")]
    /// The workers that no call is using: one, plus one for each call made inside a closure of
    /// another.
    idle: RefCell<Vec<Box<Worker>>>,
    membership: Arc<Membership>,
    space: KeySpace,
}

impl Session {
    /// # Errors
    /// Fails if a memory node cannot be reached.
    pub(crate) fn open(membership: &Arc<Membership>, space: KeySpace) -> Result<Self, Error> {
        let idle = RefCell::new(vec![Box::new(Worker::open(membership, space)?)]);
        Ok(Self { idle, membership: Arc::clone(membership), space })
    }

    /// Runs an operation with an idle worker, or with a new one inside another operation.
    #[inline]
    pub(crate) fn run<R>(&self, operation: impl FnOnce(&mut Worker) -> Result<R, Error>) -> Result<R, Error> {
        operation(&mut *self.lease()?)
    }

    /// Returns an idle worker, or a new one.
    ///
    /// # Errors
    /// Fails if a memory node cannot be reached.
    #[inline]
    pub(crate) fn lease(&self) -> Result<Lease<'_, Self>, Error> {
        let idle = self.idle.borrow_mut().pop();
        let worker = match idle {
            Some(worker) => worker,
            None => self.open_another()?,
        };
        Ok(Lease::new(self, worker))
    }

    #[cold]
    fn open_another(&self) -> Result<Box<Worker>, Error> {
        Ok(Box::new(Worker::open(&self.membership, self.space)?))
    }

    /// Returns the costs of this session's operations so far: round trips, verbs, bytes and
    /// retries, by kind of operation. An operation counts when it is complete.
    ///
    /// ```
    /// # use darter::OpKind;
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// let session = store.session()?;
    /// session.put("pear", "green")?;
    /// let before = session.counters();
    /// session.get("pear")?;
    /// let cost = (session.counters() - before)[OpKind::Get];
    /// assert_eq!(cost.ops, 1);
    /// println!("{} round trips, {} bytes read", cost.round_trips, cost.read_bytes);
    /// # Ok(())
    /// # }
    /// ```
    pub fn counters(&self) -> Counters {
        self.idle.borrow().iter().map(|worker| worker.counters()).sum()
    }
}

impl Keeper for Session {
    #[inline]
    fn give_back(&self, worker: Box<Worker>) {
        self.idle.borrow_mut().push(worker);
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("counters", &self.counters().total()).finish_non_exhaustive()
    }
}
