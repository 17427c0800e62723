//! The clients that wait for elements of keys: those of blocking commands such as `BLPOP`.
//!
//! The clients of a gateway that wait for one key form a queue in the order in which they came. A
//! command that may have added elements wakes the first of them, which tries its own command again;
//! a client that leaves the queue wakes the next one. So each is served in its turn, and nothing is
//! lost if a client goes before its turn. Clients that read a stream for a consumer group have a queue
//! for each group. Those that read it without a group take nothing from each other, and all are
//! woken.
//!
//! A gateway tells the others for which keys its clients wait, and they tell it once when they have
//! added elements to such a key. If its client gets none, it tells them again. A gateway that did not
//! know of a key answers at once, so that the waiting client tries again: elements that were added
//! before are not missed. Messages may be lost. Therefore the first client of each queue also tries again after a pause.

use super::clients::Unblock;
use super::keyspace::{Scoped, StreamId};
use super::number;
use super::peers::{MessageKind, Peers};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The pause between two attempts of the first client in a queue, if its gateway is not connected to
/// others.
const PAUSE: Duration = Duration::from_millis(20);
/// How much longer the pause is for each client that waits.
const PAUSE_FOR_EACH: Duration = Duration::from_micros(500);
/// The longest pause, and the pause if there are messages.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a gateway reports new elements to another one that waits for them.
const TOLD_FOR: Duration = Duration::from_secs(10);
/// Most keys for which other gateways wait.
const TOLD_MAX: usize = 100_000;

/// A client's place in the queues.
type Place = Arc<Notify>;

/// For what a client waits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wanted {
    /// An element, which one client gets.
    Element,
    /// Entries of a stream, of which each client of the consumer group gets others.
    OfGroup(Vec<u8>),
    /// Entries of a stream, which all clients get.
    Entries,
}

/// The queues of a gateway, by key.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// The number of clients.
    count: AtomicUsize,
    queues: Mutex<Queues>,
    /// The keys for which clients of other gateways wait, and until when new elements are reported to
    /// these.
    others: Mutex<BTreeMap<Scoped, Instant>>,
    /// The number of these keys.
    others_count: AtomicUsize,
}

type Queues = BTreeMap<Scoped, BTreeMap<Wanted, VecDeque<Place>>>;

/// Returns the places of a key that are woken together.
fn woken_first(queues: &BTreeMap<Wanted, VecDeque<Place>>) -> impl Iterator<Item = &Place> {
    let of = |(wanted, queue): (&Wanted, &'_ VecDeque<Place>)| {
        if *wanted == Wanted::Entries { queue.len() } else { 1 }
    };
    queues.iter().flat_map(move |entry| entry.1.iter().take(of(entry)))
}

/// Sends a message about a key to the other gateways. Its payload is the number of the database,
/// unless that is 0.
fn tell_others(peers: &Peers, kind: MessageKind, (database, key): &Scoped) {
    let number = itoa::Buffer::new().format(*database).to_owned();
    peers.broadcast(kind, key, if *database == 0 { b"" } else { number.as_bytes() });
}

/// Returns the key that a message is about.
pub(super) fn key_of_message(key: &[u8], payload: &[u8]) -> Option<Scoped> {
    let number = if payload.is_empty() { Some(0) } else { number::integer(payload) };
    Some((u8::try_from(number?).ok()?, key.to_vec()))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Waiting {
    /// Returns whether a client of any gateway may wait.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.count.load(Ordering::SeqCst) + self.others_count.load(Ordering::SeqCst) > 0
    }

    /// Returns whether a new client must wait for another one of this gateway that wants the same of a
    /// key.
    pub(super) fn has(&self, key: &Scoped, wanted: &Wanted) -> bool {
        self.count.load(Ordering::SeqCst) > 0
            && *wanted != Wanted::Entries
            && lock(&self.queues).get(key).is_some_and(|queues| queues.contains_key(wanted))
    }

    /// Wakes the clients of this gateway whose turn it is to try for a key.
    pub(super) fn wake(&self, key: &Scoped) {
        if let Some(queues) = lock(&self.queues).get(key) {
            woken_first(queues).for_each(|place| place.notify_one());
        }
    }

    /// Wakes the first clients that wait for a key, and tells other gateways.
    pub(super) fn added(&self, key: &Scoped, peers: &Peers) {
        self.wake(key);
        if self.others_count.load(Ordering::SeqCst) > 0 {
            let mut others = lock(&self.others);
            if others.remove(key).is_some() {
                self.others_count.store(others.len(), Ordering::SeqCst);
                tell_others(peers, MessageKind::Added, key);
            }
        }
    }

    /// Does the same for all keys.
    pub(super) fn added_to_any(&self, peers: &Peers) {
        lock(&self.queues).values().flat_map(woken_first).for_each(|place| place.notify_one());
        let others = std::mem::take(&mut *lock(&self.others));
        self.others_count.store(0, Ordering::SeqCst);
        for key in others.keys() {
            tell_others(peers, MessageKind::Added, key);
        }
    }

    /// Notes that clients of another gateway wait for a key, and answers if it was not known.
    pub(super) fn others_wait(&self, key: &Scoped, now: Instant, peers: &Peers) {
        let mut others = lock(&self.others);
        if others.len() >= TOLD_MAX {
            others.retain(|_, until| *until > now);
        }
        if others.len() < TOLD_MAX || others.contains_key(key) {
            let before = others.insert(key.clone(), now + TOLD_FOR);
            if before.is_none_or(|until| until <= now) {
                tell_others(peers, MessageKind::Added, key);
            }
        }
        self.others_count.store(others.len(), Ordering::SeqCst);
    }

    /// Forgets the keys for which no other gateway has waited for a while.
    pub(super) fn forget(&self, now: Instant) {
        let mut others = lock(&self.others);
        others.retain(|_, until| *until > now);
        self.others_count.store(others.len(), Ordering::SeqCst);
    }
}

/// A client that waits for elements of keys. It leaves the queues when it is dropped.
#[derive(Debug)]
pub(super) struct Waiter {
    waiting: Arc<Waiting>,
    keys: Vec<Scoped>,
    wanted: Wanted,
    /// The ids after which the client reads streams, in the order of its request.
    pub(super) after: Vec<StreamId>,
    place: Place,
    /// When the wait ends.
    until: Option<Instant>,
    /// When other gateways got the keys, unless they may have forgotten them.
    told: Option<Instant>,
    /// Whether the client was not woken yet.
    is_new: bool,
    /// How another client has ended the wait.
    pub(super) unblocked: Option<Unblock>,
    /// Whether the last attempt has found nothing.
    pub(super) goes_on: bool,
}

impl Waiter {
    /// Lets a client wait after all others.
    pub(super) fn new(
        waiting: &Arc<Waiting>,
        mut keys: Vec<Scoped>,
        wanted: Wanted,
        until: Option<Instant>,
    ) -> Self {
        keys.sort_unstable();
        keys.dedup();
        let place = Place::default();
        let mut queues = lock(&waiting.queues);
        for key in &keys {
            let queues = queues.entry(key.clone()).or_default();
            queues.entry(wanted.clone()).or_default().push_back(Arc::clone(&place));
        }
        drop(queues);
        waiting.count.fetch_add(1, Ordering::SeqCst);
        let waiting = Arc::clone(waiting);
        let (after, told, is_new, unblocked, goes_on) = (Vec::new(), None, true, None, true);
        Self { waiting, keys, wanted, after, place, until, told, is_new, unblocked, goes_on }
    }

    /// Returns whether it is the client's turn to try for a key.
    pub(super) fn may_try(&self, key: &Scoped) -> bool {
        self.wanted == Wanted::Entries || self.is_first(key)
    }

    /// Returns whether the client is the first in its queue of a key.
    fn is_first(&self, key: &Scoped) -> bool {
        let queues = lock(&self.waiting.queues);
        let queue = queues.get(key).and_then(|queues| queues.get(&self.wanted));
        queue.and_then(VecDeque::front).is_some_and(|first| Arc::ptr_eq(first, &self.place))
    }

    /// Returns how the wait has ended, if it has.
    pub(super) fn ended(&self) -> Option<Unblock> {
        let is_over = self.until.is_some_and(|until| Instant::now() >= until);
        self.unblocked.or(is_over.then_some(Unblock::Timeout))
    }

    /// Tells other gateways the keys in whose queues the client is the first, unless they know.
    /// Returns whether there are any such keys.
    fn tell(&mut self, peers: &Peers, now: Instant) -> bool {
        let first: Vec<&Scoped> = self.keys.iter().filter(|key| self.is_first(key)).collect();
        let is_due = self.told.is_none_or(|told| now >= told + PAUSE_MAX);
        if !first.is_empty() && is_due {
            for key in &first {
                tell_others(peers, MessageKind::Wait, key);
            }
        }
        let is_first = !first.is_empty();
        if is_first && is_due {
            self.told = Some(now);
        }
        is_first
    }

    /// Waits until the command must be tried again.
    pub(super) async fn woken(&mut self, peers: &Peers) {
        let (mut until, now) = (self.until, Instant::now());
        let is_first = self.tell(peers, now) || self.wanted == Wanted::Entries;
        if std::mem::take(&mut self.is_new) {
            // An element may have been added before the client was in the queues.
            return;
        }
        if is_first {
            let clients = u32::try_from(self.waiting.count.load(Ordering::SeqCst)).unwrap_or(u32::MAX);
            let pause = PAUSE_FOR_EACH.saturating_mul(clients).clamp(PAUSE, PAUSE_MAX);
            let next = now + if peers.count() > 0 { PAUSE_MAX } else { pause };
            until = Some(until.map_or(next, |until| until.min(next)));
        }
        let woken = self.place.notified();
        let is_woken = match until {
            None => {
                woken.await;
                true
            }
            Some(until) => tokio::time::timeout_at(until.into(), woken).await.is_ok(),
        };
        if is_woken {
            self.told = None;
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut queues = lock(&self.waiting.queues);
        for key in &self.keys {
            let Some(of_key) = queues.get_mut(key) else { continue };
            let Some(queue) = of_key.get_mut(&self.wanted) else { continue };
            let was_first = queue.front().is_some_and(|first| Arc::ptr_eq(first, &self.place));
            queue.retain(|place| !Arc::ptr_eq(place, &self.place));
            match queue.front() {
                None => {
                    of_key.remove(&self.wanted);
                    if of_key.is_empty() {
                        queues.remove(key);
                    }
                }
                // There may be more elements.
                Some(first) if was_first => first.notify_one(),
                Some(_) => {}
            }
        }
        drop(queues);
        self.waiting.count.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::HeldBytes;
    use darter::block_on;
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::task::Poll;

    fn key(name: &str) -> Scoped {
        (0, name.as_bytes().to_vec())
    }

    fn waiter(waiting: &Arc<Waiting>, keys: &[&str]) -> Waiter {
        let keys = keys.iter().map(|name| key(name)).collect();
        Waiter::new(waiting, keys, Wanted::Element, None)
    }

    fn stream_waiter(waiting: &Arc<Waiting>, wanted: Wanted) -> Waiter {
        Waiter::new(waiting, vec![key("a")], wanted, None)
    }

    /// Returns whether a client has been woken since the last call.
    fn is_woken(waiter: &Waiter) -> bool {
        let mut woken = pin!(waiter.place.notified());
        block_on(poll_fn(|context| Poll::Ready(woken.as_mut().poll(context).is_ready())))
    }

    fn peers() -> Peers {
        Peers::new(HeldBytes::new(Arc::default(), usize::MAX), 1 << 20, true)
    }

    #[test]
    fn clients_are_woken_in_the_order_in_which_they_came() {
        let waiting = Arc::<Waiting>::default();
        let [one, two, three] = [&["a"][..], &["b", "a", "b"], &["a"]].map(|keys| waiter(&waiting, keys));
        let has = |name: &str| waiting.has(&key(name), &Wanted::Element);
        assert!(has("a") && has("b") && !has("c") && waiting.is_any());
        assert!(one.is_first(&key("a")) && two.is_first(&key("b")) && !two.is_first(&key("a")));
        waiting.wake(&key("a"));
        assert_eq!([&one, &two, &three].map(is_woken), [true, false, false]);
        waiting.added(&key("b"), &peers());
        assert_eq!([&one, &two, &three].map(is_woken), [false, true, false]);
        drop(one);
        assert_eq!([&two, &three].map(is_woken), [true, false]);
        drop(two);
        assert!(is_woken(&three) && !has("b"));
        waiting.added_to_any(&peers());
        assert!(is_woken(&three));
        drop(three);
        assert!(!waiting.is_any() && lock(&waiting.queues).is_empty());
    }

    #[test]
    fn all_readers_and_the_first_client_of_each_group_are_woken() {
        let waiting = Arc::<Waiting>::default();
        let of_group = |name: &[u8]| Wanted::OfGroup(name.to_vec());
        let wanted = [Wanted::Entries, of_group(b"g"), Wanted::Entries, of_group(b"g"), of_group(b"h")];
        let mut clients: Vec<Waiter> =
            wanted.into_iter().map(|wanted| stream_waiter(&waiting, wanted)).collect();
        let element = waiter(&waiting, &["a"]);
        waiting.wake(&key("a"));
        assert_eq!(clients.iter().map(is_woken).collect::<Vec<_>>(), [true, true, true, false, true]);
        assert!(is_woken(&element) && clients[2].may_try(&key("a")) && !clients[3].may_try(&key("a")));
        assert!(waiting.has(&key("a"), &of_group(b"h")) && !waiting.has(&key("a"), &Wanted::Entries));
        clients.remove(1);
        assert_eq!(clients.iter().map(is_woken).collect::<Vec<_>>(), [false, false, true, false]);
        drop((clients, element));
        assert!(lock(&waiting.queues).is_empty());
    }

    #[test]
    fn a_wait_ends_when_its_time_is_over_or_by_another_client() {
        let waiting = Arc::<Waiting>::default();
        let mut one = waiter(&waiting, &["a"]);
        assert_eq!(one.ended(), None);
        one.unblocked = Some(Unblock::Error);
        assert_eq!(one.ended(), Some(Unblock::Error));
        let late = Waiter::new(&waiting, Vec::new(), Wanted::Element, Some(Instant::now()));
        assert_eq!(late.ended(), Some(Unblock::Timeout));
    }

    #[test]
    fn other_gateways_are_told_for_a_while() {
        let (waiting, now) = (Arc::<Waiting>::default(), Instant::now());
        waiting.others_wait(&key("a"), now, &peers());
        waiting.others_wait(&key("b"), now + TOLD_FOR / 2, &peers());
        assert!(waiting.is_any() && !waiting.has(&key("a"), &Wanted::Element));
        waiting.others_wait(&key("c"), now + TOLD_FOR / 2, &peers());
        waiting.added(&key("c"), &peers());
        waiting.forget(now + TOLD_FOR);
        assert_eq!(lock(&waiting.others).keys().collect::<Vec<_>>(), [&key("b")]);
        waiting.forget(now + TOLD_FOR * 2);
        assert!(!waiting.is_any());
    }

    #[test]
    fn keys_of_other_databases_are_other_keys_and_messages_name_them() {
        let waiting = Arc::<Waiting>::default();
        let [one, other] = [0, 7]
            .map(|database| Waiter::new(&waiting, vec![(database, b"a".to_vec())], Wanted::Element, None));
        waiting.wake(&(7, b"a".to_vec()));
        assert_eq!([&one, &other].map(is_woken), [false, true]);
        for (payload, expected) in
            [(&b""[..], Some(0)), (b"7", Some(7)), (b"x", None), (b"256", None), (b"-1", None)]
        {
            assert_eq!(key_of_message(b"a", payload), expected.map(|database| (database, b"a".to_vec())));
        }
    }
}
