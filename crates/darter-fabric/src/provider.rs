//! Any provider that a pool's name can select, chosen when the pool is opened, at the cost of one
//! branch per round trip. With one type for all of them, an index is compiled once.

use crate::foreign::{Foreign, ForeignEndpoint};
use crate::local::{LocalEndpoint, Memory};
#[cfg(feature = "tcp")]
use crate::tcp::{Tcp, TcpEndpoint};
use crate::{
    Batch, Capabilities, Endpoint, Fabric, FabricError, FenceOutcome, GlobalAddr, Identity, Local,
    Membership, OnChipMemory, OpKind, Orphans, RemoteNodes, RemoteProcedures, ReplicaGroups, Suspect,
};
use std::fmt::Debug;
use std::sync::Arc;

/// Memory of this machine, memory nodes over TCP, or a provider of another crate.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Provider {
    /// This process's memory or a mapped file.
    Local(Local),
    /// Memory nodes.
    #[cfg(feature = "tcp")]
    Tcp(Tcp),
    /// A provider of another crate ([`Provider::foreign`]).
    Foreign(Foreign),
}

/// An endpoint of a [`Provider`].
#[derive(Debug)]
#[non_exhaustive]
pub enum ProviderEndpoint {
    /// This process's memory or a mapped file.
    Local(LocalEndpoint),
    /// Memory nodes.
    #[cfg(feature = "tcp")]
    Tcp(TcpEndpoint),
    /// A provider of another crate.
    Foreign(ForeignEndpoint),
}

impl Provider {
    /// Wraps a provider of another crate. Each of its round trips allocates; prefetches, peeks and
    /// simulation observers are not forwarded.
    pub fn foreign<F: Fabric<Endpoint: Debug> + Debug>(fabric: F) -> Self {
        Self::Foreign(Foreign::new(fabric))
    }
}

/// Applies the same expression to each provider.
macro_rules! each {
    ($self:expr, $inner:ident => $what:expr) => {
        match $self {
            Self::Local($inner) => $what,
            #[cfg(feature = "tcp")]
            Self::Tcp($inner) => $what,
            Self::Foreign($inner) => $what,
        }
    };
}

impl Membership for Provider {
    fn claim(&self, slot: u32) -> Result<Box<dyn Identity>, FabricError> {
        each!(self, inner => inner.claim(slot))
    }

    fn fence(&self, suspect: Suspect) -> Result<FenceOutcome, FabricError> {
        each!(self, inner => inner.fence(suspect))
    }
}

impl Fabric for Provider {
    type Endpoint = ProviderEndpoint;

    fn endpoint(&self) -> Result<ProviderEndpoint, FabricError> {
        Ok(match self {
            Self::Local(inner) => ProviderEndpoint::Local(inner.endpoint()?),
            #[cfg(feature = "tcp")]
            Self::Tcp(inner) => ProviderEndpoint::Tcp(inner.endpoint()?),
            Self::Foreign(inner) => ProviderEndpoint::Foreign(inner.endpoint()?),
        })
    }

    #[inline]
    fn nodes(&self) -> usize {
        each!(self, inner => inner.nodes())
    }

    #[inline]
    fn node_bytes(&self, node: u8) -> u64 {
        each!(self, inner => inner.node_bytes(node))
    }

    fn capabilities(&self) -> Capabilities {
        each!(self, inner => inner.capabilities())
    }

    fn persist(&self) -> Result<(), FabricError> {
        each!(self, inner => inner.persist())
    }

    fn verify(&self) -> Result<(), FabricError> {
        each!(self, inner => inner.verify())
    }

    fn notes(&self) -> Vec<String> {
        each!(self, inner => inner.notes())
    }

    #[inline]
    fn remote_nodes(&self) -> &dyn RemoteNodes {
        each!(self, inner => inner.remote_nodes())
    }

    fn replica_groups(&self) -> &dyn ReplicaGroups {
        each!(self, inner => inner.replica_groups())
    }

    fn on_chip_memory(&self) -> &dyn OnChipMemory {
        each!(self, inner => inner.on_chip_memory())
    }
}

impl Endpoint for ProviderEndpoint {
    #[inline]
    fn batch(&mut self) -> Batch {
        each!(self, inner => inner.batch())
    }

    #[inline]
    fn recycle(&mut self, batch: Batch) {
        each!(self, inner => inner.recycle(batch));
    }

    #[inline]
    async fn submit(&mut self, batch: Batch) -> Result<Batch, FabricError> {
        each!(self, inner => inner.submit(batch).await)
    }

    fn procedures(&mut self) -> Option<&mut dyn RemoteProcedures> {
        each!(self, inner => inner.procedures())
    }

    #[inline]
    fn prefetch(&self, addr: GlobalAddr, words: usize) {
        each!(self, inner => inner.prefetch(addr, words));
    }

    #[inline]
    fn peek(&self, addr: GlobalAddr) -> Option<u64> {
        each!(self, inner => inner.peek(addr))
    }

    #[inline]
    fn memory(&self) -> Option<Memory<'_>> {
        each!(self, inner => inner.memory())
    }

    #[inline]
    fn in_flight(&self) -> usize {
        each!(self, inner => inner.in_flight())
    }

    fn orphans(&self) -> Option<Arc<dyn Orphans>> {
        each!(self, inner => inner.orphans())
    }

    fn now_ms(&self) -> u64 {
        each!(self, inner => inner.now_ms())
    }

    async fn pause(&mut self) {
        each!(self, inner => inner.pause().await);
    }

    #[inline]
    fn begin(&mut self, kind: OpKind) {
        each!(self, inner => inner.begin(kind));
    }
}
