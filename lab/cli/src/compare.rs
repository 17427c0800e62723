//! `compare` and `paper`: comparisons of indexes, and the papers' figures, by the benchmark crate,
//! with this program's exit codes.

use crate::bench::program;
use darter_cli::bench::answer;
use darter_cli::signals::Interrupt;
use darter_cli::{Answer, Failure};
use darter_lab_bench::{CompareArgs, PaperArgs, Setting};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter-lab compare --indexes dart,art --workloads c,e --records 100K --html page.html
  darter-lab compare --pool model:preset=dart --cache 1M,10M --svg plots")]
pub(crate) struct CompareCommand {
    #[command(flatten)]
    args: CompareArgs,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter-lab paper list
  darter-lab paper dart-fig7 --quick --out paper")]
pub(crate) struct PaperCommand {
    #[command(flatten)]
    args: PaperArgs,
}

impl CompareCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        answer(
            darter_lab_bench::run_compare(&self.args, &setting()?, &mut std::io::stdout().lock()).map(drop),
        )
    }
}

impl PaperCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        answer(darter_lab_bench::run_paper(&self.args, &setting()?, &mut std::io::stdout().lock()))
    }
}

fn setting() -> Result<Setting, Failure> {
    Ok(Setting { program: program()?, command: command(), stop: Interrupt::on_signals()?.flag() })
}

/// Returns the command line, quoted for a shell.
fn command() -> String {
    let words = std::env::args_os().skip(1).map(|word| {
        let word = word.to_string_lossy().into_owned();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=.,:/+".contains(c);
        if !word.is_empty() && word.chars().all(is_plain) {
            word
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    std::iter::once("darter-lab".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
