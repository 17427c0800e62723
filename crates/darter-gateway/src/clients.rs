//! Who is connected, for those who ask. A client's task writes its own words; the list is locked when somebody comes, goes or asks.

use super::keyspace::now_ms;
use super::table::Command;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

/// What is known of a client.
#[derive(Debug)]
pub(super) struct ClientInfo {
    /// Its number, never given twice by this gateway.
    pub id: u64,
    /// Where it is.
    pub address: SocketAddr,
    /// Where it was let in.
    pub local: SocketAddr,
    since_ms: u64,
    /// When its last requests came.
    active_ms: AtomicU64,
    /// The last command's number in the table.
    command: AtomicU32,
    is_resp3: AtomicBool,
    /// Requests of it are at work.
    pub is_busy: AtomicBool,
    pub(super) names: Mutex<Names>,
}

/// What it says of itself.
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
    /// What it says of itself.
    pub(super) fn names(&self) -> MutexGuard<'_, Names> {
        lock(&self.names)
    }

    /// Notes what it does.
    pub(super) fn did(&self, command: &Command, now_ms: u64, is_resp3: bool) {
        self.command.store(command.id as u32, Ordering::Relaxed);
        self.active_ms.store(now_ms, Ordering::Relaxed);
        self.is_resp3.store(is_resp3, Ordering::Relaxed);
    }

    /// A line of `CLIENT LIST`.
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

/// All that are connected.
#[derive(Debug, Default)]
pub(super) struct Clients {
    last: AtomicU64,
    all: Mutex<BTreeMap<u64, (Arc<ClientInfo>, AbortHandle)>>,
}

impl Clients {
    /// A new client.
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

    /// Its task runs, and can be ended from here.
    pub(super) fn enter(&self, info: &Arc<ClientInfo>, task: AbortHandle) {
        lock(&self.all).insert(info.id, (Arc::clone(info), task));
    }

    /// It is gone.
    pub(super) fn leave(&self, id: u64) {
        lock(&self.all).remove(&id);
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        lock(&self.all).len()
    }

    /// Those of whom `is_meant` says so.
    pub(super) fn list(&self, is_meant: impl Fn(&ClientInfo) -> bool) -> Vec<Arc<ClientInfo>> {
        lock(&self.all).values().map(|(info, _)| info).filter(|info| is_meant(info)).cloned().collect()
    }

    /// Ends the connections of those of whom `is_meant` says so; answers how many.
    pub(super) fn end(&self, is_meant: impl Fn(&ClientInfo) -> bool) -> usize {
        let all = lock(&self.all);
        let meant = all.values().filter(|(info, _)| is_meant(info));
        meant.map(|(_, task)| task.abort()).count()
    }
}
