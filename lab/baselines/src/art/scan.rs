//! Range scan in both directions, one chunk at a time, as in DART without its express nodes. The
//! walk keeps a frontier in key order and reads a run at its front in one round trip: as many
//! children of one level in parallel as the remaining number of keys probably needs.
//!
//! A node read after it was replaced still holds every key that was there when it was sealed and
//! was not deleted since.

use super::Art;
use super::descend_any::keys_below;
use super::node::{Content, Part, Slot};
use super::shared::Operation;
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_index::radix::frontier::{Weight, put_between, put_children, put_front, window};
use darter_index::radix::limits::{Limits, Standing, Touches};
use darter_index::radix::sink::{Sink, emit, is_void};
use darter_index::radix::slot::END;
use darter_index::{IndexError, KeyValue, Result, ScanRange};
use darter_pool::Client;
use darter_pool::size_class::class_bytes;
use std::collections::VecDeque;

/// A subtree or a leaf that is at least partly in the range.
#[derive(Clone, Copy, Debug)]
struct Item {
    slot: Slot,
    touches: Touches,
    /// The depth of the node that holds the slot; `None` for the root.
    above: Option<usize>,
}

/// A node that left a bound's path in the bytes its edge skipped: the key of any leaf below it
/// shows its position.
struct Unclear {
    /// The position of its children among the items found.
    at: usize,
    item: Item,
    depth: usize,
    children: Vec<Slot>,
}

impl<F: Fabric> Art<F> {
    /// Returns the first `limit` pairs of a range in its direction.
    pub(super) async fn scan_chunk(
        &self,
        client: &mut Client<F>,
        range: &ScanRange,
        limit: usize,
    ) -> Result<Vec<KeyValue>> {
        let mut pairs = Vec::new();
        if limit == 0 || is_void(range) {
            return Ok(pairs);
        }
        let mut operation = Operation::pin(&*self.shared, client, OpKind::Scan).await?;
        self.shared.refresh(&mut operation.client).await?;
        let mut visit = |key: &[u8], value: &[u8]| pairs.push((key.to_vec(), value.to_vec()));
        let mut sink = Sink::new(&mut visit, limit, range.reverse);
        let mut limits = Limits::new(self.shared.keys, range);
        let root = Item { slot: self.shared.root(), touches: limits.whole(), above: None };
        let mut frontier = VecDeque::from([root]);
        let mut root_known = false;
        while !frontier.is_empty() && sink.left > 0 {
            let (count, has_nodes) = window(&frontier, sink.left, weight);
            let run: Vec<Item> = frontier.drain(..count).collect();
            if !has_nodes {
                let leaves = run.iter().filter_map(|item| match item.slot.content() {
                    Content::Leaf { addr, class } => Some((addr, class, item.touches)),
                    _ => None,
                });
                emit(&mut operation.client, &limits, leaves, &mut sink).await?;
                continue;
            }
            let items = match operation.expand(&mut limits, &run, root_known).await? {
                Some(items) => items,
                None => vec![Item { slot: self.shared.read_root(&mut operation.client).await?, ..root }],
            };
            root_known = true;
            put_front(&mut frontier, items);
        }
        drop(sink);
        Ok(pairs)
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Reads the nodes of a run in one round trip and replaces them by their children; `None` if
    /// the cached root is being replaced.
    async fn expand(
        &mut self,
        limits: &mut Limits<'_>,
        run: &[Item],
        root_known: bool,
    ) -> Result<Option<Vec<Item>>> {
        let mut batch = self.client.batch();
        let mut reads = Vec::with_capacity(run.len());
        for item in run {
            reads.push(match item.slot.content() {
                Content::Node { addr, ty, .. } => Some((addr, ty, batch.read(addr, ty.words()))),
                _ => None,
            });
        }
        let done = self.client.submit(batch).await?;
        let mut items = Vec::with_capacity(run.len() * 4);
        let mut unclear = Vec::new();
        for (&item, read) in run.iter().zip(reads) {
            let Some((addr, ty, read)) = read else {
                items.push(item);
                continue;
            };
            let part = Part::whole(ty, done.words(read));
            if item.above.is_none() && !root_known && !self.shared.is_root(part.header) {
                self.client.recycle(done);
                return Ok(None);
            }
            let depth = part.header.depth();
            check_depth(addr, depth, item.above)?;
            let children = part.children().into_vec();
            match limits.standing(item.touches, |key| part.header.is_on_path(key)) {
                Standing::Known(touches) => add_children(limits, depth, &children, touches, &mut items),
                Standing::Unknown => unclear.push(Unclear { at: items.len(), item, depth, children }),
            }
        }
        self.client.recycle(done);
        Ok(Some(self.settle_unclear(limits, items, unclear).await?))
    }

    async fn settle_unclear(
        &mut self,
        limits: &Limits<'_>,
        items: Vec<Item>,
        unclear: Vec<Unclear>,
    ) -> Result<Vec<Item>> {
        if unclear.is_empty() {
            return Ok(items);
        }
        let node_of = |unclear: &Unclear| match unclear.item.slot.content() {
            Content::Node { addr, ty, .. } => Some((addr, ty)),
            _ => None,
        };
        let nodes: Vec<_> = unclear.iter().filter_map(node_of).collect();
        let keys = keys_below(&mut self.client, &nodes).await?;
        let settled = unclear.into_iter().zip(keys).map(|(Unclear { at, item, depth, children }, key)| {
            let mut found = Vec::new();
            if let Some(touches) = key.and_then(|key| limits.standing_by_key(depth, &key, item.touches)) {
                add_children(limits, depth, &children, touches, &mut found);
            }
            (at, found)
        });
        Ok(put_between(items, settled))
    }
}

/// Depths increase along every path, so pointers of a damaged pool cannot form cycles.
pub(super) fn check_depth(addr: GlobalAddr, depth: usize, above: Option<usize>) -> Result<()> {
    if above.map_or(depth > 0, |above| depth <= above) {
        return Err(IndexError::corrupt(addr, "node is not deeper than the node that points to it"));
    }
    Ok(())
}

/// Appends children in the walk's order, without those outside the range.
fn add_children(
    limits: &Limits<'_>,
    depth: usize,
    children: &[Slot],
    touches: Touches,
    items: &mut Vec<Item>,
) {
    let children = children.iter().map(|&slot| (slot.edge().unwrap_or(END), slot));
    put_children(limits, depth, touches, children, items, |slot, touches| Item {
        slot,
        touches,
        above: Some(depth),
    });
}

fn weight(item: &Item) -> Weight {
    match item.slot.content() {
        Content::Node { ty, .. } => Weight::node(ty.capacity(), ty.bytes()),
        Content::Leaf { class, .. } => Weight::leaf(class_bytes(class)),
        _ => Weight { keys: 0, bytes: 0, is_node: false },
    }
}
