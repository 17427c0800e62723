//! Sherman (SIGMOD 2022), by the two pages of its authors' summary: there 1 billion entries of 16
//! bytes, 8 machines that are compute and memory node at once, 176 threads, caches of 500 MB
//! (section 3).

use super::claim::Claim;
use super::figure::{Figure, Unreproducible, modelled};
use super::point::PaperPoint;
use super::quantity::Stated;
use super::selection::{MOPS, P50_US, P99_US};
use crate::compare::Quantity;
use crate::datasets::DatasetSpec::RandInt;
use darter_bench::ycsb::Workload::{A, B};
use darter_model::Preset;

/// The steps from FG with a cache to Sherman.
const STEPS: &[&str] = &["fg+", "fg+combined", "fg+on-chip", "fg+hierarchical", "sherman"];

pub(super) const FIGURES: &[Figure] = &[Figure {
    name: "sherman-fig2",
    title: "Sherman's techniques, one by one, with half and with few writes",
    differs: "writes are updates of keys that are there, where the paper inserts, often over what is there",
    comparisons: |scale| {
        let testbed = modelled(scale, Preset::Sherman, STEPS, &RandInt, &[A, B]);
        vec![testbed.with_caches(&[500 << 20]).with_values(8)]
    },
    points: &[
        PaperPoint {
            section: "1",
            statement: "one-sided trees before it stay below 0.4 Mops with half writes",
            stated: Stated::Below(0.4),
            quantity: Quantity::Throughput,
            unit: 1e6,
            index: "fg+",
            workload: "a",
            at: &[],
        },
        PaperPoint {
            section: "1",
            statement: "with tails of about 20 ms, 20000 µs",
            stated: Stated::About(20_000.0),
            quantity: Quantity::P99,
            unit: 1.0,
            index: "fg+",
            workload: "a",
            at: &[],
        },
    ],
    claims: &[
        Claim {
            section: "3",
            statement: "Sherman is 23.6 times as fast as FG+ with half writes",
            stated: Stated::About(23.6),
            ours: |selection| selection.workload("a").ratios(MOPS, "sherman", &["fg+"]),
        },
        Claim {
            section: "3",
            statement: "FG+'s p50 is 1.4 times as long",
            stated: Stated::About(1.4),
            ours: |selection| selection.workload("a").ratios(P50_US, "fg+", &["sherman"]),
        },
        Claim {
            section: "3",
            statement: "and its p99 30.2 times",
            stated: Stated::About(30.2),
            ours: |selection| selection.workload("a").ratios(P99_US, "fg+", &["sherman"]),
        },
        Claim {
            section: "3",
            statement: "with few writes there is no considerable difference, a factor of 1 or so",
            stated: Stated::About(1.0),
            ours: |selection| selection.workload("b").ratios(MOPS, "sherman", &["fg+"]),
        },
    ],
}];

pub(super) const UNREPRODUCIBLE: &[Unreproducible] =
    &[Unreproducible { name: "sherman-fig1", title: "Architecture", why: "a drawing" }];
