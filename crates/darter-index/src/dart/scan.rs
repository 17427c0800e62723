//! Range scan in both directions (paper, section 4.1), one chunk at a time.
//!
//! The walk keeps a frontier in key order and reads a run at its front in one round trip: children
//! of one level in parallel, as many as the keys still wanted are likely to need. It starts at an
//! express node if that covers the whole range, or is large enough that it should hold all keys
//! wanted; else at the root.
//!
//! Guarantee: keys are returned in order, each at most once, including every key that was present
//! throughout and no key that was absent throughout. A node read after it was replaced still holds
//! every key that it held when it was sealed and that was not deleted since.

use super::Dart;
use super::descend_any::keys_below;
use super::est::BUCKET_SLOTS;
use super::est::table::hits;
use super::frontier::{Item, Place};
use super::node::{Content, NodeRef, Slot};
use super::operation::Operation;
use super::prefix_hash::HashedKey;
use crate::radix::frontier::{Weight, put_between, put_front, window};
use crate::radix::limits::{Limits, Standing, Touches};
use crate::radix::sink::{Sink, beyond, emit, first_bound, is_void};
use crate::{Result, ScanRange, Visit};
use darter_fabric::{Fabric, OpKind, ReadId};
use darter_pool::Client;
use darter_pool::size_class::class_bytes;
use std::collections::VecDeque;

/// Hinted subtrees that a scan uses before it starts over at the root.
const HINTED_STARTS: usize = 4;

impl<F: Fabric> Dart<F> {
    /// Passes the first `limit` pairs of a range, in its direction, to `visit` in place, without a
    /// copy. Returns the number of pairs.
    ///
    /// # Errors
    /// Those of the fabric, and [`IndexError::Corrupt`](crate::IndexError::Corrupt); pairs visited before stay valid.
    pub(super) async fn visit_pairs<'v>(
        &self,
        client: &mut Client<F>,
        range: &ScanRange,
        limit: usize,
        visit: &'v mut Visit<'v>,
    ) -> Result<usize> {
        let mut operation = Operation::begin(&self.shared, client, OpKind::Scan).await?;
        let mut sink = Sink::new(visit, limit, range.reverse);
        let mut rest = range.clone();
        for _ in 0..HINTED_STARTS {
            if sink.left == 0 || is_void(&rest) {
                return Ok(limit - sink.left);
            }
            let start = operation.scan_start(&rest, sink.left).await?;
            let Some((node, prefix)) = start else { break };
            if !operation.scan_below(&rest, Some((node, &prefix)), &mut sink).await? {
                break;
            }
            match beyond(&rest, &prefix) {
                Some(next) => rest = next,
                None => return Ok(limit - sink.left),
            }
        }
        if sink.left > 0 && !is_void(&rest) {
            operation.scan_below(&rest, None, &mut sink).await?;
        }
        Ok(limit - sink.left)
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// An express node, with its prefix, below which the range, or enough of it, is found.
    async fn scan_start(&mut self, range: &ScanRange, limit: usize) -> Result<Option<(NodeRef, Vec<u8>)>> {
        let Some((near, shared_len)) = first_bound(range) else { return Ok(None) };
        let mut key = HashedKey::new(self.shared.keys, near);
        let mut batch = self.client.batch();
        let mut reads = Vec::new();
        for len in self.table.list.lengths().into_iter().filter(|&len| len <= near.len()) {
            let hash = key.express(len);
            reads.push((len, hash, batch.read(self.table.bucket_addr(hash), BUCKET_SLOTS)));
        }
        if reads.is_empty() {
            self.client.recycle(batch);
            return Ok(None);
        }
        let done = self.client.submit(batch).await?;
        let best = reads
            .iter()
            .flat_map(|&(len, hash, read)| hits(done.words(read), hash, len))
            .filter(|node| node.depth <= near.len())
            .filter(|node| node.depth <= shared_len || node.ty.capacity() >= limit.saturating_mul(2))
            .max_by_key(|node| node.depth);
        self.client.recycle(done);
        Ok(best.map(|node| (node, near[..node.depth].to_vec())))
    }

    /// Scans below a hinted node, or below the root. Returns false if the hint was not valid; in
    /// that case no pair was visited.
    async fn scan_below(
        &mut self,
        range: &ScanRange,
        hint: Option<(NodeRef, &[u8])>,
        sink: &mut Sink<'_>,
    ) -> Result<bool> {
        let mut limits = Limits::new(self.shared.keys, range);
        let whole = limits.whole();
        let (node, touches) = match hint {
            Some((node, prefix)) => match limits.standing_by_key(node.depth, prefix, whole) {
                Some(touches) => (node, touches),
                None => return Ok(false),
            },
            None => (self.read_root().await?, whole),
        };
        let item = Item { place: Place::Node(node), touches, above: 0, carried: () };
        let mut frontier = VecDeque::from([item]);
        let mut unproven = hint.map(|(_, prefix)| HashedKey::new(self.shared.keys, prefix));
        while !frontier.is_empty() && sink.left > 0 {
            let (count, has_nodes) = window(&frontier, sink.left, weight);
            if !has_nodes {
                let leaves = frontier.drain(..count).filter_map(|item| match item.place {
                    Place::Leaf(slot) => Some((slot.addr(), leaf_class_of(slot), item.touches)),
                    Place::Node(_) => None,
                });
                emit(&mut self.client, &limits, leaves, sink).await?;
                continue;
            }
            let run: Vec<Item<()>> = frontier.drain(..count).collect();
            match self.expand_run(&mut limits, run, &mut unproven).await? {
                Some(items) => put_front(&mut frontier, items),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Reads the nodes of a run in one round trip and replaces them by their children. Returns
    /// `None` if the hint that led to the first was not valid.
    async fn expand_run(
        &mut self,
        limits: &mut Limits<'_>,
        run: Vec<Item<()>>,
        unproven: &mut Option<HashedKey<'_>>,
    ) -> Result<Option<Vec<Item<()>>>> {
        let mut batch = self.client.batch();
        let reads: Vec<Option<ReadId>> = run
            .iter()
            .map(|item| match item.place {
                Place::Node(node) => Some(batch.read(node.addr, node.ty.words())),
                Place::Leaf(_) => None,
            })
            .collect();
        let done = self.client.submit(batch).await?;
        let mut items: Vec<Item<()>> = Vec::with_capacity(run.len() * 4);
        let mut unclear = Vec::new();
        for (item, read) in run.into_iter().zip(reads) {
            let (Place::Node(node), Some(read)) = (item.place, read) else {
                items.push(item);
                continue;
            };
            let words = done.words(read);
            if unproven.is_none() {
                super::node::verify_depth(node, words)?;
            }
            if let Some(mut prefix) = unproven.take() {
                let current = super::node::slots(node.ty, words).any(|(_, slot)| !slot.is_sealed());
                if !current || prefix.identity(node.depth) != words[0] {
                    self.client.recycle(done);
                    return Ok(None);
                }
            }
            match limits.standing(item.touches, |key| node.is_on_path(key, words[0])) {
                Standing::Known(touches) => {
                    super::frontier::children(limits, node, words, touches, (), &mut items);
                }
                Standing::Unknown => unclear.push((items.len(), node, item.touches, words.to_vec())),
            }
        }
        self.client.recycle(done);
        Ok(Some(self.settle_unclear(limits, items, unclear).await?))
    }

    /// Determines, by a key below each, which of the nodes that diverged from a bound's path lie in
    /// the range.
    async fn settle_unclear(
        &mut self,
        limits: &Limits<'_>,
        items: Vec<Item<()>>,
        unclear: Vec<(usize, NodeRef, Touches, Vec<u64>)>,
    ) -> Result<Vec<Item<()>>> {
        if unclear.is_empty() {
            return Ok(items);
        }
        let nodes: Vec<NodeRef> = unclear.iter().map(|&(_, node, ..)| node).collect();
        let keys = keys_below(&mut self.client, &nodes).await?;
        let settled = unclear.into_iter().zip(keys).map(|((at, node, touches, words), key)| {
            let mut children = Vec::new();
            if let Some(touches) = key.and_then(|key| limits.standing_by_key(node.depth, &key, touches)) {
                super::frontier::children(limits, node, &words, touches, (), &mut children);
            }
            (at, children)
        });
        Ok(put_between(items, settled))
    }
}

fn leaf_class_of(slot: Slot) -> u8 {
    match slot.content() {
        Content::Leaf { class, .. } => class,
        _ => 0,
    }
}

fn weight(item: &Item<()>) -> Weight {
    match item.place {
        Place::Leaf(slot) => Weight::leaf(class_bytes(leaf_class_of(slot))),
        Place::Node(node) => Weight::node(node.ty.capacity(), node.ty.bytes()),
    }
}
