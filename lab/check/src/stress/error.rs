//! Errors that end a stress run before there is a verdict.

use super::log::LogError;
use std::io;
use std::path::PathBuf;

/// An error of the coordinator or of a worker.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StressError {
    /// The configuration is invalid.
    #[error("{0}")]
    Usage(String),
    /// The store failed unexpectedly.
    #[error(transparent)]
    Store(#[from] darter::Error),
    /// A log could not be written or read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The operating system refused something.
    #[error("cannot {action}: {source}")]
    System {
        /// The attempted action.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The operating system refused a file.
    #[error("{}: cannot {action}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The attempted action.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// A guarantee of the index was broken in a way that is visible without a history.
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

    /// Whether the configuration is invalid; otherwise an operation failed.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Usage(_) => true,
            Self::Store(error) => error.is_usage(),
            _ => false,
        }
    }
}
