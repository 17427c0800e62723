//! Other ordered indexes in the same process (feature `peers`): same keys, same values, same
//! operations, same driver.
//!
//! Each peer is wrapped in a separate file, as its documentation advises. All of them are plain
//! memory structures of one process; darter pays for verbs, checks and addresses in addition, so
//! that its bytes can be elsewhere and be shared. Rounds are interleaved and the order of the
//! indexes rotates with each, so that a slow moment of the machine affects all. 8-byte integer keys
//! are `u64` in the peers that are generic; other keys, such as e-mail addresses, are boxed bytes,
//! congee, which takes integers only, is left out, and masstree too if there are scans, since its
//! scans skip some keys. masstree and bf-tree hold bytes in both
//! cases. Values are 64 bytes and are copied out by all.
//!
//! Outside the measured time, reads and scans of every index are checked against what was written
//! (`verification.rs`).
//!
//! Never compare with numbers of another run, least of all of another machine.

mod bf_tree;
mod compare;
mod congee;
mod crossbeam_skiplist;
mod keys;
mod locked_btree;
mod masstree;
mod scc_tree_index;
mod verbs;
mod verification;

pub(crate) use compare::compare;

/// Bytes of every value in a comparison.
const VALUE_BYTES: usize = 64;

/// A value as the peers hold it.
type Value = [u8; VALUE_BYTES];

/// A dataset's key as an integer of the same order. Keys of a comparison have 8 bytes; others are
/// cut or padded.
#[inline]
fn integer(key: &[u8]) -> u64 {
    u64::from_be_bytes(padded(key))
}

/// A value as the peers hold it. Values of a comparison have 64 bytes; others are cut or padded.
#[inline]
fn value(bytes: &[u8]) -> Value {
    padded(bytes)
}

#[inline]
fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    <[u8; N]>::try_from(bytes).unwrap_or_else(|_| {
        let mut padded = [0; N];
        padded.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        padded
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter::block_on;
    use darter_bench::BenchError;
    use darter_bench::target::{Target, TargetSession};
    use std::collections::BTreeMap;

    /// Runs the same operations with 8-byte keys on a peer and on a map and compares every result.
    fn assert_agrees<T: Target>(peer: &T) {
        let key = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1).to_be_bytes().to_vec();
        assert_agrees_on(peer, key, true);
    }

    /// The same with keys of 1 to 40 bytes, of which many share long prefixes and some are prefixes
    /// of others.
    fn assert_agrees_on_bytes<T: Target>(peer: &T, with_scans: bool) {
        let key = |n: u64| {
            let text = format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            format!("{}{}{n}", &text[..1], "/users/by-name/"[..n as usize % 16].repeat(2)).into_bytes()
        };
        assert_agrees_on(peer, key, with_scans);
    }

    fn assert_agrees_on<T: Target>(peer: &T, key: impl Fn(u64) -> Vec<u8>, with_scans: bool) {
        let mut model = BTreeMap::new();
        let mut session = peer.session().unwrap();
        let mut pairs: Vec<_> = (0..500).map(|n| (key(n), vec![n as u8; VALUE_BYTES])).collect();
        pairs.sort();
        model.extend(pairs.clone());
        assert_eq!(block_on(session.bulk_load(Box::new(pairs.into_iter()))).unwrap(), 500);
        let mut read = vec![1, 2, 3];
        for n in 500..1500 {
            let value = vec![n as u8 ^ 0x55; VALUE_BYTES];
            assert!(block_on(session.insert(&key(n), &value)).unwrap());
            model.insert(key(n), value);
            let updated = vec![n as u8; VALUE_BYTES];
            assert!(block_on(session.update(&key(n / 2), &updated)).unwrap());
            model.insert(key(n / 2), updated);
            assert!(block_on(session.read(&key(n / 3), &mut read)).unwrap());
            assert_eq!(read, model[&key(n / 3)]);
            assert!(!block_on(session.read(&key(n + 10_000), &mut read)).unwrap());
            if !with_scans {
                continue;
            }
            let limit = 1 + n as usize % 100;
            let expected: Vec<&Vec<u8>> = model.range(key(n / 4)..).map(|pair| pair.1).take(limit).collect();
            assert_eq!(block_on(session.scan(&key(n / 4), limit, &mut read)).unwrap(), expected.len());
            assert!(read.chunks(VALUE_BYTES).eq(expected.iter().map(|value| &value[..])), "{}", peer.name());
        }
    }

    /// Readers must never see torn or freed values while others update. `keeps_keys` says whether a
    /// key that is being updated is always present.
    fn assert_survives_contention<T: Target>(peer: &T, keeps_keys: bool) {
        for n in 0..100_u64 {
            block_on(peer.session().unwrap().insert(&n.to_be_bytes(), &[1; VALUE_BYTES])).unwrap();
        }
        std::thread::scope(|scope| {
            for thread in 0..2_u8 {
                scope.spawn(move || -> Result<(), BenchError> {
                    let mut session = peer.session()?;
                    let mut read = Vec::new();
                    for n in 0..20_000_u64 {
                        let key = (n * 7 % 100).to_be_bytes();
                        block_on(session.update(&key, &[thread ^ n as u8; VALUE_BYTES]))?;
                        assert!(block_on(session.read(&key, &mut read))? || !keeps_keys);
                        assert!(read.windows(2).all(|pair| pair[0] == pair[1]));
                    }
                    Ok(())
                });
            }
        });
    }

    #[test]
    fn congee_agrees_with_a_map() {
        assert_agrees(&congee::CongeeTarget::new());
        assert_survives_contention(&congee::CongeeTarget::new(), true);
    }

    #[test]
    fn masstree_agrees_with_a_map() {
        assert_agrees(&masstree::MasstreeTarget::new());
        assert_agrees_on_bytes(&masstree::MasstreeTarget::new(), false);
        assert_survives_contention(&masstree::MasstreeTarget::new(), true);
    }

    #[test]
    fn bf_tree_agrees_with_a_map() {
        let peer = || bf_tree::BfTreeTarget::new(2000).unwrap();
        assert_agrees(&peer());
        assert_agrees_on_bytes(&peer(), true);
        assert_survives_contention(&peer(), true);
    }

    #[test]
    fn crossbeam_skiplist_agrees_with_a_map() {
        use super::crossbeam_skiplist::SkipListTarget;
        assert_agrees(&SkipListTarget::<u64>::new());
        assert_agrees_on_bytes(&SkipListTarget::<Box<[u8]>>::new(), true);
        assert_survives_contention(&SkipListTarget::<u64>::new(), false);
    }

    #[test]
    fn scc_tree_index_agrees_with_a_map() {
        use super::scc_tree_index::TreeIndexTarget;
        assert_agrees(&TreeIndexTarget::<u64>::new());
        assert_agrees_on_bytes(&TreeIndexTarget::<Box<[u8]>>::new(), true);
        assert_survives_contention(&TreeIndexTarget::<u64>::new(), true);
    }

    #[test]
    fn locked_btree_agrees_with_a_map() {
        use super::locked_btree::LockedBTreeTarget;
        assert_agrees(&LockedBTreeTarget::<u64>::new());
        assert_agrees_on_bytes(&LockedBTreeTarget::<Box<[u8]>>::new(), true);
        assert_survives_contention(&LockedBTreeTarget::<u64>::new(), true);
    }
}
