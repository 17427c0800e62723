//! Decides when a process checks a page whose pairs may have moved out of it.

use std::sync::atomic::{AtomicI32, Ordering};

/// Largest factor by which checks become rarer.
const RARER_MAX: i32 = 64;

/// When to check a page after events of one kind. Concurrent updates by threads may be lost.
#[derive(Debug)]
pub(super) struct Pace {
    /// Events since the last check.
    since: AtomicI32,
    /// Events between two checks.
    every: AtomicI32,
    least: i32,
}

impl Pace {
    fn new(least: i32, every: i32) -> Self {
        Self { since: AtomicI32::new(0), every: AtomicI32::new(every), least }
    }

    /// Counts events. Returns whether a check of a page is due.
    pub(super) fn is_due(&self, events: i32) -> bool {
        let since = self.since.load(Ordering::Relaxed).saturating_add(events);
        let is_due = since >= self.every.load(Ordering::Relaxed);
        self.since.store(if is_due { 0 } else { since }, Ordering::Relaxed);
        is_due
    }

    /// Postpones the next check by `least` events, the shortest interval between checks.
    pub(super) fn put_off(&self) {
        let since = self.since.load(Ordering::Relaxed) - self.least;
        self.since.store(since.max(-self.least * RARER_MAX), Ordering::Relaxed);
    }

    /// Notes whether a check has paid off, and adapts the interval.
    pub(super) fn note(&self, has_paid: bool) {
        let every = self.every.load(Ordering::Relaxed);
        let every = if has_paid { every / 2 } else { every + every / 8 + 1 };
        self.every.store(every.clamp(self.least, self.least * RARER_MAX), Ordering::Relaxed);
    }
}

/// When to check a page.
#[derive(Debug)]
pub(super) struct Folding {
    /// Counts changed records.
    pub(super) changes: Pace,
    /// Counts the round trips, or cache misses, that reads take for leaves.
    pub(super) trips: Pace,
}

impl Folding {
    /// For pages of at most `records` records, whose leaves cost round trips, or cache misses if
    /// searches are direct.
    pub(super) fn new(records: usize, is_direct: bool) -> Self {
        let records = i32::try_from(records).unwrap_or(i32::MAX);
        let trips = if is_direct { records } else { records / 16 };
        let (changes, trips) = ((records / 8).max(1), trips.max(1));
        Self { changes: Pace::new(changes, changes * 4), trips: Pace::new(trips, trips) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_do_not_pay_become_rare_and_those_that_pay_frequent() {
        let pace = Folding::new(64, false).changes;
        let looks = |pays: bool| (0..100_000).filter(|_| pace.is_due(1)).map(|_| pace.note(pays)).count();
        let in_vain = looks(false);
        assert!(in_vain < 300, "{in_vain}");
        let paid = looks(true);
        assert!((12_000..=12_500).contains(&paid), "{paid}");
    }
}
