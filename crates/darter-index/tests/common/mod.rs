//! An index on a pool in this process's memory, and keys that hurt.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses its part; a test may panic

use darter_fabric::{Counting, Local, block_on};
use darter_index::{CheckReport, Dart, DartOptions, OrderedIndex};
use darter_pool::{Client, Pool, PoolOptions};

pub(crate) type TestFabric = Counting<Local>;

pub(crate) struct Bench {
    pub(crate) client: Client<TestFabric>,
    pub(crate) dart: Dart<TestFabric>,
    pub(crate) pool: Pool<TestFabric>,
}

impl Bench {
    pub(crate) fn new(nodes: usize) -> Self {
        Self::with(nodes, 64 << 20, DartOptions { frequency_every: 4, ..DartOptions::default() })
    }

    pub(crate) fn with(nodes: usize, node_bytes: u64, options: DartOptions) -> Self {
        let fabric = Counting::new(Local::memory(node_bytes, nodes).unwrap());
        let pool = block_on(Pool::create(fabric, &PoolOptions::default())).unwrap();
        let mut client = pool.client().unwrap();
        let dart = block_on(Dart::open_or_create(&mut client, options)).unwrap();
        Self { client, dart, pool }
    }

    pub(crate) fn maintain(&mut self) {
        block_on(self.pool.maintain(&mut self.client)).unwrap();
        block_on(self.dart.maintain(&mut self.client)).unwrap();
    }

    pub(crate) fn settle(&mut self) {
        for _ in 0..12 {
            self.maintain();
        }
        block_on(self.pool.settle(&mut self.client)).unwrap();
    }

    pub(crate) fn check(&mut self) -> CheckReport {
        block_on(self.dart.check(&mut self.client)).unwrap()
    }

    /// No invariant broken, `keys` keys there, no byte lost, the counts of both walks alike.
    pub(crate) fn assert_sound(&mut self, keys: u64) {
        self.settle();
        let report = self.check();
        assert_eq!(report.violations, Vec::<String>::new());
        assert_eq!(report.remarks, Vec::<String>::new());
        assert_eq!(report.stats.keys, keys);
        let audit = block_on(self.pool.audit(&mut self.client, &report.reachable)).unwrap();
        assert_eq!(audit.violations, Vec::<String>::new());
        assert_eq!(audit.leaked_bytes, 0);
        let stats = block_on(self.dart.stats(&mut self.client)).unwrap();
        assert_eq!((stats.keys, stats.kv_bytes), (keys, report.stats.kv_bytes));
        assert_eq!(stats.index_bytes, report.stats.index_bytes);
    }
}

/// One of 65,536 keys of several nasty families.
pub(crate) fn adversarial_key(seed: u16) -> Vec<u8> {
    let low = (seed >> 4) as u8;
    match seed & 15 {
        0 => vec![0; usize::from(low)],
        1 => vec![255; usize::from(low) % 20],
        2 => b"abcdefghijklmnopqrstuvwxyz"[..usize::from(low) % 27].to_vec(),
        3 => [&[7; 300][..], &[low]].concat(),
        4 => [&[7; 300][..], &[low % 3], &[9; 40], &[low]].concat(),
        5 => vec![low, 0, low, 0],
        6 => [&vec![3; 64 * 1024 - 2][..], &[low % 8]].concat(),
        7 => vec![1; 64 * 1024 - usize::from(low % 4)],
        8 => [&b"com.example@"[..], &[b'a' + low % 26], &[b'a' + low / 26]].concat(),
        9 => vec![low],
        _ => vec![5, (seed >> 12) as u8, low],
    }
}
