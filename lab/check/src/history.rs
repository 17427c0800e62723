//! The operations of clients and their results, which all checks are based on.
//!
//! Keys and values are numbers here: the recorder of a history maps the bytes. A scan is recorded
//! as one [`Action::Get`] for each key of its range that was or could have been returned, all with
//! the scan's own interval: scans guarantee that each key is read at some moment of it.

/// The action of an operation. Values are numbers that represent the bytes written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Search.
    Get,
    /// Store unconditionally.
    Put(u64),
    /// Store if the key is absent.
    Insert(u64),
    /// Store if the key is present.
    Update(u64),
    /// Store `value` if the key holds `expected`.
    Replace {
        /// The value that must be present.
        expected: u64,
        /// The value that replaces it.
        value: u64,
    },
    /// Remove.
    Delete,
    /// Remove if the key holds this value.
    DeleteIf(u64),
}

impl Action {
    /// Returns the value that must be present for it to take effect.
    pub fn expected(self) -> Option<u64> {
        match self {
            Action::Replace { expected, .. } | Action::DeleteIf(expected) => Some(expected),
            _ => None,
        }
    }

    /// Applies the action to a key with the value `state`: returns the result, and the next value.
    pub fn apply(self, state: Option<u64>) -> (Outcome, Option<u64>) {
        match (self, state) {
            (Action::Get, _) => (Outcome::Found(state), state),
            (Action::Put(value) | Action::Insert(value), None) => (Outcome::Inserted, Some(value)),
            (Action::Put(value) | Action::Update(value), Some(_)) => (Outcome::Replaced, Some(value)),
            (Action::Replace { expected, value }, Some(held)) if held == expected => {
                (Outcome::Replaced, Some(value))
            }
            (Action::DeleteIf(expected), Some(held)) if held == expected => (Outcome::Deleted(true), None),
            (Action::Insert(_) | Action::Update(_) | Action::Replace { .. } | Action::DeleteIf(_), _) => {
                (Outcome::Refused, state)
            }
            (Action::Delete, _) => (Outcome::Deleted(state.is_some()), None),
        }
    }
}

/// The result that the caller received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Of a search: the value, if there was one.
    Found(Option<u64>),
    /// Of a write: the key was absent and is now present.
    Inserted,
    /// Of a write: the key's value was replaced.
    Replaced,
    /// Of a conditional write or removal: the condition did not hold.
    Refused,
    /// Of a removal: whether the key was present.
    Deleted(bool),
}

/// One operation on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The client.
    pub client: u32,
    /// The key.
    pub key: u32,
    /// The action.
    pub action: Action,
    /// When it was invoked, by any clock that all clients share.
    pub invoked: u64,
    /// When it returned and its result; `None` if it did not return: the client died, cancelled the
    /// operation, or got an error that leaves its effect unknown. Such an operation may take effect
    /// at any time after `invoked`, or never.
    pub returned: Option<(u64, Outcome)>,
}

/// A transaction's access of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The key.
    pub key: u32,
    /// The value that was read, `Some(None)` if the key was absent; `None` if the key was not read.
    pub read: Option<Option<u64>>,
    /// The value that was written, `Some(None)` if the key was removed; `None` if it stays.
    pub write: Option<Option<u64>>,
}

/// A commit: several keys read and written at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The client.
    pub client: u32,
    /// Its keys, each once.
    pub accesses: Vec<Access>,
    /// When the first of them was read.
    pub begun: u64,
    /// When the commit was invoked.
    pub invoked: u64,
    /// When the commit returned, and whether it took effect; `None` if it did not return, or failed
    /// so that its effect is unknown.
    pub returned: Option<(u64, bool)>,
}

impl Transaction {
    /// Whether it has certainly had no effect.
    pub fn is_void(&self) -> bool {
        matches!(self.returned, Some((_, false)))
    }
}
