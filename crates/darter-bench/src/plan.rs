//! The settings of a benchmark, fixed before it begins: keys, number of records, pool and phases.

use crate::args::{PrefixList, RunArgs};
use crate::bench_target::{BenchTarget, TargetWork};
use crate::datasets::{Dataset, KeySource};
use crate::driver::run_phase;
use crate::phase::{Part, Phase};
use crate::progress::Progress;
use crate::report::{WorkloadReport, bytes_text};
use crate::ycsb::Workload;
use crate::{BenchError, Setting};
use darter::{ByteSize, PoolUrl};
use darter_fabric::counted;

/// Records to load, unless the arguments or the dataset give a number.
const RECORDS_DEFAULT: u64 = 1_000_000;
/// Number of the warm-up's draw of a workload; rounds count from 0.
const WARM_UP_RUN: u64 = u64::MAX;

/// The properties of an index that a run needs before it opens the index.
#[derive(Clone, Copy, Debug)]
pub struct IndexTraits {
    /// The name on the command line and in tables.
    pub name: &'static str,
    /// Most bytes of pool that a record can take beyond its key and value. It sizes the pools.
    pub room: u64,
    /// Whether the index keeps all records; an index without locks may lose writes.
    pub keeps: bool,
    /// Whether it needs a server in addition to the memory.
    pub has_server: bool,
}

/// A run as given on a program's command line: the index and the keys, by the names that the
/// program uses, and how the index is opened.
pub trait Benchmark {
    /// Returns the arguments of the run.
    fn args(&self) -> &RunArgs;

    /// Returns the index.
    fn index(&self) -> IndexTraits;

    /// Returns the keys.
    fn keys(&self) -> &dyn KeySource;

    /// Opens the plan's pool with the index and does the work on it. `create` creates a pool on
    /// memory nodes that hold none.
    ///
    /// # Errors
    /// Fails if the pool or the index cannot be opened, or the work fails.
    fn with_target<W: TargetWork>(
        &self,
        plan: &Plan<'_>,
        create: bool,
        work: W,
    ) -> Result<W::Output, BenchError>;
}

/// The complete settings of a run.
pub struct Plan<'a> {
    /// The arguments.
    pub args: &'a RunArgs,
    /// The program that runs the benchmark.
    pub setting: &'a Setting,
    /// The index.
    pub index: IndexTraits,
    /// The name of the keys.
    pub keys: String,
    /// The keys.
    pub dataset: Box<dyn Dataset>,
    /// Records to load.
    pub records: u64,
    /// The pool to load them into.
    pub pool: PoolUrl,
}

impl<'a> Plan<'a> {
    /// Prepares the keys and chooses the settings that the arguments leave open. Each workload will
    /// run `rounds` times.
    ///
    /// # Errors
    /// Fails if the arguments cannot be met.
    pub fn new(benchmark: &'a impl Benchmark, setting: &'a Setting, rounds: u32) -> Result<Self, BenchError> {
        let (args, index, keys) = (benchmark.args(), benchmark.index(), benchmark.keys());
        args.validate(index.has_server)?;
        let dataset = keys.open(args.seed)?;
        let fresh = args.fresh_records_max(rounds);
        let room = dataset.capacity().saturating_sub(fresh);
        let unasked = if keys.is_file() { room } else { RECORDS_DEFAULT };
        let records = args.records.unwrap_or(unasked);
        if records == 0 || records > room {
            return Err(BenchError::Usage(format!(
                "{} has {} keys and the workloads may insert {fresh}, which leaves {room} to load; use fewer --records or \
                 --ops, or leave out d and e",
                keys,
                dataset.capacity()
            )));
        }
        let pool = match &args.pool {
            Some(pool) => pool.clone(),
            None => memory_pool(&*dataset, records.saturating_add(fresh), args.value_size, index.room)?,
        };
        Ok(Self { args, setting, index, keys: keys.to_string(), dataset, records, pool })
    }

    /// Rejects a pool that holds keys or cannot hold the records, before memory is spent on keys.
    ///
    /// # Errors
    /// Fails if the pool is unsuitable or fails.
    pub fn accept(&self, target: &impl BenchTarget) -> Result<(), BenchError> {
        if target.holds_keys()? {
            return Err(BenchError::Usage(format!(
                "the pool {} holds keys already; a benchmark needs an empty pool, and leaves its keys in it",
                self.pool
            )));
        }
        let pool_bytes = target.usage()?.bytes();
        let least = record_bytes(&*self.dataset, self.args.value_size).saturating_mul(self.records);
        if least > pool_bytes {
            return Err(BenchError::Usage(format!(
                "{} records of this size need more than {}, and the pool {} has {}; use fewer --records or a larger \
                 pool",
                self.records,
                bytes_text(least),
                self.pool,
                bytes_text(pool_bytes)
            )));
        }
        Ok(())
    }

    /// Returns a phase of `workload`.
    pub fn phase<'p>(
        &'p self,
        workload: Workload,
        (threads, in_flight): (usize, usize),
        loaded: u64,
        progress: &'p Progress,
    ) -> Phase<'p> {
        let load = workload == Workload::Load;
        Phase {
            workload,
            dataset: &*self.dataset,
            loaded: if load { 0 } else { loaded },
            ops: if load { self.records } else { self.args.ops },
            threads,
            in_flight,
            part: Part::WHOLE,
            theta: self.args.theta,
            value_bytes: self.args.value_size,
            seed: self.args.seed,
            run: 0,
            progress,
        }
    }

    /// Returns a report with the settings filled in and no measurements.
    pub fn blank_report(
        &self,
        workload: &str,
        (threads, in_flight): (usize, usize),
        records: u64,
    ) -> WorkloadReport {
        WorkloadReport {
            index: self.index.name.to_owned(),
            workload: workload.to_owned(),
            dataset: self.keys.clone(),
            dataset_note: self.dataset.note(),
            records,
            threads,
            in_flight,
            processes: 1,
            value_bytes: self.args.value_size,
            theta: self.args.theta,
            pool: self.pool.to_string(),
            cache_bytes: Some(self.args.cache.0),
            seed: self.args.seed,
            rounds: 1,
            ..WorkloadReport::default()
        }
    }

    /// Runs searches like those of workload C without measuring them, then adjusts the prefix list
    /// to them. Returns a line that describes the list.
    ///
    /// # Errors
    /// Fails as [`run_phase`] does.
    pub fn adjust(&self, target: &impl BenchTarget, loaded: u64) -> Result<String, BenchError> {
        let Some(before) = target.prefix_list().filter(|_| self.args.prefix_list == PrefixList::Auto) else {
            return Ok(match target.prefix_list() {
                Some(list) => format!("prefix list: {list:?}, not adjusted"),
                None => self.warm_up(target, loaded)?,
            });
        };
        let warm = self.warm_up(target, loaded)?;
        target.adjust()?;
        let after = target.prefix_list().unwrap_or_default();
        Ok(format!("prefix list: {after:?}, adjusted from {before:?}; {warm}"))
    }

    /// Runs unmeasured searches, then adjusts an index that does not show its list.
    fn warm_up(&self, target: &impl BenchTarget, loaded: u64) -> Result<String, BenchError> {
        let ops = self.args.warm_up_ops();
        if ops > 0 {
            let progress = Progress::new("warm-up", ops, &self.setting.stop);
            let phase = self.phase(Workload::C, (1, 1), loaded, &progress);
            run_phase(target, &Phase { ops, run: WARM_UP_RUN, ..phase })?;
            progress.finish_and_clear();
        }
        if target.prefix_list().is_none() && self.args.prefix_list == PrefixList::Auto {
            target.adjust()?;
        }
        Ok(format!("warm-up: {}", counted(ops, "search")))
    }
}

/// Returns the least number of bytes that a record takes.
fn record_bytes(dataset: &dyn Dataset, value_bytes: usize) -> u64 {
    dataset.key_bytes_mean() + value_bytes as u64
}

/// Returns the URL of a pool in memory with ample space for `records` records. Untouched memory
/// costs nothing.
fn memory_pool(
    dataset: &dyn Dataset,
    records: u64,
    value_bytes: usize,
    room: u64,
) -> Result<PoolUrl, BenchError> {
    // A leaf's header and rounding, and the record's share of the nodes. Twice over, for blocks
    // that wait to be reclaimed.
    let bytes = record_bytes(dataset, value_bytes).saturating_add(64).saturating_mul(2);
    // DART's share is within these 64 bytes; other indexes state how much more they can take.
    let bytes = bytes.saturating_add(room.saturating_sub(256)).saturating_mul(records);
    let mebibytes = bytes.div_ceil(1 << 20).saturating_add(256);
    let size = ByteSize(mebibytes.saturating_mul(1 << 20));
    format!("mem:{size}").parse().map_err(|error| {
        BenchError::Usage(format!("{records} records need a pool of {}: {error}", bytes_text(size.0)))
    })
}
