//! The engine that radix trees in a pool share. DART stands on it, and so do ART and SMART in `darter-baselines`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`slot`] | the 8-byte pointer to a child, generic over the types of node; edges and their order |
//! | [`leaf`] | immutable key-value pairs |
//! | [`prefix_hash`] | keyed hashes of key prefixes: the identity of a node |
//! | [`seal`] | makes a run of slots immutable before a node is replaced |
//! | [`drafts`] | objects that a writer has allocated and not yet published |
//! | [`build`] | the bulk load, bottom-up, for any node format ([`build::Shape`]) |
//! | [`limits`], [`sink`] | the range of a scan, and where its pairs go |
//!
//! An index brings its node formats, the way down, and its write path. Nothing here decides when a change becomes visible.

pub mod build;
pub mod drafts;
pub mod leaf;
pub mod limits;
pub mod prefix_hash;
pub mod seal;
pub mod sink;
pub mod slot;

use crate::IndexError;
use darter_fabric::GlobalAddr;

/// Turns of one operation beyond which no contention explains that it does not end, but a damaged pool does.
pub const TURNS_MAX: u32 = 50_000;

/// What an operation answers after so many turns; it could not get past `addr`.
pub fn no_progress(addr: GlobalAddr) -> IndexError {
    IndexError::Corrupt { addr, what: "an operation that never comes to an end" }
}

/// Bytes that two keys share at their beginning.
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}
