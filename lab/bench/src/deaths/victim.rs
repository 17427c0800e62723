//! A process that writes as fast as it can until it is killed, or until its standard input ends.

use crate::datasets::{Dataset, RandInt};
use darter::{Condition, PoolUrl, Store};
use darter_bench::BenchError;
use darter_bench::executor::Values;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Arguments of a victim.
#[derive(Clone, Debug, clap::Args)]
pub struct VictimArgs {
    /// The pool
    #[arg(long)]
    pub pool: PoolUrl,
    /// Number of records; the same number of other keys come and go
    #[arg(long)]
    pub records: u64,
    /// Bytes of a value
    #[arg(long)]
    pub value_size: usize,
    /// The seed of the keys
    #[arg(long)]
    pub keys: u64,
    /// The seed of the operations
    #[arg(long)]
    pub seed: u64,
}

impl VictimArgs {
    /// Returns the command line with these arguments.
    pub(super) fn words(&self) -> Vec<String> {
        let words = [
            ("--pool", self.pool.to_string()),
            ("--records", self.records.to_string()),
            ("--value-size", self.value_size.to_string()),
            ("--keys", self.keys.to_string()),
            ("--seed", self.seed.to_string()),
        ];
        words.into_iter().flat_map(|(name, word)| [name.to_owned(), word]).collect()
    }
}

/// Writes to the pool until killed, or until a thread that reads the standard input reaches its
/// end. Prints a line on `out` when it has begun. Half of its writes are updates of the records; a
/// quarter each store and delete other keys, so that it also dies in splits and collapses.
///
/// # Errors
/// Fails if the pool fails, or has shut this process out.
pub fn run_victim(args: &VictimArgs, out: &mut dyn Write) -> Result<(), BenchError> {
    static STOP: AtomicBool = AtomicBool::new(false);
    let records = args.records;
    if records == 0 || records > crate::datasets::RECORDS_MAX {
        return Err(BenchError::Usage("--records: not a number that the parent process passes".to_owned()));
    }
    let store = Store::options().create(false).sweep(false).open(&args.pool)?;
    let session = store.session()?;
    std::thread::spawn(|| {
        // However the input ends, the parent no longer needs this process.
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        STOP.store(true, Ordering::Relaxed);
    });
    let dataset = RandInt::new(args.keys);
    let mut rng = Pcg64Mcg::seed_from_u64(args.seed);
    let mut values = Values::new(args.value_size, args.seed);
    let mut key = Vec::new();
    let mut is_told = false;
    while !STOP.load(Ordering::Relaxed) {
        let (action, record) = (rng.random_range(0..4), rng.random_range(0..records));
        dataset.key(if action < 2 { record } else { records + record }, &mut key);
        match action {
            0 | 1 => drop(session.put_if(&key, values.next(), Condition::Present)?),
            2 => drop(session.put(&key, values.next())?),
            _ => drop(session.discard(&key)?),
        }
        if !is_told {
            is_told = true;
            writeln!(out, "writing")?;
            out.flush()?;
        }
    }
    Ok(())
}
