//! Locks that order the commands of one thread on the same key or element. Without them, commands
//! that change what they have read would invalidate each other's work repeatedly, which costs round
//! trips over memory nodes.
//!
//! Correctness does not depend on these locks: other threads and other gateways do not use them.

use super::aggregate::Session;
use super::{Family, place};
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
    /// Locks a record that a command changes, until the returned guard is dropped. A command holds
    /// one lock at a time. A change in a transaction needs none: it does not take effect yet.
    pub(super) async fn lock(&self, session: Option<&Session>, place: &[u8]) -> Option<MutexGuard<'_, ()>> {
        match session {
            Some(session) if session.is_in_transaction() => None,
            _ => Some(self.slot(place).lock().await),
        }
    }

    /// Locks a key's head for a transaction.
    pub(crate) async fn lock_head(&self, key: &[u8]) -> MutexGuard<'_, ()> {
        let mut at = Vec::new();
        place(&mut at, Family::Key, key);
        self.slot(&at).lock().await
    }

    fn slot(&self, place: &[u8]) -> &Mutex<()> {
        let mut hasher = DefaultHasher::new();
        place.hash(&mut hasher);
        &self.0[hasher.finish() as usize % LOCKS]
    }
}
