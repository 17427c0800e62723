//! A second judge: the same histories, judged by a linearizability checker that others wrote, the
//! `WGLChecker` of the crate `todc-utils`. A mistake in [`crate::linear`] that lets a violation
//! pass is then not the last word.
//!
//! The outside checker knows neither pending operations nor histories of thousands of operations:
//! its memory grows with the square of their number. So this module does to a history what keeps
//! its answer and makes it short:
//!
//! - **Cuts** (`segments.rs`). A history is cut behind an operation that overlaps no other and whose
//!   outcome shows what the key holds after it. The history is linearizable exactly if each segment
//!   is, from the value known at its beginning.
//! - **Pending operations.** A pending write whose value somebody found did take effect, before
//!   that search returned: it is judged as an operation that had to succeed until then. A pending
//!   search changes nothing and is left out. Any other pending operation is *optional*: it may take
//!   effect at any later time, in its segment or a later one, once or never.
//!
//! A segment is judged without optional operations first. If it fails, optional operations that are
//! unused so far are offered, few of each kind at first. If it passes with some, they are taken away
//! one by one as long as it still passes, and those that are left are used up. A segment that fails
//! even with all that were ever invoked is a **violation**, since more of them allow more. Any other
//! segment, and one for which the outside checker needs more steps or memory than it is given, is
//! **given up**: it is counted, and is no acquittal.

mod outside;
mod segments;

use crate::history::{Action, Operation};
use darter_fabric::counted;
use outside::{Answer, Judged, Told};
use segments::Segments;
use std::collections::HashMap;
use std::fmt::Write;
use std::ops::Range;

/// Operations shown of a segment that is a violation.
const SHOWN: usize = 48;

/// What the outside checker says of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opinion {
    /// An order exists.
    Linearizable,
    /// None exists. The text shows the part that has none.
    Violation(String),
    /// Parts of it were given up; an order exists for the others.
    Undecided,
}

/// How much was judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Histories judged in full.
    pub histories: u64,
    /// Histories of which parts were given up.
    pub histories_undecided: u64,
    /// Histories found to be violations.
    pub violations: u64,
    /// Operations in parts that were judged.
    pub operations: u64,
    /// Operations in parts that were given up.
    pub operations_given_up: u64,
    /// Parts that were judged.
    pub segments: u64,
    /// Parts that were given up.
    pub segments_given_up: u64,
    /// Operations of the longest part that was judged.
    pub longest_segment: u64,
    /// Pending operations without which some part has no order.
    pub pending_used: u64,
}

impl Counts {
    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &Self) {
        self.histories += other.histories;
        self.histories_undecided += other.histories_undecided;
        self.violations += other.violations;
        self.operations += other.operations;
        self.operations_given_up += other.operations_given_up;
        self.segments += other.segments;
        self.segments_given_up += other.segments_given_up;
        self.longest_segment = self.longest_segment.max(other.longest_segment);
        self.pending_used += other.pending_used;
    }
}

/// Judges the history of one key, which held `initial` at first, and adds to `counts`.
pub fn judge(operations: &[Operation], initial: Option<u64>, counts: &mut Counts) -> Opinion {
    let mut case = Case::new(operations, initial);
    let opinion = case.judge(counts);
    match opinion {
        Opinion::Linearizable => counts.histories += 1,
        Opinion::Violation(_) => counts.violations += 1,
        Opinion::Undecided => counts.histories_undecided += 1,
    }
    opinion
}

/// A pending operation that may take effect or not.
#[derive(Clone, Copy, Debug)]
struct Optional {
    invoked: u64,
    action: Action,
    /// Nobody can tell its value from another: any other of its kind would do as well.
    is_anonymous: bool,
    is_used: bool,
}

/// A history under judgement.
struct Case {
    /// Operations that have an end, by when they were invoked.
    settled: Vec<Judged>,
    /// Pending operations without an end, by when they were invoked.
    optional: Vec<Optional>,
    initial: Option<u64>,
}

/// How often a value was written and when it was first found.
#[derive(Default)]
struct Value {
    writers: u32,
    /// The earliest return of an operation that found it.
    found: Option<u64>,
    /// Somebody could tell it from others: found it, or wanted to replace it and no other.
    is_told_apart: bool,
}

impl Case {
    fn new(operations: &[Operation], initial: Option<u64>) -> Self {
        let values = values(operations);
        let (mut settled, mut optional) = (Vec::new(), Vec::new());
        for &Operation { action, invoked, returned, .. } in operations {
            if let Some((returned, outcome)) = returned {
                settled.push(Judged { action, told: Told::Outcome(outcome), invoked, returned });
                continue;
            }
            let written = written(action).map(|value| (value, values.get(&value)));
            match written {
                None if action == Action::Get => {}
                // Nobody else wrote it, so whoever found it found this one's.
                Some((value, Some(&Value { writers: 1, found: Some(found), .. })))
                    if initial != Some(value) =>
                {
                    let returned = found.max(invoked);
                    settled.push(Judged { action, told: Told::Success, invoked, returned });
                }
                _ => {
                    let is_anonymous =
                        written.is_none_or(|(_, value)| value.is_none_or(|value| !value.is_told_apart));
                    optional.push(Optional { invoked, action, is_anonymous, is_used: false });
                }
            }
        }
        settled.sort_by_key(|operation| (operation.invoked, operation.returned));
        optional.sort_by_key(|optional| optional.invoked);
        Self { settled, optional, initial }
    }

    fn judge(&mut self, counts: &mut Counts) -> Opinion {
        let segments = Segments::new(&self.settled);
        let (mut state, mut is_decided) = (self.initial, true);
        for coarse in segments.coarse() {
            if outside::ask(&self.settled[coarse.clone()], &[], state) == Answer::Yes {
                counts.judged(&coarse);
                state = self.state_after(&coarse, state);
                continue;
            }
            for fine in segments.fine(&coarse) {
                match self.judge_segment(&fine, state, counts) {
                    Answer::Yes => counts.judged(&fine),
                    Answer::No => return Opinion::Violation(self.explain(&fine, state)),
                    Answer::Unknown => {
                        is_decided = false;
                        counts.segments_given_up += 1;
                        counts.operations_given_up += fine.len() as u64;
                    }
                }
                state = self.state_after(&fine, state);
            }
        }
        if is_decided { Opinion::Linearizable } else { Opinion::Undecided }
    }

    /// What the key holds at the cut behind a segment. The last segment has none, and nothing comes
    /// after it.
    fn state_after(&self, segment: &Range<usize>, before: Option<u64>) -> Option<u64> {
        self.settled[segment.clone()].last().and_then(Judged::state_after).unwrap_or(before)
    }

    /// Judges a segment, with the help of optional operations if need be.
    fn judge_segment(&mut self, segment: &Range<usize>, state: Option<u64>, counts: &mut Counts) -> Answer {
        let operations = &self.settled[segment.clone()];
        let without = outside::ask(operations, &[], state);
        if without != Answer::No {
            return without;
        }
        // Few at first: the checker tries every set of them.
        let enough = 2 * operations.len();
        let unused = |limit: &usize| self.offered(segment, state, false, *limit);
        let accepts =
            |needed: &Vec<usize>| outside::ask(operations, &self.as_judged(needed), state) == Answer::Yes;
        let Some(mut needed) = [1, 3, enough].iter().map(unused).find(accepts) else {
            let every = self.offered(segment, state, true, enough);
            let answer = outside::ask(operations, &self.as_judged(&every), state);
            return if answer == Answer::No { Answer::No } else { Answer::Unknown };
        };
        let mut at = 0;
        while at < needed.len() {
            let mut fewer = needed.clone();
            fewer.remove(at);
            if outside::ask(operations, &self.as_judged(&fewer), state) == Answer::Yes {
                needed = fewer;
            } else {
                at += 1;
            }
        }
        counts.pending_used += needed.len() as u64;
        for at in needed {
            self.optional[at].is_used = true;
        }
        Answer::Yes
    }

    /// The optional operations that may take effect in a segment, those that are used up among them
    /// or not; without those that change nothing about the answer.
    ///
    /// Between two operations of the segment only what the key holds in the end matters, and of
    /// values that nobody found any will do. So it is enough to have two of each kind for each
    /// operation of the segment, a `limit` that makes the answer complete; a smaller one leaves
    /// some out. And nobody needs to replace a value that nobody can tell from what takes its
    /// place.
    fn offered(
        &self,
        segment: &Range<usize>,
        state: Option<u64>,
        with_used: bool,
        limit: usize,
    ) -> Vec<usize> {
        let operations = &self.settled[segment.clone()];
        let (begin, end) = match (operations.first(), operations.iter().map(|judged| judged.returned).max()) {
            (Some(first), Some(end)) => (first.invoked, end),
            _ => return Vec::new(),
        };
        let mut room = HashMap::new();
        let mut offered = Vec::new();
        for (at, optional) in self.optional.iter().enumerate() {
            if optional.invoked > end || optional.is_used && !with_used {
                continue;
            }
            if let (Some(expected), true) = (optional.action.expected(), optional.is_anonymous) {
                let is_held = |action| written(action) == Some(expected);
                let distinct = self.optional.iter().filter(|other| !other.is_anonymous);
                let may_be_held = state == Some(expected)
                    || operations.iter().any(|judged| is_held(judged.action))
                    || distinct.into_iter().any(|other| is_held(other.action));
                if !may_be_held {
                    continue;
                }
            } else if optional.is_anonymous && optional.invoked <= begin {
                let left = room.entry(std::mem::discriminant(&optional.action)).or_insert(limit);
                if *left == 0 {
                    continue;
                }
                *left -= 1;
            }
            offered.push(at);
        }
        offered
    }

    fn as_judged(&self, offered: &[usize]) -> Vec<Judged> {
        let judged = |&at: &usize| {
            let Optional { invoked, action, .. } = self.optional[at];
            Judged { action, told: Told::Nothing, invoked, returned: u64::MAX }
        };
        offered.iter().map(judged).collect()
    }

    fn explain(&self, segment: &Range<usize>, state: Option<u64>) -> String {
        let operations = &self.settled[segment.clone()];
        let mut text = format!(
            "the key holds {state:?}, and there is no order of {}:",
            counted(operations.len() as u64, "operation")
        );
        for Judged { action, told, invoked, returned } in operations.iter().take(SHOWN) {
            // Writing to a String cannot fail.
            let _ = write!(text, "\n  {invoked}..{returned} {action:?} -> {told:?}");
        }
        if operations.len() > SHOWN {
            let _ = write!(text, "\n  ... {} more", operations.len() - SHOWN);
        }
        let offered = self.offered(segment, state, true, 2 * operations.len()).len();
        let _ = write!(
            text,
            "\n  nor with {} that may have taken effect by then",
            counted(offered as u64, "pending operation")
        );
        text
    }
}

impl Counts {
    fn judged(&mut self, segment: &Range<usize>) {
        self.segments += 1;
        self.operations += segment.len() as u64;
        self.longest_segment = self.longest_segment.max(segment.len() as u64);
    }
}

/// The value that an action writes if it takes effect.
fn written(action: Action) -> Option<u64> {
    match action {
        Action::Get | Action::Delete | Action::DeleteIf(_) => None,
        Action::Put(value)
        | Action::Insert(value)
        | Action::Update(value)
        | Action::Replace { value, .. } => Some(value),
    }
}

fn values(operations: &[Operation]) -> HashMap<u64, Value> {
    use crate::history::Outcome;
    let mut values: HashMap<u64, Value> = HashMap::new();
    for operation in operations {
        if let Some(value) = written(operation.action) {
            values.entry(value).or_default().writers += 1;
        }
        if let Some(expected) = operation.action.expected() {
            values.entry(expected).or_default().is_told_apart = true;
        }
        let (returned, found) = match (operation.action, operation.returned) {
            (_, Some((returned, Outcome::Found(Some(value))))) => (returned, value),
            (Action::Replace { expected, .. }, Some((returned, Outcome::Replaced)))
            | (Action::DeleteIf(expected), Some((returned, Outcome::Deleted(true)))) => (returned, expected),
            _ => continue,
        };
        let value = values.entry(found).or_default();
        value.is_told_apart = true;
        value.found = Some(value.found.map_or(returned, |first| first.min(returned)));
    }
    values
}

#[cfg(test)]
mod tests;
