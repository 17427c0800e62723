//! Finding any key below a node.
//!
//! Path compression leaves the bytes it skips in the leaves alone. Anyone who needs a node's prefix
//! (a node split, a scan at its bounds, an express entry to be placed) reads the key of any leaf
//! below it; many nodes share the round trips.

use super::leaf;
use crate::Result;
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::Pinned;

/// A node on the way down, or as much of it as one READ brings.
pub trait Node: Sized {
    /// Where the words to be read next are, and how many.
    fn words(&self) -> (GlobalAddr, usize);

    /// The way on from here, given those words.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`](crate::IndexError::Corrupt).
    fn next(&self, words: &[u64]) -> Result<Next<Self>>;
}

/// The way on from a node.
#[derive(Clone, Copy, Debug)]
pub enum Next<N> {
    /// To a node, or to more of the same.
    Node(N),
    /// To a leaf.
    Leaf {
        /// Where it is.
        addr: GlobalAddr,
        /// Its size class.
        class: u8,
    },
    /// Nowhere: nothing is below.
    Nothing,
}

/// Where the way down from one node stands.
enum Way<N> {
    Open(Next<N>),
    Done(Vec<u8>),
}

/// For each node, the key of some leaf below it, or `None` if the first way down finds none.
///
/// # Errors
/// Those of the fabric, and [`IndexError::Corrupt`](crate::IndexError::Corrupt).
pub async fn keys_below<F: Fabric, N: Node + Send + Sync>(
    client: &mut Pinned<'_, F>,
    nodes: impl Iterator<Item = N> + Send,
) -> Result<Vec<Option<Vec<u8>>>> {
    let mut ways: Vec<Way<N>> = nodes.map(|node| Way::Open(Next::Node(node))).collect();
    loop {
        let mut batch = client.batch();
        let mut reads = Vec::new();
        for (at, way) in ways.iter().enumerate() {
            match way {
                Way::Open(Next::Node(node)) => {
                    let (addr, words) = node.words();
                    reads.push((at, batch.read(addr, words)));
                }
                Way::Open(Next::Leaf { addr, class }) => {
                    reads.push((at, batch.read(*addr, leaf::class_words(*class))));
                }
                Way::Open(Next::Nothing) | Way::Done(_) => {}
            }
        }
        if reads.is_empty() {
            client.recycle(batch);
            break;
        }
        let done = client.submit(batch).await?;
        for (at, read) in reads {
            let words = done.words(read);
            ways[at] = match &ways[at] {
                Way::Open(Next::Node(node)) => Way::Open(node.next(words)?),
                Way::Open(Next::Leaf { addr, .. }) => Way::Done(leaf::parse(*addr, words)?.key.to_vec()),
                _ => continue,
            };
        }
        client.recycle(done);
    }
    let key_of = |way| match way {
        Way::Done(key) => Some(key),
        Way::Open(_) => None,
    };
    Ok(ways.into_iter().map(key_of).collect())
}
