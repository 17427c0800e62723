//! Adapts the explorer's plans to groups.

use super::super::op::Op;
use super::super::plan::Plan;
use crate::dice::Dice;

/// Clients that read and write few keys.
const CONTESTERS: usize = 4;
/// Maximum number of processes that join a run and leave again.
const VISITS_MAX: usize = 2;

/// Every other run has many reads and writes of few keys, to detect wrong replies of a primary. In
/// the others few processes join and leave, since each takes some of the little memory.
pub(in super::super) fn fit(plan: &mut Plan, dice: &mut Dice) {
    if dice.one_in(2) {
        let keys = plan.scenario.hot.len().min(2) as u64;
        plan.clients = (0..CONTESTERS).map(|_| contest(keys, dice)).collect();
        plan.processes = Plan::apart(CONTESTERS);
    }
    let mut visits = 0;
    for op in plan.clients.iter_mut().flatten() {
        if let Op::Visit(key) = *op {
            visits += 1;
            *op = if visits > VISITS_MAX { Op::Put(key) } else { *op };
        }
    }
}

/// Operations of a client that contends with others for the same keys.
fn contest(keys: u64, dice: &mut Dice) -> Vec<Op> {
    let count = 8 + dice.below(16);
    let mut op = || {
        let key = dice.below(keys) as u8;
        match dice.below(16) {
            0..9 => Op::Get(key),
            9..12 => Op::Put(key),
            12 => Op::Insert(key),
            13 => Op::Update(key),
            14 => Op::Delete(key),
            _ => Op::Scan(false),
        }
    };
    (0..count).map(|_| op()).collect()
}
