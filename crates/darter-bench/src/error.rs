//! The errors that end a benchmark, and what to do about them.

use darter_fabric::files::is_wrong_name;
use std::path::PathBuf;

/// An error of a benchmark run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The arguments request something impossible.
    #[error("{0}")]
    Usage(String),
    /// The file of keys cannot be read.
    #[error("{path}: cannot read the keys: {source}")]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// The error from the system.
        source: std::io::Error,
    },
    /// The store failed, most often because it is out of space.
    #[error(transparent)]
    Store(#[from] darter::Error),
    /// The index returned a wrong result, so its figures mean nothing.
    #[error("wrong result from {index}: {what}")]
    WrongAnswer {
        /// The index.
        index: &'static str,
        /// What was wrong.
        what: String,
    },
    /// A check of the pool found an error, after all keys were deleted or clients were killed.
    #[error("the check of the pool failed: {0}")]
    Unsound(String),
    /// A memory node, or another process of the benchmark, did not start or failed.
    #[error("cannot measure with another process: {0}")]
    Process(String),
    /// One of several indexes failed.
    #[error("{index}, workload {workload}: {source}")]
    In {
        /// The index.
        index: &'static str,
        /// The workload.
        workload: &'static str,
        /// Its error.
        source: Box<BenchError>,
    },
    /// The run was interrupted. The results up to then have been written.
    #[error("interrupted; the results up to then are above")]
    Interrupted,
    /// The target failed; the message comes from the target's own crate.
    #[error("{0}")]
    Failed(String),
    /// A file of results cannot be written.
    #[error("{path}: cannot write the results: {source}")]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The error from the system.
        source: std::io::Error,
    },
    /// The results cannot be written.
    #[error("cannot write the results: {0}")]
    Output(#[from] std::io::Error),
}

impl BenchError {
    /// Returns the error for a dataset that has no keys left.
    pub fn no_fresh_key() -> Self {
        Self::Usage("the dataset has no key left to insert; use fewer --records or --ops".to_owned())
    }

    /// Returns whether other arguments would help (exit code 2), as opposed to a failure of the run
    /// (exit code 1).
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Usage(_) | Self::KeyFile { .. } => true,
            Self::File { source, .. } => is_wrong_name(source),
            Self::Store(error) => error.is_usage(),
            Self::In { source, .. } => source.is_usage(),
            Self::WrongAnswer { .. }
            | Self::Unsound(_)
            | Self::Process(_)
            | Self::Interrupted
            | Self::Failed(_)
            | Self::Output(_) => false,
        }
    }
}
