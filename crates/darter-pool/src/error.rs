//! What can go wrong with a pool, and what to do about it.

use darter_fabric::FabricError;

use crate::laggard::Laggard;

/// An error of the pool. Whatever it says, what was stored before is intact.
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
    /// No memory node has room until memory that was freed may be used again, which a member holds
    /// back.
    #[error("out of space: freed memory waits for {0}; let that process go on, or end it, and try again")]
    HeldBack(Laggard),
    /// The object is larger than any block of this pool can hold.
    #[error("object of {bytes} bytes: this pool holds at most {max}; create the pool with larger blocks")]
    TooLarge {
        /// Bytes of the object.
        bytes: u64,
        /// [`crate::Pool::object_bytes_max`].
        max: u64,
    },
    /// The bytes are not a darter pool.
    #[error(
        "memory node {node} holds no darter pool (no magic number); check the path, or create a pool there with \
         `darter pool create`"
    )]
    NotAPool {
        /// The node.
        node: u8,
    },
    /// The bytes are a pool already, which creating would destroy.
    #[error(
        "memory node {node} holds a darter pool already; open it, or restart its memory nodes without their contents"
    )]
    AlreadyAPool {
        /// The node.
        node: u8,
    },
    /// Another process is making a pool of the same memory.
    #[error(
        "another process is creating a pool on memory node {node} at this moment; nothing was changed: open that pool, \
         or create one of other nodes"
    )]
    BeingCreated {
        /// The node.
        node: u8,
    },
    /// The pool was written by another format version.
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
    /// Options that cannot be fulfilled.
    #[error("pool options: {0}")]
    Options(&'static str),
    /// Every client slot of the pool is taken by a live process.
    #[error("all {max} client slots are held by live processes; close one")]
    MembersFull {
        /// Slots there are.
        max: u32,
    },
    /// Other members have declared this process dead; it must not write any more.
    #[error(
        "this process was declared dead by other members of the pool; the pool must be opened again, which a `Store` does \
         by itself"
    )]
    Evicted,
    /// Closing found other handles of this process. The last one to be dropped closes the pool.
    #[error("{handles} other pool or client handles of this process are alive; drop them first")]
    StillInUse {
        /// How many.
        handles: usize,
    },
    /// The fabric reported an error.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}
