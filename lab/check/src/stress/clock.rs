//! The clock that all processes of a machine share.

use rustix::time::{ClockId, clock_gettime};

/// Returns the nanoseconds of `CLOCK_MONOTONIC`, which is the same for every process of this
/// machine and never goes back.
#[expect(clippy::disallowed_methods, reason = "an `Instant` is meaningless to another process")]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Measured from the start of the machine: never negative, and has room for 584 years.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
