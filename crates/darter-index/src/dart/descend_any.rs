//! Finding any key below a node ([`crate::radix::below`]) in DART, one bucket at a time.

use super::node::{Content, NodeRef, Slot, verify_depth};
use crate::radix::below::{self, Way};
use crate::{IndexError, Result};
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::Pinned;

/// A bucket of a node on the way down.
struct Bucket {
    node: NodeRef,
    number: usize,
    /// Whether a hint led to the node.
    is_hinted: bool,
}

impl below::Node for Bucket {
    fn words(&self) -> (GlobalAddr, usize) {
        let width = self.node.ty.bucket_words();
        (self.node.addr.plus((self.number * width * 8) as u64), width)
    }

    fn add_ways(&self, words: &[u64], ways: &mut Vec<Way<Self>>) -> Result<()> {
        let node = self.node;
        verify_depth(node, words)?;
        if self.number + 1 < node.ty.buckets() {
            ways.push(Way::Node(Self { node, number: self.number + 1, is_hinted: self.is_hinted }));
        }
        let slots = words[1..].iter().rev().map(|&word| Slot::from_word(word));
        for slot in slots.filter(|slot| slot.is_live() && !(self.is_hinted && slot.is_sealed())) {
            ways.push(match slot.content() {
                Content::Leaf { addr, class } => Way::Leaf { addr, class },
                Content::Node { addr, ty, skip } => {
                    let node = NodeRef { addr, ty, depth: node.depth + 1 + usize::from(skip) };
                    Way::Node(Self { node, number: 0, is_hinted: false })
                }
                _ => return Err(IndexError::corrupt(node.addr, "slot of unknown type")),
            });
        }
        Ok(())
    }
}

/// For each node, the key of some leaf below it, or `None` if there is none (any longer).
///
/// # Errors
/// Those of the fabric, and [`IndexError::Corrupt`].
pub(crate) async fn keys_below<F: Fabric>(
    client: &mut Pinned<'_, F>,
    nodes: &[NodeRef],
) -> Result<Vec<Option<Vec<u8>>>> {
    let buckets = nodes.iter().map(|&node| Bucket { node, number: 0, is_hinted: false });
    below::keys_below(client, buckets).await
}

/// The same for nodes that hints lead to. Such a node may have been replaced before the caller's
/// pin, and the objects below it may then be free. As in a search (rule R1), only its unsealed
/// slots are followed.
///
/// # Errors
/// Those of [`keys_below`].
/// As of [`keys_below`].
pub(crate) async fn keys_below_hinted<F: Fabric>(
    client: &mut Pinned<'_, F>,
    nodes: &[NodeRef],
) -> Result<Vec<Option<Vec<u8>>>> {
    let buckets = nodes.iter().map(|&node| Bucket { node, number: 0, is_hinted: true });
    below::keys_below(client, buckets).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Condition, Dart, DartOptions, OrderedIndex};
    use darter_fabric::{Local, OpKind, block_on};
    use darter_pool::{Pool, PoolOptions};

    /// A split of a segment found an entry of a node that had been replaced, and read the key of a
    /// leaf below it that had been freed.
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
            let hash = others.shared.hashed(b"stem1234a").express(8);
            let (addr, ty) = others.shared.hints.remembered(hash, others.shared.log.era()).unwrap();
            let node = NodeRef { addr, ty, depth: 8 };
            let mut pinned = client.pin(OpKind::Maintain).await.unwrap();
            let below = keys_below_hinted(&mut pinned, &[node]).await.unwrap();
            drop(pinned);
            assert!(below[0].as_ref().is_some_and(|key| key.starts_with(b"stem1234")));
            for end in b'c'..b'h' {
                let key = [&b"stem1234"[..], &[end]].concat();
                dart.put(&mut client, &key, b"value", Condition::Always).await.unwrap();
            }
            let mut pinned = client.pin(OpKind::Maintain).await.unwrap();
            assert_eq!(keys_below_hinted(&mut pinned, &[node]).await.unwrap(), [None], "it was replaced");
        });
    }
}
