//! The progress of commands that move objects between memory nodes, and the rate to which they keep.

use crate::failure::{Failure, complain};
use crate::rate;
use crate::signals::Interrupt;
use darter::ByteSize;
use indicatif::{ProgressBar, ProgressStyle};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Interval of reports about what a command waits for.
const REPORTS_EVERY: Duration = Duration::from_secs(10);

/// The rate at which objects are moved.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Rate {
    /// Most bytes to move in a second
    #[arg(long, value_name = "SIZE")]
    pub(crate) rate: Option<ByteSize>,
}

impl Rate {
    /// Fails if nothing could ever be moved.
    pub(crate) fn verify(self) -> Result<(), Failure> {
        rate::verify(self.rate)
    }
}

/// Shows how much was moved, and holds it at its rate.
pub(crate) struct Watch {
    rate: Option<ByteSize>,
    begin: Instant,
    bar: ProgressBar,
    interrupt: Interrupt,
    reported: Option<Instant>,
}

impl Watch {
    pub(crate) fn new(rate: Rate) -> Result<Self, Failure> {
        let style = ProgressStyle::with_template(
            "{spinner} {bytes} of about {total_bytes} moved, {binary_bytes_per_sec}",
        );
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        let (bar, interrupt) = (ProgressBar::new(0).with_style(style), Interrupt::on_signals()?);
        Ok(Self { rate: rate.rate, begin: Instant::now(), bar, interrupt, reported: None })
    }

    /// Shows that `moved` of about `total` bytes have been moved, and what the command waits for. Waits
    /// as the rate requires. Breaks if a signal has come.
    pub(crate) fn step(&mut self, moved: u64, total: u64, waits_for: Option<String>) -> ControlFlow<()> {
        self.bar.set_length(total.max(moved));
        self.bar.set_position(moved);
        if let Some(waits_for) = waits_for {
            self.report(format_args!("waiting for {waits_for}"));
        }
        let goes_on = rate::keeps_to(self.rate, self.begin, moved, &self.interrupt);
        if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Clears the line with the progress.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn report(&mut self, what: std::fmt::Arguments<'_>) {
        if self.reported.is_none_or(|at| at.elapsed() > REPORTS_EVERY) {
            self.reported = Some(Instant::now());
            self.bar.suspend(|| complain(what));
        }
    }
}

/// What to wait for while members, by their slots, do not respond.
pub(crate) fn members_text(behind: &[u32]) -> String {
    format!("members {}; `darter pool status` shows their processes", numbers(behind))
}

/// Lists slots of members.
pub(crate) fn numbers(slots: &[u32]) -> String {
    slots.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
