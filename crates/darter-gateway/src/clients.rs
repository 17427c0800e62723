//! The list of connected clients, for `CLIENT LIST` and for shutting down. Each client's task
//! updates its own atomics; the list is locked only when a client connects, disconnects or lists
//! the others.

use super::acl::DEFAULT;
use super::mail::Mail;
use super::request::Arguments;
use super::subcommands::{SUBCOMMANDS, Subcommand};
use super::table::Command;
use super::tracking::TrackingInfo;
use darter_fabric::wire::{Inbox, Outbox};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Means that no command has run yet.
const NO_COMMAND: u32 = u32::MAX;

/// The information about a client that other clients can request.
#[derive(Debug)]
pub(super) struct ClientInfo {
    /// The client's id, never reused by this gateway.
    pub id: u64,
    /// The client's address.
    pub address: SocketAddr,
    /// The address at which the gateway accepted it.
    pub local: SocketAddr,
    since: Instant,
    /// When its last request began, in ms after `since`.
    active_ms: AtomicU64,
    /// The socket's file descriptor.
    descriptor: i32,
    /// The last command's position in the table. The upper half holds the subcommand's position in
    /// its list plus one, or 0.
    command: AtomicU32,
    held: HeldBytes,
    is_resp3: AtomicBool,
    /// The number of the selected database.
    database: AtomicU8,
    /// The subscriptions to channels, to patterns and to sharded channels.
    subscribed: [AtomicUsize; 3],
    /// The number of commands since `MULTI` plus one; 0 outside of a transaction.
    queued: AtomicUsize,
    /// Whether requests of the client are in progress.
    pub is_busy: AtomicBool,
    waiting: Waiting,
    is_monitor: AtomicBool,
    /// Whether the client has gone.
    is_gone: AtomicBool,
    /// Its messages.
    pub mail: Mail,
    pub(super) tracking: TrackingInfo,
    pub(super) names: Mutex<Names>,
}

/// Whether a client waits in a command.
#[derive(Debug, Default)]
struct Waiting {
    /// One of the constants below.
    state: AtomicU8,
    changed: Notify,
}

/// The client does not wait.
const RUNNING: u8 = 0;
/// It waits, and other clients cannot end that.
const PAUSED: u8 = 1;
/// It waits in a command that `CLIENT UNBLOCK` can end.
const BLOCKED: u8 = 2;
/// `CLIENT UNBLOCK` ends the command as if its time was over.
const TIMED_OUT: u8 = 3;
/// `CLIENT UNBLOCK` ends the command with an error.
const FAILED: u8 = 4;

/// How `CLIENT UNBLOCK` ends a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unblock {
    /// As if its time was over.
    Timeout,
    /// With an error.
    Error,
}

/// Marks a client as waiting until it is dropped.
#[derive(Debug)]
pub(super) struct WaitingClient<'c> {
    clients: &'c Clients,
    info: &'c ClientInfo,
}

impl WaitingClient<'_> {
    /// Waits until another client ends the command.
    pub(super) async fn unblocked(&self) -> Unblock {
        let Waiting { state, changed } = &self.info.waiting;
        loop {
            let notified = changed.notified();
            match state.load(Ordering::Acquire) {
                TIMED_OUT => return Unblock::Timeout,
                FAILED => return Unblock::Error,
                _ => notified.await,
            }
        }
    }
}

impl Drop for WaitingClient<'_> {
    fn drop(&mut self) {
        self.info.waiting.state.store(RUNNING, Ordering::Release);
        self.clients.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The types of clients that a gateway has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientKind {
    Normal,
    /// It has subscriptions.
    Subscriber,
}

/// The bytes of a client's buffers. A client that waits for its next request holds none.
#[derive(Debug, Default)]
struct HeldBytes {
    /// Requests received.
    arrived: AtomicUsize,
    /// Unused space for requests.
    room: AtomicUsize,
    /// Replies that wait to be sent.
    waiting: AtomicUsize,
    /// The buffer for replies.
    output: AtomicUsize,
    all: AtomicUsize,
}

/// The names of the client's user, and those that the client gave itself.
#[derive(Debug)]
pub(super) struct Names {
    /// The user that it has authenticated as.
    pub(super) user: String,
    pub(super) name: String,
    pub(super) library: String,
    pub(super) version: String,
}

impl Default for Names {
    fn default() -> Self {
        let (name, library, version) = Default::default();
        Self { user: DEFAULT.to_owned(), name, library, version }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClientInfo {
    /// Returns the names that the client gave itself.
    pub(super) fn names(&self) -> MutexGuard<'_, Names> {
        lock(&self.names)
    }

    /// Records that a request of the client begins now.
    #[inline]
    pub(super) fn is_active(&self, now: Instant) {
        let active = now.saturating_duration_since(self.since).as_millis();
        self.active_ms.store(active as u64, Ordering::Relaxed);
    }

    /// Records that the client runs a command.
    pub(super) fn did(&self, command: &Command, args: &Arguments<'_>, is_resp3: bool) {
        let mut number = command.id as u32;
        if Subcommand::has(command)
            && args.len() > 1
            && let Some(position) = Subcommand::position(command, args.get(1))
        {
            number |= (position as u32 + 1) << 16;
        }
        self.command.store(number, Ordering::Relaxed);
        self.is_resp3.store(is_resp3, Ordering::Relaxed);
    }

    /// Records the number of the selected database.
    pub(super) fn is_in(&self, database: u8) {
        self.database.store(database, Ordering::Relaxed);
    }

    /// Returns the number of the selected database.
    pub(super) fn database(&self) -> u8 {
        self.database.load(Ordering::Relaxed)
    }

    /// Records the subscriptions to channels, to patterns and to sharded channels.
    pub(super) fn is_subscribed(&self, counts: [usize; 3]) {
        for (subscribed, count) in self.subscribed.iter().zip(counts) {
            subscribed.store(count, Ordering::Relaxed);
        }
    }

    /// Records the number of commands since `MULTI`, if a transaction has begun.
    #[inline]
    pub(super) fn has_queued(&self, count: Option<usize>) {
        self.queued.store(count.map_or(0, |count| count + 1), Ordering::Relaxed);
    }

    /// Records whether the client sees all commands.
    pub(super) fn is_monitor(&self, yes: bool) {
        self.is_monitor.store(yes, Ordering::Relaxed);
    }

    /// Returns whether the client has gone.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Returns the type of the client.
    pub(super) fn kind(&self) -> ClientKind {
        let is_subscribed = self.subscribed.iter().any(|count| count.load(Ordering::Relaxed) > 0);
        if is_subscribed { ClientKind::Subscriber } else { ClientKind::Normal }
    }

    /// Returns the letters for the state of the client.
    fn flags(&self) -> String {
        let flags = [
            (self.is_monitor.load(Ordering::Relaxed), 'O'),
            (self.kind() == ClientKind::Subscriber, 'P'),
            (self.queued.load(Ordering::Relaxed) > 0, 'x'),
            (self.waiting.state.load(Ordering::Relaxed) != RUNNING, 'b'),
            (self.tracking.redirection() >= 0, 't'),
            (self.tracking.is_broken(), 'R'),
            (self.tracking.is_broadcast(), 'B'),
        ];
        let flags: String =
            flags.into_iter().filter_map(|(is_set, letter)| is_set.then_some(letter)).collect();
        if flags.is_empty() { "N".to_owned() } else { flags }
    }

    /// Records the bytes of the client's buffers.
    pub(super) fn holds(&self, inbox: &Inbox, outbox: &Outbox, all: usize) {
        let arrived = inbox.arrived().len();
        let held = &self.held;
        held.arrived.store(arrived, Ordering::Relaxed);
        held.room.store(inbox.buffer_bytes() - arrived, Ordering::Relaxed);
        held.waiting.store(outbox.waiting(), Ordering::Relaxed);
        held.output.store(outbox.buffer_bytes(), Ordering::Relaxed);
        held.all.store(all, Ordering::Relaxed);
    }

    /// Returns the name of the last command, or of its subcommand.
    fn last_command(&self) -> &'static str {
        let number = self.command.load(Ordering::Relaxed);
        match (number >> 16).checked_sub(1).and_then(|position| SUBCOMMANDS.get(position as usize)) {
            Some(subcommand) if number != NO_COMMAND => subcommand.name,
            _ => Command::numbered(number & 0xffff).map_or("NULL", |command| command.name),
        }
    }

    /// Appends the client's line of `CLIENT LIST`, with the fields of Redis 7.0, and the names of
    /// its library, which Redis 7.2 added.
    pub(super) fn line(&self, line: &mut String) {
        // Not from the wall clock, which can step.
        let age_ms = self.since.elapsed().as_millis() as u64;
        let idle_ms = age_ms.saturating_sub(self.active_ms.load(Ordering::Relaxed));
        let (names, held) = (self.names(), &self.held);
        let load = |bytes: &AtomicUsize| bytes.load(Ordering::Relaxed);
        let _ = writeln!(
            line,
            "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db={} sub={} psub={} ssub={} multi={} qbuf={} \
             qbuf-free={} argv-mem=0 multi-mem=0 rbs={} rbp={} obl={} oll=0 omem=0 tot-mem={} events=r cmd={} user={} redir={} resp={} \
             lib-name={} lib-ver={}",
            self.id,
            self.address,
            self.local,
            self.descriptor,
            names.name,
            age_ms / 1000,
            idle_ms / 1000,
            self.flags(),
            self.database(),
            load(&self.subscribed[0]),
            load(&self.subscribed[1]),
            load(&self.subscribed[2]),
            crate::number::signed(load(&self.queued)) - 1,
            load(&held.arrived),
            load(&held.room),
            load(&held.output),
            load(&held.output),
            load(&held.waiting),
            load(&held.all),
            self.last_command(),
            names.user,
            self.tracking.redirection(),
            if self.is_resp3.load(Ordering::Relaxed) { 3 } else { 2 },
            names.library,
            names.version,
        );
    }
}

/// All connected clients.
#[derive(Debug, Default)]
pub(super) struct Clients {
    last: AtomicU64,
    /// Number of clients that wait in a command.
    waiting: AtomicUsize,
    all: Mutex<Connected>,
}

#[derive(Debug, Default)]
struct Connected {
    /// With the handle that aborts the task, once the task runs.
    clients: BTreeMap<u64, (Arc<ClientInfo>, Option<AbortHandle>)>,
    /// Clients that must authenticate or complete a TLS handshake, and since when, in the order of
    /// their connections.
    strangers: BTreeMap<u64, Instant>,
}

/// Maximum number of clients that have not authenticated.
pub(super) const STRANGERS_MAX: usize = 256;
/// How long a client may take to authenticate.
const STRANGER_PATIENCE: Duration = Duration::from_secs(60);

impl Clients {
    /// Adds an accepted client.
    pub(super) fn admit(
        &self,
        address: SocketAddr,
        local: SocketAddr,
        descriptor: i32,
        is_stranger: bool,
    ) -> Arc<ClientInfo> {
        let info = Arc::new(ClientInfo {
            id: self.last.fetch_add(1, Ordering::Relaxed) + 1,
            address,
            local,
            since: Instant::now(),
            active_ms: AtomicU64::new(0),
            descriptor,
            command: AtomicU32::new(NO_COMMAND),
            held: HeldBytes::default(),
            is_resp3: AtomicBool::new(false),
            database: AtomicU8::new(0),
            subscribed: Default::default(),
            queued: AtomicUsize::new(0),
            is_busy: AtomicBool::new(false),
            waiting: Waiting::default(),
            is_monitor: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            mail: Mail::default(),
            tracking: TrackingInfo::default(),
            names: Mutex::default(),
        });
        let mut all = lock(&self.all);
        all.clients.insert(info.id, (Arc::clone(&info), None));
        if is_stranger {
            all.strangers.insert(info.id, info.since);
        }
        info
    }

    /// Stores the handle that aborts a client's task, and uses it if the client has been ended
    /// already.
    pub(super) fn enter(&self, id: u64, task: AbortHandle) {
        match lock(&self.all).clients.get_mut(&id) {
            Some((_, entered)) => *entered = Some(task),
            None => task.abort(),
        }
    }

    /// Records whether a client must authenticate.
    pub(super) fn is_stranger(&self, id: u64, is_stranger: bool) {
        let mut all = lock(&self.all);
        if !is_stranger {
            all.strangers.remove(&id);
        } else if all.clients.contains_key(&id) {
            all.strangers.insert(id, Instant::now());
        }
    }

    /// Ends the connection of the oldest stranger if the limit of clients or strangers is reached.
    /// Returns whether there is then room for one more client.
    pub(super) fn make_room(&self, clients_max: usize) -> bool {
        let mut all = lock(&self.all);
        let is_full = |all: &Connected| all.clients.len() >= clients_max;
        if is_full(&all) || all.strangers.len() >= STRANGERS_MAX {
            let first = all.strangers.first_key_value().map(|(id, _)| *id);
            if let Some(id) = first {
                all.end_stranger(id);
            }
        }
        !is_full(&all)
    }

    /// Ends the connections of strangers that have not authenticated for a long time.
    pub(super) fn end_strangers(&self, now: Instant) {
        let mut all = lock(&self.all);
        let is_late = |since: Instant| now.saturating_duration_since(since) > STRANGER_PATIENCE;
        let late: Vec<u64> =
            all.strangers.iter().filter(|(_, since)| is_late(**since)).map(|(id, _)| *id).collect();
        for id in late {
            all.end_stranger(id);
        }
    }

    /// Removes a client.
    pub(super) fn leave(&self, id: u64) {
        let mut all = lock(&self.all);
        if let Some((info, _)) = all.clients.remove(&id) {
            info.is_gone.store(true, Ordering::Release);
        }
        all.strangers.remove(&id);
    }

    /// Returns the client with an id.
    pub(super) fn find(&self, id: u64) -> Option<Arc<ClientInfo>> {
        lock(&self.all).clients.get(&id).map(|(info, _)| Arc::clone(info))
    }

    /// Marks a client as waiting in a command, until the returned value is dropped.
    pub(super) fn wait<'c>(&'c self, info: &'c ClientInfo, can_be_unblocked: bool) -> WaitingClient<'c> {
        let state = if can_be_unblocked { BLOCKED } else { PAUSED };
        info.waiting.state.store(state, Ordering::Release);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        WaitingClient { clients: self, info }
    }

    /// Returns the number of clients that wait in a command.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Ends the command in which a client waits. Returns false if it cannot be ended.
    pub(super) fn unblock(&self, id: u64, how: Unblock) -> bool {
        let all = lock(&self.all);
        let Some((info, _)) = all.clients.get(&id) else { return false };
        let new = if how == Unblock::Timeout { TIMED_OUT } else { FAILED };
        let state = &info.waiting.state;
        let is_done = state.compare_exchange(BLOCKED, new, Ordering::AcqRel, Ordering::Acquire).is_ok();
        info.waiting.changed.notify_waiters();
        is_done
    }

    /// Returns the number of clients.
    pub(super) fn count(&self) -> usize {
        lock(&self.all).clients.len()
    }

    /// Returns the clients that a predicate selects.
    pub(super) fn list(&self, is_meant: impl Fn(&ClientInfo) -> bool) -> Vec<Arc<ClientInfo>> {
        lock(&self.all)
            .clients
            .values()
            .map(|(info, _)| info)
            .filter(|info| is_meant(info))
            .cloned()
            .collect()
    }

    /// Ends the connections of the clients that a predicate selects. Returns their number.
    pub(super) fn end(&self, is_meant: impl Fn(&ClientInfo) -> bool) -> usize {
        let all = lock(&self.all);
        let meant = all.clients.values().filter(|(info, _)| is_meant(info));
        meant.filter_map(|(_, task)| task.as_ref()).map(AbortHandle::abort).count()
    }
}

impl Connected {
    fn end_stranger(&mut self, id: u64) {
        self.strangers.remove(&id);
        // If it has no task yet, the task is aborted when it gets one.
        if let Some((info, task)) = self.clients.remove(&id) {
            info.is_gone.store(true, Ordering::Release);
            if let Some(task) = task {
                task.abort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_have_to_authenticate_within_a_minute() {
        let (clients, address) = (Clients::default(), "127.0.0.1:1".parse().unwrap());
        let ids: Vec<u64> = (0..3).map(|_| clients.admit(address, address, 0, true).id).collect();
        clients.admit(address, address, 0, false);
        clients.is_stranger(ids[1], false);
        let now = Instant::now();
        clients.end_strangers(now);
        assert_eq!(clients.count(), 4);
        clients.end_strangers(now + STRANGER_PATIENCE + Duration::from_secs(1));
        assert_eq!(clients.list(|info| ids.contains(&info.id)).len(), 1);
        assert_eq!(clients.count(), 2);
        // A client that was authenticated for a long time, and has reset its connection, also gets
        // a minute.
        clients.is_stranger(ids[1], true);
        clients.end_strangers(Instant::now());
        assert_eq!(clients.count(), 2);
        clients.end_strangers(Instant::now() + STRANGER_PATIENCE + Duration::from_secs(1));
        assert_eq!(clients.count(), 1);
    }

    #[test]
    fn there_are_so_many_strangers_at_most() {
        let (clients, address) = (Clients::default(), "127.0.0.1:1".parse().unwrap());
        for _ in 0..STRANGERS_MAX * 2 {
            assert!(clients.make_room(10_000));
            clients.admit(address, address, 0, true);
        }
        assert_eq!(clients.count(), STRANGERS_MAX);
    }
}
