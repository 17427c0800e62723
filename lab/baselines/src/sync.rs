//! Locking of mutexes whose data stays consistent if a thread panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex and ignores poison.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
