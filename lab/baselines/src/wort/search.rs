//! Search, multi-get, and the key of any leaf below a node.

use super::Wort;
use super::descent::{Descent, Here, Purpose, WortEnd};
use super::lines::Recorder;
use super::node::{Content, Node, NodeType};
use super::shared::Operation;
use darter_fabric::{Batch, Fabric, GlobalAddr, OpKind};
use darter_index::radix::below::{self, Way};
use darter_index::radix::{leaf, search};
use darter_index::{IndexError, Result, check_key};
use darter_pool::Client;

/// Returns the value at the end of a search.
fn value_at(end: WortEnd, done: &Batch) -> Result<Option<Vec<u8>>> {
    match end {
        WortEnd::Leaf { at, read, is_key: true } => {
            Ok(Some(leaf::parse_again(at.slot.addr(), done.words(read))?.value.to_vec()))
        }
        _ => Ok(None),
    }
}

impl<F: Fabric> Wort<F> {
    pub(super) async fn get_value(&self, client: &mut Client<F>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        let mut operation = Operation::pin(&*self.shared, client, OpKind::Get).await?;
        let (_, end, done) = operation.descend(key, Purpose::Read).await?;
        let value = value_at(end, &done)?;
        operation.client.recycle(done);
        Ok(value)
    }

    pub(super) async fn values_of(
        &self,
        client: &mut Client<F>,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let mut operation = Operation::pin(&*self.shared, client, OpKind::MultiGet).await?;
        let epoch = operation.client.epoch();
        let descents = keys.iter().map(|key| Descent::new(epoch, key, Purpose::Read));
        let values = search::run_all(&mut operation.client, &*self.shared, descents, |_, end, done| {
            value_at(end, done)
        });
        values.await
    }
}

/// A node on the way to any leaf below it.
#[derive(Clone, Copy)]
pub(super) struct Whole<'s> {
    pub(super) addr: GlobalAddr,
    pub(super) ty: NodeType,
    /// The place of the first digit after the edge that leads to it.
    pub(super) start: usize,
    pub(super) touched: &'s Recorder,
}

impl below::Node for Whole<'_> {
    fn words(&self) -> (GlobalAddr, usize) {
        (self.addr, self.ty.words())
    }

    fn add_ways(&self, words: &[u64], ways: &mut Vec<Way<Self>>) -> Result<()> {
        let node = Node::new(self.ty, words);
        let branch = node.header().branch();
        if branch < self.start {
            return Err(IndexError::corrupt(self.addr, "node is not as deep as the edge that leads to it"));
        }
        let children = node.children();
        self.touched.read(self.addr, || node.words_for_first());
        if let Some(&(_, slot)) = children.first() {
            self.touched.read_leaf(slot);
        }
        for (_, slot) in children.into_iter().rev() {
            ways.push(match slot.content() {
                Content::Leaf { addr, class } => Way::Leaf { addr, class },
                Content::Node { addr, ty, .. } => Way::Node(Self { addr, ty, start: branch + 1, ..*self }),
                _ => return Err(IndexError::corrupt(self.addr, "slot of an unknown type")),
            });
        }
        Ok(())
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Runs a descent to its end; the leaf's words are left in the returned batch.
    pub(super) async fn descend<'k>(
        &mut self,
        key: &'k [u8],
        purpose: Purpose,
    ) -> Result<(Descent<'k>, WortEnd, Batch)> {
        let mut descent = Descent::new(self.client.epoch(), key, purpose);
        let (end, done) = search::run(&mut self.client, self.shared, &mut descent).await?;
        Ok((descent, end, done))
    }

    /// Returns the key of some leaf below a node: every node has two, except during its
    /// replacement.
    pub(super) async fn key_below(&mut self, here: &Here) -> Result<Vec<u8>> {
        let touched = &self.shared.touched;
        let whole = Whole { addr: here.addr, ty: here.ty, start: here.start, touched };
        let found = below::keys_below(&mut self.client, std::iter::once(whole)).await?.pop().flatten();
        found.ok_or(IndexError::corrupt(here.addr, "node without a leaf below it"))
    }
}
