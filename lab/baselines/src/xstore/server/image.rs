//! The image of the inner nodes, written bottom up with the models of a generation, for clients
//! that find leaves by the tree. It reflects the leaves as training read them.

use super::super::image::{FANOUT, ImageWord, InnerNode, LEVELS_MAX, NODE_WORDS};
use super::super::leaf::UNIT;
use super::Operation;
use super::learning::Models;
use darter_fabric::Fabric;
use darter_index::Result;
use darter_index::radix::drafts::Drafts;
use darter_index::radix::writes::Writes;

/// Children of a new node: three quarters of the fanout, the default fill of leaves.
const CHILDREN: usize = FANOUT * 3 / 4;

impl<F: Fabric> Operation<'_, F> {
    /// Writes the nodes above leaves, given the least model key and the entry of each leaf. Returns
    /// the root; `None` without leaves, or if the nodes do not fit in a slab.
    ///
    /// # Errors
    /// Out of space; errors of the fabric.
    pub(super) async fn write_image(
        &mut self,
        drafts: &mut Drafts,
        models: &mut Models,
        writes: &mut Writes,
        leaves: Vec<(u64, u64)>,
    ) -> Result<Option<ImageWord>> {
        let mut children = leaves;
        for levels in 1..=LEVELS_MAX {
            let mut parents = Vec::with_capacity(children.len().div_ceil(CHILDREN));
            for group in children.chunks(CHILDREN) {
                let Some(room) = self.draft_table(drafts, models, writes, NODE_WORDS as u32).await? else {
                    return Ok(None);
                };
                let node = InnerNode::new(group);
                writes.write(&mut self.client, self.shared.table_at(room), node.words()).await?;
                parents.push((group[0].0, room.offset() / UNIT));
            }
            match parents[..] {
                [] => return Ok(None),
                [(_, root)] => return Ok(u32::try_from(root).ok().map(|root| ImageWord { levels, root })),
                _ => children = parents,
            }
        }
        Ok(None)
    }
}
