//! What is known of the pool as a whole: who has how much of it, and what its index is made of.
//!
//! Both cost verbs, so they are looked at when somebody asks, by one at a time, and no sooner again than a rest of many times what
//! the last look took. The index is counted in steps: a round over a large one takes many of them, and its sums are those of the last
//! whole round. Whoever asks meanwhile is told what is known, and how old that is; so the page goes on though the pool is stuck.

use darter::{Census, Error, IndexStats, PoolUsage, Store};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long counting goes on at once, at least one step.
const SLICE: Duration = Duration::from_millis(50);
/// The rest behind a look, at least; and how many times what the look took.
const REST: Duration = Duration::from_millis(900);
const REST_TIMES: u32 = 9;
/// Between the end of a round and the next.
const ROUND_REST: Duration = Duration::from_secs(5);

/// What was seen last.
#[derive(Clone, Debug, Default)]
pub(super) struct SurveyResult {
    /// Who has how much, and when that was read.
    pub(super) usage: Option<(Instant, Arc<PoolUsage>)>,
    /// The index, and when its round ended.
    pub(super) index: Option<(Instant, Arc<IndexStats>)>,
    /// Inner nodes counted in the round that is under way.
    pub(super) counting: u64,
    /// What the last look failed with.
    pub(super) trouble: Option<String>,
}

/// The look that is under way, or the rest.
#[derive(Debug)]
struct Work {
    census: Census,
    /// Nobody looks sooner, and nobody counts sooner.
    look_at: Instant,
    count_at: Instant,
}

/// Looks the pool over.
#[derive(Debug)]
pub(super) struct Survey {
    store: Store,
    work: Mutex<Work>,
    seen: Mutex<SurveyResult>,
}

impl Survey {
    pub(super) fn new(store: Store) -> Self {
        let now = Instant::now();
        let work = Work { census: Census::default(), look_at: now, count_at: now };
        Self { store, work: Mutex::new(work), seen: Mutex::default() }
    }

    /// Looks again, if it is time and nobody does.
    pub(super) fn go_on(&self) {
        let Ok(mut work) = self.work.try_lock() else { return };
        let began = Instant::now();
        if began < work.look_at {
            return;
        }
        let trouble = self.look(&mut work, began).err().map(|error| error.to_string());
        self.lock().trouble = trouble;
        work.look_at = Instant::now() + REST.max(began.elapsed() * REST_TIMES);
    }

    fn look(&self, work: &mut Work, began: Instant) -> Result<(), Error> {
        let usage = Arc::new(self.store.usage()?);
        self.lock().usage = Some((Instant::now(), usage));
        if began < work.count_at {
            return Ok(());
        }
        while began.elapsed() < SLICE {
            if let Some(stats) = self.store.count_some(&mut work.census)? {
                let now = Instant::now();
                work.count_at = now + ROUND_REST;
                let mut seen = self.lock();
                (seen.index, seen.counting) = (Some((now, Arc::new(stats))), 0);
                break;
            }
            self.lock().counting = work.census.nodes();
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, SurveyResult> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was seen last.
    pub(super) fn result(&self) -> SurveyResult {
        self.lock().clone()
    }
}
