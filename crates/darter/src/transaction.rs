//! Transactions: several keys that are read and changed at one moment. They are the transaction mode
//! of a worker, with a loop that runs them again after a conflict.

mod asynchronous;
mod blocking;
mod error;

pub use self::asynchronous::AsyncTransaction;
pub use self::blocking::Transaction;
pub use self::error::TransactionError;
use crate::worker::Worker;
use crate::{Change, Error};
use std::hash::{BuildHasher, RandomState};

/// Times that a transaction is run before its conflict is reported.
const RUNS_MAX: u16 = 1000;
/// Runs after which the pauses between them no longer grow.
const DOUBLINGS_MAX: u16 = 7;

/// Returns a random number up to the length of the pause before a transaction is run again, in
/// steps: it doubles with each of the first attempts.
fn pause(attempt: u16) -> u64 {
    RandomState::new().hash_one(attempt) % (1 << attempt.min(DOUBLINGS_MAX))
}

/// Begins a transaction that was run before this often.
fn begin(worker: &mut Worker, attempt: u16) {
    worker.begin_within(attempt, usize::MAX);
}

/// Changes a key as `decide` returns. Returns the old value.
async fn update(
    worker: &mut Worker,
    key: impl AsRef<[u8]>,
    decide: impl FnOnce(Option<&[u8]>) -> Change + Send,
) -> Result<Option<Vec<u8>>, Error> {
    let (mut decide, mut old) = (Some(decide), None);
    let decide = |value: Option<&[u8]>| {
        old = value.map(<[u8]>::to_vec);
        decide.take().map_or(Change::Keep, |decide| decide(value))
    };
    worker.update(key, decide).await?;
    Ok(old)
}

/// Commits a transaction, if there is no conflict.
async fn commit(worker: &mut Worker) -> Result<(), Error> {
    if worker.commit_transaction().await? { Ok(()) } else { Err(TransactionError::Conflict.into()) }
}
