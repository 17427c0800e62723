//! `shell`: a prompt on an open pool, with the commands that read and change it.
//!
//! Lines are parsed like command lines, with the quoting of `sh`. A terminal gets a history, which
//! is kept between sessions, and completion of command names. Lines from a file or pipe are a
//! script: blank lines and lines that begin with `#` are ignored, and a command that is invalid or
//! fails ends the script.

use crate::Answer;
use crate::check::CheckArgs;
use crate::delete::DelArgs;
use crate::export::ExportArgs;
use crate::failure::{Failure, complain};
use crate::load::{ImportArgs, LoadArgs};
use crate::pairs::{GetArgs, PutArgs};
use crate::pool::PoolArgs;
use crate::scan::ScanArgs;
use crate::signals::Interrupt;
use crate::stats::StatsArgs;
use crate::tree::TreeArgs;
use clap::{CommandFactory, Parser};
use darter::Store;
use darter_fabric::files::Sharing;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::PathBuf;

/// Maximum number of lines in the history.
const HISTORY_LINES: usize = 1000;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter shell
  printf 'put pear green\\nscan\\n' | darter shell

`help` lists the commands. A line that begins with a blank is not kept in the history.")]
pub struct ShellCommand {
    #[command(flatten)]
    pool: PoolArgs,
    /// Do not read or write the history file, `$XDG_STATE_HOME/darter/history` or
    /// `~/.local/state/darter/history`
    #[arg(long)]
    no_history: bool,
}

/// A line of input.
#[derive(Parser)]
#[command(name = "darter", no_binary_name = true, help_template = "{subcommands}", max_term_width = 110)]
struct Line {
    #[command(subcommand)]
    command: LineCommand,
}

#[derive(clap::Subcommand)]
enum LineCommand {
    /// Store a value under a key
    Put(PutArgs),
    /// Print the value of a key
    Get(GetArgs),
    /// Remove a key, or all keys of a range
    Del(DelArgs),
    /// Print the pairs of a key range, in key order
    Scan(ScanArgs),
    /// Store the pairs of a CSV, TSV or JSON Lines file
    Load(LoadArgs),
    /// Write pairs to a file for `import`
    Export(ExportArgs),
    /// Store the pairs of a file written by `export`, or the keys of Redis
    Import(ImportArgs),
    /// Print the number of keys, depth, node types, skip table and memory use
    Stats(StatsArgs),
    /// Draw the top levels of the tree
    Tree(TreeArgs),
    /// Verify all invariants of the index and the pool, and count leaked bytes
    Check(CheckArgs),
    /// Leave the shell
    #[command(alias = "quit")]
    Exit,
}

/// The outcome of a line.
enum Outcome {
    Answer(Answer),
    Leave,
}

impl ShellCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let store = self.pool.open_or_create()?;
        let interrupt = Interrupt::on_signals()?;
        if io::stdin().is_terminal() { self.converse(&store, &interrupt) } else { script(&store, &interrupt) }
    }

    /// Reads lines from a terminal until the user leaves.
    fn converse(&self, store: &Store, interrupt: &Interrupt) -> Result<Answer, Failure> {
        let cannot =
            |error: ReadlineError| Failure::failed(format_args!("cannot read the terminal: {error}"));
        let config = Config::builder().auto_add_history(true).history_ignore_space(true);
        let config = config.max_history_size(HISTORY_LINES).map_err(cannot)?.build();
        let mut editor: Editor<Names, FileHistory> = Editor::with_config(config).map_err(cannot)?;
        editor.set_helper(Some(Names::all()));
        let history = if self.no_history { None } else { history_path() };
        if let Some(path) = &history {
            // The file is absent at first.
            let _ = editor.load_history(path);
        }
        loop {
            match editor.readline("darter> ") {
                Ok(line) => match run_line(store, &line) {
                    Ok(Outcome::Answer(_)) => {}
                    Ok(Outcome::Leave) => break,
                    Err(failure) => drop(failure.report()),
                },
                // Ctrl-C clears the line.
                Err(ReadlineError::Interrupted) => {}
                Err(ReadlineError::Eof) => break,
                Err(error) => return Err(cannot(error)),
            }
            interrupt.take();
        }
        if let Some(path) = &history {
            let made = path.parent().map_or(Ok(false), |above| Sharing::default().create_directory(above));
            let kept = made.map_err(ReadlineError::from).and_then(|_| editor.save_history(path));
            if let Err(error) = kept {
                complain(format_args!("note: {}: the history is not kept: {error}", path.display()));
            }
        }
        Ok(Answer::Done)
    }
}

/// Runs the lines of standard input.
fn script(store: &Store, interrupt: &Interrupt) -> Result<Answer, Failure> {
    let (mut answer, mut number) = (Answer::Done, 0_u64);
    let mut line = String::new();
    loop {
        line.clear();
        // Locks stdin for one line only, because `load -` reads the lines after it.
        let read = io::stdin().read_line(&mut line);
        if read.map_err(|error| Failure::failed(format_args!("cannot read the script: {error}")))? == 0 {
            return Ok(answer);
        }
        if interrupt.has_come() {
            return Err(Failure::Interrupted(format!("interrupted before line {}", number + 1)));
        }
        number += 1;
        match run_line(store, &line) {
            Ok(Outcome::Answer(Answer::Done)) => {}
            Ok(Outcome::Answer(Answer::No)) => answer = Answer::No,
            Ok(Outcome::Leave) => return Ok(answer),
            Err(failure) => return Err(failure.within(format_args!("line {number}"))),
        }
    }
}

/// Parses and runs a line.
fn run_line(store: &Store, line: &str) -> Result<Outcome, Failure> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(Outcome::Answer(Answer::Done));
    }
    let words = shlex::split(line).ok_or_else(|| Failure::usage("missing closing quote"))?;
    let parsed = match Line::try_parse_from(words.into_iter().map(OsString::from)) {
        Ok(parsed) => parsed,
        Err(error) if error.use_stderr() => {
            let text = error.render().to_string();
            let text = text.trim_start_matches("error: ");
            // The text ends with a hint to use a program's `--help`.
            let text = text.split_once("\n\nFor more information").map_or(text, |(text, _)| text);
            return Err(Failure::usage(text.trim_end()));
        }
        Err(help) => {
            help.print()?;
            return Ok(Outcome::Answer(Answer::Done));
        }
    };
    let answer = match parsed.command {
        LineCommand::Put(args) => args.run(store),
        LineCommand::Get(args) => args.run(store),
        LineCommand::Del(args) => args.run(store),
        LineCommand::Scan(args) => args.run(store),
        LineCommand::Load(args) => args.run(store),
        LineCommand::Export(args) => args.run(store),
        LineCommand::Import(args) => args.run(store),
        LineCommand::Stats(args) => args.run(store),
        LineCommand::Tree(args) => args.run(store),
        LineCommand::Check(args) => args.run(store),
        LineCommand::Exit => return Ok(Outcome::Leave),
    };
    answer.map(Outcome::Answer)
}

/// Returns the path of the history file; `None` for a user without a home directory.
fn history_path() -> Option<PathBuf> {
    let named =
        |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = named("XDG_STATE_HOME").or_else(|| Some(named("HOME")?.join(".local/state")))?;
    Some(state.join("darter/history"))
}

/// Completes command names.
struct Names(Vec<String>);

impl Names {
    fn all() -> Self {
        let line = Line::command();
        let names = line.get_subcommands().map(|command| command.get_name().to_owned());
        Self(names.chain(["help".to_owned()]).collect())
    }
}

impl Completer for Names {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let begun = &line[..at];
        let fitting = self.0.iter().filter(|name| name.starts_with(begun)).map(|name| format!("{name} "));
        Ok((0, if begun.contains(' ') { Vec::new() } else { fitting.collect() }))
    }
}

impl Hinter for Names {
    type Hint = String;
}
impl Highlighter for Names {}
impl Validator for Names {}
impl Helper for Names {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_consistent_and_completed() {
        Line::command().debug_assert();
        let history = FileHistory::new();
        let (_, fitting) = Names::all().complete("ex", 2, &Context::new(&history)).unwrap();
        assert_eq!(fitting, ["export ", "exit "]);
        assert!(Names::all().complete("get ", 4, &Context::new(&history)).unwrap().1.is_empty());
    }
}
