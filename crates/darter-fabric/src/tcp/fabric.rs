//! The fabric over TCP: its nodes, its hubs, and what is asked of nodes beside verbs.

use super::batches::Ticket;
use super::connection::{Connection, PATIENCE, Sent};
use super::endpoint::TcpEndpoint;
use super::handshake::connect_within;
use super::hub::Hub;
use super::reactor;
use crate::wire::{self, ClientTls, Control, Refusal, RequestKind};
use crate::{
    Capabilities, Fabric, FabricError, FenceOutcome, Identity, NODES_MAX, Suspect, mutant, random_word,
};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

/// How a process uses its memory nodes.
#[derive(Clone, Debug)]
pub struct TcpOptions {
    /// What the nodes' operators have agreed on, to be proven by both sides; empty for none.
    pub token: Vec<u8>,
    /// How to speak TLS with the nodes; without it all that goes over the wire can be read and changed there.
    pub tls: Option<ClientTls>,
    /// How long a thread that waits looks again and again before it sleeps. Spinning answers in a few microseconds, sleeping
    /// leaves the core to others.
    pub spin: Duration,
    /// How long a node that is connected may leave requests unanswered before the connection is given up. A node that is
    /// gone is noticed in ten seconds at most, by the system.
    pub patience: Duration,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self {
            token: Vec::new(),
            tls: None,
            spin: Duration::from_micros(50),
            patience: Duration::from_secs(10),
        }
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
    /// Grows when a node is added to the pool.
    nodes: RwLock<Vec<NodeInfo>>,
    /// How many there are, to be asked for each batch.
    node_count: AtomicUsize,
    pub options: TcpOptions,
    pub session: u64,
    /// A node has said that this session was shut out: then it is, everywhere and for good.
    pub fenced: Arc<AtomicBool>,
    /// Connections for claims and fences, which wait for their answer.
    control: Mutex<Vec<ControlLink>>,
    /// The hubs of all threads.
    hubs: Mutex<Vec<Weak<Hub>>>,
    /// The hub of tasks of other executors, once there was one.
    common: Mutex<Option<Arc<Hub>>>,
}

impl Shared {
    /// Nodes there are.
    pub(super) fn node_count(&self) -> usize {
        self.node_count.load(Ordering::Acquire)
    }

    /// What is known of a node.
    pub(super) fn node(&self, node: u8) -> Option<NodeInfo> {
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        nodes.get(usize::from(node)).cloned()
    }

    /// Changes the list of nodes.
    fn with_nodes<R>(&self, change: impl FnOnce(&mut Vec<NodeInfo>) -> R) -> R {
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut nodes);
        self.node_count.store(nodes.len(), Ordering::Release);
        result
    }

    /// The hub of tasks of other executors.
    pub(super) fn common_hub(self: &Arc<Self>) -> Result<Arc<Hub>, FabricError> {
        let mut common = lock(&self.common);
        if let Some(hub) = &*common {
            return Ok(Arc::clone(hub));
        }
        let hub = reactor::start(self)?;
        self.enlist(&hub);
        Ok(Arc::clone(common.insert(hub)))
    }

    /// Remembers a hub, to be closed with the fabric.
    pub(super) fn enlist(&self, hub: &Arc<Hub>) {
        let mut hubs = lock(&self.hubs);
        hubs.retain(|hub| hub.strong_count() > 0);
        hubs.push(Arc::downgrade(hub));
    }

    /// Sends and receives what can be on all hubs.
    pub(super) fn turn_all(&self) {
        let hubs: Vec<Arc<Hub>> = lock(&self.hubs).iter().filter_map(Weak::upgrade).collect();
        for hub in hubs {
            hub.turn_once();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Threads keep their hubs; a node has to see that this client is gone.
        for hub in lock(&self.hubs).iter().filter_map(Weak::upgrade) {
            hub.close();
        }
    }
}

/// Memory nodes reached over TCP. Clones reach the same nodes as the same session.
#[derive(Clone, Debug)]
pub struct Tcp {
    shared: Arc<Shared>,
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
        let shared = Shared {
            nodes: RwLock::default(),
            node_count: AtomicUsize::new(0),
            options,
            session,
            fenced: Arc::default(),
            control: Mutex::default(),
            hubs: Mutex::default(),
            common: Mutex::default(),
        };
        let fabric = Self { shared: Arc::new(shared) };
        for (node, address) in addresses.iter().enumerate() {
            fabric.admit(node as u8, address, PATIENCE)?;
        }
        Ok(fabric)
    }

    /// Connects to a node that was not one of them, and makes it the next.
    fn admit(&self, node: u8, address: &str, patience: Duration) -> Result<(), FabricError> {
        let shared = &self.shared;
        let (connection, welcome) = connect_within(patience, address, node, shared.session, &shared.options)?;
        let admitted =
            NodeInfo { address: address.to_owned(), bytes: welcome.region_bytes, boot_id: welcome.boot_id };
        shared.with_nodes(|nodes| {
            if let Some(known) = nodes.iter().position(|known| known.boot_id == admitted.boot_id)
                && !mutant!("tcp-node-admitted-twice")
            {
                return Err(FabricError::geometry(format!(
                    "{address}: it is memory node {known} already; name each node once"
                )));
            }
            if nodes.len() != usize::from(node) {
                return Err(FabricError::geometry(format!("the next memory node is {}", nodes.len())));
            }
            nodes.push(admitted);
            Ok(())
        })?;
        let mut control = lock(&shared.control);
        control.resize_with(usize::from(node), ControlLink::default);
        control.push(ControlLink { connection: Some(connection), down_until: None });
        Ok(())
    }

    /// One request on a node's control connection, and its answer.
    fn ask(&self, node: u8, kind: RequestKind, about: Control) -> Result<Refusal, FabricError> {
        let mut control = lock(&self.shared.control);
        let at = usize::from(node);
        let known = self.shared.node(node).ok_or(FabricError::Disconnected { node })?;
        if control.len() <= at {
            control.resize_with(at + 1, ControlLink::default);
        }
        let link = &mut control[at];
        let (refusal, text) = match link.connection.take().and_then(|old| link.exchange(old, kind, about)) {
            Some(answer) => answer,
            // No connection, or one that was lost since it was used: all requests may be repeated.
            None => link.reconnect(&self.shared, node, &known).and_then(|fresh| {
                link.exchange(fresh, kind, about).ok_or(FabricError::Disconnected { node })
            })?,
        };
        match refusal {
            Refusal::None | Refusal::Taken | Refusal::Stranger => Ok(refusal),
            other => Err(wire::error_of(other, node, &text)),
        }
    }
}

/// A node's connection for requests other than batches.
#[derive(Debug, Default)]
struct ControlLink {
    connection: Option<Connection>,
    /// It could not be reached: not to be tried again before.
    down_until: Option<Instant>,
}

impl ControlLink {
    /// Connects anew, unless that failed just now: whoever asks has a lease to renew, and cannot wait for each node in turn.
    fn reconnect(&mut self, shared: &Shared, node: u8, known: &NodeInfo) -> Result<Connection, FabricError> {
        if self.down_until.is_some_and(|until| Instant::now() < until) {
            return Err(FabricError::Disconnected { node });
        }
        self.down_until = Some(Instant::now() + CONTROL_PATIENCE * 2);
        let (connection, welcome) =
            connect_within(CONTROL_PATIENCE, &known.address, node, shared.session, &shared.options)?;
        if welcome.boot_id != known.boot_id && !mutant!("tcp-control-takes-any-memory") {
            return Err(FabricError::Disconnected { node });
        }
        self.down_until = None;
        Ok(connection)
    }

    /// A request and its answer; the connection is kept when there is one.
    fn exchange(
        &mut self,
        mut connection: Connection,
        kind: RequestKind,
        about: Control,
    ) -> Option<(Refusal, String)> {
        let answer = exchange(&mut connection, kind, about).ok();
        if answer.is_some() || mutant!("tcp-late-answer-taken-for-the-next") {
            self.connection = Some(connection);
        }
        answer
    }
}

fn exchange(connection: &mut Connection, kind: RequestKind, about: Control) -> io::Result<(Refusal, String)> {
    let patience = if kind == RequestKind::Persist { PERSIST_PATIENCE } else { CONTROL_PATIENCE };
    let at = connection.begin_frame();
    connection.out.bytes.extend_from_slice(wire::as_bytes(&about));
    let id = connection.end_frame(at, kind, 0);
    connection.sent.push_back(Sent { id, batch: Ticket::default(), first: 0, end: 0 });
    connection.wait_for(Instant::now() + patience, |connection| {
        let Some((_, refusal, range)) = connection.next_reply()? else { return Ok(None) };
        Ok(Some((refusal, connection.text(range))))
    })
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

/// How long to wait for a node in the middle of something that must go on.
const CONTROL_PATIENCE: Duration = Duration::from_secs(1);
/// How long a region may take to reach its medium.
const PERSIST_PATIENCE: Duration = Duration::from_secs(600);

/// The node that decides who holds a slot, and who is gone.
const ARBITER: u8 = 0;

impl Fabric for Tcp {
    type Endpoint = TcpEndpoint;

    fn endpoint(&self) -> Result<TcpEndpoint, FabricError> {
        Ok(TcpEndpoint::new(Arc::clone(&self.shared)))
    }

    fn nodes(&self) -> usize {
        self.shared.node_count()
    }

    fn node_bytes(&self, node: u8) -> u64 {
        self.shared.node(node).map_or(0, |node| node.bytes)
    }

    fn node_address(&self, node: u8) -> Option<String> {
        self.shared.node(node).map(|node| node.address)
    }

    fn add_node(&self, node: u8, address: &str) -> Result<(), FabricError> {
        self.admit(node, address, CONTROL_PATIENCE)
    }

    fn forget_node(&self, node: u8) {
        let at = usize::from(node);
        let is_last = self.shared.with_nodes(|nodes| nodes.len() == at + 1 && nodes.pop().is_some());
        if is_last {
            lock(&self.shared.control).truncate(at);
            for hub in lock(&self.shared.hubs).iter().filter_map(Weak::upgrade) {
                if mutant!("tcp-forgotten-node-keeps-its-link") {
                    continue;
                }
                hub.forget(node);
            }
        }
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
        match self.ask(ARBITER, RequestKind::Fence, about)? {
            Refusal::Taken => return Ok(FenceOutcome::Alive),
            Refusal::Stranger => return Ok(FenceOutcome::Unknown),
            _ => {}
        }
        if !mutant!("tcp-fence-leaves-others-to-judge") {
            about.flag = 1;
        }
        for node in (0..self.shared.node_count() as u8).filter(|&node| node != ARBITER) {
            if mutant!("tcp-fence-told-to-the-arbiter-only") {
                break;
            }
            let told = self.ask(node, RequestKind::Fence, about);
            if !mutant!("tcp-fence-passes-over-the-absent") {
                told?;
            }
        }
        Ok(FenceOutcome::Fenced)
    }

    fn persist(&self) -> Result<(), FabricError> {
        for node in 0..self.shared.node_count() {
            self.ask(node as u8, RequestKind::Persist, Control { number: 0, flag: 0 })?;
        }
        Ok(())
    }
}
