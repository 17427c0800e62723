//! Errors of a pool, and what to do about them.

use darter_fabric::FabricError;

use crate::laggard::Laggard;

/// An error of the pool. In every case, data stored earlier is intact.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// No memory node has room for the object.
    #[error(
        "out of space: no memory node has {needed} bytes left (preferred node {node}); delete something, run \
         `darter check --repair` if processes have died, or create a larger pool"
    )]
    OutOfSpace {
        /// Bytes of the object, rounded up to its size class.
        needed: u64,
        /// The preferred node.
        node: u8,
    },
    /// No memory node has room until freed memory can be reused, which a member prevents.
    #[error("out of space: freed memory waits for {0}; let that process continue, or end it, and try again")]
    HeldBack(Laggard),
    /// The other memory nodes have too little room for the objects of the node that should leave.
    #[error(
        "memory node {node} holds {bytes} bytes, and the others have room for {room}, of which a fifth stays free; \
         add a memory node or delete something first"
    )]
    NoRoomToDrain {
        /// The node that should leave.
        node: u8,
        /// Bytes of the objects on it.
        bytes: u64,
        /// Bytes that can be allocated on the other nodes.
        room: u64,
    },
    /// A memory node cannot be given up while other processes have the pool open.
    #[error(
        "other processes have the pool open: {}; end them, and try again", listed(.0)
    )]
    OthersAtWork(Vec<(u32, u64)>),
    /// The object is larger than any block of this pool can hold.
    #[error("object of {bytes} bytes: this pool holds at most {max}; create the pool with larger blocks")]
    TooLarge {
        /// Bytes of the object.
        bytes: u64,
        /// [`crate::Pool::object_bytes_max`].
        max: u64,
    },
    /// The memory does not hold a darter pool.
    #[error(
        "memory node {node} holds no darter pool (no magic number); check the path, or create a pool there with \
         `darter pool create`"
    )]
    NotAPool {
        /// The node.
        node: u8,
    },
    /// The memory already holds a pool, which creating one would destroy.
    #[error(
        "memory node {node} holds a darter pool already; open it, or restart its memory nodes without their contents"
    )]
    AlreadyAPool {
        /// The node.
        node: u8,
    },
    /// Another process is creating a pool in the same memory.
    #[error(
        "another process is creating a pool on memory node {node} at this moment; nothing was changed: open that pool, \
         or create one of other nodes"
    )]
    BeingCreated {
        /// The node.
        node: u8,
    },
    /// The pool has another format version.
    #[error(
        "pool of format version {found}, this program reads version {expected}; use the program that wrote it, or \
         export the pool with that program and import the file into a new pool"
    )]
    WrongVersion {
        /// The version found.
        found: u64,
        /// The version this program reads and writes.
        expected: u64,
    },
    /// Bytes of the pool contradict each other. Nothing was changed.
    #[error("memory node {node} is damaged: {what}; restore it from a copy")]
    Damaged {
        /// The node.
        node: u8,
        /// What was found.
        what: &'static str,
    },
    /// The memory nodes do not belong together, or not in this order or size.
    #[error(
        "memory node {node} does not match the others: {what}; attach the nodes of one pool in their order"
    )]
    NodeMismatch {
        /// The node.
        node: u8,
        /// What differs.
        what: &'static str,
    },
    /// A memory node is too small for one block.
    #[error(
        "memory node {node} has {node_bytes} bytes; at least {needed} are needed: enlarge it or use smaller blocks"
    )]
    TooSmall {
        /// The node.
        node: u8,
        /// Its size in bytes.
        node_bytes: u64,
        /// The least size in bytes.
        needed: u64,
    },
    /// Options that cannot be met.
    #[error("pool options: {0}")]
    Options(&'static str),
    /// Every client slot of the pool is taken by a live process.
    #[error("all {max} client slots are held by live processes; close one")]
    MembersFull {
        /// Number of slots.
        max: u32,
    },
    /// Other members have declared this process dead; it must not write again.
    #[error(
        "this process was declared dead by other members of the pool; the pool must be opened again, which a `Store` does \
         by itself"
    )]
    Evicted,
    /// The memory nodes let this process only read. Nothing was changed.
    #[error(
        "this process may only read the pool, since its token is a read-only one, and nothing was changed; to change \
         data, open the pool with a token of the memory nodes' `--token-file`"
    )]
    ReadOnly,
    /// A snapshot begins at this moment, and no operation that changes keys may begin.
    #[error(
        "a snapshot of the pool begins at this moment; nothing was changed: try again in some milliseconds"
    )]
    ChangesHeld,
    /// There is a snapshot already.
    #[error(
        "member {member} (process {pid}) has a snapshot of the pool open, for a backup perhaps; wait until it ends"
    )]
    SnapshotTaken {
        /// Its slot.
        member: u32,
        /// Its process id, as it wrote it.
        pid: u64,
    },
    /// A change of very many keys cannot begin while a snapshot is open.
    #[error(
        "bulk load: a snapshot of the pool is open, for a backup perhaps; wait until it ends, or store the pairs by \
         `put_many`"
    )]
    SnapshotOpen,
    /// A snapshot cannot begin, because a member does not end the operations that it has begun.
    #[error(
        "the snapshot cannot begin: {0}; let that process continue, or end it, and try again; nothing was changed"
    )]
    SnapshotHeldBack(Laggard),
    /// A snapshot cannot begin, because a member is a program that does not know snapshots.
    #[error(
        "the snapshot cannot begin: member {member} (process {pid}) is of an earlier version, which does not \
         preserve the values that a snapshot needs; upgrade or end that process, and try again \
         (docs/compatibility.md); nothing was changed"
    )]
    SnapshotUnknown {
        /// Its slot.
        member: u32,
        /// Its process id, as it wrote it.
        pid: u64,
    },
    /// The snapshot was ended by another member, or by this process.
    #[error(
        "the snapshot was given up: the pool has no room for the old values of the keys that change, its owner was \
         believed dead, or a program of an earlier version opened the pool; delete something or use a larger pool, \
         upgrade all programs, and try again"
    )]
    SnapshotOver,
    /// Closing found other handles of this process. Dropping the last of them closes the pool.
    #[error("{handles} other pool or client handles of this process are alive; drop them first")]
    StillInUse {
        /// How many.
        handles: usize,
    },
    /// The fabric reported an error.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// Names members by their slots and process ids.
fn listed(members: &[(u32, u64)]) -> String {
    let named = members.iter().map(|(slot, pid)| format!("member {slot} (process {pid})"));
    named.collect::<Vec<_>>().join(", ")
}
