//! What the clients of one compute node share: here, the clones of one index handle in one process.
//!
//! The systems beside DART coordinate within a compute node before they turn to the network
//! (Sherman, section 2.1; SMART, section 4.2). Waiting is asynchronous: it holds up neither a
//! thread nor a loop, and a waiting future can be dropped.

mod local_locks;

pub(crate) use local_locks::{LocalGuard, LocalLocks};

use std::task::Poll;

/// Lets the other tasks of this loop go on once.
pub(crate) async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
