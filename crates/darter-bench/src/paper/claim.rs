//! A number that a paper's text gives, and how the same number is taken from measurements.

use super::quantity::{Span, Stated};
use super::selection::Selection;

/// A number of a paper, with where it stands there, in our words.
pub(crate) struct Claim {
    /// The section whose text gives it.
    pub(crate) section: &'static str,
    /// The statement in our words, with the number as the paper prints it.
    pub(crate) statement: &'static str,
    /// The number.
    pub(crate) stated: Stated,
    /// Computes our number, if there are measurements for it.
    pub(crate) ours: fn(&Selection<'_>) -> Option<Span>,
}
