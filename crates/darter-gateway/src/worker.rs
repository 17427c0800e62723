//! The resources that the clients of one thread share and borrow: sessions of the pool, of which a
//! limited number is in use at a time, and spare buffers.

use super::clients::ClientInfo;
use super::keyspace::{KeyLocks, Keyspace};
use super::pipeline::Pipeline;
use super::request::Arguments;
use super::state::{GatewayState, LogLine};
use super::statistics::{Ending, ThreadCounts};
use super::table::Command;
use darter::Counters;
use darter_fabric::wire::Inbox;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};
use tracing::warn;

/// Spare buffers of each kind that a thread keeps.
const SPARES: usize = 8;
/// Spare buffers for replies that a thread keeps: all clients with requests in progress have one at
/// once.
const OUTPUTS_SPARE: usize = 256;
/// Largest capacity of a reply buffer that is kept, in bytes.
const OUTPUT_KEPT_BYTES: usize = 16 << 10;
/// Largest capacity of a request buffer that is kept, in bytes: four reads.
const INPUT_KEPT_BYTES: usize = 256 << 10;

/// The resources shared by the clients of one thread.
pub(super) struct Worker {
    counts: Arc<ThreadCounts>,
    /// The current round of accounting; each session is accounted for once in a round.
    round: Cell<u64>,
    pub(super) shared: Arc<GatewayState>,
    /// Keyspaces that are not in use. In boxes, since lending would copy them.
    keyspaces: RefCell<Vec<(Box<Keyspace>, Box<Account>)>>,
    /// Limits the sessions in use.
    permits: Semaphore,
    /// Limits the further sessions of requests that overlap others of their client.
    overlapping: Semaphore,
    locks: Arc<KeyLocks>,
    inboxes: RefCell<Vec<Inbox>>,
    outputs: RefCell<Vec<Vec<u8>>>,
    pipelines: RefCell<Vec<Pipeline>>,
}

/// The counted costs of a session, and the round in which they were counted.
#[derive(Debug)]
struct Account {
    round: u64,
    counted: Counters,
}

/// A keyspace with its own session, borrowed from its thread.
pub(super) struct KeyspaceLease<'w> {
    pub(super) keys: Box<Keyspace>,
    account: Box<Account>,
    /// Whether it is one of the further sessions of a client.
    pub(super) is_overlapping: bool,
    _permit: Option<SemaphorePermit<'w>>,
}

impl Worker {
    pub(super) fn new(shared: Arc<GatewayState>, number: usize) -> Self {
        let sessions_max = shared.options.sessions_max;
        Self {
            counts: Arc::clone(&shared.threads[number]),
            round: Cell::new(0),
            shared,
            keyspaces: RefCell::default(),
            permits: Semaphore::new(sessions_max),
            overlapping: Semaphore::new(sessions_max.saturating_sub(1)),
            locks: Arc::default(),
            inboxes: RefCell::default(),
            outputs: RefCell::default(),
            pipelines: RefCell::default(),
        }
    }

    /// Borrows a keyspace. Waits while the limit is in use.
    pub(super) async fn keyspace(&self) -> KeyspaceLease<'_> {
        // The semaphore is never closed.
        let permit = self.permits.acquire().await.ok();
        self.lease(permit, false)
    }

    /// Borrows another keyspace for a client that has one, unless the limit for these is in use.
    pub(super) fn overlapping_keyspace(&self) -> Option<KeyspaceLease<'_>> {
        let permit = self.overlapping.try_acquire().ok()?;
        Some(self.lease(Some(permit), true))
    }

    fn lease<'w>(&'w self, permit: Option<SemaphorePermit<'w>>, is_overlapping: bool) -> KeyspaceLease<'w> {
        let spare = self.current_keyspace();
        let (keys, account) = spare.unwrap_or_else(|| {
            self.counts.sessions.add(1);
            let mut keys = Keyspace::new(self.shared.store.clone(), Arc::clone(&self.locks));
            keys.may_sleep = true;
            (Box::new(keys), Box::new(Account { round: 0, counted: Counters::default() }))
        });
        KeyspaceLease { keys, account, is_overlapping, _permit: permit }
    }

    /// Returns how many sessions of each kind may still be used.
    #[cfg(test)]
    pub(super) fn free_sessions(&self) -> (usize, usize) {
        (self.permits.available_permits(), self.overlapping.available_permits())
    }

    /// Takes a keyspace back.
    pub(super) fn give_keyspace(&self, mut held: KeyspaceLease<'_>) {
        held.keys.rest();
        self.count(&held.keys, &mut held.account);
        self.keyspaces.borrow_mut().push((held.keys, held.account));
    }

    /// Takes an unused keyspace, and drops those of former memberships that it finds.
    fn current_keyspace(&self) -> Option<(Box<Keyspace>, Box<Account>)> {
        loop {
            let (keys, mut account) = self.keyspaces.borrow_mut().pop()?;
            if keys.is_current() {
                return Some((keys, account));
            }
            self.count(&keys, &mut account);
        }
    }

    /// Counts the costs of a session, unless that was done in this round.
    fn count(&self, keys: &Keyspace, account: &mut Account) {
        if account.round != self.round.get() {
            let now = keys.counters();
            self.counts.spent(&(now - account.counted));
            (account.round, account.counted) = (self.round.get(), now);
        }
    }

    /// Begins a round, counts the costs of the sessions that are not in use, and drops the sessions
    /// of former memberships.
    pub(super) fn account(&self) {
        self.round.set(self.round.get() + 1);
        self.keyspaces.borrow_mut().retain_mut(|(keys, account)| {
            self.count(keys, account);
            keys.is_current()
        });
        self.counts.looked_ms.set(self.shared.uptime_ms());
    }

    /// Records the work of a task's turn, in bytes.
    pub(super) fn has_worked(&self, bytes: usize) {
        let longest = &self.counts.longest_turn_bytes;
        if bytes as u64 > longest.get() {
            longest.set(bytes as u64);
        }
    }

    /// Counts a command, if the request named one. Returns when it ended.
    #[inline]
    pub(super) fn did(
        &self,
        command: Option<(&'static Command, Ending)>,
        args: &Arguments<'_>,
        began: Instant,
        client: &Arc<ClientInfo>,
    ) -> Instant {
        let now = Instant::now();
        if let Some((command, ending)) = command {
            let took = now.saturating_duration_since(began);
            self.counts.did(command, ending, took);
            if ending == Ending::Rejected {
                return now;
            }
            if self.shared.slow.is_slow(took) {
                self.was_slow(command, args, took, client);
            }
        }
        now
    }

    #[cold]
    fn was_slow(
        &self,
        command: &'static Command,
        args: &Arguments<'_>,
        took: Duration,
        client: &Arc<ClientInfo>,
    ) {
        self.shared.counts.slow.fetch_add(1, Ordering::Relaxed);
        self.shared.slow.note(command, args, took, client);
        if self.shared.may_log(LogLine::Slow) {
            let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            warn!(
                command = command.name,
                micros,
                client = client.id,
                address = %client.address,
                arguments = args.len(),
                "a command was slow"
            );
        }
    }

    /// Lends an empty buffer for requests.
    pub(super) fn inbox(&self) -> Inbox {
        let inbox = self.inboxes.borrow_mut().pop().unwrap_or_default();
        self.counts.spare_bytes.change(inbox.buffer_bytes(), 0);
        inbox
    }

    /// Takes an empty buffer back; frees it if a long request has enlarged it.
    pub(super) fn give_inbox(&self, inbox: Inbox) {
        let bytes = inbox.buffer_bytes();
        if (1..=INPUT_KEPT_BYTES).contains(&bytes) && give(&self.inboxes, inbox, SPARES) {
            self.counts.spare_bytes.change(0, bytes);
        }
    }

    /// Lends an empty pipeline.
    pub(super) fn pipeline(&self) -> Pipeline {
        self.pipelines.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes a pipeline back.
    pub(super) fn give_pipeline(&self, mut pipeline: Pipeline) {
        pipeline.rest();
        give(&self.pipelines, pipeline, SPARES);
    }

    /// Lends an empty buffer for replies.
    pub(super) fn output(&self) -> Vec<u8> {
        let output = self.outputs.borrow_mut().pop().unwrap_or_default();
        self.counts.spare_bytes.change(output.capacity(), 0);
        output
    }

    /// Takes an empty buffer back.
    pub(super) fn give_output(&self, output: Vec<u8>) {
        let bytes = output.capacity();
        if (1..=OUTPUT_KEPT_BYTES).contains(&bytes) && give(&self.outputs, output, OUTPUTS_SPARE) {
            self.counts.spare_bytes.change(0, bytes);
        }
    }
}

/// Keeps a spare buffer, unless `most` are kept. Returns whether it was kept.
fn give<T>(spares: &RefCell<Vec<T>>, spare: T, most: usize) -> bool {
    let mut spares = spares.borrow_mut();
    let has_room = spares.len() < most;
    if has_room {
        spares.push(spare);
    }
    has_room
}
