//! Many runs: plans drawn from a seed, spread over threads and summed up. The first violation is
//! shrunk and explained.

use super::corpus::{Corpus, Trail};
use super::fault::Fault;
use super::finding::Finding;
use super::fixtures::Fixtures;
use super::group_faults::GroupFaults;
use super::groups;
use super::op::Op;
use super::outcome::{Left, Outcome, Violation};
use super::plan::{Explored, Plan, Sides};
use super::scenario::Scenario;
use super::schedule::{Schedule, Scheduler};
use super::schedulers::{After, EVENTS_OF_AN_OPERATION, Late, Pct, Random};
use super::servers::{LATE_SERVER, SERVER};
use super::shrink::shrink;
use super::{drain, level, losses, snapshot, transaction};
use crate::dice::Dice;
use darter_index::checker::{Situation, take_situations, take_trail};
use darter_sim::groups::Counts;
use darter_sim::{Medium, Relaxations};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError, RwLock};

/// Rounds of upkeep per client after which both grace periods of a retired node have passed.
const GRACES: usize = 7;

/// One client in this many has `LONG_TIMES` as many operations.
const LONG_ONE_IN: u64 = 6;
const LONG_TIMES: u64 = 5;
/// Operations of a client beyond which a run is not made longer.
const OPS_MAX: usize = 40;
/// Fewest and most rounds of upkeep of a client that does nothing else.
const ROUNDS: (u64, u64) = (4, 28);
/// The same if clients churn.
const CHURNED_ROUNDS: (u64, u64) = (16, 64);
/// One run in this many, of those in which no client is late, has a client that sweeps while the
/// others run.
const SWEEPS_ONE_IN: u64 = 4;
/// Milliseconds within which a process of a run on groups dies or is shut out, if one does.
const BLOWS_MS: u64 = 8000;
/// Runs of a round, all of which see the same corpus.
const ROUND: u64 = 1024;
/// One run in this many begins as an interesting run did.
const GOES_ON_ONE_IN: u64 = 3;

/// The fault that is not drawn like the others.
const LOSE: &str = "lose";

/// A run in which something new occurred: its number, its trail, and its plan and schedule.
type Found = (u64, Trail, (Plan, Schedule));

/// How schedules are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerKind {
    /// Uniformly.
    Random,
    /// By priorities, with a few changes.
    Pct,
    /// Uniformly, with one or two clients held for a long time.
    Late,
    /// The three kinds, alternating.
    Mixed,
}

/// The parameters of a campaign.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The index.
    pub subject: &'static Explored,
    /// Random seed; it and the number of a run determine the run.
    pub seed: u64,
    /// Number of runs.
    pub runs: u64,
    /// Maximum number of clients in a run; at least 2 take part.
    pub clients: usize,
    /// Maximum number of operations of a client.
    pub ops: usize,
    /// Maximum number of hot keys.
    pub keys: usize,
    /// Names of the faults that may strike; half of the runs have one.
    pub faults: Vec<String>,
    /// How schedules are drawn.
    pub scheduler: SchedulerKind,
    /// Scenarios from which runs begin.
    pub scenarios: Vec<&'static Scenario>,
    /// Guarantees of other providers' verbs that these verbs lack.
    pub verbs: Relaxations,
    /// The sides that execute the verbs.
    pub sides: Sides,
    /// When writes reach the medium, and which operations wait for that.
    pub medium: Medium,
    /// Whether memory nodes are simulated groups of replicas, whose faults strike in every run.
    pub groups: bool,
    /// Whether to shrink a violation, which takes thousands of runs.
    pub shrinks: bool,
    /// Number of threads.
    pub threads: usize,
}

impl Settings {
    /// A few runs of an index over all its scenarios, without faults.
    pub fn of(subject: &'static Explored) -> Self {
        Self {
            subject,
            seed: 1,
            runs: 10_000,
            clients: 3,
            ops: 3,
            keys: 3,
            faults: Vec::new(),
            scheduler: SchedulerKind::Mixed,
            scenarios: subject.scenarios().iter().collect(),
            verbs: Relaxations::default(),
            sides: Sides::One,
            medium: Medium::Never,
            groups: false,
            shrinks: true,
            threads: 1,
        }
    }
}

/// The result of a campaign.
#[derive(Debug, Default)]
pub struct Summary {
    /// Runs performed.
    pub runs: u64,
    /// Events performed.
    pub steps: u64,
    /// Verbs executed.
    pub verbs: u64,
    /// Long verbs that executed in pieces.
    pub torn: u64,
    /// Faults that struck, by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// Choices at power failures that left out something that was written.
    pub taken_back: u64,
    /// Operations that returned that a value was lost.
    pub lost: u64,
    /// The keys that were left after memory nodes were lost.
    pub left: Left,
    /// States that the checker visited.
    pub states: u64,
    /// Histories of transactions for which the checker's steps did not suffice.
    pub undecided: u64,
    /// Operations in the longest history.
    pub longest_history: u64,
    /// The most round trips of one operation, and its verbs, upkeep excluded.
    pub longest_op: (u64, u64),
    /// The same for the other clients' operations in runs in which a client had stopped for ever.
    pub longest_while_stopped: (u64, u64),
    /// How often each situation occurred.
    pub situations: BTreeMap<Situation, u64>,
    /// Pairs of situations that occurred one after the other in some run.
    pub pairs: u64,
    /// Events in the simulated groups.
    pub met: Counts,
    /// The violation of the run with the lowest number, if there was one.
    pub finding: Option<Finding>,
}

impl Summary {
    pub(super) fn add(&mut self, outcome: &Outcome) {
        self.runs += 1;
        self.steps += outcome.steps;
        self.verbs += outcome.counts.verbs;
        self.torn += outcome.counts.torn;
        self.taken_back += outcome.choices.iter().filter(|(back, _)| *back > 0).count() as u64;
        self.states += outcome.states;
        self.undecided += outcome.undecided;
        self.lost += outcome.lost;
        self.left.add(outcome.left);
        for fault in &outcome.struck {
            *self.faults.entry(fault.parts().0).or_default() += 1;
        }
        outcome.met.iter().for_each(|(what, count)| *self.met.entry(what).or_default() += count);
        self.longest_history = self.longest_history.max(outcome.history.len() as u64);
        self.longest_op = self.longest_op.max(outcome.longest_op_but(None));
        let while_stopped = outcome.longest_op_while_stopped().unwrap_or_default();
        self.longest_while_stopped = self.longest_while_stopped.max(while_stopped);
    }

    pub(super) fn join(&mut self, other: Self) {
        self.runs += other.runs;
        self.steps += other.steps;
        self.verbs += other.verbs;
        self.torn += other.torn;
        self.taken_back += other.taken_back;
        self.states += other.states;
        self.undecided += other.undecided;
        self.lost += other.lost;
        self.left.add(other.left);
        for (name, count) in other.faults {
            *self.faults.entry(name).or_default() += count;
        }
        self.longest_history = self.longest_history.max(other.longest_history);
        self.longest_op = self.longest_op.max(other.longest_op);
        self.longest_while_stopped = self.longest_while_stopped.max(other.longest_while_stopped);
        for (what, count) in other.met {
            *self.met.entry(what).or_default() += count;
        }
        for (situation, count) in other.situations {
            *self.situations.entry(situation).or_default() += count;
        }
        if let Some(finding) = other.finding
            && self.finding.as_ref().is_none_or(|mine| finding.run < mine.run)
        {
            self.finding = Some(finding);
        }
    }
}

/// Returns a distinct number for each run of a seed.
fn seed_of(seed: u64, run: u64) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ run.wrapping_add(1).wrapping_mul(0xd129_0b26_89fe_3a6b)
}

impl Settings {
    /// The number of runs in which each scenario gets all its turns.
    pub fn turns(&self) -> u64 {
        self.scenarios.iter().map(|scenario| scenario.turns).sum()
    }

    /// The scenario from which a run begins.
    fn scenario_of(&self, run: u64) -> &'static Scenario {
        let mut turn = run % self.turns();
        let is_its = |scenario: &&&Scenario| {
            let is_its = turn < scenario.turns;
            turn = turn.saturating_sub(scenario.turns);
            is_its
        };
        self.scenarios.iter().find(is_its).copied().unwrap_or(self.scenarios[0])
    }

    /// The plan of a run.
    pub fn plan(&self, run: u64) -> Plan {
        let mut dice = Dice::new(seed_of(self.seed, run));
        let scenario = self.scenario_of(run);
        let clients = 2 + dice.below(self.clients.saturating_sub(1).max(1) as u64) as usize;
        let clients = clients.min(self.clients.max(1));
        let hot = scenario.hot.len().min(self.keys.max(1));
        let keys = 1 + dice.below(hot as u64);
        let mut plan = Plan {
            subject: self.subject,
            scenario,
            nodes: 1 + dice.below(2) as u8,
            processes: self.processes_of(clients, scenario, &mut dice),
            warm: !dice.one_in(8),
            verbs: self.verbs,
            sides: self.sides,
            medium: self.medium,
            groups: self.groups.then(|| GroupFaults::of_seed(seed_of(self.seed ^ 0x6709, run))),
            faults: Vec::new(),
            clients: (0..clients).map(|_| self.ops_of(scenario, keys, &mut dice)).collect(),
        };
        // Enough upkeep in the middle that memory unlinked before it is freed, and reused after it.
        if dice.one_in(6) {
            for ops in &mut plan.clients {
                ops.extend(std::iter::repeat_n(Op::Maintain, GRACES));
                ops.extend(self.ops_of(scenario, keys, &mut dice));
            }
        }
        // Or continuous upkeep, as live processes do it: epochs pass while operations run.
        if scenario.churns || dice.one_in(3) {
            let (least, most) = if scenario.churns { CHURNED_ROUNDS } else { ROUNDS };
            // The others hand blocks over to a process that requests room.
            let asks = dice.one_in(3).then(|| dice.below(u64::from(plan.processes())) as u32);
            for process in 0..plan.processes() {
                let rounds = least + dice.below(most - least);
                let upkeep = match asks {
                    Some(asking) if asking == process => vec![Op::Room; rounds as usize / 8 + 1],
                    _ => vec![Op::Maintain; rounds as usize],
                };
                plan.clients.push(upkeep);
                plan.processes.push(process as u8);
            }
        }
        if self.groups {
            groups::fit(&mut plan, &mut dice);
        }
        if dice.one_in(2) {
            self.add_fault(&mut plan, &mut dice);
        }
        // A sweep waits for all live members, for a long time if one of them does not move.
        let moves = |fault: &Fault| !matches!(fault, Fault::Hold(..) | Fault::Pause(..) | Fault::Stop(..));
        let is_calm = self.kind_of(run) == SchedulerKind::Random && plan.faults.iter().all(moves);
        // It also moves the clock of leases, while clients that wait for the medium cannot renew
        // theirs.
        let waits = self.medium != Medium::Never;
        if self.subject.promises.exact_memory && is_calm && dice.one_in(SWEEPS_ONE_IN) && !waits {
            let clients = clients.min(plan.clients.len()) as u64;
            let ops = &mut plan.clients[dice.below(clients) as usize];
            ops.insert(dice.below(ops.len() as u64 + 1) as usize, Op::Sweep);
        }
        transaction::mix_in(&mut plan, &mut Dice::new(seed_of(self.seed ^ 0xc0_3317, run)));
        drain::mix_in(&mut plan, &mut Dice::new(seed_of(self.seed ^ 0xd_4a14, run)));
        snapshot::mix_in(&mut plan, &mut Dice::new(seed_of(self.seed ^ 0x5a_9707, run)));
        level::mix_in(&mut plan, &mut Dice::new(seed_of(self.seed ^ 0x1e_7e15, run)));
        if self.faults.iter().any(|name| name == LOSE) {
            let is_only = self.faults.len() == 1;
            losses::mix_in(&mut plan, is_only, &mut Dice::new(seed_of(self.seed ^ 0x10_55e5, run)));
        }
        plan
    }

    /// Adds one of the faults somewhere in a plan.
    fn add_fault(&self, plan: &mut Plan, dice: &mut Dice) {
        // Losses are mixed in at last.
        let names: Vec<&String> = self.faults.iter().filter(|name| **name != LOSE).collect();
        if names.is_empty() {
            return;
        }
        let name = names[dice.below(names.len() as u64) as usize];
        let clients = plan.clients.len() as u32;
        let is_client_s = Fault::is_of_client(name);
        let mut who = dice.below(u64::from(if is_client_s { clients } else { plan.processes() })) as u32;
        if self.subject.has_server && Fault::strikes_servers(name) && dice.one_in(2) {
            who = if &name[..] == "kill" && dice.one_in(2) { LATE_SERVER } else { SERVER };
        }
        let of_victim = |(at, _): &(usize, &Vec<Op>)| {
            is_client_s || matches!(who, SERVER | LATE_SERVER) || plan.process_of(*at) == who
        };
        let operations = plan.clients.iter().enumerate().filter(of_victim).map(|(_, ops)| ops.len() as u64);
        let operations = operations.sum::<u64>().max(1);
        let most = match &name[..] {
            "kill" | "pause" if self.groups => BLOWS_MS,
            "cancel" | "drop" => EVENTS_OF_AN_OPERATION / 2 * operations,
            "refuse" => 2 * operations + 4,
            _ => EVENTS_OF_AN_OPERATION * operations,
        };
        // Most faults strike early, after few operations, and all can strike anywhere.
        let most = 1 + dice.below(most.max(12));
        plan.faults.extend(Fault::named(name, who, dice.below(most)));
    }

    /// Returns the processes of `clients` clients: mostly one each, or the same for all, or random.
    fn processes_of(&self, clients: usize, scenario: &Scenario, dice: &mut Dice) -> Vec<u8> {
        if self.subject.in_one_process {
            return vec![0; clients];
        }
        if scenario.shares {
            let mut processes = vec![0; clients];
            processes[clients - 1] = dice.below(2) as u8;
            return processes;
        }
        match dice.below(if scenario.churns { 6 } else { 4 }) {
            0 | 4.. => vec![0; clients],
            1 => {
                let mut known = 0;
                let mut process = || {
                    let process = dice.below(known + 1);
                    known = known.max(process + 1);
                    process as u8
                };
                (0..clients).map(|_| process()).collect()
            }
            _ => Plan::apart(clients),
        }
    }

    fn ops_of(&self, scenario: &Scenario, keys: u64, dice: &mut Dice) -> Vec<Op> {
        let few = 1 + dice.below(self.ops.max(1) as u64);
        // Sometimes many, to span several epochs, changes of the list and uses of the same memory.
        let is_long = scenario.churns || dice.one_in(LONG_ONE_IN);
        let count = if is_long { few * LONG_TIMES } else { few };
        let mut op = || {
            if !scenario.ops.is_empty() {
                return scenario.ops[dice.below(scenario.ops.len() as u64) as usize];
            }
            let key = dice.below(keys) as u8;
            if scenario.loads && dice.one_in(4) {
                return Op::Load(dice.one_in(3));
            }
            if scenario.churns {
                return match dice.below(if scenario.adjusts { 21 } else { 15 }) {
                    0..3 => Op::Get(key),
                    3..5 => Op::Put(key),
                    5..8 => Op::Insert(key),
                    8..12 => Op::Delete(key),
                    12..15 => Op::Maintain,
                    15 => Op::Visit(key),
                    _ => Op::Restructure,
                };
            }
            match dice.below(if scenario.adjusts { 24 } else { 20 }) {
                0..3 => Op::Get(key),
                3..6 => Op::Put(key),
                6..9 => Op::Insert(key),
                9 => Op::Update(key),
                10 => Op::Replace(key),
                11..15 => Op::Delete(key),
                15 => Op::MultiGet,
                16 if dice.one_in(2) => Op::Windows(dice.one_in(2)),
                16 | 17 => Op::Scan(dice.one_in(2)),
                20 => Op::Adjust,
                21 => Op::Restructure,
                22 => Op::DeleteIf(key),
                23 => Op::Visit(key),
                _ => Op::Maintain,
            }
        };
        (0..count).map(|_| op()).collect()
    }

    /// The kind of a run's schedule.
    fn kind_of(&self, run: u64) -> SchedulerKind {
        match self.scheduler {
            SchedulerKind::Mixed => {
                let turns =
                    [SchedulerKind::Random, SchedulerKind::Late, SchedulerKind::Pct, SchedulerKind::Late];
                turns[(run / self.turns() % 4) as usize]
            }
            kind => kind,
        }
    }

    /// The scheduler of a run.
    fn scheduler(&self, run: u64, plan: &Plan) -> Box<dyn Scheduler> {
        let seed = seed_of(self.seed ^ 0x5ced, run);
        let operations = plan.clients.iter().map(Vec::len).sum::<usize>() as u64;
        let kind = if plan.sweeps() { SchedulerKind::Random } else { self.kind_of(run) };
        match kind {
            SchedulerKind::Pct => {
                let depth = 2 + (seed % 4) as u32;
                Box::new(Pct::new(seed, depth, EVENTS_OF_AN_OPERATION * operations))
            }
            SchedulerKind::Late => {
                let longest = plan.clients.iter().map(Vec::len).max().unwrap_or(0) as u64;
                Box::new(Late::new(seed, plan, longest))
            }
            SchedulerKind::Random | SchedulerKind::Mixed => Box::new(Random::new(seed)),
        }
    }

    /// Performs a run: a new one, or one that begins as an interesting run did.
    fn perform(
        &self,
        at: u64,
        corpus: &Corpus<(Plan, Schedule)>,
        fixtures: &mut Fixtures,
    ) -> (Plan, Outcome) {
        let mut dice = Dice::new(seed_of(self.seed ^ 0xc0_1b05, at));
        let drawn = if dice.one_in(GOES_ON_ONE_IN) { corpus.draw(&mut dice) } else { None };
        let Some(interest) = drawn.filter(|_| !self.groups) else {
            let plan = self.plan(at);
            let outcome = fixtures.run(&plan, &mut *self.scheduler(at, &plan));
            return (plan, outcome);
        };
        let (begun, schedule) = &interest.run;
        let plan = self.go_on(begun, &mut dice);
        let cut = if dice.one_in(2) { interest.cut as u64 } else { dice.below(interest.cut as u64) };
        let prefix = &schedule.0[..(cut as usize).min(schedule.0.len())];
        let outcome = fixtures.run(&plan, &mut After::new(prefix, self.scheduler(at, &plan)));
        (plan, outcome)
    }

    /// Adds operations to a plan, and perhaps a fault.
    fn go_on(&self, plan: &Plan, dice: &mut Dice) -> Plan {
        let mut plan = plan.clone();
        let keys = plan.scenario.hot.len().min(self.keys.max(1)) as u64;
        let transacts = transaction::has_any(&plan);
        for at in 0..plan.clients.len() {
            if plan.clients[at].len() < OPS_MAX && dice.one_in(2) {
                let mut more = self.ops_of(plan.scenario, keys, dice);
                if transacts {
                    transaction::replace_some(&mut more, plan.scenario.hot.len(), dice);
                }
                plan.clients[at].extend(more);
            }
        }
        if plan.faults.is_empty() && !plan.sweeps() && dice.one_in(4) {
            self.add_fault(&mut plan, dice);
        }
        plan
    }

    /// Performs all runs, or those up to the first violation. Calls `progress` now and then with
    /// the number of runs done.
    pub fn explore(&self, progress: &(dyn Fn(u64) + Sync)) -> Summary {
        let threads = self.threads.max(1);
        let (next, stop_at) = (AtomicU64::new(0), AtomicU64::new(self.runs));
        let (corpus, found) = (RwLock::new(Corpus::default()), Mutex::new(Vec::new()));
        let (total, barrier) = (Mutex::new(Summary::default()), Barrier::new(threads));
        let has_ended = AtomicBool::new(self.runs == 0);
        let worker = || {
            let mut fixtures = Fixtures::default();
            let mut summary = Summary::default();
            take_situations();
            let mut round_ends = 0;
            while !has_ended.load(Ordering::Relaxed) {
                round_ends += ROUND;
                {
                    let corpus = corpus.read().unwrap_or_else(PoisonError::into_inner);
                    self.round(
                        (&next, &stop_at, round_ends),
                        &corpus,
                        &found,
                        &mut fixtures,
                        &mut summary,
                        progress,
                    );
                }
                // All threads have done their last run of this round before one of them takes in
                // the results.
                if barrier.wait().is_leader() {
                    let mut found =
                        std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
                    found.sort_by_key(|(at, ..)| *at);
                    let mut corpus = corpus.write().unwrap_or_else(PoisonError::into_inner);
                    for (_, trail, run) in found {
                        corpus.add(&trail, run);
                    }
                    next.store(round_ends, Ordering::Relaxed);
                    has_ended.store(round_ends >= stop_at.load(Ordering::Relaxed), Ordering::Relaxed);
                }
                barrier.wait();
            }
            summary.situations = take_situations();
            total.lock().unwrap_or_else(PoisonError::into_inner).join(summary);
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(worker);
            }
            worker();
        });
        let mut total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
        total.pairs = corpus.into_inner().unwrap_or_else(PoisonError::into_inner).pairs();
        total
    }

    /// One thread's part of a round.
    fn round(
        &self,
        (next, stop_at, ends): (&AtomicU64, &AtomicU64, u64),
        corpus: &Corpus<(Plan, Schedule)>,
        found: &Mutex<Vec<Found>>,
        fixtures: &mut Fixtures,
        summary: &mut Summary,
        progress: &(dyn Fn(u64) + Sync),
    ) {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= ends.min(stop_at.load(Ordering::Relaxed)) {
                return;
            }
            take_trail();
            let (plan, outcome) = self.perform(at, corpus, fixtures);
            summary.add(&outcome);
            if outcome.violation.is_some() {
                stop_at.fetch_min(at, Ordering::Relaxed);
                summary.join(Summary {
                    finding: Some(self.finding(fixtures, at, plan, outcome)),
                    ..Summary::default()
                });
                return;
            }
            let trail = Trail::new(take_trail(), &outcome);
            if corpus.is_new(&trail) {
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                found.push((at, trail, (plan, outcome.schedule.trimmed())));
            }
            if at.is_multiple_of(64) {
                progress(at);
            }
        }
    }

    fn finding(&self, fixtures: &mut Fixtures, run: u64, plan: Plan, outcome: Outcome) -> Finding {
        let schedule = outcome.schedule.trimmed();
        let violation = outcome.violation.unwrap_or(Violation { kind: "none", text: String::new() });
        let (small_plan, small_schedule, violation) = if self.shrinks {
            shrink(fixtures, &plan, &schedule, violation)
        } else {
            (plan.clone(), schedule.clone(), violation)
        };
        Finding { run, plan, schedule, small_plan, small_schedule, violation }
    }
}
