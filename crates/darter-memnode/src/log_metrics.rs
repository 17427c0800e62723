//! The counters of a memory node's redo log. Each is written by one thread: the serving thread, the
//! thread that writes the log, or the thread that makes checkpoints.

use darter_telemetry::counters::{Counter, Histogram, NANOS_BOUNDS};
use std::time::{Duration, Instant};

/// The counters of a log since the node's start.
#[derive(Debug)]
pub(crate) struct LogMetrics {
    began: Instant,
    /// Records made.
    pub(crate) records: Counter,
    /// Replies sent after they had waited for the log.
    pub(crate) released: Counter,
    /// Bytes of replies that wait for the log.
    pub(crate) held_bytes: Counter,
    /// Milliseconds from the start to the time when the oldest records that are not durable were
    /// handed over, plus 1; 0 if all are durable.
    waits_since_ms: Counter,
    pub(crate) syncs: Counter,
    pub(crate) synced_bytes: Counter,
    /// Nanoseconds to write and sync a group of records.
    pub(crate) sync_nanos: Histogram,
    /// 1 if the log has failed. Written once, by the first thread that detects it.
    pub(crate) has_failed: Counter,
    pub(crate) checkpoints: Counter,
    pub(crate) failed_checkpoints: Counter,
    pub(crate) checkpoint_bytes: Counter,
    /// Complete readings of the medium that found no damage.
    pub(crate) scrubs: Counter,
    /// Damages of the medium that were found.
    pub(crate) damages: Counter,
    /// Milliseconds from the start to the newest checkpoint.
    checkpointed_ms: Counter,
}

impl Default for LogMetrics {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            records: Counter::default(),
            released: Counter::default(),
            held_bytes: Counter::default(),
            waits_since_ms: Counter::default(),
            syncs: Counter::default(),
            synced_bytes: Counter::default(),
            sync_nanos: Histogram::new(&NANOS_BOUNDS),
            has_failed: Counter::default(),
            checkpoints: Counter::default(),
            failed_checkpoints: Counter::default(),
            checkpoint_bytes: Counter::default(),
            scrubs: Counter::default(),
            damages: Counter::default(),
            checkpointed_ms: Counter::default(),
        }
    }
}

impl LogMetrics {
    fn millis(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX)
    }

    /// Counts a sync of this number of bytes.
    pub(crate) fn synced(&self, bytes: usize, took: Duration) {
        self.syncs.add(1);
        self.synced_bytes.add(bytes as u64);
        self.sync_nanos.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Records the time since which the oldest records wait to become durable.
    pub(crate) fn waits_since(&self, since: Option<Instant>) {
        self.waits_since_ms.set(since.map_or(0, |since| self.millis(since) + 1));
    }

    /// Counts a checkpoint that wrote this number of bytes, or failed.
    pub(crate) fn checkpointed(&self, bytes: u64, is_made: bool) {
        self.checkpoint_bytes.add(bytes);
        if is_made {
            self.checkpoints.add(1);
            self.checkpointed_ms.set(self.millis(Instant::now()));
        } else {
            self.failed_checkpoints.add(1);
        }
    }

    /// Returns the time that the oldest records have waited to become durable.
    pub(crate) fn oldest_wait(&self) -> Duration {
        match self.waits_since_ms.get() {
            0 => Duration::ZERO,
            since => Duration::from_millis(self.millis(Instant::now()).saturating_sub(since - 1)),
        }
    }

    /// Returns the time since the newest checkpoint, or since the start.
    pub(crate) fn checkpoint_age(&self) -> Duration {
        Duration::from_millis(self.millis(Instant::now()).saturating_sub(self.checkpointed_ms.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_wait_ends_when_nothing_waits() {
        let metrics = LogMetrics::default();
        assert_eq!(metrics.oldest_wait(), Duration::ZERO);
        if let Some(earlier) = metrics.began.checked_sub(Duration::from_secs(60)) {
            let metrics = LogMetrics { began: earlier, ..metrics };
            metrics.waits_since(Some(earlier));
            assert!(metrics.oldest_wait() >= Duration::from_secs(60));
            assert!(metrics.checkpoint_age() >= Duration::from_secs(60));
            metrics.waits_since(None);
            assert_eq!(metrics.oldest_wait(), Duration::ZERO);
            metrics.checkpointed(4096, true);
            assert!(metrics.checkpoint_age() < Duration::from_secs(60));
        }
    }
}
