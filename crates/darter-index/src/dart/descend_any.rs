//! Finding any key below a node.
//!
//! Path compression leaves the bytes it skips in the leaves alone. Whoever needs a node's prefix (a node split, an express
//! entry to be placed) reads the key of any leaf below it; many nodes share the round trips.

use super::leaf;
use super::node::{Held, NodeRef, Slot, verify_depth};
use crate::IndexError;
use darter_fabric::{Fabric, GlobalAddr, mutant};
use darter_pool::Client;

/// Where the way down from one node stands.
enum Way {
    Bucket(NodeRef, usize),
    /// The same in a node that a hint led to.
    Hinted(NodeRef, usize),
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
    go_down(client, nodes.iter().map(|&node| Way::Bucket(node, 0)).collect()).await
}

/// The same of nodes that hints lead to, and which may have been replaced before the caller's pin: then what is below them may be
/// free. As in a search (rule R1), only what their unsealed slots hold is followed.
///
/// # Errors
/// As of [`keys_below`].
pub(crate) async fn keys_below_hinted<F: Fabric>(
    client: &mut Client<F>,
    nodes: &[NodeRef],
) -> Result<Vec<Option<Vec<u8>>>, IndexError> {
    go_down(client, nodes.iter().map(|&node| Way::Hinted(node, 0)).collect()).await
}

async fn go_down<F: Fabric>(
    client: &mut Client<F>,
    mut ways: Vec<Way>,
) -> Result<Vec<Option<Vec<u8>>>, IndexError> {
    loop {
        let mut batch = client.batch();
        let mut reads = Vec::new();
        for (at, way) in ways.iter().enumerate() {
            match way {
                Way::Bucket(node, bucket) | Way::Hinted(node, bucket) => {
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
        Way::Bucket(node, bucket) | Way::Hinted(node, bucket) => {
            verify_depth(*node, words)?;
            let is_hinted = matches!(way, Way::Hinted(..)) && !mutant!("key-below-sought-through-a-seal");
            let mut slots = words[1..].iter().map(|&word| Slot::from_word(word));
            let live = slots.find(|slot| slot.is_live() && !(is_hinted && slot.is_sealed()));
            Ok(match live.map(Slot::held) {
                Some(Held::Leaf { addr, class }) => Way::Leaf(addr, class),
                Some(Held::Node { addr, ty, skip }) => {
                    Way::Bucket(NodeRef { addr, ty, depth: node.depth + 1 + usize::from(skip) }, 0)
                }
                Some(_) => {
                    return Err(IndexError::Corrupt { addr: node.addr, what: "slot of no known type" });
                }
                None if bucket + 1 < node.ty.buckets() && !mutant!("key-below-sought-in-one-bucket") => {
                    let next = bucket + 1;
                    if is_hinted { Way::Hinted(*node, next) } else { Way::Bucket(*node, next) }
                }
                None => Way::Done(None),
            })
        }
        Way::Leaf(addr, _) => Ok(Way::Done(Some(leaf::parse(*addr, words)?.key.to_vec()))),
        Way::Done(key) => Ok(Way::Done(key.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Condition, Dart, DartOptions, OrderedIndex};
    use darter_fabric::{Local, block_on};
    use darter_pool::{Pool, PoolOptions};

    /// A split of a segment met an entry of a node that had been replaced, and read the key of a leaf below it that was free.
    #[test]
    fn nothing_is_read_below_a_replaced_node_that_a_hint_names() {
        block_on(async {
            let fabric = Local::memory(16 << 20, 1).unwrap();
            let pool = Pool::create(fabric, &PoolOptions::default()).await.unwrap();
            let mut client = pool.client().unwrap();
            let dart = Dart::open_or_create(&mut client, DartOptions::default()).await.unwrap();
            for key in [&b"stem1234a"[..], b"stem1234b", b"else"] {
                dart.put(&mut client, key, b"value", Condition::Always).await.unwrap();
            }
            let others = Dart::open(&mut client, DartOptions::default()).await.unwrap();
            assert!(others.get(&mut client, b"stem1234a").await.unwrap().is_some());
            let hash = others.hashed(b"stem1234a").express(8);
            let node = others.shared.hints.get(hash, others.shared.retirements()).unwrap();
            let below = keys_below_hinted(&mut client, &[node]).await.unwrap();
            assert!(below[0].as_ref().is_some_and(|key| key.starts_with(b"stem1234")));
            for end in b'c'..b'h' {
                let key = [&b"stem1234"[..], &[end]].concat();
                dart.put(&mut client, &key, b"value", Condition::Always).await.unwrap();
            }
            assert_eq!(keys_below_hinted(&mut client, &[node]).await.unwrap(), [None], "it was replaced");
        });
    }
}
