//! Idle workers, shared by threads and tasks.
//!
//! An operation takes an idle worker, or opens a new one if none is idle, and puts it back when it
//! is complete or its future is dropped. Each thread has its own slot, so that threads do not
//! contend for one list.

use crate::Error;
use crate::key_space::KeySpace;
use crate::membership::Membership;
use crate::worker::Worker;
use darter_fabric::Counters;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of idle workers in addition to those in slots.
const MORE_MAX: usize = 64;

thread_local! {
    /// This thread's number, in the order in which threads first used workers.
    static THREAD: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREADS.fetch_add(1, Ordering::Relaxed)
    };
}

/// A thread's idle worker, on separate cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Slot(Mutex<Option<Box<Worker>>>);

impl Slot {
    #[inline]
    fn replace(&self, worker: Option<Box<Worker>>) -> Option<Box<Worker>> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), worker)
    }
}

/// Idle workers of one store and key space.
pub(crate) struct Workers {
    membership: Arc<Membership>,
    space: KeySpace,
    slots: Box<[Slot]>,
    #[allow(clippy::vec_box, reason = "they come from slots and go back there")]
    more: Mutex<Vec<Box<Worker>>>,
}

/// Keeps idle workers.
pub(crate) trait Keeper {
    /// Keeps a worker that is idle again.
    fn give_back(&self, worker: Box<Worker>);
}

/// A worker that its keeper gets back.
pub(crate) struct Lease<'w, K: Keeper = Workers> {
    keeper: &'w K,
    /// Empty once dropped.
    worker: Option<Box<Worker>>,
}

impl<'w, K: Keeper> Lease<'w, K> {
    #[inline]
    pub(crate) fn new(keeper: &'w K, worker: Box<Worker>) -> Self {
        Self { keeper, worker: Some(worker) }
    }
}

impl Workers {
    /// Returns a list with slots for this number of threads.
    pub(crate) fn new(membership: Arc<Membership>, space: KeySpace, threads: usize) -> Self {
        let slots = (0..threads).map(|_| Slot::default()).collect();
        Self { membership, space, slots, more: Mutex::default() }
    }

    pub(crate) fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    /// Returns a worker.
    ///
    /// # Errors
    /// Fails if none is idle and a new one cannot be opened.
    #[inline]
    pub(crate) fn lease(&self) -> Result<Lease<'_>, Error> {
        let worker = match self.slot().replace(None) {
            Some(worker) => worker,
            None => self.another()?,
        };
        Ok(Lease::new(self, worker))
    }

    #[inline]
    fn slot(&self) -> &Slot {
        &self.slots[THREAD.with(|&thread| thread) % self.slots.len()]
    }

    #[cold]
    fn another(&self) -> Result<Box<Worker>, Error> {
        if let Some(worker) = self.more.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(worker);
        }
        Ok(Box::new(Worker::open(&self.membership, self.space)?))
    }

    #[cold]
    fn keep(&self, worker: Box<Worker>) {
        let mut more = self.more.lock().unwrap_or_else(PoisonError::into_inner);
        if more.len() < MORE_MAX {
            more.push(worker);
        }
    }

    /// Returns the costs of all complete operations of the workers that are idle now.
    pub(crate) fn counters(&self) -> Counters {
        let in_slots = self.slots.iter().filter_map(|slot| {
            let worker = slot.replace(None)?;
            let counters = worker.counters();
            if let Some(displaced) = slot.replace(Some(worker)) {
                self.keep(displaced);
            }
            Some(counters)
        });
        let in_slots: Counters = in_slots.sum();
        let more = self.more.lock().unwrap_or_else(PoisonError::into_inner);
        in_slots + more.iter().map(|worker| worker.counters()).sum()
    }
}

impl Keeper for Workers {
    #[inline]
    fn give_back(&self, worker: Box<Worker>) {
        if let Some(displaced) = self.slot().replace(Some(worker)) {
            self.keep(displaced);
        }
    }
}

impl<K: Keeper> Deref for Lease<'_, K> {
    type Target = Worker;

    #[inline]
    fn deref(&self) -> &Worker {
        self.worker.as_ref().expect("it is there until the lease is dropped")
    }
}

impl<K: Keeper> DerefMut for Lease<'_, K> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Worker {
        self.worker.as_mut().expect("it is there until the lease is dropped")
    }
}

impl<K: Keeper> Drop for Lease<'_, K> {
    #[inline]
    fn drop(&mut self) {
        if let Some(worker) = self.worker.take() {
            self.keeper.give_back(worker);
        }
    }
}
