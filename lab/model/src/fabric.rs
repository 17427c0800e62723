//! The fabric and its endpoints, as the processes of a modelled cluster see them.

use super::call_flight::{CallResult, Request};
use super::nic::PS;
use super::parameters::ModelSpec;
use super::report::Report;
use super::world::{Cost, Happening, World};
use darter_fabric::{
    Batch, CALL_WORDS_MAX, CallFault, Calling, Capabilities, Durability, Endpoint, Fabric, FabricError,
    FenceOutcome, GlobalAddr, Identity, Membership, NodeProcedures, OnChipMemory, OpKind, Orphans,
    Procedures, RemoteProcedures, Spares, Suspect, verify_request,
};
use parking_lot::{Mutex, MutexGuard};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// Nanoseconds of [`Endpoint::pause`].
const PAUSE_NS: u64 = 1_000_000;

/// A modelled cluster seen from one of its compute nodes. Clones are the same process there.
#[derive(Clone, Debug)]
pub struct Model {
    spec: Arc<ModelSpec>,
    world: Arc<Mutex<World>>,
    compute_node: u32,
    /// The procedures that can be called through this handle and its clones.
    procedures: NodeProcedures,
}

impl Model {
    /// Returns a cluster whose memory is zeros, seen from compute node 0, at time 0.
    ///
    /// # Errors
    /// Fails if the description is invalid.
    pub fn new(spec: &ModelSpec) -> Result<Self, FabricError> {
        spec.verify().map_err(|error| FabricError::geometry(error.to_string()))?;
        let world = Arc::new(Mutex::new(World::new(spec)));
        Ok(Self {
            spec: Arc::new(spec.clone()),
            world,
            compute_node: 0,
            procedures: NodeProcedures::default(),
        })
    }

    /// Returns the same cluster seen from a process of another compute node, which must exist.
    #[must_use]
    pub fn compute_node(&self, number: usize) -> Self {
        assert!((number as u64) < self.spec.compute_nodes, "compute node {number} does not exist");
        Self { compute_node: number as u32, ..self.clone() }
    }

    /// Returns the same cluster with procedures at a node, which endpoints of the returned handle
    /// and its clones can call. They run on the node's cores, and take effect at one instant each.
    ///
    /// # Errors
    /// [`FabricError::OutOfBounds`] if there is no such node.
    pub fn with_procedures(&self, node: u8, procedures: Procedures) -> Result<Self, FabricError> {
        self.admit_node(node)?;
        let mut served = self.clone();
        served.procedures.set(node, procedures);
        Ok(served)
    }

    fn admit_node(&self, node: u8) -> Result<(), FabricError> {
        if usize::from(node) < self.nodes() {
            return Ok(());
        }
        Err(FabricError::out_of_bounds(GlobalAddr::new(node, 0), 0, 0))
    }

    /// Returns the cluster's parameters.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// Returns the nanoseconds of virtual time: that of the calling task's thread, or of the latest
    /// event outside of tasks.
    pub fn now_ns(&self) -> u64 {
        self.world().now() / PS
    }

    /// Lets the running task's thread compute for `ns` nanoseconds; does nothing outside of tasks.
    pub fn work_ns(&self, ns: u64) {
        self.world().work(ns.saturating_mul(PS));
    }

    /// Begins a measurement: [`Model::report`] covers the time from here on.
    pub fn measure(&self) {
        self.world().measure();
    }

    /// Returns the utilization of all resources since [`Model::measure`], or since the beginning.
    pub fn report(&self) -> Report {
        Report::of(&self.spec, &self.world())
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock()
    }
}

/// A held member slot.
#[derive(Debug)]
struct ModelIdentity {
    model: Model,
    slot: u32,
}

impl Identity for ModelIdentity {
    fn holder(&self) -> u64 {
        u64::from(self.model.compute_node) + 1
    }
}

impl Drop for ModelIdentity {
    fn drop(&mut self) {
        self.model.world().release(self.slot, self.model.compute_node);
    }
}

impl Membership for Model {
    fn claim(&self, slot: u32) -> Result<Box<dyn Identity>, FabricError> {
        self.world().claim(slot, self.compute_node)?;
        Ok(Box::new(ModelIdentity { model: self.clone(), slot }))
    }

    fn fence(&self, suspect: Suspect) -> Result<FenceOutcome, FabricError> {
        Ok(if self.world().holds(suspect) { FenceOutcome::Alive } else { FenceOutcome::Fenced })
    }
}

impl OnChipMemory for Model {
    fn place(&self, addr: GlobalAddr, bytes: u64) -> bool {
        self.world().place_on_chip(addr, bytes)
    }
}

impl Fabric for Model {
    type Endpoint = ModelEndpoint;

    fn endpoint(&self) -> Result<ModelEndpoint, FabricError> {
        let orphans = Arc::new(AtomicUsize::new(0));
        Ok(ModelEndpoint { model: self.clone(), spares: Spares::default(), orphans })
    }

    fn nodes(&self) -> usize {
        self.spec.memory_nodes as usize
    }

    fn node_bytes(&self, _: u8) -> u64 {
        self.spec.memory_bytes
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered_batches: true,
            pure_cas: true,
            global_atomics: true,
            on_chip_bytes: self.spec.onchip_bytes,
            persistent: false,
            durability: Durability::Never,
            inline_bytes: self.spec.inline_bytes as u32,
            calls: true,
            reads_only: false,
            failover: Duration::ZERO,
        }
    }

    fn persist(&self) -> Result<(), FabricError> {
        Ok(())
    }

    fn on_chip_memory(&self) -> &dyn OnChipMemory {
        self
    }
}

/// One modelled client's connection, from its compute node.
#[derive(Debug)]
pub struct ModelEndpoint {
    model: Model,
    spares: Spares,
    /// Batches in flight whose futures were dropped.
    orphans: Arc<AtomicUsize>,
}

/// The same count, for other owners.
#[derive(Debug)]
struct ModelOrphans(Arc<AtomicUsize>);

impl Orphans for ModelOrphans {
    fn in_flight(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Endpoint for ModelEndpoint {
    #[inline]
    fn batch(&mut self) -> Batch {
        self.spares.batch()
    }

    #[inline]
    fn recycle(&mut self, batch: Batch) {
        self.spares.recycle(batch);
    }

    fn submit(&mut self, batch: Batch) -> impl Future<Output = Result<Batch, FabricError>> + Send {
        Submission { endpoint: self, state: ModelBatchState::Unposted(batch) }
    }

    fn in_flight(&self) -> usize {
        self.orphans.load(Ordering::Relaxed)
    }

    fn orphans(&self) -> Option<Arc<dyn Orphans>> {
        Some(Arc::new(ModelOrphans(Arc::clone(&self.orphans))))
    }

    fn now_ms(&self) -> u64 {
        self.model.world().now_ms()
    }

    fn pause(&mut self) -> impl Future<Output = ()> + Send {
        let model = self.model.clone();
        let mut until = None;
        std::future::poll_fn(move |_| {
            let mut world = model.world();
            let now = world.now();
            let deadline = *until.get_or_insert(now.saturating_add(PAUSE_NS * PS));
            let Some((task, _)) = world.running else {
                world.clock = world.clock.max(deadline);
                return Poll::Ready(());
            };
            if now >= deadline {
                return Poll::Ready(());
            }
            world.push(deadline, Happening::Run { task, cost: Cost::Wake });
            Poll::Pending
        })
    }

    fn procedures(&mut self) -> Option<&mut dyn RemoteProcedures> {
        Some(self)
    }

    fn begin(&mut self, _: OpKind) {
        let mut world = self.model.world();
        let op = world.prices.op;
        world.work(op);
    }
}

impl RemoteProcedures for ModelEndpoint {
    fn call(&mut self, node: u8, procedure: u64, words: Vec<u64>) -> Calling<'_> {
        Box::pin(async move {
            self.model.admit_node(node)?;
            let refused = |fault: CallFault| fault.of(node, procedure);
            let procedures = self.model.procedures.of(node).map_err(refused)?;
            verify_request(words.len(), CALL_WORDS_MAX).map_err(refused)?;
            let request = Request { procedures, procedure, words };
            let running = self.model.world().running;
            let Some((task, _)) = running else {
                return request.run().map_err(refused);
            };
            let call = self.model.world().post_call(task, self.model.compute_node, node, request);
            let mut waiting = WaitingCall { endpoint: self, call: Some(call) };
            std::future::poll_fn(|_| waiting.poll()).await.map_err(refused)
        })
    }
}

/// A call that its future waits for. If dropped before the reply has arrived, the procedure still
/// runs.
struct WaitingCall<'e> {
    endpoint: &'e ModelEndpoint,
    /// `None` once its outcome was taken.
    call: Option<u32>,
}

impl WaitingCall<'_> {
    fn poll(&mut self) -> Poll<CallResult> {
        let Some(outcome) = self.call.and_then(|call| self.endpoint.model.world().take_call(call)) else {
            return Poll::Pending;
        };
        self.call = None;
        Poll::Ready(outcome)
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call {
            self.endpoint.model.world().orphan_call(call, &self.endpoint.orphans);
        }
    }
}

enum ModelBatchState {
    Unposted(Batch),
    Posted(u32),
    Done,
}

/// The future of a batch. If dropped before its end, the verbs stay in flight.
struct Submission<'e> {
    endpoint: &'e mut ModelEndpoint,
    state: ModelBatchState,
}

impl Future for Submission<'_> {
    type Output = Result<Batch, FabricError>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut world = this.endpoint.model.world.lock();
        match std::mem::replace(&mut this.state, ModelBatchState::Done) {
            ModelBatchState::Unposted(mut batch) => {
                if let Err(error) = world.admit(&batch) {
                    return Poll::Ready(Err(error));
                }
                let Some((task, _)) = world.running.filter(|_| !batch.is_empty()) else {
                    world.execute_all(&mut batch);
                    return Poll::Ready(Ok(batch));
                };
                this.state =
                    ModelBatchState::Posted(world.post(task, this.endpoint.model.compute_node, batch));
                Poll::Pending
            }
            ModelBatchState::Posted(flight) => {
                let landed = world.take(flight);
                if landed.is_none() {
                    this.state = ModelBatchState::Posted(flight);
                }
                landed.map_or(Poll::Pending, |batch| Poll::Ready(Ok(batch)))
            }
            ModelBatchState::Done => Poll::Pending,
        }
    }
}

impl Drop for Submission<'_> {
    fn drop(&mut self) {
        if let ModelBatchState::Posted(flight) = self.state {
            self.endpoint.model.world().orphan(flight, &self.endpoint.orphans);
        }
    }
}
