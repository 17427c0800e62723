//! Tests of the cache: round trips at the budgets of the paper, exact charges, generations,
//! retrained sub-models, threads, and words that are not models.

use super::models::Models;
use super::tree::{Tree, mix, random};
use crate::xstore::model::cache::{Cache, Hits, Leaves, NoModel, RouteStep, View};
use crate::xstore::model::entry::Entry;
use crate::xstore::model::sub::{PREDICTED_MAX, SubModel};
use crate::xstore::model::submodels_for;
use proptest::prelude::*;

const KEYS: u64 = 20_000;

fn index() -> (Tree, Models) {
    let tree = random(KEYS);
    let models = Models::of(&tree, submodels_for(KEYS, 200));
    (tree, models)
}

/// Follows a route to its end. Returns the leaves, unless a call is due, and the round trips taken.
fn follow(cache: &Cache, models: &Models, key: u64) -> (Option<Leaves>, u64) {
    let mut route = cache.route(models.view, key);
    let mut round_trips = 0;
    loop {
        let step = route.step();
        match models.read(&step) {
            Some(words) => route.absorb(&words).unwrap(),
            None => {
                break (if let RouteStep::Leaves(leaves) = step { Some(leaves) } else { None }, round_trips);
            }
        }
        round_trips += 1;
    }
}

/// Follows the routes of all keys. Returns the round trips per GET, including those for leaf and
/// value.
fn gets(cache: &Cache, tree: &Tree, models: &Models) -> f64 {
    let mut round_trips = 0;
    for record in 0..KEYS {
        let key = mix(record);
        let (leaves, taken) = follow(cache, models, key);
        let number = tree.leaf(key).number;
        assert!(leaves.unwrap().entries.iter().any(|(_, entry)| entry.number() == number));
        round_trips += taken + 2;
    }
    round_trips as f64 / KEYS as f64
}

/// Returns the bytes of everything, as charged.
fn whole(models: &Models, tree: &Tree) -> u64 {
    let views = tree.views();
    let trained = super::models::train_all(models.top, models.view.submodels, &views);
    let entries: usize = trained.iter().map(|(_, trained)| trained.entries.len()).sum();
    16 + 14 * trained.len() as u64 + 8 * entries as u64
}

#[test]
fn a_get_takes_two_three_or_four_round_trips_and_five_without_a_cache() {
    let (tree, models) = index();
    let (whole, submodels) = (whole(&models, &tree), models.subs.len() as u64);
    for (budget, round_trips, bytes) in [
        (whole, 2.0, whole),
        (16 + 14 * submodels, 3.0, 16 + 14 * submodels),
        (16, 4.0, 16),
        (15, 5.0, 0),
        (0, 5.0, 0),
    ] {
        let cache = Cache::new(budget);
        gets(&cache, &tree, &models);
        let before = cache.hits();
        assert_eq!((gets(&cache, &tree, &models), cache.bytes()), (round_trips, bytes), "of {budget}");
        let levels = [budget >= 16, budget >= 16 + 14 * submodels, budget >= whole];
        let hits = levels.map(|is_cached| if is_cached { KEYS } else { 0 });
        let after = cache.hits();
        assert_eq!(after.keys - before.keys, KEYS);
        assert_eq!(
            [after.top - before.top, after.submodels - before.submodels, after.entries - before.entries],
            hits
        );
    }
}

#[test]
fn budgets_between_take_round_trips_between() {
    let (tree, models) = index();
    let whole = whole(&models, &tree);
    let mut last = 4.0;
    for percent in [2, 5, 10, 30, 60, 90] {
        let cache = Cache::new(16 + (whole - 16) * percent / 100);
        gets(&cache, &tree, &models);
        let round_trips = gets(&cache, &tree, &models);
        assert!(round_trips < last, "{round_trips} of {percent}%, before {last}");
        last = round_trips;
    }
    assert!(last < 2.5, "{last}");
}

#[test]
fn submodels_of_hot_keys_stay() {
    let (_, models) = index();
    // Room for ten of a hundred sub-models; every other key is one of a few.
    let cache = Cache::new(16 + 14 * 10);
    let hot: Vec<u64> = (0..4).map(mix).collect();
    let mut hits = 0;
    for round in 0..5000 {
        follow(&cache, &models, mix(round));
        let before = cache.hits().submodels;
        follow(&cache, &models, hot[round as usize % 4]);
        hits += cache.hits().submodels - before;
    }
    assert!(hits > 4500, "{hits}");
}

#[test]
fn entries_after_the_last_leaf_cost_nothing() {
    let tree = Tree::of(0..100);
    let models = Models::of(&tree, 1);
    let cache = Cache::new(1 << 20);
    for key in [5000, u64::MAX, 99, 98, 5000] {
        let (leaves, _) = follow(&cache, &models, key);
        let entries = leaves.unwrap().entries;
        assert_eq!(entries.last().map(|(_, entry)| entry.number()), Some(tree.leaf(key).number));
        assert_eq!(entries.len(), 1);
    }
    (0..100).for_each(|key| drop(follow(&cache, &models, key)));
    // At most twelve leaves, and one position far after them.
    assert!(cache.bytes() <= 16 + 14 + 8 * (tree.leaves.len() as u64 + 1), "{}", cache.bytes());
}

#[test]
fn scan_learns_the_following_leaves_up_to_the_end_of_the_table() {
    let (tree, models) = index();
    let cache = Cache::new(u64::MAX);
    let numbers: Vec<u32> = tree.leaves.values().map(|leaf| leaf.number).collect();
    for record in 0..1000 {
        let (key, more) = (mix(record), record as u32 % 30);
        let mut route = cache.route_scan(models.view, key, (0, more));
        let mut round_trips = 0;
        let leaves = loop {
            match route.step() {
                RouteStep::Leaves(leaves) => break leaves,
                step => route.absorb(&models.read(&step).unwrap()).unwrap(),
            }
            round_trips += 1;
        };
        assert!(round_trips <= 3);
        let found: Vec<u32> = leaves.entries.iter().map(|(_, entry)| entry.number()).collect();
        let at = numbers.iter().position(|number| *number == found[0]).unwrap();
        assert_eq!(found, numbers[at..at + found.len()]);
        let own = found.iter().position(|number| *number == tree.leaf(key).number).unwrap();
        // The table ends earlier, or all requested leaves are there.
        let last = tree.leaf(models.interval(leaves.submodel()).1).number;
        assert!(found.len() - own > more as usize || found.last() == Some(&last));
    }
    assert!(cache.bytes() <= whole(&models, &tree));
}

#[test]
fn another_generation_forgets_everything() {
    let (tree, mut models) = index();
    let cache = Cache::new(u64::MAX);
    gets(&cache, &tree, &models);
    let old = models.view;
    let mut stray = cache.route(old, 5);
    let RouteStep::Leaves(_) = stray.step() else { panic!("not cached") };
    // A route of the old generation is in progress when the new one begins.
    cache.forget_submodel(old, stray.submodel().unwrap());
    stray = cache.route(old, 5);
    models.view = View { generation: 2, submodels: old.submodels };
    let words = models.read(&stray.step()).unwrap();
    assert_eq!(follow(&cache, &models, mix(1)).1, 3);
    let bytes = cache.bytes();
    assert!(bytes <= 16 + 14 + 8 * u64::from(PREDICTED_MAX), "{bytes}");
    // The words that the old route reads are useful only to itself.
    stray.absorb(&words).unwrap();
    let words = models.read(&stray.step()).unwrap();
    stray.absorb(&words).unwrap();
    assert!(matches!(stray.step(), RouteStep::Leaves(_)));
    let stale =
        Models { view: old, top: models.top, subs: models.subs.clone(), memory: models.memory.clone() };
    assert_eq!(follow(&cache, &stale, mix(1)).1, 3);
    assert_eq!(cache.bytes(), bytes);
    assert_eq!(follow(&cache, &models, mix(1)).1, 0);
}

#[test]
fn a_submodel_that_was_trained_again_replaces_its_table() {
    let (mut tree, mut models) = index();
    let cache = Cache::new(u64::MAX);
    gets(&cache, &tree, &models);
    let full = cache.bytes();
    let key = mix(7);
    let stale = tree.leaf(key).number;
    // Split the key's leaf and retrain.
    let mut near = key;
    while tree.leaf(key).number == stale && tree.leaf(near).incarnation == 0 {
        near += 1;
        tree.insert(near);
    }
    let submodel = models.retrain(&tree, key);
    // The cache is unaware of that and returns what it has.
    let (leaves, taken) = follow(&cache, &models, key);
    assert_eq!(taken, 0);
    assert!(leaves.unwrap().entries.iter().any(|(_, entry)| entry.number() == stale));
    // With the reply to a call it gets the model; the entries are read again.
    cache.learn_submodel(models.view, submodel, models.subs[&submodel]);
    assert!(cache.bytes() < full);
    let (leaves, taken) = follow(&cache, &models, key);
    assert_eq!((taken, leaves.unwrap().submodel()), (1, submodel));
    // The same model again changes nothing.
    cache.learn_submodel(models.view, submodel, models.subs[&submodel]);
    assert_eq!(follow(&cache, &models, key).1, 0);
    cache.forget_submodel(models.view, submodel);
    assert_eq!(follow(&cache, &models, key).1, 2);
}

#[test]
fn an_entry_takes_the_incarnation_that_was_seen_in_its_leaf() {
    let (_, models) = index();
    let cache = Cache::new(u64::MAX);
    let key = mix(11);
    follow(&cache, &models, key);
    let find = || follow(&cache, &models, key).0.unwrap();
    let leaves = find();
    let (position, entry) = leaves.entries[0];
    let seen = Entry::new(entry.number(), entry.incarnation() + 2, 9);
    cache.renew_entry(models.view, &leaves, position, seen);
    assert_eq!(find().entries[0], (position, seen));
    // An entry of another leaf or of another table is ignored.
    cache.renew_entry(models.view, &leaves, position, Entry::new(entry.number() ^ 1, 0, 0));
    let other = models.subs.values().find(|model| model.table() != models.subs[&leaves.submodel()].table());
    cache.learn_submodel(models.view, leaves.submodel(), *other.unwrap());
    cache.learn_submodel(models.view, leaves.submodel(), models.subs[&leaves.submodel()]);
    cache.renew_entry(models.view, &leaves, position, seen);
    assert_eq!(find().entries[0], (position, entry));
}

#[test]
fn a_model_that_predicts_nothing_leads_to_a_call() {
    let (_, mut models) = index();
    let key = mix(3);
    let submodel = models.top.predict(key, models.view.submodels);
    models.subs.insert(submodel, SubModel::NONE);
    let cache = Cache::new(u64::MAX);
    assert_eq!(follow(&cache, &models, key), (None, 2));
    assert_eq!(follow(&cache, &models, key), (None, 0));
}

#[test]
fn words_without_a_model_or_too_few_are_refused() {
    let (_, models) = index();
    let cache = Cache::new(u64::MAX);
    let mut route = cache.route(models.view, 1 << 63);
    assert_eq!(route.absorb(&[1]), Err(NoModel));
    assert_eq!(route.absorb(&[1, u64::MAX]), Err(NoModel));
    route.absorb(&models.top.words()).unwrap();
    assert_eq!(route.absorb(&[0, 0]), Err(NoModel));
    let words = models.read(&route.step()).unwrap();
    assert_eq!(route.absorb(&words[..1]), Err(NoModel));
    route.absorb(&words).unwrap();
    assert_eq!(route.absorb(&[]), Err(NoModel));
    let words = models.read(&route.step()).unwrap();
    route.absorb(&words).unwrap();
    assert_eq!(route.absorb(&words), Err(NoModel));
    assert_eq!(cache.hits(), Hits { keys: 1, ..Hits::default() });
}

proptest! {
    #[test]
    fn any_words_end_in_leaves_or_a_call(
        seed: u64,
        budget in 0_u64..500,
        keys in proptest::collection::vec(any::<u64>(), 1..40),
        submodels: u32,
    ) {
        let cache = Cache::new(budget);
        let view = View { generation: 1, submodels };
        for (n, &key) in (0..).zip(&keys) {
            let mut route = cache.route(view, key);
            let mut dice = mix(seed ^ n);
            for _ in 0..40 {
                dice = mix(dice);
                let words = match route.step() {
                    RouteStep::Top => vec![dice, mix(dice) & 0x7fff_ffff_7fff_ffff],
                    RouteStep::SubModel(submodel) => {
                        prop_assert!(submodel < submodels.max(1));
                        vec![dice, mix(dice)]
                    }
                    RouteStep::Entries(table, positions) => {
                        prop_assert!(*positions.end() < table.entries());
                        let count = positions.count() as u64;
                        prop_assert!(count <= u64::from(PREDICTED_MAX));
                        (0..count).map(|at| mix(dice ^ at)).collect()
                    }
                    RouteStep::Leaves(leaves) => {
                        prop_assert!((1..=PREDICTED_MAX as usize).contains(&leaves.entries.len()));
                        break;
                    }
                    RouteStep::Call => break,
                    step @ (RouteStep::Inner(_) | RouteStep::Children(_)) => panic!("models have no {step:?}"),
                };
                let _ = route.absorb(&words);
            }
            prop_assert!(cache.bytes() <= budget);
        }
    }

    #[test]
    fn no_budget_is_exceeded_and_nothing_found_is_wrong(
        budget in 0_u64..4000,
        steps in proptest::collection::vec((0_u8..8, 0_u64..400), 1..300),
    ) {
        let tree = random(1000);
        let mut models = Models::of(&tree, 20);
        let cache = Cache::new(budget);
        for (kind, record) in steps {
            let key = mix(record);
            let submodel = models.top.predict(key, 20);
            match kind {
                0 => cache.forget_submodel(models.view, submodel),
                1 => models.view.generation += record / 350,
                2 => cache.learn_submodel(models.view, submodel, models.subs[&submodel]),
                _ => {
                    let (leaves, _) = follow(&cache, &models, key);
                    let number = tree.leaf(key).number;
                    prop_assert!(leaves.unwrap().entries.iter().any(|(_, entry)| entry.number() == number));
                }
            }
            prop_assert!(cache.bytes() <= budget, "{} of {budget}", cache.bytes());
        }
        // Everything charged is present: another generation releases all of it.
        let view = View { generation: u64::MAX, submodels: 20 };
        drop(cache.route(view, 0));
        prop_assert_eq!(cache.bytes(), 0);
    }
}

#[test]
fn threads_share_a_cache() {
    let (tree, models) = index();
    for budget in [100, 3000, whole(&models, &tree)] {
        let cache = Cache::new(budget);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (cache, tree, models) = (&cache, &tree, &models);
                scope.spawn(move || {
                    for round in 0..20_000 {
                        let key = mix(mix(round * 4 + thread) % KEYS);
                        if round % 100 == 0 {
                            cache
                                .forget_submodel(models.view, models.top.predict(key, models.view.submodels));
                        }
                        let (leaves, _) = follow(cache, models, key);
                        let number = tree.leaf(key).number;
                        assert!(leaves.unwrap().entries.iter().any(|(_, entry)| entry.number() == number));
                        assert!(cache.bytes() <= budget);
                    }
                });
            }
        });
        drop(cache.route(View { generation: 2, submodels: 1 }, 0));
        assert_eq!(cache.bytes(), 0);
    }
}
