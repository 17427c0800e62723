//! A limit on the log lines of each kind per second. Peers cause most of a daemon's lines, and a
//! hostile peer must not fill a disk. The suppressed lines are logged as one count.

use std::marker::PhantomData;
use std::time::{Duration, Instant};
use tracing::warn;

/// Maximum lines of one kind per second; further ones are only counted.
const LINES_MAX: u32 = 10;
/// How long each count lasts.
const SPAN: Duration = Duration::from_secs(1);

/// The kinds of log lines that peers of a daemon can cause.
pub trait LogKind: Copy {
    /// The name of every kind, as used in the log line with the count of suppressed lines.
    const NAMES: &'static [&'static str];

    /// Returns the position of this kind in [`LogKind::NAMES`].
    fn index(self) -> usize;
}

/// Decides whether a line is logged, and counts the suppressed ones.
#[derive(Debug)]
pub struct LogLimiter<K> {
    since: Instant,
    /// By kind.
    logged: Vec<u32>,
    suppressed: Vec<u64>,
    kinds: PhantomData<K>,
}

impl<K: LogKind> LogLimiter<K> {
    /// Starts with empty counts.
    pub fn new(now: Instant) -> Self {
        let kinds = K::NAMES.len();
        Self { since: now, logged: vec![0; kinds], suppressed: vec![0; kinds], kinds: PhantomData }
    }

    /// Returns whether another line of a kind may be logged now, and counts it if not.
    pub fn allows(&mut self, kind: K, now: Instant) -> bool {
        self.tick(now);
        let at = kind.index();
        if self.logged[at] < LINES_MAX {
            self.logged[at] += 1;
            return true;
        }
        self.suppressed[at] += 1;
        false
    }

    /// Logs the counts of suppressed lines if a second has passed since the last time.
    pub fn tick(&mut self, now: Instant) {
        if now.saturating_duration_since(self.since) >= SPAN {
            self.flush(now);
        }
    }

    /// Logs the counts of suppressed lines, and clears all counts.
    pub fn flush(&mut self, now: Instant) {
        for (name, count) in K::NAMES.iter().zip(&self.suppressed) {
            if *count > 0 {
                warn!(count, "more {name}, not logged individually");
            }
        }
        self.since = now;
        self.logged.fill(0);
        self.suppressed.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    enum Kind {
        Refused,
        Dropped,
    }

    impl LogKind for Kind {
        const NAMES: &'static [&'static str] = &["refused", "dropped"];

        fn index(self) -> usize {
            self as usize
        }
    }

    #[test]
    fn a_flood_is_logged_as_a_sum() {
        let start = Instant::now();
        let mut limiter = LogLimiter::new(start);
        let logged = (0..1000).filter(|_| limiter.allows(Kind::Refused, start)).count();
        assert_eq!(logged, LINES_MAX as usize);
        assert_eq!(limiter.suppressed, [1000 - logged as u64, 0]);
        assert!(limiter.allows(Kind::Dropped, start), "another kind has its own count");
        assert!(limiter.allows(Kind::Refused, start + SPAN));
        assert_eq!(limiter.suppressed, [0, 0]);
    }
}
