//! The contract of every provider: a [`Fabric`] that hands out [`Endpoint`]s, one to a thread or
//! task.
//!
//! - One **round trip** is one await of [`Endpoint::submit`]: verbs posted together, to however
//!   many memory nodes.
//! - Of two verbs of one batch to one memory node the second executes behind the first if the first
//!   is a WRITE, the second is a READ, or the second is [fenced](Batch::fence); other pairs, and
//!   verbs to different nodes, in any order.
//! - Only aligned 8-byte words are atomic.
//! - A CAS or FAA is atomic to those of all other clients that the provider lets in, and to nothing
//!   else: it may read the word and write it later, a CAS that fails what it found, and a WRITE
//!   between the two is lost. So no word is changed by CAS and by WRITE at a time, and none by a
//!   memory node's own processor beside its device.
//! - A **call** ([`Endpoint::call`]) is the one thing that a memory node's processor does for a
//!   client; a provider need not have it ([`Capabilities::calls`]).
//! - Dropping the future of `submit` is safe: verbs already posted may still land, later ones never
//!   do.

use crate::replica_status::{ReplicaComparison, ReplicaStatus, no_group};
use crate::{Batch, Counters, FabricError, GlobalAddr, OpKind, lease_clock};
use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// What a provider can do beyond the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a promise of its own")]
pub struct Capabilities {
    /// All verbs of one batch to one node execute in posting order, fenced or not.
    pub ordered_batches: bool,
    /// A CAS that fails changes nothing, and writes nothing back either.
    pub pure_cas: bool,
    /// Atomics are atomic to all accesses of the word by the memory node's processor too. An RDMA
    /// device's are so to each other only.
    pub global_atomics: bool,
    /// Bytes of on-chip NIC memory a node offers for locks, 0 when none.
    pub on_chip_bytes: u64,
    /// What was written survives the end of every process.
    pub persistent: bool,
    /// When what a completed batch has written, or read, survives a power failure.
    pub durability: Durability,
    /// Payload bytes that travel inside the request.
    pub inline_bytes: u32,
    /// Procedures can be called, where a node has any ([`Endpoint::call`]).
    pub calls: bool,
    /// How long a node may be silent while another replica takes its place. Leases must be longer.
    pub failover: Duration,
}

/// When what a batch has written survives a power failure, and what it has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// When the system has written it back, which nobody is told; [`Fabric::persist`] has it do so.
    #[default]
    Never,
    /// When the batch completes.
    OnCompletion,
    /// When another verb behind it completes.
    ByVerb,
}

impl Durability {
    /// Returns the name in reports and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::OnCompletion => "on-completion",
            Self::ByVerb => "by-verb",
        }
    }
}

/// The outcome of an attempt to fence a client: afterwards its verbs can land no
/// more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceOutcome {
    /// The client is gone or shut out; its epoch may be ignored and its blocks adopted.
    Fenced,
    /// The client lives; leave it alone.
    Alive,
    /// The provider does not know. The client is alive if it renews its lease.
    Unknown,
}

/// Holds a client's identity at the provider until dropped; its loss is what proves death to
/// others.
pub trait Identity: Send + Sync + std::fmt::Debug {
    /// Returns the provider's number for the holder, by which others name it in a [`Suspect`]; 0 if
    /// the slot suffices.
    fn holder(&self) -> u64 {
        0
    }
}

/// A client that may be dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The client slot it took.
    pub slot: u32,
    /// [`Identity::holder`], as the client published it.
    pub holder: u64,
    /// It has been silent for longer than its lease: a provider that can shut it out does so even
    /// if it may live.
    pub lapsed: bool,
}

/// What an endpoint's dropped futures have posted.
pub trait Orphans: Send + Sync + std::fmt::Debug {
    /// [`Endpoint::in_flight`].
    fn in_flight(&self) -> usize;
}

/// The state of a range of memory, as its allocator reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectState {
    /// Allocated as one object; its contents are undefined until they are written.
    Allocated,
    /// Unlinked, with nothing left that leads to it: free as soon as the global epoch is two beyond
    /// this stamp. So a client that is pinned later than the stamp may not touch it.
    Retired(u64),
    /// Free: no client may touch it until it is allocated again.
    Free,
    /// The same, of a range parts of which may have been free before.
    Reclaimed,
    /// Not managed as objects.
    Unmanaged,
}

/// What a pool's directory says of a node that cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedNode {
    /// Its address, as a pool's name has it.
    pub address: String,
    /// Bytes of its region.
    pub bytes: u64,
    /// What [`Fabric::node_id`] returned when it was made part of the pool.
    pub id: u64,
}

/// A way to reach the memory nodes of one pool.
pub trait Fabric: Clone + Send + Sync + 'static {
    /// What one thread or task posts through.
    type Endpoint: Endpoint;

    /// Opens an endpoint.
    ///
    /// # Errors
    /// Fails if a memory node cannot be reached.
    fn endpoint(&self) -> Result<Self::Endpoint, FabricError>;

    /// Memory nodes in the pool, 1 to 256.
    fn nodes(&self) -> usize;

    /// Bytes in a node's region, a multiple of 8.
    fn node_bytes(&self, node: u8) -> u64;

    /// Returns the address of a node, as a pool's name has it; `None` if nodes have none.
    fn node_address(&self, _node: u8) -> Option<String> {
        None
    }

    /// Reaches one more node at an address; its number is that of the nodes so far. All endpoints
    /// can use it afterwards.
    ///
    /// # Errors
    /// Fails if it cannot be reached, is one of the others, or pools of this kind cannot grow.
    fn add_node(&self, _node: u8, _address: &str) -> Result<(), FabricError> {
        Err(FabricError::geometry(
            "a pool of this kind cannot grow; make a larger one, or use memory nodes (tcp://)",
        ))
    }

    /// Returns a number that tells a node's memory from that of every other node, and from its own
    /// before a restart that lost it; `None` if nodes have none, or this one was never reached.
    fn node_id(&self, _node: u8) -> Option<u64> {
        None
    }

    /// Takes in a node of the pool that cannot be reached now: the next one, or one that was named
    /// when the fabric was made. Verbs to it fail until a node with this id answers at its address.
    ///
    /// # Errors
    /// Fails if the node is known already, or nodes have no ids.
    fn expect_node(&self, node: u8, _expected: &ExpectedNode) -> Result<(), FabricError> {
        Err(FabricError::Unreachable { node })
    }

    /// Whether the last attempt to reach a node has failed. New objects had better lie elsewhere.
    #[inline]
    fn is_absent(&self, _node: u8) -> bool {
        false
    }

    /// Whether a node was found to have other memory than the pool's, at the last attempt to reach
    /// it: it was restarted without its contents. Such a node is absent.
    #[inline]
    fn is_lost(&self, _node: u8) -> bool {
        false
    }

    /// Treats a node that was reached, and does not have the pool's memory, as a node that was never
    /// reached: [`Fabric::node_bytes`] is 0 until [`Fabric::expect_node`] is called.
    fn disown_node(&self, _node: u8) {}

    /// Looks, without waiting, whether absent nodes can be reached again.
    fn look_for_absent(&self) {}

    /// Removes the last node if it has this number: it turned out not to be part of the pool.
    fn forget_node(&self, _node: u8) {}

    /// Returns how the replicas of a node are, if it is a memory group; none otherwise.
    fn replicas(&self, _node: u8) -> Vec<ReplicaStatus> {
        Vec::new()
    }

    /// Compares the memories of a node's replicas, if it is a memory group, part by part, each when
    /// all have the same records. Waits for nodes in the calling thread.
    fn compare_replicas(&self, _node: u8) -> ReplicaComparison {
        ReplicaComparison::default()
    }

    /// Has a memory group's primary hand over to the replica at an address, and waits until that
    /// serves.
    ///
    /// # Errors
    /// Fails if the node is no group, that is no backup of it, or does not serve within `patience`.
    fn hand_over(&self, node: u8, _to: &str, _patience: Duration) -> Result<(), FabricError> {
        Err(no_group(node))
    }

    /// Returns what this provider can do.
    fn capabilities(&self) -> Capabilities;

    /// Has a node's NIC serve atomics on these words from its own memory (Sherman, section 2.1), as
    /// long as there is room; returns whether it does. Other providers treat them as any other
    /// words.
    fn place_on_chip(&self, _addr: GlobalAddr, _bytes: u64) -> bool {
        false
    }

    /// Remarks an operator should see once: huge pages refused, memory not persistent, and the
    /// like.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Notes what becomes of a range of memory, so that a simulation can report uses of memory that
    /// is free or was never written. Other providers ignore it.
    #[inline]
    fn note_object(&self, _addr: GlobalAddr, _bytes: u64, _state: ObjectState) {}

    /// Notes that every operation pinned at this epoch or before is held to be over, so that a
    /// simulation can report those that are not. Other providers ignore it.
    #[inline]
    fn note_grace(&self, _stamp: u64) {}

    /// Takes client slot `slot` for this process, to be held as long as it may write.
    ///
    /// # Errors
    /// [`FabricError::IdentityTaken`] when another live process holds it.
    fn claim(&self, slot: u32) -> Result<Box<dyn Identity>, FabricError>;

    /// Ensures that a client can write no more, or reports that it lives.
    ///
    /// # Errors
    /// Fails if a memory node cannot be reached, so that nothing is known.
    fn fence(&self, suspect: Suspect) -> Result<FenceOutcome, FabricError>;

    /// Makes everything written so far survive a power failure, where the provider is persistent.
    ///
    /// # Errors
    /// Fails if the medium refuses.
    fn persist(&self) -> Result<(), FabricError>;

    /// Says whether what was read is of one state of the memory: fails if this is a snapshot of
    /// memory that has changed since.
    ///
    /// # Errors
    /// As said, and if the system refuses to look.
    fn verify(&self) -> Result<(), FabricError> {
        Ok(())
    }
}

/// One thread's or task's connection to the memory nodes.
pub trait Endpoint: Send + 'static {
    /// Returns an empty batch, with buffers from earlier ones where possible.
    fn batch(&mut self) -> Batch;

    /// Gives a batch's buffers back for reuse.
    fn recycle(&mut self, batch: Batch);

    /// Posts the batch and waits for all of it: one round trip.
    fn submit(&mut self, batch: Batch) -> impl Future<Output = Result<Batch, FabricError>> + Send;

    /// Has memory node `node` run one of its procedures on these words, and waits for its answer:
    /// one round trip, which is counted apart from those of batches.
    ///
    /// Verbs of others take effect while the procedure runs, before and behind any of its own. If
    /// the future is dropped, a procedure that has been called runs all the same.
    ///
    /// # Errors
    /// [`FabricError::Call`] when the call was refused, the procedure failed, or its server ended;
    /// [`FabricError::Unreachable`] when nothing was sent; [`FabricError::Fenced`].
    fn call(
        &mut self,
        node: u8,
        procedure: u64,
        words: Vec<u64>,
    ) -> impl Future<Output = Result<Vec<u64>, FabricError>> + Send;

    /// Prefetches what a READ or WRITE of so many words is going to touch, if the memory is this
    /// machine's, so that its cache misses overlap with other work. Posts no verb; does nothing
    /// elsewhere.
    #[inline]
    fn prefetch(&self, _addr: GlobalAddr, _words: usize) {}

    /// Returns a guess at what a READ of a word would return, if that costs no verb. Only for
    /// [`Endpoint::prefetch`]: it is ordered with no verb.
    #[inline]
    fn glance(&self, _addr: GlobalAddr) -> Option<u64> {
        None
    }

    /// Batches posted by futures that were dropped and whose verbs have not all completed.
    #[inline]
    fn in_flight(&self) -> usize {
        self.orphans().map_or(0, |orphans| orphans.in_flight())
    }

    /// Returns a handle to the same count, valid also while this endpoint is idle or dropped;
    /// `None` if there are never any.
    #[inline]
    fn orphans(&self) -> Option<Arc<dyn Orphans>> {
        None
    }

    /// Returns milliseconds by this process's clock of leases, since its own beginning
    /// ([`crate::lease_clock`]). It never goes back, and it is not the wall clock. Two processes have
    /// different beginnings and rates: compare a reading with readings of the same process only, and
    /// store none in the pool.
    fn now_ms(&self) -> u64 {
        lease_clock().as_millis() as u64
    }

    /// Lets other tasks run for about a millisecond of that clock.
    fn pause(&mut self) -> impl Future<Output = ()> + Send {
        let mut yielded = false;
        std::future::poll_fn(move |context| {
            if std::mem::replace(&mut yielded, true) {
                std::thread::sleep(Duration::from_millis(1));
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }

    /// Returns whether the next allocation must find the pool full: a simulation fails each of them
    /// in turn.
    #[inline]
    fn refuses_allocation(&mut self) -> bool {
        false
    }

    /// Notes the epoch at which the operation under way is pinned, `None` out of any: with
    /// [`Fabric::note_object`], a simulation's way to report uses of memory that the pin does not
    /// protect.
    #[inline]
    fn note_pin(&mut self, _epoch: Option<u64>) {}

    /// Begins an operation of this kind; the following verbs belong to it. Counting decorators count
    /// per kind, and an endpoint over TCP reports that nothing was sent only if nothing of the whole
    /// operation was.
    #[inline]
    fn begin(&mut self, _kind: OpKind) {}

    /// Notifies counting decorators that the operation lost a race and goes on.
    #[inline]
    fn retried(&mut self) {}

    /// Returns what this endpoint's operations have cost so far, where a decorator counts.
    #[inline]
    fn counters(&self) -> Option<&Counters> {
        None
    }
}
