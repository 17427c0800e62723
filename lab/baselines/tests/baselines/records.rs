//! The test of indexes whose keys have 8 bytes, which the general tests cannot cover because their
//! keys have any length.

use crate::common::{Bench, Model, Tested};
use darter_fabric::block_on;
use darter_index::{Condition, OrderedIndex};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Puts, reads and deletes keys of 8 bytes with values of 8 bytes at random, then loads others.
pub(crate) fn behaves_like_a_map<T: Tested>() {
    let mut bench = Bench::<T>::new(2);
    let (mut model, mut dice) = (Model::new(), Pcg64Mcg::seed_from_u64(7));
    for _ in 0..20_000 {
        let key = (dice.random_range(0..1500_u64) << 40).to_be_bytes().to_vec();
        match dice.random_range(0..8) {
            0..5 => {
                let value = dice.random::<u64>().to_be_bytes().to_vec();
                block_on(bench.index.put(&mut bench.client, &key, &value, Condition::Always)).unwrap();
                model.insert(key, value);
            }
            5 | 6 => assert_eq!(bench.delete(&key), model.remove(&key).is_some()),
            _ => assert_eq!(bench.get(&key), model.get(&key).cloned()),
        }
    }
    bench.assert_holds(&model);
    bench.assert_sound(model.len());
    for key in model.keys() {
        assert!(bench.delete(key));
    }
    bench.assert_sound(0);
    let pairs: Vec<_> = (0..5000_u64).map(|n| (n.to_be_bytes().to_vec(), n.to_le_bytes().to_vec())).collect();
    let model: Model = pairs.iter().cloned().collect();
    block_on(bench.index.bulk_load(&mut bench.client, pairs.into_iter())).unwrap();
    bench.assert_holds(&model);
    bench.assert_sound(model.len());
}
