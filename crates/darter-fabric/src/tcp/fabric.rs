//! The fabric over TCP, its endpoints, and how a thread waits for answers.

use super::batches::Ticket;
use super::connection::{Connection, connect};
use super::hub::Hub;
use super::wire::{self, Control, Refusal, RequestKind};
use crate::{
    Batch, Capabilities, Endpoint, Fabric, FabricError, FenceOutcome, Identity, NODES_MAX, Suspect,
    random_word,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// How a process uses its memory nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    /// What the nodes' operators have agreed on; empty for none.
    pub token: Vec<u8>,
    /// How long a thread that waits looks again and again before it sleeps. Spinning answers in a few microseconds, sleeping
    /// leaves the core to others.
    pub spin: Duration,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self { token: Vec::new(), spin: Duration::from_micros(50) }
    }
}

/// A memory node as it was when the pool was opened.
#[derive(Clone, Debug)]
pub(super) struct NodeInfo {
    pub address: String,
    pub bytes: u64,
    pub boot_id: u64,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub nodes: Vec<NodeInfo>,
    pub options: TcpOptions,
    pub session: u64,
    /// A node has said that this session was shut out: then it is, everywhere and for good.
    pub fenced: AtomicBool,
    /// Connections for claims and fences, which wait for their answer.
    control: Mutex<Vec<Option<Connection>>>,
}

/// Memory nodes reached over TCP. Clones reach the same nodes as the same session.
#[derive(Clone, Debug)]
pub struct Tcp {
    shared: Arc<Shared>,
}

/// How long an idle sleep lasts at most; then the hub looks again.
const NAP: Duration = Duration::from_millis(50);

/// A fabric's hub in this thread.
type OwnHub = (Weak<Shared>, Weak<Mutex<Hub>>);

thread_local! {
    /// This thread's hubs, one a fabric.
    static HUBS: RefCell<Vec<OwnHub>> = const { RefCell::new(Vec::new()) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tcp {
    /// Connects to memory nodes, `host:port` each, in the order of their indexes in the pool.
    ///
    /// # Errors
    /// When one cannot be reached, speaks another protocol or does not accept the credentials.
    pub fn connect(addresses: &[String], options: TcpOptions) -> Result<Self, FabricError> {
        if !(1..=NODES_MAX).contains(&addresses.len()) {
            return Err(FabricError::geometry(format!(
                "{} memory nodes; a pool has 1 to {NODES_MAX}",
                addresses.len()
            )));
        }
        if options.token.len() > wire::TOKEN_BYTES_MAX {
            return Err(FabricError::geometry(format!(
                "a token has at most {} bytes",
                wire::TOKEN_BYTES_MAX
            )));
        }
        // 0 is nobody.
        let session = random_word().max(1);
        let mut nodes = Vec::with_capacity(addresses.len());
        let mut control = Vec::with_capacity(addresses.len());
        for (node, address) in addresses.iter().enumerate() {
            let (stream, welcome) = connect(address, node as u8, session, &options.token)?;
            nodes.push(NodeInfo {
                address: address.clone(),
                bytes: welcome.region_bytes,
                boot_id: welcome.boot_id,
            });
            control.push(Some(Connection::new(stream, &welcome)));
        }
        let shared =
            Shared { nodes, options, session, fenced: AtomicBool::new(false), control: Mutex::new(control) };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// One request on a node's control connection, and its answer.
    fn ask(&self, node: u8, kind: RequestKind, about: Control) -> Result<Refusal, FabricError> {
        let mut control = lock(&self.shared.control);
        let at = usize::from(node);
        let known = &self.shared.nodes[at];
        if control[at].is_none() {
            let (stream, welcome) =
                connect(&known.address, node, self.shared.session, &self.shared.options.token)?;
            if welcome.boot_id != known.boot_id {
                return Err(FabricError::Disconnected { node });
            }
            control[at] = Some(Connection::new(stream, &welcome));
        }
        let Some(connection) = &mut control[at] else { return Err(FabricError::Disconnected { node }) };
        let Ok((refusal, text)) = exchange(connection, kind, about) else {
            control[at] = None;
            return Err(FabricError::Disconnected { node });
        };
        match refusal {
            Refusal::None | Refusal::Taken => Ok(refusal),
            other => Err(wire::error_of(other, node, &text)),
        }
    }
}

fn exchange(connection: &mut Connection, kind: RequestKind, about: Control) -> io::Result<(Refusal, String)> {
    let at = connection.begin_frame();
    connection.out.bytes.extend_from_slice(wire::as_bytes(&about));
    let id = connection.end_frame(at, kind, 0);
    connection.sent.push_back(super::connection::Sent { id, batch: Ticket::default(), first: 0, end: 0 });
    let deadline = Instant::now() + super::connection::PATIENCE;
    loop {
        let all_sent = connection.flush()?;
        connection.receive()?;
        if let Some((_, head, range)) = connection.next_reply()? {
            let refusal = Refusal::from_code(head.refusal).ok_or(io::ErrorKind::InvalidData)?;
            let payload = connection.payload(range);
            return Ok((refusal, String::from_utf8_lossy(payload).into_owned()));
        }
        let now = Instant::now();
        if now >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let events = if all_sent { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        sleep_on(&mut [PollFd::new(&connection.stream, events)], deadline - now);
    }
}

/// Waits until a socket has something, or for so long.
fn sleep_on(sockets: &mut [PollFd<'_>], most: Duration) {
    let seconds = i64::try_from(most.as_secs()).unwrap_or(i64::MAX);
    let timeout = Timespec { tv_sec: seconds, tv_nsec: i64::from(most.subsec_nanos()) };
    // Woken early or not at all: the caller looks again.
    let _ = poll(sockets, Some(&timeout));
}

/// A held member slot, given back when dropped.
#[derive(Debug)]
struct TcpIdentity {
    fabric: Tcp,
    slot: u32,
}

impl Identity for TcpIdentity {
    fn holder(&self) -> u64 {
        self.fabric.shared.session
    }
}

impl Drop for TcpIdentity {
    fn drop(&mut self) {
        // A node that cannot be told sees the session's connections end.
        let about = Control { number: self.slot.into(), flag: 0 };
        let _ = self.fabric.ask(ARBITER, RequestKind::Release, about);
    }
}

/// The node that decides who holds a slot, and who is gone.
const ARBITER: u8 = 0;

impl Fabric for Tcp {
    type Endpoint = TcpEndpoint;

    fn endpoint(&self) -> Result<TcpEndpoint, FabricError> {
        let hub = HUBS.with_borrow_mut(|hubs| {
            hubs.retain(|(_, hub)| hub.strong_count() > 0);
            let mine = |(shared, _): &&OwnHub| shared.as_ptr() == Arc::as_ptr(&self.shared);
            hubs.iter().find(mine).and_then(|(_, hub)| hub.upgrade()).unwrap_or_else(|| {
                let hub = Arc::new(Mutex::new(Hub::new(Arc::clone(&self.shared))));
                hubs.push((Arc::downgrade(&self.shared), Arc::downgrade(&hub)));
                hub
            })
        });
        let id = lock(&hub).new_endpoint();
        Ok(TcpEndpoint { hub, id, spin: self.shared.options.spin })
    }

    fn nodes(&self) -> usize {
        self.shared.nodes.len()
    }

    fn node_bytes(&self, node: u8) -> u64 {
        self.shared.nodes.get(usize::from(node)).map_or(0, |node| node.bytes)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { ordered_batches: true, on_chip_bytes: 0, persistent: false, inline_bytes: 0 }
    }

    fn claim(&self, slot: u32) -> Result<Box<dyn Identity>, FabricError> {
        let about = Control { number: slot.into(), flag: 0 };
        if self.ask(ARBITER, RequestKind::Claim, about)? == Refusal::Taken {
            return Err(FabricError::IdentityTaken { slot });
        }
        Ok(Box::new(TcpIdentity { fabric: self.clone(), slot }))
    }

    /// One node decides; when it has shut the session out, all others must too, whatever they know of it.
    fn fence(&self, suspect: Suspect) -> Result<FenceOutcome, FabricError> {
        let mut about = Control { number: suspect.holder, flag: suspect.lapsed.into() };
        if self.ask(ARBITER, RequestKind::Fence, about)? == Refusal::Taken {
            return Ok(FenceOutcome::Alive);
        }
        about.flag = 1;
        for node in (0..self.shared.nodes.len() as u8).filter(|&node| node != ARBITER) {
            self.ask(node, RequestKind::Fence, about)?;
        }
        Ok(FenceOutcome::Fenced)
    }

    fn persist(&self) -> Result<(), FabricError> {
        for node in 0..self.shared.nodes.len() {
            self.ask(node as u8, RequestKind::Persist, Control { number: 0, flag: 0 })?;
        }
        Ok(())
    }
}

/// One task's access to the memory nodes, through its thread's hub.
#[derive(Debug)]
pub struct TcpEndpoint {
    hub: Arc<Mutex<Hub>>,
    id: u64,
    spin: Duration,
}

/// Spare batches a hub keeps.
const SPARES_MAX: usize = 64;
/// Buffers above this size go back to the allocator.
const SPARE_BYTES_MAX: usize = 256 << 10;

impl Endpoint for TcpEndpoint {
    fn batch(&mut self) -> Batch {
        lock(&self.hub).spares.pop().unwrap_or_default()
    }

    fn recycle(&mut self, mut batch: Batch) {
        if batch.buffer_bytes() <= SPARE_BYTES_MAX {
            batch.clear();
            let mut hub = lock(&self.hub);
            if hub.spares.len() < SPARES_MAX {
                hub.spares.push(batch);
            }
        }
    }

    fn submit(&mut self, batch: Batch) -> impl Future<Output = Result<Batch, FabricError>> + Send {
        Submission { endpoint: self, stage: Stage::Unposted(Some(batch)), since: None }
    }

    fn in_flight(&self) -> usize {
        let mut hub = lock(&self.hub);
        hub.pump();
        hub.in_flight(self.id)
    }
}

enum Stage {
    Unposted(Option<Batch>),
    Posted(Ticket),
    Done,
}

/// The future of a batch. Its first poll posts; every later one drives the hub.
struct Submission<'e> {
    endpoint: &'e mut TcpEndpoint,
    stage: Stage,
    /// When the hub last had something for anybody, as far as this future saw.
    since: Option<Instant>,
}

impl Future for Submission<'_> {
    type Output = Result<Batch, FabricError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut hub = lock(&this.endpoint.hub);
        let ticket = match &mut this.stage {
            Stage::Unposted(batch) => {
                let batch = batch.take().unwrap_or_default();
                if batch.is_empty() {
                    this.stage = Stage::Done;
                    return Poll::Ready(Ok(batch));
                }
                let ticket = hub.post(this.endpoint.id, batch);
                this.stage = Stage::Posted(ticket);
                ticket
            }
            Stage::Posted(ticket) => {
                let ticket = *ticket;
                if hub.pump() {
                    this.since = None;
                }
                ticket
            }
            Stage::Done => return Poll::Pending,
        };
        if let Some(result) = hub.take(ticket) {
            this.stage = Stage::Done;
            return Poll::Ready(result);
        }
        hub.wait(ticket, context.waker());
        let since = *this.since.get_or_insert_with(Instant::now);
        if since.elapsed() > this.endpoint.spin {
            // Long enough without a word from anybody: give the core away until a socket has one.
            let mut sockets: Vec<PollFd<'_>> =
                hub.sockets().map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
            sleep_on(&mut sockets, NAP);
        }
        drop(hub);
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Submission<'_> {
    fn drop(&mut self) {
        if let Stage::Posted(ticket) = self.stage {
            lock(&self.endpoint.hub).give_up(ticket);
        }
    }
}
