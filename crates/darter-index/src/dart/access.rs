//! What the operations share: descents run to their end, nodes and the root read, a slot changed by
//! one CAS, the slot that points to a node, and the replacement of a node finished for the client
//! that began it.

use super::Dart;
use super::descent::{Descent, End, Purpose, SlotAt, View};
use super::est::Express;
use super::est::table::Table;
use super::holes::Hole;
use super::node::{Held, NodeRef, Slot};
use super::prefix_hash::HashedKey;
use super::situations;
use crate::IndexError;
use crate::checker::note;
use crate::radix::{TURNS_MAX, no_progress, search};
use darter_fabric::{Fabric, GlobalAddr, mutant};
use darter_pool::Pinned;

/// A node, and what a switch needs to know of its surroundings.
pub(super) struct Target<'a> {
    pub(super) node: NodeRef,
    /// The slot that points to it.
    pub(super) incoming: SlotAt,
    /// The depth of the node that holds that slot.
    pub(super) above: usize,
    /// Its only bucket, when it has but one and it was just read.
    pub(super) words: Option<&'a [u64]>,
}

/// Where the slot that points to a node was found.
pub(super) enum Parent {
    Found {
        incoming: SlotAt,
        above: usize,
    },
    /// A node above is being replaced.
    Sealed(NodeRef),
    /// The node is no longer on the key's path.
    Gone,
}

impl<F: Fabric> Dart<F> {
    /// A hashed key for `key`, under this pool's secret.
    pub(super) fn hashed<'k>(&self, key: &'k [u8]) -> HashedKey<'k> {
        HashedKey::new(self.shared.keys, key)
    }

    /// The express skip table, for work on it.
    pub(super) fn express<'t>(&'t self, table: &'t Table) -> Express<'t> {
        Express { table, keys: &self.shared.keys, version: self.shared.words.version }
    }

    /// A descent for a writer.
    pub(super) fn descent<'k>(&self, table: &Table, key: &'k [u8]) -> Descent<'k> {
        Descent::new(&self.shared, table, key, Purpose::Write, usize::MAX)
    }

    /// Runs a descent to its end, leaf words left in the returned batch.
    pub(super) async fn run(
        &self,
        client: &mut Pinned<'_, F>,
        table: &Table,
        descent: &mut Descent<'_>,
    ) -> Result<(End, darter_fabric::Batch), IndexError> {
        if descent.arrived() {
            return Ok((End::Reached, client.batch()));
        }
        search::run(client, &View { shared: &self.shared, table }, descent).await
    }

    /// Finds the slot that points to `node`, which lies on `key`'s path.
    pub(super) async fn parent_of(
        &self,
        client: &mut Pinned<'_, F>,
        table: &Table,
        key: &[u8],
        node: NodeRef,
    ) -> Result<Parent, IndexError> {
        let purpose = Purpose::Parent(node.addr);
        let descent = Descent::new(&self.shared, table, key, purpose, node.depth);
        self.parent_by(client, table, descent).await
    }

    /// Finds the slot that points to the node where a descent ended, from the hints that it did not
    /// need.
    pub(super) async fn parent_of_end(
        &self,
        client: &mut Pinned<'_, F>,
        table: &Table,
        ended: &Descent<'_>,
    ) -> Result<Parent, IndexError> {
        if let Some(incoming) = ended.incoming {
            return Ok(Parent::Found { incoming, above: ended.above });
        }
        let purpose = Purpose::Parent(ended.node.addr);
        match Descent::from_rest_of(&self.shared, ended, purpose, ended.node.depth) {
            Some(descent) => self.parent_by(client, table, descent).await,
            None => self.parent_of(client, table, ended.key.bytes(), ended.node).await,
        }
    }

    async fn parent_by(
        &self,
        client: &mut Pinned<'_, F>,
        table: &Table,
        mut descent: Descent<'_>,
    ) -> Result<Parent, IndexError> {
        let (end, done) = self.run(client, table, &mut descent).await?;
        client.recycle(done);
        Ok(match (end, descent.incoming) {
            (End::Reached, Some(incoming)) => Parent::Found { incoming, above: descent.above },
            (End::Sealed, _) => Parent::Sealed(descent.node),
            _ => Parent::Gone,
        })
    }

    /// Finishes the replacement of a node whose seals were met on `key`'s path; of one above it
    /// first, if need be.
    pub(super) async fn help(
        &self,
        client: &mut Pinned<'_, F>,
        table: &Table,
        key: &[u8],
        mut node: NodeRef,
    ) -> Result<(), IndexError> {
        client.retried();
        if self.shared.holes.has(Hole::FreezeParent) {
            return Ok(());
        }
        note(situations::HELPED);
        for _ in 0..TURNS_MAX {
            match self.parent_of(client, table, key, node).await? {
                Parent::Found { incoming, above } => {
                    let target = Target { node, incoming, above, words: None };
                    let mut hashed = HashedKey::new(self.shared.keys, key);
                    self.switch(client, table, &mut hashed, &target, None, &[]).await?;
                    return Ok(());
                }
                Parent::Sealed(_) if mutant!("help-stops-below-a-sealed-parent") => return Ok(()),
                Parent::Sealed(upper) => {
                    note(situations::HELPED_ABOVE);
                    node = upper;
                }
                Parent::Gone => return Ok(()),
            }
        }
        Err(no_progress(node.addr))
    }

    /// The root node, by the root word.
    pub(super) async fn read_root(&self, client: &mut Pinned<'_, F>) -> Result<NodeRef, IndexError> {
        Ok(self.read_root_slot(client).await?.0)
    }

    /// The root node, and the slot in the root word that points to it.
    pub(super) async fn read_root_slot(
        &self,
        client: &mut Pinned<'_, F>,
    ) -> Result<(NodeRef, Slot), IndexError> {
        let mut batch = client.batch();
        let read = batch.read(self.shared.words.root, 1);
        let done = client.submit(batch).await?;
        let slot = Slot::from_word(done.words(read)[0]);
        client.recycle(done);
        self.shared.remember_root(slot);
        match slot.held() {
            Held::Node { addr, ty, .. } => Ok((NodeRef { addr, ty, depth: 0 }, slot)),
            _ => Err(IndexError::Corrupt { addr: self.shared.words.root, what: "root word names no node" }),
        }
    }

    /// All words of a node, its buckets read in one verb.
    pub(super) async fn read_node(
        &self,
        client: &mut Pinned<'_, F>,
        node: NodeRef,
    ) -> Result<Vec<u64>, IndexError> {
        let mut batch = client.batch();
        let read = batch.read(node.addr, node.ty.words());
        let done = client.submit(batch).await?;
        let words = done.words(read).to_vec();
        client.recycle(done);
        Ok(words)
    }

    /// Writes what is new and links it by one CAS: one round trip when all of it is on one memory
    /// node. Answers whether that won.
    pub(super) async fn publish(
        &self,
        client: &mut Pinned<'_, F>,
        writes: &[(GlobalAddr, &[u64])],
        at: SlotAt,
        new: Slot,
    ) -> Result<bool, IndexError> {
        Ok(self.exchange(client, writes, at, new).await? == at.slot)
    }

    /// The same. Returns what the slot held.
    pub(super) async fn exchange(
        &self,
        client: &mut Pinned<'_, F>,
        writes: &[(GlobalAddr, &[u64])],
        at: SlotAt,
        new: Slot,
    ) -> Result<Slot, IndexError> {
        let mut batch = client.batch();
        for (addr, words) in writes {
            batch.write(*addr, words);
        }
        let is_far = writes.iter().any(|(addr, _)| addr.node() != at.addr.node());
        if is_far && !mutant!("copy-and-link-in-one-batch-to-two-nodes") {
            // Complete before the CAS that links it: batches order verbs of one memory node only.
            batch = client.submit(batch).await?;
            batch.clear();
        }
        let cas = batch.cas(at.addr, at.slot.word(), new.word());
        let done = client.submit(batch).await?;
        let found = Slot::from_word(done.found(cas));
        client.recycle(done);
        Ok(found)
    }
}
