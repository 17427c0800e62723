//! Locks of one compute node, by number: first come, first served, with an optional value that is
//! handed over with the lock.
//!
//! A lock exists while a client holds it or waits for it, so memory is needed only for locks in
//! use. A client that requests a taken lock waits in its queue. When the holder's guard is dropped,
//! the lock passes to the first client in the queue; [`LocalGuard::hand_over`] passes a `T` with
//! it, such as the token in a lock of the pool (Sherman's handover). A waiter that is dropped
//! leaves the queue. If it had already received the lock, it passes the lock on and drops the `T`,
//! which must be valid on its own then.

use crate::sync::lock;
use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

/// Parts of the table with a mutex each.
const SHARDS: usize = 64;

/// A table of locks.
#[derive(Debug)]
pub(crate) struct LocalLocks<T> {
    shards: Box<[Shard<T>]>,
}

/// Some of the taken locks, by number.
type Shard<T> = Mutex<HashMap<u64, Lock<T>>>;

/// A taken lock.
#[derive(Debug)]
struct Lock<T> {
    queue: VecDeque<Arc<Waiter<T>>>,
    /// Handovers since it was taken while free.
    handovers: u32,
}

#[derive(Debug)]
struct Waiter<T>(Mutex<WaiterState<T>>);

/// The state of a waiter.
#[derive(Debug)]
enum WaiterState<T> {
    Waits(Option<Waker>),
    /// It has the lock, and the value handed over with it.
    Has(Option<T>),
    /// It took what it was given, or was dropped.
    Gone,
}

impl<T> Default for LocalLocks<T> {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl<T> LocalLocks<T> {
    fn shard(&self, number: u64) -> MutexGuard<'_, HashMap<u64, Lock<T>>> {
        lock(&self.shards[number as usize % SHARDS])
    }

    /// Takes a lock and waits for its turn.
    pub(crate) fn lock(self: &Arc<Self>, number: u64) -> Waiting<'_, T> {
        debug_assert_ne!(number, PASSED_ON, "a guard of this number would not release the lock");
        Waiting { locks: self, number, waiter: None }
    }

    /// Takes a lock if it is free.
    pub(crate) fn try_lock(self: &Arc<Self>, number: u64) -> Option<LocalGuard<T>> {
        let mut shard = self.shard(number);
        let Entry::Vacant(free) = shard.entry(number) else { return None };
        free.insert(Lock { queue: VecDeque::new(), handovers: 0 });
        drop(shard);
        Some(LocalGuard { locks: Arc::clone(self), number, handed: None })
    }

    /// Passes the lock to the next in the queue, with `handed` if given, and returns the value if
    /// no waiter took it. Without a queue the lock becomes free, unless there was a value to hand
    /// over: then it is unchanged.
    fn pass(&self, number: u64, mut handed: Option<T>) -> Option<T> {
        let mut shard = self.shard(number);
        let entry = shard.get_mut(&number)?;
        while let Some(next) = entry.queue.pop_front() {
            let mut turn = lock(&next.0);
            if let WaiterState::Waits(waker) = &mut *turn {
                let waker = waker.take();
                entry.handovers = if handed.is_some() { entry.handovers + 1 } else { 0 };
                *turn = WaiterState::Has(handed.take());
                drop(turn);
                drop(shard);
                if let Some(waker) = waker {
                    waker.wake();
                }
                return None;
            }
        }
        if handed.is_none() {
            shard.remove(&number);
        }
        handed
    }
}

/// A future that takes a lock.
#[derive(Debug)]
pub(crate) struct Waiting<'a, T> {
    locks: &'a Arc<LocalLocks<T>>,
    number: u64,
    waiter: Option<Arc<Waiter<T>>>,
}

impl<T> Future for Waiting<'_, T> {
    type Output = LocalGuard<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<LocalGuard<T>> {
        let Some(waiter) = &self.waiter else {
            if let Some(guard) = self.locks.try_lock(self.number) {
                return Poll::Ready(guard);
            }
            let mut shard = self.locks.shard(self.number);
            let Some(entry) = shard.get_mut(&self.number) else {
                // It has become free in between.
                drop(shard);
                return self.poll(context);
            };
            let waiter = Arc::new(Waiter(Mutex::new(WaiterState::Waits(Some(context.waker().clone())))));
            entry.queue.push_back(Arc::clone(&waiter));
            drop(shard);
            self.waiter = Some(waiter);
            return Poll::Pending;
        };
        let mut turn = lock(&waiter.0);
        match &mut *turn {
            WaiterState::Waits(waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            WaiterState::Has(handed) => {
                let handed = handed.take();
                *turn = WaiterState::Gone;
                Poll::Ready(LocalGuard { locks: Arc::clone(self.locks), number: self.number, handed })
            }
            WaiterState::Gone => Poll::Pending,
        }
    }
}

impl<T> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        let Some(waiter) = &self.waiter else { return };
        let turn = std::mem::replace(&mut *lock(&waiter.0), WaiterState::Gone);
        if let WaiterState::Has(handed) = turn {
            drop(handed);
            self.locks.pass(self.number, None);
        }
    }
}

/// A lock that is held until dropped.
#[derive(Debug)]
pub(crate) struct LocalGuard<T> {
    locks: Arc<LocalLocks<T>>,
    number: u64,
    handed: Option<T>,
}

impl<T> LocalGuard<T> {
    /// Returns the value that the former holder handed over with the lock.
    pub(crate) fn take_handed(&mut self) -> Option<T> {
        self.handed.take()
    }

    /// Returns whether a client waits for the lock and it has been handed over fewer than
    /// `handovers_max` times in a row, so that clients outside this compute node get their turn.
    pub(crate) fn may_hand_over(&self, handovers_max: u32) -> bool {
        let shard = self.locks.shard(self.number);
        shard.get(&self.number).is_some_and(|lock| lock.handovers < handovers_max && !lock.queue.is_empty())
    }

    /// Passes the lock and `handed` to the next in the queue. Returns both if the queue is empty.
    pub(crate) fn hand_over(self, handed: T) -> Result<(), (Self, T)> {
        match self.locks.pass(self.number, Some(handed)) {
            None => {
                // Another client holds the lock now.
                let mut this = self;
                this.number = PASSED_ON;
                Ok(())
            }
            Some(handed) => Err((self, handed)),
        }
    }
}

/// A number that no lock has, in a guard that has passed its lock on.
const PASSED_ON: u64 = u64::MAX;

impl<T> Drop for LocalGuard<T> {
    fn drop(&mut self) {
        drop(self.handed.take());
        if self.number != PASSED_ON {
            self.locks.pass(self.number, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute_node::yield_now;
    use darter_fabric::{block_on, run_all};
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn turns_come_in_order_and_locks_vanish_with_their_users() {
        let locks: Arc<LocalLocks<()>> = Arc::default();
        let order = RefCell::new(Vec::new());
        run_all((0..5).map(|task| {
            let (locks, order) = (&locks, &order);
            async move {
                let guard = locks.lock(3).await;
                yield_now().await;
                order.borrow_mut().push(task);
                drop(guard);
                drop(locks.lock(4 + task).await);
            }
        }));
        assert_eq!(*order.borrow(), [0, 1, 2, 3, 4]);
        assert!(locks.shards.iter().all(|shard| lock(shard).is_empty()));
    }

    #[test]
    fn handed_over_value_reaches_the_next_up_to_the_limit() {
        let locks: Arc<LocalLocks<u32>> = Arc::default();
        let got = RefCell::new(Vec::new());
        run_all((0..6).map(|_| {
            let (locks, got) = (&locks, &got);
            async move {
                let mut guard = locks.lock(9).await;
                yield_now().await;
                let handed = guard.take_handed();
                got.borrow_mut().push(handed);
                if guard.may_hand_over(2) {
                    guard.hand_over(handed.unwrap_or(0) + 1).unwrap();
                }
            }
        }));
        assert_eq!(*got.borrow(), [None, Some(1), Some(2), None, Some(1), Some(2)]);
        let guard = block_on(locks.lock(9));
        assert!(!guard.may_hand_over(2));
        let (guard, handed) = guard.hand_over(7).unwrap_err();
        assert_eq!(handed, 7);
        drop(guard);
        assert!(locks.shards.iter().all(|shard| lock(shard).is_empty()));
    }

    #[test]
    fn waiters_that_go_away_are_passed_over() {
        let locks: Arc<LocalLocks<u32>> = Arc::default();
        let guard = block_on(locks.lock(1));
        let mut context = Context::from_waker(Waker::noop());
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(locks.lock(1))).collect();
        for waiting in &mut waiting {
            assert!(waiting.as_mut().poll(&mut context).is_pending());
        }
        drop(waiting.remove(0));
        guard.hand_over(5).unwrap();
        // The second has received the lock and is dropped before it is polled.
        drop(waiting.remove(0));
        let Poll::Ready(mut last) = waiting[0].as_mut().poll(&mut context) else {
            panic!("the lock was not passed on")
        };
        assert_eq!(last.take_handed(), None);
        drop(last);
        assert!(locks.shards.iter().all(|shard| lock(shard).is_empty()));
    }

    #[test]
    fn threads_exclude_each_other() {
        let locks: Arc<LocalLocks<()>> = Arc::default();
        let (inside, most) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    run_all((0..8).map(|_| async {
                        for turn in 0..200 {
                            let guard = locks.lock(turn % 2).await;
                            if turn % 2 == 0 {
                                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                                yield_now().await;
                                inside.fetch_sub(1, Ordering::SeqCst);
                            }
                            drop(guard);
                        }
                    }));
                });
            }
        });
        assert_eq!(most.load(Ordering::SeqCst), 1);
    }
}
