//! The engine that radix trees in a pool share. DART is built on it, and so are ART and SMART in
//! `darter-baselines`.
//!
//! | module | contents |
//! |---|---|
//! | [`slot`] | the 8-byte pointer to a child, generic over the types of node; edges and their order |
//! | [`leaf`] | immutable key-value pairs |
//! | [`intent`] | changes that a transaction has announced and not decided |
//! | [`prefix_hash`] | keyed hashes of key prefixes: the identity of a node |
//! | [`seal`] | makes a run of slots immutable before a node is replaced |
//! | [`drafts`] | objects that a writer has allocated and not yet published |
//! | [`below`] | the key of any leaf below a node |
//! | [`build`] | the bulk load, bottom-up, for any node format ([`build::Shape`]) |
//! | [`prefix_list`], [`choose`] | the lengths that a skip table covers, and their choice |
//! | [`sampling`] | when the lengths should be chosen again |
//! | [`search`] | searches as state machines without a fabric, one or many in the same round trips |
//! | [`writes`] | WRITEs sent in large batches, for a bulk load |
//! | [`path`] | the path of a check's walk, and what its leaves must agree with |
//! | [`tally`] | counts and sizes, summed up on a walk |
//! | [`frontier`] | what a scan has yet to visit, and how much of it one round trip reads |
//! | [`limits`], [`sink`] | the range of a scan, and where its pairs go |
//!
//! An index defines its node formats, its descent, and its write path. Nothing here decides when a
//! change becomes visible.

pub mod below;
pub mod build;
pub mod choose;
pub mod drafts;
pub mod frontier;
pub mod intent;
pub mod leaf;
pub mod limits;
pub mod path;
pub mod prefix_hash;
pub mod prefix_list;
pub mod sampling;
pub mod seal;
pub mod search;
pub mod sink;
pub mod slot;
pub mod tally;
pub mod writes;

use crate::IndexError;
use darter_fabric::GlobalAddr;
use std::cmp::Ordering;

/// Maximum number of attempts of an operation: more lost races than contention among clients
/// explains.
pub const TURNS_MAX: u32 = 50_000;

/// The error of an operation that gave up after [`TURNS_MAX`] attempts because of changes at
/// `addr`.
pub fn no_progress(addr: GlobalAddr) -> IndexError {
    IndexError::NoProgress { addr, attempts: TURNS_MAX }
}

/// Number of bytes in the common prefix of two keys.
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// Compares two keys, without a call if they differ in their first eight bytes.
#[inline]
pub fn compare(a: &[u8], b: &[u8]) -> Ordering {
    if let (Some(first_of_a), Some(first_of_b)) = (a.first_chunk(), b.first_chunk()) {
        let order = u64::from_be_bytes(*first_of_a).cmp(&u64::from_be_bytes(*first_of_b));
        if order != Ordering::Equal {
            return order;
        }
    }
    a.cmp(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_are_in_the_order_of_slices(
            [a, b] in proptest::array::uniform2(proptest::collection::vec(0_u8..3, 0..12)),
            same in 0_usize..12,
        ) {
            let c = [&a[..same.min(a.len())], &b[..]].concat();
            for (a, b) in [(&a, &b), (&a, &c), (&c, &a), (&a, &a)] {
                prop_assert_eq!(compare(a, b), a.cmp(b));
            }
        }
    }
}
