//! Reports of a pool to the simulation that it runs on: which memory may be used by which
//! operations. A simulation finds uses of memory that is free, or was never written, with them.

use crate::GlobalAddr;

/// Receives the allocator's view of the memory.
pub trait MemoryObserver {
    /// Records the state of a range of memory from now on.
    fn note_object(&self, addr: GlobalAddr, bytes: u64, state: ObjectState);

    /// Records that the reclaimer takes every operation pinned at this epoch or before for complete.
    fn note_grace(&self, stamp: u64);
}

/// Receives the state of one client, and may refuse its allocations.
pub trait ClientObserver {
    /// Records the epoch at which the current operation is pinned, `None` outside of operations.
    fn note_pin(&mut self, epoch: Option<u64>);

    /// Returns whether the next allocation must find the pool full: a simulation fails each of them
    /// in turn.
    fn refuses_allocation(&mut self) -> bool;
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
