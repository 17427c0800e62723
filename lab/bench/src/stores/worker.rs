//! A process that works on one store. Without an operation it loads the store. Else it opens the
//! store, prints `ready`, works from the first byte of its standard input to the end of that input,
//! and then prints how many operations it has completed in how many nanoseconds. A hundred keys of
//! a batch or a range count as a hundred operations.

use super::maps::{self, Key, Map, Pair};
use super::{Operation, StoreName, VALUE_BYTES};
use crate::Program;
use crate::child_process::ChildProcess;
use crate::datasets::{Dataset, RandInt};
use darter_bench::BenchError;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Pairs of one batch of the load.
const LOAD_BATCH: u64 = 1000;
/// Pairs of one `put-100`, `get-100` and `range-100`.
const BATCH: usize = 100;
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
    pub(super) store: StoreName,
    /// Directory of its files
    #[arg(long)]
    pub(super) path: PathBuf,
    /// The operation to repeat; without one, the worker loads all records
    #[arg(long)]
    pub(super) operation: Option<Operation>,
    /// Records of the store
    #[arg(long)]
    pub(super) records: u64,
    /// Seed of the records that are chosen
    #[arg(long)]
    pub(super) seed: u64,
}

impl StoreWorkerArgs {
    /// Returns the command line with these arguments.
    fn words(&self) -> Vec<String> {
        let mut words = vec![
            ("--store", self.store.text().to_owned()),
            ("--path", self.path.display().to_string()),
            ("--records", self.records.to_string()),
            ("--seed", self.seed.to_string()),
        ];
        words.extend(self.operation.map(|operation| ("--operation", operation.text().to_owned())));
        words.into_iter().flat_map(|(name, word)| [name.to_owned(), word]).collect()
    }
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
    let Some(operation) = args.operation else {
        load(&mut *map, args.records)?;
        writeln!(out, "ready")?;
        return Ok(out.flush()?);
    };
    let largest = if operation == Operation::Range100 { largest(args.records) } else { Vec::new() };
    let work = Work { map: &mut *map, store: args.store, largest, keys: Vec::new(), pairs: Vec::new() };
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
        println!("{completed} {}", elapsed.as_nanos());
        // The process ends with the operation in progress, so the result is printed first.
        IS_OVER.store(true, Ordering::Relaxed);
        std::thread::sleep(LAST_OPERATION);
        std::process::exit(0);
    });
    repeat(operation, args, work)
}

/// The records' keys.
struct Keys {
    dataset: RandInt,
    buffer: Vec<u8>,
}

impl Keys {
    fn new() -> Self {
        Self { dataset: RandInt::new(KEYS), buffer: Vec::new() }
    }

    fn of(&mut self, record: u64) -> Key {
        self.dataset.key(record, &mut self.buffer);
        let mut key = Key::default();
        key.copy_from_slice(&self.buffer);
        key
    }
}

/// Returns a value of a key: the key, then copies of one byte.
fn value(key: Key, byte: u8) -> [u8; VALUE_BYTES] {
    let mut value = [byte; VALUE_BYTES];
    value[..key.len()].copy_from_slice(&key);
    value
}

/// Returns whether a value is one of a key, and whole.
fn is_value(key: Key, found: &[u8; VALUE_BYTES]) -> bool {
    *found == value(key, found[VALUE_BYTES - 1])
}

/// Stores all records, in the order of their numbers.
fn load(map: &mut dyn Map, records: u64) -> Result<(), BenchError> {
    let mut keys = Keys::new();
    for first in (0..records).step_by(LOAD_BATCH as usize) {
        let batch = first..records.min(first + LOAD_BATCH);
        let pairs: Vec<Pair> = batch
            .map(|record| {
                let key = keys.of(record);
                (key, value(key, record as u8))
            })
            .collect();
        map.put_all(&pairs)?;
    }
    Ok(())
}

/// Returns the largest keys of the records, at most a batch of them, in ascending order: the only
/// keys that fewer than a batch of keys follow.
fn largest(records: u64) -> Vec<Key> {
    let (mut keys, mut largest) = (Keys::new(), BTreeSet::new());
    for record in 0..records {
        largest.insert(keys.of(record));
        if largest.len() > BATCH {
            largest.pop_first();
        }
    }
    largest.into_iter().collect()
}

/// The buffers of a worker that repeats an operation.
struct Work<'a> {
    map: &'a mut dyn Map,
    store: StoreName,
    largest: Vec<Key>,
    keys: Vec<Key>,
    pairs: Vec<Pair>,
}

impl Work<'_> {
    fn wrong(&self, what: String) -> BenchError {
        BenchError::WrongAnswer { index: self.store.text(), what }
    }

    fn get(&mut self, key: Key) -> Result<(), BenchError> {
        let mut read = [0; VALUE_BYTES];
        if !self.map.get(key, &mut read)? {
            return Err(self.wrong(format!("key {key:02x?} is absent, but was stored")));
        }
        if !is_value(key, &read) {
            return Err(self.wrong(format!("key {key:02x?} has a value that was never stored")));
        }
        Ok(())
    }

    fn get_batch(&mut self) -> Result<(), BenchError> {
        self.pairs.clear();
        self.map.get_all(&self.keys, &mut self.pairs)?;
        let are_right = self.pairs.iter().all(|(key, found)| is_value(*key, found));
        if !are_right || !self.pairs.iter().map(|(key, _)| key).eq(&self.keys) {
            return Err(self.wrong("`get-100` does not return the values of its keys".to_owned()));
        }
        Ok(())
    }

    fn range(&mut self, from: Key) -> Result<usize, BenchError> {
        self.pairs.clear();
        self.map.range(from, BATCH, &mut self.pairs)?;
        let rank = self.largest.partition_point(|key| *key < from);
        let expected = if rank == 0 { BATCH.min(self.largest.len()) } else { self.largest.len() - rank };
        let is_right = self.pairs.len() == expected
            && self.pairs[0].0 == from
            && self.pairs.is_sorted_by(|(left, _), (right, _)| left < right)
            && self.pairs.iter().all(|(key, found)| is_value(*key, found));
        if !is_right {
            return Err(self.wrong(format!("a range from key {from:02x?} does not return its pairs")));
        }
        Ok(expected)
    }
}

/// Repeats the operation with records chosen uniformly, until the parent has closed the input.
fn repeat(operation: Operation, args: &StoreWorkerArgs, mut work: Work<'_>) -> Result<(), BenchError> {
    let (mut keys, mut rng) = (Keys::new(), Pcg64Mcg::seed_from_u64(args.seed));
    while !IS_OVER.load(Ordering::Relaxed) {
        let mut key = |rng: &mut Pcg64Mcg| keys.of(rng.random_range(0..args.records));
        let completed = match operation {
            Operation::Put => {
                let key = key(&mut rng);
                work.map.put(key, value(key, rng.random()))?;
                1
            }
            Operation::Put100 => {
                work.pairs.clear();
                for _ in 0..BATCH {
                    let key = key(&mut rng);
                    work.pairs.push((key, value(key, rng.random())));
                }
                work.map.put_all(&work.pairs)?;
                BATCH
            }
            Operation::Get => {
                work.get(key(&mut rng))?;
                1
            }
            Operation::Get100 => {
                work.keys.clear();
                work.keys.extend((0..BATCH).map(|_| key(&mut rng)));
                work.get_batch()?;
                BATCH
            }
            Operation::Range100 => work.range(key(&mut rng))?,
        };
        COMPLETED.fetch_add(completed as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Operations that a worker completed, and the time that it had.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) completed: u64,
    pub(super) elapsed: Duration,
}

impl Share {
    /// Returns the operations per second.
    pub(super) fn rate(self) -> f64 {
        self.completed as f64 / self.elapsed.as_secs_f64()
    }
}

/// A worker that repeats an operation, as its parent holds it.
pub(super) struct Worker {
    child: ChildProcess,
}

impl Worker {
    /// Starts a worker and waits until it has opened the store.
    pub(super) fn start(program: &Program, args: &StoreWorkerArgs) -> Result<Self, BenchError> {
        Ok(Self { child: ChildProcess::start(program, &program.store_worker, &args.words())? })
    }

    /// Lets it begin.
    pub(super) fn begin(&mut self) -> Result<(), BenchError> {
        self.child.write(b"!")
    }

    /// Returns its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Requests its end. It prints its result at once.
    pub(super) fn request_end(&mut self) {
        self.child.ask_to_end();
    }

    /// Waits for its result and its end.
    pub(super) fn finish(mut self) -> Result<Share, BenchError> {
        self.request_end();
        let line = self.child.read_line()?;
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(completed)), Some(Ok(nanos))) = (numbers.next(), numbers.next()) else {
            return Err(BenchError::Process(format!("a worker printed `{}`, not its result", line.trim())));
        };
        self.child.wait()?;
        Ok(Share { completed, elapsed: Duration::from_nanos(nanos) })
    }
}

/// Loads a store in another process, and waits until that has closed it.
pub(super) fn load_elsewhere(program: &Program, args: &StoreWorkerArgs) -> Result<(), BenchError> {
    let status = ChildProcess::start(program, &program.store_worker, &args.words())?.wait()?;
    if status.success() { Ok(()) } else { Err(BenchError::Process(format!("a load ended with {status}"))) }
}
