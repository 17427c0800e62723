//! The figures and tables of the papers, run here at a scale that this machine can hold, beside the
//! numbers that their texts give.
//!
//! A figure is data: what is run for it, and the numbers that the text gives ([`claim`]), each with
//! the section that it stands in and the statement in our words. Times are those of the modelled
//! testbed and are marked as such; counts do not depend on a clock.

mod claim;
mod dart;
mod figure;
mod quantity;
mod selection;
mod sherman;
mod smart;
mod xstore;

use crate::args::parse_count;
use crate::compare::{self, About, Measurement, Outputs, Sheet};
use crate::{BenchError, Setting};
use claim::Claim;
use darter_fabric::counted;
use figure::{Figure, Scale, Unheld};
use selection::Selection;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// What `list` and `all` are on the command line.
const LIST: &str = "list";
const ALL: &str = "all";
/// How large figures are run with `--quick`.
const QUICK: (u64, u64) = (20_000, 10_000);

/// Arguments of `darter paper`.
#[derive(Clone, Debug, clap::Args)]
pub struct PaperArgs {
    /// Figures and tables by name, as in dart-fig7,smart-fig11; `all`; or `list`, which tells them
    #[arg(required = true, value_delimiter = ',', value_name = "NAMES")]
    pub figures: Vec<String>,
    /// Directory for tables, CSV, plots and pages
    #[arg(long, default_value = "paper", value_name = "DIR")]
    pub out: PathBuf,
    /// Records, where the papers have 60 million or more
    #[arg(long, value_parser = parse_count, default_value = "1M", value_name = "N")]
    pub records: u64,
    /// Operations of each workload but `load`
    #[arg(long, value_parser = parse_count, default_value = "200K", value_name = "N")]
    pub ops: u64,
    /// Rounds, of which the median counts
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub rounds: u32,
    /// Seed of keys and operations
    #[arg(long, default_value_t = 42, value_name = "N")]
    pub seed: u64,
    /// A first look: 20K records, 10K operations
    #[arg(long)]
    pub quick: bool,
}

/// Every figure that can be held.
fn figures() -> impl Iterator<Item = &'static Figure> {
    [dart::FIGURES, smart::FIGURES, sherman::FIGURES, xstore::FIGURES].into_iter().flatten()
}

/// Every figure that cannot.
fn unheld() -> impl Iterator<Item = &'static Unheld> {
    [dart::UNHELD, smart::UNHELD, sherman::UNHELD, xstore::UNHELD].into_iter().flatten()
}

/// Runs figures of the papers: tables and distances to `out`, and files to a directory.
///
/// # Errors
/// Fails if a name is unknown or the scale cannot be met ([`BenchError::is_usage`]), or an index
/// fails or returns a wrong result.
pub fn run_paper(args: &PaperArgs, setting: &Setting, out: &mut dyn Write) -> Result<(), BenchError> {
    let (records, ops) = if args.quick { QUICK } else { (args.records, args.ops) };
    let scale = Scale { records, ops, rounds: args.rounds, seed: args.seed };
    let mut chosen = Vec::new();
    for name in &args.figures {
        match name.as_str() {
            LIST => return Ok(writeln!(out, "{}", list(&scale))?),
            ALL => chosen.extend(figures()),
            name => chosen.push(find(name)?),
        }
    }
    // Wrong arguments are told before hours are spent.
    for figure in &chosen {
        for comparison in (figure.comparisons)(&scale) {
            comparison.validate()?;
        }
    }
    fs::create_dir_all(&args.out).map_err(|source| BenchError::File { path: args.out.clone(), source })?;
    for figure in chosen {
        hold(figure, &scale, args, setting, out)?;
    }
    Ok(())
}

fn find(name: &str) -> Result<&'static Figure, BenchError> {
    if let Some(found) = figures().find(|figure| figure.name == name) {
        return Ok(found);
    }
    let why = unheld().find(|figure| figure.name == name).map_or_else(
        || format!("there is no figure `{name}`; `darter paper list` tells them"),
        |figure| format!("{name} cannot be held here: {}", figure.why),
    );
    Err(BenchError::Usage(why))
}

/// What there is, what each needs, and what there is not.
fn list(scale: &Scale) -> String {
    let mut held =
        Sheet::new("Figures and tables that can be held", &["name", "shows", "clock", "indexes", "numbers"]);
    for figure in figures() {
        let comparisons = (figure.comparisons)(scale);
        let modelled = comparisons.iter().any(|comparison| comparison.pool.is_modelled());
        let mut indexes: Vec<&str> = comparisons
            .iter()
            .flat_map(|comparison| comparison.indexes.iter().map(|choice| choice.0.name))
            .collect();
        indexes.sort_unstable();
        indexes.dedup();
        let clock = if modelled { "modelled" } else { "none: counts" };
        let numbers = figure.claims.len().to_string();
        held.row([figure.name, figure.title, clock, &indexes.join(", "), &numbers]);
    }
    let mut not = Sheet::new("Those that cannot", &["name", "shows", "why not"]);
    for figure in unheld() {
        not.row([figure.name, figure.title, figure.why]);
    }
    format!("{}\n\n{}", held.text(), not.text())
}

/// Runs a figure and compares the results with the paper's text.
fn hold(
    figure: &Figure,
    scale: &Scale,
    args: &PaperArgs,
    setting: &Setting,
    out: &mut dyn Write,
) -> Result<(), BenchError> {
    let mut measurements = Vec::new();
    for comparison in (figure.comparisons)(scale) {
        measurements.extend(compare::measure(&comparison, setting)?);
    }
    let modelled = measurements.iter().any(|one| one.figures.modelled);
    let title = format!("{}: {}{}", figure.name, figure.title, if modelled { " (modelled)" } else { "" });
    let what = format!(
        "{} and {} of each workload, where the papers have 60 million or more; differs: {}.",
        counted(scale.records, "record"),
        counted(scale.ops, "operation"),
        figure.differs
    );
    let mut sheets = vec![distances(figure.claims, &measurements)];
    sheets.extend(compare::by_workload(&measurements));
    let about = About { title, what: vec![what], command: &setting.command, modelled };
    let outputs = Outputs {
        csv: Some(args.out.join(format!("{}.csv", figure.name))),
        html: Some(args.out.join(format!("{}.html", figure.name))),
        svg: Some(args.out.join(figure.name)),
        text: Some(args.out.join(format!("{}.txt", figure.name))),
        first: Some(args.out.join(format!("{}-paper.csv", figure.name))),
    };
    outputs.prepare()?;
    compare::publish(&about, &sheets, &measurements, &outputs, out)
}

/// The paper's numbers beside ours.
fn distances(claims: &[Claim], measurements: &[Measurement]) -> Sheet {
    let selection = Selection::of(measurements);
    let modelled = measurements.iter().any(|one| one.figures.modelled);
    let ours = if modelled { "ours, modelled" } else { "ours" };
    let mut sheet =
        Sheet::new("The paper's numbers and ours", &["the text says", "section", "paper", ours, "apart"]);
    for claim in claims {
        let measured = (claim.ours)(&selection);
        let ours = measured.map_or_else(|| "not measured".to_owned(), |span| span.to_string());
        let apart = measured.map_or_else(String::new, |span| span.deviation(claim.stated));
        sheet.row([claim.statement, claim.section, &claim.stated.to_string(), &ours, &apart]);
    }
    sheet
}

#[cfg(test)]
mod tests {
    use super::*;
    use quantity::Stated;
    use std::collections::HashSet;

    const SMALL: Scale = Scale { records: 1000, ops: 200, rounds: 1, seed: 1 };

    #[test]
    fn every_figure_has_its_own_name_and_can_be_asked_for() {
        let mut names = HashSet::new();
        for figure in figures() {
            assert!(names.insert(figure.name), "{} comes twice", figure.name);
            assert!(!figure.title.is_empty() && !figure.differs.is_empty());
            assert!(std::ptr::eq(find(figure.name).unwrap(), figure));
            for comparison in (figure.comparisons)(&SMALL) {
                comparison.validate().unwrap_or_else(|error| panic!("{}: {error}", figure.name));
            }
        }
        for figure in unheld() {
            assert!(names.insert(figure.name), "{} comes twice", figure.name);
            let error = find(figure.name).err().unwrap();
            assert!(error.is_usage() && error.to_string().contains(figure.why), "{error}");
        }
        assert!(find("dart-fig99").err().unwrap().to_string().contains("paper list"));
        let list = list(&SMALL);
        assert!(names.iter().all(|name| list.contains(name)), "{list}");
    }

    #[test]
    fn every_number_says_where_it_stands_and_what_it_is() {
        for figure in figures() {
            for claim in figure.claims {
                assert!(claim.section.starts_with(|c: char| c.is_ascii_digit()), "{}", claim.statement);
                let numbers = match claim.stated {
                    Stated::About(one) | Stated::UpTo(one) | Stated::Below(one) => vec![one],
                    Stated::Between(least, most) => vec![least, most],
                };
                for number in numbers {
                    let printed = Stated::About(number).to_string();
                    assert!(claim.statement.contains(&printed), "{printed} is not in: {}", claim.statement);
                }
            }
        }
    }

    #[test]
    fn what_was_not_measured_is_not_made_up() {
        for figure in figures() {
            let sheet = distances(figure.claims, &[]);
            assert_eq!(sheet.rows.len(), figure.claims.len());
            assert!(
                sheet.rows.iter().all(|row| row[3] == "not measured" && row[4].is_empty()),
                "{}",
                figure.name
            );
        }
    }
}
