//! Sherman with all its techniques, and FG with none, under the tests that every index must pass.

use crate::common::Tested;
use darter_baselines::{Sherman, ShermanOptions};
use darter_fabric::Fabric;

struct WithAll;

impl Tested for WithAll {
    type Index<F: Fabric> = Sherman<F>;
}

struct WithNone;

impl Tested for WithNone {
    type Index<F: Fabric> = Sherman<F>;

    fn options<F: Fabric>() -> ShermanOptions {
        ShermanOptions::fg()
    }
}

mod with_all {
    use super::WithAll;

    crate::common::index_tests!(WithAll);
}

mod with_none {
    use super::WithNone;

    crate::common::index_tests!(WithNone);
}

/// Records of one length, which the general tests cannot cover because their keys have any length.
mod records {
    use crate::common::{Bench, Model, Tested, memory};
    use crate::records::behaves_like_a_map;
    use darter_baselines::{Records, Sherman, ShermanOptions};
    use darter_fabric::decorate::{FailPlan, FailPoint};
    use darter_fabric::{Fabric, OpKind, block_on};
    use darter_index::{Condition, IndexError, OrderedIndex};
    use darter_pool::{Pool, PoolOptions};
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    const INLINE: Records = Records::Inline { key_bytes: 8, value_bytes: 8 };

    struct Inline;

    impl Tested for Inline {
        type Index<F: Fabric> = Sherman<F>;

        fn options<F: Fabric>() -> ShermanOptions {
            ShermanOptions::sherman().records(INLINE)
        }
    }

    struct InlineWithNone;

    impl Tested for InlineWithNone {
        type Index<F: Fabric> = Sherman<F>;

        fn options<F: Fabric>() -> ShermanOptions {
            ShermanOptions { redo_images: false, ..ShermanOptions::fg_plus() }.records(INLINE)
        }
    }

    struct FixedKeys;

    impl Tested for FixedKeys {
        type Index<F: Fabric> = Sherman<F>;

        fn options<F: Fabric>() -> ShermanOptions {
            ShermanOptions::sherman().records(Records::FixedKeys { key_bytes: 8 })
        }
    }

    #[test]
    fn each_form_behaves_like_a_map() {
        behaves_like_a_map::<Inline>();
        behaves_like_a_map::<InlineWithNone>();
        behaves_like_a_map::<FixedKeys>();
    }

    #[test]
    fn other_lengths_are_refused() {
        let mut bench = Bench::<Inline>::new(1);
        let mut put = |key: &[u8], value: &[u8]| {
            block_on(bench.index.put(&mut bench.client, key, value, Condition::Always))
                .unwrap_err()
                .to_string()
        };
        assert!(put(&[1; 7], &[1; 8]).starts_with("key of 7 bytes: this index holds keys of 8 bytes only"));
        assert!(
            put(&[1; 8], &[1; 9]).starts_with("value of 9 bytes: this index holds values of 8 bytes only")
        );
        let any = bench.index.clone();
        let error = block_on(any.get(&mut bench.client, b"")).unwrap_err();
        assert!(matches!(error, IndexError::WrongLength { what: "key", bytes: 0, expected: 8 }));
    }

    /// A put of an inline value fails at every verb: the old value or the new one is there, never a
    /// third one and never none.
    #[test]
    fn inline_values_survive_writes_cut_short() {
        let fabric = memory(32 << 20, 2);
        let plan: FailPlan = fabric.plan().clone();
        let mut bench = Bench::<Inline, _>::on(fabric, &PoolOptions::default());
        let mut model = Model::new();
        let mut failures = 0;
        for n in 0..300_u64 {
            let (key, value) = ((n % 120 * 7919).to_be_bytes().to_vec(), n.to_le_bytes().to_vec());
            for at in 0.. {
                plan.fail_once(FailPoint::Verb(at));
                let outcome = block_on(bench.index.put(&mut bench.client, &key, &value, Condition::Always));
                let failed = plan.has_failed();
                plan.heal();
                if outcome.is_ok() && !failed {
                    break;
                }
                failures += 1;
                let found = bench.get(&key);
                assert!(
                    found.as_ref() == model.get(&key) || found.as_ref() == Some(&value),
                    "key {n}: {found:?}"
                );
                if let Some(found) = found {
                    model.insert(key.clone(), found);
                }
            }
            model.insert(key, value);
        }
        assert!(failures > 1000, "only {failures} failures");
        bench.assert_holds(&model);
    }

    /// Costs of one operation on a million random keys, compared with the counts of the published
    /// code.
    #[test]
    #[ignore = "takes a minute; the figures are in lab/docs/sherman.md"]
    fn figures() {
        const KEYS: u64 = 1_000_000;
        let cases = [
            ("sherman, inline", ShermanOptions::sherman().records(INLINE)),
            (
                "the same, without redo images",
                ShermanOptions { redo_images: false, ..ShermanOptions::sherman() }.records(INLINE),
            ),
            (
                "sherman, 8-byte keys, pairs in blocks",
                ShermanOptions::sherman().records(Records::FixedKeys { key_bytes: 8 }),
            ),
            ("sherman, any records", ShermanOptions::sherman()),
            ("FG+, inline", ShermanOptions::fg_plus().records(INLINE)),
            ("FG, inline", ShermanOptions::fg().records(INLINE)),
        ];
        for (name, options) in cases {
            let cache_bytes = if options.cache_bytes == 0 { 0 } else { 10 << 20 };
            let options = ShermanOptions { cache_bytes, ..options };
            let fabric = memory(1 << 30, 1);
            let pool = block_on(Pool::create(fabric, &PoolOptions::default())).unwrap();
            let mut client = pool.client().unwrap();
            let index = block_on(Sherman::open_or_create(&mut client, options)).unwrap();
            let mut dice = Pcg64Mcg::seed_from_u64(1);
            let keys: Vec<[u8; 8]> = (0..KEYS).map(|_| dice.random::<u64>().to_be_bytes()).collect();
            for key in &keys {
                block_on(index.put(&mut client, key, key, Condition::Always)).unwrap();
            }
            let loaded = *darter_fabric::Endpoint::counters(client.endpoint()).unwrap();
            for key in keys.iter().take(100_000) {
                block_on(index.get(&mut client, key)).unwrap().unwrap();
                block_on(index.put(&mut client, key, &[7; 8], Condition::Present)).unwrap();
            }
            let mut counts = *darter_fabric::Endpoint::counters(client.endpoint()).unwrap();
            for (kind, before) in counts.kinds.iter_mut().zip(loaded.kinds) {
                if kind.ops != before.ops {
                    *kind -= before;
                }
            }
            println!("{name}");
            for (what, kind) in
                [("search", OpKind::Get), ("update", OpKind::Update), ("insert", OpKind::Insert)]
            {
                let count = counts.kinds[kind as usize];
                let per = |bytes: u64| bytes as f64 / count.ops as f64;
                println!(
                    "  {what}: {:.3} round trips, {:.1} bytes read, {:.1} written",
                    count.round_trips_per_op(),
                    per(count.read_bytes),
                    per(count.write_bytes)
                );
            }
            let stats = block_on(index.stats(&mut client)).unwrap();
            println!(
                "  index {} bytes, pairs {}, depth {}, cache {}, nodes {:?}",
                stats.index_bytes,
                stats.kv_bytes,
                stats.depth_max,
                index.cache_used_bytes(),
                stats.nodes
            );
            let search = counts.kinds[OpKind::Get as usize].round_trips_per_op();
            let expected = match (options.cache_bytes, options.records) {
                (0, _) => stats.depth_max as f64,
                (_, INLINE) => 1.0,
                _ => 2.0,
            };
            assert!((search / expected - 1.0).abs() < 0.03, "{name}: {search} for {expected}");
        }
    }
}
