//! Turns that a thread's commands take at one key or element: those that change what they have read would otherwise make each other's work
//! void, again and again, and over memory nodes that costs round trips. Correctness does not rest on them: other threads and other
//! gateways know nothing of them.

use std::hash::{DefaultHasher, Hash, Hasher};
use tokio::sync::{Mutex, MutexGuard};

/// Turns; records that fall on the same one wait for each other for nothing.
const TURNS: usize = 64;

/// Whose turn it is.
#[derive(Debug)]
pub(crate) struct Turns([Mutex<()>; TURNS]);

impl Default for Turns {
    fn default() -> Self {
        Self([const { Mutex::const_new(()) }; TURNS])
    }
}

impl Turns {
    /// Waits for the turn at a record, which lasts as long as what it answers. A command has one at a time.
    pub(super) async fn take(&self, place: &[u8]) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        place.hash(&mut hasher);
        self.0[hasher.finish() as usize % TURNS].lock().await
    }
}
