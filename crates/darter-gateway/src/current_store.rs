//! The store of a gateway, which is opened again when the pool has ended this process's membership.
//!
//! A memory node with a log that crashes ends the sessions of before, and other members end one that
//! was silent beyond its lease. What the store had in memory (cache, epochs, pins) belongs to that
//! membership, and all its verbs are refused. So a thread opens the pool anew, as another member,
//! and the serving threads take the new store for the next requests of their clients, whose
//! connections stay. The thread drops the old store after they did, since that can wait for a memory
//! node.

use super::state::{GatewayState, LogLine};
use darter::{Error, Store};
use darter_fabric::mutant;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

/// The pause after the first attempt to open the pool; later ones are twice as long as the one
/// before.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Between two looks whether the gateway stops, or the old store is in use.
const LOOK: Duration = Duration::from_millis(50);
/// How long the thread waits until the old store is out of use.
const OLD_IN_USE: Duration = Duration::from_secs(60);

/// A store, and a mark that all who use it have a clone of.
#[derive(Clone, Debug)]
pub(super) struct OpenedStore {
    pub(super) store: Store,
    mark: Arc<()>,
}

impl OpenedStore {
    /// Returns whether two are of the same membership.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.mark, &other.mark)
    }
}

/// The store that requests work on.
#[derive(Debug)]
pub(super) struct CurrentStore {
    opened: RwLock<OpenedStore>,
    /// Grows when the store is replaced.
    generation: AtomicU64,
    /// A command has found that the membership is over.
    is_shut_out: AtomicBool,
    /// The thread runs that opens the pool again.
    is_reopening: AtomicBool,
}

impl CurrentStore {
    pub(super) fn new(store: Store) -> Self {
        Self {
            opened: RwLock::new(OpenedStore { store, mark: Arc::default() }),
            generation: AtomicU64::new(0),
            is_shut_out: AtomicBool::new(false),
            is_reopening: AtomicBool::new(false),
        }
    }

    /// Returns a number that is another after the store was replaced.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the store.
    pub(super) fn get(&self) -> OpenedStore {
        self.opened.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes the error of a command.
    pub(super) fn note(&self, error: &Error) {
        if error.is_shut_out() {
            self.is_shut_out.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the pool accepts nothing of the store any more.
    pub(super) fn is_shut_out(&self) -> bool {
        self.is_shut_out.load(Ordering::Relaxed) || self.get().store.is_shut_out()
    }

    /// Replaces the store. Returns the old one.
    fn replace(&self, store: Store) -> OpenedStore {
        let mut opened = self.opened.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *opened, OpenedStore { store, mark: Arc::default() });
        self.is_shut_out.store(false, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Release);
        old
    }
}

/// Opens the pool again in a thread of its own, if that is needed and no thread does it.
pub(super) fn keep_open(shared: &Arc<GatewayState>) {
    if !shared.current.is_shut_out() || mutant!("gateway-stays-shut-out") {
        return;
    }
    if shared.current.is_reopening.swap(true, Ordering::AcqRel) {
        return;
    }
    let mine = Arc::clone(shared);
    let work = move || {
        reopen(&mine);
        mine.current.is_reopening.store(false, Ordering::Release);
    };
    if std::thread::Builder::new().name("darter-reopen".to_owned()).spawn(work).is_err() {
        shared.current.is_reopening.store(false, Ordering::Release);
    }
}

/// Opens the pool again, as often as it takes.
fn reopen(shared: &GatewayState) {
    let old = shared.current.get();
    warn!("the pool has ended this gateway's membership; opening the pool again");
    let mut pause = PAUSE;
    let mut old = loop {
        match old.store.reopen() {
            Ok(new) if new.pool().id() == old.store.pool().id() => {
                drop(old);
                break shared.current.replace(new);
            }
            Ok(_) => error!("the memory nodes hold another pool now; start the gateway again to serve that"),
            Err(error) => {
                if shared.may_log(LogLine::Failed) {
                    warn!(%error, "the pool cannot be opened again; trying on");
                }
            }
        }
        if !rest(shared, pause) {
            return;
        }
        pause = (pause * 2).min(PAUSE_MAX);
    };
    info!("the pool is open again, with another membership");
    // Serving threads must not be those that close the old one.
    let end = Instant::now() + OLD_IN_USE;
    while Arc::get_mut(&mut old.mark).is_none() && Instant::now() < end && rest(shared, LOOK) {}
}

/// Waits. Returns whether the gateway goes on.
fn rest(shared: &GatewayState, pause: Duration) -> bool {
    let end = Instant::now() + pause;
    while Instant::now() < end && !shared.is_stopping.load(Ordering::SeqCst) {
        std::thread::sleep(LOOK.min(pause));
    }
    !shared.is_stopping.load(Ordering::SeqCst)
}
