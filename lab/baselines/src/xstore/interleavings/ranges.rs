//! Ranges that give their upper half to another node's server, against readers that know them as
//! they were, scans under way, and a server that dies or is cut off.

use super::models::emptied::scan_around;
use super::models::{BY_MODELS, BY_MODELS_FAT, Race, race_in};
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

/// The server dies at words that it writes while it gives leaves away; another one goes on, and dies
/// in its turn at words that it writes.
#[test]
fn giving_leaves_survives_its_server() {
    for (options, step) in [(SPREAD, 1), (SPREAD_FAT, 3), (SPREAD_CALLS, 2)] {
        for order in [WordOrder::Ascending, WordOrder::Descending] {
            let mut given = 0;
            for written in (0..).step_by(step) {
                let what = format!("{order:?} after {written} words");
                let (mut world, mut model, mut reader) = world(options);
                let (index, mut client) = (world.index.clone(), world.pool.client().unwrap());
                let call = async {
                    let _ = index.spread(&mut client).await;
                };
                let was_killed = world.kill_after(written, order, call);
                if was_killed {
                    world.serve();
                    let call = async {
                        let _ = index.maintain(&mut client).await;
                    };
                    if world.kill_after(written * 7 % 30, order, call) {
                        world.serve();
                    }
                }
                change(&mut world, &mut model, &mut reader, &what);
                given += u64::from(reader.0.range_nodes().len() > 1);
                drop((reader, client));
                world.assert_sound(&model, &what);
                world.train();
                world.assert_sound(&model, &what);
                if !was_killed {
                    assert!(written > 60 && given > 3, "only {written} words, {given} times given");
                    break;
                }
            }
        }
    }
}

/// The server that has got leaves dies at words that it writes: when it begins, trains, and gives
/// half of them back. Another one takes its place, and dies in its turn.
#[test]
fn leaves_that_were_given_survive_their_server() {
    for (options, step) in [(SPREAD, 2), (SPREAD_FAT, 5), (SPREAD_CALLS, 3)] {
        for order in [WordOrder::Ascending, WordOrder::Descending] {
            let mut given = 0;
            for written in (0..).step_by(step) {
                let what = format!("{order:?} after {written} words");
                let (mut world, mut model, mut reader) = world(options);
                assert_eq!(block_on(world.index.spread(&mut world.client)).unwrap(), 1, "{what}");
                let (index, mut client) = (world.index.clone(), world.pool.client().unwrap());
                let call = async {
                    if index.maintain(&mut client).await.is_ok() {
                        let _ = index.spread(&mut client).await;
                    }
                };
                let was_killed = world.kill_process_after(world.last_other, written, order, call);
                if was_killed {
                    world.serve_at(1);
                    let call = async {
                        let _ = index.maintain(&mut client).await;
                    };
                    if world.kill_process_after(world.last_other, written * 7 % 30, order, call) {
                        world.serve_at(1);
                    }
                }
                change(&mut world, &mut model, &mut reader, &what);
                given += u64::from(reader.0.range_nodes().ends_with(&[1, 0]));
                drop((reader, client));
                world.assert_sound(&model, &what);
                world.train();
                world.assert_sound(&model, &what);
                if !was_killed {
                    assert!(written > 60 && given > 3, "only {written} words, {given} times given back");
                    break;
                }
            }
        }
    }
}

/// The server loses its memory after each word that it writes while it gives leaves away, does not
/// know what has become of its verbs, and goes on when it has it again.
#[test]
fn giving_leaves_survives_lost_replies() {
    for (options, step) in [(SPREAD, 3), (SPREAD_FAT, 7)] {
        for written in (0_u32..).step_by(step) {
            let what = format!("cut off after {written} words");
            let (mut world, mut model, mut reader) = world(options);
            let (index, mut client) = (world.index.clone(), world.pool.client().unwrap());
            let server = world.sim.process(world.process);
            let mut executor = Executor::new(&world.sim);
            executor.spawn(0, async {
                let _ = index.spread(&mut client).await;
            });
            let (mut events, mut left, mut was_cut) = (Vec::new(), written, false);
            loop {
                executor.events(&mut events);
                let Some(&event) = events.first() else { break };
                let is_write = matches!(event.kind, EventKind::Execute { access, .. } if access.writes);
                executor.perform(event, 1, WordOrder::Ascending);
                if is_write && executor.process_of(event.task) == world.process && !was_cut {
                    was_cut = left == 0;
                    left = left.saturating_sub(1);
                    if was_cut {
                        (0..2).for_each(|node| server.cut(node));
                    }
                }
            }
            drop(executor);
            world.sim.schedule(false);
            (0..2).for_each(|node| server.heal(node));
            change(&mut world, &mut model, &mut reader, &what);
            world.train();
            change(&mut world, &mut model, &mut reader, &what);
            drop((reader, client));
            if !was_cut {
                world.assert_sound(&model, &what);
                assert!(written > 60, "only {written} words");
                break;
            }
        }
    }
}

#[test]
fn readers_race_leaves_that_are_given() {
    let (mut kills, mut given) = (0, 0);
    for (options, seeds) in [(SPREAD, 150), (SPREAD_FAT, 75), (SPREAD_CALLS, 60)] {
        for seed in 0..seeds {
            let (world, model, reader) = world(options);
            drop(reader);
            let at = (seed * 5 % KEYS) * 16;
            let hot = (0..6).map(|nth| at + nth * 2).collect();
            let kill_at = if seed % 3 == 0 { seed * 37 % 900 } else { u64::MAX };
            let caches = match options.cache_bytes {
                0 => [0, 0],
                _ => [u64::MAX, [16, 40, 0][seed as usize / 3 % 3]],
            };
            let race = race_in(&world, Race::of(hot, &model, seed, kill_at), caches, KEYS);
            kills += u64::from(race.was_killed.get());
            given += race.given.get();
        }
    }
    assert!(kills > 30 && given > 100, "{kills} {given}");
}

/// A scan meets each key once, wherever it is when the keys before it or behind it go.
#[test]
fn a_scan_goes_on_behind_what_was_given() {
    for (options, cache_bytes) in [(SPREAD, u64::MAX), (SPREAD_FAT, u64::MAX), (SPREAD, 0), (SPREAD_FAT, 0)] {
        for reverse in [false, true] {
            for alone in 0.. {
                let (world, model, mut reader) = world(options);
                if cache_bytes == 0 {
                    reader = world.reader(0);
                }
                let (index, mut writer) = (world.index.clone(), world.pool.client().unwrap());
                let spread = async { assert_eq!(index.spread(&mut writer).await.unwrap(), 1) };
                let (mut found, was_over) = scan_around(&world, spread, &mut reader, reverse, alone);
                if reverse {
                    found.reverse();
                }
                assert!(found.into_iter().eq(model), "{options:?}, {reverse}, after {alone} steps");
                if was_over {
                    assert!(alone > 4, "only {alone} steps");
                    break;
                }
            }
        }
    }
}
