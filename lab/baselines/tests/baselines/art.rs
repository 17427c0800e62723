//! ART, in both layouts and with locks for updates, under the tests that every index must pass.

use crate::common::Tested;
use darter_baselines::{Art, ArtOptions, HoclOptions};
use darter_fabric::{Fabric, OpKind, block_on};
use darter_index::{Condition, OrderedIndex};
use darter_pool::{Pool, PoolOptions};
use darter_sim::{EventKind, Executor, Sim, WordOrder};

struct Published;

impl Tested for Published {
    type Index<F: Fabric> = Art<F>;
}

struct Hashed;

impl Tested for Hashed {
    type Index<F: Fabric> = Art<F>;

    fn options<F: Fabric>() -> ArtOptions {
        ArtOptions { hashed: true, ..ArtOptions::default() }
    }
}

struct Locked;

impl Tested for Locked {
    type Index<F: Fabric> = Art<F>;

    fn options<F: Fabric>() -> ArtOptions {
        ArtOptions { locked_updates: true, hocl: HoclOptions::spin(), ..ArtOptions::default() }
    }
}

mod published {
    use super::Published;

    crate::common::index_tests!(Published);
}

mod hashed {
    use super::Hashed;

    crate::common::index_tests!(Hashed);
}

mod locked {
    use super::Locked;

    crate::common::index_tests!(Locked);
}

/// A client reads the root word but receives the reply only after the root was replaced, the epoch
/// advanced, and another client read the word again: operations of the new epoch do not use the
/// first client's result.
#[test]
fn a_root_read_late_is_not_used_by_later_epochs() {
    let sim = Sim::new(1, 16 << 20);
    let options = PoolOptions { block_bytes: Some(256 << 10), ..PoolOptions::default() };
    let pool = block_on(Pool::create(sim.clone(), &options)).unwrap();
    let (mut late, mut writer) = (pool.client().unwrap(), pool.client().unwrap());
    let index = block_on(Art::open_or_create(&mut writer, ArtOptions::default())).unwrap();
    // The index caches the root from an earlier epoch. Epochs advance if garbage is waiting; the
    // pin keeps the global epoch at this process's epoch.
    let mut pinned = pool.client().unwrap();
    let pin = block_on(pinned.pin(OpKind::Get)).unwrap();
    let opened_at = pool.epoch();
    for _ in 0..100 {
        if pool.epoch() == opened_at {
            block_on(index.put(&mut writer, b"a", b"value", Condition::Always)).unwrap();
            block_on(pool.maintain(&mut writer)).unwrap();
        }
    }
    let epoch = pool.epoch();

    let mut executor = Executor::new(&sim);
    executor.spawn(0, async {
        assert_eq!(index.get(&mut late, b"key").await.unwrap(), None);
    });
    let mut events = Vec::new();
    let mut step = |is_wanted: fn(EventKind) -> bool| {
        executor.events(&mut events);
        let event = *events.iter().find(|event| is_wanted(event.kind)).unwrap();
        executor.perform(event, u32::MAX, WordOrder::Ascending);
    };
    step(|kind| matches!(kind, EventKind::Run));
    step(|kind| matches!(kind, EventKind::Execute { .. }));
    // The fifth child replaces the root, which is retired in this epoch.
    for key in [b"a", b"b", b"c", b"d", b"e"] {
        let put = index.put(&mut writer, key, b"value", Condition::Always);
        sim.run_alone(1000, put).unwrap().unwrap();
    }
    drop(pin);
    for _ in 0..100 {
        if pool.epoch() == epoch {
            sim.run_alone(1000, pool.maintain(&mut writer)).unwrap().unwrap();
        }
    }
    let moved_to = pool.epoch();
    let early = sim.run_alone(1000, index.get(&mut writer, b"a"));
    step(|kind| matches!(kind, EventKind::Complete));
    let later = sim.run_alone(1000, index.get(&mut writer, b"a"));
    // The rest is closed without a scheduler.
    sim.schedule(false);
    assert!(opened_at < epoch && moved_to == epoch + 1);
    assert_eq!(early.unwrap().unwrap(), Some(b"value".to_vec()));
    assert_eq!(later.unwrap().unwrap(), Some(b"value".to_vec()));
    assert_eq!(sim.misuse(), None);
}
