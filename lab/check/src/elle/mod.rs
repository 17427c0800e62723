//! Isolation of transactions over lists, checked from outside as Elle does (Kingsbury and Alvaro,
//! 2020): without any knowledge of the protocol.
//!
//! Each transaction reads lists and appends elements to them, and no element is appended to a list
//! twice. A list shows in which order its elements were appended, so reads reveal the order of its
//! versions, and with it how transactions depend on each other (Adya, 1999):
//!
//! | edge | from | to |
//! |---|---|---|
//! | ww | the transaction that appended an element | the one that appended the next |
//! | wr | the one that appended the last element of a read | the one that read it |
//! | rw | the one that read a version | the one that appended the next element |
//! | rt | one that ended | one that began after that |
//!
//! In a strictly serializable history these edges have no cycle. The kinds of edges on a cycle name
//! the [`Anomaly`].
//!
//! A *put* replaces a list by one with a single new element, reads nothing, and is the only step of
//! its transaction. A read shows which put its list began with, so the versions after each put are
//! a list themselves, and those before all puts another. Which of two puts came first is known only
//! if a transaction that saw one list ended before one that saw the other began: then all versions
//! of the first come before the second put, and the edge counts as one of real time.
//!
//! - A transaction without an outcome counts as committed if a committed one has read an element of
//!   it, and is left out otherwise.
//! - A committed element that no read contains comes after all that reads contain.
//! - At equal timestamps two transactions overlap, as in [`linear`](crate::linear).

mod analysis;
mod edges;
mod export;
mod versions;

pub use analysis::check;
pub use export::to_edn;

use std::fmt;

/// A step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Appends an element.
    Append {
        /// The list.
        list: u32,
        /// The element.
        element: u64,
    },
    /// Replaces a list by one with a single element. It is the only step of its transaction.
    Put {
        /// The list.
        list: u32,
        /// The element.
        element: u64,
    },
    /// Reads a list.
    Read {
        /// The list.
        list: u32,
        /// Its elements, from the first appended one on.
        elements: Vec<u64>,
    },
}

/// The end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was committed at this time.
    Committed(u64),
    /// It had no effect, as its client learned at this time.
    Aborted(u64),
    /// It did not return: it may have taken effect or not.
    Unknown,
}

/// A transaction over lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The client.
    pub client: u32,
    /// Its steps, in order. Reads count only if it was committed.
    pub steps: Vec<Step>,
    /// When it began, by any clock that all clients share.
    pub invoked: u64,
    /// Its end.
    pub end: End,
}

/// A kind of anomaly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// A read returned an element that no transaction appended, or one element twice.
    Garbage,
    /// A read contradicts an earlier step of the same transaction.
    Internal,
    /// Two reads of a list disagree about its order.
    IncompatibleOrder,
    /// A read returned an element of a transaction that had no effect.
    G1a,
    /// A read returned a version from the middle of another transaction.
    G1b,
    /// Two committed transactions appended to the same version of a list.
    LostUpdate,
    /// A cycle of ww edges.
    G0,
    /// A cycle of ww and wr edges.
    G1c,
    /// A cycle with one rw edge.
    GSingle,
    /// A cycle with several rw edges.
    G2Item,
    /// A cycle that needs the order of time: serializable perhaps, but not strictly.
    RealTime,
}

impl Anomaly {
    /// Returns its name in the literature.
    pub fn name(self) -> &'static str {
        match self {
            Self::Garbage => "garbage read",
            Self::Internal => "internal inconsistency",
            Self::IncompatibleOrder => "incompatible order",
            Self::G1a => "G1a, aborted read",
            Self::G1b => "G1b, intermediate read",
            Self::LostUpdate => "lost update",
            Self::G0 => "G0, dirty write",
            Self::G1c => "G1c, circular information flow",
            Self::GSingle => "G-single, read skew",
            Self::G2Item => "G2-item, write skew",
            Self::RealTime => "real-time violation",
        }
    }
}

/// An anomaly of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub anomaly: Anomaly,
    /// The transactions in it, by their index in the history; a cycle begins with its lowest.
    pub transactions: Vec<usize>,
    /// An explanation, of a line for each of them.
    pub explanation: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:\n{}", self.anomaly.name(), self.explanation)
    }
}

impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {}, from {}", self.client, self.invoked)?;
        match self.end {
            End::Committed(at) => write!(f, " to {at}:")?,
            End::Aborted(at) => write!(f, " to {at}, aborted:")?,
            End::Unknown => write!(f, ", end unknown:")?,
        }
        for step in &self.steps {
            match step {
                Step::Append { list, element } => write!(f, " append {element} to {list};")?,
                Step::Put { list, element } => write!(f, " put {element} to {list};")?,
                Step::Read { list, elements } => write!(f, " read {list}: {elements:?};")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
