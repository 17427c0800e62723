//! The contract of every provider: a [`Fabric`] that opens [`Endpoint`]s, one for each thread or
//! task.
//!
//! - One **round trip** is one await of [`Endpoint::submit`]: verbs posted together, to any number
//!   of memory nodes.
//! - Of two verbs of one batch to one memory node, the second executes after the first if the first
//!   is a WRITE, the second is a READ, or the second is [fenced](crate::Batch::fence); all other
//!   pairs, and verbs to different nodes, execute in any order.
//! - Only aligned 8-byte words are atomic.
//! - A CAS or FAA is atomic with respect to the CASes and FAAs of all other clients of the
//!   provider, and to no other access: it may read the word and write it later, a CAS that fails
//!   writes the word that it found, and a WRITE between the two is lost. So no word may be changed
//!   by CAS and by WRITE at the same time, nor by a memory node's own processor while its device
//!   changes it.
//! - Dropping the future of `submit` is safe: verbs that were posted may still take effect, verbs
//!   that were not posted never do.
//!
//! A provider implements five methods of [`Fabric`], two of [`Membership`] and three of
//! [`Endpoint`]. All other abilities are separate traits, which a provider implements if it has
//! them: [`RemoteNodes`], [`ReplicaGroups`], [`OnChipMemory`], [`crate::RemoteProcedures`], and the
//! observers of a simulation ([`MemoryObserver`], [`crate::ClientObserver`]).

use crate::replica_status::no_group;
use crate::{
    Endpoint, FabricError, GlobalAddr, Membership, MemoryObserver, ObjectState, RemoteNodes,
    ReplicaComparison, ReplicaGroups, ReplicaStatus,
};
use std::time::Duration;

/// A way to reach the memory nodes of one pool.
pub trait Fabric: Membership + Clone + Send + Sync + 'static {
    /// The connection of one thread or task.
    type Endpoint: Endpoint;

    /// Opens an endpoint.
    ///
    /// # Errors
    /// Fails if a memory node cannot be reached.
    fn endpoint(&self) -> Result<Self::Endpoint, FabricError>;

    /// Returns the number of memory nodes in the pool, 1 to 256.
    fn nodes(&self) -> usize;

    /// Returns the bytes of a node's region, a multiple of 8; 0 if the node does not exist or its
    /// size is unknown.
    fn node_bytes(&self, node: u8) -> u64;

    /// Returns the abilities of this provider.
    fn capabilities(&self) -> Capabilities;

    /// Makes everything written so far survive a power failure, if the provider is persistent.
    ///
    /// # Errors
    /// Fails if the medium refuses.
    fn persist(&self) -> Result<(), FabricError>;

    /// Verifies that all reads so far saw one state of the memory.
    ///
    /// # Errors
    /// Fails if this is a snapshot of memory that has changed since, or if the system does not
    /// report whether it has.
    fn verify(&self) -> Result<(), FabricError> {
        Ok(())
    }

    /// Returns notes for an operator, to be printed once: for example that huge pages were refused
    /// or memory is not persistent.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the nodes as machines with addresses. Without this ability they have no addresses,
    /// are never absent, and none can be added.
    #[inline]
    fn remote_nodes(&self) -> &dyn RemoteNodes {
        &Unsupported
    }

    /// Returns the nodes as groups of replicas. Without this ability they have none.
    #[inline]
    fn replica_groups(&self) -> &dyn ReplicaGroups {
        &Unsupported
    }

    /// Returns the memory on the nodes' NICs. Without this ability it has no capacity.
    #[inline]
    fn on_chip_memory(&self) -> &dyn OnChipMemory {
        &Unsupported
    }

    /// Returns the observer of allocations and reclamation: a simulation's, or an observer that
    /// does nothing.
    #[inline]
    fn memory_observer(&self) -> &dyn MemoryObserver {
        &Unsupported
    }
}

/// The default implementation of abilities that a provider lacks.
struct Unsupported;

impl RemoteNodes for Unsupported {
    fn node_address(&self, _: u8) -> Option<String> {
        None
    }

    fn add_node(&self, _: u8, _: &str) -> Result<(), FabricError> {
        Err(FabricError::geometry(
            "a pool of this kind cannot grow; make a larger one, or use memory nodes (tcp://)",
        ))
    }

    fn forget_node(&self, _: u8) {}
}

impl ReplicaGroups for Unsupported {
    fn replicas(&self, _: u8) -> Vec<ReplicaStatus> {
        Vec::new()
    }

    fn compare_replicas(&self, _: u8) -> ReplicaComparison {
        ReplicaComparison::default()
    }

    fn hand_over(&self, node: u8, _: &str, _: Duration) -> Result<(), FabricError> {
        Err(no_group(node))
    }
}

impl OnChipMemory for Unsupported {
    fn place(&self, _: GlobalAddr, _: u64) -> bool {
        false
    }
}

impl MemoryObserver for Unsupported {
    #[inline]
    fn note_object(&self, _: GlobalAddr, _: u64, _: ObjectState) {}

    #[inline]
    fn note_grace(&self, _: u64) {}
}

/// Memory on the NICs of memory nodes, for locks (Sherman, section 2.1).
pub trait OnChipMemory {
    /// Makes a node's NIC serve atomics on these words from its own memory, if there is room.
    /// Returns whether it does.
    fn place(&self, addr: GlobalAddr, bytes: u64) -> bool;
}

/// The abilities of a provider beyond the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent guarantee")]
pub struct Capabilities {
    /// All verbs of one batch to one node execute in posting order, fenced or not.
    pub ordered_batches: bool,
    /// A CAS that fails changes nothing, and does not write the old value back either.
    pub pure_cas: bool,
    /// Atomics are also atomic with respect to all accesses of the word by the memory node's
    /// processor. An RDMA device's atomics are so only with respect to each other.
    pub global_atomics: bool,
    /// Bytes of on-chip NIC memory a node offers for locks, 0 if none.
    pub on_chip_bytes: u64,
    /// Written words survive the end of all processes.
    pub persistent: bool,
    /// When the effects of a completed batch, and the words that it read, survive a power failure.
    pub durability: Durability,
    /// Payload bytes that travel inside the request.
    pub inline_bytes: u32,
    /// Procedures can be called, if a node has any ([`Endpoint::call`]).
    pub calls: bool,
    /// A memory node lets this process only read: of its memory, the process may change its own
    /// member line ([`crate::member_lines`]).
    pub reads_only: bool,
    /// How long a node may be silent during a failover to another replica. Leases must be longer.
    pub failover: Duration,
}

/// When the words that a batch has written, or read, survive a power failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// When the system has written them back, which it does not report; [`Fabric::persist`] forces
    /// it.
    #[default]
    Never,
    /// When the batch completes.
    OnCompletion,
    /// When a later verb completes.
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
