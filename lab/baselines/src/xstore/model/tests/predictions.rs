//! Properties: for any set of keys, every key is predicted to a range that includes its leaf,
//! whether or not the index has the key.

use super::models::{overlapping, top_of, train_all};
use super::tree::{Tree, mix};
use crate::xstore::model::sub::{SubModel, TableRef};
use crate::xstore::model::top::{TopModel, difference};
use crate::xstore::model::train::{LeafView, Scope, Trained, train_sub};
use crate::xstore::model::trainer::{Trainer, resized, submodels_for};
use proptest::prelude::*;

/// Returns the leaf numbers predicted for a key; `None` if nothing is predicted.
fn predicted(trained: &Trained, scope: Scope, key: u64) -> Option<Vec<u32>> {
    let model: SubModel = trained.placed(TableRef::new(640, trained.room()?));
    let table: Vec<_> = trained.table_words().map(crate::xstore::model::Entry::from_word).collect();
    let range = model.predict(difference(key, scope.base))?;
    Some(range.map(|position| table[position as usize].number()).collect())
}

/// Keys of several kinds, unsorted.
fn keys() -> impl Strategy<Value = Vec<u64>> {
    let ends = prop_oneof![Just(0), Just(u64::MAX), Just(1 << 63), 0_u64..50];
    let numbers = prop_oneof![4 => any::<u64>(), 1 => ends];
    let clusters = (any::<u64>(), 1_u64..1000);
    prop_oneof![
        proptest::collection::vec(numbers, 0..400),
        proptest::collection::vec(0_u64..2000, 0..400),
        (proptest::collection::vec(clusters, 1..4), 1_u64..150).prop_map(|(clusters, count)| {
            let keys = |(base, step): (u64, u64)| (0..count).map(move |i| base.wrapping_add(i * step));
            clusters.into_iter().flat_map(keys).collect()
        }),
        // Text: few bytes, long common prefixes.
        proptest::collection::vec("[ab]{0,3}", 0..300).prop_map(|words| {
            words
                .iter()
                .map(|word| crate::xstore::model::model_key(format!("page/{word}").as_bytes()))
                .collect()
        }),
    ]
}

proptest! {
    #[test]
    fn a_key_is_predicted_to_its_leaf_or_to_nothing(
        keys in keys(),
        others in proptest::collection::vec(any::<u64>(), 0..50),
        submodels in 1_u32..40,
    ) {
        let tree = Tree::of(keys.iter().copied());
        let (top, views) = (top_of(&tree), tree.views());
        let trained = train_all(top, submodels, &views);
        let bounds = views.iter().flat_map(|leaf| [leaf.low, leaf.high]);
        let near = keys.iter().flat_map(|key| [key.wrapping_sub(1), *key, key.wrapping_add(1)]);
        for key in bounds.chain(near).chain(others) {
            let submodel = top.predict(key, submodels);
            let scope = Scope::of(&top, submodel, submodels).unwrap();
            let (_, trained) = trained.iter().find(|(number, _)| *number == submodel).unwrap();
            if let Some(numbers) = predicted(trained, scope, key) {
                let number = tree.leaf(key).number;
                prop_assert!(numbers.contains(&number), "{key} is in {number}, not in {numbers:?}");
            }
        }
    }

    #[test]
    fn one_walk_trains_what_single_trainings_do(keys in keys(), submodels in 1_u32..40) {
        let tree = Tree::of(keys);
        let (top, views) = (top_of(&tree), tree.views());
        let all = train_all(top, submodels, &views);
        prop_assert!(all.is_sorted_by(|a, b| a.0 < b.0));
        let mut emitted = all.iter();
        for submodel in 0..submodels {
            let Some(scope) = Scope::of(&top, submodel, submodels) else { continue };
            let trained = train_sub(scope, overlapping(&views, scope).iter().copied());
            prop_assert_eq!(Some(&(submodel, trained)), emitted.next());
        }
        prop_assert_eq!(None, emitted.next());
    }

    #[test]
    fn leaves_that_share_model_keys_are_all_predicted(
        // Leaves of long keys: bounds within a model key, so that neighbours share it.
        mut keys in proptest::collection::vec(0_u64..12, 1..60),
        submodels in 1_u32..10,
    ) {
        keys.sort_unstable();
        let groups: Vec<_> = keys.chunks(5).collect();
        let low = |at: usize| if at == 0 { 0 } else { groups[at][0] };
        let high = |at: usize| groups.get(at + 1).map_or(u64::MAX, |next| next[0]);
        let view = |(at, keys): (usize, &&'_ [u64])| (at as u32, keys.to_vec(), low(at), high(at));
        let owned: Vec<_> = groups.iter().enumerate().map(view).collect();
        let views: Vec<_> = owned
            .iter()
            .map(|&(number, ref keys, low, high)| LeafView { number, incarnation: 0, keys, low, high })
            .collect();
        let top = TopModel::train(keys.iter().copied().zip(0..), keys.len() as u64);
        let trained = train_all(top, submodels, &views);
        for key in 0..12 {
            let submodel = top.predict(key, submodels);
            let scope = Scope::of(&top, submodel, submodels).unwrap();
            let (_, trained) = trained.iter().find(|(number, _)| *number == submodel).unwrap();
            let Some(numbers) = predicted(trained, scope, key) else { continue };
            for leaf in views.iter().filter(|leaf| leaf.low <= key && key <= leaf.high) {
                prop_assert!(numbers.contains(&leaf.number));
            }
        }
    }
}

#[test]
fn an_empty_index_has_one_leaf_for_all_keys() {
    let tree = Tree::of([]);
    let top = top_of(&tree);
    for (submodel, trained) in train_all(top, 7, &tree.views()) {
        let scope = Scope::of(&top, submodel, 7).unwrap();
        for key in [0, 1, u64::MAX] {
            assert_eq!(predicted(&trained, scope, key).map(|numbers| numbers[0]), Some(1));
        }
    }
    // Without leaves nothing is predicted.
    let scope = Scope::of(&top, 0, 1).unwrap();
    assert_eq!(train_sub(scope, std::iter::empty()), Trained::none());
    assert_eq!(Trained::none().placed(TableRef::new(0, 8)), SubModel::NONE);
}

#[test]
fn keys_that_no_line_comes_near_to_are_not_predicted() {
    // 100 leaves of keys with a common prefix.
    let keys = [7; 8];
    let views: Vec<_> =
        (0..100).map(|number| LeafView { number, incarnation: 0, keys: &keys, low: 7, high: 7 }).collect();
    let top = TopModel::train((0..800).map(|position| (7, position)), 800);
    let mut trainer = Trainer::new(top, 4);
    let mut silent = 0;
    let mut emit = |_, trained: Trained| silent += u32::from(trained == Trained::none());
    for leaf in &views {
        trainer.push(leaf, &mut emit);
    }
    trainer.finish(&mut emit);
    assert_eq!(silent, 1);
    // Five such leaves are all predicted.
    let scope = Scope::of(&top, top.predict(7, 4), 4).unwrap();
    let trained = train_sub(scope, views[..5].iter().copied());
    assert_eq!(predicted(&trained, scope, 7).map(|numbers| numbers[..5].to_vec()), Some(vec![0, 1, 2, 3, 4]));
}

#[test]
fn dense_keys_far_from_zero_keep_their_precision() {
    for base in [1 << 62, u64::MAX - 200_000] {
        let tree = Tree::of((0..100_000).map(|i| base + i));
        let figures = super::models::figures(&tree, 200);
        assert!(figures.error() < 0.05 && figures.silent == 0, "{figures:?}");
    }
}

#[test]
fn a_sampled_top_model_is_as_good() {
    let keys: Vec<u64> = {
        let mut keys: Vec<_> = (0..100_000).map(mix).collect();
        keys.sort_unstable();
        keys
    };
    let all = TopModel::train(keys.iter().copied().zip(0..), keys.len() as u64);
    let sample = keys.iter().copied().zip(0..).step_by(100);
    let sampled = TopModel::train(sample, keys.len() as u64);
    for &key in &keys {
        assert!(all.predict(key, 500).abs_diff(sampled.predict(key, 500)) <= 1);
    }
}

#[test]
fn submodels_are_doubled_at_200_keys_each_and_halved_below_50() {
    assert_eq!((submodels_for(0, 200), submodels_for(1000, 200), submodels_for(1001, 200)), (1, 5, 6));
    assert_eq!((submodels_for(u64::MAX, 1), submodels_for(5, 0)), (u32::MAX, 5));
    assert_eq!((resized(1000, 5), resized(1001, 5), resized(249, 5)), (None, Some(10), Some(2)));
    assert_eq!((resized(250, 5), resized(0, 1), resized(u64::MAX, u32::MAX)), (None, None, None));
    // Repeated growing or shrinking terminates.
    let mut submodels = 1;
    while let Some(more) = resized(1_000_000, submodels) {
        submodels = more;
    }
    assert_eq!(submodels, 8192);
    while let Some(less) = resized(10, submodels) {
        submodels = less;
    }
    assert_eq!(submodels, 1);
}
