//! `darter pool drain`: takes a memory node out of a pool that is in use.

use crate::Answer;
use crate::failure::Failure;
use crate::moving::{Rate, Watch, members_text, numbers};
use crate::pool::PoolArgs;
use crate::tables::bytes_text;
use darter::Store;
use darter::drain::DrainStage;
use darter_fabric::counted;
use std::io::Write;

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
    #[command(flatten)]
    rate: Rate,
}

impl DrainCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        self.rate.verify()?;
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
        let mut watch = Watch::new(self.rate)?;
        let drained = store.drain_node(node, &mut |progress| {
            let waits_for = match &progress.stage {
                DrainStage::Members(behind) if !behind.is_empty() => Some(members_text(behind)),
                DrainStage::Blocks(left) => {
                    Some(format!("objects in {} that are about to be freed", counted(*left, "block")))
                }
                _ => None,
            };
            watch.step(progress.bytes, progress.total_bytes, waits_for)
        });
        watch.finish();
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
