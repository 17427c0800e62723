//! What the radix trees of the house share: pointers, leaves, prefix hashes, seals, drafts, ranges, and the bulk load.

pub(crate) mod build;
pub(crate) mod drafts;
pub(crate) mod leaf;
pub(crate) mod limits;
pub(crate) mod prefix_hash;
pub(crate) mod seal;
pub(crate) mod sink;
pub(crate) mod slot;

/// Bytes that two keys share at their beginning.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}
