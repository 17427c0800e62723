//! Operations that wait while a snapshot holds changes, which takes some milliseconds
//! (`darter_index::snapshot`). The upkeep thread, which learns when that is over, wakes them.

use crate::parts::StorePool;
use std::future::poll_fn;
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};

/// The waiting operations of a process.
#[derive(Default)]
pub(crate) struct Holds(Mutex<Vec<Waker>>);

impl Holds {
    /// Waits until changes may begin, or the upkeep has failed.
    pub(crate) async fn wait(&self, pool: &StorePool) {
        let mut has_waited = false;
        poll_fn(|context| {
            // Under the lock, so that the upkeep thread has either stored the news before, or will
            // find the waker.
            let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if has_waited || !pool.holds_changes() {
                return Poll::Ready(());
            }
            has_waited = true;
            waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Wakes the operations.
    pub(crate) fn release(&self) {
        let waiting = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().for_each(Waker::wake);
    }
}
