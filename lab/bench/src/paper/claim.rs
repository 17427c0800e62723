//! A number that a paper's text gives, how to compute the same number from measurements, and the
//! table and plot that show both.

use super::quantity::{Span, Stated};
use super::selection::Selection;
use crate::compare::{Chart, Scale, Series, Shape, Sheet, Unit};

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

/// A paper's number and ours.
pub(crate) struct Row {
    pub(crate) statement: &'static str,
    pub(crate) section: &'static str,
    pub(crate) stated: Stated,
    /// `None` if it was not measured.
    pub(crate) ours: Option<Span>,
}

impl<O> Claim<O> {
    /// Returns the paper's number and ours; `compute` calls the function that computes ours.
    pub(crate) fn row(&self, compute: impl Fn(&O) -> Option<Span>) -> Row {
        let Self { section, statement, stated, ref ours } = *self;
        Row { statement, section, stated, ours: compute(ours) }
    }
}

/// Returns the paper's numbers next to ours.
pub(crate) fn sheet(rows: &[Row], modelled: bool) -> Sheet {
    let ours = if modelled { "ours, modelled" } else { "ours" };
    let headers = ["no.", "the text says", "section", "paper", ours, "apart"];
    let mut sheet = Sheet::new("The paper's numbers and ours", &headers);
    for (number, row) in (1..).zip(rows) {
        let ours = row.ours.map_or_else(|| "not measured".to_owned(), |span| span.to_string());
        let apart = row.ours.map_or_else(String::new, |span| span.deviation(row.stated));
        let stated = row.stated.to_string();
        sheet.row([&number.to_string(), row.statement, row.section, &stated, &ours, &apart]);
    }
    sheet
}

/// Returns a plot of the numbers that other plots do not show, such as ratios: the rows of the table
/// from number `first` on. Returns `None` if none was measured.
pub(crate) fn chart(figure: &str, rows: &[Row], first: usize) -> Option<Chart> {
    let (mut steps, mut paper, mut here) = (Vec::new(), Vec::new(), Vec::new());
    for (number, row) in (1..).zip(rows).skip(first - 1) {
        let Some(ours) = row.ours else { continue };
        for (label, stated, measured) in row.stated.next_to(ours) {
            let x = steps.len() as f64;
            steps.push(format!("{number}{label}"));
            paper.push((x, stated));
            here.push((x, measured));
        }
    }
    let axis = |title: &str| Scale { title: title.to_owned(), unit: Unit::Each };
    let series = |name: &str, points| Series { name: name.to_owned(), points, absent: None };
    (!steps.is_empty()).then(|| Chart {
        name: "statements".to_owned(),
        title: format!("{figure} · numbers that the text states, and here"),
        conditions: "A group is a row of the table of the paper's numbers and ours.".to_owned(),
        x: axis("number of the row"),
        y: axis("number in the statement"),
        shape: Shape::Bars,
        steps,
        series: vec![series("paper", paper), series("here", here)],
        marks: Vec::new(),
    })
}
