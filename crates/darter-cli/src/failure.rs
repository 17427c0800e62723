//! Reasons why a command ended early, with their exit codes.

use crate::indexes;
use crate::notation::printable;
use crate::stdout;
use clap::builder::styling::{AnsiColor, Style};
use darter_fabric::files::is_wrong_name;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// The exit code of a command that failed.
pub(crate) const EXIT_FAILED: u8 = 1;
/// The exit code of a command ended by a signal; shells use it for SIGINT.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

/// Style of the program's name before a message on a terminal.
const NAME: Style = AnsiColor::Yellow.on_default().bold();

/// The result of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done; exit code 0.
    Done,
    /// Done, with a negative result; exit code 1. The command has printed the reason.
    No,
}

/// Why a command ended early.
#[derive(Debug)]
pub enum Failure {
    /// The command is invalid as given; exit code 2.
    Usage(String),
    /// The command failed; exit code 1.
    Failed(String),
    /// Ended by SIGINT, SIGTERM or SIGHUP, with the work done so far; exit code 130.
    Interrupted(String),
    /// The reader of stdout closed it; exit code 0. If stdout was closed from the start, exit code
    /// 1.
    OutputClosed,
}

impl Failure {
    pub fn usage(what: impl Display) -> Self {
        Self::Usage(what.to_string())
    }

    pub fn failed(what: impl Display) -> Self {
        Self::Failed(what.to_string())
    }

    /// Returns the failure to write a file.
    pub(crate) fn of_output(path: &Path, error: &io::Error) -> Self {
        let what = format!("{}: cannot write it: {error}", path.display());
        if is_wrong_name(error) { Self::Usage(what) } else { Self::Failed(what) }
    }

    /// Prepends the place where the failure happened.
    pub(crate) fn within(self, place: impl Display) -> Self {
        match self {
            Self::Usage(what) => Self::Usage(format!("{place}: {what}")),
            Self::Failed(what) => Self::Failed(format!("{place}: {what}")),
            Self::Interrupted(what) => Self::Interrupted(format!("{place}: {what}")),
            Self::OutputClosed => Self::OutputClosed,
        }
    }

    /// Prints the reason, and returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let (what, code) = match self {
            Self::Usage(what) => (what, 2),
            Self::Failed(what) => (what, EXIT_FAILED),
            Self::Interrupted(what) => (what, EXIT_INTERRUPTED),
            Self::OutputClosed if stdout::was_closed() => {
                ("cannot write the output: stdout is closed".to_owned(), EXIT_FAILED)
            }
            Self::OutputClosed => return ExitCode::SUCCESS,
        };
        complain(what);
        ExitCode::from(code)
    }
}

/// Prints a message on stderr, and ignores a failure to do so. Control characters in it, which can
/// come from files and servers, are escaped.
pub fn complain(what: impl Display) {
    use io::Write;
    let what = printable(&what.to_string());
    // If stderr is closed, the message cannot be reported.
    let _ = writeln!(anstream::stderr(), "{NAME}{}:{NAME:#} {what}", indexes::program());
}

impl From<darter::Error> for Failure {
    fn from(error: darter::Error) -> Self {
        match indexes::missing(&error) {
            Some(what) => Self::usage(format_args!("{error}; {what}")),
            None if error.is_usage() => Self::usage(error),
            None => Self::failed(error),
        }
    }
}

impl From<io::Error> for Failure {
    /// For writes to stdout; failures of other files are reported with their path.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::OutputClosed
        } else {
            Self::failed(format_args!("cannot write the output: {error}"))
        }
    }
}
