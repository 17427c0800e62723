//! A worker's counts of its own events, for the summary. They are in a separate file that is
//! rewritten periodically, since a killed worker can no longer report them. A kill loses the counts
//! since the last write.

use super::StressError;
use super::thread_stop;
use darter_fabric::decorate::{AGES, AgeTally, Ages, JitterCounts, JitterTally};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Time between two writes of the file.
const PACE: Duration = Duration::from_millis(20);
/// Number of words in the file.
const WORDS: usize = HEAD_WORDS + AGES;
const HEAD_WORDS: usize = 5;

/// Counts of events in workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Stops of single threads that have ended.
    pub thread_stops: u64,
    /// The sum of their durations.
    pub stopped: Duration,
    /// Random delays of batches.
    pub delays: JitterCounts,
    /// How soon memory that held a large value, or another object of that size, was written again
    /// by the same process.
    pub ages: Ages,
}

impl WorkerCounts {
    /// Adds the counts of another worker.
    pub fn add(&mut self, other: &Self) {
        self.thread_stops += other.thread_stops;
        self.stopped += other.stopped;
        self.delays.batches += other.delays.batches;
        self.delays.split += other.delays.split;
        self.delays.time += other.delays.time;
        self.ages.add(&other.ages);
    }

    fn words(&self) -> [u64; WORDS] {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let JitterCounts { batches, split, time } = self.delays;
        let head = [self.thread_stops, ns(self.stopped), batches, split, ns(time)];
        let mut words = [0; WORDS];
        words[..HEAD_WORDS].copy_from_slice(&head);
        words[HEAD_WORDS..].copy_from_slice(&self.ages.0);
        words
    }

    /// Reads a worker's counts; zeros if it died before it wrote any.
    pub(super) fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_default();
        let mut words = [0; WORDS];
        if bytes.len() == WORDS * 8 {
            for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*bytes);
            }
        }
        let [thread_stops, stopped, batches, split, time, ages @ ..] = words;
        let delays = JitterCounts { batches, split, time: Duration::from_nanos(time) };
        Self { thread_stops, stopped: Duration::from_nanos(stopped), delays, ages: Ages(ages) }
    }
}

/// The counts of this process.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The counts of each fabric that was opened.
    fabrics: Mutex<Vec<(JitterTally, AgeTally)>>,
}

impl Tally {
    /// Counts the events of one more fabric.
    pub(super) fn follow(&self, delays: &JitterTally, ages: &AgeTally) {
        let mut fabrics = self.fabrics.lock().unwrap_or_else(PoisonError::into_inner);
        fabrics.push((delays.clone(), ages.clone()));
    }

    fn counts(&self) -> WorkerCounts {
        let (thread_stops, stopped) = thread_stop::counts();
        let mut counts = WorkerCounts { thread_stops, stopped, ..WorkerCounts::default() };
        for (delays, ages) in self.fabrics.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let (delays, ages) = (delays.counts(), ages.ages());
            counts.add(&WorkerCounts { delays, ages, ..WorkerCounts::default() });
        }
        counts
    }

    /// Writes the counts to a file periodically until `stop` is set, and once more after that.
    pub(super) fn keep(&self, path: &Path, stop: &AtomicBool) -> Result<(), StressError> {
        let refused = |source| StressError::File { path: path.to_owned(), action: "write it", source };
        let file = File::create(path).map_err(refused)?;
        loop {
            let is_last = stop.load(Ordering::Relaxed);
            let mut bytes = [0; WORDS * 8];
            for (to, word) in bytes.chunks_exact_mut(8).zip(self.counts().words()) {
                to.copy_from_slice(&word.to_le_bytes());
            }
            file.write_all_at(&bytes, 0).map_err(refused)?;
            if is_last {
                return Ok(());
            }
            std::thread::sleep(PACE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_they_were_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tally");
        let tally = Tally::default();
        tally.follow(&JitterTally::default(), &AgeTally::default());
        tally.keep(&path, &AtomicBool::new(true)).unwrap();
        assert_eq!(WorkerCounts::read(&path).delays, JitterCounts::default());
        let delays = JitterCounts { batches: 3, split: 1, time: Duration::from_nanos(77) };
        let mut ages = Ages::default();
        (ages.0[3], ages.0[AGES - 1]) = (4, 5);
        let counts = WorkerCounts { thread_stops: 9, stopped: Duration::from_micros(5), delays, ages };
        let words = counts.words();
        std::fs::write(&path, words.map(u64::to_le_bytes).as_flattened()).unwrap();
        assert_eq!(WorkerCounts::read(&path), counts);
        std::fs::write(&path, [1; 12]).unwrap();
        assert_eq!(WorkerCounts::read(&path), WorkerCounts::default());
        assert_eq!(WorkerCounts::read(&directory.path().join("none")), WorkerCounts::default());
    }
}
