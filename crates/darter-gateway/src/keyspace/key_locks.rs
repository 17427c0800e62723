//! Locks that order the commands of one thread on the same key or element. Without them, commands
//! that change what they have read would invalidate each other's work repeatedly, which costs round
//! trips over memory nodes.
//!
//! Correctness does not depend on these locks: other threads and other gateways do not use them.

use std::hash::{DefaultHasher, Hash, Hasher};
use tokio::sync::{Mutex, MutexGuard};

/// The number of locks; records that hash to the same one wait for each other needlessly.
const LOCKS: usize = 64;

/// One lock for each hash value of a key or element.
#[derive(Debug)]
pub(crate) struct KeyLocks([Mutex<()>; LOCKS]);

impl Default for KeyLocks {
    fn default() -> Self {
        Self([const { Mutex::const_new(()) }; LOCKS])
    }
}

impl KeyLocks {
    /// Locks a record until the returned guard is dropped. A command holds one lock at a time.
    pub(super) async fn lock(&self, place: &[u8]) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        place.hash(&mut hasher);
        self.0[hasher.finish() as usize % LOCKS].lock().await
    }
}
