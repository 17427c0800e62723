//! The handle of a process's membership in a pool.
//!
//! [`Pool`] is cheap to clone; dropping the last of a process's handles and clients closes the
//! membership. Operations that need verbs take a client and are in `maintenance`.

use darter_fabric::{Fabric, GlobalAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::blocks::{ForgottenNodes, MemberId};
use crate::error::PoolError;
use crate::process::Process;
use crate::reclaim::{Extension, RoomRequest};
use crate::region::{index_mark, root_word};

/// A process's membership in a pool. Clones are handles of the same membership.
pub struct Pool<F: Fabric> {
    pub(crate) process: Arc<Process<F>>,
}

impl<F: Fabric> Clone for Pool<F> {
    fn clone(&self) -> Self {
        Self { process: Arc::clone(&self.process) }
    }
}

impl<F: Fabric> std::fmt::Debug for Pool<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Process { blocks, members, .. } = &*self.process;
        f.debug_struct("Pool")
            .field("id", &format_args!("{:#x}", members.superblock().pool_id))
            .field("nodes", &blocks.layout().node_count())
            .field("block_bytes", &blocks.layout().block_bytes)
            .field("member", &members.me())
            .finish_non_exhaustive()
    }
}

/// Holds snapshots back while it lives ([`Pool::hold_snapshots_back`]).
pub struct SnapshotsHeldBack<F: Fabric>(Pool<F>);

impl<F: Fabric> Drop for SnapshotsHeldBack<F> {
    fn drop(&mut self) {
        self.0.process.reclamation.hold_snapshots_back(false);
    }
}

impl<F: Fabric> Pool<F> {
    /// Returns the fabric.
    pub fn fabric(&self) -> &F {
        self.process.blocks.fabric()
    }

    /// Returns the address of root word `i`, which must be below [`crate::ROOT_WORDS`]. Root words
    /// are zero in a new pool; the index decides what they hold.
    ///
    /// # Panics
    /// If `i` is not below [`crate::ROOT_WORDS`].
    pub fn root_word(&self, i: usize) -> GlobalAddr {
        root_word(i)
    }

    /// Returns the address of the index's mark: a word in another sector than the root words, zero
    /// in a new pool. An index sets it once its root words are set. Root words that are zero
    /// afterwards are therefore damage, not a pool without an index.
    pub fn index_mark(&self) -> GlobalAddr {
        index_mark()
    }

    /// Returns the secret: random words, chosen when the pool is created and the same for all its
    /// members. It is the key for keyed hashes.
    pub fn secret(&self) -> [u64; 4] {
        self.process.members.superblock().secret
    }

    /// Returns the member that this process is.
    pub fn member(&self) -> MemberId {
        self.process.members.me()
    }

    /// Returns the extension of type `T`, which the first call creates. It lives as long as the
    /// membership, and every round of upkeep serves it.
    pub fn extension<T: Extension + Default>(&self) -> Arc<T> {
        self.process.reclamation.extension()
    }

    /// Returns whether this process may only read, since the token that it has shown to the memory
    /// nodes is a read-only one. Then everything that changes the pool fails with
    /// [`PoolError::ReadOnly`].
    #[inline]
    pub fn reads_only(&self) -> bool {
        self.process.members.reads_only()
    }

    /// Returns the pool's random id.
    pub fn id(&self) -> u64 {
        self.process.members.superblock().pool_id
    }

    /// Returns the number of memory nodes in use: those that every member can reach. It grows when
    /// a node is added.
    pub fn nodes(&self) -> u8 {
        self.process.members.usable_nodes()
    }

    /// Returns the nodes on which new objects are placed.
    pub fn homes(&self) -> Vec<u8> {
        let layout = self.process.blocks.layout();
        let homes: Vec<u8> = (0..self.nodes()).filter(|&node| layout.accepts(node)).collect();
        if homes.is_empty() { vec![0] } else { homes }
    }

    /// Whether new objects may be placed on a node.
    pub fn accepts(&self, node: u8) -> bool {
        self.process.blocks.layout().accepts(node)
    }

    /// Returns the nodes that cannot be reached, as far as this process knows, or have left the pool.
    pub fn absent_nodes(&self) -> Vec<u8> {
        let (layout, remote) = (self.process.blocks.layout(), self.fabric().remote_nodes());
        let is_absent = |node: &u8| remote.is_absent(*node) || layout.is_removed(*node);
        (0..layout.node_count()).filter(is_absent).collect()
    }

    /// Returns the nodes that have left the pool.
    pub fn removed_nodes(&self) -> Vec<u8> {
        let layout = self.process.blocks.layout();
        (0..layout.node_count()).filter(|&node| layout.is_removed(node)).collect()
    }

    /// Returns the nodes of which an index must not use what it remembers.
    pub fn forgotten_nodes(&self) -> ForgottenNodes {
        self.process.blocks.layout().forgotten_nodes()
    }

    /// Returns the size of a block in bytes.
    pub fn block_bytes(&self) -> u64 {
        self.process.blocks.layout().block_bytes
    }

    /// Returns the size of the largest object in bytes.
    pub fn object_bytes_max(&self) -> u64 {
        self.process.blocks.layout().object_bytes_max()
    }

    /// Returns this process's view of the global epoch.
    pub fn epoch(&self) -> u64 {
        self.process.reclamation.epoch()
    }

    /// Returns the number of this process's objects that wait to be freed, without those that
    /// clients still keep (up to 64 each).
    pub fn garbage(&self) -> usize {
        self.process.reclamation.garbage()
    }

    /// Whether any object that this process has unlinked waits to be freed.
    pub fn has_garbage(&self) -> bool {
        self.process.reclamation.has_garbage()
    }

    /// Requests room after an allocation has found none: while the request exists, rounds of upkeep
    /// of this process and of the others bring freed memory back ([`RoomRequest::progress`]).
    pub fn ask_for_room(&self) -> RoomRequest<'_> {
        let Process { reclamation, members, .. } = &*self.process;
        reclamation.ask_for_room(members.lease_ms())
    }

    /// Returns whether operations that change keys must not begin, because a snapshot does.
    pub fn holds_changes(&self) -> bool {
        self.process.reclamation.holds_changes()
    }

    /// Returns whether this process has ended the snapshot of a dead member since the last call. The
    /// values that were preserved for it are still there.
    pub fn take_ended_snapshot(&self) -> bool {
        self.process.reclamation.take_ended_snapshot()
    }

    /// Returns whether a snapshot is about to begin. Until it has, rounds of upkeep must follow each
    /// other every millisecond or so.
    pub fn is_snapshot_beginning(&self) -> bool {
        self.process.reclamation.is_snapshot_beginning()
    }

    /// Holds snapshots back while the value lives, for a change that takes several operations. Call
    /// this while a client is pinned for a change.
    pub fn hold_snapshots_back(&self) -> SnapshotsHeldBack<F> {
        self.process.reclamation.hold_snapshots_back(true);
        SnapshotsHeldBack(self.clone())
    }

    /// From now on, this process does not hand over partly used blocks to members that need room.
    /// An index must call this in an operation before it keeps, beyond the end of that operation,
    /// an object that nothing in the pool names: the block's next owner would treat the object as
    /// free.
    pub fn keep_blocks(&self) {
        self.process.blocks.keep_blocks();
    }

    /// Whether another member waits for room. If so, rounds of upkeep should follow each other
    /// within milliseconds.
    pub fn is_asked_for_room(&self) -> bool {
        self.process.reclamation.is_asked_for_room()
    }

    /// Whether the reply to frees of this process was lost, so that it is unknown whether they have
    /// taken effect. Sweeps wait until such a member has ended.
    pub fn has_unconfirmed_frees(&self) -> bool {
        self.process.reclamation.stuck() < u64::MAX
    }

    /// Returns the number of this process's frees that named no object in use: a sign of damage.
    /// They changed nothing.
    pub fn bad_frees(&self) -> u64 {
        self.process.blocks.bad_frees()
    }

    /// Returns how long a process may be silent before others check whether it is alive.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.process.members.superblock().lease_ms)
    }

    /// Whether this process has evicted members since the last call. Their blocks may need a sweep.
    pub fn take_evicted(&self) -> bool {
        self.process.members.take_evicted()
    }

    /// Ends the membership: frees what can be freed, gives empty blocks back, and leaves exact
    /// books in the others. Dropping the last handle does the same but ignores errors.
    ///
    /// # Errors
    /// [`PoolError::StillInUse`] if other handles or clients are alive; the last of them closes the
    /// membership. Fabric errors: the blocks are then left as if this process had died.
    pub async fn close(self) -> Result<(), PoolError> {
        let handles = Arc::strong_count(&self.process) - 1;
        match Arc::into_inner(self.process) {
            Some(mut process) => process.close().await,
            None => Err(PoolError::StillInUse { handles }),
        }
    }

    /// Limits the blocks that this process takes from now on: to `quota` bytes, and so that free
    /// blocks of `reserve` bytes are left on each memory node, for processes without this limit.
    /// Blocks that the process has are kept. An allocation that needs more fails with
    /// [`PoolError::OutOfSpace`], after it has waited for freed memory as in a full pool. Processes
    /// that take blocks at the same instant can leave one block each less than the reserve.
    ///
    /// The limit is kept by this process itself: memory nodes know no blocks.
    pub fn limit_blocks(&self, quota: u64, reserve: u64) {
        self.process.blocks.limit_blocks(quota, reserve);
    }

    /// For tests: limits the number of objects of each size that this process's clients keep from
    /// now on. With a limit of 1, freed memory is reused at once.
    #[doc(hidden)]
    pub fn set_magazine_objects_max(&self, objects: usize) {
        self.process.blocks.set_magazine_objects_max(objects);
    }

    /// Whether both handles belong to the same membership.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.process, &other.process)
    }

    /// For tests: ends this process's proof of life and leaves everything as after a crash. Clients
    /// must not be used afterwards.
    #[doc(hidden)]
    pub fn abandon(&self) {
        self.process.abandon();
    }
}
