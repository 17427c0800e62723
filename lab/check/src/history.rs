//! What clients did and what they were told: the material every judgement is made of.
//!
//! Keys and values are numbers here: whoever records a history maps the bytes. A scan is recorded as one [`Action::Get`] for
//! each key of its range that was or could have been returned, all with the scan's own interval: by the promise for scans,
//! each key is read at some moment of it.

/// What an operation asked for. Values are numbers that stand for the bytes written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Search.
    Get,
    /// Store whatever is there.
    Put(u64),
    /// Store if the key is absent.
    Insert(u64),
    /// Store if the key is present.
    Update(u64),
    /// Store `value` if the key holds `expected`.
    Replace {
        /// What must be there.
        expected: u64,
        /// What takes its place.
        value: u64,
    },
    /// Remove.
    Delete,
    /// Remove if the key holds this.
    DeleteIf(u64),
}

impl Action {
    /// The value that must be there for it to take effect.
    pub fn expected(self) -> Option<u64> {
        match self {
            Action::Replace { expected, .. } | Action::DeleteIf(expected) => Some(expected),
            _ => None,
        }
    }

    /// What a key alone in the world does: the answer to this action where the key holds `state`, and what it holds next.
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

/// What the caller was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// To a search: the value, if there was one.
    Found(Option<u64>),
    /// To a write: the key was absent and is now there.
    Inserted,
    /// To a write: the key's value was replaced.
    Replaced,
    /// To a conditional write or removal: the condition did not hold.
    Refused,
    /// To a removal: whether the key was there.
    Deleted(bool),
}

/// One operation on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Who.
    pub client: u32,
    /// The key.
    pub key: u32,
    /// What was asked.
    pub action: Action,
    /// When it was asked: any clock that all clients share.
    pub invoked: u64,
    /// When it was answered and what, or `None` when nobody was told: the client died, cancelled the operation, or got an
    /// error that leaves its effect unknown. Such an operation may take effect at any time after `invoked`, or never.
    pub returned: Option<(u64, Outcome)>,
}
