//! The list of connected clients, for `CLIENT LIST` and for shutting down. Each client's task
//! updates its own atomics; the list is locked only when a client connects, disconnects or lists
//! the others.

use super::keyspace::now_ms;
use super::table::Command;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

/// What other clients can learn about a client.
#[derive(Debug)]
pub(super) struct ClientInfo {
    /// The client's id, never reused by this gateway.
    pub id: u64,
    /// The client's address.
    pub address: SocketAddr,
    /// The address at which the gateway accepted it.
    pub local: SocketAddr,
    since_ms: u64,
    /// When its last requests arrived.
    active_ms: AtomicU64,
    /// The last command's position in the table.
    command: AtomicU32,
    is_resp3: AtomicBool,
    /// Requests of the client are in progress.
    pub is_busy: AtomicBool,
    pub(super) names: Mutex<Names>,
}

/// The names that the client gave itself.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) name: String,
    pub(super) library: String,
    pub(super) version: String,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClientInfo {
    /// Returns the names that the client gave itself.
    pub(super) fn names(&self) -> MutexGuard<'_, Names> {
        lock(&self.names)
    }

    /// Records that the client runs a command.
    pub(super) fn did(&self, command: &Command, now_ms: u64, is_resp3: bool) {
        self.command.store(command.id as u32, Ordering::Relaxed);
        self.active_ms.store(now_ms, Ordering::Relaxed);
        self.is_resp3.store(is_resp3, Ordering::Relaxed);
    }

    /// Appends the client's line of `CLIENT LIST`.
    pub(super) fn line(&self, line: &mut String) {
        let now = now_ms();
        let age = |since: u64| now.saturating_sub(since) / 1000;
        let command =
            Command::numbered(self.command.load(Ordering::Relaxed)).map_or("NULL", |command| command.name);
        let names = self.names();
        let _ = writeln!(
            line,
            "id={} addr={} laddr={} fd=-1 name={} age={} idle={} flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 cmd={} user=default \
             lib-name={} lib-ver={} resp={}",
            self.id,
            self.address,
            self.local,
            names.name,
            age(self.since_ms),
            age(self.active_ms.load(Ordering::Relaxed)),
            command,
            names.library,
            names.version,
            if self.is_resp3.load(Ordering::Relaxed) { 3 } else { 2 },
        );
    }
}

/// All connected clients.
#[derive(Debug, Default)]
pub(super) struct Clients {
    last: AtomicU64,
    all: Mutex<BTreeMap<u64, (Arc<ClientInfo>, AbortHandle)>>,
}

impl Clients {
    /// Creates the entry of a new client.
    pub(super) fn admit(&self, address: SocketAddr, local: SocketAddr) -> Arc<ClientInfo> {
        let now = now_ms();
        Arc::new(ClientInfo {
            id: self.last.fetch_add(1, Ordering::Relaxed) + 1,
            address,
            local,
            since_ms: now,
            active_ms: AtomicU64::new(now),
            command: AtomicU32::new(u32::MAX),
            is_resp3: AtomicBool::new(false),
            is_busy: AtomicBool::new(false),
            names: Mutex::default(),
        })
    }

    /// Adds a client whose task is running, and the handle that aborts the task.
    pub(super) fn enter(&self, info: &Arc<ClientInfo>, task: AbortHandle) {
        lock(&self.all).insert(info.id, (Arc::clone(info), task));
    }

    /// Removes a client.
    pub(super) fn leave(&self, id: u64) {
        lock(&self.all).remove(&id);
    }

    /// Returns the number of clients.
    pub(super) fn count(&self) -> usize {
        lock(&self.all).len()
    }

    /// Returns the clients that a predicate selects.
    pub(super) fn list(&self, is_meant: impl Fn(&ClientInfo) -> bool) -> Vec<Arc<ClientInfo>> {
        lock(&self.all).values().map(|(info, _)| info).filter(|info| is_meant(info)).cloned().collect()
    }

    /// Ends the connections of the clients that a predicate selects. Returns their number.
    pub(super) fn end(&self, is_meant: impl Fn(&ClientInfo) -> bool) -> usize {
        let all = lock(&self.all);
        let meant = all.values().filter(|(info, _)| is_meant(info));
        meant.map(|(_, task)| task.abort()).count()
    }
}
