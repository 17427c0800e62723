//! Range scan in both directions (paper, section 4.1), one chunk at a time.
//!
//! The walk keeps a frontier in key order and reads a run at its front in one round trip: children of one level in parallel,
//! as many as the keys still wanted are likely to need. It starts at an express node when that covers the whole range, or is
//! so large that it should hold what is wanted; else at the root.
//!
//! Promise: keys in order, each at most once, every key that was there throughout, none that was absent throughout. A node
//! read after it was replaced still holds every key that it held when it was sealed, and that stayed.

use super::Dart;
use super::descend_any::keys_below;
use super::est::BUCKET_SLOTS;
use super::est::table::{Table, hits};
use super::frontier::{Item, Limits, Place, Standing, Touches, put_front};
use super::leaf;
use super::node::NodeRef;
use super::prefix_hash::HashedKey;
use super::slot::{Held, Slot};
use super::split::common_prefix;
use crate::{IndexError, KeyValue, ScanRange};
use darter_fabric::{Fabric, OpKind, ReadId};
use darter_pool::Client;
use darter_pool::size_class::class_bytes;
use std::collections::VecDeque;
use std::ops::Bound;

/// Most items one round trip reads.
const WIDTH_MAX: usize = 256;
/// Bytes after which a round trip takes no further item.
const BYTES_MAX: u64 = 1 << 20;
/// Hinted subtrees a scan goes through before it starts over at the root.
const HINTED_STARTS: usize = 4;

enum Entry {
    Unread(Item<()>),
    Pair(Vec<u8>, Vec<u8>),
}

impl<F: Fabric> Dart<F> {
    /// The first `limit` pairs of a range in its direction.
    pub(super) async fn scan_chunk(
        &self,
        client: &mut Client<F>,
        range: &ScanRange,
        limit: usize,
    ) -> Result<Vec<KeyValue>, IndexError> {
        let mut client = client.pin(OpKind::Scan).await?;
        let table = self.shared.view(&mut client).await?;
        let mut pairs = Vec::new();
        let mut rest = range.clone();
        for _ in 0..HINTED_STARTS {
            if pairs.len() >= limit || is_void(&rest) {
                return Ok(pairs);
            }
            let start = self.scan_start(&mut client, &table, &rest, limit - pairs.len()).await?;
            let Some((node, prefix)) = start else { break };
            let before = pairs.len();
            if !self.scan_below(&mut client, &rest, limit, Some((node, &prefix)), &mut pairs).await? {
                pairs.truncate(before);
                break;
            }
            match beyond(&rest, &prefix) {
                Some(next) => rest = next,
                None => return Ok(pairs),
            }
        }
        if pairs.len() < limit && !is_void(&rest) {
            self.scan_below(&mut client, &rest, limit, None, &mut pairs).await?;
        }
        Ok(pairs)
    }

    /// An express node from which the range, or enough of it, can be reached, with its prefix.
    async fn scan_start(
        &self,
        client: &mut Client<F>,
        table: &Table,
        range: &ScanRange,
        limit: usize,
    ) -> Result<Option<(NodeRef, Vec<u8>)>, IndexError> {
        let (near, far) = if range.reverse { (&range.to, &range.from) } else { (&range.from, &range.to) };
        let (Bound::Included(near) | Bound::Excluded(near)) = near else { return Ok(None) };
        let shared_len = match far {
            Bound::Included(far) | Bound::Excluded(far) => common_prefix(near, far),
            Bound::Unbounded => 0,
        };
        let mut key = HashedKey::new(self.shared.keys, near);
        let mut batch = client.batch();
        let mut reads = Vec::new();
        for len in table.list.lengths().into_iter().filter(|&len| len <= near.len()) {
            let hash = key.express(len);
            reads.push((len, hash, batch.read(table.bucket_addr(hash), BUCKET_SLOTS)));
        }
        if reads.is_empty() {
            client.recycle(batch);
            return Ok(None);
        }
        let done = client.submit(batch).await?;
        let best = reads
            .iter()
            .flat_map(|&(len, hash, read)| hits(done.words(read), hash, len))
            .filter(|node| node.depth <= near.len())
            .filter(|node| node.depth <= shared_len || node.ty.capacity() >= limit.saturating_mul(2))
            .max_by_key(|node| node.depth);
        client.recycle(done);
        Ok(best.map(|node| (node, near[..node.depth].to_vec())))
    }

    /// Scans below a hinted node, or below the root. Answers false when the hint did not hold; then `pairs` is void.
    async fn scan_below(
        &self,
        client: &mut Client<F>,
        range: &ScanRange,
        limit: usize,
        hint: Option<(NodeRef, &[u8])>,
        pairs: &mut Vec<KeyValue>,
    ) -> Result<bool, IndexError> {
        let mut limits = Limits::new(self.shared.keys, range);
        let whole = limits.whole();
        let (node, touches) = match hint {
            Some((node, prefix)) => match limits.standing_by_key(node.depth, prefix, whole) {
                Some(touches) => (node, touches),
                None => return Ok(false),
            },
            None => (self.read_root(client).await?, whole),
        };
        let item = Item { place: Place::Node(node), touches, above: 0, carried: () };
        let mut frontier = VecDeque::from([Entry::Unread(item)]);
        let mut unproven = hint.map(|(_, prefix)| HashedKey::new(self.shared.keys, prefix));
        while !frontier.is_empty() && pairs.len() < limit {
            let (run, reads, done) = self.read_run(client, &mut frontier, limit - pairs.len()).await?;
            let mut found: Vec<Entry> = Vec::with_capacity(run.len());
            let mut unclear = Vec::new();
            for (entry, read) in run.into_iter().zip(reads) {
                let (Entry::Unread(item), Some(read)) = (&entry, read) else {
                    found.push(entry);
                    continue;
                };
                let words = done.words(read);
                match item.place {
                    Place::Leaf(slot) => found.extend(take_leaf(&limits, slot, item.touches, words)?),
                    Place::Node(node) => {
                        if let Some(mut prefix) = unproven.take() {
                            let current =
                                super::node::slots(node.ty, words).any(|(_, slot)| !slot.is_sealed());
                            if !current || prefix.identity(node.depth) != words[0] {
                                client.recycle(done);
                                return Ok(false);
                            }
                        }
                        match limits.standing(node.depth, words[0], item.touches) {
                            Standing::Known(touches) => {
                                let children = limits.children(node, words, touches, ());
                                found.extend(children.into_iter().map(Entry::Unread));
                            }
                            Standing::Unknown => {
                                unclear.push((found.len(), node, item.touches, words.to_vec()));
                            }
                        }
                    }
                }
            }
            client.recycle(done);
            let found = self.settle_unclear(client, &limits, found, unclear).await?;
            put_front(&mut frontier, found);
            while pairs.len() < limit && matches!(frontier.front(), Some(Entry::Pair(..))) {
                if let Some(Entry::Pair(key, value)) = frontier.pop_front() {
                    push_in_order(pairs, range.reverse, key, value);
                }
            }
        }
        Ok(true)
    }

    /// Takes a run off the frontier's front and reads it in one round trip.
    async fn read_run(
        &self,
        client: &mut Client<F>,
        frontier: &mut VecDeque<Entry>,
        wanted: usize,
    ) -> Result<(Vec<Entry>, Vec<Option<ReadId>>, darter_fabric::Batch), IndexError> {
        let mut batch = client.batch();
        let (mut run, mut reads) = (Vec::new(), Vec::new());
        let (mut keys, mut bytes) = (0, 0);
        while keys < wanted && run.len() < WIDTH_MAX && bytes < BYTES_MAX {
            let Some(entry) = frontier.pop_front() else { break };
            let read = match &entry {
                Entry::Pair(..) => {
                    keys += 1;
                    None
                }
                Entry::Unread(item) => match item.place {
                    Place::Leaf(slot) => {
                        keys += 1;
                        bytes += class_bytes(leaf_class_of(slot));
                        Some(batch.read(slot.addr(), leaf::class_words(leaf_class_of(slot))))
                    }
                    Place::Node(node) => {
                        // A guess: a type is chosen when the one below is full, so half its slots hold at least a key.
                        keys += node.ty.capacity().div_ceil(2);
                        bytes += node.ty.bytes();
                        Some(batch.read(node.addr, node.ty.words()))
                    }
                },
            };
            run.push(entry);
            reads.push(read);
        }
        let done = client.submit(batch).await?;
        Ok((run, reads, done))
    }

    /// Decides, by a key below each, which nodes that left a bound's path lie in the range.
    async fn settle_unclear(
        &self,
        client: &mut Client<F>,
        limits: &Limits<'_>,
        found: Vec<Entry>,
        unclear: Vec<(usize, NodeRef, Touches, Vec<u64>)>,
    ) -> Result<Vec<Entry>, IndexError> {
        if unclear.is_empty() {
            return Ok(found);
        }
        let nodes: Vec<NodeRef> = unclear.iter().map(|&(_, node, ..)| node).collect();
        let keys = keys_below(client, &nodes).await?;
        let mut merged = Vec::with_capacity(found.len());
        let mut found = found.into_iter();
        let mut taken = 0;
        for ((at, node, touches, words), key) in unclear.into_iter().zip(keys) {
            merged.extend(found.by_ref().take(at - taken));
            taken = at;
            if let Some(touches) = key.and_then(|key| limits.standing_by_key(node.depth, &key, touches)) {
                let children = limits.children(node, &words, touches, ());
                merged.extend(children.into_iter().map(Entry::Unread));
            }
        }
        merged.extend(found);
        Ok(merged)
    }

    /// The root node, by the root word.
    pub(super) async fn read_root(&self, client: &mut Client<F>) -> Result<NodeRef, IndexError> {
        let mut batch = client.batch();
        let read = batch.read(self.shared.words.root, 1);
        let done = client.submit(batch).await?;
        let slot = Slot::from_word(done.words(read)[0]);
        client.recycle(done);
        self.shared.remember_root(slot);
        match slot.held() {
            Held::Node { addr, ty, .. } => Ok(NodeRef { addr, ty, depth: 0 }),
            _ => Err(IndexError::Corrupt { addr: self.shared.words.root, what: "root word names no node" }),
        }
    }
}

fn leaf_class_of(slot: Slot) -> u8 {
    match slot.held() {
        Held::Leaf { class, .. } => class,
        _ => 0,
    }
}

fn take_leaf(
    limits: &Limits<'_>,
    slot: Slot,
    touches: Touches,
    words: &[u64],
) -> Result<Option<Entry>, IndexError> {
    let leaf = leaf::parse(slot.addr(), words)?;
    let inside = !(touches.low || touches.high) || limits.contains(leaf.key);
    Ok(inside.then(|| Entry::Pair(leaf.key.to_vec(), leaf.value.to_vec())))
}

/// Appends a pair unless it would break the order, which a damaged tree could.
fn push_in_order(pairs: &mut Vec<KeyValue>, reverse: bool, key: Vec<u8>, value: Vec<u8>) {
    let follows = pairs.last().is_none_or(|(last, _)| if reverse { key < *last } else { key > *last });
    if follows {
        pairs.push((key, value));
    }
}

/// Whether no key can lie in a range.
fn is_void(range: &ScanRange) -> bool {
    match (&range.from, &range.to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to) | Bound::Included(to)) => from >= to,
        _ => false,
    }
}

/// What is left of a range behind the subtree of a prefix, in the walk's direction.
fn beyond(range: &ScanRange, prefix: &[u8]) -> Option<ScanRange> {
    let mut rest = range.clone();
    if range.reverse {
        rest.to = Bound::Excluded(prefix.to_vec());
    } else {
        match ScanRange::prefix(prefix).to {
            Bound::Excluded(next) => rest.from = Bound::Included(next),
            _ => return None,
        }
    }
    (!is_void(&rest)).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_beyond_a_prefix() {
        let all = ScanRange::all();
        assert_eq!(beyond(&all, b"ab").unwrap().from, Bound::Included(b"ac".to_vec()));
        assert_eq!(beyond(&all, &[7, 0xff]).unwrap().from, Bound::Included(vec![8]));
        assert!(beyond(&all, &[0xff, 0xff]).is_none());
        assert_eq!(beyond(&all.clone().reversed(), b"ab").unwrap().to, Bound::Excluded(b"ab".to_vec()));
        let range = ScanRange { to: Bound::Excluded(b"ac".to_vec()), ..all };
        assert!(beyond(&range, b"ab").is_none());
    }
}
