//! A number that a paper's text gives, and how to compute the same number from measurements.

use super::quantity::{Span, Stated};
use super::selection::Selection;
use crate::compare::Sheet;

/// A number of a paper and the place that states it, in our words.
///
/// `O` computes our number, if there are measurements for it.
pub(crate) struct Claim<O = fn(&Selection<'_>) -> Option<Span>> {
    /// The section whose text gives it.
    pub(crate) section: &'static str,
    /// The statement in our words, with the number as the paper prints it.
    pub(crate) statement: &'static str,
    /// The number.
    pub(crate) stated: Stated,
    /// Computes our number.
    pub(crate) ours: O,
}

/// Returns the paper's numbers next to ours; `compute` calls the function that computes ours.
pub(crate) fn distances<O>(
    claims: &[Claim<O>],
    modelled: bool,
    compute: impl Fn(&O) -> Option<Span>,
) -> Sheet {
    let ours = if modelled { "ours, modelled" } else { "ours" };
    let mut sheet =
        Sheet::new("The paper's numbers and ours", &["the text says", "section", "paper", ours, "apart"]);
    for claim in claims {
        let measured = compute(&claim.ours);
        let ours = measured.map_or_else(|| "not measured".to_owned(), |span| span.to_string());
        let apart = measured.map_or_else(String::new, |span| span.deviation(claim.stated));
        sheet.row([claim.statement, claim.section, &claim.stated.to_string(), &ours, &apart]);
    }
    sheet
}
