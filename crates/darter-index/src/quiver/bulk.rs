//! Bulk load: the whole tree from pairs in key order, linked by one CAS on the root word.

use super::Quiver;
use super::build::Builder;
use super::descent::NodeAt;
use super::node::{self, Content, NODE_BYTES, Slot};
use super::operation::Operation;
use super::pair::{Maker, Pair};
use crate::ordered::check_key;
use crate::radix::leaf;
use crate::radix::{TURNS_MAX, no_progress};
use crate::{IndexError, KeyValue, Result};
use darter_fabric::{Fabric, OpKind};
use darter_pool::{AllocKind, Client};

/// Pairs added under one pin. Objects are born in the epoch of that pin.
const PAIRS_PER_PIN: u64 = 256;

impl<F: Fabric> Quiver<F> {
    /// Fills an empty index from strictly ascending keys.
    pub(super) async fn load_sorted<I>(&self, client: &mut Client<F>, sorted: I) -> Result<u64>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        Operation::begin(&self.shared, client, OpKind::Load).await?.require_empty().await?;
        let homes = client.pool().homes();
        let maker = Maker::new(&self.shared, client.epoch());
        let mut builder = Builder::of_tree(maker, self.shared.geometry.records, homes);
        let built = self.build(client, &mut builder, sorted).await;
        let published = match built {
            Ok((root, count)) => self.publish_root(client, &mut builder.maker, root).await.map(|()| count),
            Err(error) => Err(error),
        };
        // After any other error of the CAS the root may be linked although the reply was lost.
        if !matches!(published, Ok(_) | Err(IndexError::Fabric(_))) {
            builder.maker.discard(client);
        }
        let count = published?;
        self.adjust_if_there_is_room(client).await?;
        Ok(count)
    }

    async fn build<I>(
        &self,
        client: &mut Client<F>,
        builder: &mut Builder,
        sorted: I,
    ) -> Result<(NodeAt, u64)>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        let object_bytes_max = client.pool().object_bytes_max();
        let (mut count, mut last) = (0, None);
        let mut sorted = sorted.peekable();
        while sorted.peek().is_some() {
            let mut client = client.pin(OpKind::Load).await?;
            builder.maker.born = client.epoch() as u32;
            for (key, value) in sorted.by_ref().take(PAIRS_PER_PIN as usize) {
                check_key(&key)?;
                leaf::class_within(object_bytes_max, key.len(), value.len())?;
                if last.as_ref().is_some_and(|last| last >= &key) {
                    return Err(IndexError::NotSorted { at: count });
                }
                let pair = Pair::new(builder.maker.keys, &key, &value);
                builder.push(&mut client, pair).await?;
                last = Some(key);
                count += 1;
            }
        }
        let mut client = client.pin(OpKind::Load).await?;
        builder.maker.born = client.epoch() as u32;
        let (addr, depth) = builder.finish(&mut client).await?;
        Ok((NodeAt { addr, depth }, count))
    }

    /// Replaces the empty root by the built one.
    async fn publish_root(&self, client: &mut Client<F>, maker: &mut Maker, new: NodeAt) -> Result<()> {
        let mut operation = Operation::begin(&self.shared, client, OpKind::Load).await?;
        for _ in 0..TURNS_MAX {
            let (node, parent, mut words) = operation.read_root().await?;
            if is_used(&words) {
                return Err(IndexError::NotEmpty);
            }
            operation.seal_node(node, &mut words).await?;
            if is_used(&words) {
                // A client put a key while the root was being sealed.
                operation.replace_node(node, parent).await?;
                return Err(IndexError::NotEmpty);
            }
            let slot = Slot::node(0, new.addr);
            let words = [parent.at.slot, slot].map(|slot| parent.stored(slot));
            if maker.try_link(&mut operation.client, parent.at.addr, words[0], words[1]).await? {
                operation.retire(node.addr, NODE_BYTES, AllocKind::Inner);
                return Ok(());
            }
        }
        Err(no_progress(self.shared.words.root))
    }
}

/// Whether a root has anything below it.
fn is_used(words: &[u64]) -> bool {
    let holds = |slot: &Slot| matches!(slot.content(), Content::Page { .. } | Content::Node { .. });
    node::slots(words).iter().any(holds)
}

impl<F: Fabric> Operation<'_, F> {
    async fn require_empty(&mut self) -> Result<()> {
        let (_, _, words) = self.read_root().await?;
        if is_used(&words) { Err(IndexError::NotEmpty) } else { Ok(()) }
    }
}
