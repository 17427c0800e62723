//! Rare cases: no memory for models, and incarnations that wrap.

use super::super::root::ModelsWord;
use super::*;

/// Returns the word of the models.
fn models_word(world: &mut World) -> ModelsWord {
    let at = world.index.shared.descriptor.models();
    ModelsWord::from_word(block_on(world.client.read_words::<1>(at)).unwrap()[0])
}

/// Asserts that a new process's view reads present and absent keys; returns the keys routed by
/// models.
fn assert_read(world: &World, model: &Model, what: &str) -> u64 {
    let mut client = world.pool.client().unwrap();
    let index = block_on(XStore::open(&mut client, world.index.shared.options)).unwrap();
    for key in 0..model.len() as u64 * 16 + 40 {
        let key = key.to_be_bytes();
        let found = block_on(index.get(&mut client, &key)).unwrap();
        assert_eq!(found.as_ref(), model.get(&key[..]), "{what}: {key:?}");
    }
    let found = block_on(index.scan(&mut client, &ScanRange::all(), usize::MAX)).unwrap();
    assert!(found.into_iter().eq(model.clone()), "{what}");
    index.cache_hits().keys
}

/// Each allocation of training in turn fails, at first and after splits: the models stay as they
/// are, or there are none, until there is room again.
#[test]
fn training_without_room_costs_speed_alone() {
    for (options, keys, more) in [(BY_MODELS, 30, 0), (BY_MODELS, 450, 0), (BY_MODELS, 190, 60)] {
        let (mut refused, mut has_models) = (0, 0);
        loop {
            let what = format!("{keys} keys and {more} more, allocation {refused} refused");
            let (mut world, mut model) = loaded(options, keys);
            if more > 0 {
                block_on(world.index.maintain(&mut world.client)).unwrap();
                for number in 0..more {
                    world.put(&mut model, number * 16 + 1, b"more");
                }
            }
            let server = world.sim.process(world.process);
            server.refuse_allocation(Some(refused));
            block_on(world.index.maintain(&mut world.client)).unwrap();
            let was_refused = server.allocations() > refused;
            server.refuse_allocation(None);
            has_models += u64::from(models_word(&mut world).root != 0 && was_refused);
            assert_read(&world, &model, &what);
            block_on(world.index.maintain(&mut world.client)).unwrap();
            assert_ne!(models_word(&mut world).root, 0, "{what}: no models, though there is room");
            assert!(assert_read(&world, &model, &what) > 0, "{what}: nothing is read by models");
            world.assert_sound(&model, &what);
            if !was_refused {
                break;
            }
            refused += 1;
        }
        assert!(refused > 1, "{keys} keys: only {refused} allocations");
        assert!(more == 0 || has_models > 0, "models that stay as they are");
    }
}

/// A leaf whose incarnation is the last but one, known to readers, is changed: the incarnations
/// that they know become invalid.
#[test]
fn an_incarnation_that_wraps_ends_the_generation() {
    for options in [BY_MODELS, XStoreOptions { value_words: 0, ..BY_MODELS }] {
        let (mut world, mut model) = (World::new(options), Model::new());
        let descriptor = world.index.shared.descriptor;
        block_on(async {
            let client = &mut world.client;
            let first = client.read_words::<1>(descriptor.first()).await.unwrap()[0] as u32;
            let at = descriptor.leaf(first);
            let header = Header::from_word(client.read_words::<1>(at).await.unwrap()[0]);
            let last = Header { incarnation: super::super::record::INCARNATIONS - 2, ..header };
            client.post(|batch| batch.write(at, &[last.word()])).await.unwrap();
        });
        for number in 0..12_u64 {
            world.put(&mut model, number * 16, &number.to_le_bytes());
        }
        block_on(world.index.maintain(&mut world.client)).unwrap();
        assert!(assert_read(&world, &model, "before") > 0);
        let before = models_word(&mut world);
        assert!(block_on(world.index.delete(&mut world.client, &48_u64.to_be_bytes())).unwrap());
        model.remove(&48_u64.to_be_bytes()[..]);
        let after = models_word(&mut world);
        assert_eq!((after.generation, after.root), (before.generation + 1, 0));
        assert_read(&world, &model, "after");
        // It splits in its new incarnations.
        for number in 0..12_u64 {
            world.put(&mut model, number * 16 + 5, &number.to_le_bytes());
        }
        block_on(world.index.maintain(&mut world.client)).unwrap();
        assert!(assert_read(&world, &model, "after the split") > 0);
        world.assert_sound(&model, "in the end");
    }
}
