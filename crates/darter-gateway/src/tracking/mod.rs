//! The keys that clients track, as `CLIENT TRACKING` requests it: a client caches the values that it
//! has read, and receives an invalidation when they may have changed.
//!
//! The table of tracked keys belongs to the gateway of the client. A command enters the keys that it
//! reads before it reads them; a command that has changed keys takes them out, and puts an invalidation
//! into the mailbox of each client (`../mailbox.rs`), which the client gets after the replies in
//! progress. So a value that was read before the change is followed by its invalidation.
//!
//! Other gateways report the keys that they change (`reports.rs`) as long as this one requests it, each
//! second, and confirm that (`coverage.rs`). Their reports may be lost, and a gateway that has just begun
//! reports nothing yet. Therefore clients receive an invalidation of everything when the connection of a
//! gateway begins or ends, when a gateway confirms that did not report before, and each second as long
//! as a gateway does not confirm.

mod coverage;
mod info;
mod meeting;
mod reports;
mod table;

use crate::clients::ClientInfo;
use crate::mailbox::{Form, HeldBytes, Message};
use crate::options::GatewayOptions;
use crate::peers::Peers;
use coverage::Coverage;
pub(super) use info::TrackingInfo;
pub(super) use meeting::Meeting;
pub(super) use reports::{follow, report};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use table::{Prefixes, Table, Token};
use tokio::sync::Notify;

/// Keys of the table that are examined each second for clients that have ended.
const PURGED: usize = 10_000;
/// Keys of a table that is freed at once.
const FREED_AT_ONCE: usize = 10_000;
/// Most keys beyond the limit of the table that are invalidated one by one.
const EVICTED_MAX: usize = 10_000;
/// How long clients that begin to track keys wait for a gateway that is silent.
const PATIENCE: Duration = Duration::from_secs(1);
/// Most tracked keys, unless `CONFIG SET tracking-table-max-keys` sets another number.
const KEYS_MAX: usize = 1_000_000;
/// The table holds this part of the bytes of all buffers at most.
const TABLE_PART: usize = 4;

/// Which keys a client tracks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Those that it reads.
    Read,
    /// Those that it reads after `CLIENT CACHING YES`.
    OptIn,
    /// Those that it reads, except after `CLIENT CACHING NO`.
    OptOut,
    /// All with these prefixes.
    Broadcast(BTreeSet<Vec<u8>>),
}

/// How a client tracks keys.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) mode: Mode,
    /// The client to which the invalidations go, if it is another one.
    pub(super) redirection: Option<Arc<ClientInfo>>,
    /// Whether a change by the client itself causes no invalidation for it.
    pub(super) is_without_own: bool,
}

/// The right of a client to invalidations.
#[derive(Clone, Debug)]
pub(super) struct TrackingClient {
    place: Arc<Place>,
    pub(super) settings: Arc<Settings>,
}

/// A client's place among those that track keys, until it is dropped.
#[derive(Debug)]
struct Place {
    tracking: Arc<Tracking>,
    token: Token,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.tracking.end(self.token);
    }
}

/// A client that tracks keys.
#[derive(Debug)]
struct Tracker {
    info: Arc<ClientInfo>,
    settings: Arc<Settings>,
    /// The number of keys that it tracks in the table.
    keys: usize,
    /// Whether it has read keys of the table since it received an invalidation of everything.
    has_read: bool,
}

impl Tracker {
    fn may_have_cached(&self) -> bool {
        self.has_read || matches!(self.settings.mode, Mode::Broadcast(_))
    }
}

/// The keys that the clients of a gateway track.
#[derive(Debug)]
pub(super) struct Tracking {
    /// The number of clients that track keys, or are about to.
    count: AtomicUsize,
    state: Mutex<State>,
    coverage: Mutex<Coverage>,
    /// A gateway has confirmed that it reports changed keys.
    confirmed: Notify,
    held: HeldBytes,
    message_bytes_max: usize,
}

#[derive(Debug)]
struct State {
    clients: BTreeMap<Token, Tracker>,
    last: Token,
    table: Table,
    /// The items of the table that belong to clients which have ended.
    ended_items: usize,
    prefixes: Prefixes,
    /// The most keys of the table; 0 if only its bytes are limited.
    keys_max: usize,
    bytes_max: usize,
}

/// The counts that `INFO` reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrackingCounts {
    pub(super) clients: usize,
    pub(super) keys: usize,
    pub(super) items: usize,
    pub(super) prefixes: usize,
}

/// An invalidation on its way to several clients: the bytes of an array of keys, or none, and the
/// messages made of them.
struct Invalidation {
    bytes: Vec<u8>,
    messages: [Option<Arc<Message>>; 2],
}

impl Invalidation {
    fn of(keys: &[&[u8]]) -> Self {
        let (mut bytes, mut digits) = (Vec::new(), itoa::Buffer::new());
        let mut line = |bytes: &mut Vec<u8>, kind: u8, count: usize| {
            bytes.push(kind);
            bytes.extend_from_slice(digits.format(count).as_bytes());
            bytes.extend_from_slice(b"\r\n");
        };
        line(&mut bytes, b'*', keys.len());
        for key in keys {
            line(&mut bytes, b'$', key.len());
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(b"\r\n");
        }
        Self { bytes, messages: [None, None] }
    }

    fn of_everything() -> Self {
        Self { bytes: Vec::new(), messages: [None, None] }
    }

    /// Puts the invalidation into the mailbox of a client, or of the one to which it has redirected
    /// its invalidations.
    fn send(&mut self, tracker: &Tracker, tracking: &Tracking) {
        let (redirection, bytes_max) = (&tracker.settings.redirection, tracking.message_bytes_max);
        if let Some(target) = redirection.as_ref().filter(|target| target.is_gone()) {
            tracker.info.tracking.redirection_broke();
            let id = format!("{}\r\n", target.id).into_bytes();
            let broken = Message::of(id, Form::BrokenRedirection, &tracking.held);
            tracker.info.mail.mailbox(bytes_max).put(&broken);
            return;
        }
        let is_redirected = redirection.is_some();
        let form = Form::Invalidation { is_redirected };
        let new = || Message::of(self.bytes.clone(), form, &tracking.held);
        let message = self.messages[usize::from(is_redirected)].get_or_insert_with(new);
        redirection.as_ref().unwrap_or(&tracker.info).mail.mailbox(bytes_max).put(message);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Takes a key out of the table, and tells the clients that have tracked it, except the one that
    /// has changed it and wants no invalidations then: what it has may be out of date after a change by
    /// another client.
    fn invalidate(&mut self, key: &[u8], by: Option<u64>, tracking: &Tracking) {
        let mut invalidation = None;
        for token in self.table.take(key) {
            let Some(tracker) = self.clients.get_mut(&token) else {
                self.ended_items = self.ended_items.saturating_sub(1);
                continue;
            };
            if tracker.settings.is_without_own && by == Some(tracker.info.id) {
                self.table.insert(key, token);
                continue;
            }
            tracker.keys -= 1;
            let invalidation = invalidation.get_or_insert_with(|| Invalidation::of(&[key]));
            invalidation.send(tracker, tracking);
        }
    }

    /// Tells the clients that track all keys with a prefix.
    fn broadcast(&self, keys: &[&[u8]], by: Option<u64>, tracking: &Tracking) {
        let mut changed = BTreeMap::<&[u8], (Vec<&[u8]>, &BTreeSet<Token>)>::new();
        for key in keys {
            for (prefix, clients) in self.prefixes.of(key) {
                changed.entry(prefix).or_insert_with(|| (Vec::new(), clients)).0.push(key);
            }
        }
        for (keys, clients) in changed.into_values() {
            let mut invalidation = Invalidation::of(&keys);
            for tracker in clients.iter().filter_map(|token| self.clients.get(token)) {
                if !tracker.settings.is_without_own || by != Some(tracker.info.id) {
                    invalidation.send(tracker, tracking);
                }
            }
        }
    }

    /// Tells the clients that a predicate selects to forget everything that they have cached.
    fn forget(&mut self, tracking: &Tracking, is_meant: impl Fn(&Tracker) -> bool) {
        self.clear();
        let mut invalidation = Invalidation::of_everything();
        for tracker in self.clients.values_mut() {
            tracker.keys = 0;
            if is_meant(tracker) {
                tracker.has_read = false;
                invalidation.send(tracker, tracking);
            }
        }
    }

    /// Removes all keys from the table. To free a large one takes long.
    fn clear(&mut self) {
        self.ended_items = 0;
        let table = std::mem::take(&mut self.table);
        if table.len() > FREED_AT_ONCE {
            let thread = std::thread::Builder::new().name("darter-gateway-free".to_owned());
            // Without a thread the table is freed here.
            let _ = thread.spawn(move || drop(table));
        }
    }

    /// Removes clients that have ended from some keys of the table.
    fn purge(&mut self) {
        if self.ended_items > 0 {
            let Self { clients, table, ended_items, .. } = self;
            let gone = table.purge(PURGED, |token| clients.contains_key(&token));
            *ended_items = ended_items.saturating_sub(gone);
        }
    }

    /// Invalidates keys until the table is as small as it must be. If that are many, it invalidates all.
    fn shrink(&mut self, tracking: &Tracking) {
        if self.keys_max > 0 && self.table.len() > self.keys_max.saturating_add(EVICTED_MAX) {
            self.forget(tracking, Tracker::may_have_cached);
        }
        while self.table.bytes() > self.bytes_max || self.keys_max > 0 && self.table.len() > self.keys_max {
            let Some(key) = self.table.draw(darter_fabric::random_word()) else { break };
            self.invalidate(&key, None, tracking);
        }
    }

    fn end(&mut self, token: Token) {
        let Some(tracker) = self.clients.remove(&token) else { return };
        tracker.info.tracking.end();
        if let Mode::Broadcast(prefixes) = &tracker.settings.mode {
            for prefix in prefixes {
                self.prefixes.remove(prefix, token);
            }
        }
        self.ended_items += tracker.keys;
        if self.clients.is_empty() {
            self.clear();
        }
    }
}

impl Tracking {
    /// Creates a table without keys.
    pub(super) fn new(held: HeldBytes, options: &GatewayOptions) -> Self {
        let state = State {
            clients: BTreeMap::new(),
            last: 0,
            table: Table::default(),
            ended_items: 0,
            prefixes: Prefixes::default(),
            keys_max: KEYS_MAX,
            bytes_max: options.buffer_bytes_max / TABLE_PART,
        };
        Self {
            count: AtomicUsize::new(0),
            state: Mutex::new(state),
            coverage: Mutex::new(Coverage::new(options.announce.is_some(), Instant::now())),
            confirmed: Notify::new(),
            held,
            message_bytes_max: options.message_bytes_max,
        }
    }

    /// Returns whether a client tracks keys, or is about to.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// Lets a client track keys, as soon as the other gateways report those that they change, or after
    /// a while. Until they do, the client receives an invalidation of everything again and again.
    pub(super) async fn begin(
        self: &Arc<Self>,
        info: &Arc<ClientInfo>,
        settings: Settings,
        peers: &Peers,
    ) -> TrackingClient {
        self.count.fetch_add(1, Ordering::SeqCst);
        let token = {
            let mut state = lock(&self.state);
            state.last += 1;
            state.last
        };
        let place = Arc::new(Place { tracking: Arc::clone(self), token });
        self.wait_for_others(peers).await;
        let settings = Arc::new(settings);
        let tracker =
            Tracker { info: Arc::clone(info), settings: Arc::clone(&settings), keys: 0, has_read: false };
        lock(&self.state).clients.insert(token, tracker);
        let client = TrackingClient { place, settings };
        client.take_effect();
        client
    }

    /// Waits until all other gateways report the keys that they change, unless one is silent for long.
    async fn wait_for_others(&self, peers: &Peers) {
        self.request(peers);
        loop {
            let confirmed = self.confirmed.notified();
            let Some(since) = lock(&self.coverage).silent_since(Instant::now()) else { return };
            if tokio::time::timeout_at((since + PATIENCE).into(), confirmed).await.is_err() {
                return;
            }
        }
    }

    fn end(&self, token: Token) {
        lock(&self.state).end(token);
        if self.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            lock(&self.coverage).rest();
        }
    }

    /// Sets the most keys of the table, 0 for no limit.
    pub(super) fn set_keys_max(&self, keys_max: usize) {
        let mut state = lock(&self.state);
        state.keys_max = keys_max;
        state.shrink(self);
    }

    /// Returns the most keys of the table, 0 if there is no limit.
    pub(super) fn keys_max(&self) -> usize {
        lock(&self.state).keys_max
    }

    /// Returns the counts that `INFO` reports.
    pub(super) fn counts(&self) -> TrackingCounts {
        let state = lock(&self.state);
        TrackingCounts {
            clients: state.clients.len(),
            keys: state.table.len(),
            items: state.table.items(),
            prefixes: state.prefixes.len(),
        }
    }
}

impl TrackingClient {
    /// Returns the same client with other settings, which take effect.
    pub(super) fn with(&self, settings: Settings) -> Self {
        let client = Self { place: Arc::clone(&self.place), settings: Arc::new(settings) };
        client.take_effect();
        client
    }

    fn take_effect(&self) {
        let (Place { tracking, token }, settings) = (&*self.place, &self.settings);
        let mut state = lock(&tracking.state);
        let State { clients, prefixes, .. } = &mut *state;
        let Some(tracker) = clients.get_mut(token) else { return };
        tracker.settings = Arc::clone(settings);
        let target = settings.redirection.as_ref().map(|target| target.id);
        tracker.info.tracking.begin(target, matches!(settings.mode, Mode::Broadcast(_)));
        if let Mode::Broadcast(added) = &settings.mode {
            for prefix in added {
                prefixes.insert(prefix, *token);
            }
        }
    }

    /// Lets the client track keys. Must be called before they are read.
    pub(super) fn will_read<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        let Place { tracking, token } = &*self.place;
        let mut state = lock(&tracking.state);
        let State { clients, table, .. } = &mut *state;
        let Some(tracker) = clients.get_mut(token) else { return };
        tracker.has_read = true;
        for key in keys {
            tracker.keys += usize::from(table.insert(key, *token));
        }
        state.shrink(tracking);
    }
}
