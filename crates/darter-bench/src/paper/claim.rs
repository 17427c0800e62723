//! A number that a paper's text gives, and how the same number is taken from measurements.

use super::quantity::{Span, Stated};
use super::selection::Selection;

/// A number of a paper, with where it stands there, in our words.
pub(crate) struct Claim {
    /// The section whose text gives it.
    pub(crate) section: &'static str,
    /// What the sentence says, in our words. It holds the number as the paper prints it.
    pub(crate) statement: &'static str,
    /// The number.
    pub(crate) stated: Stated,
    /// Ours, as far as measurements tell.
    pub(crate) ours: fn(&Selection<'_>) -> Option<Span>,
}
