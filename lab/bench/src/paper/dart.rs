//! DART (SIGMOD 2026): figures and tables, and the numbers that the text gives. There: 60 M records
//! with values of 64 bytes, 60 M operations, 168 threads on 3 compute nodes, 3 memory nodes, caches
//! of 1 MB unless stated otherwise (section 5.1). Here those shrink with the records.

use super::claim::Claim;
use super::figure::{Figure, Unreproducible, counts, modelled};
use super::point::{At, PaperPoint};
use super::quantity::{Span, Stated};
use super::selection::{BYTES_READ, MOPS, P50_US, ROUND_TRIPS, Selection};
use crate::compare::Quantity;
use crate::datasets::DatasetSpec::{Email, RandInt};
use darter_bench::ycsb::Workload::{A, B, C, D, E, Load, U};
use darter_model::Preset;

/// All indexes that DART is compared with here.
const OTHERS: &[&str] = &["smart", "sherman"];
/// DART and the indexes it is compared with on integers; on strings, trees of fixed keys are left
/// out, as in the paper.
const ON_INTEGERS: &[&str] = &["dart", "smart", "sherman"];
const ON_STRINGS: &[&str] = &["dart", "smart"];
/// The steps from ART to DART.
const STEPS: &[&str] = &["art", "art+hashed", "art+hashed+decoupled", "dart"];
const GIB: f64 = (1_u64 << 30) as f64;
/// Records in the paper's Table 2.
const RECORDS: f64 = 60e6;

/// The size of an index in Table 2, for which the paper's is that of 60 M records.
macro_rules! size {
    ($index:literal, $dataset:literal, $gib:literal, $statement:literal) => {
        PaperPoint {
            section: "5.7, Table 2",
            statement: $statement,
            stated: Stated::About($gib),
            quantity: Quantity::IndexBytes,
            unit: GIB / RECORDS,
            index: $index,
            workload: "c",
            at: &[At::Dataset($dataset)],
        }
    };
}

/// The cost of a search in one index.
macro_rules! cost {
    ($section:literal, $statement:literal, $said:literal, $quantity:ident, $index:literal, $dataset:literal) => {
        PaperPoint {
            section: $section,
            statement: $statement,
            stated: Stated::About($said),
            quantity: Quantity::$quantity,
            unit: 1.0,
            index: $index,
            workload: "c",
            at: &[At::Dataset($dataset)],
        }
    };
}

/// One number of Table 1.
macro_rules! writes {
    ($statement:literal, $said:literal, $quantity:ident, $unit:literal, $index:literal, $threads:literal, $theta:literal) => {
        PaperPoint {
            section: "2.2, Table 1",
            statement: $statement,
            stated: Stated::About($said),
            quantity: Quantity::$quantity,
            unit: $unit,
            index: $index,
            workload: "u",
            at: &[At::Threads($threads), At::Theta($theta)],
        }
    };
}

/// A step's throughput in relation to the step before, over all workloads.
fn step(selection: &Selection<'_>, to: &str, from: &str) -> Option<Span> {
    selection.ratios(MOPS, to, &[from])
}

/// Bytes that a step saves, as a factor, over all workloads except scans.
fn bytes_saved(selection: &Selection<'_>, dataset: &str) -> Option<Span> {
    selection.dataset(dataset).ratios(BYTES_READ, "art", &["art+hashed"])
}

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "dart-sec2.2",
        title: "What a search costs in ART on disaggregated memory",
        differs: "uniform access; depth grows with the records",
        comparisons: |scale| {
            let on = |dataset| counts(scale, &["art", "dart"], dataset, &[C]).with_thetas(&[0.0]);
            vec![on(&RandInt), on(&Email)]
        },
        points: &[
            cost!("2.2", "a search in ART takes 5 round trips on randint", 5.0, RoundTrips, "art", "randint"),
            cost!("2.2", "and reads 6.5 KB, 6500 bytes", 6500.0, BytesRead, "art", "randint"),
            cost!("2.2", "on email it takes 14.4 round trips", 14.4, RoundTrips, "art", "email"),
            cost!("2.2", "and reads 7.7 KB, 7700 bytes", 7700.0, BytesRead, "art", "email"),
        ],
        claims: &[],
    },
    Figure {
        name: "dart-table1",
        title: "What locks cost ART's writers",
        differs: "writes are updates; of the lock the text says that taking and giving it back are round trips of their own: \
                  here a word that is spun on, and given back by a WRITE",
        comparisons: |scale| {
            let both = ["art+locked", "art+unlocked"];
            vec![
                modelled(scale, Preset::Dart, &both, &RandInt, &[U])
                    .with_threads(&[1, 168])
                    .with_thetas(&[0.0, 0.99]),
            ]
        },
        points: &[
            writes!(
                "with locks, 168 threads write 4.7 Mops, uniformly",
                4.7,
                Throughput,
                1e6,
                "art+locked",
                168,
                0.0
            ),
            writes!("without locks 5.2 Mops", 5.2, Throughput, 1e6, "art+unlocked", 168, 0.0),
            writes!("under Zipf's law 1.4 Mops with locks", 1.4, Throughput, 1e6, "art+locked", 168, 0.99),
            writes!("and 5.2 Mops without", 5.2, Throughput, 1e6, "art+unlocked", 168, 0.99),
            writes!("one thread's write takes 16.8 µs with locks", 16.8, P50, 1.0, "art+locked", 1, 0.0),
            writes!("and 12.9 µs without", 12.9, P50, 1.0, "art+unlocked", 1, 0.0),
            writes!("under Zipf's law 16.8 µs with locks", 16.8, P50, 1.0, "art+locked", 1, 0.99),
            writes!("and 13.0 µs without", 13.0, P50, 1.0, "art+unlocked", 1, 0.99),
        ],
        claims: &[
            Claim {
                section: "2.2",
                statement: "locks slow skewed writes down 3.71 times",
                stated: Stated::About(3.71),
                ours: |selection| {
                    selection.threads(168).theta(0.99).ratios(MOPS, "art+unlocked", &["art+locked"])
                },
            },
            Claim {
                section: "2.2",
                statement: "locks add 30% to a write's latency, a factor of 1.30",
                stated: Stated::About(1.3),
                ours: |selection| selection.threads(1).ratios(P50_US, "art+locked", &["art+unlocked"]),
            },
        ],
    },
    Figure {
        name: "dart-fig6",
        title: "Throughput and latency in the YCSB workloads",
        differs: "CHIME is left out, DEX is not implemented; caches shrink with the records; on e-mail keys a search of DART as it is \
                  looks up to eight lengths up at once, and the verbs of the NICs run out: what is compared there is the one \
                  that counts them when it chooses lengths",
        comparisons: |scale| {
            let workloads = [Load, A, B, C, D];
            vec![
                modelled(scale, Preset::Dart, ON_INTEGERS, &RandInt, &workloads),
                modelled(scale, Preset::Dart, &["dart+frugal", "dart", "smart"], &Email, &workloads),
            ]
        },
        points: &[],
        claims: &[
            Claim {
                section: "5.2",
                statement: "DART has 1.3 to 5.8 times the others' throughput on randint",
                stated: Stated::Between(1.3, 5.8),
                ours: |selection| selection.dataset("randint").ratios(MOPS, "dart", OTHERS),
            },
            Claim {
                section: "5.2",
                statement: "and 2.4 to 3.4 times on email",
                stated: Stated::Between(2.4, 3.4),
                ours: |selection| selection.dataset("email").ratios(MOPS, "dart+frugal", OTHERS),
            },
            Claim {
                section: "5.2",
                statement: "others' latencies are up to 5.9 times DART's",
                stated: Stated::UpTo(5.9),
                ours: |selection| {
                    let inverse = selection.dataset("randint").ratios(P50_US, "dart", OTHERS)?;
                    Some(Span { least: 1.0 / inverse.most, most: 1.0 / inverse.least })
                },
            },
            Claim {
                section: "1",
                statement: "DART is up to 5.8 times as fast as B+ trees",
                stated: Stated::UpTo(5.8),
                ours: |selection| selection.ratios(MOPS, "dart", &["sherman"]),
            },
            Claim {
                section: "1",
                statement: "and up to 3.2 times as fast as SMART",
                stated: Stated::UpTo(3.2),
                ours: |selection| selection.dataset("randint").ratios(MOPS, "dart", &["smart"]),
            },
        ],
    },
    Figure {
        name: "dart-fig7",
        title: "Round trips and bytes in the YCSB workloads",
        differs: "one client, so that nothing is retried; CHIME is left out, DEX is not implemented; caches shrink with the records",
        comparisons: |scale| {
            let workloads = [Load, A, B, C, D];
            vec![
                counts(scale, ON_INTEGERS, &RandInt, &workloads),
                counts(scale, ON_STRINGS, &Email, &workloads),
            ]
        },
        points: &[
            cost!(
                "2.3",
                "SMART takes 3.9 round trips a search on randint",
                3.9,
                RoundTrips,
                "smart",
                "randint"
            ),
            cost!("2.3", "and reads 3.7 KB, 3700 bytes", 3700.0, BytesRead, "smart", "randint"),
            cost!("2.3", "on email 7.9 round trips", 7.9, RoundTrips, "smart", "email"),
            cost!("2.3", "and 2.0 KB, 2000 bytes", 2000.0, BytesRead, "smart", "email"),
        ],
        claims: &[],
    },
    Figure {
        name: "dart-fig8",
        title: "DART's three parts, one by one",
        differs: "our ART updates without locks as it is; caches shrink with the records",
        comparisons: |scale| {
            let workloads = [Load, A, B, C, D];
            let on = |dataset| modelled(scale, Preset::Dart, STEPS, dataset, &workloads);
            vec![on(&RandInt), on(&Email)]
        },
        points: &[],
        claims: &[
            Claim {
                section: "5.3",
                statement: "hashed nodes make ART up to 1.7 times as fast",
                stated: Stated::UpTo(1.7),
                ours: |selection| step(selection, "art+hashed", "art"),
            },
            Claim {
                section: "5.3",
                statement: "they read 6.4 to 6.7 times fewer bytes on randint",
                stated: Stated::Between(6.4, 6.7),
                ours: |selection| bytes_saved(selection, "randint"),
            },
            Claim {
                section: "5.3",
                statement: "and 2.1 to 2.3 times fewer on email",
                stated: Stated::Between(2.1, 2.3),
                ours: |selection| bytes_saved(selection, "email"),
            },
            Claim {
                section: "5.3",
                statement: "decoupled metadata makes it up to 4.8 times as fast",
                stated: Stated::UpTo(4.8),
                ours: |selection| step(selection, "art+hashed+decoupled", "art+hashed"),
            },
            Claim {
                section: "5.3",
                statement: "and the skip table up to 3.4 times",
                stated: Stated::UpTo(3.4),
                ours: |selection| step(selection, "dart", "art+hashed+decoupled"),
            },
            Claim {
                section: "5.3",
                statement: "the skip table saves about 2 round trips on randint",
                stated: Stated::About(2.0),
                ours: |selection| {
                    selection.dataset("randint").workload("c").difference(
                        ROUND_TRIPS,
                        "art+hashed+decoupled",
                        "dart",
                    )
                },
            },
            Claim {
                section: "5.3",
                statement: "and 8.7 on email",
                stated: Stated::About(8.7),
                ours: |selection| {
                    selection.dataset("email").workload("c").difference(
                        ROUND_TRIPS,
                        "art+hashed+decoupled",
                        "dart",
                    )
                },
            },
        ],
    },
    Figure {
        name: "dart-fig11",
        title: "What adjusting the prefix list brings",
        differs: "before and after it; the time during it is not measured; caches shrink with the records",
        comparisons: |scale| {
            let on = |dataset| modelled(scale, Preset::Dart, &["dart+powers", "dart"], dataset, &[C]);
            vec![on(&RandInt), on(&Email)]
        },
        points: &[],
        claims: &[Claim {
            section: "5.3",
            statement: "the adjustment makes searches up to 21% faster, a factor of 1.21",
            stated: Stated::UpTo(1.21),
            ours: |selection| selection.ratios(MOPS, "dart", &["dart+powers"]),
        }],
    },
    Figure {
        name: "dart-fig12",
        title: "Range queries",
        differs: "scans of 1 to 100 records, evenly distributed; the paper varies the length; caches shrink with the records",
        comparisons: |scale| vec![modelled(scale, Preset::Dart, ON_INTEGERS, &RandInt, &[E])],
        points: &[],
        claims: &[
            Claim {
                section: "5.4",
                statement: "DART is comparable to SMART, a factor of 1 or so",
                stated: Stated::About(1.0),
                ours: |selection| selection.ratios(MOPS, "dart", &["smart"]),
            },
            Claim {
                section: "5.4",
                statement: "B+ trees scan up to 2.0 times as fast",
                stated: Stated::UpTo(2.0),
                ours: |selection| selection.ratios(MOPS, "sherman", &["dart", "smart"]),
            },
        ],
    },
    Figure {
        name: "dart-fig13",
        title: "Searches with caches of different sizes",
        differs: "DEX, of which the text gives its numbers, is not here; caches are smaller, as the index is",
        comparisons: |scale| {
            let caches = [1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26];
            vec![modelled(scale, Preset::Dart, ON_INTEGERS, &RandInt, &[C]).with_caches(&caches)]
        },
        points: &[],
        claims: &[],
    },
    Figure {
        name: "dart-fig14",
        title: "Half updates, with accesses more and less skewed",
        differs: "which exponents the paper has, its text does not say; CHIME is left out, DEX is not implemented; caches shrink with the \
                  records",
        comparisons: |scale| {
            let thetas = [0.0, 0.6, 0.8, 0.9, 0.99];
            vec![modelled(scale, Preset::Dart, ON_INTEGERS, &RandInt, &[A]).with_thetas(&thetas)]
        },
        points: &[],
        claims: &[Claim {
            section: "5.5",
            statement: "DART is 1.6 to 5.7 times as fast as the others at every skew",
            stated: Stated::Between(1.6, 5.7),
            ours: |selection| selection.ratios(MOPS, "dart", OTHERS),
        }],
    },
    Figure {
        name: "dart-fig15",
        title: "Half updates, with more and more threads",
        differs: "the text gives no number; others stop growing beyond 84 or 126 threads there; caches shrink with the \
                  records",
        comparisons: |scale| {
            let threads = [3, 21, 42, 84, 126, 168];
            vec![modelled(scale, Preset::Dart, ON_INTEGERS, &RandInt, &[A]).with_threads(&threads)]
        },
        points: &[],
        claims: &[],
    },
    Figure {
        name: "dart-table2",
        title: "Memory",
        differs: "bytes a record, at this scale, times 60 M: nodes a record rise and fall with the number of records",
        comparisons: |scale| {
            vec![
                counts(scale, &["dart", "smart", "sherman+pointers"], &RandInt, &[C]),
                counts(scale, ON_STRINGS, &Email, &[C]),
            ]
        },
        points: &[
            size!("dart", "randint", 0.86, "DART's index takes 0.86 GiB on randint"),
            size!("dart", "email", 1.44, "and 1.44 GiB on email"),
            size!("smart", "randint", 17.86, "SMART's takes 17.86 GiB on randint"),
            size!("smart", "email", 27.51, "and 27.51 GiB on email"),
            size!("sherman+pointers", "randint", 1.63, "Sherman's takes 1.63 GiB on randint"),
        ],
        claims: &[Claim {
            section: "5.7, Table 2",
            statement: "keys and values take 7.15 GiB, at 128 bytes a record",
            stated: Stated::About(7.15),
            ours: |selection| {
                let each = selection.dataset("randint").index("dart").kv_bytes_per_record()?;
                Some(Span::one(each * RECORDS / GIB))
            },
        }],
    },
];

pub(super) const UNREPRODUCIBLE: &[Unreproducible] = &[
    Unreproducible {
        name: "dart-fig9",
        title: "Buckets of different sizes",
        why: "the size of a bucket is part of the format here: 128 bytes, the paper's choice",
    },
    Unreproducible {
        name: "dart-fig10",
        title: "Inserts with updates of the skip table on and off",
        why: "they cannot be turned off: it is kept up by every split and switch",
    },
];
