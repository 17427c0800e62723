//! The figures and tables of the papers, run here at a scale that fits this machine, next to the
//! numbers that their texts give.
//!
//! A figure is data: the runs, and the numbers that the text gives ([`claim`]) or that are points of
//! its plots ([`point`]), each with its section and the statement in our words. Times are those of
//! the modelled testbed and are marked as such; counts do not depend on a clock.

mod claim;
mod dart;
mod figure;
mod gateway_figure;
mod line_cache;
mod line_figure;
mod line_study;
mod point;
mod quantity;
mod reproduction;
mod selection;
mod sherman;
mod smart;
mod wort;
mod xstore;

use crate::Setting;
use crate::compare::{self, About, Outputs, Sheet};
use darter_bench::BenchError;
use darter_bench::args::parse_count;
use figure::{Figure, Scale, Unreproducible};
use gateway_figure::GatewayFigure;
use line_figure::LineFigure;
use reproduction::{Reproducible, Reproduction, Synopsis};
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// The special names `list` and `all` on the command line.
const LIST: &str = "list";
const ALL: &str = "all";
/// The scale of figures with `--quick`.
const QUICK: (u64, u64) = (20_000, 10_000);

/// Arguments of `darter-lab paper`.
#[derive(Clone, Debug, clap::Args)]
pub struct PaperArgs {
    /// Figures and tables by name, such as dart-fig7,smart-fig11; `all`; or `list`, which lists
    /// them
    #[arg(required = true, value_delimiter = ',', value_name = "NAMES")]
    pub figures: Vec<String>,
    /// Directory for tables, CSV, plots and pages
    #[arg(long, default_value = "paper", value_name = "DIR")]
    pub out: PathBuf,
    /// Records; the papers have 60 million or more
    #[arg(long, value_parser = parse_count, default_value = "1M", value_name = "N")]
    pub records: u64,
    /// Operations of each workload except `load`
    #[arg(long, value_parser = parse_count, default_value = "200K", value_name = "N")]
    pub ops: u64,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub rounds: u32,
    /// Seed of keys and operations
    #[arg(long, default_value_t = 42, value_name = "N")]
    pub seed: u64,
    /// A quick run: 20K records, 10K operations
    #[arg(long)]
    pub quick: bool,
}

/// Every figure that can be reproduced.
fn figures() -> impl Iterator<Item = &'static dyn Reproducible> {
    let compared = [dart::FIGURES, smart::FIGURES, sherman::FIGURES, xstore::FIGURES].into_iter().flatten();
    let compared = compared.map(|figure: &Figure| figure as &dyn Reproducible);
    let lines = wort::FIGURES.iter().map(|figure: &LineFigure| figure as &dyn Reproducible);
    let gateways = wort::OVER_GATEWAYS.iter().map(|figure: &GatewayFigure| figure as &dyn Reproducible);
    compared.chain(lines).chain(gateways)
}

/// Every figure that cannot be reproduced.
fn unreproducible() -> impl Iterator<Item = &'static Unreproducible> {
    [dart::UNREPRODUCIBLE, smart::UNREPRODUCIBLE, sherman::UNREPRODUCIBLE, xstore::UNREPRODUCIBLE]
        .into_iter()
        .flatten()
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
            name => chosen.push(find(name, &scale)?),
        }
    }
    // Arguments are checked before hours are spent.
    chosen.iter().try_for_each(|figure| figure.validate(&scale))?;
    fs::create_dir_all(&args.out).map_err(|source| BenchError::File { path: args.out.clone(), source })?;
    for figure in chosen {
        reproduce(figure, &scale, args, setting, out)?;
    }
    Ok(())
}

fn find(name: &str, scale: &Scale) -> Result<&'static dyn Reproducible, BenchError> {
    if let Some(found) = figures().find(|figure| figure.synopsis(scale).name == name) {
        return Ok(found);
    }
    let why = unreproducible().find(|figure| figure.name == name).map_or_else(
        || format!("no figure is named `{name}`; `darter-lab paper list` lists them"),
        |figure| format!("{name} cannot be reproduced here: {}", figure.why),
    );
    Err(BenchError::Usage(why))
}

/// Returns the list of figures, what each needs, and those that cannot be reproduced.
fn list(scale: &Scale) -> String {
    let mut can = Sheet::new(
        "Figures and tables that can be reproduced",
        &["name", "shows", "clock", "indexes", "numbers"],
    );
    for figure in figures() {
        let Synopsis { name, title, clock, indexes, numbers } = figure.synopsis(scale);
        can.row([name, title, clock, &indexes.join(", "), &numbers.to_string()]);
    }
    let mut cannot = Sheet::new("Figures and tables that cannot", &["name", "shows", "why not"]);
    for figure in unreproducible() {
        cannot.row([figure.name, figure.title, figure.why]);
    }
    format!("{}\n\n{}", can.text(), cannot.text())
}

/// Runs a figure and compares the results with the paper's text.
fn reproduce(
    figure: &dyn Reproducible,
    scale: &Scale,
    args: &PaperArgs,
    setting: &Setting,
    out: &mut dyn Write,
) -> Result<(), BenchError> {
    let Synopsis { name, title, .. } = figure.synopsis(scale);
    let Reproduction { modelled, what, results } = figure.reproduce(scale, setting)?;
    let title = format!("{name}: {title}{}", if modelled { " (modelled)" } else { "" });
    let about = About { title, what, command: &setting.command, modelled };
    let outputs = Outputs {
        csv: Some(args.out.join(format!("{name}.csv"))),
        html: Some(args.out.join(format!("{name}.html"))),
        svg: Some(args.out.join(name)),
        text: Some(args.out.join(format!("{name}.txt"))),
        first: Some(args.out.join(format!("{name}-paper.csv"))),
    };
    outputs.prepare()?;
    compare::publish(setting, &about, &results, &outputs, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quantity::Stated;
    use std::collections::HashSet;

    const SMALL: Scale = Scale { records: 1000, ops: 200, rounds: 1, seed: 1 };

    #[test]
    fn figure_has_a_unique_name_and_is_found_by_it() {
        let mut names = HashSet::new();
        for figure in figures() {
            let Synopsis { name, title, indexes, numbers, .. } = figure.synopsis(&SMALL);
            let words = figure.words();
            assert!(names.insert(name), "{name} comes twice");
            assert!(!title.is_empty() && !words.differs.is_empty() && !indexes.is_empty());
            assert_eq!(words.rows.len(), numbers);
            assert_eq!(find(name, &SMALL).unwrap().synopsis(&SMALL).title, title);
            figure.validate(&SMALL).unwrap_or_else(|error| panic!("{name}: {error}"));
            let none = Scale { records: 0, ..SMALL };
            assert!(figure.validate(&none).unwrap_err().is_usage(), "{name}");
        }
        for figure in unreproducible() {
            assert!(names.insert(figure.name), "{} comes twice", figure.name);
            let error = find(figure.name, &SMALL).err().unwrap();
            assert!(error.is_usage() && error.to_string().contains(figure.why), "{error}");
        }
        assert!(find("dart-fig99", &SMALL).err().unwrap().to_string().contains("paper list"));
        let list = list(&SMALL);
        assert!(names.iter().all(|name| list.contains(name)), "{list}");
    }

    #[test]
    fn number_is_in_its_statement_and_has_a_section() {
        for claim::Row { section, statement, stated, .. } in figures().flat_map(|figure| figure.words().rows)
        {
            assert!(section.starts_with(|c: char| c.is_ascii_digit()), "{statement}");
            let numbers = match stated {
                Stated::About(one) | Stated::UpTo(one) | Stated::Below(one) => vec![one],
                Stated::Between(least, most) => vec![least, most],
            };
            for number in numbers {
                let printed = Stated::About(number).to_string();
                assert!(statement.contains(&printed), "{printed} is not in: {statement}");
            }
        }
    }

    #[test]
    fn number_that_was_not_measured_is_blank() {
        for figure in figures() {
            let (rows, name) = (figure.words().rows, figure.synopsis(&SMALL).name);
            let is_blank = |row: &Vec<String>| row[4] == "not measured" && row[5].is_empty();
            assert!(claim::sheet(&rows, false).rows.iter().all(is_blank), "{name}");
            assert!(claim::chart(name, &rows, 1).is_none(), "{name}");
        }
    }
}
