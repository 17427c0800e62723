//! Moves of a plan's clients, as in a rebalance: about half of everything goes to the last memory node.
//!
//! They wait for no other client, so they are in runs of any number of processes, with any faults. The
//! bytes to move are not measured, but the same in each run: scenarios have few objects.

use super::op::Op;
use super::plan::Plan;
use crate::dice::Dice;
use darter_index::{Balance, IndexError, NodeFill, OrderedIndex};
use darter_pool::Client;
use darter_sim::Sim;

/// One run in this many has such a move, of the scenarios on several nodes whose index can move its
/// objects.
const RUNS_ONE_IN: u64 = 6;
/// Bytes on each memory node but the last, as far as the moves know: more than in any scenario.
const BYTES: u64 = 1 << 16;

/// Adds a move, or two, to some of the runs on several memory nodes. All other plans stay as they are.
pub(super) fn mix_in(plan: &mut Plan, dice: &mut Dice) {
    // The indexes with transactions can move their objects. A node that leaves takes none.
    if !plan.scenario.transacts
        || plan.has_loads()
        || plan.nodes < 2
        || plan.has_drains()
        || !dice.one_in(RUNS_ONE_IN)
    {
        return;
    }
    for _ in 0..=dice.below(2) {
        plan.insert(Op::Level, dice);
    }
}

/// Walks the index once, and moves about half of everything to the last memory node.
pub(super) async fn level_to_last(
    index: &impl OrderedIndex<Sim>,
    own: &mut Client<Sim>,
) -> Result<(), IndexError> {
    let Some(last) = own.pool().nodes().checked_sub(1).filter(|&node| node > 0) else { return Ok(()) };
    let bytes = |node: u8| if node < last { BYTES } else { 0 };
    let fills: Vec<NodeFill> = (0..=last).map(|node| NodeFill::new(node, bytes(node), 1 << 20)).collect();
    let (mut balance, mut next) = (Balance::new(&fills), Some(Vec::new()));
    while let Some(from) = next {
        next = index.level(own, &mut balance, &from).await?.next;
    }
    Ok(())
}
