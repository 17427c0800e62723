//! Where the log of what runs as a daemon goes: one line an event on stderr, as text or as JSON.

use std::io;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::LevelFilter;

/// Lines that wait for a slow reader of stderr; what comes beyond is lost, as the node waits for
/// nobody.
const LINES_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// One object a line
    Json,
}

#[derive(Clone, clap::Args)]
pub(crate) struct LogArgs {
    /// How log lines on stderr look
    #[arg(help_heading = "Log", long, value_name = "FORMAT", value_enum, default_value = "text")]
    pub(crate) log_format: Format,
    /// What is told: off, error, warn, info, debug or trace, each with those before it
    #[arg(help_heading = "Log", long, value_name = "LEVEL", env = "DARTER_LOG", default_value = "info")]
    pub(crate) log_level: LevelFilter,
}

impl LogArgs {
    /// Begins to log; what waits is written when the answer is dropped.
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
