//! `compare` and `paper`: indexes side by side, and the papers' figures, by the benchmark crate,
//! with this program's exit codes.

use crate::Answer;
use crate::bench::{answer, program};
use crate::failure::Failure;
use darter_bench::{CompareArgs, PaperArgs, Setting};

#[derive(clap::Args)]
pub(crate) struct CompareCommand {
    #[command(flatten)]
    args: CompareArgs,
}

#[derive(clap::Args)]
pub(crate) struct PaperCommand {
    #[command(flatten)]
    args: PaperArgs,
}

impl CompareCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        answer(darter_bench::run_compare(&self.args, &setting()?, &mut std::io::stdout().lock()).map(drop))
    }
}

impl PaperCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        answer(darter_bench::run_paper(&self.args, &setting()?, &mut std::io::stdout().lock()))
    }
}

fn setting() -> Result<Setting, Failure> {
    Ok(Setting { program: program()?, command: command(), ..Setting::default() })
}

/// The command line, as a shell would read it again.
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
    std::iter::once("darter".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
