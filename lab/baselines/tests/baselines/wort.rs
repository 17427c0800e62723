//! WORT, WOART and ART+CoW under the tests that every index must pass, and the flushes of their
//! writers compared with the paper's counts.

use crate::common::Tested;
use darter_baselines::{Design, Persistence, Wort, WortOptions};
use darter_fabric::{Fabric, Local, block_on};
use darter_index::{Condition, OrderedIndex};
use darter_pool::{Client, Pool, PoolOptions};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

macro_rules! tested {
    ($module:ident, $name:ident, $design:expr) => {
        struct $name;

        impl Tested for $name {
            type Index<F: Fabric> = Wort<F>;

            const CASES: u32 = 48;

            fn options<F: Fabric>() -> WortOptions {
                WortOptions::of($design)
            }
        }

        mod $module {
            use super::$name;

            crate::common::index_tests!($name);
        }
    };
}

tested!(wort, OfWort, Design::Wort);
tested!(woart, OfWoart, Design::Woart);
tested!(artcow, OfArtCow, Design::ArtCow);

/// The paper's three distributions of keys (section 4), scaled down.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Keys {
    Dense,
    Sparse,
    Clustered,
}

/// Returns `count` keys in a random order that is the same in every run.
pub(crate) fn keys(of: Keys, count: u64) -> Vec<u64> {
    let mut keys: Vec<u64> = match of {
        Keys::Dense => (1..=count).collect(),
        Keys::Sparse => (0..count).map(|nth| nth * (u64::MAX / count)).collect(),
        Keys::Clustered => {
            let runs = count / 64;
            (0..runs).flat_map(|run| (0..64).map(move |nth| run * (u64::MAX / runs) + nth)).collect()
        }
    };
    keys.shuffle(&mut Pcg64Mcg::seed_from_u64(1));
    keys
}

struct Counted {
    lines: f64,
    fences: f64,
    depth: f64,
}

/// Inserts keys one after another. Returns lines and fences per insert, and the average depth of a
/// leaf, as the number of nodes above it.
fn count(design: Design, of: Keys, count: u64) -> Counted {
    let keys = keys(of, count);
    let fabric = Local::memory(keys.len() as u64 * 512 + (64 << 20), 1).unwrap();
    let pool = block_on(Pool::create(fabric, &PoolOptions::default())).unwrap();
    let mut client: Client<Local> = pool.client().unwrap();
    block_on(async {
        let index = Wort::open_or_create(&mut client, WortOptions::of(design)).await.unwrap();
        for key in &keys {
            let value = key.to_le_bytes();
            index.put(&mut client, &key.to_be_bytes(), &value, Condition::Absent).await.unwrap();
        }
        let inserts = keys.len() as f64;
        let Persistence { lines, fences } = index.persistence();
        let stats = index.stats(&mut client).await.unwrap();
        assert_eq!(stats.keys, keys.len() as u64);
        let levels = stats.levels.iter().enumerate();
        let depth = levels.map(|(depth, &leaves)| depth as f64 * leaves as f64).sum::<f64>() / inserts;
        Counted { lines: lines as f64 / inserts, fences: fences as f64 / inserts, depth }
    })
}

/// For each design and distribution: lines per insert, and depth.
type Expected = [(Design, [(Keys, f64, f64); 3]); 3];

fn assert_counts(size: u64, expected: Expected) {
    let mut wrong = Vec::new();
    for (design, rows) in expected {
        for (of, lines, depth) in rows {
            let counted = count(design, of, size);
            let is_near = |a: f64, b: f64| (a - b).abs() < 0.006;
            println!(
                "{:<7} {of:?} lines {:.3} fences {:.3} depth {:.3}",
                design.name(),
                counted.lines,
                counted.fences,
                counted.depth
            );
            if !is_near(counted.lines, lines) || !is_near(counted.depth, depth) || counted.fences > 2.0 {
                wrong.push((design, of, counted.lines, counted.fences, counted.depth));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// With 5,000 keys. The numbers come from a model of lines and tries without a pool.
#[test]
fn counts_of_five_thousand_inserts() {
    use Keys::{Clustered, Dense, Sparse};
    assert_counts(
        5000,
        [
            (Design::Wort, [(Dense, 2.2018, 4.0), (Sparse, 2.7078, 3.3616), (Clustered, 2.2889, 4.1811)]),
            (Design::Woart, [(Dense, 2.4204, 2.0), (Sparse, 4.147, 2.0), (Clustered, 3.6492, 2.2051)]),
            (Design::ArtCow, [(Dense, 2.4666, 2.0), (Sparse, 4.7124, 2.0), (Clustered, 3.854, 2.2051)]),
        ],
    );
}

/// With 500,000 keys, the table of `lab/docs/wort.md`. A minute without optimisation.
#[test]
#[ignore = "a minute without optimisation"]
fn counts_of_half_a_million_inserts() {
    use Keys::{Clustered, Dense, Sparse};
    assert_counts(
        500_000,
        [
            (Design::Wort, [(Dense, 2.20, 5.00), (Sparse, 2.42, 5.00), (Clustered, 2.32, 6.17)]),
            (Design::Woart, [(Dense, 2.40, 3.00), (Sparse, 3.53, 3.00), (Clustered, 3.67, 3.23)]),
            (Design::ArtCow, [(Dense, 2.45, 3.00), (Sparse, 3.88, 3.00), (Clustered, 3.88, 3.23)]),
        ],
    );
}
