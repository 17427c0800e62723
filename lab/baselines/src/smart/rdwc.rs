//! Read delegation and write combining among the clients of one compute node (SMART, section 4.2).
//!
//! Concurrent operations on one key in a compute node form *windows*, one after another. The *lead*
//! of a window accesses the memory nodes and serves the others: reads by the value of a read or of
//! a write; writes by a write that overwrites them immediately. A lead *closes* its window before
//! it posts the verb that reads or writes the value. Later operations wait for the next window.
//!
//! So every served operation began before that verb and takes effect with it: in the order of all
//! compute nodes, no operation returns a value that was current only before it began. In the paper,
//! a read may join while the READ is in flight, and then misses a write that another compute node
//! had acknowledged; the paper's shared window keeps the order only within one compute node.
//!
//! A lead writes only its own value. So if it is dropped while a verb is in flight that may still
//! take effect, the operations it would have served have written nothing: they continue as if they
//! had just begun. Windows are by key, so there are no hash conflicts to check for.

use crate::sync::lock;
use darter_index::{Condition, PutOutcome};
use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

/// Parts of the table with a mutex each.
const SHARDS: usize = 64;

/// The kind of an operation on its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    /// A put of any key.
    Upsert,
    /// A put of a present key.
    Update,
}

impl Kind {
    /// Returns the kind of a put that can be combined with others.
    pub(super) fn of(condition: Condition<'_>) -> Option<Self> {
        match condition {
            Condition::Always => Some(Self::Upsert),
            Condition::Present => Some(Self::Update),
            Condition::Absent | Condition::Equals(_) => None,
        }
    }

    /// Returns whether a lead of this kind serves an operation of the other kind.
    fn serves(self, other: Self) -> bool {
        other == Self::Read || other == self
    }
}

/// The result of a served operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Value(Option<Arc<[u8]>>),
    Outcome(PutOutcome),
}

/// The role of an operation.
pub(super) enum Role<'t> {
    /// Access the memory nodes.
    Lead(Lead<'t>),
    /// Nothing: the result is known.
    Served(Answer),
}

#[derive(Debug)]
enum WaiterState {
    Waits(Option<Waker>),
    Leads,
    Served(Answer),
    Gone,
}

#[derive(Debug)]
struct Waiter {
    kind: Kind,
    turn: Mutex<WaiterState>,
}

impl Waiter {
    /// Gives a waiter its turn, unless it was dropped. Returns whether it was there.
    fn give(&self, given: WaiterState) -> bool {
        let waker = match &mut *lock(&self.turn) {
            turn @ WaiterState::Waits(_) => {
                let WaiterState::Waits(waker) = std::mem::replace(turn, given) else { return false };
                waker
            }
            _ => return false,
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    fn waits(&self) -> bool {
        matches!(*lock(&self.turn), WaiterState::Waits(_))
    }
}

/// The window of a key, and the operations that wait for the next one.
#[derive(Debug)]
struct Window {
    kind: Kind,
    is_open: bool,
    served: Vec<Arc<Waiter>>,
    next: VecDeque<Arc<Waiter>>,
}

type Shard = HashMap<Box<[u8]>, Window>;

/// The windows of one compute node.
#[derive(Debug)]
pub(super) struct Windows {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
}

impl Default for Windows {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }
}

impl Windows {
    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        lock(&self.shards[self.hasher.hash_one(key) as usize % SHARDS])
    }

    /// Joins the operations on a key; waits until the operation becomes the lead or is served.
    pub(super) async fn enter<'t>(&'t self, key: &'t [u8], kind: Kind) -> Role<'t> {
        let waiting = {
            let mut shard = self.shard(key);
            match shard.entry(key.into()) {
                Entry::Vacant(free) => {
                    let (served, next) = (Vec::new(), VecDeque::new());
                    let is_open = kind != Kind::Read;
                    free.insert(Window { kind, is_open, served, next });
                    return Role::Lead(Lead::new(self, key));
                }
                Entry::Occupied(mut taken) => {
                    let waiter = Arc::new(Waiter { kind, turn: Mutex::new(WaiterState::Waits(None)) });
                    let window = taken.get_mut();
                    if window.is_open && window.kind.serves(kind) {
                        window.served.push(Arc::clone(&waiter));
                    } else {
                        window.next.push_back(Arc::clone(&waiter));
                    }
                    Waiting { windows: self, key, waiter }
                }
            }
        };
        poll_fn(|context| {
            let mut turn = lock(&waiting.waiter.turn);
            match std::mem::replace(&mut *turn, WaiterState::Gone) {
                WaiterState::Waits(_) => {
                    *turn = WaiterState::Waits(Some(context.waker().clone()));
                    Poll::Pending
                }
                WaiterState::Leads => Poll::Ready(Role::Lead(Lead::new(self, key))),
                WaiterState::Served(answer) => Poll::Ready(Role::Served(answer)),
                WaiterState::Gone => Poll::Pending,
            }
        })
        .await
    }

    /// Ends a window: serves its operations, or moves them to the next window, which begins.
    fn end(&self, key: &[u8], answer: Option<&mut dyn FnMut(Kind) -> Answer>) {
        let mut shard = self.shard(key);
        let Some(window) = shard.get_mut(key) else { return };
        let served = std::mem::take(&mut window.served);
        if let Some(answer) = answer {
            for waiter in served.iter().filter(|waiter| waiter.waits()) {
                waiter.give(WaiterState::Served(answer(waiter.kind)));
            }
        } else {
            served.into_iter().rev().for_each(|waiter| window.next.push_front(waiter));
        }
        while let Some(lead) = window.next.pop_front() {
            let (joins, stays) =
                window.next.drain(..).partition::<Vec<_>, _>(|waiter| lead.kind.serves(waiter.kind));
            (window.kind, window.is_open) = (lead.kind, lead.kind != Kind::Read);
            (window.served, window.next) = (joins, stays.into());
            if lead.give(WaiterState::Leads) {
                return;
            }
            let joined = std::mem::take(&mut window.served);
            joined.into_iter().rev().for_each(|waiter| window.next.push_front(waiter));
        }
        shard.remove(key);
    }
}

/// A waiting operation. If dropped, it leaves the window; if it had become the lead, it passes the
/// lead on.
struct Waiting<'t> {
    windows: &'t Windows,
    key: &'t [u8],
    waiter: Arc<Waiter>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let turn = std::mem::replace(&mut *lock(&self.waiter.turn), WaiterState::Gone);
        if let WaiterState::Leads = turn {
            self.windows.end(self.key, None);
        }
    }
}

/// The lead of a window, until it reports its result. If dropped before, the other operations
/// continue on their own.
pub(super) struct Lead<'t> {
    windows: &'t Windows,
    key: &'t [u8],
    is_closed: AtomicBool,
    has_ended: bool,
}

impl<'t> Lead<'t> {
    fn new(windows: &'t Windows, key: &'t [u8]) -> Self {
        Self { windows, key, is_closed: AtomicBool::new(false), has_ended: false }
    }

    /// Closes the window: the verb that takes effect is about to be posted.
    pub(super) fn close(&self) {
        if !self.is_closed.swap(true, Ordering::Relaxed)
            && let Some(window) = self.windows.shard(self.key).get_mut(self.key)
        {
            window.is_open = false;
        }
    }

    /// Returns a value that was read to the others.
    pub(super) fn has_read(mut self, value: Option<&[u8]>) {
        self.has_ended = true;
        let mut shared = None;
        let mut answer = |_| {
            let shared = shared.get_or_insert_with(|| value.map(Arc::from));
            Answer::Value(shared.clone())
        };
        self.windows.end(self.key, Some(&mut answer));
    }

    /// Returns the result of a put of `value` to the others, and the result for its own caller. The
    /// other writes are ordered before it, so the first of them gets the previous state. A refusal
    /// that was read while the window was open serves no other operation: a later one may know that
    /// the key is present.
    pub(super) fn has_written(mut self, value: &[u8], outcome: PutOutcome) -> PutOutcome {
        let is_open = !self.is_closed.load(Ordering::Relaxed);
        if outcome == PutOutcome::Refused && is_open {
            return outcome;
        }
        self.has_ended = true;
        let mut first = Some(outcome);
        let mut shared: Option<Arc<[u8]>> = None;
        let others = match outcome {
            PutOutcome::Refused => PutOutcome::Refused,
            _ => PutOutcome::Replaced,
        };
        let mut answer = |kind| match (kind, outcome) {
            (Kind::Read, PutOutcome::Refused) => Answer::Value(None),
            (Kind::Read, _) => Answer::Value(Some(Arc::clone(shared.get_or_insert_with(|| value.into())))),
            _ => Answer::Outcome(first.take().unwrap_or(others)),
        };
        self.windows.end(self.key, Some(&mut answer));
        first.take().unwrap_or(others)
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.windows.end(self.key, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::Pin;
    use std::task::Context;

    type Entering<'t> = Pin<Box<dyn Future<Output = Role<'t>> + 't>>;

    fn enter(windows: &Windows, kind: Kind) -> Entering<'_> {
        let mut entering: Entering<'_> = Box::pin(windows.enter(b"key", kind));
        if kind != Kind::Read || windows.shards.iter().any(|shard| !lock(shard).is_empty()) {
            assert!(poll(&mut entering).is_none());
        }
        entering
    }

    fn poll<'t>(entering: &mut Entering<'t>) -> Option<Role<'t>> {
        match entering.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(role) => Some(role),
            Poll::Pending => None,
        }
    }

    fn lead<'t>(entering: &mut Entering<'t>) -> Lead<'t> {
        match poll(entering) {
            Some(Role::Lead(lead)) => lead,
            Some(Role::Served(answer)) => panic!("served with {answer:?}"),
            None => panic!("still waits"),
        }
    }

    fn answer(entering: &mut Entering<'_>) -> Answer {
        match poll(entering) {
            Some(Role::Served(answer)) => answer,
            _ => panic!("not served"),
        }
    }

    fn is_idle(windows: &Windows) -> bool {
        windows.shards.iter().all(|shard| lock(shard).is_empty())
    }

    #[test]
    fn reads_that_come_too_late_share_the_next() {
        let windows = Windows::default();
        let first = lead(&mut enter(&windows, Kind::Read));
        let (mut second, mut third) = (enter(&windows, Kind::Read), enter(&windows, Kind::Read));
        let mut write = enter(&windows, Kind::Upsert);
        first.has_read(Some(b"old"));
        let second = lead(&mut second);
        assert!(poll(&mut third).is_none() && poll(&mut write).is_none());
        second.has_read(Some(b"value"));
        assert_eq!(answer(&mut third), Answer::Value(Some(b"value"[..].into())));
        assert_eq!(lead(&mut write).has_written(b"new", PutOutcome::Replaced), PutOutcome::Replaced);
        assert!(is_idle(&windows));
    }

    #[test]
    fn a_write_serves_who_came_before_it_closed() {
        let windows = Windows::default();
        let mut entering: Entering<'_> = Box::pin(windows.enter(b"key", Kind::Upsert));
        let first = lead(&mut entering);
        let (mut other, mut another) = (enter(&windows, Kind::Upsert), enter(&windows, Kind::Upsert));
        let mut read = enter(&windows, Kind::Read);
        first.close();
        let mut late = enter(&windows, Kind::Read);
        assert_eq!(first.has_written(b"mine", PutOutcome::Inserted), PutOutcome::Replaced);
        assert_eq!(answer(&mut other), Answer::Outcome(PutOutcome::Inserted));
        assert_eq!(answer(&mut another), Answer::Outcome(PutOutcome::Replaced));
        assert_eq!(answer(&mut read), Answer::Value(Some(b"mine"[..].into())));
        lead(&mut late).has_read(None);
        assert!(is_idle(&windows));
    }

    #[test]
    fn a_refusal_serves_only_who_came_before_it_closed() {
        let windows = Windows::default();
        let mut entering: Entering<'_> = Box::pin(windows.enter(b"key", Kind::Update));
        let first = lead(&mut entering);
        let (mut second, mut third) = (enter(&windows, Kind::Update), enter(&windows, Kind::Update));
        assert_eq!(first.has_written(b"v", PutOutcome::Refused), PutOutcome::Refused);
        let second = lead(&mut second);
        second.close();
        second.has_written(b"v", PutOutcome::Refused);
        assert_eq!(answer(&mut third), Answer::Outcome(PutOutcome::Refused));
        assert!(is_idle(&windows));
    }

    #[test]
    fn client_that_leaves_does_not_affect_the_others() {
        let windows = Windows::default();
        let mut entering: Entering<'_> = Box::pin(windows.enter(b"key", Kind::Upsert));
        let first = lead(&mut entering);
        let (gone, mut second) = (enter(&windows, Kind::Upsert), enter(&windows, Kind::Upsert));
        let (given, mut read) = (enter(&windows, Kind::Update), enter(&windows, Kind::Read));
        drop(gone);
        drop(first);
        // The second write leads now, and the later read is in its window; the update's turn comes
        // after.
        let second = lead(&mut second);
        second.has_written(b"v", PutOutcome::Replaced);
        assert_eq!(answer(&mut read), Answer::Value(Some(b"v"[..].into())));
        // The update became the lead and is dropped before it is polled.
        let mut last = enter(&windows, Kind::Read);
        drop(given);
        lead(&mut last).has_read(None);
        assert!(is_idle(&windows));
    }
}
