//! Stores that several processes share (`bench stores`, feature `peers`): darter over a pool file,
//! LMDB, redb in `MultiWriter` mode; and fjall, which one process can open.
//!
//! Every store has the same records (8-byte keys, 64-byte values), and each of its worker processes
//! repeats one operation on records chosen uniformly: `put` and `get` one key at a time, each in a
//! separate transaction if the store has transactions, `put-100` and `get-100` a hundred keys in one
//! transaction (darter's calls of several keys are not atomic), `range-100` the first hundred pairs
//! at or after a key. A value names its key, and all values that are read are checked. Rounds are interleaved: each runs every case on
//! every store, in an order that rotates, and the median of the rounds counts.
//!
//! The case *one stopped* has two writers. One is stopped by SIGSTOP at a random moment, and the
//! other's puts are counted while it is stopped.
//!
//! No store waits for a disk: darter and fjall leave that to the system, LMDB runs without syncs,
//! and redb, which always syncs in this mode, runs on a memory file system unless `--dir` names
//! another one.

mod maps;
mod worker;

pub use worker::{StoreWorkerArgs, run_store_worker};

use crate::Setting;
use darter_bench::BenchError;
use darter_bench::args::parse_count;
use darter_bench::report::{markdown_table, print_json};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use worker::Worker;

/// Bytes of every value.
const VALUE_BYTES: usize = 64;
/// Maximum number of records: the largest store then takes some 50 GB.
const RECORDS_MAX: u64 = 100_000_000;
/// Time that the worker that will be stopped has worked before, at most.
const BEFORE_STOP_MS_MAX: u64 = 200;
/// Time between two checks whether the run is interrupted.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The stores, in the order of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
enum StoreName {
    Darter,
    Lmdb,
    Redb,
    Fjall,
}

impl StoreName {
    const ALL: [Self; 4] = [Self::Darter, Self::Lmdb, Self::Redb, Self::Fjall];

    fn text(self) -> &'static str {
        match self {
            Self::Darter => "darter",
            Self::Lmdb => "lmdb",
            Self::Redb => "redb",
            Self::Fjall => "fjall",
        }
    }

    /// Returns whether several processes can open it at the same time.
    fn is_shared(self) -> bool {
        self != Self::Fjall
    }
}

/// What a worker repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Operation {
    Put,
    #[value(name = "put-100")]
    #[serde(rename = "put-100")]
    Put100,
    Get,
    #[value(name = "get-100")]
    #[serde(rename = "get-100")]
    Get100,
    #[value(name = "range-100")]
    #[serde(rename = "range-100")]
    Range100,
}

impl Operation {
    const ALL: [Self; 5] = [Self::Put, Self::Put100, Self::Get, Self::Get100, Self::Range100];

    fn text(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Put100 => "put-100",
            Self::Get => "get",
            Self::Get100 => "get-100",
            Self::Range100 => "range-100",
        }
    }
}

/// Arguments of `bench stores`.
#[derive(Clone, Debug, clap::Args)]
pub struct StoresArgs {
    /// Directory for the stores' files; each store gets a temporary directory in it
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub dir: PathBuf,
    /// Records to load (K, M for powers of 1000)
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_count)]
    pub records: u64,
    /// Numbers of worker processes
    #[arg(long, value_name = "N,…", default_value = "1,2,4", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=64))]
    pub processes: Vec<u16>,
    /// Milliseconds of each measurement
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=600_000))]
    pub millis: u64,
    /// Rounds; the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Seed of the records that are chosen
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub seed: u64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// A case: an operation and its workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Case {
    operation: Operation,
    processes: u16,
    /// Whether one of the processes is stopped during the measurement.
    one_stopped: bool,
}

/// The result of a case.
#[derive(Clone, Debug, Serialize)]
pub struct StoresRow {
    #[serde(flatten)]
    case: Case,
    /// Operations per second of all processes together, by store: the median of the rounds.
    /// `None` for a store that several processes cannot open.
    rates: Vec<(StoreName, Option<f64>)>,
}

/// Compares the stores and writes the results to `out`.
///
/// # Errors
/// Fails if the arguments cannot be met, or if a store fails or loses a record.
pub fn run_stores(
    args: &StoresArgs,
    setting: &Setting,
    out: &mut dyn Write,
) -> Result<Vec<StoresRow>, BenchError> {
    if args.records == 0 || args.records > RECORDS_MAX {
        return Err(BenchError::Usage(format!("--records: choose from 1 to {RECORDS_MAX}")));
    }
    if !args.dir.is_dir() {
        return Err(BenchError::Usage(format!("--dir: {} is not a directory", args.dir.display())));
    }
    let mut run = Run { args, setting, rng: Pcg64Mcg::seed_from_u64(args.seed), directories: Vec::new() };
    for store in StoreName::ALL {
        run.load(store)?;
    }
    let cases = cases(&args.processes);
    let mut rates = vec![vec![Vec::new(); StoreName::ALL.len()]; cases.len()];
    for round in 0..args.rounds as usize {
        for (case, rates) in cases.iter().zip(&mut rates) {
            for nth in 0..StoreName::ALL.len() {
                let at = (nth + round) % StoreName::ALL.len();
                if StoreName::ALL[at].is_shared() || case.processes == 1 {
                    rates[at].push(run.measure(at, *case)?);
                }
            }
        }
    }
    let rows: Vec<_> = cases
        .into_iter()
        .zip(rates)
        .map(|(case, rates)| StoresRow {
            case,
            rates: StoreName::ALL
                .into_iter()
                .zip(rates)
                .map(|(store, rates)| (store, median(rates)))
                .collect(),
        })
        .collect();
    report(args, &rows, out)?;
    Ok(rows)
}

/// Returns all cases, those of each operation together.
fn cases(processes: &[u16]) -> Vec<Case> {
    let mut cases = Vec::new();
    for operation in Operation::ALL {
        cases.extend(processes.iter().map(|&processes| Case { operation, processes, one_stopped: false }));
    }
    cases.push(Case { operation: Operation::Put, processes: 2, one_stopped: true });
    cases
}

/// Returns the median; of an even number, the lower of the two in the middle. `None` of nothing.
fn median(mut rates: Vec<f64>) -> Option<f64> {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len().saturating_sub(1) / 2).copied()
}

/// The run: every store with its directory.
struct Run<'a> {
    args: &'a StoresArgs,
    setting: &'a Setting,
    rng: Pcg64Mcg,
    directories: Vec<(StoreName, tempfile::TempDir)>,
}

impl Run<'_> {
    /// Creates a store in a new directory and loads it.
    fn load(&mut self, store: StoreName) -> Result<(), BenchError> {
        let prefix = format!("darter-stores-{}-", store.text());
        let directory = tempfile::Builder::new().prefix(&prefix).tempdir_in(&self.args.dir)?;
        worker::load_elsewhere(&self.setting.program, &self.worker(store, directory.path(), None, 0))?;
        self.directories.push((store, directory));
        Ok(())
    }

    /// Returns the arguments of a worker.
    fn worker(
        &self,
        store: StoreName,
        path: &Path,
        operation: Option<Operation>,
        seed: u64,
    ) -> StoreWorkerArgs {
        StoreWorkerArgs { store, path: path.to_owned(), operation, records: self.args.records, seed }
    }

    /// Runs a case once on the store at `at`. Returns the operations per second of all workers that
    /// were not stopped.
    fn measure(&mut self, at: usize, case: Case) -> Result<f64, BenchError> {
        let seeds: Vec<u64> = (0..case.processes).map(|_| self.rng.random()).collect();
        let before_stop = Duration::from_millis(self.rng.random_range(0..BEFORE_STOP_MS_MAX));
        let (store, directory) = &self.directories[at];
        let mut workers = seeds
            .iter()
            .map(|&seed| {
                let args = self.worker(*store, directory.path(), Some(case.operation), seed);
                Worker::start(&self.setting.program, &args)
            })
            .collect::<Result<Vec<_>, _>>()?;
        // The worker that will be stopped is not measured.
        let stopped = if case.one_stopped { workers.pop() } else { None };
        let stopped = stopped.map(|worker| Stopped::after(worker, before_stop)).transpose()?;
        workers.iter_mut().try_for_each(Worker::begin)?;
        self.pause(Duration::from_millis(self.args.millis))?;
        workers.iter_mut().for_each(Worker::request_end);
        let mut rate = 0.0;
        for worker in workers {
            rate += worker.finish()?.rate();
        }
        if let Some(stopped) = stopped {
            stopped.resume()?;
        }
        Ok(rate)
    }

    /// Waits.
    ///
    /// # Errors
    /// Fails if the run is interrupted.
    fn pause(&self, time: Duration) -> Result<(), BenchError> {
        let end = Instant::now() + time;
        while let Some(rest) = end.checked_duration_since(Instant::now()) {
            if self.setting.stop.load(Ordering::Relaxed) {
                return Err(BenchError::Interrupted);
            }
            std::thread::sleep(rest.min(LOOK_EVERY));
        }
        Ok(())
    }
}

/// A worker that was stopped by SIGSTOP.
struct Stopped {
    worker: Worker,
}

impl Stopped {
    /// Lets a worker begin, and stops it after a time.
    fn after(mut worker: Worker, time: Duration) -> Result<Self, BenchError> {
        worker.begin()?;
        std::thread::sleep(time);
        let stopped = Self { worker };
        stopped.signal(rustix::process::Signal::STOP)?;
        Ok(stopped)
    }

    fn signal(&self, signal: rustix::process::Signal) -> Result<(), BenchError> {
        let pid = i32::try_from(self.worker.pid()).ok().and_then(rustix::process::Pid::from_raw);
        let pid = pid.ok_or_else(|| BenchError::Process("a worker has no process id".to_owned()))?;
        rustix::process::kill_process(pid, signal).map_err(|error| BenchError::Process(error.to_string()))
    }

    /// Lets it go on, and waits for its end.
    fn resume(self) -> Result<(), BenchError> {
        self.signal(rustix::process::Signal::CONT)?;
        self.worker.finish().map(drop)
    }
}

/// Prints the results.
fn report(args: &StoresArgs, rows: &[StoresRow], out: &mut dyn Write) -> Result<(), BenchError> {
    if args.json {
        #[derive(Serialize)]
        struct Report<'a> {
            records: u64,
            value_bytes: usize,
            rounds: u32,
            millis: u64,
            rows: &'a [StoresRow],
        }
        let (records, rounds, millis) = (args.records, args.rounds, args.millis);
        return print_json(out, &Report { records, value_bytes: VALUE_BYTES, rounds, millis, rows });
    }
    writeln!(
        out,
        "thousands of operations a second, all processes together; {} records of 8 + {VALUE_BYTES} bytes in {}, uniform, median of {}",
        args.records,
        args.dir.display(),
        args.rounds,
    )?;
    let mut headers = vec!["operation", "processes"];
    headers.extend(StoreName::ALL.map(StoreName::text));
    let mut table = markdown_table(&headers);
    for StoresRow { case, rates } in rows {
        let processes =
            if case.one_stopped { "2, one stopped".to_owned() } else { case.processes.to_string() };
        let mut cells = vec![case.operation.text().to_owned(), processes];
        cells.extend(rates.iter().map(|(_, rate)| match rate {
            Some(rate) => format!("{:.1}", rate / 1000.0),
            None => "–".to_owned(),
        }));
        table.add_row(cells);
    }
    writeln!(out, "{table}")?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every store keeps what is put, also in batches and after it is opened again.
    #[test]
    fn stores_keep_their_pairs() {
        for store in StoreName::ALL {
            let directory = tempfile::tempdir().unwrap();
            let mut read = [0; VALUE_BYTES];
            {
                let mut map = maps::open(store, directory.path(), 1000).unwrap();
                map.put(*b"key one.", [1; VALUE_BYTES]).unwrap();
                map.put(*b"key one.", [2; VALUE_BYTES]).unwrap();
                map.put_all(&[(*b"key two.", [3; VALUE_BYTES]), (*b"key 3...", [4; VALUE_BYTES])]).unwrap();
                assert!(!map.get(*b"key four", &mut read).unwrap(), "{}", store.text());
                let mut found = Vec::new();
                map.get_all(&[*b"key two.", *b"key four", *b"key one."], &mut found).unwrap();
                assert_eq!(found, [(*b"key two.", [3; VALUE_BYTES]), (*b"key one.", [2; VALUE_BYTES])]);
                found.clear();
                map.range(*b"key 4...", 2, &mut found).unwrap();
                assert_eq!(found, [(*b"key one.", [2; VALUE_BYTES]), (*b"key two.", [3; VALUE_BYTES])]);
                found.clear();
                map.range(*b"key ....", 1, &mut found).unwrap();
                assert_eq!(found, [(*b"key 3...", [4; VALUE_BYTES])]);
            }
            let mut map = maps::open(store, directory.path(), 1000).unwrap();
            for (key, value) in [(*b"key one.", 2), (*b"key two.", 3), (*b"key 3...", 4)] {
                assert!(map.get(key, &mut read).unwrap(), "{}", store.text());
                assert_eq!(read, [value; VALUE_BYTES], "{}", store.text());
            }
        }
    }
}
