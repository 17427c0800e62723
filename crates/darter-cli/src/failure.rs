//! Why a command ended early, and its exit code.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command cannot be carried out as given; exit code 2.
    Usage(String),
    /// It was tried, and failed; exit code 1.
    Failed(String),
    /// The reader of the output has closed it; exit code 0.
    OutputClosed,
}

impl Failure {
    pub(crate) fn usage(what: impl Display) -> Self {
        Self::Usage(what.to_string())
    }

    pub(crate) fn failed(what: impl Display) -> Self {
        Self::Failed(what.to_string())
    }

    /// Says why, and chooses the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let (what, code) = match self {
            Self::Usage(what) => (what, 2),
            Self::Failed(what) => (what, 1),
            Self::OutputClosed => return ExitCode::SUCCESS,
        };
        complain(what);
        ExitCode::from(code)
    }
}

/// Prints a line on stderr, and ignores a failure to do so.
pub(crate) fn complain(what: impl Display) {
    use io::Write;
    // A closed stderr leaves nobody to tell.
    let _ = writeln!(io::stderr(), "darter: {what}");
}

impl From<darter::Error> for Failure {
    fn from(error: darter::Error) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::failed(error) }
    }
}

impl From<io::Error> for Failure {
    /// For writing to stdout; other files have their path named where they fail.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::OutputClosed
        } else {
            Self::failed(format_args!("cannot write the output: {error}"))
        }
    }
}
