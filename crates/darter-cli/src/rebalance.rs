//! `darter pool rebalance`, and `darter pool add-node --rebalance`: makes the memory nodes of a pool that
//! is in use hold about equally much.

use crate::Answer;
use crate::failure::{Failure, complain};
use crate::moving::{Rate, Watch, members_text};
use crate::pool::PoolArgs;
use crate::tables::bytes_text;
use darter::Store;
use darter::engine::{Engine, OrderedIndex};
use darter::rebalance::{RebalanceEnd, RebalanceStage};
use darter::report::NodeUsage;
use darter_fabric::counted;
use std::io::Write;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter pool rebalance --pool tcp://10.0.0.1:7000
  darter pool rebalance --rate 50MiB

The command can be interrupted and run again at any time: the pool works, and what was moved stays \
moved. It ends when the fullest memory node has at most 1.15 times the mean fill.")]
pub struct RebalanceCommand {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    rate: Rate,
}

impl RebalanceCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        self.rate.verify()?;
        rebalance(&self.pool.existing()?, self.rate)
    }
}

/// Fails if it is known that [`rebalance`] would fail, for a command that first does something else.
pub(crate) fn verify_may_rebalance(store: &Store) -> Result<(), Failure> {
    if !store.index().evacuates() {
        return Err(Failure::failed(
            "nothing was changed: the index of this pool cannot move its objects; leave --rebalance out",
        ));
    }
    if store.usage()?.nodes.iter().any(NodeUsage::is_leaving) {
        return Err(Failure::failed(
            "nothing was changed: a memory node is leaving, so that the pool cannot be rebalanced; let that end, or leave \
             --rebalance out",
        ));
    }
    Ok(())
}

/// Moves objects until the memory nodes are even, and prints the result.
pub(crate) fn rebalance(store: &Store, rate: Rate) -> Result<Answer, Failure> {
    let mut watch = Watch::new(rate)?;
    let rebalanced = store.rebalance(&mut |progress| {
        let waits_for = match &progress.stage {
            RebalanceStage::Members(behind) if !behind.is_empty() => Some(members_text(behind)),
            _ => None,
        };
        watch.step(progress.bytes, progress.total_bytes, waits_for)
    });
    watch.finish();
    let rebalanced = rebalanced?;
    let moved = format!("{} moved ({})", counted(rebalanced.objects, "object"), bytes_text(rebalanced.bytes));
    if rebalanced.end == RebalanceEnd::Interrupted {
        return Err(Failure::Interrupted(format!("interrupted: {moved}; run the command again to go on")));
    }
    let (before, after) = rebalanced.fullest();
    let fill = format!("the fullest memory node has {after:.2} times the mean fill");
    if rebalanced.end == RebalanceEnd::Outrun {
        return Err(Failure::failed(format_args!(
            "{moved}, but {fill}, because of writes of programs during that; run the command again"
        )));
    }
    let mut out = std::io::stdout().lock();
    if rebalanced.objects == 0 {
        writeln!(out, "nothing to move: {fill}")?;
    } else {
        writeln!(out, "{moved}: {fill}, and had {before:.2} times")?;
    }
    if rebalanced.end == RebalanceEnd::Stuck {
        complain("note: no object can be moved that would make it more even");
    }
    Ok(Answer::Done)
}
