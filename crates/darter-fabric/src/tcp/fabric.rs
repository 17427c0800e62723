//! The fabric over TCP: opening it, its nodes, and requests to nodes other than verbs.

use super::addresses::is_group;
use super::connection::Connection;
use super::control::CONTROL_PATIENCE;
use super::endpoint::TcpEndpoint;
use super::handshake::Caller;
use super::links::Links;
use super::options::TcpOptions;
use super::pairing::paired;
use super::reach::{connect, connect_within};
use super::session::{NodeInfo, Session};
use crate::rdma::{Adapter, BareLoop};
use crate::wire::{self, Control, Credential, Refusal, RequestKind, Welcome};
use crate::{
    Capabilities, Durability, ExpectedNode, Fabric, FabricError, FenceOutcome, Identity, Membership,
    NODES_MAX, RemoteNodes, ReplicaGroups, Suspect,
};
use std::any::Any;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Memory nodes reached over TCP. Clones reach the same nodes as the same session.
#[derive(Clone, Debug)]
pub struct Tcp {
    links: Arc<Links>,
}

impl Tcp {
    /// Connects to memory nodes, `host:port` each, in the order of their indexes in the pool.
    ///
    /// # Errors
    /// Fails if one cannot be reached, speaks another protocol or does not accept the credentials.
    pub fn connect(addresses: &[String], options: TcpOptions) -> Result<Self, FabricError> {
        Self::open(addresses, options, false)
    }

    /// Connects to memory nodes that hold a pool, like [`Tcp::connect`]; all except the first may
    /// be absent. [`Fabric::node_bytes`] of absent nodes is 0 until [`RemoteNodes::expect_node`] is
    /// called.
    ///
    /// # Errors
    /// Fails if the first cannot be reached, or another reachable node speaks another protocol or
    /// does not accept the credentials.
    pub fn connect_present(addresses: &[String], options: TcpOptions) -> Result<Self, FabricError> {
        Self::open(addresses, options, true)
    }

    fn open(addresses: &[String], options: TcpOptions, may_be_absent: bool) -> Result<Self, FabricError> {
        if !(1..=NODES_MAX).contains(&addresses.len()) {
            return Err(FabricError::geometry(format!(
                "{} memory nodes; a pool has 1 to {NODES_MAX}",
                addresses.len()
            )));
        }
        if options.token.current().first().len() > wire::TOKEN_BYTES_MAX {
            return Err(FabricError::geometry(format!(
                "a token has at most {} bytes",
                wire::TOKEN_BYTES_MAX
            )));
        }
        let fabric = Self { links: Arc::new(Links::new(Session::new(options)?)) };
        let session = &fabric.links.session;
        // All concurrently, so that several silent nodes take no more time than one.
        let connected: Vec<_> = std::thread::scope(|scope| {
            let spawn = |(node, address)| {
                scope.spawn(move || connect(address, node, Caller::of(session.number), &session.options))
            };
            let threads: Vec<_> = (0_u8..).zip(addresses.iter().map(String::as_str)).map(spawn).collect();
            let lost = |node| Err(FabricError::Unreachable { node });
            (0..).zip(threads).map(|(node, thread)| thread.join().unwrap_or_else(|_| lost(node))).collect()
        });
        for ((node, address), connected) in (0..).zip(addresses).zip(connected) {
            match connected {
                Err(FabricError::Io(failure)) if node != ARBITER && may_be_absent => {
                    if failure.source.kind() == ErrorKind::TimedOut {
                        session.silent.add(node);
                    }
                    session.absent.note(node, true);
                    let address = address.to_owned();
                    let patience = Duration::ZERO;
                    let away = NodeInfo { address, bytes: 0, boot_id: None, is_durable: false, patience };
                    session.with_nodes(|nodes| nodes.push(away));
                }
                connected => fabric.admit(node, address, connected?)?,
            }
        }
        Ok(fabric)
    }

    /// Adds a node that has replied and is not one of the existing nodes.
    fn admit(
        &self,
        node: u8,
        address: &str,
        (connection, welcome): (Connection, Welcome),
    ) -> Result<(), FabricError> {
        let serves_rdma = welcome.flags & wire::SERVES_RDMA != 0;
        if serves_rdma != self.links.session.adapter.is_some() {
            return Err(FabricError::geometry(if serves_rdma {
                format!(
                    "{address}: the memory node serves verbs over RDMA only; name the pool `rdma://…?device=DEVICE`"
                )
            } else {
                format!(
                    "{address}: the memory node has no RDMA device; start it with `--rdma DEVICE`, or name the pool \
                     `tcp://…`"
                )
            }));
        }
        if welcome.flags & wire::READS_ONLY != 0 {
            self.links.session.reads_only.store(true, Ordering::Relaxed);
        }
        let boot_id = Some(welcome.boot_id);
        let is_durable = welcome.flags & wire::IS_DURABLE != 0;
        let bytes = welcome.region_bytes;
        let patience = Duration::from_millis(welcome.patience_ms.into());
        let admitted = NodeInfo { address: address.to_owned(), bytes, boot_id, is_durable, patience };
        self.links.session.with_nodes(|nodes| {
            if let Some(known) = nodes.iter().position(|known| known.boot_id == admitted.boot_id) {
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
        self.links.control.put(node, connection);
        Ok(())
    }

    /// Returns the number of posts to the RDMA device so far: one for each node that a batch names,
    /// unless the batch is longer than a queue. 0 without a device.
    pub fn posts(&self) -> u64 {
        self.links.posts()
    }

    /// Returns a queue pair to a node that executes verbs in a bare loop, for measurements, and the
    /// connection that must be kept open while it is in use.
    ///
    /// # Errors
    /// Fails if the fabric has no device, or the node cannot be reached.
    pub fn bare_loop(&self, node: u8) -> Result<(BareLoop, Box<dyn Any + Send>), FabricError> {
        let session = &self.links.session;
        let (Some(adapter), Some(known)) = (&session.adapter, session.node(node)) else {
            return Err(FabricError::Unreachable { node });
        };
        let completions = adapter.completions()?;
        let (mut connection, welcome) =
            connect(&known.address, node, Caller::of(session.number), &session.options)?;
        let (queue, target) =
            paired(&mut connection, node, welcome.region_bytes, &completions, &session.options)?;
        let bare = BareLoop::new(queue, completions, target, Arc::clone(&adapter.buffers))?;
        Ok((bare, Box::new(connection)))
    }

    /// Returns the information about a node.
    pub(super) fn known_node(&self, node: u8) -> Option<NodeInfo> {
        self.links.session.node(node)
    }

    /// Returns the fabric's options.
    pub(super) fn tcp_options(&self) -> &TcpOptions {
        &self.links.session.options
    }

    /// Sends one request on a node's control connection, and returns its reply.
    pub(super) fn request(
        &self,
        node: u8,
        kind: RequestKind,
        about: Control,
    ) -> Result<Refusal, FabricError> {
        self.links.control.request(&self.links.session, node, kind, about)
    }

    /// Does the same, unless the node leaves the pool during the request.
    fn request_in_use(&self, node: u8, kind: RequestKind, about: Control) -> Result<(), FabricError> {
        match self.request(node, kind, about) {
            Err(_) if self.links.session.retired.contains(node) => Ok(()),
            // The caller can tell from the error which node is missing.
            Err(FabricError::Io(_)) => Err(FabricError::Unreachable { node }),
            reply => reply.map(drop),
        }
    }
}

/// A held member slot, released when dropped.
#[derive(Debug)]
struct TcpIdentity {
    fabric: Tcp,
    slot: u32,
}

impl Identity for TcpIdentity {
    fn holder(&self) -> u64 {
        self.fabric.links.session.number
    }
}

impl Drop for TcpIdentity {
    fn drop(&mut self) {
        // A node that does not get the request sees the session's connections end.
        let about = Control { number: self.slot.into(), flag: 0 };
        let _ = self.fabric.request(ARBITER, RequestKind::Release, about);
    }
}

/// The node that decides about holders of slots, and about dead clients.
const ARBITER: u8 = 0;

impl Membership for Tcp {
    fn claim(&self, slot: u32) -> Result<Box<dyn Identity>, FabricError> {
        let about = Control { number: slot.into(), flag: 0 };
        if self.request(ARBITER, RequestKind::Claim, about)? == Refusal::Taken {
            return Err(FabricError::IdentityTaken { slot });
        }
        Ok(Box::new(TcpIdentity { fabric: self.clone(), slot }))
    }

    /// One node decides. After it has fenced the session, all others must too, regardless of their
    /// own state of it.
    fn fence(&self, suspect: Suspect) -> Result<FenceOutcome, FabricError> {
        let mut about = Control { number: suspect.holder, flag: suspect.lapsed.into() };
        match self.request(ARBITER, RequestKind::Fence, about)? {
            Refusal::Taken => return Ok(FenceOutcome::Alive),
            Refusal::Stranger => return Ok(FenceOutcome::Unknown),
            _ => {}
        }
        about.flag = 1;
        for node in self.links.session.nodes_in_use().filter(|&node| node != ARBITER) {
            self.request_in_use(node, RequestKind::Fence, about)?;
        }
        Ok(FenceOutcome::Fenced)
    }
}

impl RemoteNodes for Tcp {
    fn credentials(&self) -> Vec<Credential> {
        self.links.session.options.credentials()
    }

    fn node_address(&self, node: u8) -> Option<String> {
        self.links.session.node(node).map(|node| node.address)
    }

    fn add_node(&self, node: u8, address: &str) -> Result<(), FabricError> {
        let session = &self.links.session;
        let connected =
            connect_within(CONTROL_PATIENCE, address, node, Caller::of(session.number), &session.options)?;
        self.admit(node, address, connected)
    }

    fn forget_node(&self, node: u8) {
        let at = usize::from(node);
        let is_last = self.links.session.with_nodes(|nodes| nodes.len() == at + 1 && nodes.pop().is_some());
        if is_last {
            self.links.forget(node);
        }
    }

    fn node_id(&self, node: u8) -> Option<u64> {
        self.links.session.node(node)?.boot_id
    }

    fn expect_node(&self, node: u8, expected: &ExpectedNode) -> Result<(), FabricError> {
        let ExpectedNode { address, bytes, id } = expected;
        let (address, patience) = (address.clone(), Duration::ZERO);
        let known = NodeInfo { address, bytes: *bytes, boot_id: Some(*id), is_durable: false, patience };
        self.links.session.with_nodes(|nodes| {
            let nodes_known = nodes.len();
            match nodes.get_mut(usize::from(node)) {
                // Its address may differ from the directory's, and works from here.
                Some(named) if named.boot_id.is_none() => {
                    (named.bytes, named.boot_id) = (known.bytes, known.boot_id);
                }
                None if nodes_known == usize::from(node) => nodes.push(known),
                _ => return Err(FabricError::Unreachable { node }),
            }
            Ok(())
        })?;
        self.links.session.absent.note(node, true);
        Ok(())
    }

    fn retire_node(&self, node: u8, expected: &ExpectedNode) -> Result<(), FabricError> {
        let session = &self.links.session;
        // Before a thread that sees the node can post verbs to it.
        session.retired.note(node, true);
        session.absent.note(node, true);
        session.with_nodes(|nodes| {
            let nodes_known = nodes.len();
            let (address, bytes) = (expected.address.clone(), expected.bytes);
            let patience = Duration::ZERO;
            // The memory that it had may be another node of the pool by now.
            let gone = NodeInfo { address, bytes, boot_id: None, is_durable: false, patience };
            match nodes.get_mut(usize::from(node)) {
                Some(known) => *known = gone,
                None if nodes_known == usize::from(node) => nodes.push(gone),
                None => return Err(FabricError::Unreachable { node }),
            }
            Ok(())
        })?;
        session.silent.remove(node);
        self.links.disconnect(node);
        Ok(())
    }

    #[inline]
    fn is_absent(&self, node: u8) -> bool {
        self.links.session.absent.contains(node)
    }

    #[inline]
    fn is_lost(&self, node: u8) -> bool {
        self.links.session.lost.contains(node)
    }

    fn disown_node(&self, node: u8) {
        let session = &self.links.session;
        session.with_nodes(|nodes| {
            if let Some(known) = nodes.get_mut(usize::from(node)) {
                (known.bytes, known.boot_id, known.is_durable) = (0, None, false);
            }
        });
        session.lost.note(node, true);
        session.absent.note(node, true);
        self.links.disconnect(node);
    }

    fn search_absent(&self) {
        self.links.search_absent();
    }
}

impl Fabric for Tcp {
    type Endpoint = TcpEndpoint;

    fn endpoint(&self) -> Result<TcpEndpoint, FabricError> {
        crate::fork::check(self.links.session.forks)?;
        Ok(TcpEndpoint::new(Arc::clone(&self.links)))
    }

    fn nodes(&self) -> usize {
        self.links.session.node_count()
    }

    fn node_bytes(&self, node: u8) -> u64 {
        self.links.session.node(node).map_or(0, |node| node.bytes)
    }

    fn capabilities(&self) -> Capabilities {
        let session = &self.links.session;
        let is_by_processor = session.adapter.is_none();
        let is_durable = is_by_processor
            && (session.options.must_be_durable
                || session.nodes_in_use().all(|node| session.node(node).is_some_and(|node| node.is_durable)));
        let nodes = session.nodes_in_use().filter_map(|node| session.node(node));
        let (mut has_group, mut patience) = (false, Duration::ZERO);
        for node in nodes {
            has_group |= is_group(&node.address);
            patience = patience.max(node.patience);
        }
        Capabilities {
            ordered_batches: is_by_processor,
            pure_cas: is_by_processor,
            global_atomics: is_by_processor,
            on_chip_bytes: 0,
            persistent: is_durable,
            durability: if is_durable { Durability::OnCompletion } else { Durability::Never },
            inline_bytes: 0,
            // With a device, the processor's atomics would not be atomic with respect to clients'
            // atomics. A procedure's verbs would bypass a group's replicas.
            calls: is_by_processor && !has_group,
            reads_only: session.reads_only.load(Ordering::Relaxed),
            // A replica is suspected, then the store of views is used, with a second attempt if
            // that is slow.
            failover: patience * 2,
        }
    }

    fn notes(&self) -> Vec<String> {
        self.links.session.adapter.iter().map(Adapter::describe).collect()
    }

    fn persist(&self) -> Result<(), FabricError> {
        for node in self.links.session.nodes_in_use() {
            self.request_in_use(node, RequestKind::Persist, Control { number: 0, flag: 0 })?;
        }
        Ok(())
    }

    #[inline]
    fn remote_nodes(&self) -> &dyn RemoteNodes {
        self
    }

    fn replica_groups(&self) -> &dyn ReplicaGroups {
        self
    }
}
