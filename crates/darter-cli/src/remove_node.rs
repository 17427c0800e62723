//! `darter pool remove-node --lost`: gives up memory nodes that do not come back.

use crate::Answer;
use crate::confirmation::is_confirmed;
use crate::failure::{Failure, complain};
use crate::gaps::described_in_whole;
use crate::notation::Notation;
use crate::pool::{PoolArgs, without_first_node};
use crate::signals::Interrupt;
use crate::tables::bytes_text;
use darter::engine::KeySpace;
use darter::give_up::{CutOff, GivenUp};
use darter_fabric::counted;
use std::io::Write;
use std::ops::ControlFlow;

const FIRST_NODE: &str = "memory node 0 has the pool's members, epoch and root words, so that nothing of the pool can be read \
     without it; create a new pool with `darter pool create`, and restore the last backup";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter export --skip-unreachable rest.tsv.gz
  darter pool remove-node 2 --lost --pool tcp://10.0.0.1:7000
  darter pool remove-node 1 2 --lost --yes > gone

The command prints the keys and the ranges of keys that are gone. It can be interrupted and run again: \
then it prints what was left to remove. A memory node that responds is taken out by `darter pool drain`.")]
pub struct RemoveNodeCommand {
    #[command(flatten)]
    pool: PoolArgs,
    /// Numbers of the memory nodes, as `darter pool status` prints them
    #[arg(value_name = "NODE", required = true)]
    nodes: Vec<u8>,
    /// The memory nodes will not come back: remove everything that was on them from the pool
    #[arg(long)]
    lost: bool,
    /// Give them up without confirmation
    #[arg(long, short)]
    yes: bool,
}

impl RemoveNodeCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        if !self.lost {
            return Err(Failure::usage(
                "a memory node that responds is taken out by `darter pool drain`; add --lost if it will not come back",
            ));
        }
        if self.nodes.contains(&0) {
            return Err(Failure::failed(FIRST_NODE));
        }
        let nodes = listed(&self.nodes);
        if !self.yes && !is_confirmed("give up", &format!("{nodes} and all keys that need it"))? {
            complain("nothing was changed");
            return Ok(Answer::No);
        }
        let store = self.pool.existing().map_err(without_first_node)?;
        let interrupt = Interrupt::on_signals()?;
        let mut printed = Ok(());
        let given_up = store.give_up_nodes(&self.nodes, &mut |cut| {
            printed = print(cut);
            if printed.is_err() || interrupt.has_come() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        printed?;
        let lost = lost_text(&given_up);
        if !given_up.is_complete {
            return Err(Failure::Interrupted(format!(
                "interrupted: {nodes} left the pool, and so far {lost}; run the command again to go on"
            )));
        }
        let freed = bytes_text(given_up.freed_bytes);
        complain(format_args!(
            "{nodes} left the pool: {lost}; {freed} are free again, and the pool is whole"
        ));
        Ok(Answer::Done)
    }
}

/// Prints what one step has cut off.
fn print(cut: &CutOff) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for gap in &cut.gaps {
        writeln!(out, "gone: {}", described_in_whole(gap, Notation::Escaped))?;
    }
    for place in &cut.reverted {
        let space = KeySpace::of_place(place);
        let front = if space == KeySpace::Gateway { "gateway: " } else { "" };
        let key = Notation::Escaped.write(space.key(place));
        writeln!(out, "as before a transaction of unknown outcome: {front}key {key}")?;
    }
    out.flush()
}

fn listed(nodes: &[u8]) -> String {
    let numbers: Vec<_> = nodes.iter().map(u8::to_string).collect();
    format!("memory node{} {}", if nodes.len() == 1 { "" } else { "s" }, numbers.join(", "))
}

fn lost_text(given_up: &GivenUp) -> String {
    let GivenUp { keys, unnamed, ranges, reverted, objects, bytes, .. } = given_up;
    let reverted = match reverted {
        0 => String::new(),
        _ => format!(", {} as before a transaction", counted(*reverted, "key")),
    };
    format!(
        "{} and {} of keys are gone{reverted} ({}, {})",
        counted(keys + unnamed, "key"),
        counted(*ranges, "range"),
        counted(*objects, "object"),
        bytes_text(*bytes)
    )
}
