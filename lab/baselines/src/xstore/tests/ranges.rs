//! Ranges that give their upper half to another node's server, and readers that know them as they
//! were.

use super::*;
use std::ops::Bound as At;

const SPREAD: XStoreOptions = XStoreOptions { nodes: 0, ..BY_MODELS };
const SPREAD_FAT: XStoreOptions = XStoreOptions { nodes: 0, ..BY_MODELS_FAT };
const SPREAD_CALLS: XStoreOptions = XStoreOptions { nodes: 0, ..INLINE };

/// Keys of the worlds here, in multiples of 16.
const KEYS: u64 = 44;

/// A world on two nodes whose server has trained, and a reader that knows all leaves.
fn world(options: XStoreOptions) -> (World, Model, (XStore<Sim>, Client<Sim>)) {
    let (mut world, model) = loaded_on(2, options, KEYS);
    world.train();
    let mut reader = world.reader(options.cache_bytes);
    World::assert_read(&mut reader, &model, "at first");
    (world, model, reader)
}

/// Changes keys all over the index, as a reader that has known them before must find them.
fn change(world: &mut World, model: &mut Model, reader: &mut (XStore<Sim>, Client<Sim>), what: &str) {
    World::assert_read(reader, model, what);
    for number in (0..KEYS).step_by(7) {
        world.put(model, number * 16, b"again");
        world.put(model, number * 16 + 5, b"new");
        let gone = (number * 16 + 16).to_be_bytes();
        let was_there = block_on(world.index.delete(&mut world.client, &gone)).unwrap();
        assert_eq!(was_there, model.remove(&gone[..]).is_some(), "{what}");
    }
    World::assert_read(reader, model, what);
}

#[test]
fn keys_go_to_another_node() {
    for options in [SPREAD, SPREAD_FAT, SPREAD_CALLS] {
        let (mut world, mut model, mut reader) = world(options);
        for turn in 1..5 {
            let ranges = world.index.range_nodes().len() as u64;
            let given = block_on(world.index.spread(&mut world.client)).unwrap();
            // In the end each range is one leaf.
            assert!(given > 0 || turn > 2, "turn {turn}");
            world.train();
            change(&mut world, &mut model, &mut reader, "given");
            assert_eq!(world.index.range_nodes().len() as u64, ranges + given, "turn {turn}");
            let mut fresh = world.reader(options.cache_bytes);
            World::assert_read(&mut fresh, &model, "opened anew");
            assert!(reader.0.range_nodes().contains(&1));
        }
        drop(reader);
        world.assert_sound(&model, "in the end");
    }
}

/// Where only one node may hold ranges, the keys stay.
#[test]
fn an_index_of_one_node_keeps_its_keys() {
    let (mut world, model) = loaded_on(2, INLINE, KEYS);
    assert_eq!(block_on(world.index.spread(&mut world.client)).unwrap(), 0);
    world.assert_sound(&model, "in the end");
}

/// Nothing is below all keys: the server of the first range says so, whatever it has given away.
#[test]
fn a_scan_below_all_keys_is_the_first_ranges() {
    for options in [SPREAD, SPREAD_FAT, SPREAD_CALLS] {
        let (mut world, _, mut reader) = world(options);
        for turn in 0..2 {
            let fresh = world.reader(0);
            for (index, client) in [&mut reader, &mut { fresh }] {
                for to in [At::Included(Vec::new()), At::Excluded(Vec::new())] {
                    for reverse in [true, false] {
                        let range = ScanRange { from: At::Unbounded, to: to.clone(), reverse };
                        let found = block_on(index.scan(client, &range, usize::MAX)).unwrap();
                        assert!(found.is_empty(), "{options:?}, turn {turn}, {range:?}: {found:?}");
                    }
                }
            }
            assert_eq!(block_on(world.index.spread(&mut world.client)).unwrap(), turn + 1);
        }
    }
}
