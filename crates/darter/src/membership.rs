//! A store's membership of its pool, which is renewed automatically after the pool has ended it.
//!
//! When a memory node with a log crashes, it ends all earlier sessions; and other members end a
//! member that was silent beyond its lease. The process's state in memory (cache, epochs, pins)
//! belongs to that membership, and the nodes refuse all its verbs. So one thread per store opens
//! the pool again, as a new member, and retries until it succeeds or the store is dropped. An
//! operation that needs the new membership waits for that thread ([`WAIT`]); no operation opens the
//! pool itself.
//!
//! The upkeep threads must never own the membership, which owns them: they have a [`Rejoin`] and a
//! weak reference.

use crate::open_index::OpenIndex;
use crate::open_store::OpenStore;
use crate::{Error, StoreOptions};
use darter_fabric::{PoolUrl, Scheme};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Maximum time that operations wait for the pool to be opened again, from the beginning of the
/// first attempt. If an attempt is in progress then, they wait for it.
const WAIT: Duration = Duration::from_secs(5);
/// The pause after the first attempt; each later pause is twice as long.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// The interval of checks whether the store is dropped, or the old membership is unused.
const CHECK: Duration = Duration::from_millis(50);
/// Maximum time that the thread waits until the old membership is unused, so that no operation has
/// to drop it.
const OLD_IN_USE: Duration = Duration::from_secs(60);

/// Opens the pool and its index again, with the store's options.
pub(crate) type Reopen = Arc<dyn Fn() -> Result<OpenIndex, Error> + Send + Sync>;

/// State shared by the clones and sessions of a store.
pub(crate) struct Membership {
    pub(crate) url: Option<PoolUrl>,
    options: StoreOptions,
    /// `None` for a store that does not join its pool again.
    reopen: Option<Reopen>,
    current: RwLock<Arc<OpenStore>>,
    /// The number of times that the pool was joined again.
    joins: AtomicU64,
    rejoin: Arc<Rejoin>,
}

/// The attempts to join a pool again.
#[derive(Default)]
pub(crate) struct Rejoin(Mutex<Attempts>);

#[derive(Default)]
struct Attempts {
    /// When the first attempt began; `None` if no thread is making any.
    since: Option<Instant>,
    /// Why the last attempt failed.
    failure: Option<Arc<Error>>,
    waiting: Vec<Waker>,
}

impl Rejoin {
    fn lock(&self) -> MutexGuard<'_, Attempts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, failure: Option<Error>) {
        let waiting = {
            let mut attempts = self.lock();
            attempts.failure = failure.map(Arc::new);
            std::mem::take(&mut attempts.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    fn end(&self) {
        self.lock().since = None;
        self.wake(None);
    }

    /// Starts the thread that joins the pool again after a membership has ended, unless it is
    /// running.
    pub(crate) fn begin(self: &Arc<Self>, membership: &Weak<Membership>, over: &Arc<OpenIndex>) {
        {
            let mut attempts = self.lock();
            if attempts.since.is_some() {
                return;
            }
            attempts.since = Some(Instant::now());
        }
        let (rejoin, membership, over) = (Arc::clone(self), Weak::clone(membership), Arc::clone(over));
        let work = move || {
            let old = join_again(&rejoin, &membership, &over);
            drop(membership);
            rejoin.end();
            if let Some(old) = old {
                await_disuse(old);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("darter-rejoin".to_owned()).spawn(work) {
            self.lock().since = None;
            self.wake(Some(Error::Thread(error)));
        }
    }
}

impl Membership {
    /// Creates the state of an open pool.
    pub(crate) fn new(
        open: OpenIndex,
        options: &StoreOptions,
        url: Option<PoolUrl>,
        reopen: Option<Reopen>,
    ) -> Result<Arc<Self>, Error> {
        let is_lasting = url.as_ref().is_some_and(|url| !matches!(url.scheme(), Scheme::Memory));
        let reopen = reopen.filter(|_| options.rejoin && is_lasting);
        let open = OpenStore::new(open, options);
        let membership = Arc::new(Self {
            url,
            options: options.clone(),
            reopen,
            current: RwLock::new(Arc::clone(&open)),
            joins: AtomicU64::new(0),
            rejoin: Arc::default(),
        });
        membership.keep_up(&open)?;
        Ok(membership)
    }

    /// Starts the upkeep of an open pool.
    fn keep_up(self: &Arc<Self>, open: &OpenStore) -> Result<(), Error> {
        if !self.options.maintenance {
            return Ok(());
        }
        let (rejoin, membership, over) =
            (Arc::clone(&self.rejoin), Arc::downgrade(self), Arc::clone(&open.open));
        let rejoins = self.rejoins();
        open.keep_up(move || {
            if rejoins {
                rejoin.begin(&membership, &over);
            }
        })
    }

    /// Returns whether the store was opened read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.options.read_only
    }

    /// Returns the pool as currently open.
    pub(crate) fn current(&self) -> Arc<OpenStore> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the number of times that the pool was joined again.
    pub(crate) fn joins(&self) -> u64 {
        self.joins.load(Ordering::Acquire)
    }

    /// Returns whether the pool is opened again after it has ended the membership.
    pub(crate) fn rejoins(&self) -> bool {
        self.reopen.is_some()
    }

    /// Returns why the last attempt to join the pool again failed.
    pub(crate) fn failure(&self) -> Option<Arc<Error>> {
        self.rejoin.lock().failure.clone()
    }

    /// Starts opening the pool again after a membership has ended. Does not wait.
    pub(crate) fn begin(self: &Arc<Self>, over: &Arc<OpenIndex>) {
        if self.rejoins() && Arc::ptr_eq(&self.current().open, over) {
            self.rejoin.begin(&Arc::downgrade(self), over);
        }
    }

    /// Returns the membership that has replaced an ended one.
    ///
    /// # Errors
    /// Fails with [`Error::Outside`] if it takes longer than operations wait.
    pub(crate) async fn after(self: &Arc<Self>, over: &Arc<OpenIndex>) -> Result<Arc<OpenStore>, Error> {
        poll_fn(|context| {
            self.begin(over);
            let mut attempts = self.rejoin.lock();
            let current = self.current();
            if !Arc::ptr_eq(&current.open, over) {
                return Poll::Ready(Ok(current));
            }
            let has_ended = attempts.since.is_none_or(|since| since.elapsed() >= WAIT);
            if let Some(failure) = attempts.failure.as_ref().filter(|_| has_ended) {
                return Poll::Ready(Err(Error::Outside(Arc::clone(failure))));
            }
            attempts.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Installs a membership. Returns the old one.
    fn replace(self: &Arc<Self>, open: OpenIndex) -> Result<Arc<OpenStore>, Error> {
        let open = OpenStore::new(open, &self.options);
        self.keep_up(&open)?;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *current, open);
        self.joins.fetch_add(1, Ordering::Release);
        Ok(old)
    }

    /// Makes one attempt. Returns the replaced membership; `None` if it was replaced already.
    fn attempt(self: &Arc<Self>, over: &Arc<OpenIndex>) -> Result<Option<Arc<OpenStore>>, Error> {
        let Some(reopen) = self.reopen.as_ref().filter(|_| Arc::ptr_eq(&self.current().open, over)) else {
            return Ok(None);
        };
        let new = reopen()?;
        if new.pool.id() != over.pool.id() && !self.options.accept_new_pool {
            return Err(Error::AnotherPool);
        }
        self.replace(new).map(Some)
    }
}

/// Opens the pool again, with as many attempts as needed. Returns the old membership.
fn join_again(
    rejoin: &Rejoin,
    membership: &Weak<Membership>,
    over: &Arc<OpenIndex>,
) -> Option<Arc<OpenStore>> {
    let mut pause = PAUSE;
    loop {
        match membership.upgrade()?.attempt(over) {
            Ok(old) => return old,
            Err(error) => rejoin.wake(Some(error)),
        }
        let end = Instant::now() + pause;
        while Instant::now() < end {
            if membership.strong_count() == 0 {
                return None;
            }
            std::thread::sleep(CHECK.min(pause));
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Waits for a limited time until an old membership is unused, and drops it.
fn await_disuse(mut old: Arc<OpenStore>) {
    let end = Instant::now() + OLD_IN_USE;
    while Arc::get_mut(&mut old).is_none() && Instant::now() < end {
        std::thread::sleep(CHECK);
    }
}

#[cfg(test)]
mod tests;
