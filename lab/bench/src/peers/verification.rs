//! Checks that every index holds what was written, outside the measured time: a peer that returns
//! wrong values fails, however fast it is. Scans are checked if a workload scans.

use super::crossbeam_skiplist;
use crate::rounds::Case;
use darter::block_on;
use darter_bench::BenchError;
use darter_bench::executor::Values;
use darter_bench::plan::Plan;
use darter_bench::target::{Target, TargetSession};
use darter_bench::ycsb::Workload;

/// Records that are checked, spread evenly.
const CHECKED: u64 = 10_000;
/// Pairs of a scan that is checked.
const SCANNED: usize = 100;
/// Bytes at the beginning of a value that count the values of a writer. The rest is the writer's.
const COUNTER_BYTES: usize = 8;

/// Returns whether a workload scans.
pub(super) fn has_scans(plan: &Plan<'_>) -> bool {
    plan.args.workload.contains(&Workload::E)
}

/// Checks a loaded index: reads and scans return the values that were loaded.
///
/// # Errors
/// Fails if one does not.
pub(super) fn verify_load<T: Target>(target: &T, plan: &Plan<'_>) -> Result<(), BenchError> {
    let wrong = |what: String| BenchError::WrongAnswer { index: target.name(), what };
    let step = (plan.records / CHECKED).max(1);
    let (mut session, mut found) = (target.session()?, Vec::new());
    let mut values = Values::new(plan.args.value_size, plan.records);
    for (at, key) in (0..plan.records).zip(plan.dataset.sorted(plan.records)) {
        let value = values.next();
        if !at.is_multiple_of(step) {
            continue;
        }
        if !block_on(session.read(&key, &mut found))? || found != value {
            return Err(wrong(format!("key {key:02x?} does not have the value that was loaded")));
        }
        if !has_scans(plan) {
            continue;
        }
        let count = block_on(session.scan(&key, SCANNED, &mut found))?;
        // Values were counted in the order of the keys.
        let expected = (at + 1..=plan.records).take(SCANNED);
        let is_right = count == expected.clone().count()
            && found.chunks(value.len()).zip(expected).all(|(found, number)| {
                found[..COUNTER_BYTES] == number.to_le_bytes()
                    && found[COUNTER_BYTES..] == value[COUNTER_BYTES..]
            });
        if !is_right {
            return Err(wrong(format!("a scan from key {key:02x?} does not return the pairs loaded")));
        }
    }
    Ok(())
}

/// Checks an index after all workloads: it has each of its `records` records, with a whole value of
/// one writer, and scans return the same value as reads.
///
/// # Errors
/// Fails if it does not.
pub(super) fn verify_end<T: Target>(target: &T, plan: &Plan<'_>, records: u64) -> Result<(), BenchError> {
    let wrong = |what: String| BenchError::WrongAnswer { index: target.name(), what };
    let args = plan.args;
    let threads = args.threads.iter().copied().max().unwrap_or(1) as u64;
    let writers: Vec<Vec<u8>> = (0..threads)
        .map(|thread| args.seed ^ thread)
        .chain([plan.records])
        .map(|seed| Values::new(args.value_size, seed).next()[COUNTER_BYTES..].to_vec())
        .collect();
    let (mut session, mut key) = (target.session()?, Vec::new());
    let (mut read, mut scanned) = (Vec::new(), Vec::new());
    for record in (0..records).step_by((records / CHECKED).max(1) as usize) {
        plan.dataset.key(record, &mut key);
        if !block_on(session.read(&key, &mut read))? {
            return Err(wrong(format!("key {key:02x?} is absent, but was stored")));
        }
        if read.len() != args.value_size || !writers.iter().any(|writer| writer[..] == read[COUNTER_BYTES..])
        {
            return Err(wrong(format!("key {key:02x?} has a value that no thread wrote")));
        }
        if has_scans(plan) && (block_on(session.scan(&key, 1, &mut scanned))? != 1 || scanned != read) {
            return Err(wrong(format!("a scan from key {key:02x?} and a read of it differ")));
        }
    }
    Ok(())
}

/// Checks that all operations found their keys, of which none is ever removed.
///
/// # Errors
/// Fails if one did not.
pub(super) fn verify_found(names: &[&'static str], cases: &[Case]) -> Result<(), BenchError> {
    for one in cases {
        for (&index, outcomes) in names.iter().zip(&one.outcomes) {
            let absent: u64 = outcomes.iter().map(|outcome| outcome.not_found).sum();
            let may_miss = index == crossbeam_skiplist::NAME && one.threads > 1;
            if absent > 0 && !may_miss {
                let what = format!("{absent} keys were absent in workload {}", one.workload);
                return Err(BenchError::WrongAnswer { index, what });
            }
        }
    }
    Ok(())
}
