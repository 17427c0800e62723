//! The judgement of a round: every key's history by the linearizability checker, the pool by its own checks.

use super::StressError;
use super::clock::now_ns;
use super::collect::Collected;
use super::keys::{KeySet, value_number};
use super::worker::scan_reads;
use crate::history::{Action, Operation, Outcome};
use crate::linear::{Checker, Verdict, explain};
use darter::{PoolUrl, ScanRange, Store};
use std::collections::BTreeMap;

/// Steps the checker may take for a key: about a gigabyte of memory at worst.
const STEPS_MAX: u64 = 10_000_000;
/// Lines of a long explanation that a report shows before what could not come next, and after.
const SHOWN_BEFORE: usize = 16;
const SHOWN_AFTER: usize = 6;
const SHOWN_MAX: usize = 48;

/// The client that reads everything at the end: the coordinator.
const COORDINATOR: u32 = 0;

/// A key whose history is not known to be linearizable.
#[derive(Clone, Debug)]
pub struct KeyFailure {
    /// The key's rank.
    pub rank: u32,
    /// The key.
    pub key: Vec<u8>,
    /// Whether it is a violation; else the checker ran out of steps.
    pub is_violation: bool,
    /// Its whole history, explained.
    pub explanation: String,
}

/// What the checker said of all keys.
#[derive(Clone, Debug, Default)]
pub struct Judgement {
    /// Keys that failed, by rank.
    pub failures: Vec<KeyFailure>,
    /// Operations on the key that has most.
    pub longest_history: u64,
    /// Steps the checker took.
    pub steps: u64,
}

/// Judges every key, which held what `initial` says at first.
pub fn judge(keys: &KeySet, collected: &Collected, initial: &BTreeMap<u32, u64>) -> Judgement {
    let mut checker = Checker::new();
    let mut judgement = Judgement::default();
    for (rank, operations) in (0..).zip(collected.histories()) {
        let initial = initial.get(&rank).copied();
        judgement.longest_history = judgement.longest_history.max(operations.len() as u64);
        let verdict = checker.check(operations, initial, STEPS_MAX);
        judgement.steps += checker.steps();
        if matches!(verdict, Verdict::Linearizable { .. }) {
            continue;
        }
        judgement.failures.push(KeyFailure {
            rank,
            key: keys.key(rank).to_vec(),
            is_violation: matches!(verdict, Verdict::Violation { .. }),
            explanation: explain(operations, initial, &verdict),
        });
    }
    judgement
}

impl KeyFailure {
    /// The part of the explanation around what could not come next.
    pub fn excerpt(&self) -> String {
        let lines: Vec<&str> = self.explanation.lines().collect();
        let head =
            lines.iter().position(|line| line.trim_start().starts_with("rank ")).map_or(0, |at| at + 1);
        let blocked = |line: &&str| line.trim_start().starts_with("! ");
        let Some(first) = lines.iter().position(blocked) else {
            return lines[..lines.len().min(SHOWN_MAX)].join("\n");
        };
        let last = lines.iter().rposition(blocked).unwrap_or(first);
        let from = first.saturating_sub(SHOWN_BEFORE).max(head);
        let to = (last + 1 + SHOWN_AFTER).min(lines.len()).min(from + SHOWN_MAX);
        let mut shown: Vec<String> = lines[..head].iter().map(|line| (*line).to_owned()).collect();
        if from > head {
            shown.push(format!("  ... {} operations before", from - head));
        }
        shown.extend(lines[from..to].iter().map(|line| (*line).to_owned()));
        if to < lines.len() {
            shown.push(format!("  ... {} operations after", lines.len() - to));
        }
        shown.join("\n")
    }
}

/// What the pool holds under the keys when all is quiet.
pub(super) struct FinalState {
    /// The value of each key that is there, by rank.
    pub(super) values: BTreeMap<u32, u64>,
    /// What a scan of everything broke by itself.
    pub(super) broken: Option<String>,
}

/// Reads every key, one by one and by a scan, and adds what was found to the histories.
pub(super) fn read_all(
    store: &Store,
    keys: &KeySet,
    collected: &mut Collected,
) -> Result<FinalState, StressError> {
    let mut session = store.session()?;
    let mut add = |invoked, rank, found| {
        let returned = Some((now_ns(), Outcome::Found(found)));
        collected.add(Operation { client: COORDINATOR, key: rank, action: Action::Get, invoked, returned });
    };
    let mut values = BTreeMap::new();
    for (rank, key) in (0..).zip(keys.iter()) {
        let invoked = now_ns();
        let found = session.get(key)?.as_deref().map(value_number);
        add(invoked, rank, found);
        values.extend(found.map(|value| (rank, value)));
    }
    let invoked = now_ns();
    let pairs = session.scan(..).collect::<Result<Vec<_>, _>>()?;
    let broken = match scan_reads(keys, &ScanRange::all(), usize::MAX, &pairs) {
        Ok(reads) => {
            for (rank, found) in reads {
                add(invoked, rank, found);
            }
            None
        }
        Err(what) => Some(format!("a scan of everything at rest: {what}")),
    };
    Ok(FinalState { values, broken })
}

/// What the checks of a pool found: bytes added up over the rounds of a run.
#[derive(Clone, Debug, Default)]
pub struct PoolJudgement {
    /// Invariants that are broken, each in a sentence.
    pub violations: Vec<String>,
    /// Bytes leaked before the repair.
    pub leaked_bytes_before: u64,
    /// Bytes the repair gave back.
    pub repaired_bytes: u64,
    /// Bytes leaked after it, which should be none.
    pub leaked_bytes_after: u64,
    /// Keys the index's own walk counted at the last of them.
    pub keys: u64,
}

impl PoolJudgement {
    /// Takes in what later checks found.
    pub(super) fn add(&mut self, later: Self) {
        self.violations.extend(later.violations);
        self.leaked_bytes_before += later.leaked_bytes_before;
        self.repaired_bytes += later.repaired_bytes;
        self.leaked_bytes_after += later.leaked_bytes_after;
        self.keys = later.keys;
    }
}

/// Checks, repairs and checks again a pool that nobody else uses, each as a process that has just come.
pub(super) fn check_pool(url: &PoolUrl) -> Result<PoolJudgement, StressError> {
    let open = || Store::options().must_exist(true).open_url(url);
    let before = open()?.check()?;
    let repair = open()?.repair()?;
    let after = open()?.check()?;
    let mut violations = Vec::new();
    for (when, check) in [("before", &before), ("in", &repair), ("after", &after)] {
        violations.extend(check.violations.iter().map(|what| format!("{when} the repair: {what}")));
    }
    if after.leaked_bytes > 0 {
        violations.push(format!("{} bytes are leaked after the repair", after.leaked_bytes));
    }
    Ok(PoolJudgement {
        violations,
        leaked_bytes_before: before.leaked_bytes,
        repaired_bytes: repair.repaired_bytes,
        leaked_bytes_after: after.leaked_bytes,
        keys: after.stats.keys,
    })
}
