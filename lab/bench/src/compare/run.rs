//! Runs a comparison: creates pools, loads records, warms up, runs rounds, and records the
//! measurements.
//!
//! All indexes run the same operations on the same records under the same counters. A *point* is
//! one choice of cache size, threads, operations in flight and exponent. All points share the
//! pools; each cache size begins with an index handle whose cache is empty, and with the same
//! warm-up for every index. If `load` is measured, points that differ in more than the exponent
//! have separate pools.

use super::args::Comparison;
use super::candidate::{IndexCandidate, open};
use super::configuration::Configuration;
use super::environment::{Environment, OwnMemory, node_bytes};
use super::measurement::{Measurement, relate};
use super::pool_location::PoolLocation;
use super::variants::{Demand, Variant};
use crate::Setting;
use crate::datasets::Dataset;
use crate::rounds::{Case, run_rounds};
use darter_bench::BenchError;
use darter_bench::phase::{Part, Phase};
use darter_bench::progress::Progress;
use darter_bench::report::{Sizes, bytes_text};
use darter_bench::ycsb::Workload;
use darter_fabric::counted;
use darter_model::{Model, ModelSpec};

/// The draw of a workload for the warm-up; rounds count from 0.
const WARM_UP_RUN: u64 = u64::MAX;

/// Bytes of a pool for each memory node and for each client, beyond the records'.
const NODE_ROOM: u64 = 256 << 20;
const CLIENT_ROOM: u64 = 2 << 20;
/// Bytes of a modelled node for each client: a block of the usual size, and the same again.
const BLOCK_ROOM: u64 = 32 << 20;

/// Conditions of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    cache_bytes: u64,
    threads: usize,
    in_flight: usize,
    theta: f64,
}

/// A comparison in progress.
struct Run<'a> {
    comparison: &'a Comparison,
    setting: &'a Setting,
    dataset: &'a dyn Dataset,
    measurements: Vec<Measurement>,
}

/// The indexes under comparison, each on a separate pool.
struct Candidates {
    all: Vec<Box<dyn IndexCandidate>>,
    /// Number of records in each.
    loaded: Vec<u64>,
    /// The result of the last walk of each.
    sizes: Vec<Sizes>,
}

/// Runs a comparison. Measurements come by point, then by workload, then by index; those made until
/// an error come with it.
pub(crate) fn measure(
    comparison: &Comparison,
    setting: &Setting,
    dataset: &dyn Dataset,
) -> (Vec<Measurement>, Result<(), BenchError>) {
    let mut run = Run { comparison, setting, dataset, measurements: Vec::new() };
    let outcome = groups_of_points(comparison).iter().try_for_each(|points| run.run_group(points));
    relate(&mut run.measurements);
    (run.measurements, outcome)
}

/// Returns all points, those together that share pools.
fn groups_of_points(comparison: &Comparison) -> Vec<Vec<Point>> {
    let mut points = Vec::new();
    for cache in &comparison.cache {
        for &threads in &comparison.thread_counts() {
            for &in_flight in &comparison.in_flight_counts() {
                points.extend(comparison.theta.iter().map(|theta| Point {
                    cache_bytes: cache.0,
                    threads,
                    in_flight,
                    theta: theta.0,
                }));
            }
        }
    }
    if comparison.loads_by_inserts() {
        points.chunks(comparison.theta.len()).map(<[Point]>::to_vec).collect()
    } else {
        vec![points]
    }
}

impl Run<'_> {
    /// Runs the points that share pools.
    fn run_group(&mut self, points: &[Point]) -> Result<(), BenchError> {
        let Some(first) = points.first() else { return Ok(()) };
        let mut candidates = self.open(first)?;
        self.load(&mut candidates, first)?;
        for group in points.chunk_by(|one, next| one.cache_bytes == next.cache_bytes) {
            if self.comparison.workloads.iter().any(|&workload| workload != Workload::Load) {
                self.warm_up(&mut candidates, &group[0])?;
            }
            self.run_points(&mut candidates, group)?;
        }
        candidates.all.into_iter().try_for_each(IndexCandidate::close)
    }

    /// Opens every index on an empty pool.
    fn open(&self, first: &Point) -> Result<Candidates, BenchError> {
        let mut all = Vec::new();
        for choice in &self.comparison.indexes {
            let (variant, bytes) = (choice.0, self.pool_bytes(choice.0));
            let candidate = self
                .environment(variant, bytes)
                .and_then(|environment| open(variant, environment, self.demand(first)))
                .map_err(|error| too_large(error, variant, bytes))?;
            all.push(candidate);
        }
        let (loaded, sizes) = (vec![0; all.len()], vec![Sizes::default(); all.len()]);
        Ok(Candidates { all, loaded, sizes })
    }

    fn demand(&self, point: &Point) -> Demand {
        Demand {
            cache_bytes: point.cache_bytes,
            fixed_key: self.dataset.has_integer_keys().then_some(8),
            value_bytes: self.comparison.value_bytes,
        }
    }

    /// Returns the bytes of a pool that holds all records of an index with room to spare.
    fn pool_bytes(&self, variant: &Variant) -> u64 {
        let comparison = self.comparison;
        let record = self.dataset.key_bytes_mean() + comparison.value_bytes as u64;
        // Nothing is reclaimed within a model's milliseconds: all that a phase writes must fit in
        // addition to the existing data.
        let garbage = match comparison.pool.is_modelled() {
            true if comparison.loads_by_inserts() => comparison.records.max(comparison.ops),
            true => comparison.ops,
            false => 0,
        };
        let records =
            comparison.records.saturating_add(comparison.fresh_records_max()).saturating_add(garbage);
        // Each record twice, for memory that waits to be reclaimed.
        let each = record.saturating_add(64).saturating_mul(2).saturating_add(variant.room);
        // Memory that nodes keep and that clients hold. On a modelled cluster all clients request
        // memory at one instant, and each may get a block of every node.
        let nodes = comparison.memory_nodes() as u64;
        let clients = most(&comparison.thread_counts()) * most(&comparison.in_flight_counts());
        let in_hand = if comparison.pool.is_modelled() { BLOCK_ROOM * nodes } else { CLIENT_ROOM };
        let (nodes, clients) = (nodes * NODE_ROOM, clients * in_hand);
        let bytes = each.saturating_mul(records).saturating_add(nodes).saturating_add(clients);
        // Servers put all records on one node until it is full.
        bytes.saturating_mul(if variant.has_server { comparison.memory_nodes() as u64 } else { 1 })
    }

    /// Creates the environment of an index, with a pool of `bytes`.
    fn environment(&self, variant: &Variant, bytes: u64) -> Result<Environment, BenchError> {
        let comparison = self.comparison;
        let nodes = comparison.memory_nodes();
        match &comparison.pool {
            PoolLocation::Local => OwnMemory::local(bytes, nodes).map(Environment::Real),
            PoolLocation::Tcp { is_logged } => {
                let server: &[&str] = if variant.has_server { &["--serve", "xstore"] } else { &[] };
                let own = OwnMemory::tcp((bytes, nodes), &self.setting.program, server, *is_logged);
                own.map(Environment::Real)
            }
            PoolLocation::Model { spec, .. } => {
                // Each point uses the number of threads it needs.
                let spec = ModelSpec {
                    threads: most(&comparison.thread_counts()),
                    coroutines: most(&comparison.in_flight_counts()),
                    memory_bytes: node_bytes(bytes, nodes),
                    ..(**spec).clone()
                };
                Ok(Environment::Modelled(Model::new(&spec).map_err(darter::Error::from)?))
            }
        }
    }

    /// Returns a phase with the settings that all phases share.
    fn phase<'p>(&'p self, point: &Point, progress: &'p Progress) -> Phase<'p> {
        Phase {
            workload: Workload::C,
            dataset: self.dataset,
            loaded: self.comparison.records,
            ops: self.comparison.ops,
            threads: point.threads,
            in_flight: point.in_flight,
            part: Part::WHOLE,
            theta: point.theta,
            value_bytes: self.comparison.value_bytes,
            seed: self.comparison.seed,
            run: 0,
            progress,
        }
    }

    /// Loads the records, by measured inserts or in bulk.
    fn load(&mut self, candidates: &mut Candidates, first: &Point) -> Result<(), BenchError> {
        let records = self.comparison.records;
        if self.comparison.loads_by_inserts() {
            let at_once = (first.threads, first.in_flight);
            let cases = [Case::new(Workload::Load, at_once, first.theta, candidates.all.len())];
            let mut cases = cases.to_vec();
            self.run_cases(candidates, &mut cases, first, 1, records)?;
            for one in &mut cases {
                one.records = records;
            }
            measure_sizes(candidates)?;
            self.record(candidates, &cases, first.cache_bytes, 1);
            return Ok(());
        }
        for (candidate, loaded) in candidates.all.iter().zip(&mut candidates.loaded) {
            let progress = Progress::new(&format!("fill {}", candidate.name()), records, &self.setting.stop);
            candidate.bulk_load(self.dataset, records, self.comparison.value_bytes, &progress)?;
            progress.finish_and_clear();
            *loaded = records;
        }
        measure_sizes(candidates)
    }

    /// Empties the caches, runs searches as workload C does without measuring them, and adjusts the
    /// indexes that can be adjusted.
    fn warm_up(&self, candidates: &mut Candidates, point: &Point) -> Result<(), BenchError> {
        let ops = self.comparison.warm_up_ops();
        for (candidate, &loaded) in candidates.all.iter_mut().zip(&candidates.loaded) {
            candidate.reopen(self.demand(point))?;
            let search = |candidate: &dyn IndexCandidate| -> Result<(), BenchError> {
                if ops > 0 {
                    let progress =
                        Progress::new(&format!("warm {}", candidate.name()), ops, &self.setting.stop);
                    let phase = self.phase(point, &progress);
                    candidate.search(&Phase {
                        ops,
                        loaded,
                        run: WARM_UP_RUN,
                        threads: 1,
                        in_flight: 1,
                        ..phase
                    })?;
                    progress.finish_and_clear();
                }
                Ok(())
            };
            search(&**candidate)?;
            if candidate.adjust()? {
                search(&**candidate)?;
            }
        }
        Ok(())
    }

    /// Runs all workloads at `points`, which share a cache size.
    fn run_points(&mut self, candidates: &mut Candidates, points: &[Point]) -> Result<(), BenchError> {
        let workloads = self.comparison.workloads.iter().filter(|&&workload| workload != Workload::Load);
        for &workload in workloads {
            let mut cases: Vec<Case> = points
                .iter()
                .map(|point| {
                    let at_once = (point.threads, point.in_flight);
                    Case::new(workload, at_once, point.theta, candidates.all.len())
                })
                .collect();
            let rounds = self.comparison.rounds;
            self.run_cases(candidates, &mut cases, &points[0], rounds, self.comparison.ops)?;
            if workload.inserts() {
                measure_sizes(candidates)?;
            }
            self.record(candidates, &cases, points[0].cache_bytes, rounds);
        }
        Ok(())
    }

    fn run_cases(
        &self,
        candidates: &mut Candidates,
        cases: &mut [Case],
        point: &Point,
        rounds: u32,
        ops: u64,
    ) -> Result<(), BenchError> {
        let hidden = Progress::hidden(&self.setting.stop);
        let base = Phase { ops, ..self.phase(point, &hidden) };
        let all: Vec<&dyn IndexCandidate> = candidates.all.iter().map(|candidate| &**candidate).collect();
        run_rounds(&all, cases, rounds, &mut candidates.loaded, &base)?;
        for one in cases {
            for (candidate, outcomes) in all.iter().zip(&one.outcomes) {
                let not_found: u64 = outcomes.iter().map(|outcome| outcome.not_found).sum();
                if not_found > 0 && candidate.keeps() {
                    let what =
                        format!("{} not found in workload {}", counted(not_found, "record"), one.workload);
                    return Err(BenchError::WrongAnswer { index: candidate.name(), what });
                }
            }
        }
        Ok(())
    }

    /// Adds the measurements of `cases`, which have run.
    fn record(&mut self, candidates: &Candidates, cases: &[Case], cache_bytes: u64, rounds: u32) {
        let comparison = self.comparison;
        for one in cases {
            for ((candidate, outcomes), sizes) in
                candidates.all.iter().zip(&one.outcomes).zip(&candidates.sizes)
            {
                let configuration = Configuration {
                    program: env!("CARGO_PKG_VERSION").to_owned(),
                    index: candidate.name().to_owned(),
                    workload: one.workload.name().to_owned(),
                    dataset: comparison.dataset.to_string(),
                    records: comparison.records,
                    ops: comparison.ops,
                    value_bytes: comparison.value_bytes,
                    theta: one.theta,
                    compute_nodes: comparison.pool.compute_nodes(),
                    threads: one.threads,
                    in_flight: one.in_flight,
                    cache_bytes,
                    pool: comparison.pool.canonical(),
                    memnodes: comparison.memory_nodes(),
                    warm_up: comparison.warm_up_ops(),
                    rounds,
                    seed: comparison.seed,
                };
                let sizes = Sizes { cache_used: candidate.cache_used_bytes(), ..*sizes };
                let modelled = comparison.pool.is_modelled();
                let made = Measurement::of(configuration, modelled, one.records, outcomes, sizes);
                self.measurements.extend(made);
            }
        }
    }
}

fn most(counts: &[usize]) -> u64 {
    counts.iter().copied().max().unwrap_or(1) as u64
}

/// Turns a failure to create a pool into a usage error.
fn too_large(error: BenchError, variant: &Variant, bytes: u64) -> BenchError {
    match error {
        BenchError::Store(error) => {
            BenchError::Usage(format!("{} needs a pool of {}: {error}", variant.name, bytes_text(bytes)))
        }
        error => error,
    }
}

/// Measures the size of every index by a walk, which must find all keys.
fn measure_sizes(candidates: &mut Candidates) -> Result<(), BenchError> {
    for ((candidate, sizes), &loaded) in
        candidates.all.iter().zip(&mut candidates.sizes).zip(&candidates.loaded)
    {
        *sizes = candidate.sizes()?;
        if sizes.keys != loaded && candidate.keeps() {
            let what = format!("a walk finds {}, but {loaded} were stored", counted(sizes.keys, "key"));
            return Err(BenchError::WrongAnswer { index: candidate.name(), what });
        }
    }
    Ok(())
}
