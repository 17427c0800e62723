//! `darter pool drain`: takes a memory node out of a pool that is in use.

use crate::Answer;
use crate::failure::{Failure, complain};
use crate::pool::PoolArgs;
use crate::signals::Interrupt;
use crate::tables::bytes_text;
use darter::drain::{DrainProgress, DrainStage};
use darter::{ByteSize, Store};
use darter_fabric::counted;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Interval of reports about what a drain waits for.
const REPORTS_EVERY: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter pool drain 2 --pool tcp://10.0.0.1:7000
  darter pool drain 2 --rate 50MiB
  darter pool drain --cancel 2

The command can be interrupted and run again at any time: the pool works, and nothing new is stored \
on the memory node. When it ends with exit code 0, the memory node can be stopped.")]
pub struct DrainCommand {
    #[command(flatten)]
    pool: PoolArgs,
    /// Number of the memory node, as `darter pool status` prints it; memory node 0 cannot leave
    #[arg(value_name = "NODE")]
    node: u8,
    /// Put a memory node that is leaving back in use
    #[arg(long, conflicts_with = "rate")]
    cancel: bool,
    /// Most bytes to move in a second
    #[arg(long, value_name = "SIZE")]
    rate: Option<ByteSize>,
}

impl DrainCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        if self.rate.is_some_and(|rate| rate.0 == 0) {
            return Err(Failure::usage("--rate 0 would take for ever; leave it out for no limit"));
        }
        let store = self.pool.existing()?;
        if self.cancel { self.cancel(&store) } else { self.drain(&store) }
    }

    fn cancel(&self, store: &Store) -> Result<Answer, Failure> {
        if !store.cancel_drain(self.node)? {
            return Err(Failure::failed(format_args!("memory node {} is not leaving the pool", self.node)));
        }
        writeln!(std::io::stdout().lock(), "memory node {} is in use again", self.node)?;
        Ok(Answer::Done)
    }

    fn drain(&self, store: &Store) -> Result<Answer, Failure> {
        let node = self.node;
        let address = store.usage()?.nodes.get(usize::from(node)).and_then(|usage| usage.address.clone());
        let mut watch = Watch::new(self.rate, Interrupt::on_signals()?);
        let drained = store.drain_node(node, &mut |progress| watch.step(progress));
        watch.bar.finish_and_clear();
        let drained = drained?;
        let moved = format!("{} moved ({})", counted(drained.objects, "object"), bytes_text(drained.bytes));
        if !drained.is_removed {
            return Err(Failure::Interrupted(format!(
                "interrupted: {moved}; memory node {node} stays leaving; run the command again to go on, or \
                 `darter pool drain --cancel {node}`"
            )));
        }
        let address = address.map(|address| format!(" ({address})")).unwrap_or_default();
        writeln!(std::io::stdout().lock(), "memory node {node}{address} has left the pool: {moved}")?;
        if !drained.behind.is_empty() {
            let members = numbers(&drained.behind);
            return Err(Failure::failed(format_args!(
                "members {members} have not responded, and may still read from memory node {node}: before you stop it, wait \
                 until `darter pool status` shows that they have gone on or ended"
            )));
        }
        Ok(Answer::Done)
    }
}

/// Shows the progress of a drain, and holds it at its rate.
struct Watch {
    rate: Option<ByteSize>,
    begin: Instant,
    bar: ProgressBar,
    interrupt: Interrupt,
    reported: Option<Instant>,
}

impl Watch {
    fn new(rate: Option<ByteSize>, interrupt: Interrupt) -> Self {
        let style = ProgressStyle::with_template(
            "{spinner} {bytes} of about {total_bytes} moved, {binary_bytes_per_sec}",
        );
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = ProgressBar::new(0).with_style(style);
        Self { rate, begin: Instant::now(), bar, interrupt, reported: None }
    }

    fn step(&mut self, progress: &DrainProgress) -> ControlFlow<()> {
        self.bar.set_length(progress.total_bytes.max(progress.bytes));
        self.bar.set_position(progress.bytes);
        match &progress.stage {
            DrainStage::Members(behind) if !behind.is_empty() => self.report(format_args!(
                "waiting for members {}; `darter pool status` shows their processes",
                numbers(behind)
            )),
            DrainStage::Blocks(left) => {
                self.report(format_args!(
                    "waiting for objects in {} that are about to be freed",
                    counted(*left, "block")
                ));
            }
            _ => {}
        }
        loop {
            if self.interrupt.has_come() {
                return ControlFlow::Break(());
            }
            let Some(rate) = self.rate else { return ControlFlow::Continue(()) };
            let due = Duration::from_secs_f64(progress.bytes as f64 / rate.0 as f64);
            let ahead = due.saturating_sub(self.begin.elapsed());
            if ahead.is_zero() {
                return ControlFlow::Continue(());
            }
            std::thread::sleep(ahead.min(Duration::from_millis(100)));
        }
    }

    fn report(&mut self, what: std::fmt::Arguments<'_>) {
        if self.reported.is_none_or(|at| at.elapsed() > REPORTS_EVERY) {
            self.reported = Some(Instant::now());
            self.bar.suspend(|| complain(what));
        }
    }
}

fn numbers(slots: &[u32]) -> String {
    slots.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
