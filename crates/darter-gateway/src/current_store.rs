//! The store that a gateway works on now, which is replaced when it was opened again
//! (`reopening.rs`).

use darter::{Error, Store};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// A store, and a mark that all who use it have a clone of.
#[derive(Clone, Debug)]
pub(super) struct OpenedStore {
    pub(super) store: Store,
    mark: Arc<()>,
}

impl OpenedStore {
    /// Returns whether no other clone exists.
    pub(super) fn is_unused(&mut self) -> bool {
        Arc::get_mut(&mut self.mark).is_some()
    }

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

    /// Returns whether the pool refuses all operations of the store.
    pub(super) fn is_shut_out(&self) -> bool {
        self.is_shut_out.load(Ordering::Relaxed) || self.get().store.is_shut_out()
    }

    /// Returns whether the caller is the one to open the pool again, until it calls
    /// [`Self::end_reopening`].
    pub(super) fn begin_reopening(&self) -> bool {
        self.is_shut_out() && !self.is_reopening.swap(true, Ordering::AcqRel)
    }

    pub(super) fn end_reopening(&self) {
        self.is_reopening.store(false, Ordering::Release);
    }

    /// Replaces the store. Returns the old one.
    pub(super) fn replace(&self, store: Store) -> OpenedStore {
        let mut opened = self.opened.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *opened, OpenedStore { store, mark: Arc::default() });
        self.is_shut_out.store(false, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Release);
        old
    }
}
