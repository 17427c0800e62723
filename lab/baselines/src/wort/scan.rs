//! Range scan in both directions, one chunk at a time. The walk keeps a frontier in key order and
//! reads a run at its front in one round trip: as many nodes of one level as the remaining number
//! of keys probably needs.
//!
//! A node read after it was replaced holds every key that was there at that time and was not
//! deleted since. Paths that touch a bound of the range are compared with it digit by digit; digits
//! that no header holds are taken from any key below.

use super::Wort;
use super::digits::Digits;
use super::node::{Content, Node, NodeType, Slot};
use super::search::Whole;
use super::shared::Operation;
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_index::radix::below::keys_below;
use darter_index::radix::frontier::{Weight, put_between, put_front, window};
use darter_index::radix::limits::{Limits, Touches};
use darter_index::radix::prefix_hash::HashKeys;
use darter_index::radix::sink::{Sink, emit, is_void};
use darter_index::radix::slot::{END, order_of};
use darter_index::{IndexError, KeyValue, Result, ScanRange};
use darter_pool::Client;
use darter_pool::size_class::class_bytes;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Bound;

/// A subtree or a leaf that is at least partly in the range.
#[derive(Clone, Copy, Debug)]
struct Item {
    slot: Slot,
    /// The place of the first digit after the edge that leads to it.
    start: usize,
    touches: Touches,
}

/// A node whose header does not determine its position relative to the range.
struct Unclear<'s> {
    /// The position of its children among the items found.
    at: usize,
    node: Whole<'s>,
    branch: usize,
    touches: Touches,
    children: Vec<Slot>,
}

/// The bounds of a range as digits.
struct Bounds<'r> {
    digits: Digits,
    low: Option<&'r [u8]>,
    high: Option<&'r [u8]>,
    reverse: bool,
}

fn bound(bound: &Bound<Vec<u8>>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

/// Compares the digits of a path with a bound's at the same places; `None` if one of them is
/// unknown.
fn against(
    digits: Digits,
    bound: &[u8],
    mut places: std::ops::Range<usize>,
    digit: impl Fn(usize) -> Option<u16>,
) -> Option<Ordering> {
    places
        .find_map(|at| match digits.edge(bound, at) {
            // A path that continues where the bound ends is above it.
            END => Some(Some(Ordering::Greater)),
            edge => match digit(at).map(|digit| digit.cmp(&edge)) {
                Some(Ordering::Equal) => None,
                other => Some(other),
            },
        })
        .unwrap_or(Some(Ordering::Equal))
}

impl Bounds<'_> {
    /// Returns the bounds that a node touches, by the digits at these places before it branches;
    /// `Ok(None)` outside the range, an error if an unknown digit is needed.
    fn standing(
        &self,
        places: &std::ops::Range<usize>,
        mut touches: Touches,
        digit: impl Fn(usize) -> Option<u16>,
    ) -> Result<Option<Touches>, ()> {
        if let (true, Some(low)) = (touches.low, self.low) {
            match against(self.digits, low, places.clone(), &digit).ok_or(())? {
                Ordering::Less => return Ok(None),
                order => touches.low = order.is_eq(),
            }
        }
        if let (true, Some(high)) = (touches.high, self.high) {
            match against(self.digits, high, places.clone(), &digit).ok_or(())? {
                Ordering::Greater => return Ok(None),
                order => touches.high = order.is_eq(),
            }
        }
        Ok(Some(touches))
    }

    /// Appends the children of a node in the walk's order, without those outside the range.
    fn add_children(&self, branch: usize, touches: Touches, children: &[Slot], items: &mut Vec<Item>) {
        let begin = items.len();
        let order_at = |bound: Option<&[u8]>, touches: bool| {
            bound.filter(|_| touches).map(|key| order_of(self.digits.edge(key, branch)))
        };
        let (first, last) = (order_at(self.low, touches.low), order_at(self.high, touches.high));
        for &slot in children {
            let order = order_of(slot.edge().unwrap_or(END));
            if first.is_none_or(|first| order >= first) && last.is_none_or(|last| order <= last) {
                let touches = Touches { low: first == Some(order), high: last == Some(order) };
                items.push(Item { slot, start: branch + 1, touches });
            }
        }
        if self.reverse {
            items[begin..].reverse();
        }
    }
}

impl<F: Fabric> Wort<F> {
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
        let limits = Limits::new(HashKeys::new(client.pool().secret()), range);
        let mut operation = Operation::pin(&*self.shared, client, OpKind::Scan).await?;
        let mut visit = |key: &[u8], value: &[u8]| pairs.push((key.to_vec(), value.to_vec()));
        let mut sink = Sink::new(&mut visit, limit, range.reverse);
        let digits = self.shared.format.digits;
        let (low, high, reverse) = (bound(&range.from), bound(&range.to), range.reverse);
        let bounds = Bounds { digits, low, high, reverse };
        let [word] = operation.client.read_words(self.shared.words.root).await?;
        self.shared.touched.read(self.shared.words.root, || 0..1);
        let root = Item { slot: Slot::from_word(word), start: 0, touches: limits.whole() };
        let mut frontier = VecDeque::from([root]);
        while !frontier.is_empty() && sink.left > 0 {
            let (count, has_nodes) = window(&frontier, sink.left, weight);
            let run: Vec<Item> = frontier.drain(..count).collect();
            if has_nodes {
                let items = operation.expand(&bounds, &run).await?;
                put_front(&mut frontier, items);
                continue;
            }
            for item in &run {
                self.shared.touched.read_leaf(item.slot);
            }
            let leaves = run.iter().filter_map(|item| match item.slot.content() {
                Content::Leaf { addr, class } => Some((addr, class, item.touches)),
                _ => None,
            });
            emit(&mut operation.client, &limits, leaves, &mut sink).await?;
        }
        drop(sink);
        Ok(pairs)
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Reads the nodes of a run in one round trip and replaces them by their children.
    async fn expand(&mut self, bounds: &Bounds<'_>, run: &[Item]) -> Result<Vec<Item>> {
        let mut batch = self.client.batch();
        let mut reads = Vec::with_capacity(run.len());
        for item in run {
            reads.push(match item.slot.content() {
                Content::Node { addr, ty, .. } => Some((addr, ty, batch.read(addr, ty.words()))),
                _ => None,
            });
        }
        let done = self.client.submit(batch).await?;
        let (mut items, mut unclear) = (Vec::with_capacity(run.len() * 4), Vec::new());
        for (&item, read) in run.iter().zip(reads) {
            let Some((addr, ty, read)) = read else {
                items.push(item);
                continue;
            };
            let (branch, children) = opened(addr, ty, item.start, done.words(read))?;
            let node = Node::new(ty, done.words(read));
            let (header, touched) = (node.header(), &self.shared.touched);
            touched.read(addr, || node.words_for_all());
            let places = item.start..branch;
            let digit = |at| header.digit(bounds.digits, at);
            match bounds.standing(&places, item.touches, digit) {
                Ok(Some(touches)) => bounds.add_children(branch, touches, &children, &mut items),
                Ok(None) => {}
                Err(()) => {
                    let node = Whole { addr, ty, start: item.start, touched };
                    unclear.push(Unclear { at: items.len(), node, branch, touches: item.touches, children });
                }
            }
        }
        self.client.recycle(done);
        self.settle_unclear(bounds, items, unclear).await
    }

    async fn settle_unclear(
        &mut self,
        bounds: &Bounds<'_>,
        items: Vec<Item>,
        unclear: Vec<Unclear<'_>>,
    ) -> Result<Vec<Item>> {
        if unclear.is_empty() {
            return Ok(items);
        }
        let nodes: Vec<Whole<'_>> = unclear.iter().map(|unclear| unclear.node).collect();
        let keys = keys_below(&mut self.client, nodes.into_iter()).await?;
        let settled = unclear.into_iter().zip(keys).map(|(unclear, key)| {
            let mut found = Vec::new();
            let Unclear { at, node, branch, touches, children } = unclear;
            if let Some(key) = key {
                let digit = |at| Some(bounds.digits.edge(&key, at));
                if let Ok(Some(touches)) = bounds.standing(&(node.start..branch), touches, digit) {
                    bounds.add_children(branch, touches, &children, &mut found);
                }
            }
            (at, found)
        });
        Ok(put_between(items, settled))
    }
}

/// Returns the place that a node branches on, and its children in key order.
fn opened(addr: GlobalAddr, ty: NodeType, start: usize, words: &[u64]) -> Result<(usize, Vec<Slot>)> {
    let node = Node::new(ty, words);
    let branch = node.header().branch();
    // Places increase along every path, so pointers of a damaged pool cannot form cycles.
    if branch < start {
        return Err(IndexError::corrupt(addr, "node is not as deep as the edge that leads to it"));
    }
    Ok((branch, node.children().iter().map(|&(_, slot)| slot).collect()))
}

fn weight(item: &Item) -> Weight {
    match item.slot.content() {
        Content::Node { ty, .. } => Weight::node(ty.capacity(), ty.bytes()),
        Content::Leaf { class, .. } => Weight::leaf(class_bytes(class)),
        _ => Weight { keys: 0, bytes: 0, is_node: false },
    }
}
