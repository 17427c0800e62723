//! The fabric over TCP: opening, its nodes, and the requests to nodes beside verbs.

use super::connection::PATIENCE;
use super::control::CONTROL_PATIENCE;
use super::endpoint::TcpEndpoint;
use super::handshake::connect_within;
use super::links::Links;
use super::options::TcpOptions;
use super::session::{NodeInfo, Session};
use crate::wire::{self, Control, Refusal, RequestKind};
use crate::{Capabilities, Fabric, FabricError, FenceOutcome, Identity, NODES_MAX, Suspect, mutant};
use std::sync::Arc;
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
        let fabric = Self { links: Arc::new(Links::new(Session::new(options))) };
        for (node, address) in addresses.iter().enumerate() {
            fabric.admit(node as u8, address, PATIENCE)?;
        }
        Ok(fabric)
    }

    /// Connects to a node that was not one of them, and makes it the next.
    fn admit(&self, node: u8, address: &str, patience: Duration) -> Result<(), FabricError> {
        let session = &self.links.session;
        let (connection, welcome) =
            connect_within(patience, address, node, session.number, &session.options)?;
        let admitted =
            NodeInfo { address: address.to_owned(), bytes: welcome.region_bytes, boot_id: welcome.boot_id };
        session.with_nodes(|nodes| {
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
        self.links.control.put(node, connection);
        Ok(())
    }

    /// One request on a node's control connection, and its reply.
    fn request(&self, node: u8, kind: RequestKind, about: Control) -> Result<Refusal, FabricError> {
        self.links.control.request(&self.links.session, node, kind, about)
    }
}

/// A held member slot, given back when dropped.
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
        // A node that the request does not reach sees the session's connections end.
        let about = Control { number: self.slot.into(), flag: 0 };
        let _ = self.fabric.request(ARBITER, RequestKind::Release, about);
    }
}

/// The node that decides who holds a slot, and who is gone.
const ARBITER: u8 = 0;

impl Fabric for Tcp {
    type Endpoint = TcpEndpoint;

    fn endpoint(&self) -> Result<TcpEndpoint, FabricError> {
        Ok(TcpEndpoint::new(Arc::clone(&self.links)))
    }

    fn nodes(&self) -> usize {
        self.links.session.node_count()
    }

    fn node_bytes(&self, node: u8) -> u64 {
        self.links.session.node(node).map_or(0, |node| node.bytes)
    }

    fn node_address(&self, node: u8) -> Option<String> {
        self.links.session.node(node).map(|node| node.address)
    }

    fn add_node(&self, node: u8, address: &str) -> Result<(), FabricError> {
        self.admit(node, address, CONTROL_PATIENCE)
    }

    fn forget_node(&self, node: u8) {
        let at = usize::from(node);
        let is_last = self.links.session.with_nodes(|nodes| nodes.len() == at + 1 && nodes.pop().is_some());
        if is_last {
            self.links.forget(node);
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { ordered_batches: true, on_chip_bytes: 0, persistent: false, inline_bytes: 0 }
    }

    fn claim(&self, slot: u32) -> Result<Box<dyn Identity>, FabricError> {
        let about = Control { number: slot.into(), flag: 0 };
        if self.request(ARBITER, RequestKind::Claim, about)? == Refusal::Taken {
            return Err(FabricError::IdentityTaken { slot });
        }
        Ok(Box::new(TcpIdentity { fabric: self.clone(), slot }))
    }

    /// One node decides; when it has shut the session out, all others must too, whatever they know
    /// of it.
    fn fence(&self, suspect: Suspect) -> Result<FenceOutcome, FabricError> {
        let mut about = Control { number: suspect.holder, flag: suspect.lapsed.into() };
        match self.request(ARBITER, RequestKind::Fence, about)? {
            Refusal::Taken => return Ok(FenceOutcome::Alive),
            Refusal::Stranger => return Ok(FenceOutcome::Unknown),
            _ => {}
        }
        if !mutant!("tcp-fence-leaves-others-to-judge") {
            about.flag = 1;
        }
        for node in (0..self.links.session.node_count() as u8).filter(|&node| node != ARBITER) {
            if mutant!("tcp-fence-told-to-the-arbiter-only") {
                break;
            }
            let fenced = self.request(node, RequestKind::Fence, about);
            if !mutant!("tcp-fence-passes-over-the-absent") {
                fenced?;
            }
        }
        Ok(FenceOutcome::Fenced)
    }

    fn persist(&self) -> Result<(), FabricError> {
        for node in 0..self.links.session.node_count() {
            self.request(node as u8, RequestKind::Persist, Control { number: 0, flag: 0 })?;
        }
        Ok(())
    }
}
