//! What the radix trees of the house share: pointers, leaves, prefix hashes, seals, drafts, ranges, and the bulk load.

pub(crate) mod build;
pub(crate) mod drafts;
pub(crate) mod leaf;
pub(crate) mod limits;
pub(crate) mod prefix_hash;
pub(crate) mod seal;
pub(crate) mod sink;
pub(crate) mod slot;

use crate::IndexError;
use darter_fabric::GlobalAddr;

/// Turns of one operation beyond which no contention explains that it does not end, but a damaged pool does.
pub(crate) const TURNS_MAX: u32 = 50_000;

/// What an operation answers after so many turns; it could not get past `addr`.
pub(crate) fn no_progress(addr: GlobalAddr) -> IndexError {
    IndexError::Corrupt { addr, what: "an operation that never comes to an end" }
}

/// Bytes that two keys share at their beginning.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}
