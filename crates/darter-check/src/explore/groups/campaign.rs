//! Many seeds of an index on simulated groups.

use super::super::campaign::Settings;
use super::super::fault::Fault;
use super::super::fixtures::Fixtures;
use super::super::op::Op;
use super::super::outcome::{Outcome, Violation};
use super::super::plan::{Explored, Plan};
use crate::dice::Dice;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Seeds of an index on simulated groups.
#[derive(Clone, Debug)]
pub struct Groups {
    /// The index.
    pub subject: &'static Explored,
    /// The seeds, each of one run.
    pub seeds: Range<u64>,
    /// Threads.
    pub threads: usize,
    /// Whether a finding says what happened in its world.
    pub is_traced: bool,
}

/// What came of them.
#[derive(Debug, Default)]
pub struct GroupSummary {
    /// Runs performed.
    pub runs: u64,
    /// Operations that were answered, each key of a scan by itself.
    pub operations: u64,
    /// What the worlds have met.
    pub met: BTreeMap<&'static str, u64>,
    /// The violation of the lowest seed, if there was one.
    pub finding: Option<GroupFinding>,
}

/// A violation.
#[derive(Clone, Debug)]
pub struct GroupFinding {
    /// The seed.
    pub seed: u64,
    /// What ran.
    pub plan: Plan,
    /// What it does wrong.
    pub violation: Violation,
    /// What happened in its world, if that was asked for.
    pub trace: Vec<String>,
}

/// Faults of clients that strike beside those of the group.
const FAULTS: [&str; 3] = ["cancel", "drop", "refuse"];

/// Processes that join and leave, at most: each takes some of the little memory there is.
const VISITS_MAX: usize = 2;
/// Operations of a client, at most, where it has few.
const OPS: usize = 6;

/// Where many clients read and write few keys, and how many do.
const CONTESTED: &str = "plain";
const CONTESTERS: usize = 4;

/// Operations of a client that has others beside it on the same keys.
fn contest(dice: &mut Dice) -> Vec<Op> {
    let count = 8 + dice.below(16);
    let mut op = || {
        let key = dice.below(2) as u8;
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

impl Groups {
    /// Some seeds of an index.
    pub fn of(subject: &'static Explored, seeds: Range<u64>) -> Self {
        Self { subject, seeds, threads: 2, is_traced: false }
    }

    /// What runs in a seed's world: what the explorer's plans do, or, every other time, many reads
    /// and writes of a few keys.
    pub fn plan(&self, seed: u64) -> Plan {
        let mut plan = self.explorers_plan(seed / 2);
        if !seed.is_multiple_of(2) {
            let mut dice = Dice::new(seed);
            plan.scenario = self.subject.scenario(CONTESTED).unwrap_or(plan.scenario);
            plan.faults.clear();
            plan.clients = (0..CONTESTERS).map(|_| contest(&mut dice)).collect();
            plan.processes = Plan::apart(CONTESTERS);
        }
        plan
    }

    fn explorers_plan(&self, run: u64) -> Plan {
        let survives = |name: &&str| self.subject.promises.survives.contains(name);
        let faults = FAULTS.into_iter().filter(survives).map(str::to_owned).collect();
        let settings = Settings { ops: OPS, faults, seed: 7, ..Settings::of(self.subject) };
        let mut plan = Plan { nodes: 1, ..settings.plan(run) };
        let mut visits = 0;
        for op in plan.clients.iter_mut().flatten() {
            if let Op::Visit(key) = *op {
                visits += 1;
                *op = if visits > VISITS_MAX { Op::Put(key) } else { *op };
            }
        }
        plan
    }

    /// Runs them until one goes wrong.
    pub fn explore(&self) -> GroupSummary {
        let (next, is_over) = (AtomicU64::new(self.seeds.start), AtomicBool::new(false));
        let all = Mutex::new(GroupSummary::default());
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| {
                    let mut fixtures = Fixtures::small();
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= self.seeds.end || is_over.load(Ordering::Relaxed) {
                            return;
                        }
                        let plan = self.plan(seed);
                        let outcome = fixtures.run_by(&plan, |fixture| {
                            (self.subject.run_on_group)(fixture, &plan, seed, self.is_traced)
                        });
                        is_over.fetch_or(outcome.violation.is_some(), Ordering::Relaxed);
                        all.lock().unwrap_or_else(PoisonError::into_inner).add(seed, plan, outcome);
                    }
                });
            }
        });
        all.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GroupSummary {
    fn add(&mut self, seed: u64, plan: Plan, outcome: Outcome) {
        self.runs += 1;
        self.operations +=
            outcome.history.iter().filter(|operation| operation.returned.is_some()).count() as u64;
        for (what, count) in outcome.met {
            *self.met.entry(what).or_default() += count;
        }
        for fault in &outcome.struck {
            if let Fault::Cancel(..) | Fault::Drop(..) | Fault::Refuse(..) = fault {
                *self.met.entry(fault.parts().0).or_default() += 1;
            }
        }
        let is_first = self.finding.as_ref().is_none_or(|known| seed < known.seed);
        if let Some(violation) = outcome.violation.filter(|_| is_first) {
            self.finding = Some(GroupFinding { seed, plan, violation, trace: outcome.trace });
        }
    }
}
