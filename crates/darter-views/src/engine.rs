//! What every engine can do.

use crate::StoreError;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

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

    /// Returns the error that what is stored is no view.
    fn damaged(&self, why: &str) -> StoreError {
        StoreError::Damaged { name: self.name(), why: why.to_owned() }
    }

    /// Returns what is stored.
    fn read(&mut self) -> Result<Stored, StoreError>;

    /// Stores a text if nothing has changed since a revision was read. Returns whether it did. A
    /// request may have been sent twice; then `false` can mean that the first took effect.
    fn compare_and_set(&mut self, expected: Revision, text: &str) -> Result<bool, StoreError>;
}

/// Returns the text that a JSON string holds in base64; an empty one if there is none.
pub(crate) fn decoded(value: &Value) -> Option<String> {
    let bytes = BASE64_STANDARD.decode(value.as_str().unwrap_or_default()).ok()?;
    String::from_utf8(bytes).ok()
}
