//! What a daemon tells its log, so many lines a second of each sort: peers cause most of them, and a hostile one
//! must not fill a disk. What was left out is told as a sum.

use std::marker::PhantomData;
use std::time::{Duration, Instant};
use tracing::warn;

/// Lines of one sort told in a second; the rest is counted.
const LINES_MAX: u32 = 10;
/// How long that count lasts.
const SPAN: Duration = Duration::from_secs(1);

/// Sorts of lines that peers can cause.
pub(crate) trait Line: Copy {
    /// Every sort, as its sum names it.
    const NAMES: &'static [&'static str];

    /// Which of them it is.
    fn place(self) -> usize;
}

/// Counts lines.
#[derive(Debug)]
pub(crate) struct Journal<L> {
    since: Instant,
    /// Of each sort.
    told: Vec<u32>,
    left_out: Vec<u64>,
    sorts: PhantomData<L>,
}

impl<L: Line> Journal<L> {
    pub(crate) fn new(now: Instant) -> Self {
        let sorts = L::NAMES.len();
        Self { since: now, told: vec![0; sorts], left_out: vec![0; sorts], sorts: PhantomData }
    }

    /// Whether one more line of a sort may be told now.
    pub(crate) fn tells(&mut self, line: L, now: Instant) -> bool {
        self.sum_up(now);
        let at = line.place();
        if self.told[at] < LINES_MAX {
            self.told[at] += 1;
            return true;
        }
        self.left_out[at] += 1;
        false
    }

    /// Tells what was left out, once a second has passed.
    pub(crate) fn sum_up(&mut self, now: Instant) {
        if now.saturating_duration_since(self.since) >= SPAN {
            self.end(now);
        }
    }

    /// Tells what was left out, and begins anew.
    pub(crate) fn end(&mut self, now: Instant) {
        for (name, count) in L::NAMES.iter().zip(&self.left_out) {
            if *count > 0 {
                warn!(count, "more {name}, not told one by one");
            }
        }
        self.since = now;
        self.told.fill(0);
        self.left_out.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    enum Sort {
        Refused,
        Dropped,
    }

    impl Line for Sort {
        const NAMES: &'static [&'static str] = &["refused", "dropped"];

        fn place(self) -> usize {
            self as usize
        }
    }

    #[test]
    fn a_flood_is_told_as_a_sum() {
        let start = Instant::now();
        let mut journal = Journal::new(start);
        let told = (0..1000).filter(|_| journal.tells(Sort::Refused, start)).count();
        assert_eq!(told, LINES_MAX as usize);
        assert_eq!(journal.left_out, [1000 - told as u64, 0]);
        assert!(journal.tells(Sort::Dropped, start), "another sort has its own count");
        assert!(journal.tells(Sort::Refused, start + SPAN));
        assert_eq!(journal.left_out, [0, 0]);
    }
}
