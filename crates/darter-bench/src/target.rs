//! What the driver can run on: darter's store, or another ordered index in the same process.

use crate::BenchError;
use darter::Counters;

/// Pairs in ascending order of their keys, to fill an empty index with.
pub(crate) type SortedPairs<'a> = Box<dyn Iterator<Item = (Vec<u8>, Vec<u8>)> + Send + 'a>;

/// An ordered index under test.
pub(crate) trait Target: Send + Sync {
    /// One thread's way in.
    type Session<'a>: TargetSession
    where
        Self: 'a;

    /// The name in tables.
    fn name(&self) -> &'static str;

    /// Opens a session.
    fn session(&self) -> Result<Self::Session<'_>, BenchError>;
}

/// One thread's or task's way into a [`Target`]. Values that are read are copied out into a buffer of the caller's, by everyone.
pub(crate) trait TargetSession: Send {
    /// Puts a key's value into `value`, replacing what was there; answers whether the key is present.
    async fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BenchError>;

    /// Replaces a present key's value; answers whether it was present.
    async fn update(&mut self, key: &[u8], value: &[u8]) -> Result<bool, BenchError>;

    /// Adds an absent key; answers whether it was absent.
    async fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool, BenchError>;

    /// Appends the values of the first `limit` keys from `from` on to `values`, after clearing it; answers how many.
    async fn scan(&mut self, from: &[u8], limit: usize, values: &mut Vec<u8>) -> Result<usize, BenchError>;

    /// Fills the empty index; answers how many pairs it took.
    async fn bulk_load(&mut self, sorted: SortedPairs<'_>) -> Result<u64, BenchError>;

    /// Upkeep that is due.
    async fn maintain(&mut self) -> Result<(), BenchError> {
        Ok(())
    }

    /// What this session's operations have cost so far, where that is counted.
    fn counters(&self) -> Option<Counters> {
        None
    }
}
