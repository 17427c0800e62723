//! Turns of the tasks that share a thread. On a pool on this machine no request ever waits, so a
//! command with much work must let other clients have their turn.
//!
//! Work is counted in copied bytes, not in time: a record, a verb or a step of a pattern counts as
//! the bytes that could be copied in its time ([`darter_fabric::turns`]). A turn is [`TURN_BYTES`],
//! about 0.1 to 0.5 ms. It ends in the verbs of the pool, and after each record or argument of a
//! command. A pass over one value cannot be divided.

use darter_fabric::turns::{self, Turn};
use std::future::{Future, poll_fn};
use std::pin::pin;
use tokio::task::yield_now;

/// Work of a turn, in bytes.
pub(super) const TURN_BYTES: usize = 512 << 10;
/// The work of a record or an argument, in bytes, in addition to its length.
const RECORD_BYTES: usize = 2 << 10;

/// Runs a task in turns, and calls `has_worked` with the work of each, in bytes. After a turn that
/// ended because of its work, the thread polls its sockets and its other tasks.
pub(super) async fn in_turns(has_worked: impl Fn(usize), task: impl Future<Output = ()>) {
    let mut task = pin!(task);
    poll_fn(|context| {
        let (polled, Turn { work, is_over }) = turns::take(TURN_BYTES, || task.as_mut().poll(context));
        has_worked(work);
        if is_over && polled.is_pending() {
            // A task that wakes itself is polled up to 61 times before the sockets.
            let rested = pin!(yield_now()).poll(context);
            debug_assert!(rested.is_pending());
        }
        polled
    })
    .await;
}

/// Counts a record or an argument, and ends the turn if there was enough work.
pub(super) async fn worked() {
    turns::worked(RECORD_BYTES).await;
}

/// Counts a record of this length in bytes, and ends the turn if there was enough work.
pub(super) async fn copied(bytes: usize) {
    turns::worked(RECORD_BYTES + bytes).await;
}
