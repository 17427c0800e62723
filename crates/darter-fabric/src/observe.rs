//! Reports of a pool to the simulation that it runs on: the memory that operations may use. With
//! them a simulation detects uses of memory that is free or was never written.

use crate::GlobalAddr;

/// Receives the allocator's view of the memory.
pub trait MemoryObserver {
    /// Records the state of a range of memory from now on.
    fn note_object(&self, addr: GlobalAddr, bytes: u64, state: ObjectState);

    /// Records that the reclaimer considers every operation pinned at this epoch or before
    /// complete.
    fn note_grace(&self, stamp: u64);
}

/// Receives the state of one client, and may refuse its allocations.
pub trait ClientObserver {
    /// Records the epoch at which the current operation is pinned, `None` outside of operations.
    fn note_pin(&mut self, epoch: Option<u64>);

    /// Returns whether the next allocation must fail as if the pool were full: a simulation fails
    /// each of them once.
    fn refuses_allocation(&mut self) -> bool;
}

/// The state of a range of memory, as its allocator reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectState {
    /// Allocated as one object; its contents are undefined until they are written.
    Allocated,
    /// Unlinked and unreachable: free as soon as the global epoch is two above this stamp. So a
    /// client that is pinned later than the stamp may not access it.
    Retired(u64),
    /// Free: no client may access it until it is allocated again.
    Free,
    /// Free, for a range of which parts may have been free before.
    Reclaimed,
    /// Not managed as objects.
    Unmanaged,
}
