//! Why a stress run ended before there was a verdict.

use super::log::LogError;
use std::io;
use std::path::PathBuf;

/// An error of the coordinator or of a worker.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StressError {
    /// What was asked for cannot be done.
    #[error("{0}")]
    Usage(String),
    /// The store failed where it must not.
    #[error(transparent)]
    Store(#[from] darter::Error),
    /// A log could not be written or read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The operating system refused something.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The operating system refused a file.
    #[error("{}: cannot {action}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// A promise of the index was broken in a way that needs no history to see.
    #[error("broken promise: {0}")]
    Broken(String),
    /// A run ended early.
    #[error("{source}; the logs so far are in {}", logs.display())]
    Interrupted {
        /// Where the logs are.
        logs: PathBuf,
        /// Why it ended.
        source: Box<StressError>,
    },
}

impl StressError {
    pub(super) fn system(action: &'static str, source: io::Error) -> Self {
        Self::System { action, source }
    }

    /// Whether what was asked for cannot be; else something failed.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Usage(_) => true,
            Self::Store(error) => error.is_usage(),
            _ => false,
        }
    }
}
