//! The lease of a primary (PacificA): until then no backup will ask for a view without it.
//!
//! A backup that answers a heartbeat stays patient for a time from when it has received it. The
//! primary counts a shorter time, from when it has sent it. Clocks need not agree; they must not run
//! at rates that differ by more than the two times do.

use std::time::Duration;

/// Returns when the lease ends: a lease's length behind the sending of the latest heartbeat that
/// *all* backups have answered. `None` if one of them has answered none.
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
