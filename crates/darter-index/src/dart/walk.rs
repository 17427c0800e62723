//! Walking all inner nodes in key order, in chunks that each hold one pin.
//!
//! A pin stalls reclamation everywhere, so a long walk must release it from time to time, and
//! addresses from one pin are worthless under the next. A chunk therefore ends with a *key*: that
//! of the next subtree to visit, by which the next chunk finds its position again.

use super::descend_any::keys_below;
use super::frontier::{Item, Place};
use super::node::{NodeRef, Slot};
use super::operation::Operation;
use crate::radix::frontier::put_front;
use crate::radix::limits::{Limits, Standing};
use crate::radix::prefix_list::{PathDepths, with_depth};
use crate::{IndexError, Result, ScanRange};
use darter_fabric::Fabric;
use std::collections::VecDeque;
use std::ops::Bound;

/// Nodes read in one round trip.
const WIDTH: usize = 128;

/// An inner node visited on a walk.
pub(crate) struct Visited {
    pub(crate) node: NodeRef,
    /// The depth of its parent.
    pub(crate) above: usize,
    /// The depths of all nodes from the root to this one.
    pub(crate) path: PathDepths,
    /// Its leaf children, without those before the chunk's first key.
    pub(crate) leaves: Vec<Slot>,
    /// All its live children.
    pub(crate) live: usize,
    /// Whether an earlier chunk visited it, too.
    pub(crate) again: bool,
}

/// An entry of the walk's frontier.
enum WalkEntry {
    Unread(Item<PathDepths>),
    Met(Visited),
}

impl<F: Fabric> Operation<'_, F> {
    /// Returns the next nodes in key order, each before those below it, at least `budget` new ones
    /// unless the walk ends; and the prefix at which to continue, which is always a later one.
    ///
    /// The caller must be pinned; the nodes' addresses are valid under that pin.
    pub(super) async fn walk_chunk(
        &mut self,
        from: Option<&[u8]>,
        budget: usize,
    ) -> Result<(Vec<Visited>, Option<Vec<u8>>)> {
        let mut range = ScanRange::all();
        if let Some(from) = from {
            range.from = Bound::Included(from.to_vec());
        }
        let from_len = from.map_or(0, <[u8]>::len);
        let mut limits = Limits::new(self.shared.keys, &range);
        let root = self.read_root().await?;
        let item = Item {
            place: Place::Node(root),
            touches: limits.whole(),
            above: 0,
            carried: PathDepths::default(),
        };
        let mut frontier = VecDeque::from([WalkEntry::Unread(item)]);
        let mut visited = Vec::new();
        let mut fresh = 0;
        loop {
            // A node counts as visited if nothing before it is left: nodes cut off by the end of
            // the chunk are read again.
            while let Some(WalkEntry::Met(_)) = frontier.front() {
                if let Some(WalkEntry::Met(visit)) = frontier.pop_front() {
                    // Nodes that an earlier chunk visited are not counted: otherwise a chunk could
                    // end where it began.
                    fresh += usize::from(!visit.again);
                    visited.push(visit);
                }
            }
            if frontier.is_empty() || fresh >= budget {
                break;
            }
            let run: Vec<WalkEntry> = frontier.drain(..frontier.len().min(WIDTH)).collect();
            let expanded = self.expand((&mut limits, from_len), run).await?;
            put_front(&mut frontier, expanded);
        }
        let next = self.first_key(frontier).await?;
        if let (Some(next), Some(from)) = (&next, from)
            && &next[..] <= from
        {
            return Err(IndexError::corrupt(root.addr, "walk does not advance"));
        }
        Ok((visited, next))
    }

    /// Reads the unread nodes of a run. Returns the run, with each node followed by its inner
    /// children.
    async fn expand(
        &mut self,
        (limits, from_len): (&mut Limits<'_>, usize),
        run: Vec<WalkEntry>,
    ) -> Result<Vec<WalkEntry>> {
        let mut batch = self.client.batch();
        let mut reads = Vec::with_capacity(run.len());
        for step in &run {
            if let WalkEntry::Unread(item) = step
                && let Place::Node(node) = item.place
            {
                reads.push((*item, node, batch.read(node.addr, node.ty.words())));
            }
        }
        let done = self.client.submit(batch).await?;
        let mut standings = Vec::with_capacity(reads.len());
        let mut unclear = Vec::new();
        for (item, node, read) in &reads {
            super::node::verify_depth(*node, done.words(*read))?;
            match limits.standing(item.touches, |key| node.is_on_path(key, done.words(*read)[0])) {
                Standing::Known(touches) => standings.push(Some(touches)),
                Standing::Unknown => {
                    unclear.push((standings.len(), *node));
                    standings.push(None);
                }
            }
        }
        if !unclear.is_empty() {
            let nodes: Vec<NodeRef> = unclear.iter().map(|&(_, node)| node).collect();
            let keys = keys_below(&mut self.client, &nodes).await?;
            for ((at, node), key) in unclear.into_iter().zip(keys) {
                standings[at] =
                    key.and_then(|key| limits.standing_by_key(node.depth, &key, reads[at].0.touches));
            }
        }
        let mut next = Vec::new();
        let mut read_nodes = reads.into_iter().zip(standings);
        for step in run {
            if let WalkEntry::Met(_) = step {
                next.push(step);
                continue;
            }
            let Some(((item, node, read), Some(touches))) = read_nodes.next() else { continue };
            let path = with_depth(item.carried, node.depth);
            let (mut leaves, mut nodes) = (Vec::new(), Vec::new());
            let mut children = Vec::new();
            super::frontier::children(limits, node, done.words(read), touches, path, &mut children);
            for child in children {
                match child.place {
                    Place::Leaf(slot) => leaves.push(slot),
                    Place::Node(_) => nodes.push(WalkEntry::Unread(child)),
                }
            }
            let live =
                super::node::slots(node.ty, done.words(read)).filter(|(_, slot)| slot.is_live()).count();
            let again = touches.low && node.depth < from_len;
            next.push(WalkEntry::Met(Visited { node, above: item.above, path, leaves, live, again }));
            next.extend(nodes);
        }
        self.client.recycle(done);
        Ok(next)
    }

    /// The first key below the front of a frontier.
    async fn first_key(&mut self, frontier: VecDeque<WalkEntry>) -> Result<Option<Vec<u8>>> {
        for step in frontier {
            if let WalkEntry::Unread(Item { place: Place::Node(node), .. }) = step
                && let Some(key) = keys_below(&mut self.client, &[node]).await?.pop().flatten()
            {
                // Any key below identifies the subtree, but only its first bytes are the subtree's
                // start.
                return Ok(Some(key[..node.depth.min(key.len())].to_vec()));
            }
        }
        Ok(None)
    }
}
