//! Outdated models, wrong models, models of another generation; and emptied leaves.

use super::super::leaf::address;
use super::super::model::{Entry, SubModel, TableRef};
use super::super::root::{ModelsWord, ROOT_WORDS, Root, SLAB_HEAD_BYTES, parse_slab};
use super::*;
use darter_fabric::GlobalAddr;

/// A world whose server has trained over this many keys.
fn trained(options: XStoreOptions, keys: u64) -> (World, Model) {
    let (mut world, model) = loaded(options, keys);
    world.train();
    (world, model)
}

/// Leaves of an index that is loaded again are freed and no longer read.
#[test]
fn another_generation_is_read_in_the_next_epoch() {
    for options in [BY_MODELS, BY_MODELS_FAT] {
        let (mut world, mut model) = trained(options, 100);
        let mut reader = world.reader(u64::MAX);
        World::assert_read(&mut reader, &model, "at first");
        for key in model.keys() {
            assert!(block_on(world.index.delete(&mut world.client, key)).unwrap());
        }
        for value in model.values_mut() {
            *value = b"again".to_vec();
        }
        let pairs = model.clone().into_iter();
        block_on(world.index.bulk_load(&mut world.client, pairs)).unwrap();
        for _ in 0..20 {
            block_on(world.pool.maintain(&mut world.client)).unwrap();
            world.train();
        }
        World::assert_read(&mut reader, &model, "later");
        assert_eq!(world.sim.misuse(), None);
        drop(reader);
        // From now on this process knows which of its objects the server has freed.
        block_on(world.pool.settle(&mut world.client)).unwrap();
        world.assert_sound(&model, "in the end");
    }
}

/// A put whose cached leaf has split since goes to the leaf of its key.
#[test]
fn put_with_a_hint_of_a_split_leaf_goes_to_the_leaf_of_its_key() {
    let (mut world, mut model) = trained(BY_MODELS, 30);
    let (index, mut client) = world.reader(u64::MAX);
    for key in 0..500_u64 {
        block_on(index.get(&mut client, &key.to_be_bytes())).unwrap();
    }
    for number in 0..30 {
        world.put(&mut model, 41 + number * 2, b"more");
    }
    let ranges = index.shared.ranges();
    let hinted = (0..500_u64).filter(|key| ranges.all[0].leaf_hint(&key.to_be_bytes()) != 0).count();
    assert!(hinted > 200, "only {hinted} puts have hints");
    for key in 0..500_u64 {
        let value = key.to_le_bytes();
        block_on(index.put(&mut client, &key.to_be_bytes(), &value, Condition::Always)).unwrap();
        model.insert(key.to_be_bytes().to_vec(), value.to_vec());
    }
    drop(client);
    world.assert_sound(&model, "after hints");
}

/// The root, the addresses of all sub-models' words, and those of all words of tables.
fn words_of_models(world: &mut World) -> (GlobalAddr, Vec<GlobalAddr>, Vec<GlobalAddr>) {
    let descriptor = world.index.shared.descriptor;
    block_on(async {
        let client = &mut world.client;
        let [word] = client.read_words(descriptor.models()).await.unwrap();
        let root_at = address(descriptor.node, ModelsWord::from_word(word).root);
        let root = Root::parse(&client.read(root_at, ROOT_WORDS).await.unwrap()).unwrap();
        let submodels = (0..root.submodels).filter_map(|submodel| root.place(submodel)).collect();
        let (mut entries, mut slab) = (Vec::new(), root.slabs);
        while !slab.is_null() {
            let (bytes, next) = parse_slab(&client.read(slab, 2).await.unwrap()).unwrap();
            entries.extend((SLAB_HEAD_BYTES..bytes).step_by(8).map(|at| slab.plus(at)));
            slab = next;
        }
        (root_at, submodels, entries)
    })
}

/// Random words as models, or words of other leaves and tables, only cost speed.
#[test]
fn wrong_models_cost_speed_alone() {
    for seed in 0..60 {
        let options = if seed % 3 == 0 { BY_MODELS_FAT } else { BY_MODELS };
        let (mut world, model) = trained(options, 450);
        let (root, submodels, entries) = words_of_models(&mut world);
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let mut writes: Vec<(GlobalAddr, Vec<u64>)> = Vec::new();
        let table = |at: GlobalAddr, room| {
            TableRef::new(at.offset() & !63, room).map(|table| SubModel::NONE.with_table(table))
        };
        match seed % 6 {
            // Any bytes.
            0 => writes.extend(entries.iter().map(|&at| (at, vec![dice.random()]))),
            1 => writes.extend(submodels.iter().map(|&at| (at, vec![dice.random(), dice.random()]))),
            // Numbers of other leaves, in incarnations that they have had or not.
            2 | 3 => {
                let all = block_on(async {
                    let mut all = Vec::new();
                    for &at in &entries {
                        let [word] = world.client.read_words(at).await.unwrap();
                        all.push(Entry::from_word(word));
                    }
                    all
                });
                let mut other = || {
                    let entry = all[dice.random_range(0..all.len())];
                    let count = dice.random_range(0..20);
                    Entry::new(entry.number(), entry.incarnation() + 2 * (seed as u32 % 2), count).word()
                };
                writes.extend(entries.iter().map(|&at| (at, vec![other()])));
            }
            // Tables of other sub-models, or invalid ones.
            4 => writes.extend(submodels.iter().filter_map(|&at| {
                let other = entries[dice.random_range(0..entries.len())];
                Some((at, table(other, 8 << dice.random_range(0..4))?.words().to_vec()))
            })),
            // An invalid root, with another top model or other segments.
            _ => {
                let at = [0, 1, 2, 4][dice.random_range(0..4)];
                writes.push((root.plus(at * 8), vec![dice.random()]));
            }
        }
        block_on(async {
            for (addr, words) in &writes {
                world.client.post(|batch| batch.write(*addr, words)).await.unwrap();
            }
        });
        for cache_bytes in [u64::MAX, 16, 1] {
            let mut reader = world.reader(cache_bytes);
            World::assert_read(&mut reader, &model, &format!("seed {seed}"));
        }
    }
}

/// Number of keys of the worlds here, multiples of 16 put in order: leaves have eight of them.
const GAPING_KEYS: u64 = 44;
/// The keys of three leaves in the middle.
const GAP: std::ops::Range<u64> = 8..32;

/// A world with trained models, whose leaves of the gap are then emptied, and a reader that knows
/// all leaves.
fn gaping(options: XStoreOptions) -> (World, Model, (XStore<Sim>, Client<Sim>)) {
    let (mut world, mut model) = (World::new(options), Model::new());
    for number in 0..GAPING_KEYS {
        world.put(&mut model, number * 16, &number.to_le_bytes());
    }
    world.train();
    let mut reader = world.reader(u64::MAX);
    World::assert_read(&mut reader, &model, "at first");
    for key in GAP.map(|number| (number * 16).to_be_bytes()) {
        assert!(block_on(world.index.delete(&mut world.client, &key)).unwrap());
        model.remove(&key[..]);
    }
    (world, model, reader)
}

/// Returns the number of leaves of the index.
fn leaves(world: &mut World) -> u64 {
    let report = block_on(world.index.check(&mut world.client)).unwrap();
    assert_eq!(report.violations, Vec::<String>::new());
    report.stats.nodes.iter().find(|nodes| nodes.name == "leaf").unwrap().count
}

/// Puts keys into the gap; a reader that knew the gap before must find them.
fn fill(world: &mut World, model: &mut Model, reader: &mut (XStore<Sim>, Client<Sim>), what: &str) {
    World::assert_read(reader, model, what);
    for number in GAP.step_by(3) {
        world.put(model, number * 16 + 5, b"again");
    }
    World::assert_read(reader, model, what);
}

#[test]
fn upkeep_takes_emptied_leaves_out() {
    for options in [BY_MODELS, BY_MODELS_FAT] {
        let (mut world, mut model, mut reader) = gaping(options);
        let before = leaves(&mut world);
        for _ in 0..8 {
            block_on(world.pool.maintain(&mut world.client)).unwrap();
            world.train();
        }
        assert_eq!(leaves(&mut world), before - 3);
        fill(&mut world, &mut model, &mut reader, "filled");
        drop(reader);
        world.assert_sound(&model, "in the end");
    }
}

/// After all keys are deleted, the index has the size it had when created, plus the models of one
/// leaf.
#[test]
fn an_emptied_index_gives_its_memory_back() {
    for options in [INLINE, FAT] {
        let (mut world, model) = loaded(options, 300);
        for key in model.keys() {
            assert!(block_on(world.index.delete(&mut world.client, key)).unwrap());
        }
        for _ in 0..6 {
            world.train();
        }
        assert_eq!(leaves(&mut world), 1);
        world.assert_sound(&Model::new(), "in the end");
    }
}
