//! A process's share of the pool's memory: its blocks, and the objects that its clients keep.

use darter_fabric::{Fabric, GlobalAddr, ObjectState};
use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::block::MemberId;
use super::heap::{Freed, Heap};
use super::layout::{BlockId, Layout};
use super::magazine::{MAGAZINE_OBJECTS_MAX, MagazineList};
use super::object::Object;
use super::size_class::class_bytes;
#[cfg(test)]
use super::{
    block::{BlockState, BlockWord},
    heap::OwnBlock,
    object::AllocKind,
};
use crate::sync::lock;

/// The blocks of this process, and its access to those of others.
pub(crate) struct Blocks<F: Fabric> {
    fabric: F,
    layout: Layout,
    me: MemberId,
    heap: Mutex<Heap>,
    /// Magazines of the process's clients.
    stocks: Mutex<Vec<Arc<MagazineList>>>,
    /// Most objects in a client's magazine.
    magazine_objects_max: AtomicUsize,
    /// Other members have been seen, so they may have freed objects of this process.
    has_met_others: AtomicBool,
    /// Clients empty their magazines because blocks are about to be handed over.
    pub(super) handing_over: AtomicBool,
    /// No blocks are handed over.
    pub(super) never_hands_over: AtomicBool,
    /// Most bytes of blocks that this process takes.
    quota_bytes: AtomicU64,
    /// Bytes of free blocks on each node that this process leaves to others.
    reserve_bytes: AtomicU64,
    /// Blocks of others in which this process has freed objects.
    touched: Mutex<BTreeSet<BlockId>>,
}

impl<F: Fabric> Blocks<F> {
    /// A share without blocks, for an incarnation of a member.
    pub(crate) fn new(fabric: F, layout: Layout, me: MemberId) -> Self {
        Self {
            heap: Mutex::new(Heap::new(layout.clone())),
            stocks: Mutex::default(),
            magazine_objects_max: AtomicUsize::new(MAGAZINE_OBJECTS_MAX),
            has_met_others: AtomicBool::new(false),
            handing_over: AtomicBool::new(false),
            never_hands_over: AtomicBool::new(false),
            quota_bytes: AtomicU64::new(u64::MAX),
            reserve_bytes: AtomicU64::new(0),
            touched: Mutex::default(),
            fabric,
            layout,
            me,
        }
    }

    /// The fabric.
    #[inline]
    pub(crate) fn fabric(&self) -> &F {
        &self.fabric
    }

    /// The pool's geometry.
    #[inline]
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The incarnation that owns the blocks.
    pub(crate) fn me(&self) -> MemberId {
        self.me
    }

    /// Locks the books of the blocks.
    pub(super) fn heap(&self) -> MutexGuard<'_, Heap> {
        lock(&self.heap)
    }

    /// Limits the blocks that this process takes from now on: to a number of bytes, and so that on
    /// each node free blocks of `reserve` bytes are left.
    pub(crate) fn limit_blocks(&self, quota: u64, reserve: u64) {
        self.quota_bytes.store(quota, Ordering::Relaxed);
        self.reserve_bytes.store(reserve, Ordering::Relaxed);
    }

    /// Returns whether this process may own another block.
    pub(super) fn may_own_more(&self) -> bool {
        let quota = self.quota_bytes.load(Ordering::Relaxed);
        quota == u64::MAX || (self.heap().blocks().count() as u64 + 1) * self.layout.block_bytes <= quota
    }

    /// Returns whether this process may take one of a number of free blocks of a node.
    pub(super) fn may_take_free(&self, free: usize) -> bool {
        let reserve = self.reserve_bytes.load(Ordering::Relaxed);
        reserve == 0 || (free as u64).saturating_sub(1) * self.layout.block_bytes >= reserve
    }

    /// Notes that another member was live at the same time as this one.
    pub(crate) fn note_others(&self) {
        self.has_met_others.store(true, Ordering::Relaxed);
    }

    /// Whether objects of this process may have been freed by others.
    pub(crate) fn has_met_others(&self) -> bool {
        self.has_met_others.load(Ordering::Relaxed)
    }

    /// Makes room for the blocks of nodes that were added.
    pub(crate) fn take_nodes_in(&self) {
        self.heap().take_nodes_in();
    }

    /// Notes that this process has freed an object in a block of another member.
    pub(super) fn touch(&self, block: BlockId) {
        lock(&self.touched).insert(block);
    }

    /// Takes the blocks in which this process has freed objects of others.
    pub(super) fn take_touched(&self) -> BTreeSet<BlockId> {
        std::mem::take(&mut *lock(&self.touched))
    }

    /// Adds a client's magazines to those that audits read.
    pub(super) fn list_magazines(&self) -> Arc<MagazineList> {
        let list = Arc::<MagazineList>::default();
        lock(&self.stocks).push(Arc::clone(&list));
        list
    }

    /// Forgets the magazines of a client that is gone.
    pub(super) fn forget_magazines(&self, list: &Arc<MagazineList>) {
        lock(&self.stocks).retain(|other| !Arc::ptr_eq(other, list));
    }

    /// The objects in all clients' magazines.
    pub(super) fn in_magazines(&self) -> HashSet<GlobalAddr> {
        lock(&self.stocks).iter().flat_map(|list| list.contents()).collect()
    }

    /// Bytes of the objects in all clients' magazines.
    pub(crate) fn magazine_bytes(&self) -> u64 {
        lock(&self.stocks).iter().map(|list| list.bytes()).sum()
    }

    /// Bytes of all objects in use, including those in magazines and limbo.
    pub(crate) fn object_bytes(&self) -> u64 {
        self.heap().object_bytes()
    }

    /// Frees that named no object in use.
    pub(crate) fn bad_frees(&self) -> u64 {
        self.heap().bad_frees()
    }

    /// Most objects in a magazine.
    pub(super) fn magazine_objects_max(&self) -> usize {
        self.magazine_objects_max.load(Ordering::Relaxed)
    }

    /// Limits the number of objects of each size that a client keeps.
    pub(crate) fn set_magazine_objects_max(&self, objects: usize) {
        self.magazine_objects_max.store(objects.max(1), Ordering::Relaxed);
    }

    /// Reports an object's state to the fabric's observer.
    #[inline]
    pub(crate) fn note(&self, object: Object, state: ObjectState) {
        self.fabric.memory_observer().note_object(object.addr(), class_bytes(object.class()), state);
    }

    /// Frees objects that no reader can hold. Returns those that lie in other members' blocks.
    pub(crate) fn free(&self, objects: &[Object]) -> Vec<Object> {
        for &object in objects {
            self.note(object, ObjectState::Free);
        }
        let mut heap = self.heap();
        objects.iter().copied().filter(|o| heap.free(o.addr(), o.class()) == Freed::Elsewhere).collect()
    }

    /// Whether this process owns a block.
    #[cfg(test)]
    pub(crate) fn owns(&self, block: BlockId) -> bool {
        self.heap().block(block).is_some()
    }

    /// Whether pages can be cut from a block on this node, once there is one.
    #[cfg(test)]
    pub(crate) fn can_cut_from_a_block_on(&self, node: u8) -> bool {
        let free = BlockWord::decode(0).unwrap();
        let word = free.next(BlockState::Owned, AllocKind::Leaf, self.me);
        let mut heap = self.heap();
        heap.add(BlockId { node, index: 0 }, OwnBlock::empty(&self.layout, word));
        heap.begin_cut(node, AllocKind::Leaf, 0).is_some()
    }
}
