//! The lease of a primary (PacificA): until it ends, no backup requests a view without the primary.
//!
//! A backup that acknowledges a heartbeat stays patient for a time that starts when it received it.
//! The primary counts a shorter time, which starts when it sent it. Clocks need not agree, but
//! their rates must not differ by more than the two times do.

use std::time::Duration;

/// Returns when the lease ends: one lease length after the primary sent the latest heartbeat that
/// *all* backups have acknowledged. `None` if a backup has acknowledged none.
pub(super) fn end(granted: impl Iterator<Item = Option<Duration>>, lease: Duration) -> Option<Duration> {
    let mut all = Duration::MAX;
    for sent in granted {
        all = all.min(sent?);
    }
    Some(all.saturating_add(lease))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_backup_counts() {
        let seconds = Duration::from_secs;
        let of = |granted: &[Option<u64>]| {
            end(granted.iter().map(|sent| sent.map(seconds)), seconds(6)).map(|end| end.as_secs())
        };
        assert_eq!(of(&[Some(9), Some(4)]), Some(10));
        assert_eq!(of(&[Some(9), None]), None);
    }
}
