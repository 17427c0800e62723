//! Finding any key below a node.
//!
//! Path compression leaves the bytes it skips in the leaves alone. Whoever needs a node's prefix (a node split, an express
//! entry to be placed) reads the key of any leaf below it; many nodes share the round trips.

use super::leaf;
use super::node::{NodeRef, verify_depth};
use super::slot::{Held, Slot};
use crate::IndexError;
use darter_fabric::{Fabric, GlobalAddr, mutant};
use darter_pool::Client;

/// Where the way down from one node stands.
enum Way {
    Bucket(NodeRef, usize),
    Leaf(GlobalAddr, u8),
    Done(Option<Vec<u8>>),
}

/// For each node, the key of some leaf below it, or `None` when it has none (any more).
///
/// # Errors
/// Those of the fabric, and [`IndexError::Corrupt`].
pub(crate) async fn keys_below<F: Fabric>(
    client: &mut Client<F>,
    nodes: &[NodeRef],
) -> Result<Vec<Option<Vec<u8>>>, IndexError> {
    let mut ways: Vec<Way> = nodes.iter().map(|&node| Way::Bucket(node, 0)).collect();
    loop {
        let mut batch = client.batch();
        let mut reads = Vec::new();
        for (at, way) in ways.iter().enumerate() {
            match way {
                Way::Bucket(node, bucket) => {
                    let width = node.ty.bucket_words();
                    reads.push((at, batch.read(node.addr.plus((bucket * width * 8) as u64), width)));
                }
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
    match way {
        Way::Bucket(node, bucket) => {
            verify_depth(*node, words)?;
            let live = words[1..].iter().map(|&word| Slot::from_word(word)).find(|slot| slot.is_live());
            Ok(match live.map(Slot::held) {
                Some(Held::Leaf { addr, class }) => Way::Leaf(addr, class),
                Some(Held::Node { addr, ty, skip }) => {
                    Way::Bucket(NodeRef { addr, ty, depth: node.depth + 1 + usize::from(skip) }, 0)
                }
                Some(_) => {
                    return Err(IndexError::Corrupt { addr: node.addr, what: "slot of no known type" });
                }
                None if bucket + 1 < node.ty.buckets() && !mutant!("key-below-sought-in-one-bucket") => {
                    Way::Bucket(*node, bucket + 1)
                }
                None => Way::Done(None),
            })
        }
        Way::Leaf(addr, _) => Ok(Way::Done(Some(leaf::parse(*addr, words)?.key.to_vec()))),
        Way::Done(key) => Ok(Way::Done(key.clone())),
    }
}
