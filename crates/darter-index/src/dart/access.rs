//! Steps that the operations share: running descents, reading nodes and the root, changing a slot
//! by one CAS, finding the slot that points to a node, and finishing a replacement that another
//! client began.

use super::descent::{Descent, DescentEnd, Purpose, SlotAt, View};
use super::node::{Content, NodeRef, Slot};
use super::operation::Operation;
use super::situations;
use crate::checker::note;
use crate::radix::{TURNS_MAX, no_progress, search};
use crate::{IndexError, Result};
use darter_fabric::{Fabric, GlobalAddr};

/// A node, with the context that a switch needs.
pub(super) struct Target<'a> {
    pub(super) node: NodeRef,
    /// The slot that points to it.
    pub(super) incoming: SlotAt,
    /// The depth of the node that holds that slot.
    pub(super) above: usize,
    /// The words of its only bucket, if it has just one and that was just read.
    pub(super) words: Option<&'a [u64]>,
}

/// Result of the search for the slot that points to a node.
pub(super) enum Parent {
    Found {
        incoming: SlotAt,
        above: usize,
    },
    /// A node above it is being replaced.
    Sealed(NodeRef),
    /// The node is no longer on the key's path.
    Gone,
}

impl<F: Fabric> Operation<'_, F> {
    /// A descent for a writer.
    pub(super) fn descent<'k>(&self, key: &'k [u8]) -> Descent<'k> {
        Descent::new(self.shared, &self.table, key, Purpose::Write, usize::MAX)
    }

    /// Runs a descent to its end. The returned batch holds the leaf's words.
    pub(super) async fn run(
        &mut self,
        descent: &mut Descent<'_>,
    ) -> Result<(DescentEnd, darter_fabric::Batch)> {
        if descent.arrived() {
            return Ok((DescentEnd::Reached, self.client.batch()));
        }
        search::run(&mut self.client, &View { shared: self.shared, table: &self.table }, descent).await
    }

    /// Finds the slot that points to `node`, which lies on `key`'s path.
    pub(super) async fn parent_of(&mut self, key: &[u8], node: NodeRef) -> Result<Parent> {
        let purpose = Purpose::Parent(node.addr);
        let descent = Descent::new(self.shared, &self.table, key, purpose, node.depth);
        self.parent_by(descent).await
    }

    /// Finds the slot that points to the node at which a descent ended, starting from the hints
    /// that the descent did not use.
    pub(super) async fn parent_of_end(&mut self, ended: &Descent<'_>) -> Result<Parent> {
        if let Some(incoming) = ended.incoming {
            return Ok(Parent::Found { incoming, above: ended.above });
        }
        let purpose = Purpose::Parent(ended.node.addr);
        match Descent::from_rest_of(self.shared, ended, purpose, ended.node.depth) {
            Some(descent) => self.parent_by(descent).await,
            None => self.parent_of(ended.key.bytes(), ended.node).await,
        }
    }

    async fn parent_by(&mut self, mut descent: Descent<'_>) -> Result<Parent> {
        let (end, done) = self.run(&mut descent).await?;
        self.client.recycle(done);
        Ok(match (end, descent.incoming) {
            (DescentEnd::Reached, Some(incoming)) => Parent::Found { incoming, above: descent.above },
            (DescentEnd::Sealed, _) => Parent::Sealed(descent.node),
            _ => Parent::Gone,
        })
    }

    /// Finishes the replacement of a node whose seals were found on `key`'s path; if necessary,
    /// that of a node above it first.
    pub(super) async fn help(&mut self, key: &[u8], mut node: NodeRef) -> Result<()> {
        self.client.retried();
        note(situations::HELPED);
        for _ in 0..TURNS_MAX {
            match self.parent_of(key, node).await? {
                Parent::Found { incoming, above } => {
                    let target = Target { node, incoming, above, words: None };
                    let mut hashed = self.shared.hashed(key);
                    self.switch(&mut hashed, &target, None, &[]).await?;
                    return Ok(());
                }
                Parent::Sealed(upper) => {
                    note(situations::HELPED_ABOVE);
                    node = upper;
                }
                Parent::Gone => return Ok(()),
            }
        }
        Err(no_progress(node.addr))
    }

    /// Reads the root word and returns the root node.
    pub(super) async fn read_root(&mut self) -> Result<NodeRef> {
        Ok(self.read_root_slot().await?.0)
    }

    /// Returns the root node, and the slot in the root word that points to it.
    pub(super) async fn read_root_slot(&mut self) -> Result<(NodeRef, Slot)> {
        let [word] = self.client.read_words(self.shared.words.root).await?;
        let slot = Slot::from_word(word);
        self.shared.remember_root(slot);
        match slot.content() {
            Content::Node { addr, ty, .. } => Ok((NodeRef { addr, ty, depth: 0 }, slot)),
            _ => Err(IndexError::corrupt(self.shared.words.root, "the root word names no node")),
        }
    }

    /// Reads all words of a node, with all buckets in one verb.
    pub(super) async fn read_node(&mut self, node: NodeRef) -> Result<Vec<u64>> {
        Ok(self.client.read(node.addr, node.ty.words()).await?)
    }

    /// Writes the new objects and links them by one CAS: one round trip if all are on one memory
    /// node. Returns whether the CAS succeeded.
    pub(super) async fn publish(
        &mut self,
        writes: &[(GlobalAddr, &[u64])],
        at: SlotAt,
        new: Slot,
    ) -> Result<bool> {
        Ok(self.exchange(writes, at, new).await? == at.slot)
    }

    /// Does the same, but returns the previous content of the slot.
    pub(super) async fn exchange(
        &mut self,
        writes: &[(GlobalAddr, &[u64])],
        at: SlotAt,
        new: Slot,
    ) -> Result<Slot> {
        let mut batch = self.client.batch();
        for (addr, words) in writes {
            batch.write(*addr, words);
        }
        let is_far = writes.iter().any(|(addr, _)| addr.node() != at.addr.node());
        if is_far {
            // Complete before the linking CAS: a batch orders only verbs of one memory node.
            self.client.send(&mut batch).await?;
        }
        let cas = batch.cas(at.addr, at.slot.word(), new.word());
        let done = self.client.submit(batch).await?;
        let found = Slot::from_word(done.found(cas));
        self.client.recycle(done);
        Ok(found)
    }
}
