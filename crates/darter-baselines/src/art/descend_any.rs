//! Finding any key below a node ([`darter_index::radix::below`]) of ART's: for a node split, and
//! for a scan at its bounds.

use super::node::{Content, NodeType, Part, Slot};
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::radix::below::{self, Next};
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

    fn next(&self, words: &[u64]) -> Result<Next<Self>> {
        let addr = self.addr;
        let whole = Part::whole(self.ty, words);
        let depth = whole.header.depth();
        if self.above.is_some_and(|above| depth <= above) {
            return Err(IndexError::corrupt(addr, "node less deep than the one that points to it"));
        }
        let child = whole.live().next().map(|(_, slot)| slot);
        Ok(match child.map(Slot::content) {
            Some(Content::Leaf { addr, class }) => Next::Leaf { addr, class },
            Some(Content::Node { addr, ty, .. }) => Next::Node(Self { addr, ty, above: Some(depth) }),
            Some(_) => return Err(IndexError::corrupt(addr, "slot of no known type")),
            None => Next::Nothing,
        })
    }
}

/// For each node, the key of some leaf below it, or `None` when the first way down finds none.
///
/// # Errors
/// Those of the fabric, and [`IndexError::Corrupt`].
pub(super) async fn keys_below<F: Fabric>(
    client: &mut Pinned<'_, F>,
    nodes: &[(GlobalAddr, NodeType)],
) -> Result<Vec<Option<Vec<u8>>>> {
    below::keys_below(client, nodes.iter().map(|&(addr, ty)| Whole { addr, ty, above: None })).await
}
