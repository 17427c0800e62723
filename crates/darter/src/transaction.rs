//! Transactions: several keys that are read and changed at one moment.

mod asynchronous;
mod blocking;
mod buffer;
mod error;

pub use self::asynchronous::AsyncTransaction;
pub use self::blocking::Transaction;
use self::buffer::Value;
pub(crate) use self::buffer::{Buffer, KEYS_MAX};
pub use self::error::TransactionError;
use crate::worker::Worker;
use crate::{Change, Error};
use darter_index::Commit;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

/// Runs after which the pauses between them no longer grow.
const DOUBLINGS_MAX: u16 = 7;

/// Returns a random number up to the length of the pause before a transaction is run again, in
/// steps: it doubles with each of the first attempts.
fn pause(attempt: u16) -> u64 {
    RandomState::new().hash_one(attempt) % (1 << attempt.min(DOUBLINGS_MAX))
}

impl Worker {
    /// Returns the value that a transaction sees.
    async fn get_in(&mut self, buffer: &mut Buffer, key: &[u8]) -> Result<Value, Error> {
        let place = self.place_of(key)?;
        if let Some(value) = buffer.known(&place) {
            return Ok(value.clone());
        }
        let value = self.get(key).await?;
        buffer.note_read(place, value.clone());
        Ok(value)
    }

    /// Reads several keys in the same round trips.
    async fn get_many_in(&mut self, buffer: &mut Buffer, keys: &[&[u8]]) -> Result<Vec<Value>, Error> {
        let places = keys.iter().map(|key| self.place_of(key)).collect::<Result<Vec<_>, _>>()?;
        let is_unknown = |(place, _): &(&Vec<u8>, &&[u8])| buffer.known(place).is_none();
        let unknown: BTreeMap<_, _> = places.iter().zip(keys).filter(is_unknown).collect();
        let wanted: Vec<&[u8]> = unknown.values().map(|key| **key).collect();
        let values = self.get_many(&wanted).await?;
        let read: Vec<_> = unknown.into_keys().cloned().zip(values).collect();
        for (place, value) in read {
            buffer.note_read(place, value);
        }
        Ok(places.iter().map(|place| buffer.known(place).cloned().flatten()).collect())
    }

    /// Replaces the value that a transaction sees. Returns the old one.
    async fn update_in(
        &mut self,
        buffer: &mut Buffer,
        key: &[u8],
        decide: impl FnOnce(Option<&[u8]>) -> Change + Send,
    ) -> Result<Value, Error> {
        let old = self.get_in(buffer, key).await?;
        match decide(old.as_deref()) {
            Change::Put(value) => self.put_in(buffer, key, Some(value))?,
            Change::Remove => self.put_in(buffer, key, None)?,
            Change::Keep => {}
        }
        Ok(old)
    }

    fn put_in(&mut self, buffer: &mut Buffer, key: &[u8], value: Value) -> Result<(), Error> {
        self.verify_writable()?;
        buffer.write(self.place_of(key)?, value)
    }

    /// Commits. Returns false if there was a conflict.
    pub(crate) async fn commit(&mut self, buffer: &Buffer) -> Result<bool, Error> {
        if buffer.is_trivial() {
            return Ok(true);
        }
        let accesses = buffer.accesses();
        Ok(self.commit_all(&accesses, buffer.attempt).await? == Commit::Done)
    }
}
