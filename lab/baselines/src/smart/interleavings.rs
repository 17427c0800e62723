//! Cached nodes that are freed, driven by hand.

use super::{Smart, SmartOptions};
use darter_fabric::block_on;
use darter_index::{Condition, OrderedIndex};
use darter_pool::{Pool, PoolOptions};
use darter_sim::Sim;

/// A compute node caches a node and is idle while another removes and frees it.
#[test]
fn what_a_compute_node_remembers_is_forgotten_before_it_is_free() {
    const KEYS: [&[u8]; 3] = [b"stem1234a", b"stem1234b", b"else"];
    let options = SmartOptions { quarantine_bytes: Some(0), ..SmartOptions::default() };
    let sim = Sim::new(1, 8 << 20);
    block_on(async {
        let pool_options = PoolOptions { block_bytes: Some(256 << 10), ..PoolOptions::default() };
        let pool = Pool::create(sim.clone(), &pool_options).await.unwrap();
        let mut client = pool.client().unwrap();
        let smart = Smart::open_or_create(&mut client, options).await.unwrap();
        for key in KEYS {
            smart.put(&mut client, key, b"value", Condition::Always).await.unwrap();
        }
        let other = Smart::open(&mut client, options).await.unwrap();
        for key in KEYS {
            assert!(other.get(&mut client, key).await.unwrap().is_some());
        }
        assert!(smart.delete(&mut client, KEYS[0]).await.unwrap());
        assert!(smart.delete(&mut client, KEYS[1]).await.unwrap());
        for _ in 0..20 {
            pool.maintain(&mut client).await.unwrap();
            smart.maintain(&mut client).await.unwrap();
        }
        assert_eq!(pool.garbage(), 0, "everything is freed");
        assert_eq!(other.get(&mut client, KEYS[0]).await.unwrap(), None);
        assert!(other.get(&mut client, KEYS[2]).await.unwrap().is_some());
    });
    assert_eq!(sim.misuse(), None);
}
