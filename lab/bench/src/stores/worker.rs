//! A process that works on one store. It opens the store, prints `ready`, works from the first byte
//! of its standard input to the end of that input, and then prints how many operations it has
//! completed in how many nanoseconds.

use super::{Operation, StoreName, VALUE_BYTES, maps};
use crate::datasets::{Dataset, RandInt};
use crate::stores::maps::Map;
use darter_bench::BenchError;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Pairs of one batch of the load.
const LOAD_BATCH: u64 = 1000;
/// Pairs of one `put-100`.
const BATCH: u64 = 100;
/// How long an operation in progress may take once the worker must end. A worker whose operation
/// waits for a stopped process ends without it.
const LAST_OPERATION: Duration = Duration::from_secs(2);
/// Seed of the keys.
const KEYS: u64 = 42;

/// Arguments of a worker.
#[derive(Clone, Debug, clap::Args)]
pub struct StoreWorkerArgs {
    /// The store
    #[arg(long)]
    store: StoreName,
    /// Directory of its files
    #[arg(long)]
    path: PathBuf,
    /// What to do
    #[arg(long)]
    operation: Operation,
    /// Records of the store
    #[arg(long)]
    records: u64,
    /// Seed of the records that are chosen
    #[arg(long)]
    seed: u64,
}

static COMPLETED: AtomicU64 = AtomicU64::new(0);
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Works on a store as its parent process says. Writes the two lines to `out`.
///
/// # Errors
/// Fails if the store fails or does not have a record.
pub fn run_store_worker(args: &StoreWorkerArgs, out: &mut dyn Write) -> Result<(), BenchError> {
    if args.records == 0 || args.records > crate::datasets::RECORDS_MAX {
        return Err(BenchError::Usage("--records: not a number that the parent process passes".to_owned()));
    }
    let mut map = maps::open(args.store, &args.path, args.records)?;
    if args.operation == Operation::Load {
        load(&mut *map, args.records)?;
        writeln!(out, "ready")?;
        return Ok(out.flush()?);
    }
    writeln!(out, "ready")?;
    out.flush()?;
    if std::io::stdin().read(&mut [0])? == 0 {
        return Ok(());
    }
    let begin = Instant::now();
    std::thread::spawn(move || {
        // However the input ends, the parent wants the result.
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        let (completed, elapsed) = (COMPLETED.load(Ordering::Relaxed), begin.elapsed());
        IS_OVER.store(true, Ordering::Relaxed);
        println!("{completed} {}", elapsed.as_nanos());
        std::thread::sleep(LAST_OPERATION);
        std::process::exit(0);
    });
    work(args, &mut *map)
}

/// Stores all records, in the order of their numbers.
fn load(map: &mut dyn Map, records: u64) -> Result<(), BenchError> {
    let dataset = RandInt::new(KEYS);
    for first in (0..records).step_by(LOAD_BATCH as usize) {
        let pairs: Vec<_> = (first..records.min(first + LOAD_BATCH))
            .map(|record| {
                let mut key = Vec::new();
                dataset.key(record, &mut key);
                (key, [record as u8; VALUE_BYTES])
            })
            .collect();
        map.put_all(&pairs)?;
    }
    Ok(())
}

/// Repeats the operation with records chosen uniformly, until the parent has closed the input.
fn work(args: &StoreWorkerArgs, map: &mut dyn Map) -> Result<(), BenchError> {
    let dataset = RandInt::new(KEYS);
    let mut rng = Pcg64Mcg::seed_from_u64(args.seed);
    let mut key = Vec::new();
    let mut read = [0; VALUE_BYTES];
    let mut pairs: Vec<maps::Pair> = vec![(Vec::new(), [0; VALUE_BYTES]); BATCH as usize];
    while !IS_OVER.load(Ordering::Relaxed) {
        let completed = match args.operation {
            Operation::Put | Operation::Load => {
                dataset.key(rng.random_range(0..args.records), &mut key);
                map.put(&key, &[rng.random(); VALUE_BYTES])?;
                1
            }
            Operation::Put100 => {
                for (key, value) in &mut pairs {
                    dataset.key(rng.random_range(0..args.records), key);
                    *value = [rng.random(); VALUE_BYTES];
                }
                map.put_all(&pairs)?;
                BATCH
            }
            Operation::Get => {
                dataset.key(rng.random_range(0..args.records), &mut key);
                if !map.get(&key, &mut read)? {
                    let what = format!("key {key:02x?} is absent, but was stored");
                    return Err(BenchError::WrongAnswer { index: args.store.text(), what });
                }
                1
            }
        };
        COMPLETED.fetch_add(completed, Ordering::Relaxed);
    }
    Ok(())
}

/// Operations that a worker completed, and the time that it had.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) completed: u64,
    pub(super) elapsed: Duration,
}

impl Work {
    /// Returns the operations per second.
    pub(super) fn rate(self) -> f64 {
        self.completed as f64 / self.elapsed.as_secs_f64()
    }
}

/// A worker as its parent holds it. It is killed when dropped before its end.
pub(super) struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a worker and waits until it has opened the store, or has loaded it.
    pub(super) fn start(
        program: &crate::Program,
        (store, path): (StoreName, &Path),
        operation: Operation,
        records: u64,
        seed: u64,
    ) -> Result<Self, BenchError> {
        let mut command = Command::new(&program.path);
        command.args(&program.store_worker).arg("--path").arg(path);
        command.args(["--store", store.text(), "--operation", operation.text()]);
        command.args(["--records", &records.to_string(), "--seed", &seed.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let gone = || BenchError::Process("a worker has no pipes".to_owned());
        let input = Some(child.stdin.take().ok_or_else(gone)?);
        let output = BufReader::new(child.stdout.take().ok_or_else(gone)?);
        let mut worker = Self { child, input, output };
        match worker.line()?.trim() {
            "ready" => Ok(worker),
            line => Err(BenchError::Process(format!("a worker of {} printed `{line}`", store.text()))),
        }
    }

    fn line(&mut self) -> Result<String, BenchError> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(BenchError::Process("a worker ended without a result".to_owned()));
        }
        Ok(line)
    }

    /// Lets it begin.
    pub(super) fn begin(&mut self) -> Result<(), BenchError> {
        self.input.iter_mut().try_for_each(|input| input.write_all(b"!"))?;
        Ok(())
    }

    /// Returns its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Requests its end. It prints its result at once.
    pub(super) fn request_end(&mut self) {
        self.input = None;
    }

    /// Waits for its result and its end.
    pub(super) fn finish(mut self) -> Result<Work, BenchError> {
        self.request_end();
        let line = self.line()?;
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(completed)), Some(Ok(nanos))) = (numbers.next(), numbers.next()) else {
            return Err(BenchError::Process(format!("a worker printed `{}`", line.trim())));
        };
        self.child.wait()?;
        Ok(Work { completed, elapsed: Duration::from_nanos(nanos) })
    }

    /// Waits for the end of a worker that only loads.
    pub(super) fn finish_load(mut self) -> Result<(), BenchError> {
        let status = self.child.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(BenchError::Process(format!("a load ended with {status}")))
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
