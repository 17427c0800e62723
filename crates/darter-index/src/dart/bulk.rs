//! Bulk load: an empty index from strictly ascending keys, built by [`crate::radix::build`] and
//! published by one CAS on the root word.

use super::Dart;
use super::access::Target;
use super::descent::SlotAt;
use super::est::PrefixList;
use super::est::install::{PendingEntry, install, pending_for};
use super::node::{self, NodeRef, NodeType, Slot};
use super::prefix_hash::HashedKey;
use super::retirement::node_note;
use super::seal::seal_all;
use crate::radix::build::{Builder, Built, Shape};
use crate::radix::slot::{END, SKIP_MAX};
use crate::{IndexError, KeyValue};
use darter_fabric::{Fabric, OpKind, mutant};
use darter_pool::{AllocKind, Client};

/// Express entries kept until the end; more are dropped, which costs round trips until the next
/// adjustment.
const PENDING_MAX: usize = 16 << 20;

/// Hashed nodes, and the express entries of those that were finished.
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
    pub(super) async fn load_sorted<I>(&self, client: &mut Client<F>, sorted: I) -> Result<u64, IndexError>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        let list = {
            let mut client = client.pin(OpKind::Load).await?;
            let table = self.shared.view(&mut client).await?;
            let root = self.read_root(&mut client).await?;
            let words = self.read_node(&mut client, root).await?;
            if node::slots(root.ty, &words).any(|(_, slot)| slot.is_live()) {
                return Err(IndexError::NotEmpty);
            }
            table.list
        };
        let mut builder = Builder::new(Hashed { list, pending: Vec::new() }, self.shared.keys);
        let outcome = match builder.run(client, sorted).await {
            Ok(root) => match self.publish_root(client, root, (list, &builder.shape.pending)).await {
                // After any other error the root may be linked: the CAS may have landed though its
                // reply was lost.
                Err(IndexError::NotEmpty) => Err(IndexError::NotEmpty),
                published => return published.map(|()| builder.count),
            },
            Err(error) => Err(error),
        };
        let count = builder.count;
        builder.give_back(client).await?;
        outcome.map(|()| count)
    }

    /// Puts the built root in the place of the empty one.
    async fn publish_root(
        &self,
        client: &mut Client<F>,
        new: Built<NodeType>,
        (list, pending): (PrefixList, &[PendingEntry]),
    ) -> Result<(), IndexError> {
        let mut client = client.pin(OpKind::Load).await?;
        let table = self.shared.view(&mut client).await?;
        let (old, old_slot) = self.read_root_slot(&mut client).await?;
        let mut words = self.read_node(&mut client, old).await?;
        if node::slots(old.ty, &words).any(|(_, slot)| slot.is_live()) {
            return Err(IndexError::NotEmpty);
        }
        seal_all(&mut client, old.addr, &mut words, old.ty.seals()).await?;
        let at = SlotAt { addr: self.shared.words.root, slot: old_slot };
        let is_empty = !node::slots(old.ty, &words).any(|(_, slot)| slot.is_live());
        if !is_empty && !mutant!("bulk-load-over-a-late-key") {
            // A client put a key while we were sealing: finish the switch that the seals began.
            let target = Target { node: old, incoming: at, above: 0, words: None };
            self.switch(&mut client, &table, &mut self.hashed(&[]), &target, None, &[]).await?;
            return Err(IndexError::NotEmpty);
        }
        let slot = Slot::node(0, new.ty, 0, new.addr);
        if !self.publish(&mut client, &[], at, slot).await? {
            return Err(IndexError::NotEmpty);
        }
        self.shared.remember_root(slot);
        client.unlink(old.addr, old.ty.bytes(), AllocKind::Inner, node_note(&[]));
        // No scrub would look for what stands under lengths of another list.
        let pending = if table.list == list { pending } else { &[] };
        for chunk in pending.chunks(64) {
            install(&mut client, self.express(&table), chunk, &[]).await?;
        }
        Ok(())
    }
}
