//! Finding any key below a node, for whoever needs the bytes that an edge skips: a node split, a scan at its bounds.

use super::node::{Held, NodeType, Part, Slot};
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::IndexError;
use darter_index::radix::leaf;
use darter_pool::Client;

/// Where the way down from one node stands.
enum Way {
    /// A node, deeper than this many bytes, or the first.
    Node(GlobalAddr, NodeType, Option<usize>),
    Leaf(GlobalAddr, u8),
    Done(Option<Vec<u8>>),
}

/// For each node, the key of some leaf below it, or `None` when the first way down finds none.
///
/// # Errors
/// Those of the fabric, and [`IndexError::Corrupt`].
pub(super) async fn keys_below<F: Fabric>(
    client: &mut Client<F>,
    nodes: &[(GlobalAddr, NodeType)],
) -> Result<Vec<Option<Vec<u8>>>, IndexError> {
    let mut ways: Vec<Way> = nodes.iter().map(|&(addr, ty)| Way::Node(addr, ty, None)).collect();
    loop {
        let mut batch = client.batch();
        let mut reads = Vec::new();
        for (at, way) in ways.iter().enumerate() {
            match way {
                Way::Node(addr, ty, _) => reads.push((at, batch.read(*addr, ty.words()))),
                Way::Leaf(addr, class) => reads.push((at, batch.read(*addr, leaf::class_words(*class)))),
                Way::Done(_) => {}
            }
        }
        if reads.is_empty() {
            client.recycle(batch);
            break;
        }
        let done = client.submit(batch).await?;
        for (at, read) in reads {
            let next = advance(&ways[at], done.words(read))?;
            ways[at] = next;
        }
        client.recycle(done);
    }
    Ok(ways
        .into_iter()
        .map(|way| match way {
            Way::Done(key) => key,
            _ => None,
        })
        .collect())
}

fn advance(way: &Way, words: &[u64]) -> Result<Way, IndexError> {
    match *way {
        Way::Node(addr, ty, above) => {
            let whole = Part::whole(ty, words);
            let depth = whole.header.depth();
            if above.is_some_and(|above| depth <= above) {
                let what = "node less deep than the one that points to it";
                return Err(IndexError::Corrupt { addr, what });
            }
            let child = whole.live().next().map(|(_, slot)| slot);
            Ok(match child.map(Slot::held) {
                Some(Held::Leaf { addr, class }) => Way::Leaf(addr, class),
                Some(Held::Node { addr, ty, .. }) => Way::Node(addr, ty, Some(depth)),
                Some(_) => return Err(IndexError::Corrupt { addr, what: "slot of no known type" }),
                None => Way::Done(None),
            })
        }
        Way::Leaf(addr, _) => Ok(Way::Done(Some(leaf::parse(addr, words)?.key.to_vec()))),
        Way::Done(ref key) => Ok(Way::Done(key.clone())),
    }
}
