//! One-sided verbs to a disaggregated memory pool, in doorbell batches.
//!
//! A pool is a set of memory nodes, each with a region of bytes. Clients access it with four verbs
//! only: READ, WRITE, 8-byte CAS, 8-byte FAA (DART, section 2). Everything above this crate is
//! generic over [`Fabric`], so that the same index code serves this process's memory, a mapping
//! shared by many processes, and memory nodes across a network.
//!
//! - [`Fabric`], [`Membership`], [`Endpoint`]: the contract; [`RemoteNodes`], [`ReplicaGroups`],
//!   [`OnChipMemory`] and [`RemoteProcedures`]: additional abilities of some providers.
//! - [`Batch`]: verbs posted together and awaited together, one round trip.
//! - [`Procedures`]: code that runs at a memory node, for operations that verbs cannot do.
//! - [`local`]: the provider for this process's memory and for shared files.
//! - `tcp`: the provider for memory nodes across a network (feature `tcp`, with TLS: `tls`);
//!   `wire`: the parts that both ends share.
//! - `effects`: changes made by frames, and dependencies of replies, for logs and replicas (feature
//!   `tcp`).
//! - `rdma`: the same memory nodes through an RDMA device (feature `tcp`).
//! - [`Provider`]: one type for all providers, also for those of other crates.
//! - [`decorate`]: wrappers that count, trace, fail or delay the verbs of any provider.
//! - [`member_lines`]: what memory nodes know of a pool's member lines.
//! - [`PoolUrl`]: the name of a pool on a command line.
//! - [`block_on`], [`run_all`]: run one future, or many concurrently, on the calling thread.
//! - [`ExternalDriver`]: drives the connections of a thread that another executor runs.
//!
//! ```
//! use darter_fabric::{block_on, Endpoint, Fabric, FabricError, GlobalAddr, local::Local};
//!
//! # fn main() -> Result<(), FabricError> {
//! let pool = Local::memory(64 << 10, 2)?;
//! let mut endpoint = pool.endpoint()?;
//! let slot = GlobalAddr::new(1, 4096);
//! let mut batch = endpoint.batch();
//! batch.write(slot.plus(8), &[7, 8]);
//! let cas = batch.cas(slot, 0, 42);
//! let done = block_on(endpoint.submit(batch))?; // one round trip
//! assert!(done.swapped(cas));
//! # Ok(())
//! # }
//! ```

#[cfg(not(target_endian = "little"))]
compile_error!("darter stores little-endian words in place; this target is big-endian");
#[cfg(not(target_pointer_width = "64"))]
compile_error!("darter maps whole pools; this target's addresses are too short");
#[cfg(not(target_os = "linux"))]
compile_error!("darter needs Linux: its open-file-description locks prove that a client died");

mod addr;
mod batch;
mod call;
mod call_fault;
mod clock;
mod counted;
mod counters;
pub mod decorate;
#[cfg(feature = "tcp")]
pub mod effects;
mod endpoint;
mod error;
mod executor;
mod fabric;
pub mod files;
mod foreign;
mod fork;
pub mod local;
pub mod member_lines;
mod membership;
mod observe;
mod op;
mod provider;
mod random;
#[cfg(feature = "tcp")]
pub mod rdma;
mod remote_nodes;
mod remote_procedures;
mod replica_status;
mod size;
mod spares;
#[cfg(feature = "tcp")]
pub mod tcp;
pub mod turns;
mod url;
#[cfg(feature = "tcp")]
pub mod wire;
mod words;

pub use addr::{GlobalAddr, NODES_MAX, OFFSET_BITS, OFFSET_LIMIT};
pub use batch::{Batch, CasId, FaaId, ReadId, Verb, VerbKind};
pub use call::{ANSWER_WORDS_MAX, Answer, CALL_WORDS_MAX, NodeProcedures, Procedures, verify_request};
pub use call_fault::{CallError, CallFault, MESSAGE_BYTES_MAX, ProcedureError};
pub use clock::lease_clock;
pub use counted::{counted, inflected};
pub use counters::{Counters, OpCounters};
pub use decorate::{Counting, Delaying, Failing, Reading, Tracing};
pub use endpoint::{Endpoint, Orphans};
pub use error::{FabricError, IoFailure, NotDurable, OutOfBounds, Refusal};
pub use executor::{ExternalDriver, block_on, run_all};
pub use fabric::{Capabilities, Durability, Fabric, OnChipMemory};
pub use foreign::{Foreign, ForeignEndpoint};
pub use local::Local;
pub use membership::{FenceOutcome, Identity, Membership, Suspect};
pub use observe::{ClientObserver, MemoryObserver, ObjectState};
pub use op::OpKind;
pub use provider::{Provider, ProviderEndpoint};
pub use random::random_word;
pub use remote_nodes::{ExpectedNode, RemoteNodes};
pub use remote_procedures::{Calling, RemoteProcedures};
pub use replica_status::{ReplicaComparison, ReplicaGroups, ReplicaRole, ReplicaState, ReplicaStatus};
pub use size::{ByteSize, SizeError};
pub use spares::Spares;
#[cfg(feature = "tcp")]
pub use tcp::{Tcp, TcpOptions};
pub use url::{PoolUrl, Scheme, UrlError};

/// The first word of every memory node's region: "DARTER", a line feed and a control-Z, so that a
/// transfer as text shows as damage. The pool's superblock begins with it; providers use it to
/// recognise a pool.
pub const SUPERBLOCK_MAGIC: u64 = u64::from_le_bytes(*b"DARTER\n\x1a");
/// Bytes at the start of each region that hold the superblock, and the unit of region sizes.
pub const SUPERBLOCK_BYTES: u64 = 4096;
/// Word of the superblock that holds the node count (low 32 bits) and this node's index (high 32
/// bits).
pub const SUPERBLOCK_NODES_WORD: usize = 3;
/// Word of the superblock that holds the bytes of a node's region.
pub const SUPERBLOCK_NODE_BYTES_WORD: usize = 4;
