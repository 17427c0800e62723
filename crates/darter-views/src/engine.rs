//! The interface of all engines.

use crate::StoreError;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

/// The value that an engine stores under a group's name.
pub(crate) struct Stored {
    /// The view's text; `None` if there is none.
    pub text: Option<String>,
    /// The revision that a compare-and-set expects.
    pub revision: Revision,
}

/// Identifies a state of the stored value. Two states under one name have different revisions,
/// unless the value was deleted in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Revision {
    /// Nothing is stored.
    Absent,
    /// The engine's own identifier.
    At(String),
}

/// A linearizable register.
pub(crate) trait Engine: Send {
    /// Returns the place where the view is stored, for messages.
    fn name(&self) -> String;

    /// Returns the error for a stored value that is not a view.
    fn damaged(&self, why: &str) -> StoreError {
        StoreError::Damaged { name: self.name(), why: why.to_owned() }
    }

    /// Returns the stored value.
    fn read(&mut self) -> Result<Stored, StoreError>;

    /// Stores a text if nothing has changed since a revision was read. Returns whether it did. A
    /// request may have been sent twice; then `false` can mean that the first took effect.
    fn compare_and_set(&mut self, expected: Revision, text: &str) -> Result<bool, StoreError>;
}

/// Decodes the base64 text in a JSON string; returns an empty text without a string.
pub(crate) fn decoded(value: &Value) -> Option<String> {
    let bytes = BASE64_STANDARD.decode(value.as_str().unwrap_or_default()).ok()?;
    String::from_utf8(bytes).ok()
}
