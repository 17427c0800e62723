//! Checks a history of many keys, key by key.

use std::collections::BTreeMap;

use super::{Checker, Verdict, explain};
use crate::history::Operation;

/// The result of checking a whole history.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Report {
    /// The violation of the smallest key that has one; otherwise the unknown verdict of the
    /// smallest key whose budget was spent; `None` if the history is linearizable.
    pub failure: Option<KeyFailure>,
    /// Keys checked: all of the history, unless a violation ended the check.
    pub keys: usize,
    /// Total steps taken.
    pub steps: u64,
    /// Operations on the key that has the most, of the keys checked.
    pub longest_history: usize,
}

/// A key that is not known to be linearizable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFailure {
    /// The key.
    pub key: u32,
    /// Its initial value.
    pub initial: Option<u64>,
    /// Its operations, in the order of the whole history. The verdict's indexes are into these.
    pub operations: Vec<Operation>,
    /// [`Verdict::Violation`] or [`Verdict::Unknown`].
    pub verdict: Verdict,
}

impl Report {
    /// Whether every key is known to be linearizable.
    pub fn is_linearizable(&self) -> bool {
        self.failure.is_none()
    }
}

impl KeyFailure {
    /// Returns the key's history as text for a reader: see [`explain`].
    pub fn explain(&self) -> String {
        explain(&self.operations, self.initial, &self.verdict)
    }
}

impl Checker {
    /// Checks a history of many keys, which initially had the values of `initial` and otherwise
    /// were absent. Every key has `key_budget` steps. The first violation, by key, ends the check.
    ///
    /// # Panics
    ///
    /// Panics if an operation returned before it was invoked.
    pub fn check_all(
        &mut self,
        history: &[Operation],
        initial: &BTreeMap<u32, u64>,
        key_budget: u64,
    ) -> Report {
        let mut by_key = history.to_vec();
        by_key.sort_by_key(|operation| operation.key);
        let mut report = Report { failure: None, keys: 0, steps: 0, longest_history: 0 };
        for operations in by_key.chunk_by(|one, other| one.key == other.key) {
            let key = operations[0].key;
            let initial = initial.get(&key).copied();
            let answer = self.is_linearizable(operations, initial, key_budget);
            report.keys += 1;
            report.steps += self.steps();
            report.longest_history = report.longest_history.max(operations.len());
            if answer == Some(true) || (answer.is_none() && report.failure.is_some()) {
                continue;
            }
            let verdict = self.check(operations, initial, key_budget);
            report.failure = Some(KeyFailure { key, initial, operations: operations.to_vec(), verdict });
            if answer == Some(false) {
                break;
            }
        }
        report
    }
}
