//! The clock of leases: time that has passed on this machine, whatever its wall clock says.
//!
//! It is `CLOCK_BOOTTIME`. It never steps, and unlike `CLOCK_MONOTONIC`, which [`std::time::Instant`]
//! reads, it goes on while the machine is suspended: a process that wakes must see that it was
//! silent, to renew its lease at once, and to trust none that it had before. Time-outs of a wait
//! are `Instant`s: a machine that sleeps cannot be answered either.
//!
//! It begins when the machine does, or a container with a time namespace, so a reading means
//! nothing to another machine. No reading is stored in a pool or sent to another process.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the time since an arbitrary beginning, the same for this process as long as it runs;
/// time in which the machine was suspended counts.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that reads the clock of leases")]
pub fn lease_clock() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}
