//! The checks of a round: every key's history for linearizability, and the pool by its own checks.

use super::clock::now_ns;
use super::collect::Collected;
use super::keys::{KeySet, value_number};
use super::worker::scan_reads;
use super::{Site, StressError};
use crate::history::{Action, Operation, Outcome};
use crate::linear::{Checker, Verdict, explain};
use darter::{ScanRange, Store};
use std::collections::BTreeMap;

/// Maximum number of steps of the checker for a key: at worst about a gigabyte of memory.
const STEPS_MAX: u64 = 10_000_000;
/// Operations that an excerpt shows before and after one that could not come next.
const SHOWN_BEFORE: usize = 2;
const SHOWN_AFTER: usize = 2;
/// Operations shown before the last of these.
const SHOWN_LAST: usize = 16;
/// Maximum number of operations shown that could not come next.
const SHOWN_BLOCKED: usize = 16;

/// The client that reads all keys at the end: the coordinator.
const COORDINATOR: u32 = 0;

/// A key whose history is not known to be linearizable.
#[derive(Clone, Debug)]
pub struct KeyFailure {
    /// The key's rank.
    pub rank: u32,
    /// The key.
    pub key: Vec<u8>,
    /// Whether it is a violation; otherwise the checker ran out of steps.
    pub is_violation: bool,
    /// An explanation of its whole history.
    pub explanation: String,
}

/// The results of the checker for all keys.
#[derive(Clone, Debug, Default)]
pub struct Judgement {
    /// Keys that failed, by rank.
    pub failures: Vec<KeyFailure>,
    /// Operations on the key that has the most.
    pub longest_history: u64,
    /// Steps the checker took.
    pub steps: u64,
}

/// Checks the history of every key, which held its `initial` value at first.
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
    /// Returns the parts of the explanation around the operations that could not come next. A slow
    /// operation is listed far above the quick ones that it overlaps, so these need not be
    /// adjacent.
    pub fn excerpt(&self) -> String {
        let lines: Vec<&str> = self.explanation.lines().collect();
        let head =
            lines.iter().position(|line| line.trim_start().starts_with("rank ")).map_or(0, |at| at + 1);
        let mut blocked: Vec<usize> =
            (head..lines.len()).filter(|&at| lines[at].trim_start().starts_with("! ")).collect();
        let Some(&last) = blocked.last() else {
            return lines[..lines.len().min(head + SHOWN_LAST)].join("\n");
        };
        blocked.truncate(SHOWN_BLOCKED);
        let mut text = lines[..head].join("\n");
        let mut told = head;
        for at in blocked {
            let before = if at == last { SHOWN_LAST } else { SHOWN_BEFORE };
            let from = at.saturating_sub(before).max(told);
            let to = (at + 1 + SHOWN_AFTER).min(lines.len());
            skip(&mut text, from - told);
            for line in &lines[from..to.max(from)] {
                text.push('\n');
                text.push_str(line);
            }
            told = to.max(told);
        }
        skip(&mut text, lines.len() - told);
        text
    }
}

/// Notes that lines are left out.
fn skip(text: &mut String, lines: usize) {
    if lines > 0 {
        text.push_str("\n   ... ");
        text.push_str(&lines.to_string());
        text.push_str(" operations");
    }
}

/// The contents of the pool under the keys after all clients have ended.
pub(super) struct FinalState {
    /// The value of each key that is present, by rank.
    pub(super) values: BTreeMap<u32, u64>,
    /// The guarantee that a scan of all keys broke by itself.
    pub(super) broken: Option<String>,
}

/// Reads every key, one by one and by a scan, and adds the results to the histories.
pub(super) fn read_all(
    store: &Store,
    keys: &KeySet,
    collected: &mut Collected,
) -> Result<FinalState, StressError> {
    let session = store.session()?;
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
    let pairs = session.range(..).collect::<Result<Vec<_>, _>>()?;
    let broken = match scan_reads(keys, &ScanRange::all(), usize::MAX, &pairs) {
        Ok(reads) => {
            for (rank, found) in reads {
                add(invoked, rank, found);
            }
            None
        }
        Err(what) => Some(format!("a scan of all keys after the round: {what}")),
    };
    Ok(FinalState { values, broken })
}

/// The results of checking a pool; bytes are added up over the rounds of a run.
#[derive(Clone, Debug, Default)]
pub struct PoolJudgement {
    /// Broken invariants, each described in a sentence.
    pub violations: Vec<String>,
    /// Bytes leaked before the repair.
    pub leaked_bytes_before: u64,
    /// Bytes freed by the repair.
    pub repaired_bytes: u64,
    /// Bytes leaked after the repair, which should be 0.
    pub leaked_bytes_after: u64,
    /// Keys that the index's own walk counted in the last check.
    pub keys: u64,
}

impl PoolJudgement {
    /// Adds the results of later checks.
    pub(super) fn add(&mut self, later: Self) {
        self.violations.extend(later.violations);
        self.leaked_bytes_before += later.leaked_bytes_before;
        self.repaired_bytes += later.repaired_bytes;
        self.leaked_bytes_after += later.leaked_bytes_after;
        self.keys = later.keys;
    }
}

/// Checks, repairs and checks again a pool that is not in use, each time as a new process.
pub(super) fn check_pool(site: &Site) -> Result<PoolJudgement, StressError> {
    let site = site.without_sweeps();
    let open = || site.open();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The excerpt shows the operations that could not come next, however far apart their lines
    /// are, and leaves out the rest.
    #[test]
    fn an_excerpt_is_short_and_shows_what_is_blocked() {
        let get = |client, invoked, returned, found| Operation {
            client,
            key: 0,
            action: Action::Get,
            invoked,
            returned: Some((returned, Outcome::Found(found))),
        };
        // Two slow wrong reads around a thousand quick correct ones.
        let mut collected = Collected::new(1);
        collected.add(get(1, 10, 5000, Some(7)));
        (0..1000).for_each(|n| collected.add(get(2, 20 + 2 * n, 21 + 2 * n, None)));
        collected.add(get(3, 1020, 4999, Some(8)));
        let judgement = judge(&KeySet::new(1), &collected, &BTreeMap::new());
        let excerpt = judgement.failures[0].excerpt();
        assert!(judgement.failures[0].is_violation);
        for lie in ["found 7 (would be found absent)", "found 8 (would be found absent)"] {
            assert!(excerpt.lines().any(|line| line.contains(lie) && line.contains('!')), "{excerpt}");
        }
        assert!(excerpt.lines().count() < 40, "{excerpt}");
        let left_out: usize = excerpt
            .lines()
            .filter_map(|line| line.trim().strip_prefix("... ")?.split(' ').next()?.parse::<usize>().ok())
            .sum();
        let told = excerpt.lines().filter(|line| line.contains("get ->")).count();
        assert_eq!(left_out + told, 1002);
    }
}
