//! The threads that serve clients: whom they take in, what a thread's clients share, how they end.

use super::clients::{ClientInfo, Clients};
use super::connection::Connection;
use super::fault::Fault;
use super::keyspace::{Expiry, Keyspace, Turns, now_ms};
use super::pipeline::Pipeline;
use super::request::Arguments;
use super::slow::SlowLog;
use super::statistics::{Counts, Sums, ThreadCounts};
use super::table::Command;
use super::{GatewayError, GatewayOptions, drive, system};
use crate::Stop;
use darter::{Counters, Store};
use darter_fabric::tcp::buffer::Inbox;
use darter_telemetry::log_limit::{LogKind, LogLimiter};
use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::task::LocalSet;
use tracing::{debug, info, warn};

/// Between two looks at whether to stop.
const LOOK: Duration = Duration::from_millis(50);
/// Between two rounds of accounting for what the pool was asked.
const ROUND: Duration = Duration::from_millis(500);
/// Between two steps of the walk that removes what is over.
const STEP: Duration = Duration::from_millis(100);
/// The same, when its last round met nothing whose time is limited.
const STEP_AT_LEISURE: Duration = Duration::from_secs(1);
/// After the system would not accept a connection.
const RESPITE: Duration = Duration::from_millis(500);
/// Buffers of each sort that a thread keeps for whoever is next.
const SPARES: usize = 8;
/// Buffers of replies that it keeps: all who are ready have one at once.
const OUTPUTS_SPARE: usize = 256;
/// Bytes of such a buffer at most.
const OUTPUT_KEPT_BYTES: usize = 16 << 10;

/// What all threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: GatewayOptions,
    pub(super) store: Store,
    pub(super) clients: Clients,
    pub(super) counts: Counts,
    /// By thread.
    pub(super) threads: Vec<Arc<ThreadCounts>>,
    pub(super) slow: SlowLog,
    log: Mutex<LogLimiter<LogLine>>,
    pub(super) since: Instant,
    /// Bytes of requests and replies that wait.
    pub(super) held_bytes: AtomicUsize,
    pub(super) is_stopping: AtomicBool,
    pub(super) is_shut_out: AtomicBool,
}

/// Sorts of log lines that clients can cause.
#[derive(Clone, Copy, Debug)]
pub(super) enum LogLine {
    Accepted,
    Closed,
    Refused,
    Dropped,
    Slow,
    Failed,
    Accepting,
}

impl LogKind for LogLine {
    const NAMES: &'static [&'static str] = &[
        "connections accepted",
        "connections closed",
        "connections refused",
        "connections dropped",
        "slow commands",
        "commands that failed",
        "connections that could not be accepted",
    ];

    fn index(self) -> usize {
        self as usize
    }
}

impl Shared {
    pub(super) fn new(store: Store, options: GatewayOptions) -> Self {
        let threads = (0..options.threads.max(1)).map(|_| Arc::default()).collect();
        Self {
            threads,
            slow: SlowLog::new(options.slow, options.slow_entries),
            log: Mutex::new(LogLimiter::new(Instant::now())),
            options,
            store,
            clients: Clients::default(),
            counts: Counts::default(),
            since: Instant::now(),
            held_bytes: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
            is_shut_out: AtomicBool::new(false),
        }
    }

    /// A command was answered with an error.
    pub(super) fn note(&self, fault: &Fault) {
        self.counts.note(fault);
        if let Fault::Store(error) = fault {
            if self.may_log(LogLine::Failed) {
                warn!(%error, "a command failed");
            }
            if error.is_shut_out() {
                self.is_shut_out.store(true, Ordering::Relaxed);
            }
        }
    }
}

impl Shared {
    /// Whether one more line of a sort may be told to the log now.
    pub(super) fn may_log(&self, line: LogLine) -> bool {
        self.log().allows(line, Instant::now())
    }

    fn log(&self) -> MutexGuard<'_, LogLimiter<LogLine>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What all threads have done.
    pub(super) fn sums(&self) -> Sums {
        Sums::of(&self.threads)
    }

    /// For how long there has been this gateway.
    pub(super) fn uptime_ms(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// What the clients of a thread share.
pub(super) struct Worker {
    counts: Arc<ThreadCounts>,
    /// Goes on now and then; each way into the pool is accounted for once in a round.
    round: Cell<u64>,
    pub(super) shared: Arc<Shared>,
    /// Ways into the pool that nobody uses.
    keyspaces: RefCell<Vec<(Keyspace, Account)>>,
    turns: Semaphore,
    at_records: Arc<Turns>,
    inboxes: RefCell<Vec<Inbox>>,
    outputs: RefCell<Vec<Vec<u8>>>,
    pipelines: RefCell<Vec<Pipeline>>,
}

/// What a way into the pool has cost, as far as that was counted, and the round in which it was.
#[derive(Debug, Default)]
struct Account {
    round: u64,
    counted: Counters,
}

/// A way into the pool, for as long as it is held.
pub(super) struct Held<'w> {
    pub(super) keys: Keyspace,
    account: Account,
    _turn: Option<SemaphorePermit<'w>>,
}

impl Worker {
    fn new(shared: Arc<Shared>, number: usize) -> Self {
        let turns = Semaphore::new(shared.options.sessions_max);
        Self {
            counts: Arc::clone(&shared.threads[number]),
            round: Cell::new(0),
            shared,
            keyspaces: RefCell::default(),
            turns,
            at_records: Arc::default(),
            inboxes: RefCell::default(),
            outputs: RefCell::default(),
            pipelines: RefCell::default(),
        }
    }

    /// A way into the pool; waits while others use all that there may be.
    pub(super) async fn keyspace(&self) -> Held<'_> {
        // Nobody closes it.
        let turn = self.turns.acquire().await.ok();
        let spare = self.keyspaces.borrow_mut().pop();
        let (keys, account) = spare.unwrap_or_else(|| {
            self.counts.sessions.add(1);
            let keys = Keyspace::new(self.shared.store.clone(), Arc::clone(&self.at_records));
            (keys, Account::default())
        });
        Held { keys, account, _turn: turn }
    }

    pub(super) fn give_keyspace(&self, mut held: Held<'_>) {
        held.keys.rest();
        self.count(&held.keys, &mut held.account);
        self.keyspaces.borrow_mut().push((held.keys, held.account));
    }

    /// Counts what a way into the pool has cost, unless that was done in this round.
    fn count(&self, keys: &Keyspace, account: &mut Account) {
        if account.round != self.round.get() {
            let now = keys.counters();
            self.counts.spent(&(now - account.counted));
            *account = Account { round: self.round.get(), counted: now };
        }
    }

    /// Begins a round, and accounts for the ways into the pool that rest.
    fn look_around(&self) {
        self.round.set(self.round.get() + 1);
        for (keys, account) in &mut *self.keyspaces.borrow_mut() {
            self.count(keys, account);
        }
        self.counts.looked_ms.set(self.shared.uptime_ms());
    }

    /// A command was done, or none that there is; answers when it ended.
    #[inline]
    pub(super) fn did(
        &self,
        command: Option<&'static Command>,
        args: &Arguments<'_>,
        began: Instant,
        client: &Arc<ClientInfo>,
    ) -> Instant {
        let now = Instant::now();
        if let Some(command) = command {
            let took = now.saturating_duration_since(began);
            self.counts.did(command, took);
            if took >= self.shared.slow.threshold {
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

    pub(super) fn inbox(&self) -> Inbox {
        self.inboxes.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes an empty one back.
    pub(super) fn give_inbox(&self, inbox: Inbox) {
        give(&self.inboxes, inbox, SPARES);
    }

    pub(super) fn pipeline(&self) -> Pipeline {
        self.pipelines.borrow_mut().pop().unwrap_or_default()
    }

    pub(super) fn give_pipeline(&self, mut pipeline: Pipeline) {
        pipeline.rest();
        give(&self.pipelines, pipeline, SPARES);
    }

    pub(super) fn output(&self) -> Vec<u8> {
        self.outputs.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes an empty one back.
    pub(super) fn give_output(&self, output: Vec<u8>) {
        if (1..=OUTPUT_KEPT_BYTES).contains(&output.capacity()) {
            give(&self.outputs, output, OUTPUTS_SPARE);
        }
    }

    /// Serves a client in a task of its own.
    fn serve(self: &Rc<Self>, socket: TcpStream, address: SocketAddr) {
        let shared = &self.shared;
        let Ok(local) = socket.local_addr() else { return };
        let info = shared.clients.admit(address, local);
        match Connection::new(socket, Rc::clone(self), Arc::clone(&info)) {
            Ok(connection) => {
                let task = tokio::task::spawn_local(connection.run());
                shared.clients.enter(&info, task.abort_handle());
                if shared.may_log(LogLine::Accepted) {
                    info!(client = info.id, %address, "connection accepted");
                }
            }
            Err(error) => debug!(%error, "a connection could not be set up"),
        }
    }
}

fn give<T>(spares: &RefCell<Vec<T>>, spare: T, most: usize) {
    let mut spares = spares.borrow_mut();
    if spares.len() < most {
        spares.push(spare);
    }
}

type Accepted = (TcpStream, SocketAddr);

/// Serves until asked to stop.
pub(super) fn run(listener: TcpListener, shared: &Arc<Shared>, stop: &Stop) -> Result<(), GatewayError> {
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        let mut threads = Vec::new();
        for number in 0..shared.options.threads.max(1) {
            let (sender, receiver) = mpsc::unbounded_channel();
            let shared = Arc::clone(shared);
            let thread = std::thread::Builder::new().name(format!("darter-gateway-{number}"));
            let work = move || work(shared, receiver, number);
            threads.push(thread.spawn_scoped(scope, work).map_err(system("start a thread"))?);
            workers.push(sender);
        }
        let accepted = accept(listener, shared, &workers, stop);
        shared.is_stopping.store(true, Ordering::SeqCst);
        // Who waits for a request is to wait no longer; who is at work may finish it.
        let end = Instant::now() + shared.options.drain;
        loop {
            let may_finish = Instant::now() < end && !stop.is_urgent();
            shared.clients.end(|info| !may_finish || !info.is_busy.load(Ordering::Acquire));
            if !may_finish || shared.clients.count() == 0 {
                break;
            }
            std::thread::sleep(LOOK / 10);
        }
        drop(workers);
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))?;
        shared.log().flush(Instant::now());
        accepted
    })
}

/// Takes in whoever connects, and gives them to the threads by turns.
fn accept(
    listener: TcpListener,
    shared: &Arc<Shared>,
    workers: &[mpsc::UnboundedSender<Accepted>],
    stop: &Stop,
) -> Result<(), GatewayError> {
    let runtime = Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(system("start an executor"))?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).map_err(system("wait for connections"))?;
        let mut next = workers.iter().cycle();
        while !stop.is_asked() {
            if shared.is_shut_out.load(Ordering::Relaxed) {
                return Err(GatewayError::ShutOut);
            }
            shared.log().tick(Instant::now());
            let Ok(accepted) = tokio::time::timeout(LOOK, listener.accept()).await else { continue };
            match accepted.and_then(|(socket, address)| Ok((socket.into_std()?, address))) {
                Ok((socket, address)) => {
                    if shared.clients.count() >= shared.options.connections_max {
                        refuse(&socket, shared);
                    } else if let Some(worker) = next.next() {
                        shared.counts.accepted.fetch_add(1, Ordering::Relaxed);
                        // A thread ends when this function has.
                        let _ = worker.send((socket, address));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    if shared.may_log(LogLine::Accepting) {
                        warn!(%error, "cannot accept a connection; is the limit of open files too low?");
                    }
                    tokio::time::sleep(RESPITE).await;
                }
            }
        }
        Ok(())
    })
}

fn refuse(mut socket: &TcpStream, shared: &Shared) {
    shared.counts.refused.fetch_add(1, Ordering::Relaxed);
    if shared.may_log(LogLine::Refused) {
        warn!(
            connections = shared.options.connections_max,
            "connection refused: there are as many as may be"
        );
    }
    // Under TLS it would not be understood; and who does not take it now is not waited for.
    if shared.options.tls.is_none() && socket.set_nonblocking(true).is_ok() {
        let _ = socket.write_all(b"-ERR max number of clients reached\r\n");
    }
}

/// A thread: serves who it is given until there is nobody and nobody will come.
fn work(
    shared: Arc<Shared>,
    mut given: mpsc::UnboundedReceiver<Accepted>,
    number: usize,
) -> Result<(), GatewayError> {
    let runtime = Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(system("start an executor"))?;
    let expires = number == 0 && shared.options.expires;
    let worker = Rc::new(Worker::new(shared, number));
    let tasks = LocalSet::new();
    let drive = {
        let _inside = runtime.enter();
        drive::Drive::enter().map_err(system("wait for memory nodes"))?
    };
    tasks.block_on(&runtime, async {
        tokio::task::spawn_local(drive.run());
        tokio::task::spawn_local(look_around(Rc::clone(&worker)));
        if expires {
            tokio::task::spawn_local(expire(Rc::clone(&worker)));
        }
        while let Some((socket, address)) = given.recv().await {
            worker.serve(socket, address);
        }
    });
    Ok(())
}

/// Brings up to date what the thread tells of itself, again and again.
async fn look_around(worker: Rc<Worker>) {
    loop {
        worker.look_around();
        tokio::time::sleep(ROUND).await;
    }
}

/// Walks over all records again and again, and removes what is over.
async fn expire(worker: Rc<Worker>) {
    let counts = &worker.shared.counts;
    let (mut walk, mut pause) = (Expiry::default(), STEP);
    loop {
        tokio::time::sleep(pause).await;
        let mut held = worker.keyspace().await;
        loop {
            held.keys.now = now_ms();
            match walk.step(&mut held.keys).await {
                Ok(stepped) => {
                    counts.expired.fetch_add(stepped.removed, Ordering::Relaxed);
                    if let Some(census) = stepped.census {
                        counts.keys.store(census.keys, Ordering::Relaxed);
                        counts.expiring.store(census.expiring, Ordering::Relaxed);
                        pause = if census.expiring == 0 { STEP_AT_LEISURE } else { STEP };
                    }
                    if !stepped.goes_on {
                        break;
                    }
                }
                Err(fault) => {
                    worker.shared.note(&fault);
                    break;
                }
            }
            tokio::task::yield_now().await;
        }
        worker.give_keyspace(held);
    }
}
