//! The commands of the program `darter`, and their shared parts. Other programs use them too, with
//! more commands or indexes.
//!
//! Exit codes: 0, done; 1, a negative result (an absent key, a condition that does not hold, a
//! violated invariant, bad lines) or a failure; 2, the command is invalid as given (arguments, pool
//! name, no such pool or file); 130, ended by SIGINT, SIGTERM or SIGHUP. Results go to stdout,
//! everything else to stderr.

// Doc comments of arguments are the text of `--help`, and every error is a `Failure` with its
// reason.
#![allow(missing_docs, clippy::missing_errors_doc)]

mod arguments;
mod backup;
pub mod bench;
mod check;
mod commands;
mod confirmation;
pub mod credentials;
mod delete;
mod drain;
mod durability;
mod envelope;
mod export;
mod export_commands;
pub mod failure;
mod gaps;
pub mod indexes;
mod load;
mod logging;
pub mod memnode;
mod moving;
mod named_table;
mod notation;
mod pairs;
pub mod pool;
mod range;
mod rate;
mod rebalance;
pub mod reference;
mod remove_node;
mod replication;
mod scan;
mod serve;
mod shell;
pub mod signals;
mod stats;
mod stdout;
mod tables;
mod tree;
mod up;

pub use commands::StoreCommand;
pub use failure::{Answer, Failure};

use clap::Parser;
use clap::builder::Styles;
use clap::builder::styling::AnsiColor;
use std::process::ExitCode;

/// Styles of help and errors on a terminal; unused elsewhere, and with `NO_COLOR`.
pub const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default())
    .error(AnsiColor::Red.on_default().bold());

/// Runs a program: parses its arguments, runs the command, and returns the exit code. Commands for
/// which `needs_stdout` returns false also run without stdout.
pub fn run<A: Parser>(
    needs_stdout: impl FnOnce(&A) -> bool,
    perform: impl FnOnce(A) -> Result<Answer, Failure>,
) -> ExitCode {
    match try_run(needs_stdout, perform) {
        Ok(Answer::Done) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Err(failure) => failure.report(),
    }
}

fn try_run<A: Parser>(
    needs_stdout: impl FnOnce(&A) -> bool,
    perform: impl FnOnce(A) -> Result<Answer, Failure>,
) -> Result<Answer, Failure> {
    signals::report_limits_of_files()?;
    let arguments = match A::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => error.exit(),
        Err(help) => {
            stdout::fail_if_closed()?;
            help.print()?;
            stdout::finish()?;
            return Ok(Answer::Done);
        }
    };
    if needs_stdout(&arguments) {
        stdout::fail_if_closed()?;
    }
    let answer = perform(arguments)?;
    stdout::finish()?;
    Ok(answer)
}
