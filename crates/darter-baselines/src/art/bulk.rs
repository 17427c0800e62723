//! Bulk load: an empty index from strictly ascending keys, built by [`darter_index::radix::build`]
//! and put in the root's place.

use super::Art;
use super::descent::{Here, SlotAt};
use super::node::{self, Header, Layout, NodeType, Part, Slot};
use super::replace::{Replaced, Wanted};
use darter_fabric::{Fabric, OpKind};
use darter_index::radix::build::{Builder, Built, Shape};
use darter_index::radix::prefix_hash::HashedKey;
use darter_index::radix::slot::END;
use darter_index::radix::{TURNS_MAX, no_progress};
use darter_index::{IndexError, KeyValue};
use darter_pool::Client;

/// The nodes of a layout.
struct Nodes(Layout);

impl Shape for Nodes {
    type Type = NodeType;

    /// The header tells a node's depth, so an edge skips what it likes.
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
    pub(super) async fn load_sorted<I>(&self, client: &mut Client<F>, sorted: I) -> Result<u64, IndexError>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        let mut builder = Builder::new(Nodes(self.shared.layout), self.shared.keys);
        // Before anything is written: an index that has keys is refused at once.
        let outcome = match self.publish_root(client, None).await {
            Ok(()) => match builder.run(client, sorted).await {
                Ok(root) => match self.publish_root(client, Some(root)).await {
                    Err(IndexError::NotEmpty) => Err(IndexError::NotEmpty),
                    // After any other error the root may be linked: the CAS may have landed though
                    // its reply was lost.
                    published => return published.map(|()| builder.count),
                },
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        let count = builder.count;
        builder.give_back(client).await?;
        outcome.map(|()| count)
    }

    /// Puts the built root in the place of the empty one; without one only looks whether that could
    /// be.
    async fn publish_root(
        &self,
        client: &mut Client<F>,
        new: Option<Built<NodeType>>,
    ) -> Result<(), IndexError> {
        let mut client = client.pin(OpKind::Load).await?;
        for _ in 0..TURNS_MAX {
            let slot = self.shared.read_root(&mut client).await?;
            let (addr, ty) = self.shared.node_of_root(slot)?;
            let incoming = SlotAt { addr: self.shared.words.root, slot };
            let here = Here { addr, ty, header: Header::default(), incoming, above: None };
            let Some(new) = new else {
                let mut batch = client.batch();
                let read = batch.read(addr, ty.words());
                let done = client.submit(batch).await?;
                let is_empty = Part::whole(ty, done.words(read)).live().next().is_none();
                client.recycle(done);
                return if is_empty { Ok(()) } else { Err(IndexError::NotEmpty) };
            };
            match self.replace(&mut client, &here, Wanted::Instead(new)).await? {
                Replaced::Done { .. } => return Ok(()),
                Replaced::NotEmpty => return Err(IndexError::NotEmpty),
                Replaced::Lost | Replaced::Unneeded => client.retried(),
            }
        }
        Err(no_progress(self.shared.words.root))
    }
}
