//! The arguments of a comparison, and the checks that need no pool.

use super::pool_location::PoolLocation;
use super::variants::{IndexChoice, VARIANTS};
use crate::datasets::{Dataset, DatasetSpec, KeySource, RECORDS_MAX};
use darter::ByteSize;
use darter_bench::BenchError;
use darter_bench::args::{IN_FLIGHT_MAX, THREADS_MAX, VALUE_BYTES_MAX, parse_count};
use darter_bench::ycsb::Workload;
use darter_bench::zipf::THETA_MAX;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Maximum number of rounds of a comparison.
const ROUNDS_MAX: u32 = 100;
/// Maximum number of threads of a modelled cluster.
const MODELLED_THREADS_MAX: usize = 1 << 14;
/// Maximum number of memory nodes of each pool.
const MEMNODES_MAX: usize = 16;
/// Searches of a warm-up by default.
const WARM_UP_OPS: u64 = 200_000;

/// A Zipf exponent; 0 is uniform.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Theta(pub f64);

impl FromStr for Theta {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("uniform") {
            return Ok(Self(0.0));
        }
        let theta = text.parse().ok().filter(|theta| (0.0..=THETA_MAX).contains(theta));
        theta.map(Self).ok_or_else(|| format!("choose from 0 to {THETA_MAX}, or `uniform`"))
    }
}

impl fmt::Display for Theta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0.0 { f.write_str("uniform") } else { write!(f, "{}", self.0) }
    }
}

/// What to compare, and under which conditions. If there are several thread counts, cache sizes and
/// so on, all combinations are run.
#[derive(Clone, Debug, clap::Args)]
pub struct Comparison {
    /// Indexes, by name; throughputs are relative to the first
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "quiver,dart,art,smart,sherman,fg+,chime",
        value_name = "LIST"
    )]
    pub indexes: Vec<IndexChoice>,
    /// YCSB workloads, run in this order on the same records; without `load` at the beginning,
    /// records are bulk-loaded
    #[arg(long, value_delimiter = ',', default_value = "load,a,b,c,d,e,f", value_name = "LIST")]
    pub workloads: Vec<Workload>,
    /// Keys: randint, email (synthetic), dense, clustered, or `file:PATH` with one key a line
    #[arg(long, default_value = "randint", value_name = "NAME")]
    pub dataset: DatasetSpec,
    /// Records to load (K, M, G for powers of 1000)
    #[arg(long, value_parser = parse_count, default_value = "1M", value_name = "N")]
    pub records: u64,
    /// Operations of each workload except `load`
    #[arg(long, value_parser = parse_count, default_value = "200K", value_name = "N")]
    pub ops: u64,
    /// Threads of all compute nodes together [default: 1, or those of the modelled cluster]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub threads: Vec<usize>,
    /// Operations in flight per thread [default: 1, or as in the modelled cluster]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub in_flight: Vec<usize>,
    /// Bytes that a compute node may cache for its index (K, M, G for powers of 1024)
    #[arg(long, value_delimiter = ',', default_value = "1M", value_name = "LIST")]
    pub cache: Vec<ByteSize>,
    /// Zipf exponents of the access frequencies; 0 or `uniform` for none
    #[arg(long, value_delimiter = ',', default_value = "0.99", value_name = "LIST")]
    pub theta: Vec<Theta>,
    /// Bytes of a value
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    pub value_bytes: usize,
    /// Location of each index's pool: `local` (memory of this process), `tcp` (memory nodes started
    /// for the run), `tcp:log` (the same, durable, with logs in the directory for temporary files,
    /// TMPDIR) or `model:preset=dart,…` (a modelled cluster: all times are then modelled)
    #[arg(long, default_value = "local", value_name = "PLACE")]
    pub pool: PoolLocation,
    /// Memory nodes of each pool, unless they are modelled [default: 1]
    #[arg(long, value_name = "N")]
    pub memnodes: Option<usize>,
    /// Rounds; the median counts; `load` has one
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub rounds: u32,
    /// Unmeasured searches before each cache size is measured [default: the number of --ops, at
    /// most 200K]
    #[arg(long, value_parser = parse_count, value_name = "N")]
    pub warm_up: Option<u64>,
    /// Seed of keys and operations
    #[arg(long, default_value_t = 42, value_name = "N")]
    pub seed: u64,
}

/// Arguments of `darter-lab compare`.
#[derive(Clone, Debug, clap::Args)]
pub struct CompareArgs {
    /// What to compare.
    #[command(flatten)]
    pub comparison: Comparison,
    /// Write a row for each measurement to this file, with its whole configuration and its hash
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write the same rows as a JSON array to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a page with tables and plots to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the plots to this directory
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
}

impl Default for Comparison {
    /// The command line's defaults, with DART alone.
    fn default() -> Self {
        Self {
            indexes: vec![IndexChoice(&VARIANTS[0])],
            workloads: Workload::ALL.to_vec(),
            dataset: DatasetSpec::RandInt,
            records: 1_000_000,
            ops: 200_000,
            threads: Vec::new(),
            in_flight: Vec::new(),
            cache: vec![ByteSize(1 << 20)],
            theta: vec![Theta(0.99)],
            value_bytes: 64,
            pool: PoolLocation::Local,
            memnodes: None,
            rounds: 3,
            warm_up: None,
            seed: 42,
        }
    }
}

impl Comparison {
    /// Checks what can be checked without keys or pool.
    pub(crate) fn validate(&self) -> Result<(), BenchError> {
        let usage = |what: String| Err(BenchError::Usage(what));
        let names: Vec<&str> = self.indexes.iter().map(|choice| choice.0.name).collect();
        if names.is_empty() || names.iter().enumerate().any(|(at, name)| names[..at].contains(name)) {
            return usage("--indexes: name at least one index, each only once".to_owned());
        }
        let served = self.indexes.iter().find(|index| index.0.has_server);
        if let (PoolLocation::Tcp { .. }, Some(index), 2..) = (&self.pool, served, self.memory_nodes()) {
            return usage(format!(
                "--memnodes: over TCP {} can only be compared on one memory node",
                index.0.name
            ));
        }
        if self.workloads.is_empty() {
            return usage("--workloads: name at least one of load, a, b, c, d, e, f".to_owned());
        }
        if self.workloads.iter().skip(1).any(|&workload| workload == Workload::Load) {
            return usage("--workloads: `load` fills an empty index, so it can only come first".to_owned());
        }
        for (name, count) in [("--records", self.records), ("--ops", self.ops)] {
            if !(1..=RECORDS_MAX).contains(&count) {
                return usage(format!("{name}: choose from 1 to {RECORDS_MAX}"));
            }
        }
        let threads_max = if self.pool.is_modelled() { MODELLED_THREADS_MAX } else { THREADS_MAX };
        if self.thread_counts().iter().any(|n| !(1..=threads_max).contains(n)) {
            return usage(format!("--threads: choose from 1 to {threads_max}"));
        }
        if self.in_flight_counts().iter().any(|n| !(1..=IN_FLIGHT_MAX).contains(n)) {
            return usage(format!("--in-flight: choose from 1 to {IN_FLIGHT_MAX}"));
        }
        if self.cache.is_empty() {
            return usage("--cache: name at least one size".to_owned());
        }
        if self.theta.is_empty() || self.theta.iter().any(|theta| !(0.0..=THETA_MAX).contains(&theta.0)) {
            return usage(format!("--theta: choose from 0 to {THETA_MAX}, or `uniform`"));
        }
        if self.value_bytes > VALUE_BYTES_MAX {
            return usage(format!("--value-bytes: at most {VALUE_BYTES_MAX} bytes"));
        }
        match self.memnodes {
            Some(_) if self.pool.is_modelled() => {
                return usage(
                    "--memnodes: for a modelled cluster, set the number in its description, as in model:mn=3"
                        .to_owned(),
                );
            }
            Some(count) if !(1..=MEMNODES_MAX).contains(&count) => {
                return usage(format!("--memnodes: choose from 1 to {MEMNODES_MAX}"));
            }
            _ => {}
        }
        if !(1..=ROUNDS_MAX).contains(&self.rounds) {
            return usage(format!("--rounds: choose from 1 to {ROUNDS_MAX}"));
        }
        Ok(())
    }

    /// Returns the thread counts to measure, of all compute nodes together.
    pub(crate) fn thread_counts(&self) -> Vec<usize> {
        match &self.pool {
            _ if !self.threads.is_empty() => self.threads.clone(),
            PoolLocation::Model { spec, .. } => vec![spec.threads as usize],
            PoolLocation::Local | PoolLocation::Tcp { .. } => vec![1],
        }
    }

    /// Returns the numbers of operations in flight to measure, of each thread.
    pub(crate) fn in_flight_counts(&self) -> Vec<usize> {
        match &self.pool {
            _ if !self.in_flight.is_empty() => self.in_flight.clone(),
            PoolLocation::Model { spec, .. } => vec![spec.coroutines as usize],
            PoolLocation::Local | PoolLocation::Tcp { .. } => vec![1],
        }
    }

    /// Returns the number of memory nodes of each pool.
    pub(crate) fn memory_nodes(&self) -> usize {
        match &self.pool {
            PoolLocation::Model { spec, .. } => spec.memory_nodes as usize,
            PoolLocation::Local | PoolLocation::Tcp { .. } => self.memnodes.unwrap_or(1),
        }
    }

    /// Returns whether records are loaded by measured inserts.
    pub(crate) fn loads_by_inserts(&self) -> bool {
        self.workloads.first() == Some(&Workload::Load)
    }

    /// Returns the number of searches of a warm-up.
    pub(crate) fn warm_up_ops(&self) -> u64 {
        self.warm_up.unwrap_or(self.ops.min(WARM_UP_OPS))
    }

    /// Returns the maximum number of fresh records that all workloads except `load` can insert.
    pub(crate) fn fresh_records_max(&self) -> u64 {
        let points = (self.in_flight_counts().len() * self.cache.len() * self.theta.len()) as u64;
        let threads = self.thread_counts();
        let once = self.workloads.iter().flat_map(|workload| {
            threads.iter().map(|&threads| workload.fresh_records_max(self.ops, threads as u64))
        });
        let once = once.fold(0_u64, u64::saturating_add);
        once.saturating_mul(points).saturating_mul(u64::from(self.rounds))
    }

    /// Returns the dataset.
    ///
    /// # Errors
    /// Fails if it has too few keys.
    pub(crate) fn open_dataset(&self) -> Result<Box<dyn Dataset>, BenchError> {
        let dataset = self.dataset.open(self.seed)?;
        let fresh = self.fresh_records_max();
        let room = dataset.capacity().saturating_sub(fresh);
        if self.records > room {
            return Err(BenchError::Usage(format!(
                "{} has {} keys and the workloads may insert {fresh}, which leaves {room} to load; use fewer --records or \
                 --ops, or leave out d and e",
                self.dataset,
                dataset.capacity()
            )));
        }
        Ok(dataset)
    }
}
