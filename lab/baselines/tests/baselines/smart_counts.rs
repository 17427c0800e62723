//! Measured costs of SMART's operations, compared with the public code's: one client, uniformly
//! random 8-byte keys, 8-byte values, a warm cache of 10 MB.

use darter_baselines::{Smart, SmartOptions};
use darter_fabric::{Counters, Counting, Endpoint, Local, OpKind, block_on};
use darter_index::{Condition, OrderedIndex};
use darter_pool::{Client, Pool, PoolOptions};

type F = Counting<Local>;

/// splitmix64: distinct for distinct numbers.
fn key(n: u64) -> [u8; 8] {
    let mut z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_be_bytes()
}

struct Cost {
    round_trips: f64,
    read: f64,
    written: f64,
}

/// Returns the average cost of `count` operations of a kind.
fn cost(client: &mut Client<F>, kind: OpKind, count: u64, mut act: impl FnMut(&mut Client<F>, u64)) -> Cost {
    let before: Counters = *client.endpoint().counters().unwrap();
    (0..count).for_each(|n| act(client, n));
    let after = client.endpoint().counters().unwrap();
    let (before, after) = (before.kinds[kind as usize], after.kinds[kind as usize]);
    assert_eq!(after.ops - before.ops, count);
    let each = |after: u64, before: u64| (after - before) as f64 / count as f64;
    Cost {
        round_trips: each(after.round_trips, before.round_trips),
        read: each(after.read_bytes, before.read_bytes),
        written: each(after.write_bytes, before.write_bytes),
    }
}

fn measure(keys: u64, options: SmartOptions) -> [(&'static str, Cost); 5] {
    let fabric = Counting::new(Local::memory(12 << 30, 1).unwrap());
    let pool = block_on(Pool::create(fabric, &PoolOptions::default())).unwrap();
    let mut client = pool.client().unwrap();
    let smart = block_on(Smart::open_or_create(&mut client, options)).unwrap();
    let mut sorted: Vec<_> = (0..keys).map(|n| (key(n).to_vec(), n.to_le_bytes().to_vec())).collect();
    sorted.sort_unstable();
    block_on(smart.bulk_load(&mut client, sorted.into_iter())).unwrap();
    // The order of accesses is independent of the order of the keys.
    let asked = |n: u64| key(n.wrapping_mul(2_654_435_761) % keys);
    let count = keys.min(500_000);
    let get = |client: &mut Client<F>, n: u64| {
        assert!(block_on(smart.get(client, &asked(n))).unwrap().is_some());
    };
    (0..keys).for_each(|n| get(&mut client, n));
    let search = cost(&mut client, OpKind::Get, count, get);
    let absent = cost(&mut client, OpKind::Get, count, |client, n| {
        assert!(block_on(smart.get(client, &key(keys * 2 + n))).unwrap().is_none());
    });
    let update = cost(&mut client, OpKind::Update, count, |client, n| {
        block_on(smart.put(client, &asked(n), &n.to_be_bytes(), Condition::Present)).unwrap();
    });
    let again = cost(&mut client, OpKind::Get, count, get);
    let insert = cost(&mut client, OpKind::Insert, count / 20, |client, n| {
        block_on(smart.put(client, &key(keys * 3 + n), &[7; 8], Condition::Always)).unwrap();
    });
    let stats = block_on(smart.stats(&mut client)).unwrap();
    println!(
        "{keys} keys, {options:?}: cache {} B, {} nodes of {} B, leaves {} B",
        smart.cache_used_bytes(),
        stats.nodes.iter().map(|node| node.count).sum::<u64>(),
        stats.index_bytes / stats.nodes.iter().map(|node| node.count).sum::<u64>(),
        stats.kv_bytes,
    );
    let costs = [
        ("search", search),
        ("absent", absent),
        ("update", update),
        ("search after", again),
        ("insert", insert),
    ];
    for (what, cost) in &costs {
        println!(
            "{what:>14} {:.3} RT, {:.0} B read, {:.0} B written",
            cost.round_trips, cost.read, cost.written
        );
    }
    costs
}

/// Public code at 1 M keys: search 1.344 RT and 98 B, absent key 1.024, update 3.342, insert 3.427
/// and 595 B.
#[test]
#[ignore = "a minute and a gigabyte or two: cargo test --release -p darter-baselines --test baselines smart_counts -- --ignored --nocapture"]
fn costs_what_the_public_code_does() {
    let options = SmartOptions { cache_bytes: 10_000_000, ..SmartOptions::default() };
    for keys in [1_000_000, 4_000_000] {
        let costs = measure(keys, options);
        if keys == 1_000_000 {
            let search = &costs[0].1;
            assert!((search.round_trips / 1.344 - 1.0).abs() < 0.1, "{}", search.round_trips);
        }
    }
    measure(1_000_000, SmartOptions { cache_bytes: 10_000_000, ..SmartOptions::lock_free() });
    measure(1_000_000, SmartOptions { cache_bytes: 0, ..SmartOptions::default() });
}
