//! Leaves that are emptied and taken out, against readers that know them, and a server that dies or
//! is cut off.

use super::*;
use darter_index::KeyValue;
use std::collections::BTreeSet;

/// Keys of the worlds here, in multiples of 16, put in order: leaves have eight of them.
const KEYS: u64 = 44;
/// Those of three leaves in the middle.
const GAP: std::ops::Range<u64> = 8..32;

/// A world with trained models, whose leaves of the gap are emptied then; and a reader that knows
/// all leaves.
fn gaping(options: XStoreOptions) -> (World, Model, (XStore<Sim>, Client<Sim>)) {
    let (mut world, mut model) = (World::new(options), Model::new());
    for number in 0..KEYS {
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

/// Leaves of the index.
fn leaves(world: &mut World) -> u64 {
    let report = block_on(world.index.check(&mut world.client)).unwrap();
    assert_eq!(report.violations, Vec::<String>::new());
    report.stats.nodes.iter().find(|nodes| nodes.name == "leaf").unwrap().count
}

/// Puts keys into the gap, as a reader that has known it before must find them.
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

/// The server dies at words that it writes while it takes leaves out and trains; another one goes
/// on, and dies in its turn at words that it writes.
#[test]
fn taking_leaves_out_survives_its_server() {
    for (options, step) in [(BY_MODELS, 1), (BY_MODELS_FAT, 2)] {
        for order in [WordOrder::Ascending, WordOrder::Descending] {
            for written in (0..).step_by(step) {
                let what = format!("{order:?} after {written} words");
                let (mut world, mut model, mut reader) = gaping(options);
                let (index, mut client) = (world.index.clone(), world.pool.client().unwrap());
                let call = async {
                    let _ = index.maintain(&mut client).await;
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
                fill(&mut world, &mut model, &mut reader, &what);
                drop((reader, client));
                world.assert_sound(&model, &what);
                world.train();
                world.assert_sound(&model, &what);
                if !was_killed {
                    assert!(written > 20, "only {written} words");
                    break;
                }
            }
        }
    }
}

/// The server loses its memory after each word that it writes while it takes leaves out, does not
/// know what has become of its verbs, and goes on when it has it again.
#[test]
fn taking_leaves_out_survives_lost_replies() {
    for (options, step) in [(BY_MODELS, 1), (BY_MODELS_FAT, 2)] {
        for written in (0_u32..).step_by(step) {
            let what = format!("cut off after {written} words");
            let (mut world, mut model, mut reader) = gaping(options);
            let (index, mut client) = (world.index.clone(), world.pool.client().unwrap());
            let server = world.sim.process(world.process);
            let mut executor = Executor::new(&world.sim);
            executor.spawn(0, async {
                let _ = index.maintain(&mut client).await;
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
                        server.cut(0);
                    }
                }
            }
            drop(executor);
            world.sim.schedule(false);
            server.heal(0);
            fill(&mut world, &mut model, &mut reader, &what);
            for key in model.keys().cloned().collect::<Vec<_>>() {
                assert!(block_on(world.index.delete(&mut world.client, &key)).unwrap(), "{what}");
                model.remove(&key);
            }
            World::assert_read(&mut reader, &model, &what);
            for _ in 0..3 {
                world.train();
            }
            assert_eq!(leaves(&mut world), 1, "{what}");
            fill(&mut world, &mut model, &mut reader, &what);
            drop((reader, client));
            if !was_cut {
                world.assert_sound(&model, &what);
                assert!(written > 20, "only {written} words");
                break;
            }
        }
    }
}

#[test]
fn readers_race_leaves_that_go() {
    let mut kills = 0;
    for (options, seeds) in [(BY_MODELS, 120), (BY_MODELS_FAT, 60)] {
        for seed in 0..seeds {
            let (world, model, reader) = gaping(options);
            drop(reader);
            let hot = (0..6).map(|nth| (GAP.start + seed % 24) * 16 + nth * 2 + 1).collect();
            let kill_at = if seed % 3 == 0 { seed * 37 % 900 } else { u64::MAX };
            let caches = [u64::MAX, [16, 40, 0][seed as usize / 3 % 3]];
            let race = race_in(&world, Race::of(hot, &model, seed, kill_at), caches, KEYS);
            kills += u64::from(race.was_killed.get());
        }
    }
    assert!(kills > 30, "{kills}");
}

/// A scan whose steps are `alone` before something else is done, and go on behind it. Returns
/// what it has found, and whether it was over before.
pub(in super::super) fn scan_around(
    world: &World,
    other: impl Future<Output = ()>,
    reader: &mut (XStore<Sim>, Client<Sim>),
    reverse: bool,
    alone: u32,
) -> (Vec<KeyValue>, bool) {
    let World { sim, .. } = world;
    let found = Cell::new(None);
    let mut executor = Executor::new(sim);
    let scan = executor.spawn(0, async {
        let range = ScanRange { reverse, ..ScanRange::all() };
        found.set(Some(reader.0.scan(&mut reader.1, &range, usize::MAX).await.unwrap()));
    });
    let mut other = Some(other);
    let (mut events, mut held, mut has_other) = (Vec::new(), BTreeSet::from([scan]), false);
    let (mut steps, mut was_over) = (0, false);
    loop {
        executor.events(&mut events);
        if !has_other && steps == alone {
            // What goes on by now is the scan's.
            held.extend(events.iter().map(|event| event.task));
            was_over = executor.has_ended(scan);
            if let Some(other) = other.take() {
                executor.spawn(0, other);
                has_other = true;
            }
            continue;
        }
        steps += 1;
        let is_others = |event: &&Event| has_other && !held.contains(&event.task);
        match events.iter().find(is_others).or(events.first()) {
            Some(&event) => executor.perform(event, u32::MAX, WordOrder::Ascending),
            None if !has_other => steps = alone,
            None => break,
        }
    }
    assert!(executor.all_ended());
    drop(executor);
    sim.schedule(false);
    (found.into_inner().unwrap(), was_over)
}

/// A leaf that takes the place of its neighbour while a scan is between the two begins in front of
/// what the scan has passed, or ends behind it.
#[test]
fn a_scan_goes_on_behind_what_it_has_passed() {
    for (options, cache_bytes) in
        [(BY_MODELS, u64::MAX), (BY_MODELS_FAT, u64::MAX), (BY_MODELS, 0), (BY_MODELS_FAT, 0)]
    {
        for reverse in [false, true] {
            for alone in 0.. {
                let (world, model, mut reader) = gaping(options);
                if cache_bytes == 0 {
                    reader = world.reader(0);
                }
                let (index, mut writer) = (world.index.clone(), world.pool.client().unwrap());
                let maintain = async { index.maintain(&mut writer).await.unwrap() };
                let (mut found, was_over) = scan_around(&world, maintain, &mut reader, reverse, alone);
                if reverse {
                    found.reverse();
                }
                assert!(found.into_iter().eq(model), "{options:?}, {reverse}, after {alone} steps");
                if was_over {
                    assert!(alone > 10, "only {alone} steps");
                    break;
                }
            }
        }
    }
}

/// With all keys deleted, what the index takes is what it took when it was made, but for the models
/// of one leaf.
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
