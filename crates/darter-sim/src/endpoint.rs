//! The fabric and its endpoints as used by simulated processes, and the controls of the simulation.

use super::calls::Caller;
use super::counts::SimCounts;
use super::journal::Journal;
use super::memory::{Misuse, Snapshot};
use super::world::{Life, World, holder_number};
use super::{Medium, Relaxations, Side};
use darter_fabric::{
    Batch, CALL_WORDS_MAX, CallFault, Calling, Capabilities, ClientObserver, Durability, Endpoint,
    ExpectedNode, Fabric, FabricError, FenceOutcome, GlobalAddr, Identity, Membership, MemoryObserver,
    ObjectState, Orphans, Procedures, RemoteNodes, RemoteProcedures, Suspect, verify_request,
};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

/// A simulated pool as seen by one simulated process. Clones belong to the same process.
#[derive(Clone, Debug)]
pub struct Sim {
    world: Arc<Mutex<World>>,
    process: u32,
}

impl Sim {
    /// Creates memory nodes of zeros, seen by process 0. Verbs execute as they are posted until
    /// [`Sim::schedule`].
    pub fn new(nodes: usize, bytes_per_node: u64) -> Self {
        Self { world: Arc::new(Mutex::new(World::new(nodes, bytes_per_node))), process: 0 }
    }

    /// Returns the same nodes as seen by another process.
    #[must_use]
    pub fn process(&self, process: u32) -> Self {
        Self { world: Arc::clone(&self.world), process }
    }

    /// Limits this process to the first `count` nodes, until more are added.
    pub fn limit_nodes(&self, count: usize) {
        self.world().limit(self.process, count);
    }

    /// Returns the number of this process.
    pub fn number(&self) -> u32 {
        self.process
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on verbs wait for an [`super::Executor`] (`true`), or execute as they are posted.
    pub fn schedule(&self, scheduled: bool) {
        self.world().direct = !scheduled;
    }

    /// Returns the current words of all nodes.
    pub fn snapshot(&self) -> Snapshot {
        let mut world = self.world();
        world.snapshots += 1;
        world.base = world.snapshots;
        let id = world.base;
        Snapshot { id, regions: world.nodes.iter_mut().map(super::memory::Memory::keep).collect() }
    }

    /// Restores the words of a snapshot of this simulation; forgets processes, identities and verbs
    /// in flight.
    pub fn restore(&self, snapshot: &Snapshot) {
        let forgotten = self.world().restore(snapshot);
        drop(forgotten);
    }

    /// Returns the counts since the last restore.
    pub fn counts(&self) -> SimCounts {
        self.world().counts
    }

    /// Returns the first misuse of memory since the last restore.
    pub fn misuse(&self) -> Option<Misuse> {
        self.world().misuse
    }

    /// Returns the first misuse since the last restore that was not a verb's: an object that was allocated,
    /// retired or freed while it must not be.
    pub fn wrong_free(&self) -> Option<Misuse> {
        self.world().wrong_free
    }

    /// Begins to record the changes of memory, until the next restore.
    pub fn keep_journal(&self) {
        self.world().journal = Some(Journal::default());
    }

    /// Describes the last change of each kind at an address, if a journal is kept.
    pub fn journal_of(&self, addr: GlobalAddr) -> Vec<String> {
        self.world().journal.as_ref().map(|journal| journal.of(addr)).unwrap_or_default()
    }

    /// Returns the objects that were allocated since the journal was begun and not freed, with their bytes.
    pub fn allocated(&self) -> Vec<(GlobalAddr, u64)> {
        self.world().journal.as_ref().map(Journal::in_use).unwrap_or_default()
    }

    /// Advances the clocks of all processes.
    pub fn advance_ms(&self, ms: u64) {
        self.world().clocks.common_ms += ms;
    }

    /// From now on the clocks of processes run at rates that differ by up to an eighth.
    pub fn let_clocks_drift(&self) {
        self.world().clocks.drift = true;
    }

    /// Weakens the guarantees of verbs by these relaxations, until the next restore.
    pub fn relax(&self, relaxations: Relaxations) {
        self.world().relaxations = relaxations;
    }

    /// Selects the side that executes the verbs of this process, until the next restore. The
    /// default is the device.
    pub fn reach_by(&self, side: Side) {
        self.world().set_side(self.process, side);
    }

    /// From now on the clocks advance by this number of milliseconds, instead of one, when a task
    /// has waited for them.
    pub fn set_pause_ms(&self, ms: u64) {
        self.world().clocks.pause_ms = ms;
    }

    /// Pauses or resumes this process. While it is paused none of its tasks runs, and a client can
    /// fence it.
    pub fn pause_process(&self, paused: bool) {
        let mut world = self.world();
        match (paused, world.life(self.process)) {
            (true, Life::Live) => world.set_life(self.process, Life::Paused),
            (false, Life::Paused) => world.set_life(self.process, Life::Live),
            _ => {}
        }
    }

    /// Returns whether this process was fenced.
    pub fn is_fenced(&self) -> bool {
        self.world().life(self.process) == Life::Fenced
    }

    /// Returns whether any process, though running, was fenced because its lease had lapsed, since the
    /// last restore. Clocks advance with the pauses of all tasks, also while a task of another process
    /// gets no turn.
    pub fn has_lapsed(&self) -> bool {
        self.world().has_lapsed
    }

    /// Cuts this process off from a node: verbs that were posted and not executed are lost, as are
    /// the replies to executed ones; new verbs fail.
    pub fn cut(&self, node: u8) {
        self.world().cut(self.process, node);
    }

    /// Connects this process to a node again.
    pub fn heal(&self, node: u8) {
        self.world().heal(self.process, node);
    }

    /// From now on no process reaches a node: its memory is gone for good. Verbs that were posted to it
    /// and not executed are lost, as are the replies to executed ones; new verbs fail.
    pub fn lose_node(&self, node: u8) {
        self.world().lose(node);
    }

    /// Lets all processes reach a node again that was lost, with the memory that it had.
    pub fn regain_node(&self, node: u8) {
        self.world().lost.retain(|lost| *lost != node);
    }

    /// Counts allocation requests of this process from now on, and refuses the request with this
    /// number.
    pub fn refuse_allocation(&self, number: Option<u64>) {
        *self.world().allocations_of(self.process) = (0, number);
    }

    /// Returns the number of allocation requests of this process since [`Sim::refuse_allocation`].
    pub fn allocations(&self) -> u64 {
        self.world().allocations.get(self.process as usize).map_or(0, |counts| counts.0)
    }

    pub(super) fn die(&self) {
        let mut world = self.world();
        if world.life(self.process) != Life::Fenced {
            world.set_life(self.process, Life::Dead);
        }
        for posted in world.posted.iter_mut().filter(|posted| posted.process == self.process) {
            posted.orphan = true;
        }
        world.posted.retain(|posted| posted.process != self.process || !posted.is_executed());
        world.calls.caller_died(self.process);
    }

    /// Kills this process without an executor: its posted verbs are lost, and its proof of life
    /// ends.
    pub fn kill(&self) {
        self.die();
        self.world().discard_verbs(self.process);
    }
}

/// A held member slot.
#[derive(Debug)]
struct SimIdentity {
    sim: Sim,
    slot: u32,
}

impl Identity for SimIdentity {
    fn holder(&self) -> u64 {
        holder_number(self.sim.process)
    }
}

impl Drop for SimIdentity {
    fn drop(&mut self) {
        let mut world = self.sim.world();
        // A dead process releases nothing: the client that fences it takes the slot.
        if world.admit(self.sim.process).is_ok() {
            world.release(self.slot, self.sim.process);
        }
    }
}

impl Membership for Sim {
    fn claim(&self, slot: u32) -> Result<Box<dyn Identity>, FabricError> {
        let mut world = self.world();
        world.admit(self.process)?;
        world.claim(slot, self.process)?;
        drop(world);
        Ok(Box::new(SimIdentity { sim: self.clone(), slot }))
    }

    fn fence(&self, suspect: Suspect) -> Result<FenceOutcome, FabricError> {
        let mut world = self.world();
        world.admit(self.process)?;
        Ok(world.fence(suspect))
    }
}

impl RemoteNodes for Sim {
    fn node_address(&self, node: u8) -> Option<String> {
        Some(format!("sim:{node}"))
    }

    fn node_id(&self, node: u8) -> Option<u64> {
        Some(u64::from(node) + 1)
    }

    fn is_absent(&self, node: u8) -> bool {
        self.world().lost.contains(&node)
    }

    /// Only a lost node can be absent when a process opens the pool.
    fn expect_node(&self, node: u8, _expected: &ExpectedNode) -> Result<(), FabricError> {
        if self.is_absent(node) { Ok(()) } else { Err(FabricError::Unreachable { node }) }
    }

    fn add_node(&self, node: u8, address: &str) -> Result<(), FabricError> {
        let mut world = self.world();
        world.admit(self.process)?;
        let is_next = usize::from(node) == world.reach(self.process) && usize::from(node) < world.nodes.len();
        if !is_next || address != format!("sim:{node}") {
            return Err(FabricError::geometry(format!("{address} is not node {node} of this simulation")));
        }
        world.limit(self.process, usize::from(node) + 1);
        Ok(())
    }

    fn forget_node(&self, node: u8) {
        let mut world = self.world();
        if world.reach(self.process) == usize::from(node) + 1 {
            world.limit(self.process, usize::from(node));
        }
    }

    /// From now on, batches of this process to the node fail, and are counted.
    fn retire_node(&self, node: u8, _expected: &ExpectedNode) -> Result<(), FabricError> {
        let mut world = self.world();
        world.admit(self.process)?;
        let reached = world.reach(self.process);
        if usize::from(node) > reached {
            return Err(FabricError::Unreachable { node });
        }
        world.limit(self.process, reached.max(usize::from(node) + 1));
        world.retired.push((self.process, node));
        Ok(())
    }
}

impl MemoryObserver for Sim {
    fn note_object(&self, addr: GlobalAddr, bytes: u64, state: ObjectState) {
        let mut world = self.world();
        // A process's notes on its own memory after it was fenced do not affect others.
        if world.admit(self.process).is_err() {
            return;
        }
        let Some(memory) = world.nodes.get_mut(usize::from(addr.node())) else { return };
        let stamp = memory.stamp(addr);
        let misuse = memory.note(addr, bytes, state);
        let by = (self.process, world.current);
        if let Some(journal) = &mut world.journal {
            journal.note(by, addr, bytes, state);
        }
        let is_early = state == ObjectState::Free && stamp.is_some_and(|stamp| world.is_pinned_by(stamp));
        let early = is_early.then_some(Misuse { what: "memory was freed while a pin protects it", addr });
        world.note_wrong_free(misuse.or(early));
    }

    fn note_grace(&self, stamp: u64) {
        let mut world = self.world();
        if world.admit(self.process).is_ok() && world.is_pinned_by(stamp) {
            let addr = GlobalAddr::NULL;
            let what = "a grace was considered over while an operation from before it was running";
            world.note_wrong_free(Some(Misuse { what, addr }));
        }
    }
}

impl Fabric for Sim {
    type Endpoint = SimEndpoint;

    fn endpoint(&self) -> Result<SimEndpoint, FabricError> {
        let mut world = self.world();
        world.admit(self.process)?;
        let id = world.new_endpoint();
        drop(world);
        Ok(SimEndpoint { sim: self.clone(), id, pin: None })
    }

    fn nodes(&self) -> usize {
        self.world().reach(self.process)
    }

    fn node_bytes(&self, node: u8) -> u64 {
        let world = self.world();
        let present = world.nodes.get(usize::from(node)).filter(|_| !world.lost.contains(&node));
        present.map_or(0, super::memory::Memory::bytes)
    }

    fn capabilities(&self) -> Capabilities {
        let (Relaxations { order, cas_writes_back, split_atomics }, medium) = {
            let world = self.world();
            (world.relaxations, world.medium)
        };
        Capabilities {
            ordered_batches: !order,
            pure_cas: !cas_writes_back,
            global_atomics: !split_atomics,
            on_chip_bytes: 0,
            persistent: true,
            durability: if medium == Medium::Never { Durability::Never } else { Durability::OnCompletion },
            inline_bytes: 0,
            calls: true,
            reads_only: false,
            failover: Duration::ZERO,
        }
    }

    fn persist(&self) -> Result<(), FabricError> {
        let mut world = self.world();
        world.admit(self.process)?;
        world.reach_all();
        Ok(())
    }

    fn remote_nodes(&self) -> &dyn RemoteNodes {
        self
    }

    fn memory_observer(&self) -> &dyn MemoryObserver {
        self
    }
}

/// Verbs that an endpoint has posted in futures that were dropped.
#[derive(Debug)]
struct SimOrphans {
    sim: Sim,
    endpoint: u64,
}

impl Orphans for SimOrphans {
    fn in_flight(&self) -> usize {
        self.sim.world().in_flight(self.endpoint)
    }
}

/// One simulated client's connection.
#[derive(Debug)]
pub struct SimEndpoint {
    sim: Sim,
    id: u64,
    /// The epoch at which its client is pinned.
    pin: Option<u64>,
}

impl SimEndpoint {
    /// Returns the process of a node's server and its procedures, if this process can currently
    /// call it.
    fn server_of(&self, node: u8, procedure: u64) -> Result<(u32, Procedures), FabricError> {
        let (world, process) = (self.sim.world(), self.sim.process);
        world.admit(process)?;
        if usize::from(node) >= world.reach(process) {
            return Err(FabricError::out_of_bounds(GlobalAddr::new(node, 0), 0, 0));
        }
        let Some((server, procedures)) = world.calls.server(node) else {
            return Err(CallFault::NoServer.of(node, procedure));
        };
        if !world.life(server).takes_calls() || world.is_cut(process, node) {
            return Err(FabricError::Unreachable { node });
        }
        Ok((server, procedures.clone()))
    }
}

impl Endpoint for SimEndpoint {
    fn batch(&mut self) -> Batch {
        self.sim.world().spare_batches.pop().unwrap_or_default()
    }

    fn recycle(&mut self, mut batch: Batch) {
        batch.clear();
        let mut world = self.sim.world();
        if world.spare_batches.len() < 64 {
            world.spare_batches.push(batch);
        }
    }

    fn submit(&mut self, batch: Batch) -> impl Future<Output = Result<Batch, FabricError>> + Send {
        Submission { endpoint: self, state: SimBatchState::Unposted(Some(batch)) }
    }

    fn in_flight(&self) -> usize {
        self.sim.world().in_flight(self.id)
    }

    fn orphans(&self) -> Option<Arc<dyn Orphans>> {
        Some(Arc::new(SimOrphans { sim: self.sim.clone(), endpoint: self.id }))
    }

    fn now_ms(&self) -> u64 {
        self.sim.world().clocks.of(self.sim.process)
    }

    fn pause(&mut self) -> impl Future<Output = ()> + Send {
        let sim = self.sim.clone();
        let mut slept = false;
        std::future::poll_fn(move |_| {
            let mut world = sim.world();
            if world.direct && !world.admits_direct() {
                return Poll::Pending;
            }
            if world.direct || std::mem::replace(&mut slept, true) {
                world.clocks.pause();
                return Poll::Ready(());
            }
            world.slept = true;
            Poll::Pending
        })
    }

    fn procedures(&mut self) -> Option<&mut dyn RemoteProcedures> {
        Some(self)
    }

    fn observer(&mut self) -> Option<&mut dyn ClientObserver> {
        Some(self)
    }
}

impl RemoteProcedures for SimEndpoint {
    fn call(&mut self, node: u8, procedure: u64, words: Vec<u64>) -> Calling<'_> {
        Box::pin(async move {
            let (server, procedures) = self.server_of(node, procedure)?;
            let refused = |fault: CallFault| fault.of(node, procedure);
            verify_request(words.len(), CALL_WORDS_MAX).map_err(refused)?;
            let sent = {
                let mut world = self.sim.world();
                let caller = Caller { task: world.current, process: self.sim.process, endpoint: self.id };
                let what = (procedure, words);
                if world.direct {
                    Err((procedures, what))
                } else {
                    Ok(world.calls.send(caller, node, (server, procedures), what))
                }
            };
            let id = match sent {
                Ok(id) => id,
                Err((procedures, (_, words))) => {
                    return procedures.run(procedure, words).await.map_err(refused);
                }
            };
            let waiting = WaitingCall { sim: &self.sim, id };
            let arrived = || waiting.sim.world().calls.take(id).map_or(Poll::Pending, Poll::Ready);
            std::future::poll_fn(|_| arrived()).await.map_err(refused)
        })
    }
}

impl ClientObserver for SimEndpoint {
    fn refuses_allocation(&mut self) -> bool {
        self.sim.world().refuses_allocation(self.sim.process)
    }

    fn note_pin(&mut self, epoch: Option<u64>) {
        self.pin = epoch;
        self.sim.world().note_pin(self.sim.process, self.id, epoch);
    }
}

impl Drop for SimEndpoint {
    fn drop(&mut self) {
        self.sim.world().note_pin(self.sim.process, self.id, None);
    }
}

/// A call that its future waits for. If it is dropped before the reply arrives, the procedure
/// continues.
struct WaitingCall<'e> {
    sim: &'e Sim,
    id: u64,
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        self.sim.world().calls.orphan(self.id);
    }
}

enum SimBatchState {
    Unposted(Option<Batch>),
    Posted(u64),
    Done,
}

/// The future of a batch. If it is dropped before its end, its verbs stay in flight.
struct Submission<'e> {
    endpoint: &'e mut SimEndpoint,
    state: SimBatchState,
}

impl Future for Submission<'_> {
    type Output = Result<Batch, FabricError>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut world = this.endpoint.sim.world();
        let process = this.endpoint.sim.process;
        match &mut this.state {
            SimBatchState::Unposted(batch) => {
                let batch = batch.take().unwrap_or_default();
                if let Err(error) = world.admit(process) {
                    this.state = SimBatchState::Done;
                    return Poll::Ready(Err(error));
                }
                if batch.is_empty() || world.direct {
                    this.state = SimBatchState::Done;
                    if !world.admits_direct() {
                        return Poll::Pending;
                    }
                    return Poll::Ready(world.execute_all(
                        process,
                        (this.endpoint.id, this.endpoint.pin),
                        batch,
                    ));
                }
                this.state =
                    SimBatchState::Posted(world.post(process, (this.endpoint.id, this.endpoint.pin), batch));
                Poll::Pending
            }
            SimBatchState::Posted(id) => match world.take(*id) {
                Some(result) => {
                    this.state = SimBatchState::Done;
                    Poll::Ready(result)
                }
                None => Poll::Pending,
            },
            SimBatchState::Done => Poll::Pending,
        }
    }
}

impl Drop for Submission<'_> {
    fn drop(&mut self) {
        if let SimBatchState::Posted(id) = self.state {
            self.endpoint.sim.world().orphan(id);
        }
    }
}
