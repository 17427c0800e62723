//! A client's stock of free objects: its magazines, one for each node, kind and size class.
//!
//! Most allocations take from a magazine and most frees of drafts add to one, without touching
//! shared state. When a magazine is empty, [`Stock::refill`] fills it with objects that the process
//! has found (`grant`); when it is full, half of it goes back to the heap.

use darter_fabric::{ClientObserver, Endpoint, Fabric, GlobalAddr, ObjectState};
use std::sync::Arc;

use super::layout::class_in;
use super::magazine::{Magazine, MagazineList};
use super::object::AllocKind;
use super::share::Blocks;
use super::size_class::{CLASSES, class_bytes, class_of};
use crate::error::PoolError;

/// Free objects that a client keeps.
pub(crate) struct Stock {
    magazines: Vec<Option<Arc<Magazine>>>,
    /// The same magazines, for audits.
    listed: Arc<MagazineList>,
    /// A bit for each node that had no room at the last try. Objects of other nodes are then
    /// acceptable.
    full: [u64; 4],
    /// A simulation refused the current allocation.
    refused: bool,
}

/// An allocation that found its magazine empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shortage {
    /// The preferred node.
    pub node: u8,
    /// The kind of the object.
    pub kind: AllocKind,
    /// The size class of the object.
    pub class: u8,
    /// Number of objects to obtain.
    pub want: usize,
}

/// The result of a search for an object outside the heap.
pub(crate) enum Found {
    /// An object from a magazine.
    Object(GlobalAddr),
    /// The magazines have none.
    Nothing(Shortage),
}

impl Stock {
    /// An empty stock.
    pub(crate) fn new<F: Fabric>(blocks: &Blocks<F>) -> Self {
        let sizes = usize::from(blocks.layout().node_count()) * AllocKind::COUNT * CLASSES;
        Self { magazines: vec![None; sizes], listed: blocks.list_magazines(), full: [0; 4], refused: false }
    }

    #[inline]
    fn index(node: u8, kind: AllocKind, class: u8) -> usize {
        (usize::from(node) * AllocKind::COUNT + kind as usize) * CLASSES + usize::from(class)
    }

    /// Takes an object from its magazine. Returns `None` if the magazine is empty, the node is
    /// absent or leaving, or the endpoint refuses.
    #[inline]
    pub(crate) fn take<F: Fabric>(
        &mut self,
        blocks: &Blocks<F>,
        endpoint: &mut F::Endpoint,
        node: u8,
        bytes: u64,
        kind: AllocKind,
    ) -> Option<GlobalAddr> {
        let class = class_of(bytes)?;
        if blocks.fabric().remote_nodes().is_absent(node) || !blocks.layout().accepts(node) {
            return None;
        }
        if endpoint.observer().is_some_and(ClientObserver::refuses_allocation) {
            self.refused = true;
            return None;
        }
        let magazine = self.magazines.get(Self::index(node, kind, class))?.as_ref()?;
        let object = magazine.pop()?;
        blocks.fabric().memory_observer().note_object(object, class_bytes(class), ObjectState::Allocated);
        if let Some(next) = magazine.peek() {
            // The operation after this one will write it.
            endpoint.prefetch(next, (class_bytes(class) / 8) as usize);
        }
        Some(object)
    }

    /// Whether a simulation has refused an allocation and no caller has received the error yet.
    #[inline]
    pub(crate) fn is_refused(&self) -> bool {
        self.refused
    }

    /// The same; clears the refusal.
    #[inline]
    pub(crate) fn take_refusal(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }

    /// Takes an object from another node's magazine if `node` is absent, or had no room at the last
    /// try. Otherwise returns the shortage.
    ///
    /// # Errors
    /// [`PoolError::TooLarge`].
    pub(crate) fn look_elsewhere<F: Fabric>(
        &mut self,
        blocks: &Blocks<F>,
        endpoint: &mut F::Endpoint,
        (node, nodes): (u8, u8),
        bytes: u64,
        kind: AllocKind,
    ) -> Result<Found, PoolError> {
        let class = class_in(blocks.layout(), bytes)?;
        let node = node % nodes;
        let is_full = self.full[usize::from(node) / 64] & 1_u64 << (node % 64) != 0;
        if is_full || blocks.fabric().remote_nodes().is_absent(node) || !blocks.layout().accepts(node) {
            let mut others = (1..nodes).map(|step| (u16::from(node) + u16::from(step)) % u16::from(nodes));
            let found = others.find_map(|node| self.take(blocks, endpoint, node as u8, bytes, kind));
            if let Some(addr) = found {
                return Ok(Found::Object(addr));
            }
        }
        let want = self.magazine(blocks, node, kind, class).capacity().div_ceil(2);
        Ok(Found::Nothing(Shortage { node, kind, class, want }))
    }

    /// Takes the first of the objects that were found for a shortage, and keeps the others.
    pub(crate) fn refill<F: Fabric>(
        &mut self,
        blocks: &Blocks<F>,
        Shortage { node, kind, class, .. }: Shortage,
        found: &[GlobalAddr],
    ) -> GlobalAddr {
        let first = found[0];
        let (full_word, full_bit) = (usize::from(node) / 64, 1_u64 << (node % 64));
        if first.node() == node {
            self.full[full_word] &= !full_bit;
        } else {
            self.full[full_word] |= full_bit;
        }
        // The rest goes to the magazine of the node it lies on, in an order that hands out
        // ascending addresses.
        let magazine = self.magazine(blocks, first.node(), kind, class);
        let surplus: Vec<_> = found[1..].iter().rev().copied().filter(|&addr| !magazine.push(addr)).collect();
        blocks.give_back(&surplus, class);
        blocks.fabric().memory_observer().note_object(first, class_bytes(class), ObjectState::Allocated);
        first
    }

    fn magazine<F: Fabric>(&mut self, blocks: &Blocks<F>, node: u8, kind: AllocKind, class: u8) -> &Magazine {
        let at = Self::index(node, kind, class);
        if self.magazines.len() <= at {
            // The node was added after this stock was created.
            self.magazines.resize((usize::from(node) + 1) * AllocKind::COUNT * CLASSES, None);
        }
        let listed = &self.listed;
        self.magazines[at].get_or_insert_with(|| {
            let magazine = Arc::new(Magazine::new(class, blocks.magazine_objects_max()));
            listed.push(Arc::clone(&magazine));
            magazine
        })
    }

    /// Adds an object that has never been published.
    pub(crate) fn put<F: Fabric>(
        &mut self,
        blocks: &Blocks<F>,
        addr: GlobalAddr,
        class: u8,
        kind: AllocKind,
    ) {
        blocks.fabric().memory_observer().note_object(addr, class_bytes(class), ObjectState::Free);
        if !blocks.layout().accepts(addr.node()) {
            blocks.give_back(&[addr], class);
            return;
        }
        let magazine = self.magazine(blocks, addr.node(), kind, class);
        if !magazine.push(addr) {
            let mut surplus = vec![addr];
            for _ in 0..magazine.capacity() / 2 {
                surplus.extend(magazine.pop());
            }
            blocks.give_back(&surplus, class);
        }
    }

    /// Empties the magazines into the process's heap.
    pub(crate) fn flush<F: Fabric>(&mut self, blocks: &Blocks<F>) {
        blocks.empty_magazines(&self.listed);
    }

    /// The client's magazines, for upkeep.
    pub(crate) fn magazines(&self) -> &Arc<MagazineList> {
        &self.listed
    }

    /// Empties the magazines and removes them from the list, at the end of the client.
    pub(crate) fn close<F: Fabric>(&mut self, blocks: &Blocks<F>) {
        self.flush(blocks);
        blocks.forget_magazines(&self.listed);
    }
}

impl<F: Fabric> Blocks<F> {
    /// Empties a client's magazines into the heap.
    pub(crate) fn empty_magazines(&self, magazines: &MagazineList) {
        let mut heap = self.heap();
        magazines.drain(|addr, class| {
            heap.free(addr, class);
        });
    }

    fn give_back(&self, objects: &[GlobalAddr], class: u8) {
        if !objects.is_empty() {
            let mut heap = self.heap();
            for &addr in objects {
                heap.free(addr, class);
            }
        }
    }
}
