//! Readers that the image of the inner nodes leads, against the same: splits behind the image, other
//! images, and a server that dies.

use super::*;

/// All nodes are cached, or those above the lowest.
const BY_TREE: XStoreOptions = XStoreOptions { cache_bytes: 0, tree_from: Some(1), ..INLINE };
const BY_LEVELS: XStoreOptions = XStoreOptions { tree_from: Some(2), ..BY_TREE };
const BY_TREE_FAT: XStoreOptions = XStoreOptions { value_words: 0, ..BY_TREE };

#[test]
fn readers_by_the_tree_race_a_server() {
    for (options, seeds) in [(BY_TREE, 120), (BY_LEVELS, 60), (BY_TREE_FAT, 60)] {
        for seed in 0..seeds {
            let race = race_by_models(options, seed, 15, u64::MAX);
            assert_eq!(race.routed.get(), 0, "something was read by models");
        }
    }
}

/// Another generation, with an image of two levels over 17 leaves, begins meanwhile.
#[test]
fn readers_by_the_tree_race_another_image() {
    for (options, seeds) in [(BY_TREE, 60), (BY_LEVELS, 60)] {
        for seed in 0..seeds {
            race_by_models(options, seed, 199, u64::MAX);
        }
    }
}

#[test]
fn readers_by_the_tree_race_a_server_that_dies() {
    let mut kills = 0;
    for (options, seeds) in [(BY_TREE, 80), (BY_TREE_FAT, 40)] {
        for seed in 0..seeds {
            let race = race_by_models(options, seed, 15, seed * 37 % 600);
            kills += u64::from(race.was_killed.get());
        }
    }
    assert!(kills > 70, "{kills}");
}

/// The server dies at words of an image that it writes; another one goes on, and nothing of the image
/// is lost.
#[test]
fn writing_an_image_survives_its_server() {
    for (options, keys) in [(BY_TREE, 30), (BY_TREE, 199), (BY_TREE_FAT, 199)] {
        for written in (0..).step_by(11) {
            let what = format!("{keys} keys, after {written} words");
            let (mut world, model) = loaded(options, keys);
            let mut reader = world.reader(0);
            let (index, mut client) = (world.index.clone(), world.pool.client().unwrap());
            let call = async {
                let _ = index.maintain(&mut client).await;
            };
            let was_killed = world.kill_after(written, WordOrder::Ascending, call);
            if was_killed {
                world.serve();
            }
            World::assert_read(&mut reader, &model, &what);
            world.train();
            World::assert_read(&mut reader, &model, &what);
            drop((reader, client));
            world.assert_sound(&model, &what);
            if !was_killed {
                break;
            }
        }
    }
}
