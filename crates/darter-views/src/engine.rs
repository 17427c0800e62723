//! What every engine can do.

use crate::StoreError;

/// What an engine holds under a group's name.
pub(crate) struct Stored {
    /// The view's text; `None` if there is none.
    pub text: Option<String>,
    /// What a compare-and-set must still find.
    pub revision: Revision,
}

/// A state of what is stored under a name. Never that of another state under the same name, unless
/// what is stored was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Revision {
    /// Nothing is stored.
    Absent,
    /// As the engine names it.
    At(String),
}

/// A linearizable register.
pub(crate) trait Engine: Send {
    /// Where the view is stored, for messages.
    fn name(&self) -> String;

    /// Returns what is stored.
    fn read(&mut self) -> Result<Stored, StoreError>;

    /// Stores a text if nothing has changed since a revision was read. Returns whether it did. A
    /// request may have been sent twice; then `false` can mean that the first took effect.
    fn compare_and_set(&mut self, expected: Revision, text: &str) -> Result<bool, StoreError>;
}
