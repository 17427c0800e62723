//! SMART (OSDI 2023): figures, and the numbers that the text gives. There: 60 M records with keys
//! and values of 8 bytes (32 bytes for strings), 60 M operations, 16 compute nodes, 2 memory nodes,
//! caches of 600 MB (sections 3 and 5.1).

use super::claim::Claim;
use super::figure::{Figure, Scale, Unreproducible, modelled};
use super::point::PaperPoint;
use super::quantity::{Span, Stated};
use super::selection::{MOPS, Metric, P50_US, P99_US, Selection};
use crate::compare::{Comparison, PoolLocation, Quantity};
use crate::datasets::DatasetSpec::{self, Email, RandInt};
use darter_bench::ycsb::Workload::{self, A, B, C, D, E, Load};
use darter_model::ModelSpec;
use darter_model::Preset;

const ALL: &[&str] = &["smart", "sherman", "art"];
/// The steps from a lock-free radix tree to SMART.
const STEPS: &[&str] =
    &["art", "smart+oop", "smart+in-place", "smart+rear-lock", "smart+delegation", "smart"];
/// Clients of the throughput-latency curves.
const CLIENTS: &[usize] = &[16, 64, 256, 896];
/// A cache that holds all inner nodes.
const CACHE: u64 = 600 << 20;
const VALUE_BYTES: usize = 8;

/// On SMART's testbed with its caches and values.
fn testbed(scale: &Scale, indexes: &[&str], dataset: &DatasetSpec, workloads: &[Workload]) -> Comparison {
    modelled(scale, Preset::Smart, indexes, dataset, workloads).with_caches(&[CACHE]).with_values(VALUE_BYTES)
}

/// On that of its motivation: 8 compute nodes of 32 clients, one memory node, values of 64 bytes
/// (section 3).
fn motivation(scale: &Scale, indexes: &[&str], dataset: &DatasetSpec, workloads: &[Workload]) -> Comparison {
    let preset = ModelSpec::preset(Preset::Smart);
    let spec = ModelSpec {
        compute_nodes: 8,
        memory_nodes: 1,
        shared_machines: 0,
        threads: 256,
        coroutines: 1,
        ..preset
    };
    let asked = "preset=smart,cn=8,mn=1,shared=0,threads=256,coroutines=1".to_owned();
    let pool = PoolLocation::Model { asked, spec: Box::new(spec) };
    Comparison { pool, ..testbed(scale, indexes, dataset, workloads).with_values(64) }
}

/// The peak of an index's throughput in workload C.
const fn peak_of(
    section: &'static str,
    statement: &'static str,
    mops: f64,
    index: &'static str,
) -> PaperPoint {
    let (stated, quantity) = (Stated::About(mops), Quantity::Throughput);
    PaperPoint { section, statement, stated, quantity, unit: 1e6, index, workload: "c", at: &[] }
}

/// The peak of SMART's curve in relation to another's.
macro_rules! peak {
    ($workload:literal, $other:literal, $said:literal, $statement:literal) => {
        Claim {
            section: "5.2",
            statement: $statement,
            stated: Stated::About($said),
            ours: |selection| selection.workload($workload).peak_ratio(MOPS, "smart", $other),
        }
    };
}

/// Another's tail latency in relation to SMART's, at most clients.
macro_rules! tail {
    ($workload:literal, $other:literal, $said:literal, $statement:literal) => {
        Claim {
            section: "5.2",
            statement: $statement,
            stated: Stated::About($said),
            ours: |selection| selection.workload($workload).threads(896).ratios(P99_US, $other, &["smart"]),
        }
    };
}

/// A step's gain over the step before.
macro_rules! gain {
    ($workload:literal, $to:literal, $from:literal, $said:literal, $statement:literal) => {
        Claim {
            section: "5.3",
            statement: $statement,
            stated: Stated::About($said),
            ours: |selection| selection.workload($workload).ratios(MOPS, $to, &[$from]),
        }
    };
}

/// What a step takes off a latency.
macro_rules! relief {
    ($workload:literal, $to:literal, $from:literal, $metric:ident, $said:literal, $statement:literal) => {
        Claim {
            section: "5.3",
            statement: $statement,
            stated: Stated::About($said),
            ours: |selection| selection.workload($workload).ratios($metric, $from, &[$to]),
        }
    };
}

/// How many times an index's number at one end of a sweep is that at the other.
fn fall(from: &Selection<'_>, to: &Selection<'_>, metric: Metric, index: &str) -> Option<Span> {
    Some(Span::one(from.index(index).mean(metric)? / to.index(index).mean(metric)?))
}

/// How much slower one becomes as values grow from 8 to 1024 bytes.
fn fall_by_value(selection: &Selection<'_>, index: &str) -> Option<Span> {
    fall(&selection.value_bytes(8), &selection.value_bytes(1024), MOPS, index)
}

/// How much slower one becomes as accesses get skewed from 0.5 to 0.99.
fn fall_by_skew(selection: &Selection<'_>, index: &str) -> Option<Span> {
    fall(&selection.theta(0.5), &selection.theta(0.99), MOPS, index)
}

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "smart-fig3",
        title: "Peak throughput of searches with caches of different sizes, on one memory node",
        differs: "of the figure's four parts the third; keys are e-mail addresses of 18 bytes on average instead of strings of \
                  32; in place of an ART with a cache, which is not here, SMART with leaves out of place; caches are smaller, \
                  as the index is",
        comparisons: |scale| {
            let caches = [1 << 16, 1 << 20, 1 << 24, 1 << 28];
            vec![motivation(scale, &["sherman", "smart+oop"], &Email, &[C]).with_caches(&caches)]
        },
        points: &[
            peak_of("3.1.2", "Sherman does not get beyond 4.17 Mops", 4.17, "sherman"),
            peak_of("3.1.2", "ART reaches about 45 Mops, which is what the NIC can do", 45.0, "smart+oop"),
        ],
        claims: &[],
    },
    Figure {
        name: "smart-fig4b",
        title: "Updates in place and out of place",
        differs: "SMART with the one and with the other; the paper's clients update different records, ours the same",
        comparisons: |scale| vec![motivation(scale, &["smart+in-place", "smart+oop"], &RandInt, &[A])],
        points: &[],
        claims: &[Claim {
            section: "3.2",
            statement: "out of place, throughput is 44.5% lower, a factor of 0.56",
            stated: Stated::About(0.56),
            ours: |selection| selection.ratios(MOPS, "smart+oop", &["smart+in-place"]),
        }],
    },
    Figure {
        name: "smart-fig11",
        title: "Throughput and latency with more and more clients, integer keys",
        differs: "our ART caches nothing, the paper's does; latencies are compared with 896 clients",
        comparisons: |scale| vec![testbed(scale, ALL, &RandInt, &[Load, A, B, C, D]).with_threads(CLIENTS)],
        points: &[peak_of(
            "5.2",
            "SMART reaches 96 Mops in workload C, above what the memory nodes' NICs can do",
            96.0,
            "smart",
        )],
        claims: &[
            peak!("c", "sherman", 2.8, "SMART has 2.8 times the peak throughput of Sherman in C"),
            peak!("c", "art", 1.2, "1.2 times ART in C"),
            peak!("load", "sherman", 1.6, "1.6 times Sherman in LOAD"),
            peak!("load", "art", 1.5, "1.5 times ART in LOAD"),
            tail!("load", "sherman", 1.4, "Sherman's p99 is 1.4 times as long in LOAD"),
            tail!("load", "art", 1.5, "ART's 1.5 times"),
            peak!("d", "sherman", 2.4, "2.4 times Sherman in D"),
            peak!("d", "art", 1.4, "1.4 times ART in D"),
            tail!("d", "sherman", 1.1, "Sherman's p99 is 1.1 times as long in D"),
            tail!("d", "art", 1.8, "ART's 1.8 times"),
            peak!("a", "sherman", 6.1, "6.1 times Sherman in A"),
            peak!("a", "art", 3.4, "3.4 times ART in A"),
            tail!("a", "sherman", 1.4, "Sherman's latency is 1.4 times as long in A"),
            tail!("a", "art", 1.3, "ART's 1.3 times"),
            peak!("b", "sherman", 2.4, "2.4 times Sherman in B"),
            peak!("b", "art", 1.8, "1.8 times ART in B"),
            tail!("b", "sherman", 1.1, "Sherman's p99 is 1.1 times as long in B"),
            tail!("b", "art", 1.7, "ART's 1.7 times"),
        ],
    },
    Figure {
        name: "smart-fig12",
        title: "Throughput and latency with more and more clients, string keys",
        differs: "the text gives no numbers for it; keys are e-mail addresses of 18 bytes on average instead of strings of 32; \
                  our ART caches nothing",
        comparisons: |scale| vec![testbed(scale, ALL, &Email, &[Load, A, B, C, D]).with_threads(CLIENTS)],
        points: &[],
        claims: &[],
    },
    Figure {
        name: "smart-fig14",
        title: "Scans with values of different sizes",
        differs: "our ART caches nothing",
        comparisons: |scale| {
            let with = |bytes| testbed(scale, ALL, &RandInt, &[E]).with_threads(&[128]).with_values(bytes);
            [8, 64, 256, 1024].map(with).into()
        },
        points: &[],
        claims: &[Claim {
            section: "5.2",
            statement: "with values above 64 bytes SMART scans faster than Sherman: Sherman has below 1 times its throughput",
            stated: Stated::Below(1.0),
            ours: |selection| selection.value_bytes(256).ratios(MOPS, "sherman", &["smart"]),
        }],
    },
    Figure {
        name: "smart-fig15",
        title: "SMART's techniques, one by one",
        differs: "our ART caches nothing, the paper's does",
        comparisons: |scale| vec![testbed(scale, STEPS, &RandInt, &[Load, A, B, C]).with_threads(&[384])],
        points: &[],
        claims: &[
            gain!(
                "load",
                "smart+oop",
                "art",
                1.5,
                "lock-free inner nodes bring 1.5 times the throughput in LOAD"
            ),
            relief!("load", "smart+oop", "art", P50_US, 1.8, "and a p50 that is 1.8 times shorter"),
            relief!("load", "smart+oop", "art", P99_US, 1.4, "and a p99 that is 1.4 times shorter"),
            gain!("b", "smart+in-place", "smart+oop", 1.5, "updates in place bring 1.5 times in B"),
            relief!("b", "smart+in-place", "smart+oop", P50_US, 1.4, "and a p50 that is 1.4 times shorter"),
            relief!("b", "smart+in-place", "smart+oop", P99_US, 1.7, "and a p99 that is 1.7 times shorter"),
            gain!(
                "a",
                "smart+rear-lock",
                "smart+in-place",
                3.0,
                "locks at the leaves' rear bring 3 times in A"
            ),
            relief!(
                "a",
                "smart+rear-lock",
                "smart+in-place",
                P99_US,
                11.3,
                "and a tail that is 11.3 times shorter"
            ),
            gain!("c", "smart+delegation", "smart+rear-lock", 1.1, "read delegation brings 1.1 times in C"),
            relief!(
                "c",
                "smart+delegation",
                "smart+rear-lock",
                P99_US,
                1.3,
                "and a tail that is 1.3 times shorter"
            ),
            gain!("a", "smart", "smart+delegation", 1.1, "write combining brings 1.1 times in A"),
            relief!("a", "smart", "smart+delegation", P99_US, 1.3, "and a tail that is 1.3 times shorter"),
        ],
    },
    Figure {
        name: "smart-fig18a",
        title: "Half updates, with accesses more and less skewed",
        differs: "our ART caches nothing, the paper's does",
        comparisons: |scale| {
            let thetas = [0.5, 0.8, 0.9, 0.99];
            vec![testbed(scale, ALL, &RandInt, &[A]).with_threads(&[256]).with_thetas(&thetas)]
        },
        points: &[],
        claims: &[
            Claim {
                section: "5.4",
                statement: "from 0.5 to 0.99 SMART becomes 2.6 times slower",
                stated: Stated::About(2.6),
                ours: |selection| fall_by_skew(selection, "smart"),
            },
            Claim {
                section: "5.4",
                statement: "and so does ART, 2.6 times",
                stated: Stated::About(2.6),
                ours: |selection| fall_by_skew(selection, "art"),
            },
            Claim {
                section: "5.4",
                statement: "Sherman becomes 7.4 times slower",
                stated: Stated::About(7.4),
                ours: |selection| fall_by_skew(selection, "sherman"),
            },
        ],
    },
    Figure {
        name: "smart-fig18c",
        title: "Searches with values of different sizes",
        differs: "our ART caches nothing, the paper's does",
        comparisons: |scale| {
            let with = |bytes| testbed(scale, ALL, &RandInt, &[C]).with_threads(&[256]).with_values(bytes);
            [8, 64, 256, 1024].map(with).into()
        },
        points: &[],
        claims: &[
            Claim {
                section: "5.4",
                statement: "from 8 to 1024 bytes SMART becomes 3.1 times slower",
                stated: Stated::About(3.1),
                ours: |selection| fall_by_value(selection, "smart"),
            },
            Claim {
                section: "5.4",
                statement: "ART 3.4 times",
                stated: Stated::About(3.4),
                ours: |selection| fall_by_value(selection, "art"),
            },
            Claim {
                section: "5.4",
                statement: "and Sherman 64 times, since it reads whole leaves",
                stated: Stated::About(64.0),
                ours: |selection| fall_by_value(selection, "sherman"),
            },
        ],
    },
];

pub(super) const UNREPRODUCIBLE: &[Unreproducible] = &[
    Unreproducible {
        name: "smart-table1",
        title: "Amplification of reads and writes",
        why: "arithmetic on the formats of leaves, all inner nodes being cached; ours are in docs/",
    },
    Unreproducible {
        name: "smart-fig4a",
        title: "Inserts into ART under its locks",
        why: "the text gives no numbers; dart-table1 shows what the locks cost",
    },
    Unreproducible {
        name: "smart-fig4c",
        title: "Redundant reads and writes",
        why: "of bare verbs on an array, with no index",
    },
    Unreproducible {
        name: "smart-fig13",
        title: "Throughput with more and more clients in workload A",
        why: "it is part of smart-fig11",
    },
    Unreproducible {
        name: "smart-fig16",
        title: "Sherman's locks under SMART",
        why: "SMART's leaves lock themselves here; it has no switch for another kind of lock",
    },
    Unreproducible {
        name: "smart-fig17",
        title: "Hits of the cache by its techniques",
        why: "the cache's index and the nodes' sizes have no switches, and the text gives no numbers",
    },
    Unreproducible {
        name: "smart-fig18b",
        title: "Searches with keys of different lengths",
        why: "no dataset here has long keys of one length; `compare --dataset file:PATH` runs on any",
    },
];
