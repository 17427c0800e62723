//! Bulk load: fills an empty index from strictly ascending keys; the tree is built by
//! [`darter_index::radix::build`] and replaces the root.

use super::Art;
use super::descent::{Here, SlotAt};
use super::node::{self, Header, Layout, NodeType, Part, Slot};
use super::replace::{Replaced, Wanted};
use super::shared::Operation;
use darter_fabric::{Fabric, OpKind};
use darter_index::radix::build::{Builder, Built, Shape};
use darter_index::radix::prefix_hash::HashedKey;
use darter_index::radix::slot::END;
use darter_index::radix::{TURNS_MAX, no_progress};
use darter_index::{IndexError, KeyValue, Result};
use darter_pool::Client;

/// The nodes of a layout.
struct Nodes(Layout);

impl Shape for Nodes {
    type Type = NodeType;

    /// The header contains a node's depth, so an edge can skip any number of bytes.
    const SKIP_MAX: usize = usize::MAX;

    fn fit(&self, children: &[Slot]) -> NodeType {
        NodeType::fit(self.0, children.iter().map(|slot| slot.edge().unwrap_or(END)))
    }

    fn bytes(ty: NodeType) -> u64 {
        ty.bytes()
    }

    fn image(ty: NodeType, identity: u64, children: &[Slot]) -> Vec<u64> {
        node::image(ty, identity, children)
    }

    fn children(ty: NodeType, words: &[u64]) -> Vec<Slot> {
        Part::whole(ty, words).live().map(|(_, slot)| slot).collect()
    }

    fn skip(_bytes: usize) -> u8 {
        0
    }

    fn attached(&mut self, _key: &mut HashedKey<'_>, _above: usize, _node: Built<NodeType>) {}
}

impl<F: Fabric> Art<F> {
    /// Fills an empty index.
    pub(super) async fn load_sorted<I>(&self, client: &mut Client<F>, sorted: I) -> Result<u64>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        // Before anything is written: an index that has keys is rejected at once.
        self.publish_root(client, None).await?;
        let mut builder = Builder::new(Nodes(self.shared.layout), self.shared.keys);
        let root = builder.run(client, sorted).await?;
        let published = self.publish_root(client, Some(root)).await;
        builder.end(client, published).await
    }

    /// Replaces the empty root by the built one; without one only checks whether that is possible.
    async fn publish_root(&self, client: &mut Client<F>, new: Option<Built<NodeType>>) -> Result<()> {
        let mut operation = Operation::pin(&*self.shared, client, OpKind::Load).await?;
        for _ in 0..TURNS_MAX {
            let slot = self.shared.read_root(&mut operation.client).await?;
            let (addr, ty) = self.shared.node_of_root(slot)?;
            let incoming = SlotAt { addr: self.shared.words.root, slot };
            let here = Here { addr, ty, header: Header::default(), incoming, above: None };
            let Some(new) = new else {
                let words = operation.client.read(addr, ty.words()).await?;
                let is_empty = Part::whole(ty, &words).live().next().is_none();
                return if is_empty { Ok(()) } else { Err(IndexError::NotEmpty) };
            };
            match operation.replace(&here, Wanted::Instead(new)).await? {
                Replaced::Done { .. } => return Ok(()),
                Replaced::NotEmpty => return Err(IndexError::NotEmpty),
                Replaced::Lost | Replaced::Unneeded => operation.client.retried(),
            }
        }
        Err(no_progress(self.shared.words.root))
    }
}
