//! The pace of the background walk: fast while it finds records to remove, slow on an idle pool,
//! and slower still while the pool fails. Also decides whether the wall clock, by which the walk
//! determines the age of records, can be trusted.

use super::keyspace::{Census, Stepped};
use std::time::{Duration, Instant};

/// The pause between two steps.
const FAST: Duration = Duration::from_millis(100);
/// The pause if the last round found nothing, or if no key expires.
const SLOW: Duration = Duration::from_secs(1);
/// The longest pause between two rounds that find nothing, and after a failure.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Chooses the pause between two steps of the walk.
#[derive(Debug)]
pub(super) struct Pace {
    step: Duration,
    round: Duration,
    failure: Duration,
    /// The counts of the last round.
    last: Option<Census>,
    /// Whether something was found since.
    found: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self { step: FAST, round: FAST, failure: FAST, last: None, found: false }
    }
}

impl Pace {
    /// Returns the pause after a step. It ends when the first key expires that the round has found.
    pub(super) fn after(&mut self, stepped: &Stepped, now_ms: u64) -> Duration {
        self.failure = FAST;
        self.found |= stepped.found;
        let Some(census) = stepped.census else { return self.step };
        let is_at_rest = !self.found && self.last == Some(census);
        self.found = false;
        self.last = Some(census);
        self.step = if is_at_rest || census.expiring == 0 { SLOW } else { FAST };
        self.round = if is_at_rest { (self.round * 2).clamp(SLOW, PAUSE_MAX) } else { self.step };
        let until_first = |end: u64| Duration::from_millis(end.saturating_sub(now_ms).saturating_add(1));
        self.round.min(census.first_end.map_or(PAUSE_MAX, until_first)).max(FAST)
    }

    /// Returns the pause after a step that failed.
    pub(super) fn after_failure(&mut self) -> Duration {
        self.failure = (self.failure * 2).clamp(SLOW, PAUSE_MAX);
        self.failure
    }
}

/// The smallest step of the wall clock against the monotonic clock that counts, in ms.
const STEP_MS: u64 = 2000;

/// Compares the wall clock with the monotonic one.
#[derive(Debug, Default)]
pub(super) struct ClockWatch {
    last: Option<(u64, Instant)>,
    /// When the wall clock last stepped.
    stepped_at: Option<Instant>,
}

impl ClockWatch {
    /// Reads both clocks. Returns whether the wall clock has not stepped for `long`.
    pub(super) fn is_steady(&mut self, wall_ms: u64, now: Instant, long: Duration) -> bool {
        if let Some((wall, at)) = self.last.replace((wall_ms, now)) {
            let passed = u64::try_from(now.saturating_duration_since(at).as_millis()).unwrap_or(u64::MAX);
            if wall.saturating_add(passed).abs_diff(wall_ms) > STEP_MS {
                self.stepped_at = Some(now);
            }
        }
        self.stepped_at.is_none_or(|at| now.saturating_duration_since(at) > long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000;

    fn round(keys: u64, expiring: u64, first_end: Option<u64>, found: bool) -> Stepped {
        Stepped { found, census: Some(Census { keys, expiring, first_end }), ..Stepped::default() }
    }

    #[test]
    fn a_pool_at_rest_is_walked_over_every_ten_seconds() {
        let mut pace = Pace::default();
        let idle = round(2, 1, Some(NOW + 3_600_000), false);
        let pauses: Vec<u64> = (0..8).map(|_| pace.after(&idle, NOW).as_millis() as u64).collect();
        assert_eq!(pauses, [100, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000]);
        // One key more, and a removal.
        assert_eq!(pace.after(&round(3, 1, None, false), NOW), FAST);
        assert_eq!(pace.after(&round(3, 1, None, false), NOW), SLOW);
        assert_eq!(pace.after(&round(3, 1, None, true), NOW), FAST);
    }

    #[test]
    fn a_key_that_ends_is_met_in_time() {
        let mut pace = Pace::default();
        for _ in 0..10 {
            pace.after(&round(2, 1, Some(NOW + 3000), false), NOW);
        }
        assert_eq!(pace.after(&round(2, 1, Some(NOW + 3000), false), NOW), Duration::from_millis(3001));
        assert_eq!(pace.after(&round(2, 1, Some(NOW + 3000), false), NOW + 2999), FAST);
    }

    #[test]
    fn a_failing_pool_is_walked_seldom() {
        let mut pace = Pace::default();
        let pauses: Vec<u64> = (0..6).map(|_| pace.after_failure().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 10, 10]);
        pace.after(&Stepped::default(), NOW);
        assert_eq!(pace.after_failure(), SLOW);
    }

    #[test]
    fn a_clock_that_steps_is_not_trusted_for_an_hour() {
        const HOUR: Duration = Duration::from_secs(3600);
        for wall in [NOW + 3_700_000, NOW - 3_600_000, NOW + 315_360_000_000, 0] {
            let (mut watch, start) = (ClockWatch::default(), Instant::now());
            assert!(watch.is_steady(NOW, start, HOUR));
            let second = Duration::from_secs(1);
            assert!(watch.is_steady(NOW + 1500, start + second, HOUR), "some skew is not a step");
            assert!(!watch.is_steady(wall, start + 2 * second, HOUR), "{wall}");
            assert!(!watch.is_steady(wall + 3_600_000, start + 2 * second + HOUR, HOUR), "{wall}");
            assert!(watch.is_steady(wall + 3_601_000, start + 3 * second + HOUR, HOUR), "{wall}");
        }
    }
}
