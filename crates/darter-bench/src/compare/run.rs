//! Runs a comparison: pools, records, warm-ups, rounds that take turns, and what came of each.
//!
//! All indexes run the same operations on the same records under the same counters. A *point* is one choice of cache size, threads,
//! operations in flight and exponent; all points share the pools, and each cache size begins with an index handle whose cache
//! is empty and a warm-up, the same for everyone. Where `load` is measured, each point but for the exponent has pools of its own.

use super::arena::{Arena, node_bytes};
use super::args::Comparison;
use super::configuration::Configuration;
use super::entrant::{Entrant, Ground, enter};
use super::measurement::{Measurement, relate};
use super::place::Place;
use super::variants::{Demand, Variant};
use crate::contest::{self, Match};
use crate::datasets::Dataset;
use crate::driver::{Part, Phase};
use crate::report::{Sizes, bytes_text};
use crate::ycsb::Workload;
use crate::{BenchError, Setting, progress};
use darter_fabric::{Model, ModelSpec};
use indicatif::ProgressBar;

/// Which draw of a workload is the warm-up's; rounds count from 0.
const WARM_UP_RUN: u64 = u64::MAX;

/// Bytes of a pool for each memory node and for each client, beyond the records'.
const NODE_ROOM: u64 = 256 << 20;
const CLIENT_ROOM: u64 = 2 << 20;
/// Bytes of a modelled node for each client: a block of the usual size, and as much again.
const BLOCK_ROOM: u64 = 32 << 20;

/// Conditions of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    cache_bytes: u64,
    threads: usize,
    in_flight: usize,
    theta: f64,
}

/// A comparison under way.
struct Run<'a> {
    comparison: &'a Comparison,
    setting: &'a Setting,
    dataset: &'a dyn Dataset,
    measurements: Vec<Measurement>,
}

/// Entrants of one set of pools.
struct Field {
    entrants: Vec<Box<dyn Entrant>>,
    /// Records that each has.
    loaded: Vec<u64>,
    /// By the last walk of each.
    sizes: Vec<Sizes>,
}

/// Runs a comparison. Measurements come by point, then by workload, then by index.
pub(crate) fn measure(
    comparison: &Comparison,
    setting: &Setting,
    dataset: &dyn Dataset,
) -> Result<Vec<Measurement>, BenchError> {
    let mut run = Run { comparison, setting, dataset, measurements: Vec::new() };
    for stage in stages(comparison) {
        run.stage(&stage)?;
    }
    relate(&mut run.measurements);
    Ok(run.measurements)
}

/// Points that share pools.
fn stages(comparison: &Comparison) -> Vec<Vec<Point>> {
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
    fn stage(&mut self, points: &[Point]) -> Result<(), BenchError> {
        let Some(first) = points.first() else { return Ok(()) };
        let mut field = self.enter(first)?;
        self.load(&mut field, first)?;
        for group in points.chunk_by(|one, next| one.cache_bytes == next.cache_bytes) {
            if self.comparison.workloads.iter().any(|&workload| workload != Workload::Load) {
                self.warm_up(&mut field, &group[0])?;
            }
            self.group(&mut field, group)?;
        }
        field.entrants.into_iter().try_for_each(Entrant::leave)
    }

    fn enter(&self, first: &Point) -> Result<Field, BenchError> {
        let mut entrants = Vec::new();
        for choice in &self.comparison.indexes {
            let (variant, bytes) = (choice.0, self.pool_bytes(choice.0));
            let entered = self
                .ground(bytes)
                .and_then(|ground| enter(variant, ground, self.demand(first)))
                .map_err(|error| too_large(error, variant, bytes))?;
            entrants.push(entered);
        }
        let (loaded, sizes) = (vec![0; entrants.len()], vec![Sizes::default(); entrants.len()]);
        Ok(Field { entrants, loaded, sizes })
    }

    fn demand(&self, point: &Point) -> Demand {
        Demand {
            cache_bytes: point.cache_bytes,
            fixed_key: self.dataset.has_integer_keys().then_some(8),
            value_bytes: self.comparison.value_bytes,
        }
    }

    /// Bytes of a pool that holds all records of an index with room to spare.
    fn pool_bytes(&self, variant: &Variant) -> u64 {
        let comparison = self.comparison;
        let record = self.dataset.key_bytes_mean() + comparison.value_bytes as u64;
        // In a model's milliseconds nothing is reclaimed: what one phase writes has to fit beside what there is.
        let garbage = match comparison.pool.is_modelled() {
            true if comparison.loads_by_inserts() => comparison.records.max(comparison.ops),
            true => comparison.ops,
            false => 0,
        };
        let records =
            comparison.records.saturating_add(comparison.fresh_records_max()).saturating_add(garbage);
        // Each record twice, for what waits to be reclaimed.
        let each = record.saturating_add(64).saturating_mul(2).saturating_add(variant.room);
        // What nodes keep and what clients have in hand. On a modelled cluster all clients ask at one instant, and each may come
        // away with a block of every node.
        let nodes = comparison.memory_nodes() as u64;
        let clients = most(&comparison.thread_counts()) * most(&comparison.in_flight_counts());
        let in_hand = if comparison.pool.is_modelled() { BLOCK_ROOM * nodes } else { CLIENT_ROOM };
        let (nodes, clients) = (nodes * NODE_ROOM, clients * in_hand);
        each.saturating_mul(records).saturating_add(nodes).saturating_add(clients)
    }

    /// Where an index will have a pool of so many bytes to itself.
    fn ground(&self, bytes: u64) -> Result<Ground, BenchError> {
        let comparison = self.comparison;
        let nodes = comparison.memory_nodes();
        match &comparison.pool {
            Place::Local => Arena::local(bytes, nodes).map(Ground::Real),
            Place::Tcp => Arena::tcp(bytes, nodes, &self.setting.program).map(Ground::Real),
            Place::Sim { spec, .. } => {
                // Points use as many of the threads as they ask for.
                let spec = ModelSpec {
                    threads: most(&comparison.thread_counts()),
                    coroutines: most(&comparison.in_flight_counts()),
                    memory_bytes: node_bytes(bytes, nodes),
                    ..(**spec).clone()
                };
                Ok(Ground::Modelled(Model::new(&spec).map_err(darter::Error::from)?))
            }
        }
    }

    /// A phase with what all have in common.
    fn phase<'p>(&'p self, point: &Point, progress: &'p ProgressBar) -> Phase<'p> {
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

    /// Brings the records in: by measured inserts or by bulk load.
    fn load(&mut self, field: &mut Field, first: &Point) -> Result<(), BenchError> {
        let records = self.comparison.records;
        if self.comparison.loads_by_inserts() {
            let at_once = (first.threads, first.in_flight);
            let matches = [Match::new(Workload::Load, at_once, first.theta, field.entrants.len())];
            let mut matches = matches.to_vec();
            self.play(field, &mut matches, first, 1, records)?;
            for one in &mut matches {
                one.records = records;
            }
            weigh(field)?;
            self.record(field, &matches, first.cache_bytes, 1);
            return Ok(());
        }
        for (entrant, loaded) in field.entrants.iter().zip(&mut field.loaded) {
            let progress = progress::bar(&format!("fill {}", entrant.name()), records);
            entrant.bulk_load(self.dataset, records, self.comparison.value_bytes, &progress)?;
            progress.finish_and_clear();
            *loaded = records;
        }
        weigh(field)
    }

    /// Begins with empty caches, searches as workload C does, unmeasured, and has those adjust that can.
    fn warm_up(&self, field: &mut Field, point: &Point) -> Result<(), BenchError> {
        let ops = self.comparison.warm_up_ops();
        for (entrant, &loaded) in field.entrants.iter_mut().zip(&field.loaded) {
            entrant.reopen(self.demand(point))?;
            let search = |entrant: &dyn Entrant| -> Result<(), BenchError> {
                if ops > 0 {
                    let progress = progress::bar(&format!("warm {}", entrant.name()), ops);
                    let phase = self.phase(point, &progress);
                    entrant.search(&Phase {
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
            search(&**entrant)?;
            if entrant.adjust()? {
                search(&**entrant)?;
            }
        }
        Ok(())
    }

    /// Plays all workloads under the conditions of points that share a cache size.
    fn group(&mut self, field: &mut Field, points: &[Point]) -> Result<(), BenchError> {
        let workloads = self.comparison.workloads.iter().filter(|&&workload| workload != Workload::Load);
        for &workload in workloads {
            let mut matches: Vec<Match> = points
                .iter()
                .map(|point| {
                    let at_once = (point.threads, point.in_flight);
                    Match::new(workload, at_once, point.theta, field.entrants.len())
                })
                .collect();
            let rounds = self.comparison.rounds;
            self.play(field, &mut matches, &points[0], rounds, self.comparison.ops)?;
            if workload.inserts() {
                weigh(field)?;
            }
            self.record(field, &matches, points[0].cache_bytes, rounds);
        }
        Ok(())
    }

    fn play(
        &self,
        field: &mut Field,
        matches: &mut [Match],
        point: &Point,
        rounds: u32,
        ops: u64,
    ) -> Result<(), BenchError> {
        let hidden = ProgressBar::hidden();
        let base = Phase { ops, ..self.phase(point, &hidden) };
        let contenders: Vec<&dyn Entrant> = field.entrants.iter().map(|entrant| &**entrant).collect();
        contest::play(&contenders, matches, rounds, &mut field.loaded, &base)?;
        for one in matches {
            for (contender, outcomes) in contenders.iter().zip(&one.outcomes) {
                let not_found: u64 = outcomes.iter().map(|outcome| outcome.not_found).sum();
                if not_found > 0 && contender.keeps() {
                    let what = format!("{not_found} records were not found in workload {}", one.workload);
                    return Err(BenchError::WrongAnswer { index: contender.name(), what });
                }
            }
        }
        Ok(())
    }

    /// Makes measurements of matches that were played.
    fn record(&mut self, field: &Field, matches: &[Match], cache_bytes: u64, rounds: u32) {
        let comparison = self.comparison;
        for one in matches {
            for ((entrant, outcomes), sizes) in field.entrants.iter().zip(&one.outcomes).zip(&field.sizes) {
                let configuration = Configuration {
                    program: env!("CARGO_PKG_VERSION").to_owned(),
                    index: entrant.name().to_owned(),
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
                let sizes = Sizes { cache_used: entrant.cache_used_bytes(), ..*sizes };
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

/// A pool that cannot be had is a matter of the arguments.
fn too_large(error: BenchError, variant: &Variant, bytes: u64) -> BenchError {
    match error {
        BenchError::Store(error) => {
            BenchError::Usage(format!("{} needs a pool of {}: {error}", variant.name, bytes_text(bytes)))
        }
        error => error,
    }
}

/// Walks every index: sizes, and whether all keys are there.
fn weigh(field: &mut Field) -> Result<(), BenchError> {
    for ((entrant, sizes), &loaded) in field.entrants.iter().zip(&mut field.sizes).zip(&field.loaded) {
        *sizes = entrant.sizes()?;
        if sizes.keys != loaded && entrant.keeps() {
            let what = format!("a walk finds {} keys where {loaded} were stored", sizes.keys);
            return Err(BenchError::WrongAnswer { index: entrant.name(), what });
        }
    }
    Ok(())
}
