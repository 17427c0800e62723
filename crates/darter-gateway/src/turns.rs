//! Turns of clients that share a thread: on a pool of this machine no request ever waits, so a
//! command that does much has to let the others have their turn by itself.
//!
//! Work is counted in units, not in time: a unit is a record that is read or changed, or
//! [`UNIT_BYTES`] that are copied. A turn is 128 units, 1 MiB if all of them are bytes: some 0.1 to
//! 0.5 ms.

use tokio::task::{coop::consume_budget, yield_now};

/// Bytes whose copying counts as one unit.
const UNIT_BYTES: usize = 8 << 10;
/// Units of a turn; those of tokio's budget for one poll of a task.
pub(super) const TURN_UNITS: usize = 128;

/// Returns the units of a record or a request of so many bytes.
pub(super) fn units_of(bytes: usize) -> usize {
    1 + bytes / UNIT_BYTES
}

/// Ends the turn.
pub(super) async fn end() {
    yield_now().await;
}

/// Counts one unit of work, and ends the turn if there were enough.
pub(super) async fn worked() {
    consume_budget().await;
}

/// Counts the copying of so many bytes, and ends the turn if there was enough work.
pub(super) async fn copied(bytes: usize) {
    // More than a turn is one turn: nothing of it is left to do.
    for _ in 0..units_of(bytes).min(TURN_UNITS) {
        consume_budget().await;
    }
}
