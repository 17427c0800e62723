//! State shared by the clients of one compute node, here the clones of one index handle in one
//! process.
//!
//! The systems compared with DART coordinate within a compute node before they use the network
//! (Sherman, section 2.1; SMART, section 4.2). Waiting is asynchronous: it blocks neither a thread
//! nor a loop, and a waiting future can be dropped.

mod local_locks;

pub(crate) use local_locks::{LocalGuard, LocalLocks};

use std::task::Poll;

/// Yields once to the other tasks of this loop.
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
