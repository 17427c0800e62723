//! The end of `--check`: deletes all keys, then checks for remaining and leaked bytes.

use crate::BenchError;
use crate::bench_target::BenchTarget;
use crate::datasets::Dataset;
use crate::outcome::{Outcome, latency_histogram};
use crate::progress::Progress;
use crate::report::CheckOutcome;
use crate::target::TargetSession;
use darter::block_on;
use std::time::{Duration, Instant};

/// Deletions between two rounds of upkeep.
const UPKEEP_EVERY: u64 = 1024;

/// Deletes records `0..records` and checks the pool.
pub(crate) fn delete_and_check(
    target: &impl BenchTarget,
    dataset: &dyn Dataset,
    records: u64,
    before: UsedBefore,
    progress: &Progress,
) -> Result<(Outcome, CheckOutcome), BenchError> {
    let outcome = delete_all(target, dataset, records, progress)?;
    // The express skip table has grown with the keys; an adjustment builds a small one.
    target.adjust()?;
    let (violations, leaked_bytes) = target.check()?;
    let usage = target.usage()?;
    let check = CheckOutcome {
        violations,
        leaked_bytes,
        pool_used_bytes_empty: before.pool_bytes_empty,
        pool_used_bytes_after: usage.used_bytes(),
        pool_used_bytes_full: before.pool_bytes_full,
        object_bytes_empty: before.object_bytes_empty,
        object_bytes_after: usage.object_bytes,
    };
    Ok((outcome, check))
}

/// Use of the pool at other times, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UsedBefore {
    /// Blocks in use before anything was stored.
    pub(crate) pool_bytes_empty: u64,
    /// Blocks in use when everything is stored.
    pub(crate) pool_bytes_full: u64,
    /// Objects before anything was stored.
    pub(crate) object_bytes_empty: u64,
}

fn delete_all(
    target: &impl BenchTarget,
    dataset: &dyn Dataset,
    records: u64,
    progress: &Progress,
) -> Result<Outcome, BenchError> {
    let mut session = target.session()?;
    let before = session.counters();
    let mut latency = latency_histogram();
    let (mut key, mut not_found) = (Vec::new(), 0);
    let mut busy = Duration::ZERO;
    for record in 0..records {
        dataset.key(record, &mut key);
        let begin = Instant::now();
        not_found += u64::from(!block_on(target.delete(&mut session, &key))?);
        let took = begin.elapsed();
        latency.saturating_record(took.as_nanos() as u64);
        busy += took;
        if record % UPKEEP_EVERY == UPKEEP_EVERY - 1 {
            block_on(session.maintain())?;
            progress.inc(UPKEEP_EVERY);
            progress.go_on()?;
        }
    }
    let counters = session.counters().zip(before).map(|(after, before)| after - before);
    let seconds = busy.as_secs_f64();
    Ok(Outcome { ops: records, seconds, not_found, latency, counters, ..Outcome::new(0) })
}
