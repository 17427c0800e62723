//! The arguments of `darter bench`, and the checks that need no pool.

use crate::BenchError;
use crate::datasets::{DatasetSpec, RECORDS_MAX};
use crate::ycsb::Workload;
use crate::zipf::THETA_MAX;
use darter::{ByteSize, IndexKind, PoolUrl};

/// Most threads a run can have.
pub const THREADS_MAX: usize = 256;
/// Most operations a thread can have in flight.
pub const IN_FLIGHT_MAX: usize = 4096;
/// Most processes a run can have.
pub const PROCESSES_MAX: usize = 64;
/// Longest value a run can have, in bytes.
pub const VALUE_BYTES_MAX: usize = 16 << 20;
/// Searches of a warm-up by default.
const WARM_UP_OPS: u64 = 1_000_000;

/// How the prefix list of the express skip table is chosen (DART, section 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PrefixList {
    /// Adjusted to the access frequencies of a warm-up before measuring.
    #[default]
    Auto,
    /// The powers of two that an index begins with.
    Powers,
}

/// Arguments of `darter bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct BenchArgs {
    /// Index to measure: quiver or dart
    #[arg(long, default_value = "quiver", value_name = "NAME")]
    pub index: IndexKind,
    /// Keys: randint, dense, or `file:PATH` with one key a line
    #[arg(long, default_value = "randint", value_name = "NAME")]
    pub dataset: DatasetSpec,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub run: RunArgs,
}

/// Arguments of a run of the workloads on any index and keys.
#[derive(Clone, Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools)] // switches of a command line
pub struct RunArgs {
    /// YCSB workloads, run in this order on the same records; without `load` at the beginning,
    /// records are bulk-loaded
    #[arg(long, value_delimiter = ',', default_value = "load,a,b,c,d,e,f", value_name = "LIST")]
    pub workload: Vec<Workload>,
    /// Records to load; K, M, G are powers of 1000 [default: 1M, or all keys of the file that the
    /// workloads do not insert]
    #[arg(long, value_parser = parse_count, value_name = "N")]
    pub records: Option<u64>,
    /// Operations of each workload except `load`
    #[arg(long, value_parser = parse_count, default_value = "1M", value_name = "N")]
    pub ops: u64,
    /// Threads; with several numbers, each workload runs with each of them
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "LIST")]
    pub threads: Vec<usize>,
    /// Operations that each thread keeps in flight; with several numbers, each workload runs with
    /// each of them
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "LIST")]
    pub in_flight: Vec<usize>,
    /// Processes that drive the pool together, each with its own threads; only for workloads
    /// without inserts, on pools in files and on memory nodes
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub processes: usize,
    /// Size of a value in bytes
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    pub value_size: usize,
    /// Zipf exponent of the access frequencies; 0 is uniform
    #[arg(long, default_value_t = 0.99, value_name = "THETA", allow_negative_numbers = true)]
    pub theta: f64,
    /// Bytes the client may cache; K, M, G are powers of 1024
    #[arg(long, default_value = "1M", value_name = "BYTES")]
    pub cache: ByteSize,
    /// Empty pool to run on: `mem:SIZE`, `file:PATH?size=SIZE`, `tcp://HOST:PORT,…` or
    /// `rdma://HOST:PORT,…?device=DEVICE` [default: a large enough pool in this process's memory]
    #[arg(long, value_name = "URL")]
    pub pool: Option<PoolUrl>,
    /// Search memory of this machine by verbs, as over a network, so that round trips are counted;
    /// otherwise Quiver loads from such memory
    #[arg(long)]
    pub verbs: bool,
    /// Create the pool on memory nodes that hold none, with the secret that makes counts repeatable
    #[arg(long)]
    pub create: bool,
    /// Prefix list: `auto` adjusts it after a warm-up, `powers` keeps the powers of two
    #[arg(long, value_enum, default_value = "auto", value_name = "HOW")]
    pub prefix_list: PrefixList,
    /// Unmeasured searches before the prefix list is adjusted [default: --ops, at most 1M]
    #[arg(long, value_parser = parse_count, value_name = "N")]
    pub warm_up: Option<u64>,
    /// Seed of keys and operations
    #[arg(long, default_value_t = 42, value_name = "N")]
    pub seed: u64,
    /// Delete all keys at the end, check the pool, and report remaining and leaked bytes
    #[arg(long)]
    pub check: bool,
    /// Print one JSON object per workload, one per line
    #[arg(long)]
    pub json: bool,
}

impl RunArgs {
    /// Checks the arguments that need neither keys nor a pool. `has_server` says whether the index
    /// needs a server.
    ///
    /// # Errors
    /// Fails if an argument is out of range or conflicts with another; the message names it.
    pub fn validate(&self, has_server: bool) -> Result<(), BenchError> {
        let usage = |what: String| Err(BenchError::Usage(what));
        if self.workload.is_empty() {
            return usage("--workload: name at least one of load, a, b, c, d, e, f".to_owned());
        }
        if self.workload.iter().skip(1).any(|&workload| workload == Workload::Load) {
            return usage("--workload: `load` fills an empty index, so it can only come first".to_owned());
        }
        if self.records == Some(0) || self.records.is_some_and(|records| records > RECORDS_MAX) {
            return usage(format!("--records: choose from 1 to {RECORDS_MAX}"));
        }
        if self.ops == 0 || self.ops > RECORDS_MAX {
            return usage(format!("--ops: choose from 1 to {RECORDS_MAX}"));
        }
        if self.threads.is_empty() || self.threads.iter().any(|&n| n == 0 || n > THREADS_MAX) {
            return usage(format!("--threads: choose from 1 to {THREADS_MAX}"));
        }
        if self.in_flight.is_empty() || self.in_flight.iter().any(|&n| n == 0 || n > IN_FLIGHT_MAX) {
            return usage(format!("--in-flight: choose from 1 to {IN_FLIGHT_MAX}"));
        }
        if self.loads_by_inserts() && (self.threads.len() > 1 || self.in_flight.len() > 1) {
            return usage(
                "--threads, --in-flight: `load` runs once; leave it out of --workload or give one number"
                    .to_owned(),
            );
        }
        self.validate_processes(has_server)?;
        if self.value_size > VALUE_BYTES_MAX {
            return usage(format!("--value-size: at most {VALUE_BYTES_MAX} bytes"));
        }
        if !(0.0..=THETA_MAX).contains(&self.theta) {
            return usage(format!("--theta: choose from 0 to {THETA_MAX}"));
        }
        Ok(())
    }

    fn validate_processes(&self, has_server: bool) -> Result<(), BenchError> {
        let usage = |what: &str| Err(BenchError::Usage(format!("--processes: {what}")));
        if !(1..=PROCESSES_MAX).contains(&self.processes) {
            return usage(&format!("choose from 1 to {PROCESSES_MAX}"));
        }
        if self.processes == 1 {
            return Ok(());
        }
        if has_server {
            return usage("the server of this index runs in one process, and other processes cannot call it");
        }
        if self.workload.iter().any(|workload| workload.inserts()) {
            return usage(
                "choose workloads among a, b, c, f; the others insert keys, which processes do not share",
            );
        }
        let is_shared = |pool: &PoolUrl| pool.path().is_some() || pool.addresses().is_some();
        if !self.pool.as_ref().is_some_and(is_shared) {
            return usage("name a pool that other processes can open: --pool file:…, tcp://… or rdma://…");
        }
        Ok(())
    }

    /// Returns whether records are loaded by measured inserts.
    pub fn loads_by_inserts(&self) -> bool {
        self.workload.first() == Some(&Workload::Load)
    }

    /// Returns the number of searches of the warm-up.
    pub fn warm_up_ops(&self) -> u64 {
        self.warm_up.unwrap_or(self.ops.min(WARM_UP_OPS))
    }

    /// Returns the most fresh records that `rounds` runs of all workloads can insert.
    pub fn fresh_records_max(&self, rounds: u32) -> u64 {
        let once = self.workload.iter().flat_map(|workload| {
            let once =
                self.threads.iter().map(|&threads| workload.fresh_records_max(self.ops, threads as u64));
            once.map(|fresh| fresh.saturating_mul(self.in_flight.len() as u64))
        });
        once.fold(0_u64, u64::saturating_add).saturating_mul(u64::from(rounds))
    }
}

/// Reads a count with a decimal suffix: `60M` is sixty million.
///
/// # Errors
/// Fails if `text` is not such a count.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a count; write 250000 or 250K, 60M, 1G");
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'm' | 'M')) => (&text[..at], 1_000_000),
        Some((at, 'g' | 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let number: u64 = number.replace('_', "").parse().map_err(|_| wrong())?;
    number.checked_mul(unit).ok_or_else(wrong)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, clap::Parser)]
    struct Program {
        #[command(flatten)]
        bench: BenchArgs,
    }

    pub(crate) fn parse(words: &str) -> Result<BenchArgs, clap::Error> {
        let words = std::iter::once("bench").chain(words.split_whitespace());
        Program::try_parse_from(words).map(|program| program.bench)
    }

    #[test]
    fn defaults_are_the_papers() {
        let BenchArgs { index, dataset, run: args } = parse("").unwrap();
        args.validate(false).unwrap();
        assert_eq!((index, dataset), (IndexKind::Quiver, DatasetSpec::RandInt));
        assert_eq!((args.workload, args.value_size, args.ops), (Workload::ALL.to_vec(), 64, 1_000_000));
        assert!((args.theta - 0.99).abs() < f64::EPSILON && args.threads == [1] && args.cache.0 == 1 << 20);
        let args = parse("--workload C,e --records 60M --threads 1,2 --cache 64K --pool mem:1G").unwrap().run;
        assert_eq!(args.workload, [Workload::C, Workload::E]);
        assert_eq!((args.records, args.threads), (Some(60_000_000), vec![1, 2]));
    }

    #[test]
    fn nonsense_is_a_usage_error_that_names_the_argument() {
        for (words, what) in [
            ("--workload a,load", "--workload"),
            ("--records 0", "--records"),
            ("--records 1000000G", "--records"),
            ("--ops 0", "--ops"),
            ("--threads 0", "--threads"),
            ("--threads 1000", "--threads"),
            ("--threads 1,2", "--threads"),
            ("--in-flight 0", "--in-flight"),
            ("--in-flight 1,5000", "--in-flight"),
            ("--in-flight 1,2", "--in-flight"),
            ("--processes 0 --workload c", "--processes"),
            ("--processes 2 --workload d --pool file:/p", "--processes"),
            ("--processes 2 --workload c", "--processes"),
            ("--processes 2 --workload c --pool mem:1G", "--processes"),
            ("--value-size 99999999", "--value-size"),
            ("--theta -1", "--theta"),
            ("--theta=-0.5", "--theta"),
            ("--theta NaN", "--theta"),
            ("--index nope", "--index"),
            ("--workload g", "--workload"),
            ("--workload=", "--workload"),
            ("--dataset nope", "--dataset"),
            ("--cache 1X", "--cache"),
            ("--pool nowhere", "--pool"),
            ("--records 99999999999999999999", "--records"),
            ("--ops 20000000000G", "--ops"),
        ] {
            let message = match parse(words) {
                Err(error) => error.to_string(),
                Ok(args) => {
                    let error = args.run.validate(false).unwrap_err();
                    assert!(error.is_usage(), "{words}");
                    error.to_string()
                }
            };
            assert!(message.contains(what), "{words}: {message}");
        }
        let shared = parse("--processes 2 --workload c --pool file:/p").unwrap().run;
        shared.validate(false).unwrap();
        assert!(shared.validate(true).unwrap_err().to_string().contains("--processes"));
    }

    #[test]
    fn counts_have_decimal_suffixes() {
        assert_eq!(parse_count("1_000k"), Ok(1_000_000));
        assert_eq!(parse_count("7"), Ok(7));
        for wrong in ["", "k", "-1", "1.5M", "1kb", "é"] {
            assert!(parse_count(wrong).is_err(), "{wrong}");
        }
    }
}
