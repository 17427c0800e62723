//! Other checkers of the same histories, and properties that every verdict must have.

use darter_check::history::{Action, Operation, Outcome};
use darter_check::linear::Verdict;
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

/// Whether no operation outside `placed` must precede this one.
fn may_be_next(operations: &[Operation], placed: &[usize], index: usize) -> bool {
    let precedes =
        |other: &Operation| other.returned.is_some_and(|(returned, _)| returned < operations[index].invoked);
    !operations.iter().enumerate().any(|(other, operation)| !placed.contains(&other) && precedes(operation))
}

/// Asserts that a verdict contains an order of operations that time and results allow, and that it
/// is complete if it should be.
pub(crate) fn assert_respects(operations: &[Operation], initial: Option<u64>, verdict: &Verdict) {
    let (order, complete) = match verdict {
        Verdict::Linearizable { order } => (order, true),
        Verdict::Violation { longest, .. } => (longest, false),
        Verdict::Unknown { .. } => return,
    };
    // An operation must not come after one that was invoked after it returned.
    let mut last_invoked = 0;
    let mut placed = vec![false; operations.len()];
    let mut state = initial;
    for &index in order {
        let operation = &operations[index];
        assert!(!std::mem::replace(&mut placed[index], true), "operation {index} is placed twice");
        last_invoked = last_invoked.max(operation.invoked);
        let (outcome, next) = operation.action.apply(state);
        state = next;
        if let Some((returned, told)) = operation.returned {
            assert_eq!(told, outcome, "operation {index}");
            assert!(last_invoked <= returned, "operation {index} comes too late");
        }
    }
    for (index, operation) in operations.iter().enumerate() {
        if let (false, Some((returned, _))) = (placed[index], operation.returned) {
            assert!(!complete, "operation {index} is missing");
            assert!(last_invoked <= returned, "operation {index} should have come");
        }
    }
}

/// The greatest number of completed operations in any partial order, by trying all.
pub(crate) fn longest_by_brute_force(operations: &[Operation], initial: Option<u64>) -> usize {
    fn extend(operations: &[Operation], placed: &mut Vec<usize>, state: Option<u64>) -> usize {
        let mut longest = placed.iter().filter(|&&index| operations[index].returned.is_some()).count();
        for index in 0..operations.len() {
            if placed.contains(&index) || !may_be_next(operations, placed, index) {
                continue;
            }
            let (outcome, next) = operations[index].action.apply(state);
            if operations[index].returned.is_none_or(|(_, told)| told == outcome) {
                placed.push(index);
                longest = longest.max(extend(operations, placed, next));
                placed.pop();
            }
        }
        longest
    }
    extend(operations, &mut Vec::new(), initial)
}

/// The key in the form that the published checker needs, implemented separately from
/// [`Action::apply`].
#[derive(Clone, Debug)]
struct Cell(Option<u64>);

impl SequentialSpec for Cell {
    type Op = Action;
    type Ret = Outcome;

    fn invoke(&mut self, action: &Action) -> Outcome {
        let held = self.0;
        let (writes, value, success) = match *action {
            Action::Get => return Outcome::Found(held),
            Action::Delete => return Outcome::Deleted(self.0.take().is_some()),
            Action::DeleteIf(expected) if held == Some(expected) => {
                self.0 = None;
                return Outcome::Deleted(true);
            }
            Action::DeleteIf(_) => return Outcome::Refused,
            Action::Put(value) if held.is_none() => (true, value, Outcome::Inserted),
            Action::Put(value) => (true, value, Outcome::Replaced),
            Action::Insert(value) => (held.is_none(), value, Outcome::Inserted),
            Action::Update(value) => (held.is_some(), value, Outcome::Replaced),
            Action::Replace { expected, value } => (held == Some(expected), value, Outcome::Replaced),
        };
        if !writes {
            return Outcome::Refused;
        }
        self.0 = Some(value);
        success
    }
}

/// Returns the verdict of stateright's tester. Every operation is a separate thread, pending ones
/// stay in flight, and of events at one moment the invocations come first.
pub(crate) fn published_checker_accepts(operations: &[Operation], initial: Option<u64>) -> bool {
    let mut events = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        events.push((operation.invoked, false, index));
        if let Some((returned, _)) = operation.returned {
            events.push((returned, true, index));
        }
    }
    events.sort_unstable();
    let mut tester = LinearizabilityTester::new(Cell(initial));
    for (_, returns, index) in events {
        let told = match operations[index].returned {
            Some((_, outcome)) if returns => tester.on_return(index, outcome),
            _ => tester.on_invoke(index, operations[index].action),
        };
        told.expect("the history is well formed");
    }
    tester.is_consistent()
}
