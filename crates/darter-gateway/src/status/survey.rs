//! The survey of the pool as a whole: its members, the usage of its memory, and the composition of
//! its index.
//!
//! Both parts cost verbs. So a survey runs only on request, one at a time, and each is followed by
//! a pause of many times its duration. The index is counted in steps: a round over a large index
//! takes many of them, and its results are those of the last complete round. A request during a
//! survey gets the last results and their age, so that the page works even if the pool is stuck.

use crate::state::GatewayState;
use darter::Error;
use darter::report::{IncrementalStats, IndexStats, PoolUsage};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long counting continues at once. It takes at least one step.
const SLICE: Duration = Duration::from_millis(50);
/// The pause after a survey is at least `REST`, and at least `REST_TIMES` the survey's duration.
const REST: Duration = Duration::from_millis(900);
const REST_TIMES: u32 = 9;
/// The pause between the end of a round and the next.
const ROUND_REST: Duration = Duration::from_secs(5);

/// The results of the last survey.
#[derive(Clone, Debug, Default)]
pub(super) struct SurveyResult {
    /// The members and the usage of memory, and when they were read.
    pub(super) usage: Option<(Instant, Arc<PoolUsage>)>,
    /// The statistics of the index, and when its round ended.
    pub(super) index: Option<(Instant, Arc<IndexStats>)>,
    /// Inner nodes counted in the current round.
    pub(super) counting: u64,
    /// The error of the last survey.
    pub(super) trouble: Option<String>,
}

/// The progress of a survey, and the pause after it.
#[derive(Debug)]
struct SurveyProgress {
    progress: IncrementalStats,
    /// How many times the store had rejoined its pool.
    joins: u64,
    /// The earliest times of the next survey and of the next count.
    look_at: Instant,
    count_at: Instant,
}

/// Surveys the pool.
#[derive(Debug)]
pub(super) struct Survey {
    shared: Arc<GatewayState>,
    work: Mutex<SurveyProgress>,
    result: Mutex<SurveyResult>,
}

impl Survey {
    pub(super) fn new(shared: Arc<GatewayState>) -> Self {
        let now = Instant::now();
        let work =
            SurveyProgress { progress: IncrementalStats::default(), joins: 0, look_at: now, count_at: now };
        Self { shared, work: Mutex::new(work), result: Mutex::default() }
    }

    /// Continues the survey if it is due and not running.
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

    fn look(&self, work: &mut SurveyProgress, began: Instant) -> Result<(), Error> {
        let store = &self.shared.store;
        if work.joins != store.joins() {
            (work.progress, work.joins) = (IncrementalStats::default(), store.joins());
        }
        let usage = Arc::new(store.usage()?);
        self.lock().usage = Some((Instant::now(), usage));
        if began < work.count_at {
            return Ok(());
        }
        while began.elapsed() < SLICE {
            if let Some(stats) = store.count_some(&mut work.progress)? {
                let now = Instant::now();
                work.count_at = now + ROUND_REST;
                let mut seen = self.lock();
                (seen.index, seen.counting) = (Some((now, Arc::new(stats))), 0);
                break;
            }
            self.lock().counting = work.progress.nodes();
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, SurveyResult> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last results.
    pub(super) fn result(&self) -> SurveyResult {
        self.lock().clone()
    }
}
