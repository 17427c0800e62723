//! CHIME under the tests that every index must pass, in each form of its records, and the costs of
//! its operations.

use crate::common::{Bench, Model, Tested, memory};
use crate::records::behaves_like_a_map;
use darter_baselines::{Chime, ChimeOptions, Records};
use darter_fabric::decorate::{FailPlan, FailPoint};
use darter_fabric::{Endpoint, Fabric, Local, OpKind, block_on};
use darter_index::{Condition, IndexError, OrderedIndex};
use darter_pool::{Client, Pool, PoolOptions};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const INLINE: Records = Records::Inline { key_bytes: 8, value_bytes: 8 };

struct Any;

impl Tested for Any {
    type Index<F: Fabric> = Chime<F>;
}

mod any {
    use super::Any;

    crate::common::index_tests!(Any);
}

struct Inline;

impl Tested for Inline {
    type Index<F: Fabric> = Chime<F>;

    fn options<F: Fabric>() -> ChimeOptions {
        ChimeOptions::default().records(INLINE)
    }
}

struct FixedKeys;

impl Tested for FixedKeys {
    type Index<F: Fabric> = Chime<F>;

    fn options<F: Fabric>() -> ChimeOptions {
        ChimeOptions::default().records(Records::FixedKeys { key_bytes: 8 })
    }
}

/// Small leaves, whose neighbourhoods are half of them.
struct Small;

impl Tested for Small {
    type Index<F: Fabric> = Chime<F>;

    fn options<F: Fabric>() -> ChimeOptions {
        ChimeOptions { span: 16, node_bytes: 512, fill_percent: 100, ..ChimeOptions::default() }
            .records(INLINE)
    }
}

#[test]
fn each_form_behaves_like_a_map() {
    behaves_like_a_map::<Inline>();
    behaves_like_a_map::<FixedKeys>();
    behaves_like_a_map::<Small>();
}

#[test]
fn what_leaves_cannot_hold_is_refused() {
    let pool = block_on(Pool::create(Local::memory(8 << 20, 1).unwrap(), &PoolOptions::default())).unwrap();
    let mut client = pool.client().unwrap();
    for options in [
        ChimeOptions { span: 20, ..ChimeOptions::default() },
        ChimeOptions::default().records(Records::Inline { key_bytes: 8, value_bytes: 9 }),
        ChimeOptions::default().records(Records::FixedKeys { key_bytes: 65 }),
    ] {
        let error = block_on(Chime::create(&mut client, options)).unwrap_err();
        assert!(matches!(error, IndexError::Options(_)), "{error}");
    }
}

/// A put of an inline value fails at every verb: the old value or the new one is there, never a
/// third one and never none.
#[test]
fn writes_cut_short_are_whole_or_not_there() {
    let fabric = memory(32 << 20, 2);
    let plan: FailPlan = fabric.plan().clone();
    let mut bench = Bench::<Small, _>::on(fabric, &PoolOptions::default());
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
    // Objects allocated by the failed puts are left to the sweep.
    let report = bench.check();
    assert_eq!((report.violations, report.stats.keys), (Vec::new(), model.len() as u64));
}

/// Round trips, bytes read and bytes written of a kind of operation.
type Cost = (f64, f64, f64);

/// Returns the cost of the operations of a kind since the counters had these values.
fn cost<F: Fabric>(client: &Client<F>, before: &darter_fabric::Counters, kind: OpKind) -> Cost {
    let mut count = client.endpoint().counters().unwrap().kinds[kind as usize];
    count -= before.kinds[kind as usize];
    let per = |bytes: u64| bytes as f64 / count.ops as f64;
    (count.round_trips_per_op(), per(count.read_bytes), per(count.write_bytes))
}

struct Costs {
    insert: Cost,
    search: Cost,
    absent: Cost,
    update: Cost,
    delete: Cost,
    cached: u64,
}

/// Returns the costs of operations on this many random keys, put one by one.
fn costs(keys: u64, sample: usize, options: ChimeOptions) -> Costs {
    let bytes = (keys * 200).max(64 << 20);
    // Homes and the places of hot spots depend on the secret.
    let pool_options =
        PoolOptions { secret: Some([0x9e37_79b9_7f4a_7c15, 5, 7, 9]), ..PoolOptions::default() };
    let pool = block_on(Pool::create(memory(bytes, 1), &pool_options)).unwrap();
    let mut client = pool.client().unwrap();
    let index = block_on(Chime::open_or_create(&mut client, options)).unwrap();
    let mut dice = Pcg64Mcg::seed_from_u64(1);
    let keys: Vec<[u8; 8]> = (0..keys).map(|_| dice.random::<u64>().to_be_bytes()).collect();
    let start = *client.endpoint().counters().unwrap();
    for key in &keys {
        block_on(index.put(&mut client, key, key, Condition::Always)).unwrap();
    }
    let insert = cost(&client, &start, OpKind::Insert);
    let sampled = || keys.iter().rev().take(sample);
    // Twice, so that the cache is filled.
    for key in sampled().chain(sampled()) {
        assert_eq!(block_on(index.get(&mut client, key)).unwrap().as_deref(), Some(&key[..]));
    }
    let warm = *client.endpoint().counters().unwrap();
    for key in sampled() {
        assert_eq!(block_on(index.get(&mut client, key)).unwrap().as_deref(), Some(&key[..]));
    }
    let search = cost(&client, &warm, OpKind::Get);
    let warm = *client.endpoint().counters().unwrap();
    for _ in 0..sample {
        assert_eq!(block_on(index.get(&mut client, &dice.random::<u64>().to_be_bytes())).unwrap(), None);
    }
    let absent = cost(&client, &warm, OpKind::Get);
    let warm = *client.endpoint().counters().unwrap();
    for key in sampled() {
        block_on(index.put(&mut client, key, &[7; 8], Condition::Present)).unwrap();
    }
    let update = cost(&client, &warm, OpKind::Update);
    for key in sampled().take(sample / 10) {
        assert!(block_on(index.delete(&mut client, key)).unwrap());
    }
    let delete = cost(&client, &warm, OpKind::Delete);
    Costs { insert, search, absent, update, delete, cached: index.cache_used_bytes() }
}

/// The pool's secret determines where keys are, so counts vary slightly with the splits of leaves.
fn assert_close(what: &str, (trips, read, written): Cost, expected: Cost) {
    let is_close = |found: f64, wanted: f64| (found - wanted).abs() <= wanted * 0.03;
    let holds =
        (trips - expected.0).abs() <= 0.03 && is_close(read, expected.1) && is_close(written, expected.2);
    assert!(holds, "{what}: {trips} round trips, {read} bytes read, {written} written");
}

/// One client, all inner nodes cached, compared with the counts of the published code, which are in
/// lab/docs/chime.md.
#[test]
fn operations_cost_what_they_do() {
    let options = ChimeOptions { hot_spot_percent: 0, ..ChimeOptions::default() }.records(INLINE);
    let cold = costs(20_000, 5000, options);
    assert_eq!((cold.search, cold.absent), ((1.0, 168.0, 0.0), (1.0, 168.0, 0.0)));
    assert_close("update", cold.update, (3.0, 188.0, 43.7));
    assert_close("delete", cold.delete, (3.0, 196.0, 44.5));
    assert_close("insert", cold.insert, (3.16, 387.0, 234.0));
    assert!(cold.cached <= 1 << 20);
    let options = ChimeOptions { cache_bytes: 8 << 20, hot_spot_percent: 30, ..options };
    let hot = costs(20_000, 5000, options);
    // Which hot spots share a place varies between pools: 25 to 26 bytes.
    let (_, read, _) = hot.search;
    assert_eq!(hot.search, (1.0, read, 0.0));
    assert!((24.0..28.0).contains(&read), "hot keys: {read} bytes");
    let none = costs(20_000, 5000, ChimeOptions { cache_bytes: 0, ..options });
    assert_close("search without a cache", none.search, (2.0, 1193.0, 0.0));
}

/// Costs of one operation on a million random keys, compared with the counts of the published code.
#[test]
#[ignore = "takes minutes; the figures are in lab/docs/chime.md"]
fn figures() {
    for (name, cache_bytes, hot_spot_percent, records) in [
        ("inline, 1 MB, no hot spots", 1 << 20, 0, INLINE),
        ("inline, 1 MB", 1 << 20, 30, INLINE),
        ("inline, 10 MB, no hot spots", 10 << 20, 0, INLINE),
        ("inline, 100 MB", 100 << 20, 30, INLINE),
        ("8-byte keys, pairs in blocks, 1 MB", 1 << 20, 0, Records::FixedKeys { key_bytes: 8 }),
        ("any records, 1 MB", 1 << 20, 0, Records::Any),
        ("inline, nothing cached", 0, 0, INLINE),
    ] {
        let options = ChimeOptions { cache_bytes, hot_spot_percent, ..ChimeOptions::default() };
        let costs = costs(1_000_000, 200_000, options.records(records));
        println!("{name}: cache {} bytes", costs.cached);
        for (what, (trips, read, written)) in [
            ("insert", costs.insert),
            ("search", costs.search),
            ("absent", costs.absent),
            ("update", costs.update),
            ("delete", costs.delete),
        ] {
            println!("  {what}: {trips:.3} round trips, {read:.1} bytes read, {written:.1} written");
        }
    }
}
