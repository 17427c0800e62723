//! Bulk load: fills an empty index from strictly ascending keys. The tree is built by
//! [`crate::radix::build`] and published by one CAS on the root word.

use super::Dart;
use super::access::Target;
use super::descent::SlotAt;
use super::est::install::{PendingEntry, install, pending_for};
use super::node::{self, NodeRef, NodeType, Slot};
use super::operation::Operation;
use super::prefix_hash::HashedKey;
use super::retirement::node_note;
use super::seal::seal_all;
use crate::radix::build::{Builder, Built, Shape};
use crate::radix::prefix_list::PrefixList;
use crate::radix::slot::{END, SKIP_MAX};
use crate::{IndexError, KeyValue, Result};
use darter_fabric::{Fabric, OpKind};
use darter_pool::{AllocKind, Client};

/// Maximum number of express entries kept until the end. Further ones are dropped, which costs
/// round trips until the next adjustment.
const PENDING_MAX: usize = 16 << 20;

/// Layout of hashed nodes, and the express entries of the nodes finished so far.
struct Hashed {
    list: PrefixList,
    pending: Vec<PendingEntry>,
}

impl Shape for Hashed {
    type Type = NodeType;

    const SKIP_MAX: usize = SKIP_MAX;

    fn fit(&self, children: &[Slot]) -> NodeType {
        NodeType::fit(children.iter().map(|slot| slot.edge().unwrap_or(END)))
    }

    fn bytes(ty: NodeType) -> u64 {
        ty.bytes()
    }

    fn image(ty: NodeType, identity: u64, children: &[Slot]) -> Vec<u64> {
        node::image(ty, identity, children)
    }

    fn children(ty: NodeType, words: &[u64]) -> Vec<Slot> {
        node::slots(ty, words).map(|(_, slot)| slot).filter(|slot| slot.is_live()).collect()
    }

    fn skip(bytes: usize) -> u8 {
        bytes as u8
    }

    fn attached(&mut self, key: &mut HashedKey<'_>, above: usize, node: Built<NodeType>) {
        if self.pending.len() < PENDING_MAX {
            let Built { addr, ty, depth } = node;
            let node = NodeRef { addr, ty, depth };
            self.pending.extend(pending_for(self.list, key, (above, depth), node, None));
        }
    }
}

impl<F: Fabric> Dart<F> {
    /// Fills an empty index.
    pub(super) async fn load_sorted<I>(&self, client: &mut Client<F>, sorted: I) -> Result<u64>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        let list = {
            let mut operation = Operation::begin(&self.shared, client, OpKind::Load).await?;
            let root = operation.read_root().await?;
            let words = operation.read_node(root).await?;
            if node::slots(root.ty, &words).any(|(_, slot)| slot.is_live()) {
                return Err(IndexError::NotEmpty);
            }
            operation.table.list
        };
        let mut builder = Builder::new(Hashed { list, pending: Vec::new() }, self.shared.keys);
        let root = builder.run(client, sorted).await?;
        let published = self.publish_root(client, root, (list, &builder.shape.pending)).await;
        builder.end(client, published).await
    }

    /// Replaces the empty root by the root that was built.
    async fn publish_root(
        &self,
        client: &mut Client<F>,
        new: Built<NodeType>,
        (list, pending): (PrefixList, &[PendingEntry]),
    ) -> Result<()> {
        let mut operation = Operation::begin(&self.shared, client, OpKind::Load).await?;
        let (old, old_slot) = operation.read_root_slot().await?;
        let mut words = operation.read_node(old).await?;
        if node::slots(old.ty, &words).any(|(_, slot)| slot.is_live()) {
            return Err(IndexError::NotEmpty);
        }
        seal_all(&mut operation.client, old.addr, &mut words, old.ty.seals()).await?;
        let at = SlotAt { addr: self.shared.words.root, slot: old_slot };
        let is_empty = !node::slots(old.ty, &words).any(|(_, slot)| slot.is_live());
        if !is_empty {
            // A client put a key during the sealing: finish the switch that the seals began.
            let target = Target { node: old, incoming: at, above: 0, words: None };
            operation.switch(&mut self.shared.hashed(&[]), &target, None, &[]).await?;
            return Err(IndexError::NotEmpty);
        }
        let slot = Slot::node(0, new.ty, 0, new.addr);
        if !operation.publish(&[], at, slot).await? {
            return Err(IndexError::NotEmpty);
        }
        self.shared.remember_root(slot);
        operation.client.unlink(old.addr, old.ty.bytes(), AllocKind::Inner, node_note(&[]));
        // A scrub would not find entries under lengths of another list.
        let pending = if operation.table.list == list { pending } else { &[] };
        for chunk in pending.chunks(64) {
            install(&mut operation.client, self.shared.express(&operation.table), chunk, &[]).await?;
        }
        Ok(())
    }
}
