//! A figure or table of a paper: the runs that reproduce it, and the numbers that its text gives.

use super::claim::Claim;
use super::point::PaperPoint;
use crate::compare::{Comparison, IndexChoice, PoolLocation, Theta};
use crate::datasets::DatasetSpec;
use darter::ByteSize;
use darter_bench::ycsb::Workload;
use darter_model::ModelSpec;
use darter_model::Preset;

/// The scale at which a figure is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) records: u64,
    pub(crate) ops: u64,
    pub(crate) rounds: u32,
    pub(crate) seed: u64,
}

/// A figure or table that can be reproduced here.
pub(crate) struct Figure {
    /// The name on the command line: the paper and the figure.
    pub(crate) name: &'static str,
    /// What it shows.
    pub(crate) title: &'static str,
    /// How this run differs from the paper's, in addition to the scale.
    pub(crate) differs: &'static str,
    /// The runs.
    pub(crate) comparisons: fn(&Scale) -> Vec<Comparison>,
    /// The points of its plots that the text or a table states.
    pub(crate) points: &'static [PaperPoint],
    /// The other numbers that the text gives.
    pub(crate) claims: &'static [Claim],
}

/// A figure that cannot be reproduced here.
pub(crate) struct Unreproducible {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) why: &'static str,
}

/// Variants by name.
fn choose(names: &[&str]) -> Vec<IndexChoice> {
    let known = |name: &&str| name.parse().unwrap_or_else(|error| unreachable!("{name}: {error}"));
    names.iter().map(known).collect()
}

/// Bytes of a cache that holds the share of these records' index that 1 MB holds of 60 M records'
/// (DART, section 5.1).
fn shrunk_cache(records: u64) -> u64 {
    (records as f64 / 60e6 * f64::from(1 << 20)) as u64
}

/// Counts on one thread, in this process, which are the same on any fabric.
pub(crate) fn counts(
    scale: &Scale,
    indexes: &[&str],
    dataset: &DatasetSpec,
    workloads: &[Workload],
) -> Comparison {
    Comparison {
        indexes: choose(indexes),
        workloads: workloads.to_vec(),
        dataset: dataset.clone(),
        records: scale.records,
        ops: scale.ops,
        rounds: scale.rounds,
        seed: scale.seed,
        cache: vec![ByteSize(shrunk_cache(scale.records))],
        ..Comparison::default()
    }
}

/// Times and counts on a paper's testbed, modelled.
pub(crate) fn modelled(
    scale: &Scale,
    preset: Preset,
    indexes: &[&str],
    dataset: &DatasetSpec,
    workloads: &[Workload],
) -> Comparison {
    let asked = format!("preset={}", preset.name());
    let pool = PoolLocation::Model { asked, spec: Box::new(ModelSpec::preset(preset)) };
    Comparison { pool, ..counts(scale, indexes, dataset, workloads) }
}

impl Comparison {
    /// Returns the scale with these thread counts.
    pub(crate) fn with_threads(self, threads: &[usize]) -> Self {
        Self { threads: threads.to_vec(), ..self }
    }

    /// Returns the scale with caches of these sizes, in bytes.
    pub(crate) fn with_caches(self, caches: &[u64]) -> Self {
        Self { cache: caches.iter().map(|&bytes| ByteSize(bytes)).collect(), ..self }
    }

    /// Returns the scale with these exponents.
    pub(crate) fn with_thetas(self, thetas: &[f64]) -> Self {
        Self { theta: thetas.iter().map(|&theta| Theta(theta)).collect(), ..self }
    }

    /// Returns the scale with values of this size, in bytes.
    pub(crate) fn with_values(self, value_bytes: usize) -> Self {
        Self { value_bytes, ..self }
    }
}
