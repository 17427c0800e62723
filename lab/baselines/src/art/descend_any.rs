//! Finds any key below a node of ART ([`darter_index::radix::below`]), for a node split and for a
//! scan at its bounds.

use super::node::{Content, NodeType, Part};
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::radix::below::{self, Way};
use darter_index::{IndexError, Result};
use darter_pool::Pinned;

/// A node on the way down.
struct Whole {
    addr: GlobalAddr,
    ty: NodeType,
    /// The depth of the node above, if one was read.
    above: Option<usize>,
}

impl below::Node for Whole {
    fn words(&self) -> (GlobalAddr, usize) {
        (self.addr, self.ty.words())
    }

    fn add_ways(&self, words: &[u64], ways: &mut Vec<Way<Self>>) -> Result<()> {
        let addr = self.addr;
        let whole = Part::whole(self.ty, words);
        let depth = whole.header.depth();
        if self.above.is_some_and(|above| depth <= above) {
            return Err(IndexError::corrupt(addr, "node is not deeper than the node that points to it"));
        }
        let begin = ways.len();
        for (_, slot) in whole.live() {
            ways.push(match slot.content() {
                Content::Leaf { addr, class } => Way::Leaf { addr, class },
                Content::Node { addr, ty, .. } => Way::Node(Self { addr, ty, above: Some(depth) }),
                _ => return Err(IndexError::corrupt(addr, "slot of an unknown type")),
            });
        }
        ways[begin..].reverse();
        Ok(())
    }
}

/// Returns for each node the key of some leaf below it, or `None` if it has none.
///
/// # Errors
/// Errors of the fabric, and [`IndexError::Corrupt`].
pub(super) async fn keys_below<F: Fabric>(
    client: &mut Pinned<'_, F>,
    nodes: &[(GlobalAddr, NodeType)],
) -> Result<Vec<Option<Vec<u8>>>> {
    below::keys_below(client, nodes.iter().map(|&(addr, ty)| Whole { addr, ty, above: None })).await
}
