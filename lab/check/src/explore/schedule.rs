//! The schedule of a run, a list of decisions on which of the possible events happens next, and the
//! trait of schedulers that make them.
//!
//! A decision is a number: 0 continues with the task that moved last, `n` takes the n-th of the
//! other events on offer. A schedule of zeros therefore runs each client to its end, one after
//! another, and a shrunk schedule has few context switches.

use super::op::Op;
use darter_sim::{Event, WordOrder};
use std::fmt;
use std::str::FromStr;

/// The decision of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The event, counted from the task that moved last.
    pub event: u16,
    /// Words of a long verb that execute now; 0 for all.
    pub words: u16,
    /// Whether its last words come first.
    pub descending: bool,
}

impl Decision {
    /// Returns the piece of a long verb, for the executor.
    pub fn piece(self) -> (u32, WordOrder) {
        let words = if self.words == 0 { u32::MAX } else { self.words.into() };
        (words, if self.descending { WordOrder::Descending } else { WordOrder::Ascending })
    }
}

/// The decisions of a run, without trailing zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule(pub Vec<Decision>);

impl Schedule {
    /// Returns the number of context switches and torn verbs, which measures how hard it is to
    /// read.
    pub fn switches(&self) -> usize {
        self.0.iter().filter(|&&decision| decision != Decision::default()).count()
    }

    /// Removes the zeros at the end.
    #[must_use]
    pub fn trimmed(mut self) -> Self {
        while self.0.last() == Some(&Decision::default()) {
            self.0.pop();
        }
        self
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = &self.0[..];
        let mut first = true;
        while let [decision, ..] = rest {
            let run = rest.iter().take_while(|next| *next == decision).count();
            rest = &rest[run..];
            if !std::mem::take(&mut first) {
                f.write_str(".")?;
            }
            write!(f, "{}", decision.event)?;
            if decision.words > 0 || decision.descending {
                write!(f, ":{}{}", decision.words, if decision.descending { "d" } else { "" })?;
            }
            if run > 1 {
                write!(f, "x{run}")?;
            }
        }
        Ok(())
    }
}

/// Maximum number of decisions in a line.
const DECISIONS_MAX: usize = 10_000_000;

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut decisions = Vec::new();
        for token in text.split('.').filter(|token| !token.is_empty()) {
            let bad = || format!("'{token}' is not a decision of a schedule");
            let (token_body, run) = token.split_once('x').unwrap_or((token, "1"));
            let run: usize = run.parse().map_err(|_| bad())?;
            let (event, piece) = token_body.split_once(':').unwrap_or((token_body, "0"));
            let words = piece.strip_suffix('d').unwrap_or(piece);
            let decision = Decision {
                event: event.parse().map_err(|_| bad())?,
                words: words.parse().map_err(|_| bad())?,
                descending: piece.ends_with('d'),
            };
            if run > DECISIONS_MAX - decisions.len() {
                return Err(format!("more than {DECISIONS_MAX} decisions"));
            }
            decisions.extend(std::iter::repeat_n(decision, run));
        }
        Ok(Self(decisions))
    }
}

/// Makes the decisions of a run.
pub trait Scheduler {
    /// Chooses one of the events on offer, which begin with those of the task that moved last.
    fn decide(&mut self, events: &[Event]) -> Decision;

    /// Receives the operation that each client performs, before each decision.
    fn observe(&mut self, _operations: &[Option<Op>]) {}

    /// Returns how far back from the newest a power failure leaves a word or a log; the caller
    /// takes it modulo the number of possibilities.
    fn pick(&mut self) -> u16;

    /// Whether batches complete, and operations begin, as early as they can, so that only verbs are
    /// decided on.
    fn is_eager(&self) -> bool {
        false
    }

    /// Whether to describe each step.
    fn traces(&self) -> bool {
        false
    }

    /// Whether to abandon the rest of the run.
    fn gives_up(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_read_back_as_written() {
        let text = "0x12.3.0.2:5dx2.1:7";
        let schedule: Schedule = text.parse().unwrap();
        assert_eq!((schedule.to_string(), schedule.0.len(), schedule.switches()), (text.to_owned(), 17, 4));
        assert_eq!("0x3".parse::<Schedule>().unwrap().trimmed().to_string(), "");
        for bad in ["x", "1x99999999999", "a.b", "1:", "1:y"] {
            assert!(bad.parse::<Schedule>().is_err(), "{bad}");
        }
    }
}
