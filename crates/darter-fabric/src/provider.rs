//! Any provider that a pool's name can select, chosen when the pool is opened: one branch a round
//! trip. With one type for all of them, an index is compiled once.

use crate::local::LocalEndpoint;
#[cfg(feature = "model")]
use crate::model::{Model, ModelEndpoint};
#[cfg(feature = "tcp")]
use crate::tcp::{Tcp, TcpEndpoint};
use crate::{
    Batch, Capabilities, Endpoint, ExpectedNode, Fabric, FabricError, FenceOutcome, GlobalAddr, Identity,
    Local, OpKind, Orphans, ReplicaComparison, ReplicaStatus, Suspect,
};
use std::sync::Arc;
use std::time::Duration;

/// Memory of this machine, memory nodes over TCP, or a modelled cluster.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Provider {
    /// This process's memory or a mapped file.
    Local(Local),
    /// Memory nodes.
    #[cfg(feature = "tcp")]
    Tcp(Tcp),
    /// A compute node of a modelled cluster.
    #[cfg(feature = "model")]
    Model(Model),
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
    /// A modelled cluster.
    #[cfg(feature = "model")]
    Model(ModelEndpoint),
}

/// Applies the same expression to each provider.
macro_rules! each {
    ($self:expr, $inner:ident => $what:expr) => {
        match $self {
            Self::Local($inner) => $what,
            #[cfg(feature = "tcp")]
            Self::Tcp($inner) => $what,
            #[cfg(feature = "model")]
            Self::Model($inner) => $what,
        }
    };
}

impl Fabric for Provider {
    type Endpoint = ProviderEndpoint;

    fn endpoint(&self) -> Result<ProviderEndpoint, FabricError> {
        Ok(match self {
            Self::Local(inner) => ProviderEndpoint::Local(inner.endpoint()?),
            #[cfg(feature = "tcp")]
            Self::Tcp(inner) => ProviderEndpoint::Tcp(inner.endpoint()?),
            #[cfg(feature = "model")]
            Self::Model(inner) => ProviderEndpoint::Model(inner.endpoint()?),
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

    fn node_address(&self, node: u8) -> Option<String> {
        each!(self, inner => inner.node_address(node))
    }

    fn add_node(&self, node: u8, address: &str) -> Result<(), FabricError> {
        each!(self, inner => inner.add_node(node, address))
    }

    fn node_id(&self, node: u8) -> Option<u64> {
        each!(self, inner => inner.node_id(node))
    }

    fn expect_node(&self, node: u8, expected: &ExpectedNode) -> Result<(), FabricError> {
        each!(self, inner => inner.expect_node(node, expected))
    }

    #[inline]
    fn is_absent(&self, node: u8) -> bool {
        each!(self, inner => inner.is_absent(node))
    }

    #[inline]
    fn is_lost(&self, node: u8) -> bool {
        each!(self, inner => inner.is_lost(node))
    }

    fn disown_node(&self, node: u8) {
        each!(self, inner => inner.disown_node(node));
    }

    fn look_for_absent(&self) {
        each!(self, inner => inner.look_for_absent());
    }

    fn forget_node(&self, node: u8) {
        each!(self, inner => inner.forget_node(node));
    }

    fn replicas(&self, node: u8) -> Vec<ReplicaStatus> {
        each!(self, inner => inner.replicas(node))
    }

    fn compare_replicas(&self, node: u8) -> ReplicaComparison {
        each!(self, inner => inner.compare_replicas(node))
    }

    fn hand_over(&self, node: u8, to: &str, patience: Duration) -> Result<(), FabricError> {
        each!(self, inner => inner.hand_over(node, to, patience))
    }

    fn capabilities(&self) -> Capabilities {
        each!(self, inner => inner.capabilities())
    }

    fn place_on_chip(&self, addr: GlobalAddr, bytes: u64) -> bool {
        each!(self, inner => inner.place_on_chip(addr, bytes))
    }

    fn notes(&self) -> Vec<String> {
        each!(self, inner => inner.notes())
    }

    fn claim(&self, slot: u32) -> Result<Box<dyn Identity>, FabricError> {
        each!(self, inner => inner.claim(slot))
    }

    fn fence(&self, suspect: Suspect) -> Result<FenceOutcome, FabricError> {
        each!(self, inner => inner.fence(suspect))
    }

    fn persist(&self) -> Result<(), FabricError> {
        each!(self, inner => inner.persist())
    }

    fn verify(&self) -> Result<(), FabricError> {
        each!(self, inner => inner.verify())
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

    async fn call(&mut self, node: u8, procedure: u64, words: Vec<u64>) -> Result<Vec<u64>, FabricError> {
        each!(self, inner => inner.call(node, procedure, words).await)
    }

    #[inline]
    fn prefetch(&self, addr: GlobalAddr, words: usize) {
        each!(self, inner => inner.prefetch(addr, words));
    }

    #[inline]
    fn glance(&self, addr: GlobalAddr) -> Option<u64> {
        each!(self, inner => inner.glance(addr))
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
