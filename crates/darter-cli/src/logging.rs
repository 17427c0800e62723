//! The log of a daemon: one line per event on stderr, as text or JSON.

use std::io;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::LevelFilter;

/// Maximum number of lines waiting for a slow reader of stderr; lines beyond it are dropped, since
/// the node never waits for the log.
const LINES_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Lines for people
    Text,
    /// One JSON object per line
    Json,
}

#[derive(Clone, clap::Args)]
pub(crate) struct LogArgs {
    /// Format of log lines on stderr
    #[arg(help_heading = "Log", long, value_name = "FORMAT", value_enum, default_value = "text")]
    pub(crate) log_format: Format,
    /// Least severe level to log: off, error, warn, info, debug or trace
    #[arg(help_heading = "Log", long, value_name = "LEVEL", env = "DARTER_LOG", default_value = "info")]
    pub(crate) log_level: LevelFilter,
}

impl LogArgs {
    /// Starts logging; waiting lines are written when the returned guard is dropped.
    pub(crate) fn start(&self) -> WorkerGuard {
        let (writer, guard) =
            NonBlockingBuilder::default().buffered_lines_limit(LINES_MAX).lossy(true).finish(io::stderr());
        let log =
            tracing_subscriber::fmt().with_max_level(self.log_level).with_writer(writer).with_target(false);
        match self.log_format {
            Format::Text => log.init(),
            Format::Json => log.json().flatten_event(true).with_span_list(false).init(),
        }
        guard
    }
}
