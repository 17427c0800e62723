//! One clock for all processes of a machine.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`, which every process of this machine reads alike and which never goes back.
#[expect(clippy::disallowed_methods, reason = "an `Instant` means nothing to another process")]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Since the machine started: never negative, and 584 years fit.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
