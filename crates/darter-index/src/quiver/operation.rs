//! An operation in progress, and the steps that several operations share.

use super::descent::{Descent, NodeAt, PageSearchEnd, Purpose};
use super::direct;
use super::hint::NodeHint;
use super::nibble::identity_of;
use super::node;
use super::page::{PageRef, Shape};
use super::parent_slot::ParentSlot;
use super::shared::Shared;
use super::word::Word;
use crate::radix::seal::seal_all;
use crate::radix::search;
use crate::{IndexError, Result};
use darter_fabric::local::Memory;
use darter_fabric::{Endpoint, Fabric, GlobalAddr, OpKind};
use darter_pool::size_class::class_bytes;
use darter_pool::{AllocKind, Client, Pinned};

/// An operation on the index.
pub(super) struct Operation<'a, F: Fabric> {
    pub(super) shared: &'a Shared,
    pub(super) client: Pinned<'a, F>,
}

impl<'a, F: Fabric> Operation<'a, F> {
    /// Begins an operation.
    #[inline]
    pub(super) async fn begin(shared: &'a Shared, client: &'a mut Client<F>, kind: OpKind) -> Result<Self> {
        Ok(Self { shared, client: client.pin(kind).await? })
    }

    /// The pool's memory, if searches load from it.
    #[inline]
    pub(super) fn memory(&self) -> Option<Memory<'_>> {
        if self.shared.is_direct { self.client.endpoint().memory() } else { None }
    }

    /// A descent that begins at the deepest page or node that is remembered, or at the node that
    /// loads lead to.
    pub(super) fn descent_for<'k>(&self, key: &'k [u8], purpose: Purpose) -> Descent<'k> {
        match self.loaded_node(key) {
            None => Descent::new(self.shared, key, purpose, self.client.epoch()),
            node => Descent::by_nodes(self.shared, key, purpose, self.client.epoch(), node),
        }
    }

    /// As [`Self::descent_for`] a writer, but does not begin at a page.
    pub(super) fn descent_by_nodes<'k>(&self, key: &'k [u8]) -> Descent<'k> {
        Descent::by_nodes(self.shared, key, Purpose::Write, self.client.epoch(), self.loaded_node(key))
    }

    /// The node with the slot that a key leads to, if searches load from memory.
    fn loaded_node(&self, key: &[u8]) -> Option<NodeHint> {
        direct::node_of(self.shared, self.memory()?, key).ok()
    }

    /// A descent for a writer, from the root.
    pub(super) fn descent_from_root<'k>(&self, key: &'k [u8]) -> Descent<'k> {
        Descent::from_root(self.shared, key, Purpose::Write, self.client.epoch())
    }

    /// Runs a descent to its end.
    ///
    /// # Errors
    /// Those of the fabric, and [`IndexError::Corrupt`](crate::IndexError::Corrupt).
    pub(super) async fn run(&mut self, descent: &mut Descent<'_>) -> Result<PageSearchEnd> {
        let (end, done) = search::run(&mut self.client, self.shared, descent).await?;
        self.client.recycle(done);
        Ok(end)
    }

    /// All words of a node that was linked at some moment of the operation.
    ///
    /// # Errors
    /// Those of the fabric, and [`IndexError::Corrupt`] if the node is damaged, or its slots leave
    /// a gap.
    pub(super) async fn read_node(&mut self, node: NodeAt) -> Result<Vec<u64>> {
        let (words, gap) = self.read_settled(node).await?;
        node::verify(node, &words)?;
        if gap.is_some() { Err(node::without_slot(node.addr)) } else { Ok(words) }
    }

    /// As [`Self::read_node`], but also returns the gap of a damaged node. A torn READ is repeated.
    pub(super) async fn read_settled(&mut self, node: NodeAt) -> Result<(Vec<u64>, Option<u8>)> {
        let mut before = None;
        loop {
            let words = self.client.read(node.addr, node::NODE_WORDS).await?;
            let gap = node::gap(&node::slots(&words));
            if gap == before || gap.is_none() {
                return Ok((words, gap));
            }
            before = gap;
        }
    }

    /// All words of a page, and its shape.
    pub(super) async fn read_page(&mut self, page: PageRef) -> Result<(Shape, Vec<u64>)> {
        page.parse(self.client.read(page.addr, page.words()).await?)
    }

    /// Seals all words of a node that are not sealed yet, and updates `words`.
    pub(super) async fn seal_node(&mut self, node: NodeAt, words: &mut [u64]) -> Result<()> {
        let first = node.addr.plus(node::GUARD_AT as u64 * 8);
        seal_all(&mut self.client, first, &mut words[node::GUARD_AT..node::SLOTS_END], |_, _| true).await
    }

    /// Reads the root word and the root node.
    pub(super) async fn read_root(&mut self) -> Result<(NodeAt, ParentSlot, Vec<u64>)> {
        let [word] = self.client.read_words(self.shared.words.root).await?;
        let parent = ParentSlot::root(self.shared, word);
        let node = parent.root_node()?;
        let words = self.read_node(node).await?;
        if words[0] != identity_of(self.shared.keys, &[], 0) {
            return Err(IndexError::corrupt(node.addr, "root node's identity does not match"));
        }
        Ok((node, parent, words))
    }

    /// Retires an object that this operation has unlinked.
    pub(super) fn retire(&mut self, addr: GlobalAddr, bytes: u64, kind: AllocKind) {
        self.client.retire(addr, bytes, kind);
    }

    /// Retires a leaf that this operation has unlinked.
    pub(super) fn retire_leaf(&mut self, (addr, class): (GlobalAddr, u8)) {
        self.retire(addr, class_bytes(class), AllocKind::Leaf);
    }

    /// Retires the leaf of a word that this operation has replaced, if it had one.
    pub(super) fn retire_leaf_of(&mut self, word: Word) {
        if let Some((addr, class, _)) = word.leaf_object() {
            self.retire_leaf((addr, class));
        }
    }
}
