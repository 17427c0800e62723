//! Range scan in both directions (SMART, section 4.4), one chunk at a time.
//!
//! The walk keeps a frontier in key order and reads a run at its front in one round trip: as many
//! children of one level in parallel as the remaining number of keys probably needs. It starts at a
//! cached node that covers the whole range, or that is large enough to hold the wanted number of
//! keys; otherwise at the root. Edges of any bytes are compared; keys are not enumerated.
//!
//! Guarantee: keys in order, each at most once, every key that was present throughout, none that
//! was absent throughout. A node read after it was removed still holds every key that was there
//! when it was sealed and was not deleted since. A torn leaf is read again.

use super::Smart;
use super::leaf::{self, Read};
use super::node::{self, HEADER_WORDS, Header, NodeType};
use super::shared::{Operation, Shared};
use super::slot::{Content, Slot};
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_index::radix::frontier::{Weight, put_front, window};
use darter_index::radix::limits::{Limits, Touches};
use darter_index::radix::prefix_hash::HashKeys;
use darter_index::radix::sink::{Sink, beyond, first_bound, is_void};
use darter_index::radix::slot::END;
use darter_index::{IndexError, KeyValue, Result, ScanRange};
use darter_pool::Client;
use std::collections::VecDeque;
use std::ops::Bound;

/// Cached subtrees that a scan uses before it starts over at the root.
const HINTED_STARTS: usize = 4;
/// READs that find a leaf torn before the state of its lock's holder is checked.
const TORN_MAX: u32 = 8;

/// A subtree or a leaf.
#[derive(Clone, Copy, Debug)]
struct Item {
    place: Place,
    touches: Touches,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Node {
        addr: GlobalAddr,
        ty: NodeType,
        /// The first key byte that was not consumed above it; for a hinted node `Err` of the
        /// prefix's length.
        arrival: Result<usize, usize>,
    },
    Leaf {
        addr: GlobalAddr,
        len: u8,
    },
}

/// The progress of a walk.
enum Walked {
    Through,
    /// The hinted node has changed since it was cached; nothing was visited.
    Stale,
    /// A leaf is locked by this holder.
    Blocked(u64),
}

impl Shared {
    /// Returns a cached node, with its prefix, from which the range or enough of it can be reached.
    fn scan_start(&self, range: &ScanRange, limit: usize) -> Option<(Place, Vec<u8>)> {
        let (near, shared_len) = first_bound(range)?;
        let mut below = usize::MAX;
        loop {
            let hint = self.cache.lookup(near, below)?;
            if hint.depth <= shared_len || hint.ty.slots() >= limit.saturating_mul(2) {
                let place = Place::Node { addr: hint.node, ty: hint.ty, arrival: Err(hint.depth) };
                return Some((place, near[..hint.depth].to_vec()));
            }
            below = hint.depth;
        }
    }
}

impl<F: Fabric> Smart<F> {
    /// Returns the first `limit` pairs of a range in its direction.
    pub(super) async fn scan_chunk(
        &self,
        client: &mut Client<F>,
        range: &ScanRange,
        limit: usize,
    ) -> Result<Vec<KeyValue>> {
        let mut pairs: Vec<KeyValue> = Vec::new();
        let mut over = 0;
        loop {
            let mut rest = range.clone();
            if let Some((last, _)) = pairs.last() {
                let bound = Bound::Excluded(last.clone());
                if range.reverse { rest.to = bound } else { rest.from = bound }
            }
            let wanted = limit - pairs.len();
            let mut operation = self.begin(client, OpKind::Scan).await?;
            let mut visit = |key: &[u8], value: &[u8]| pairs.push((key.to_vec(), value.to_vec()));
            let mut sink = Sink::new(&mut visit, wanted, range.reverse);
            let Some(holder) = operation.scan_pinned(rest, &mut sink, &mut over).await? else {
                return Ok(pairs);
            };
            drop(operation);
            over = self.await_holder(client, holder).await?;
        }
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Scans under one pin. Returns the holder of the lock of a leaf that blocked the scan, if any.
    async fn scan_pinned(
        &mut self,
        mut rest: ScanRange,
        sink: &mut Sink<'_>,
        over: &mut u64,
    ) -> Result<Option<u64>> {
        for _ in 0..HINTED_STARTS {
            if sink.left == 0 || is_void(&rest) {
                return Ok(None);
            }
            let Some((item, prefix)) = self.shared.scan_start(&rest, sink.left) else { break };
            match self.scan_below(&rest, item, Some(&prefix), sink, over).await? {
                Walked::Through => {}
                Walked::Stale => break,
                Walked::Blocked(holder) => return Ok(Some(holder)),
            }
            match beyond(&rest, &prefix) {
                Some(next) => rest = next,
                None => return Ok(None),
            }
        }
        if sink.left == 0 || is_void(&rest) {
            return Ok(None);
        }
        let (addr, ty) = self.read_root().await?.1;
        let item = Place::Node { addr, ty, arrival: Ok(0) };
        match self.scan_below(&rest, item, None, sink, over).await? {
            Walked::Blocked(holder) => Ok(Some(holder)),
            _ => Ok(None),
        }
    }

    /// Scans below a node, which is a hint if its prefix is given.
    async fn scan_below(
        &mut self,
        range: &ScanRange,
        start: Place,
        prefix: Option<&[u8]>,
        sink: &mut Sink<'_>,
        over: &mut u64,
    ) -> Result<Walked> {
        let limits = Limits::new(HashKeys::new(self.client.pool().secret()), range);
        let touches = match prefix {
            Some(prefix) => limits.along(0, prefix, limits.whole()),
            None => Some(limits.whole()),
        };
        let Some(touches) = touches else { return Ok(Walked::Stale) };
        let mut frontier = VecDeque::from([Item { place: start, touches }]);
        let mut torn = 0;
        while !frontier.is_empty() && sink.left > 0 {
            let (count, has_nodes) = window(&frontier, sink.left, weight);
            let run: Vec<Item> = frontier.drain(..count).collect();
            let back = if has_nodes {
                match self.expand(&limits, run).await? {
                    Some(items) => items,
                    None => return Ok(Walked::Stale),
                }
            } else {
                let Emitted { mut left, is_torn } = self.emit(&limits, run, sink).await?;
                torn = if is_torn { torn + 1 } else { 0 };
                if torn >= TORN_MAX {
                    torn = 0;
                    if let Some(Item { place: Place::Leaf { addr, len }, .. }) = left.first_mut()
                        && let Some(holder) = self.settle_at(*addr, *len, std::mem::take(over)).await?
                    {
                        return Ok(Walked::Blocked(holder));
                    }
                }
                left
            };
            put_front(&mut frontier, back);
        }
        Ok(Walked::Through)
    }

    /// Reads a run of leaves in one round trip and emits those in the range, up to the first torn
    /// one.
    async fn emit(&mut self, limits: &Limits<'_>, run: Vec<Item>, sink: &mut Sink<'_>) -> Result<Emitted> {
        let mut batch = self.client.batch();
        let reads: Vec<_> = run
            .iter()
            .filter_map(|item| match item.place {
                Place::Leaf { addr, len } => Some((addr, batch.read(addr, leaf::words_of(len)))),
                Place::Node { .. } => None,
            })
            .collect();
        let done = self.client.submit(batch).await?;
        let mut emitted = Emitted { left: Vec::new(), is_torn: false };
        for (at, (addr, read)) in reads.into_iter().enumerate() {
            let item = run[at];
            match self.shared.format.parse(addr, done.words(read))? {
                Read::Pair(pair) => {
                    if !(item.touches.low || item.touches.high) || limits.contains(pair.key) {
                        let value = pair.value.ok_or(IndexError::LostInWrite { addr })?;
                        sink.take(pair.key, value);
                    }
                }
                Read::Dead => {}
                Read::Moved(addr, len) => {
                    emitted.left.push(Item { place: Place::Leaf { addr, len }, ..item });
                    emitted.left.extend_from_slice(&run[at + 1..]);
                    break;
                }
                Read::Torn => {
                    emitted.is_torn = true;
                    emitted.left.extend_from_slice(&run[at..]);
                    break;
                }
            }
        }
        self.client.recycle(done);
        Ok(emitted)
    }

    /// Reads the nodes of a run in one round trip and replaces them by their children; `None` if a
    /// hinted node has changed since it was cached.
    async fn expand(&mut self, limits: &Limits<'_>, run: Vec<Item>) -> Result<Option<Vec<Item>>> {
        let mut batch = self.client.batch();
        let reads: Vec<_> = run
            .iter()
            .map(|item| match item.place {
                Place::Node { addr, ty, .. } => Some(batch.read(addr, HEADER_WORDS + ty.slots())),
                Place::Leaf { .. } => None,
            })
            .collect();
        let done = self.client.submit(batch).await?;
        let mut items = Vec::with_capacity(run.len() * 4);
        let mut is_stale = false;
        for (item, read) in run.into_iter().zip(reads) {
            let (Place::Node { addr, ty, arrival }, Some(read)) = (item.place, read) else {
                items.push(item);
                continue;
            };
            let words = done.words(read);
            let header = Header::from_word(words[1]);
            let sound = match arrival {
                Ok(arrival) => header.partial_from(arrival).map(|partial| (arrival, partial)),
                Err(depth) => header.ends_at(depth).then(|| (depth, node::Partial::new())),
            };
            let (Some(now), Some((at, partial))) = (header.ty(), sound) else {
                if arrival.is_err() {
                    is_stale = true;
                    break;
                }
                return Err(IndexError::corrupt(addr, "inner node without the bytes above it"));
            };
            if now > ty {
                items.push(Item { place: Place::Node { addr, ty: now, arrival }, ..item });
                continue;
            }
            let slots = &words[HEADER_WORDS..HEADER_WORDS + now.slots()];
            if arrival.is_err() && !node::proves_life(slots) {
                is_stale = true;
                break;
            }
            let Some(touches) = limits.along(at, &partial, item.touches) else { continue };
            children(limits, at + partial.len(), slots, touches, &mut items)?;
        }
        self.client.recycle(done);
        Ok((!is_stale).then_some(items))
    }

    /// Returns the root word, and the node it names.
    pub(super) async fn read_root(&mut self) -> Result<(Slot, (GlobalAddr, NodeType))> {
        let [word] = self.client.read_words(self.shared.words.root).await?;
        let slot = Slot::from_word(word);
        match slot.content() {
            Content::Node { addr, ty } => {
                self.shared.remember_root(slot);
                Ok((slot, (addr, ty)))
            }
            _ => Err(IndexError::corrupt(self.shared.words.root, "the root word names no node")),
        }
    }
}

/// The leaves of a run that have to be read again.
struct Emitted {
    left: Vec<Item>,
    is_torn: bool,
}

/// Appends the children of a node in the walk's order, without those outside the range.
fn children(
    limits: &Limits<'_>,
    depth: usize,
    slots: &[u64],
    touches: Touches,
    items: &mut Vec<Item>,
) -> Result<()> {
    let begin = items.len();
    for slot in node::children_in_order(slots) {
        let Some(touches) = limits.child(depth, slot.edge().unwrap_or(END), touches) else { continue };
        let place = match slot.content() {
            Content::Node { addr, .. } if depth >= darter_index::KEY_BYTES_MAX => {
                return Err(IndexError::corrupt(addr, "inner node deeper than any key"));
            }
            Content::Node { addr, ty } => Place::Node { addr, ty, arrival: Ok(depth + 1) },
            Content::Leaf { addr, len } => Place::Leaf { addr, len },
            _ => continue,
        };
        items.push(Item { place, touches });
    }
    if limits.reverse() {
        items[begin..].reverse();
    }
    Ok(())
}

fn weight(item: &Item) -> Weight {
    match item.place {
        Place::Leaf { len, .. } => Weight::leaf(leaf::bytes_of(len)),
        Place::Node { ty, .. } => Weight::node(ty.slots(), 8 * ty.slots() as u64),
    }
}
