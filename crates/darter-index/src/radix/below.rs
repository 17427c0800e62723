//! Finding any key below a node.
//!
//! With path compression, the bytes that an edge skips are stored only in the leaves. To get a
//! node's prefix (for a node split, a scan at its bounds, or a new express entry), an operation
//! reads the key of any leaf below it; many nodes share the round trips.

use super::leaf;
use crate::Result;
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::Pinned;

/// A node on the way down, or the part of it that one READ covers.
pub trait Node: Sized {
    /// The address and number of the words to read next.
    fn words(&self) -> (GlobalAddr, usize);

    /// Adds the ways down from here, given those words. The last one is tried first.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`](crate::IndexError::Corrupt).
    fn add_ways(&self, words: &[u64], ways: &mut Vec<Way<Self>>) -> Result<()>;
}

/// A way down from a node.
#[derive(Clone, Copy, Debug)]
pub enum Way<N> {
    /// To a node, or to another part of the same node.
    Node(N),
    /// To a leaf.
    Leaf {
        /// The leaf's address.
        addr: GlobalAddr,
        /// Its size class.
        class: u8,
    },
}

/// The search below one node: the ways that remain, and the key if one was found.
struct Search<N> {
    ways: Vec<Way<N>>,
    key: Option<Vec<u8>>,
}

/// For each node, returns the key of some leaf below it, or `None` if it has none. Skips children
/// without a leaf, which exist while a client that deletes has not yet removed them.
///
/// # Errors
/// Those of the fabric, and [`IndexError::Corrupt`](crate::IndexError::Corrupt).
pub async fn keys_below<F: Fabric, N: Node + Send + Sync>(
    client: &mut Pinned<'_, F>,
    nodes: impl Iterator<Item = N> + Send,
) -> Result<Vec<Option<Vec<u8>>>> {
    let begin = |node| Search { ways: vec![Way::Node(node)], key: None };
    let mut searches: Vec<Search<N>> = nodes.map(begin).collect();
    loop {
        let mut batch = client.batch();
        let mut reads = Vec::new();
        for search in searches.iter_mut().filter(|search| search.key.is_none()) {
            let Some(way) = search.ways.pop() else { continue };
            let (addr, words) = match &way {
                Way::Node(node) => node.words(),
                Way::Leaf { addr, class } => (*addr, leaf::class_words(*class)),
            };
            reads.push((search, way, batch.read(addr, words)));
        }
        if reads.is_empty() {
            client.recycle(batch);
            break;
        }
        let done = client.submit(batch).await?;
        for (search, way, read) in reads {
            let words = done.words(read);
            match way {
                Way::Node(node) => node.add_ways(words, &mut search.ways)?,
                Way::Leaf { addr, .. } => search.key = Some(leaf::parse(addr, words)?.key.to_vec()),
            }
        }
        client.recycle(done);
    }
    Ok(searches.into_iter().map(|search| search.key).collect())
}
