//! Drains of a plan's clients: a part of one, of the last memory node.
//!
//! A drain waits until all members follow it, and until operations that had begun before are over.
//! In a run a process does upkeep only when its clients say so, and a client can stop for longer than
//! a lease. So drains are in runs of one process, without faults that stop a client.

use super::fault::Fault;
use super::op::Op;
use super::plan::Plan;
use crate::dice::Dice;
use darter_index::drain::{DrainProgress, DrainStage, drain};
use darter_index::{IndexError, OrderedIndex};
use darter_pool::{Client, PoolError};
use darter_sim::{Medium, Sim};
use std::ops::ControlFlow;

/// One run in this many has a drain, of the scenarios on several nodes whose index can move its
/// objects.
const RUNS_ONE_IN: u64 = 6;
/// Most steps of a drain: enough to move everything in any scenario.
const STEPS_MAX: u32 = 40;

/// Adds a drain, or two, to some of the runs on several memory nodes, whose clients then are threads
/// of one process. All other plans stay as they are.
pub(super) fn mix_in(plan: &mut Plan, dice: &mut Dice) {
    // The indexes with transactions can move their objects.
    if !plan.scenario.transacts || plan.has_loads() || plan.nodes < 2 || !dice.one_in(RUNS_ONE_IN) {
        return;
    }
    let goes_on = |fault: &Fault| matches!(fault, Fault::Cancel(..) | Fault::Drop(..));
    // A visitor is another process.
    let visits = plan.clients.iter().flatten().any(|op| matches!(op, Op::Visit(_)));
    let is_calm = plan.faults.iter().all(goes_on) && plan.groups.is_none() && !visits;
    if !is_calm || plan.medium != Medium::Never {
        return;
    }
    plan.processes.fill(0);
    for _ in 0..=dice.below(2) {
        plan.insert(Op::Drain, dice);
    }
}

/// Drains the last memory node, or goes on with that, up to a number of steps.
pub(super) async fn drain_last(
    index: &impl OrderedIndex<Sim>,
    own: &mut Client<Sim>,
) -> Result<(), IndexError> {
    let Some(node) = own.pool().nodes().checked_sub(1).filter(|&node| node > 0) else { return Ok(()) };
    let mut steps = 0;
    let mut watch = |progress: &DrainProgress| {
        steps += 1;
        let waits = matches!(progress.stage, DrainStage::Members(_));
        if steps < STEPS_MAX && !waits { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    match drain(index, own, node, &mut watch).await {
        // Another client has completed it, or the other nodes are full.
        Err(IndexError::Pool(PoolError::Options(_) | PoolError::NoRoomToDrain { .. })) => Ok(()),
        drained => drained.map(drop),
    }
}
