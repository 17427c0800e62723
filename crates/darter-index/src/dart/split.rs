//! Node split: a new inner node where two keys diverge (paper, section 4.2, figure 5).
//!
//! Two cases share one mechanism: the slot holds another key's leaf, or it holds a node in whose
//! compressed prefix the new key diverges. The new node contains the slot's previous content and
//! the new leaf, and replaces it in the slot by one CAS. An edge skips at most 127 bytes; keys that
//! share more get a chain of single-child nodes above the split.

use super::access::Target;
use super::descend_any::keys_below;
use super::descent::{Descent, SlotAt};
use super::drafts::Drafts;
use super::est::install::{install, pending_for};
use super::node::{self, NodeRef, NodeType, Slot};
use super::operation::Operation;
use super::situations;
use super::write::Attempt;
use crate::checker::note;
use crate::radix::common_prefix;
use crate::radix::drafts::Draft;
use crate::radix::slot::{SKIP_MAX, edge_of};
use crate::{IndexError, PutOutcome, Result};
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::AllocKind;

impl<F: Fabric> Operation<'_, F> {
    /// The slot `at`, in the node at which the descent ended, holds the leaf of `other`: separates
    /// the two keys.
    pub(super) async fn split_at(
        &mut self,
        draft: &mut Draft<'_>,
        descent: &mut Descent<'_>,
        at: SlotAt,
        other: &[u8],
    ) -> Result<Attempt> {
        let above = descent.node.depth;
        let depth = common_prefix(draft.key, other);
        if depth <= above {
            return Err(IndexError::corrupt(at.slot.addr(), "leaf under a prefix it does not have"));
        }
        note(situations::SPLIT_LEAF);
        let child = at.slot.moved(edge_of(other, depth), 0);
        self.insert_node(draft, descent, (at, above), (depth, child)).await
    }

    /// The key diverges in the compressed bytes above the node at which the descent ended.
    pub(super) async fn split_above(
        &mut self,
        draft: &mut Draft<'_>,
        descent: &mut Descent<'_>,
    ) -> Result<Attempt> {
        let node = descent.node;
        let (Some(at), above) = (descent.incoming, descent.above) else {
            return Err(IndexError::corrupt(node.addr, "node that no slot points to"));
        };
        let Some(other) = keys_below(&mut self.client, &[node]).await?.pop().flatten() else {
            // All keys below are deleted, so the node is in the way only until it is collapsed.
            let target = Target { node, incoming: at, above, words: None };
            self.remove_empty(&target).await?;
            return Ok(Attempt::Again);
        };
        let depth = common_prefix(draft.key, &other);
        if depth <= above || depth >= node.depth || other.len() < node.depth {
            // The leaf was found on another path: the tree changed during the descent.
            return Ok(Attempt::Again);
        }
        note(situations::SPLIT_ABOVE);
        let child = at.slot.moved(edge_of(&other, depth), (node.depth - depth - 1) as u8);
        self.insert_node(draft, descent, (at, above), (depth, child)).await
    }

    /// Puts a node of depth `depth` with `child` and the new leaf into the slot `at`.
    async fn insert_node(
        &mut self,
        draft: &mut Draft<'_>,
        descent: &mut Descent<'_>,
        (at, above): (SlotAt, usize),
        (depth, child): (usize, Slot),
    ) -> Result<Attempt> {
        let home = at.addr.node();
        let leaf = draft.place(&mut self.client, home).await?;
        let new_leaf = Slot::leaf(edge_of(draft.key, depth), draft.class, leaf);
        let mut drafts = Drafts::new();
        let built = self.build_chain(&mut drafts, descent, home, above, depth, [child, new_leaf]).await;
        let (images, top) = match built {
            Ok(built) => built,
            Err(error) => {
                drafts.discard(&mut self.client);
                return Err(error);
            }
        };
        let top_slot = top.moved(at.slot.edge().unwrap_or(0), top_skip(above, images.len(), depth));
        let mut writes: Vec<(GlobalAddr, &[u64])> =
            images.iter().map(|(node, words)| (node.addr, &words[..])).collect();
        writes.push((leaf, &draft.words));
        if !self.publish(&writes, at, top_slot).await? {
            drafts.discard(&mut self.client);
            return Ok(Attempt::Again);
        }
        drafts.keep();
        draft.linked();
        let mut from = above;
        for (node, _) in images.iter().rev() {
            let replaces = child.is_live().then(|| child.addr());
            let pending = pending_for(self.table.list, &mut descent.key, (from, node.depth), *node, replaces);
            install(&mut self.client, self.shared.express(&self.table), &pending, &descent.probes).await?;
            from = node.depth;
        }
        Ok(Attempt::Done(PutOutcome::Inserted))
    }

    /// The images of the new node and of the chain above it, deepest first, and the slot of the
    /// topmost.
    #[allow(clippy::too_many_arguments)] // the parts of one split
    async fn build_chain(
        &mut self,
        drafts: &mut Drafts,
        descent: &mut Descent<'_>,
        home: u8,
        above: usize,
        depth: usize,
        children: [Slot; 2],
    ) -> Result<(Vec<(NodeRef, Vec<u64>)>, Slot)> {
        let mut images = Vec::with_capacity(1);
        let mut hosted = children.to_vec();
        let mut at = depth;
        loop {
            let ty = NodeType::N4;
            let addr = drafts.alloc(&mut self.client, home, ty.bytes(), AllocKind::Inner).await?;
            let node = NodeRef { addr, ty, depth: at };
            images.push((node, node::image(ty, descent.key.identity(at), &hosted)));
            // The chain node above, if this edge would skip more bytes than a slot can encode.
            let next = chain_depth(above, at);
            let Some(upper) = next else {
                return Ok((images, Slot::node(0, ty, 0, addr)));
            };
            let edge = u16::from(descent.key.bytes()[upper]);
            hosted = vec![Slot::node(edge, ty, (at - upper - 1) as u8, addr)];
            at = upper;
        }
    }
}

/// The depth of the chain node needed between a node at `above` and one at `depth`, if the edge
/// would skip too many bytes.
fn chain_depth(above: usize, depth: usize) -> Option<usize> {
    (depth - above - 1 > SKIP_MAX).then(|| depth - 1 - SKIP_MAX)
}

/// Bytes that the topmost node's edge skips, with `count` nodes between `above` and `depth`.
fn top_skip(above: usize, count: usize, depth: usize) -> u8 {
    (depth - (count - 1) * (SKIP_MAX + 1) - above - 1) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_reach_from_any_depth_to_any_other() {
        for above in [0, 1, 127, 128, 5000] {
            for depth in above + 1..above + 700 {
                let mut at = depth;
                let mut count = 1;
                while let Some(upper) = chain_depth(above, at) {
                    assert!(at - upper - 1 <= SKIP_MAX);
                    at = upper;
                    count += 1;
                }
                assert!(at > above && at - above - 1 <= SKIP_MAX);
                assert_eq!(usize::from(top_skip(above, count, depth)), at - above - 1);
            }
        }
    }
}
