//! The handle of a process's membership in a pool.
//!
//! [`Pool`] is cheap to clone; the last of a process's handles and clients to go closes the
//! membership. What needs verbs takes a client and is in `maintenance`.

use darter_fabric::{Fabric, GlobalAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::blocks::MemberId;
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

impl<F: Fabric> Pool<F> {
    /// The fabric below.
    pub fn fabric(&self) -> &F {
        self.process.blocks.fabric()
    }

    /// The address of root word `i`, below [`crate::ROOT_WORDS`]. Root words are zero in a new
    /// pool; what they hold is up to the index.
    ///
    /// # Panics
    /// When there is no such word.
    pub fn root_word(&self, i: usize) -> GlobalAddr {
        root_word(i)
    }

    /// The address of a word that is in another sector than the root words, and zero in a new pool. An
    /// index sets it once its root words are set, so that root words which are zero afterwards are damage
    /// and no pool without an index.
    pub fn index_mark(&self) -> GlobalAddr {
        index_mark()
    }

    /// Random words, made with the pool and the same for all its members: the key for keyed hashes.
    pub fn secret(&self) -> [u64; 4] {
        self.process.members.superblock().secret
    }

    /// This process among the pool's members.
    pub fn member(&self) -> MemberId {
        self.process.members.me()
    }

    /// The extension of a type, made by the first call. It lives as long as the membership, and
    /// every round of upkeep serves it.
    pub fn extension<T: Extension + Default>(&self) -> Arc<T> {
        self.process.reclamation.extension()
    }

    /// The pool's random id.
    pub fn id(&self) -> u64 {
        self.process.members.superblock().pool_id
    }

    /// Memory nodes in use: those that every member can reach. Grows when one is added.
    pub fn nodes(&self) -> u8 {
        self.process.members.usable_nodes()
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u64 {
        self.process.blocks.layout().block_bytes
    }

    /// The largest object, in bytes.
    pub fn object_bytes_max(&self) -> u64 {
        self.process.blocks.layout().object_bytes_max()
    }

    /// This process's view of the global epoch.
    pub fn epoch(&self) -> u64 {
        self.process.reclamation.epoch()
    }

    /// Objects of this process that wait to be freed, as far as it knows at once (clients keep up
    /// to 64 more each).
    pub fn garbage(&self) -> usize {
        self.process.reclamation.garbage()
    }

    /// Whether anything that this process has unlinked waits to be freed.
    pub fn has_garbage(&self) -> bool {
        self.process.reclamation.has_garbage()
    }

    /// Asks for room after an allocation has found none: while the request exists, rounds of upkeep
    /// of this process and of the others bring back what was freed ([`RoomRequest::progress`]).
    pub fn ask_for_room(&self) -> RoomRequest<'_> {
        let Process { reclamation, members, .. } = &*self.process;
        reclamation.ask_for_room(members.lease_ms())
    }

    /// From here on, this process hands over no blocks that are partly in use to members that want
    /// room. An index must call it in an operation before it keeps, beyond the operation's end, an
    /// object that nothing in the pool names: the block's next owner would take the object for free.
    pub fn keep_blocks(&self) {
        self.process.blocks.keep_blocks();
    }

    /// Whether another member waits for room: then rounds of upkeep should follow each other within
    /// milliseconds.
    pub fn is_asked_for_room(&self) -> bool {
        self.process.reclamation.is_asked_for_room()
    }

    /// Whether the reply to frees of this process was lost, so that nobody knows whether they have
    /// landed. Sweeps wait for a member that has such until it has ended.
    pub fn has_unconfirmed_frees(&self) -> bool {
        self.process.reclamation.stuck() < u64::MAX
    }

    /// Frees of this process that named no object in use: signs of damage, which changed nothing.
    pub fn bad_frees(&self) -> u64 {
        self.process.blocks.bad_frees()
    }

    /// How long a process may be silent before others ask whether it lives.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.process.members.superblock().lease_ms)
    }

    /// Whether this process has evicted members since the last call. They may have left blocks to
    /// be swept.
    pub fn take_evicted(&self) -> bool {
        self.process.members.take_evicted()
    }

    /// Ends the membership: frees what can be freed, gives empty blocks back, leaves exact books in
    /// the others. Dropping the last handle does the same and keeps errors to itself.
    ///
    /// # Errors
    /// [`PoolError::StillInUse`] when other handles or clients are alive; the last of them closes.
    /// Fabric errors: the blocks are then left as by a process that died.
    pub async fn close(self) -> Result<(), PoolError> {
        let handles = Arc::strong_count(&self.process) - 1;
        match Arc::into_inner(self.process) {
            Some(mut process) => process.close().await,
            None => Err(PoolError::StillInUse { handles }),
        }
    }

    /// For tests: most objects that this process's clients keep of each size from now on. With one,
    /// memory that is freed is used again at once.
    #[doc(hidden)]
    pub fn set_magazine_objects_max(&self, objects: usize) {
        self.process.blocks.set_magazine_objects_max(objects);
    }

    /// Whether another handle is of the same membership.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.process, &other.process)
    }

    /// For tests: ends this process's proof of life and leaves everything as a crash would. Clients
    /// must not be used afterwards.
    #[doc(hidden)]
    pub fn abandon(&self) {
        self.process.abandon();
    }
}
