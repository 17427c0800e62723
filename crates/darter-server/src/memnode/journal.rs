//! What a memory node tells its log, so many lines a second of each sort: peers cause most of them, and a hostile one
//! must not fill a disk. What was left out is told as a sum.

use std::time::{Duration, Instant};
use tracing::warn;

/// Lines of one sort told in a second; the rest is counted.
const LINES_MAX: u32 = 10;
/// How long that count lasts.
const SPAN: Duration = Duration::from_secs(1);

/// Sorts of lines that peers can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Accepted,
    Closed,
    Refused,
    Dropped,
    Fenced,
    Accepting,
}

/// Every sort, as its sum names it.
const LINES: [(Line, &str); 6] = [
    (Line::Accepted, "connections accepted"),
    (Line::Closed, "connections closed"),
    (Line::Refused, "connections refused"),
    (Line::Dropped, "connections dropped"),
    (Line::Fenced, "sessions fenced"),
    (Line::Accepting, "connections that could not be accepted"),
];

/// Counts lines.
#[derive(Debug)]
pub(super) struct Journal {
    since: Instant,
    told: [u32; LINES.len()],
    left_out: [u64; LINES.len()],
}

impl Journal {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, told: [0; LINES.len()], left_out: [0; LINES.len()] }
    }

    /// Whether one more line of a sort may be told now.
    pub(super) fn tells(&mut self, line: Line, now: Instant) -> bool {
        self.sum_up(now);
        let at = line as usize;
        if self.told[at] < LINES_MAX {
            self.told[at] += 1;
            return true;
        }
        self.left_out[at] += 1;
        false
    }

    /// Tells what was left out, once a second has passed.
    pub(super) fn sum_up(&mut self, now: Instant) {
        if now.saturating_duration_since(self.since) >= SPAN {
            self.end(now);
        }
    }

    /// Tells what was left out, and begins anew.
    pub(super) fn end(&mut self, now: Instant) {
        for ((_, name), count) in LINES.iter().zip(self.left_out) {
            if count > 0 {
                warn!(count, "more {name}, not told one by one");
            }
        }
        *self = Self::new(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_told_as_a_sum() {
        for (at, (line, _)) in LINES.into_iter().enumerate() {
            assert_eq!(line as usize, at);
        }
        let start = Instant::now();
        let mut journal = Journal::new(start);
        let told = (0..1000).filter(|_| journal.tells(Line::Refused, start)).count();
        assert_eq!(told, LINES_MAX as usize);
        assert_eq!(journal.left_out[Line::Refused as usize], 1000 - told as u64);
        assert!(journal.tells(Line::Dropped, start), "another sort has its own count");
        assert!(journal.tells(Line::Refused, start + SPAN));
        assert_eq!(journal.left_out, [0; LINES.len()]);
    }
}
