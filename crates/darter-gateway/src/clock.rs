//! The time of commands in ms since the Unix epoch, precise to the millisecond. Redis defines
//! expiry times and the slow log's timestamps by the wall clock; a gateway uses it for nothing
//! else.
//!
//! The kernel's coarse clock would be cheaper to read but lags by up to a tick (4 ms at 250 Hz), so
//! that a key would outlive its deadline. A connection therefore reads the precise clock once for
//! all requests that have arrived together, and adds the time elapsed since then on the monotonic
//! clock, which it reads for each command anyway.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Returns the time since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "as Redis does")]
fn now() -> Duration {
    let now = clock_gettime(ClockId::Realtime);
    Duration::new(now.tv_sec.max(0) as u64, now.tv_nsec as u32)
}

/// Returns the time in ms since the Unix epoch.
#[inline]
pub(super) fn now_ms() -> u64 {
    now().as_millis() as u64
}

/// Returns the time in microseconds since the Unix epoch.
pub(super) fn now_us() -> u64 {
    now().as_micros() as u64
}

/// A reading of the wall clock, from which later times are computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct WallClock {
    wall: Duration,
    /// When it was read.
    pub(super) read_at: Instant,
}

impl WallClock {
    /// Reads the clock.
    pub(super) fn read() -> Self {
        Self { wall: now(), read_at: Instant::now() }
    }

    /// Returns the time at a later instant, in ms since the Unix epoch.
    #[inline]
    pub(super) fn at(&self, instant: Instant) -> u64 {
        (self.wall + instant.saturating_duration_since(self.read_at)).as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[expect(clippy::disallowed_methods, reason = "the reference of the test")]
    fn system_ms() -> u64 {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64
    }

    #[test]
    fn the_time_is_the_systems_to_the_millisecond() {
        for _ in 0..1000 {
            let before = system_ms();
            let (now, clock) = (now_ms(), WallClock::read());
            let later = clock.at(Instant::now());
            let after = system_ms();
            assert!(before <= now && now <= later && later <= after, "{before} {now} {later} {after}");
            assert_eq!(clock.at(clock.read_at + Duration::from_secs(2)) - clock.at(clock.read_at), 2000);
        }
    }
}
