//! XStore (OSDI 2020): figures, and the numbers that the text gives. There: 100 M keys and values of
//! 8 bytes, one server with two NICs of 100 Gbit/s and 24 cores, 15 client machines, 500 thousand
//! sub-models of 200 keys (sections 7 and 7.1). DrTM-Tree, a server that is called for everything, is
//! `xstore+server` here; Cell, which caches the upper levels of the tree, is `xstore+levels`; a cache
//! of all inner nodes, the paper's optimum, is `xstore+whole`. eRPC with Masstree is not here.

use super::claim::Claim;
use super::figure::{Figure, Scale, Unreproducible, counts, modelled};
use super::point::{At, PaperPoint};
use super::quantity::{Span, Stated};
use super::selection::{CACHE_USED, MOPS, P50_US, Selection};
use crate::compare::{Comparison, PoolLocation, Quantity};
use crate::datasets::DatasetSpec::{self, Dense, RandInt};
use darter_bench::ycsb::Workload::{self, A, B, C, D, E, F};
use darter_model::Preset;

const ALL: &[&str] = &["xstore", "xstore+server", "xstore+levels", "xstore+whole"];
const SERVER: &[&str] = &["xstore+server"];
/// The other systems of figure 10, except its optimum.
const OTHERS: &[&str] = &["xstore+server", "xstore+levels"];
const WITHOUT_MODELS: &[&str] = &["xstore+server", "xstore+levels", "xstore+whole"];
/// A cache that holds all models and tables.
const CACHE: u64 = 256 << 20;
const VALUE_BYTES: usize = 8;
/// Client threads of the whole testbed.
const CLIENTS: usize = 360;
const TOP_MODEL_BYTES: u64 = 16;
/// Keys of a sub-model, as XStore trains them.
const KEYS_EACH: u64 = 200;
/// Searches of each client machine before the measurement, for each ten records, enough to nearly
/// fill the cache.
const WARM_UP_TENTHS: u64 = 4;

const SKEWS: &[f64] = &[0.0, 0.99];

/// On XStore's testbed with its values, and caches that are filled.
fn testbed(scale: &Scale, indexes: &[&str], dataset: &DatasetSpec, workloads: &[Workload]) -> Comparison {
    let all = modelled(scale, Preset::XStore, indexes, dataset, workloads);
    let warm_up = Some(scale.records * WARM_UP_TENTHS / 10);
    Comparison { warm_up, ..all }.with_caches(&[CACHE]).with_values(VALUE_BYTES)
}

/// With one operation of one client in flight.
fn alone(comparison: Comparison) -> Comparison {
    Comparison { in_flight: vec![1], ..comparison }.with_threads(&[1])
}

/// Bytes of the top model and all sub-models of `records` records.
fn models_bytes(records: u64) -> u64 {
    TOP_MODEL_BYTES + 14 * records.div_ceil(KEYS_EACH)
}

/// A throughput under these conditions, with all clients at work.
macro_rules! mops {
    ($section:literal, $index:literal, $workload:literal, $theta:literal, $said:literal, $statement:literal) => {
        PaperPoint {
            section: $section,
            statement: $statement,
            stated: Stated::About($said),
            quantity: Quantity::Throughput,
            unit: 1e6,
            index: $index,
            workload: $workload,
            at: &[At::Threads(CLIENTS), At::Theta($theta)],
        }
    };
}

/// XStore's throughput in relation to another's.
macro_rules! times {
    ($workload:literal, $theta:literal, $other:literal, $said:literal, $statement:literal) => {
        Claim {
            section: "7.2",
            statement: $statement,
            stated: Stated::About($said),
            ours: |selection| selection.workload($workload).theta($theta).ratios(MOPS, "xstore", &[$other]),
        }
    };
}

/// XStore's throughput in relation to the others', the least and the most.
macro_rules! between {
    ($workload:literal, $theta:literal, $least:literal, $most:literal, $statement:literal) => {
        Claim {
            section: "7.2",
            statement: $statement,
            stated: Stated::Between($least, $most),
            ours: |selection| selection.workload($workload).theta($theta).ratios(MOPS, "xstore", OTHERS),
        }
    };
}

/// The share of the optimum that a cache of some size leaves.
macro_rules! share {
    ($theta:literal, $said:literal, $statement:literal) => {
        Claim {
            section: "7.6",
            statement: $statement,
            stated: Stated::About($said),
            ours: |selection| with_models(selection).theta($theta).ratios(MOPS, "xstore", &["xstore+whole"]),
        }
    };
}

/// The measurements with a cache of all sub-models and no tables: the one in the middle.
fn with_models<'a>(selection: &Selection<'a>) -> Selection<'a> {
    let sizes = selection.cache_sizes();
    sizes.get(1).map_or_else(|| selection.cache(0), |&bytes| selection.cache(bytes))
}

/// The share of the throughput of reads that remains with inserts.
fn left_by_inserts(selection: &Selection<'_>) -> Option<Span> {
    let peak = |workload| selection.index("xstore").workload(workload).peak(MOPS);
    Some(Span::one(peak("d")? / peak("c")?))
}

/// Memory nodes of this machine, without logs and with them, and many operations in flight.
fn with_and_without_logs(scale: &Scale) -> Vec<Comparison> {
    let on = |is_logged| Comparison {
        pool: PoolLocation::Tcp { is_logged },
        in_flight: vec![64],
        ..counts(scale, &["xstore"], &Dense, &[A, B, C, F])
            .with_caches(&[CACHE])
            .with_values(VALUE_BYTES)
            .with_thetas(&[0.0])
    };
    let random = |is_logged| Comparison { dataset: RandInt, workloads: vec![D, E], ..on(is_logged) };
    [false, true].into_iter().flat_map(|is_logged| [on(is_logged), random(is_logged)]).collect()
}

/// The share of a workload's throughput that remains with a log.
fn left_by_logs(selection: &Selection<'_>, workload: &str) -> Option<Span> {
    let peak = |pool| selection.workload(workload).pool(pool).peak(MOPS);
    Some(Span::one(peak("tcp:log")? / peak("tcp")?))
}

/// What the log leaves of a workload's throughput, of Table 3's numbers.
macro_rules! left {
    ($workload:literal, $said:literal, $statement:literal) => {
        Claim {
            section: "7.8, Table 3",
            statement: $statement,
            stated: Stated::About($said),
            ours: |selection| left_by_logs(selection, $workload),
        }
    };
}

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "xstore-fig2",
        title: "A server that is called, and trees that clients read",
        differs: "what a look-up costs the processors is the same for all; a cached tree is not invalidated by splits, but \
                  grows stale; the client that caches no node is not here",
        comparisons: |scale| {
            vec![
                testbed(scale, WITHOUT_MODELS, &Dense, &[C]).with_thetas(&[0.0]),
                testbed(scale, WITHOUT_MODELS, &RandInt, &[D]).with_thetas(&[0.0]),
                alone(testbed(scale, WITHOUT_MODELS, &Dense, &[C]).with_thetas(&[0.0])),
            ]
        },
        points: &[
            mops!(
                "3",
                "xstore+server",
                "c",
                0.0,
                24.0,
                "a server that is called handles 24 M requests a second"
            ),
            mops!("3", "xstore+levels", "c", 0.0, 14.5, "clients that cache upper levels reach 14.5 M"),
            mops!("3", "xstore+whole", "c", 0.0, 78.0, "clients that cache all inner nodes reach 78 M"),
            mops!("3", "xstore+whole", "d", 0.0, 25.0, "with 5% inserts those fall to 25 M"),
        ],
        claims: &[
            Claim {
                section: "3",
                statement: "clients that cache all inner nodes have 3.3 times the server's throughput",
                stated: Stated::About(3.3),
                ours: |selection| {
                    selection.workload("c").threads(CLIENTS).ratios(MOPS, "xstore+whole", SERVER)
                },
            },
            Claim {
                section: "3",
                statement: "one such client alone has a median latency 80% above the server's, a factor of 1.8",
                stated: Stated::About(1.8),
                ours: |selection| selection.threads(1).ratios(P50_US, "xstore+whole", SERVER),
            },
        ],
    },
    Figure {
        name: "xstore-fig10",
        title: "Throughput in the YCSB workloads",
        differs: "eRPC with Masstree and RDMA-Memcached are not here; keys of D and E are random, where the paper's are \
                  nearly a line; a call takes its core as long whatever is asked",
        comparisons: |scale| {
            vec![
                testbed(scale, ALL, &Dense, &[C, A, B, F]).with_thetas(SKEWS),
                testbed(scale, ALL, &RandInt, &[D, E]).with_thetas(SKEWS),
            ]
        },
        points: &[
            mops!("7.2", "xstore", "c", 0.0, 82.0, "uniform, XStore reads 82 M times a second"),
            mops!("7.8, Table 3", "xstore", "a", 0.0, 41.0, "A runs at 41 M operations a second"),
            mops!("7.8, Table 3", "xstore", "b", 0.0, 80.0, "B at 80 M"),
            mops!("7.8, Table 3", "xstore", "d", 0.0, 53.0, "D at 53 M"),
            mops!("7.2", "xstore", "d", 0.99, 48.0, "D with reads of the latest at 48 M"),
            mops!("7.8, Table 3", "xstore", "e", 0.0, 10.2, "E at 10.2 M"),
            mops!("7.8, Table 3", "xstore", "f", 0.0, 36.0, "F at 36 M"),
        ],
        claims: &[
            times!(
                "c",
                0.0,
                "xstore+server",
                3.7,
                "uniform, XStore has 3.7 times the throughput of DrTM-Tree in C"
            ),
            times!("c", 0.0, "xstore+levels", 5.9, "and 5.9 times Cell"),
            times!("c", 0.99, "xstore+server", 2.5, "under Zipf's law 2.5 times DrTM-Tree"),
            times!("c", 0.99, "xstore+levels", 4.6, "and 4.6 times Cell"),
            Claim {
                section: "7.2",
                statement: "there XStore is 18% slower, a factor of 0.82",
                stated: Stated::About(0.82),
                ours: |selection| {
                    let peak = |theta| selection.index("xstore").workload("c").theta(theta).peak(MOPS);
                    Some(Span::one(peak(0.99)? / peak(0.0)?))
                },
            },
            between!(
                "a",
                0.0,
                1.5,
                2.2,
                "with half updates XStore has 1.5 to 2.2 times the others' throughput"
            ),
            between!("a", 0.99, 2.0, 2.3, "under Zipf's law 2 to 2.3 times"),
            between!("b", 0.0, 3.1, 5.3, "with few updates 3.1 to 5.3 times"),
            between!("d", 0.0, 2.7, 3.5, "with inserts and uniform reads 2.7 to 3.5 times"),
            between!("d", 0.99, 1.9, 3.2, "with reads of the latest 1.9 to 3.2 times"),
            between!("e", 0.0, 1.4, 1.8, "in scans 1.4 to 1.8 times"),
        ],
    },
    Figure {
        name: "xstore-fig11",
        title: "Reads beside inserts, uniform and of the latest",
        differs: "throughput over the whole run, not a line of time; keys are random, where the paper's are nearly a line; a \
                  cached tree is not invalidated by splits, but grows stale",
        comparisons: |scale| {
            vec![testbed(scale, &["xstore", "xstore+whole"], &RandInt, &[D]).with_thetas(SKEWS)]
        },
        points: &[
            mops!("7.2", "xstore", "d", 0.0, 53.0, "XStore keeps 53 M with uniform reads"),
            mops!("7.2", "xstore", "d", 0.99, 48.0, "and 48 M with reads of the latest"),
            mops!("7.2", "xstore+whole", "d", 0.0, 25.0, "a cache of the whole tree 25 M"),
        ],
        claims: &[],
    },
    Figure {
        name: "xstore-fig12",
        title: "Throughput and latency of uniform reads, with more and more clients",
        differs: "a look-up costs the clients' processors the same in all of them; a call takes its core 1 µs, so the server \
                  has 24 M and not 20 M",
        comparisons: |scale| {
            let all = testbed(scale, ALL, &Dense, &[C]).with_thetas(&[0.0]);
            vec![alone(all.clone()), all.with_threads(&[15, 45, 90, 180, CLIENTS])]
        },
        points: &[
            mops!("7.2", "xstore+server", "c", 0.0, 20.0, "a server that is called has its limit at 20 M"),
            mops!("7.2", "xstore", "c", 0.0, 82.0, "XStore reaches 82 M"),
            PaperPoint {
                section: "7.2",
                statement: "with a median latency of 16 µs",
                stated: Stated::About(16.0),
                quantity: Quantity::P50,
                unit: 1.0,
                index: "xstore",
                workload: "c",
                at: &[At::Threads(CLIENTS)],
            },
        ],
        claims: &[Claim {
            section: "7.2",
            statement: "alone, one call is faster than two READs: below 1 times the latency",
            stated: Stated::Below(1.0),
            ours: |selection| selection.threads(1).ratios(P50_US, "xstore+server", &["xstore"]),
        }],
    },
    Figure {
        name: "xstore-fig14",
        title: "What inserts cost the reads",
        differs: "one pair of rates, with the share of inserts that D has; training takes no core; keys are random, where \
                  the paper's are nearly a line. That a sub-model of 200 keys trains in 8 µs, and how expansion goes, needs \
                  a real clock",
        comparisons: |scale| vec![testbed(scale, &["xstore"], &RandInt, &[C, D]).with_thetas(&[0.0])],
        points: &[mops!(
            "7.5",
            "xstore",
            "c",
            0.0,
            61.0,
            "without inserts XStore reads 61 M times a second on such keys"
        )],
        claims: &[Claim {
            section: "7.5",
            statement: "inserts cost 13% with two threads that train, a factor of 0.87",
            stated: Stated::About(0.87),
            ours: left_by_inserts,
        }],
    },
    Figure {
        name: "xstore-table3",
        title: "Throughput with a log on disk, and without",
        differs: "a node on this machine, its server and one client thread share its cores; answers wait for the log here, \
                  where the paper's are sent before it is written, so it costs what the disk takes for a sync (TMPDIR says \
                  which disk)",
        comparisons: with_and_without_logs,
        points: &[],
        claims: &[
            left!("a", 0.76, "logs leave 31 of 41 M in A, a factor of 0.76"),
            left!("b", 0.97, "78 of 80 M in B, a factor of 0.97"),
            left!("c", 1.0, "82 of 82 M in C, a factor of 1"),
            left!("d", 0.96, "51 of 53 M in D, a factor of 0.96"),
            left!("e", 0.97, "9.9 of 10.2 M in E, a factor of 0.97"),
            left!("f", 0.92, "33 of 36 M in F, a factor of 0.92"),
        ],
    },
    Figure {
        name: "xstore-fig15",
        title: "Reads with caches of different sizes",
        differs: "three sizes: the top model alone, all sub-models, everything; OSM's keys are not here, and neither are \
                  more sub-models",
        comparisons: |scale| {
            let caches = [TOP_MODEL_BYTES, models_bytes(scale.records), CACHE];
            let all = testbed(scale, &["xstore", "xstore+whole"], &Dense, &[C]);
            vec![all.with_caches(&caches).with_thetas(SKEWS)]
        },
        points: &[PaperPoint {
            section: "7.6",
            statement: "the top model alone gives about 40 M",
            stated: Stated::About(40.0),
            quantity: Quantity::Throughput,
            unit: 1e6,
            index: "xstore",
            workload: "c",
            at: &[At::CacheBytes(TOP_MODEL_BYTES), At::Theta(0.0)],
        }],
        claims: &[
            share!(0.0, 0.74, "sub-models alone give 74% of the optimum, a factor of 0.74"),
            share!(0.99, 0.87, "under Zipf's law 87%, a factor of 0.87"),
            Claim {
                section: "7.6",
                statement: "sub-models take 1% of the memory of all inner nodes, a factor of 0.01",
                stated: Stated::About(0.01),
                ours: |selection| {
                    let models = with_models(selection).theta(0.0);
                    models.ratios(CACHE_USED, "xstore", &["xstore+whole"])
                },
            },
        ],
    },
];

pub(super) const UNREPRODUCIBLE: &[Unreproducible] = &[
    Unreproducible {
        name: "xstore-fig13",
        title: "Production traces, and more servers",
        why: "the traces are not public, and one server keeps an index here",
    },
    Unreproducible {
        name: "xstore-fig16",
        title: "Values behind pointers, and TPC-C",
        why: "TPC-C needs transactions, which are missing here",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_of_sub_models_is_that_of_the_text() {
        // 500 thousand sub-models.
        assert_eq!(models_bytes(100_000_000), 7_000_016);
        assert_eq!(models_bytes(1), 30);
    }
}
