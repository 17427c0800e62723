//! Targets of the driver: darter's store, or another ordered index in the same process.

use crate::BenchError;
use darter::Counters;

/// Pairs in ascending order of their keys, to fill an empty index with.
pub type SortedPairs<'a> = Box<dyn Iterator<Item = (Vec<u8>, Vec<u8>)> + Send + 'a>;

/// An ordered index under test.
pub trait Target: Send + Sync {
    /// The session of one thread or task.
    type Session<'a>: TargetSession
    where
        Self: 'a;

    /// Returns the name in tables.
    fn name(&self) -> &'static str;

    /// Opens a session.
    ///
    /// # Errors
    /// Fails if the target has no room for another session.
    fn session(&self) -> Result<Self::Session<'_>, BenchError>;
}

/// One thread's or task's session of a [`Target`]. Every target copies the values that it reads
/// into the caller's buffer.
#[allow(async_fn_in_trait)] // each future runs in the thread that made it
pub trait TargetSession: Send {
    /// Puts a key's value into `value`, replacing what was there. Returns whether the key is
    /// present.
    async fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BenchError>;

    /// Replaces a present key's value. Returns whether it was present.
    async fn update(&mut self, key: &[u8], value: &[u8]) -> Result<bool, BenchError>;

    /// Adds an absent key. Returns whether it was absent.
    async fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool, BenchError>;

    /// Replaces the contents of `values` with the values of the first `limit` keys at or after
    /// `from`. Returns their number.
    async fn scan(&mut self, from: &[u8], limit: usize, values: &mut Vec<u8>) -> Result<usize, BenchError>;

    /// Fills the empty index, by inserts unless it has a faster way. Returns the number of pairs it
    /// stored.
    async fn bulk_load(&mut self, sorted: SortedPairs<'_>) -> Result<u64, BenchError> {
        let mut loaded = 0;
        for (key, value) in sorted {
            loaded += u64::from(self.insert(&key, &value).await?);
        }
        Ok(loaded)
    }

    /// Runs the upkeep that is due.
    async fn maintain(&mut self) -> Result<(), BenchError> {
        Ok(())
    }

    /// Returns the cost of this session's operations so far, if the target counts.
    fn counters(&self) -> Option<Counters> {
        None
    }
}
