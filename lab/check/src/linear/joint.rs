//! Strict serializability of transactions: whether they and the operations on their keys could all
//! have taken effect one after another, each at one moment of its interval.
//!
//! Histories of several keys cannot be checked key by key if an operation accesses several of them.
//! The search is the one of the [module](super) over the values of all keys, with three of its
//! shortcuts: what only observes goes first, a state that used fewer pending operations stands for
//! those that used more, and a pending operation must be needed, which here means that a remaining
//! operation could observe what it leaves in one of its keys.

use super::explain::{ActionText, OutcomeText, StateText};
use super::memo::Memo;
use crate::history::{Access, Action, Operation, Outcome, Transaction};
use std::fmt::{self, Write as _};

/// What a step does.
#[derive(Debug)]
enum Work<'h> {
    One { key: usize, operation: &'h Operation },
    All { keys: Vec<usize>, transaction: &'h Transaction },
}

/// An operation or a transaction.
#[derive(Debug)]
struct JointStep<'h> {
    work: Work<'h>,
    invoked: u64,
    returned: Option<u64>,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// There is an order.
    Serializable,
    /// There is none. The text shows all operations, and a longest partial order.
    Violation(String),
    /// The budget was spent before there was a result.
    Unknown,
}

/// The search was stopped: its budget was spent.
struct OutOfSteps;

/// A check of all keys that some transactions access.
pub struct Joint<'h> {
    keys: Vec<u32>,
    /// Completed steps by invocation, then the pending ones.
    steps: Vec<JointStep<'h>>,
    /// Number of completed steps.
    completed: usize,
    /// The value of each key.
    values: Vec<Option<u64>>,
    is_placed: Vec<bool>,
    path: Vec<usize>,
    longest: Vec<usize>,
    /// Number of completed steps in the path, and in the longest one.
    placed: (usize, usize),
    memo: Memo,
    taken: u64,
    budget: u64,
}

impl<'h> Joint<'h> {
    /// A check of those operations and transactions that access the keys of any of the
    /// transactions. Transactions that had no effect are left out.
    pub fn new(
        operations: &'h [Operation],
        transactions: &'h [Transaction],
        initial: &dyn Fn(u32) -> Option<u64>,
    ) -> Self {
        let effective = || transactions.iter().filter(|transaction| !transaction.is_void());
        let mut keys: Vec<u32> = effective().flat_map(|one| &one.accesses).map(|access| access.key).collect();
        keys.sort_unstable();
        keys.dedup();
        let singles = operations.iter().filter_map(|operation| {
            let key = keys.binary_search(&operation.key).ok()?;
            let returned = operation.returned.map(|(at, _)| at);
            // A search that did not return has no effect.
            let counts = returned.is_some() || operation.action != Action::Get;
            let work = Work::One { key, operation };
            counts.then_some(JointStep { work, invoked: operation.invoked, returned })
        });
        let many = effective().map(|transaction| {
            let key = |access: &Access| keys.binary_search(&access.key).unwrap_or_default();
            let work = Work::All { keys: transaction.accesses.iter().map(key).collect(), transaction };
            JointStep { work, invoked: transaction.invoked, returned: transaction.returned.map(|(at, _)| at) }
        });
        let mut steps: Vec<JointStep<'h>> = singles.chain(many).collect();
        steps.sort_by_key(|step| (step.returned.is_none(), step.invoked));
        let completed = steps.iter().filter(|step| step.returned.is_some()).count();
        Self {
            values: keys.iter().map(|&key| initial(key)).collect(),
            is_placed: vec![false; steps.len()],
            keys,
            completed,
            steps,
            path: Vec::new(),
            longest: Vec::new(),
            placed: (0, 0),
            memo: Memo::default(),
            taken: 0,
            budget: 0,
        }
    }

    /// Whether this check covers a key.
    pub fn covers(&self, key: u32) -> bool {
        self.keys.binary_search(&key).is_ok()
    }

    /// Returns the number of steps taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Searches an order. At most `budget` steps are taken: operations placed, again after others
    /// were taken back.
    pub fn check(&mut self, budget: u64) -> Judgement {
        let bits = |count: usize| count.div_ceil(64);
        let (completed, pending) = (bits(self.completed), bits(self.steps.len() - self.completed));
        self.memo.reset(3 + self.values.len() + completed, pending);
        self.budget = budget;
        let initial = self.values.clone();
        match self.place_rest() {
            Ok(true) => Judgement::Serializable,
            Ok(false) => Judgement::Violation(self.explain(&initial)),
            Err(OutOfSteps) => Judgement::Unknown,
        }
    }

    /// Adds the current state to the memo. Returns `false` if this state, or a state from which all
    /// of its continuations are possible, was visited before.
    fn remember(&mut self) -> bool {
        // No client writes this value.
        let mut row: Vec<u64> = self.values.iter().map(|value| value.unwrap_or(u64::MAX)).collect();
        for part in [&self.is_placed[..self.completed], &self.is_placed[self.completed..]] {
            let word =
                |bits: &[bool]| (0..).zip(bits).fold(0, |word, (at, &bit)| word | u64::from(bit) << at);
            row.extend(part.chunks(64).map(word));
        }
        self.memo.insert([0; 3], &row)
    }

    /// Places all remaining completed steps. Returns `false` if that is impossible; everything is
    /// then as before.
    fn place_rest(&mut self) -> Result<bool, OutOfSteps> {
        if self.placed.0 == self.completed {
            return Ok(true);
        }
        if !self.remember() {
            return Ok(false);
        }
        let (next, horizon) = self.next_in_time();
        let fits = |at: &usize| self.steps[*at].fits(&self.values);
        let next: Vec<usize> = next.into_iter().filter(fits).collect();
        if let Some(&observer) = next.iter().find(|&&at| self.steps[at].only_observes()) {
            return self.try_next(observer);
        }
        for &at in &next {
            if self.try_next(at)? {
                return Ok(true);
            }
        }
        for at in self.completed..self.steps.len() {
            let can = !self.is_placed[at] && self.steps[at].invoked <= horizon;
            let is_useful = can && self.steps[at].fits(&self.values) && self.is_needed(at);
            if is_useful && self.try_next(at)? {
                return Ok(true);
            }
        }
        if self.placed.0 > self.placed.1 {
            self.placed.1 = self.placed.0;
            self.longest.clone_from(&self.path);
        }
        Ok(false)
    }

    /// Returns the completed steps that no other one must precede, and the time at which the first
    /// of the remaining ones returned.
    fn next_in_time(&self) -> (Vec<usize>, u64) {
        let mut horizon = u64::MAX;
        let mut next = Vec::new();
        for at in (0..self.completed).filter(|&at| !self.is_placed[at]) {
            let step = &self.steps[at];
            if step.invoked > horizon {
                break;
            }
            horizon = horizon.min(step.returned.unwrap_or(u64::MAX));
            next.push(at);
        }
        next.retain(|&at| self.steps[at].invoked <= horizon);
        (next, horizon)
    }

    /// Whether a pending step changes a key, and a remaining step may observe the change.
    fn is_needed(&self, pending: usize) -> bool {
        let mut left = self.steps[pending].changes(&self.values);
        left.retain(|&(key, value)| self.values[key] != value);
        let remaining = (0..self.steps.len()).filter(|&at| !self.is_placed[at] && at != pending);
        remaining.into_iter().any(|at| left.iter().any(|&(key, value)| self.steps[at].observes(key, value)))
    }

    fn try_next(&mut self, at: usize) -> Result<bool, OutOfSteps> {
        if self.taken == self.budget {
            return Err(OutOfSteps);
        }
        self.taken += 1;
        let is_completed = usize::from(at < self.completed);
        let before = self.values.clone();
        for (key, value) in self.steps[at].changes(&before) {
            self.values[key] = value;
        }
        self.is_placed[at] = true;
        self.path.push(at);
        self.placed.0 += is_completed;
        if self.place_rest()? {
            return Ok(true);
        }
        self.placed.0 -= is_completed;
        self.path.pop();
        self.is_placed[at] = false;
        self.values = before;
        Ok(false)
    }

    /// Renders all steps by invocation, with their ranks in the longest partial order.
    fn explain(&self, initial: &[Option<u64>]) -> String {
        let mut text = String::new();
        self.write(&mut text, initial).expect("writing to a string does not fail");
        text
    }

    fn write(&self, text: &mut String, initial: &[Option<u64>]) -> fmt::Result {
        let pairs = |values: &[Option<u64>]| {
            let pair = |(key, value): (&u32, &Option<u64>)| format!("key {key}: {}", StateText(*value));
            self.keys.iter().zip(values).map(pair).collect::<Vec<_>>().join(", ")
        };
        let mut values = initial.to_vec();
        for &at in &self.longest {
            for (key, value) in self.steps[at].changes(&values) {
                values[key] = value;
            }
        }
        writeln!(text, "at first {}", pairs(initial))?;
        writeln!(
            text,
            "at most {} of {} completed ones fit one order, as ranked; then {}",
            self.placed.1,
            self.completed,
            pairs(&values)
        )?;
        let mut by_invocation: Vec<usize> = (0..self.steps.len()).collect();
        by_invocation.sort_by_key(|&at| self.steps[at].invoked);
        writeln!(text, "{:>6} {:>7}  {:<13}  what", "rank", "client", "interval")?;
        for at in by_invocation {
            let step = &self.steps[at];
            let rank = self.longest.iter().position(|&other| other == at);
            let rank = rank.map_or_else(|| "-".to_owned(), |rank| (rank + 1).to_string());
            let returned = step.returned.map(|at| at.to_string()).unwrap_or_default();
            let interval = format!("{}..{returned}", step.invoked);
            writeln!(text, "{rank:>6} {:>7}  {interval:<13}  {step}", step.client())?;
        }
        Ok(())
    }
}

impl JointStep<'_> {
    fn client(&self) -> u32 {
        match &self.work {
            Work::One { operation, .. } => operation.client,
            Work::All { transaction, .. } => transaction.client,
        }
    }

    /// Whether by its result it changed nothing.
    fn only_observes(&self) -> bool {
        match &self.work {
            Work::One { operation, .. } => matches!(
                operation.returned,
                Some((_, Outcome::Found(_) | Outcome::Refused | Outcome::Deleted(false)))
            ),
            Work::All { transaction, .. } => transaction.accesses.iter().all(|access| access.write.is_none()),
        }
    }

    /// Whether it could come next: its result fits the values, or it did not return and could have
    /// taken effect.
    fn fits(&self, values: &[Option<u64>]) -> bool {
        match &self.work {
            Work::One { key, operation } => {
                let outcome = operation.action.apply(values[*key]).0;
                operation.returned.is_none_or(|(_, returned)| returned == outcome)
            }
            Work::All { keys, transaction } => (keys.iter().zip(&transaction.accesses))
                .all(|(&key, access)| access.read.is_none_or(|read| read == values[key])),
        }
    }

    /// Returns the values that it leaves in the keys that it may change.
    fn changes(&self, values: &[Option<u64>]) -> Vec<(usize, Option<u64>)> {
        match &self.work {
            Work::One { key, operation } => vec![(*key, operation.action.apply(values[*key]).1)],
            Work::All { keys, transaction } => (keys.iter().zip(&transaction.accesses))
                .filter_map(|(&key, access)| Some((key, access.write?)))
                .collect(),
        }
    }

    /// Whether its result, or for a pending step whether it takes effect, could depend on a key's
    /// having this value.
    fn observes(&self, key: usize, value: Option<u64>) -> bool {
        match &self.work {
            Work::One { key: own, .. } if *own != key => false,
            Work::One { operation, .. } => {
                let (outcome, next) = operation.action.apply(value);
                if let Some((_, returned)) = operation.returned {
                    return returned == outcome;
                }
                let is_conditional = !matches!(operation.action, Action::Put(_) | Action::Delete);
                is_conditional && outcome != Outcome::Refused && next != value
            }
            Work::All { keys, transaction } => {
                let access = keys.iter().position(|&own| own == key).map(|at| transaction.accesses[at]);
                access.is_some_and(|access| access.read == Some(value))
            }
        }
    }
}

impl fmt::Display for JointStep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transaction = match &self.work {
            Work::One { operation, .. } => {
                write!(f, "key {}: {} -> ", operation.key, ActionText(operation.action))?;
                return match operation.returned {
                    Some((_, outcome)) => write!(f, "{}", OutcomeText(outcome)),
                    None => f.write_str("pending"),
                };
            }
            Work::All { transaction, .. } => transaction,
        };
        f.write_str("commit")?;
        for Access { key, read, write } in &transaction.accesses {
            let (mut read_text, mut write_text) = (String::new(), String::new());
            if let Some(read) = read {
                write!(read_text, " read {}", StateText(*read))?;
            }
            if let Some(written) = write {
                write!(write_text, " to {}", StateText(*written))?;
            }
            write!(f, ", key {key}{read_text}{write_text}")?;
        }
        f.write_str(if transaction.returned.is_some() { " -> done" } else { " -> pending" })
    }
}

#[cfg(test)]
mod tests;
