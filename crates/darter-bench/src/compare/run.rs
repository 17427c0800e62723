//! Runs a comparison: pools, records, warm-ups, rounds that take turns, and what came of each.
//!
//! All indexes run the same operations on the same records under the same counters. A *point* is one choice of cache size, threads,
//! operations in flight and exponent; all points share the pools, and each cache size begins with an index handle whose cache
//! is empty and a warm-up, the same for everyone. Where `load` is measured, each point but for the exponent has pools of its own.

use super::arena::Arena;
use super::args::Comparison;
use super::configuration::Configuration;
use super::entrant::{Entrant, enter};
use super::measurement::{Measurement, relate};
use super::place::Place;
use super::variants::Variant;
use crate::contest::{self, Match};
use crate::datasets::Dataset;
use crate::driver::{Part, Phase};
use crate::report::{Sizes, bytes_text};
use crate::ycsb::Workload;
use crate::{BenchError, Setting, progress};
use indicatif::ProgressBar;

/// Which draw of a workload is the warm-up's; rounds count from 0.
const WARM_UP_RUN: u64 = u64::MAX;

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
        for &threads in &comparison.threads {
            for &in_flight in &comparison.in_flight {
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
            let arena = self.arena(choice.0)?;
            entrants.push(enter(choice.0, arena, first.cache_bytes)?);
        }
        let (loaded, sizes) = (vec![0; entrants.len()], vec![Sizes::default(); entrants.len()]);
        Ok(Field { entrants, loaded, sizes })
    }

    /// An empty pool that holds all records of this index with room to spare.
    fn arena(&self, variant: &Variant) -> Result<Arena, BenchError> {
        let comparison = self.comparison;
        let record = self.dataset.key_bytes_mean() + comparison.value_bytes as u64;
        let records = comparison.records.saturating_add(comparison.fresh_records_max());
        // Each record twice, for what waits to be reclaimed.
        let each = record.saturating_add(64).saturating_mul(2).saturating_add(variant.room);
        let bytes = each.saturating_mul(records).saturating_add((256 << 20) * comparison.memnodes as u64);
        match comparison.pool {
            Place::Local => Arena::local(bytes, comparison.memnodes),
            Place::Tcp => Arena::tcp(bytes, comparison.memnodes, &self.setting.program),
        }
        .map_err(|error| match error {
            BenchError::Store(error) => BenchError::Usage(format!(
                "{} of {} records need a pool of {}: {error}",
                variant.name,
                comparison.records,
                bytes_text(bytes)
            )),
            error => error,
        })
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
            entrant.reopen(point.cache_bytes)?;
            let search = |entrant: &dyn Entrant| -> Result<(), BenchError> {
                if ops > 0 {
                    let progress = progress::bar(&format!("warm {}", entrant.name()), ops);
                    let phase = self.phase(point, &progress);
                    entrant.run(&Phase { ops, loaded, run: WARM_UP_RUN, ..phase })?;
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
                if not_found > 0 {
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
                    pool: comparison.pool.to_string(),
                    memnodes: comparison.memnodes,
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

/// Walks every index: sizes, and whether all keys are there.
fn weigh(field: &mut Field) -> Result<(), BenchError> {
    for ((entrant, sizes), &loaded) in field.entrants.iter().zip(&mut field.sizes).zip(&field.loaded) {
        *sizes = entrant.sizes()?;
        if sizes.keys != loaded {
            let what = format!("a walk finds {} keys where {loaded} were stored", sizes.keys);
            return Err(BenchError::WrongAnswer { index: entrant.name(), what });
        }
    }
    Ok(())
}
