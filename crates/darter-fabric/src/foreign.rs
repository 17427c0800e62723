//! A provider of another crate behind a pointer, so that [`crate::Provider`] need not name it: each
//! of its round trips allocates a future. For providers whose real-time speed does not matter, such
//! as models and simulations.

use crate::{
    Batch, Capabilities, Endpoint, Fabric, FabricError, FenceOutcome, Identity, Membership, OnChipMemory,
    OpKind, Orphans, RemoteNodes, RemoteProcedures, ReplicaGroups, Suspect,
};
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A provider of another crate.
#[derive(Clone, Debug)]
pub struct Foreign(Arc<dyn AnyFabric>);

/// An endpoint of a [`Foreign`] provider.
#[derive(Debug)]
pub struct ForeignEndpoint(Box<dyn AnyEndpoint>);

impl Foreign {
    /// Wraps a provider.
    pub(crate) fn new<F: Fabric<Endpoint: Debug> + Debug>(fabric: F) -> Self {
        Self(Arc::new(fabric))
    }
}

/// [`Fabric`] without its type of endpoints.
trait AnyFabric: Membership + Debug + Send + Sync {
    fn endpoint(&self) -> Result<ForeignEndpoint, FabricError>;
    fn nodes(&self) -> usize;
    fn node_bytes(&self, node: u8) -> u64;
    fn capabilities(&self) -> Capabilities;
    fn persist(&self) -> Result<(), FabricError>;
    fn verify(&self) -> Result<(), FabricError>;
    fn notes(&self) -> Vec<String>;
    fn remote_nodes(&self) -> &dyn RemoteNodes;
    fn replica_groups(&self) -> &dyn ReplicaGroups;
    fn on_chip_memory(&self) -> &dyn OnChipMemory;
}

impl<F: Fabric<Endpoint: Debug> + Debug> AnyFabric for F {
    fn endpoint(&self) -> Result<ForeignEndpoint, FabricError> {
        Ok(ForeignEndpoint(Box::new(Fabric::endpoint(self)?)))
    }

    fn nodes(&self) -> usize {
        Fabric::nodes(self)
    }

    fn node_bytes(&self, node: u8) -> u64 {
        Fabric::node_bytes(self, node)
    }

    fn capabilities(&self) -> Capabilities {
        Fabric::capabilities(self)
    }

    fn persist(&self) -> Result<(), FabricError> {
        Fabric::persist(self)
    }

    fn verify(&self) -> Result<(), FabricError> {
        Fabric::verify(self)
    }

    fn notes(&self) -> Vec<String> {
        Fabric::notes(self)
    }

    fn remote_nodes(&self) -> &dyn RemoteNodes {
        Fabric::remote_nodes(self)
    }

    fn replica_groups(&self) -> &dyn ReplicaGroups {
        Fabric::replica_groups(self)
    }

    fn on_chip_memory(&self) -> &dyn OnChipMemory {
        Fabric::on_chip_memory(self)
    }
}

impl Membership for Foreign {
    fn claim(&self, slot: u32) -> Result<Box<dyn Identity>, FabricError> {
        self.0.claim(slot)
    }

    fn fence(&self, suspect: Suspect) -> Result<FenceOutcome, FabricError> {
        self.0.fence(suspect)
    }
}

impl Fabric for Foreign {
    type Endpoint = ForeignEndpoint;

    fn endpoint(&self) -> Result<ForeignEndpoint, FabricError> {
        self.0.endpoint()
    }

    fn nodes(&self) -> usize {
        self.0.nodes()
    }

    fn node_bytes(&self, node: u8) -> u64 {
        self.0.node_bytes(node)
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn persist(&self) -> Result<(), FabricError> {
        self.0.persist()
    }

    fn verify(&self) -> Result<(), FabricError> {
        self.0.verify()
    }

    fn notes(&self) -> Vec<String> {
        self.0.notes()
    }

    fn remote_nodes(&self) -> &dyn RemoteNodes {
        self.0.remote_nodes()
    }

    fn replica_groups(&self) -> &dyn ReplicaGroups {
        self.0.replica_groups()
    }

    fn on_chip_memory(&self) -> &dyn OnChipMemory {
        self.0.on_chip_memory()
    }
}

/// [`Endpoint`] with futures behind pointers.
trait AnyEndpoint: Debug + Send {
    fn batch(&mut self) -> Batch;
    fn recycle(&mut self, batch: Batch);
    fn submit(
        &mut self,
        batch: Batch,
    ) -> Pin<Box<dyn Future<Output = Result<Batch, FabricError>> + Send + '_>>;
    fn procedures(&mut self) -> Option<&mut dyn RemoteProcedures>;
    fn in_flight(&self) -> usize;
    fn orphans(&self) -> Option<Arc<dyn Orphans>>;
    fn now_ms(&self) -> u64;
    fn pause(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    fn begin(&mut self, kind: OpKind);
}

impl<E: Endpoint + Debug> AnyEndpoint for E {
    fn batch(&mut self) -> Batch {
        Endpoint::batch(self)
    }

    fn recycle(&mut self, batch: Batch) {
        Endpoint::recycle(self, batch);
    }

    fn submit(
        &mut self,
        batch: Batch,
    ) -> Pin<Box<dyn Future<Output = Result<Batch, FabricError>> + Send + '_>> {
        Box::pin(Endpoint::submit(self, batch))
    }

    fn procedures(&mut self) -> Option<&mut dyn RemoteProcedures> {
        Endpoint::procedures(self)
    }

    fn in_flight(&self) -> usize {
        Endpoint::in_flight(self)
    }

    fn orphans(&self) -> Option<Arc<dyn Orphans>> {
        Endpoint::orphans(self)
    }

    fn now_ms(&self) -> u64 {
        Endpoint::now_ms(self)
    }

    fn pause(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(Endpoint::pause(self))
    }

    fn begin(&mut self, kind: OpKind) {
        Endpoint::begin(self, kind);
    }
}

impl Endpoint for ForeignEndpoint {
    fn batch(&mut self) -> Batch {
        self.0.batch()
    }

    fn recycle(&mut self, batch: Batch) {
        self.0.recycle(batch);
    }

    fn submit(&mut self, batch: Batch) -> impl Future<Output = Result<Batch, FabricError>> + Send {
        self.0.submit(batch)
    }

    fn procedures(&mut self) -> Option<&mut dyn RemoteProcedures> {
        self.0.procedures()
    }

    fn in_flight(&self) -> usize {
        self.0.in_flight()
    }

    fn orphans(&self) -> Option<Arc<dyn Orphans>> {
        self.0.orphans()
    }

    fn now_ms(&self) -> u64 {
        self.0.now_ms()
    }

    fn pause(&mut self) -> impl Future<Output = ()> + Send {
        self.0.pause()
    }

    fn begin(&mut self, kind: OpKind) {
        self.0.begin(kind);
    }
}
