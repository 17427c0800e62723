//! Sampled searches: how many nodes they read, and whether a better skip table would pay.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::LocalKey;

/// Counts a call of this thread. Returns whether to sample it, which is true for one call in
/// `every`.
#[inline]
pub(crate) fn is_due(since: &'static LocalKey<Cell<u32>>, every: u32) -> bool {
    let next = since.get() + 1;
    let is_due = next >= every;
    since.set(if is_due { 0 } else { next });
    is_due
}

/// Minimum number of sampled searches before the first adjustment.
const SAMPLES_MIN: u64 = 1024;

/// Counts of sampled searches.
#[derive(Debug, Default)]
pub struct Sampling {
    searches: AtomicU64,
    /// Nodes read beyond the first of each search since the last adjustment.
    extra: AtomicU64,
    /// Number of searches at the last adjustment.
    adjusted_at: AtomicU64,
}

impl Sampling {
    /// Counts a search that read `nodes_read` nodes.
    pub fn note(&self, nodes_read: u32) {
        self.searches.fetch_add(1, Ordering::Relaxed);
        self.extra.fetch_add(u64::from(nodes_read.saturating_sub(1)), Ordering::Relaxed);
    }

    /// Number of searches so far.
    pub fn searches(&self) -> u64 {
        self.searches.load(Ordering::Relaxed)
    }

    /// Whether enough searches were sampled, and they read so many nodes that an adjustment is
    /// worthwhile.
    pub fn wants_adjust(&self) -> bool {
        let searches = self.searches();
        let since = searches.saturating_sub(self.adjusted_at.load(Ordering::Relaxed));
        // The intervals between adjustments grow, so that a workload that adjustments cannot
        // improve does not cause walks for ever.
        since >= SAMPLES_MIN.max(searches / 2) && self.extra.load(Ordering::Relaxed) * 10 > since * 3
    }

    /// Resets the counts for the next adjustment.
    pub fn adjusted(&self) {
        self.adjusted_at.store(self.searches(), Ordering::Relaxed);
        self.extra.store(0, Ordering::Relaxed);
    }
}
