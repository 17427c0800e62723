//! Reads the pairs that can be read without the memory nodes that are lost
//! ([`crate::OrderedIndex::salvage`]), and changes nothing.
//!
//! It reads only by slots, never by hints. Pages of one node are read in one round trip, and their leaves
//! in one or more. A pair counts as in a scan: its page was linked when its slot was read, and is current
//! or sealed with its last content (L5). A key with an intent has the value that the transaction's status
//! word says, or cannot be read if that word is lost.

use super::Quiver;
use super::content::Content as Pairs;
use super::intents::states_of;
use super::lost::{Place, gaps_of, range_of};
use super::nibble::{EdgeRange, LAST, first_after};
use super::operation::Operation;
use super::page::{PageRef, Shape};
use super::pair::Pair;
use super::parent_slot::ParentSlot;
use crate::Result;
use crate::ordered::{Gap, LostNodes, Salvaged};
use crate::radix::intent::Intent;
use crate::radix::leaf;
use darter_fabric::{Fabric, OpKind};
use darter_pool::Client;
use darter_pool::size_class::class_bytes;

/// Bytes of pairs after which a step ends, and most bytes of leaves that are read at once.
const BYTES: u64 = 4 << 20;

/// A step in progress.
struct Step<'k> {
    lost: LostNodes,
    from: &'k [u8],
    salvaged: Salvaged,
    /// Bytes of the pairs.
    bytes: u64,
}

impl<F: Fabric> Quiver<F> {
    /// One step: [`crate::OrderedIndex::salvage`].
    pub(super) async fn salvage_from(
        &self,
        client: &mut Client<F>,
        lost: LostNodes,
        from: &[u8],
    ) -> Result<Salvaged> {
        let mut operation = Operation::begin(&self.shared, client, OpKind::Scan).await?;
        let mut step = Step { lost, from, salvaged: Salvaged::default(), bytes: 0 };
        step.salvaged.next = operation.salvage_path(&mut step).await?;
        Ok(step.salvaged)
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Reads the pages of the nodes on the path to the step's key. Returns the key to continue at.
    async fn salvage_path(&mut self, step: &mut Step<'_>) -> Result<Option<Vec<u8>>> {
        let [root] = self.client.read_words(self.shared.words.root).await?;
        if step.lost.contains(ParentSlot::root(self.shared, root).root_node()?.addr.node()) {
            step.salvaged.gaps.push(Gap { from: Vec::new(), until: None, keys: None });
            return Ok(None);
        }
        let (mut node, _, mut words) = self.read_root().await?;
        let mut prefix = Vec::new();
        loop {
            let around = self.look_around(step.lost, step.from, (node, &words), &prefix).await?;
            for (edges, place) in around.places {
                match place {
                    Place::Lost(_) => {
                        step.salvaged.gaps.push(range_of(&prefix, node.depth, edges, None));
                    }
                    Place::Page(page, shape, words) => {
                        let next = self.salvage_page(step, page, (&shape, &words), edges, &prefix).await?;
                        if next.is_some() {
                            return Ok(next);
                        }
                    }
                }
            }
            let Some((child, _, own)) = around.below else {
                return Ok(first_after(&prefix, node.depth, LAST));
            };
            words = self.read_node(child).await?;
            (node, prefix) = (child, own);
        }
    }

    /// Reads the pairs of a page. Returns the key to continue at, if the step has got enough pairs before
    /// the end of the page.
    async fn salvage_page(
        &mut self,
        step: &mut Step<'_>,
        page: PageRef,
        (shape, words): (&Shape, &[u64]),
        edges: EdgeRange,
        prefix: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let keys = self.shared.keys;
        let of = (shape, words);
        let content = Pairs::read_around(&mut self.client, keys, page, of, edges.hi, step.lost).await?;
        let begin = content.pairs.partition_point(|pair| &pair.key[..] < step.from);
        let mut rest = &content.pairs[begin..];
        while let [next, ..] = rest {
            if step.bytes >= BYTES {
                return Ok(Some(next.key.to_vec()));
            }
            let mut bytes = 0;
            let fits = rest.iter().take_while(|pair| {
                bytes += unread(pair);
                bytes <= BYTES
            });
            let (now, later) = rest.split_at(fits.count().max(1));
            self.salvage_pairs(step, page, now).await?;
            rest = later;
        }
        step.salvaged.gaps.extend(gaps_of(prefix, shape.depth, &content.lost));
        Ok(None)
    }

    /// Reads the values of some pairs.
    async fn salvage_pairs(&mut self, step: &mut Step<'_>, page: PageRef, pairs: &[Pair]) -> Result<()> {
        let mut batch = self.client.batch();
        let mut leaves = Vec::with_capacity(pairs.len());
        for pair in pairs {
            let wanted = pair.leaf.filter(|_| pair.image.is_none());
            let read = wanted.map(|(addr, class)| (addr, batch.read(addr, leaf::class_words(class))));
            leaves.push(read);
        }
        let done = if batch.is_empty() { batch } else { self.client.submit(batch).await? };
        let mut images = Vec::with_capacity(pairs.len());
        for (pair, read) in pairs.iter().zip(leaves) {
            images.push(match (&pair.image, read) {
                (Some(image), _) => (page.addr, image.to_vec()),
                (None, Some((addr, read))) => (addr, done.words(read).to_vec()),
                (None, None) => return Err(crate::IndexError::corrupt(page.addr, "pair without a leaf")),
            });
        }
        self.client.recycle(done);
        for (pair, (addr, image)) in pairs.iter().zip(images) {
            let leaf = leaf::parse(addr, &image)?;
            let value = match Intent::of(&image)? {
                None => Some(leaf.value.to_vec()),
                Some(intent) if step.lost.contains(intent.status.node()) => {
                    step.salvaged.gaps.push(Gap::of_key(&pair.key));
                    None
                }
                Some(intent) => {
                    let states = states_of(&mut self.client, &[intent.status]).await?;
                    states.first().and_then(|&state| intent.value(state)).map(<[u8]>::to_vec)
                }
            };
            if let Some(value) = value {
                step.bytes += (pair.key.len() + value.len()) as u64;
                step.salvaged.pairs.push((pair.key.to_vec(), value));
            }
        }
        Ok(())
    }
}

/// Bytes of a pair's leaf, if its value must be read from there.
fn unread(pair: &Pair) -> u64 {
    pair.leaf.filter(|_| pair.image.is_none()).map_or(0, |(_, class)| class_bytes(class))
}
