//! The clock of leases: the time that has passed on this machine, independent of its wall clock.
//!
//! It is `CLOCK_BOOTTIME`. It never steps and, unlike `CLOCK_MONOTONIC`, which
//! [`std::time::Instant`] reads, it continues while the machine is suspended: a process that wakes
//! must notice that it was silent, renew its lease at once, and trust no lease that it had before.
//! Timeouts of waits are `Instant`s: a suspended machine cannot receive replies either.
//!
//! It starts when the machine or a container with a time namespace starts, so a reading is
//! meaningless on another machine. No reading is stored in a pool or sent to another process.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the time since an arbitrary start, which is fixed for the life of this process. Time in
/// which the machine was suspended counts.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that reads the clock of leases")]
pub fn lease_clock() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}
