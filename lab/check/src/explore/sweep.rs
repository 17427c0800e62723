//! Faults at every point: the verbs, awaits, requests and events of each operation in each scenario
//! are counted, and then a fault strikes at each of them, while bystanders work on the same keys.

use super::campaign::Summary;
use super::fault::Fault;
use super::finding::Finding;
use super::fixtures::Fixtures;
use super::op::Op;
use super::outcome::{Outcome, Violation};
use super::plan::{Explored, Plan, Sides};
use super::scenario::Scenario;
use super::schedule::{Schedule, Scheduler};
use super::schedulers::{Choosing, Paced, Random};
use super::servers::{LATE_SERVER, SERVER};
use super::shrink::shrink;
use darter_index::checker::take_situations;
use darter_sim::{Medium, Relaxations};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The parameters of a sweep.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The index.
    pub subject: &'static Explored,
    /// Names of the faults.
    pub faults: Vec<String>,
    /// Scenarios from which runs begin.
    pub scenarios: Vec<&'static Scenario>,
    /// Schedules for each point.
    pub schedules: u64,
    /// Seed of the schedules.
    pub seed: u64,
    /// Guarantees of other providers' verbs that these verbs lack.
    pub verbs: Relaxations,
    /// When writes reach the medium, and which operations wait for that.
    pub medium: Medium,
    /// Whether to shrink a violation.
    pub shrinks: bool,
    /// Number of threads.
    pub threads: usize,
}

/// Operations that the victim of a sweep performs, each in its own plans.
pub fn victims(scenario: &Scenario) -> Vec<Vec<Op>> {
    let mut victims: Vec<Vec<Op>> =
        [Op::Get(0), Op::Put(0), Op::Insert(2), Op::Update(0), Op::Replace(0), Op::Delete(0), Op::MultiGet]
            .map(|op| vec![op])
            .into();
    victims.push(vec![Op::Scan(false)]);
    victims.push(vec![Op::Windows(true)]);
    victims.push(vec![Op::Maintain, Op::Maintain]);
    victims.push(vec![Op::Insert(0), Op::Insert(1), Op::Insert(2)]);
    victims.push(vec![Op::Delete(0), Op::Delete(1)]);
    victims.push(vec![Op::Put(0), Op::Delete(1), Op::Maintain, Op::Maintain, Op::Maintain, Op::Maintain]);
    if scenario.transacts {
        victims.extend(TRANSACTIONS.map(ops));
    }
    if scenario.loads {
        victims.push(vec![Op::Load(false)]);
        victims.push(vec![Op::Load(true)]);
    }
    if scenario.adjusts {
        victims.push(vec![Op::Visit(0)]);
        victims.push(vec![Op::Adjust]);
        victims.push(vec![Op::Restructure]);
    }
    victims
}

const HOLD: &str = "hold";
/// Not a fault but a schedule: a client whose operation is long becomes slow at one of its events,
/// at each of them in one run.
pub const SLOW: &str = "slow";
/// Steps of all clients per step of a slow client; each is tried.
const PACES: [u64; 4] = [3, 6, 12, 30];

/// Maximum number of words of one power failure for which all choices are tried, and of runs for
/// them.
const CHOSEN_WORDS_MAX: usize = 10;
const CHOICES_MAX: usize = 1 << CHOSEN_WORDS_MAX;

/// The operations of a client in another process, concurrent with the victim's.
const BYSTANDER: &str = "p0,d1,i2,g0";

/// Transactions that are struck, and the operations of a client that commits transactions too.
const TRANSACTIONS: [&str; 3] = ["tpdp", "tgp", "tgg"];
const TRANSACTING_BYSTANDER: &str = "tpp,tp-b,d1,tgd,g0";

/// The same as [`BESIDE_HELD`], in scenarios with transactions.
const TRANSACTING_BESIDE_HELD: [(&str, &str); 1] =
    [("tpp,M,tdp,M,H,tgp,g0", "i2,M,t-gp,M,d2,M,H,tpp,m,M,p1")];

/// The operations of two clients that run while the victim is held or slow: a thread of its
/// process, and a client of another. They unlink, free, reuse the memory and change shared state,
/// rest until the held client has ended, and check its results.
const BESIDE_HELD: [(&str, &str); 4] = [
    ("M,d0,j1,M,d1,M,M,j0,H,M,j2,g0", "i2,M,j2,M,d2,M,H,d0,m,M,p1"),
    ("d0,M,M,p0,M,H,g0,g1,i1,M", "d1,M,M,M,M,i1,M,H,s,d0,p1"),
    ("M,M,L,M,i2,M,H,g0,g1,p1,g2", "M,d0,M,L,M,M,p0,M,H,m,L,M,d0"),
    ("i2,p1,M,d2,M,M,H,m,d0,g1", "p0,d1,d0,M,M,M,i0,M,H,g0,p2,d1"),
];

/// The same for a slow client, during whose operation the others' epochs pass.
const BESIDE_SLOW: [(&str, &str); 3] = [
    ("d0,M,M,M,M,M,p0,M,M,M,M,H,g0,s", "M,M,M,M,M,M,M,M,M,M,M,M,H,g0,m"),
    ("M,M,M,M,M,M,M,M,M,M,H,g0,m", "M,d0,M,M,M,M,M,d1,M,M,M,M,p1,H,s"),
    ("d0,M,M,L,M,M,M,p0,M,M,H,g0,s", "M,M,j1,M,M,M,M,M,L,M,M,H,d1,m"),
];

/// Parses the operations of a line.
fn ops(line: &str) -> Vec<Op> {
    line.split(',').filter_map(|op| op.parse().ok()).collect()
}

impl Sweep {
    /// A plan with clients in these processes.
    fn plan(&self, scenario: &'static Scenario, processes: &[u8], clients: &[Vec<Op>]) -> Plan {
        // Drops operations that a scenario does not support: keys it does not have, and changes of
        // shared state and visitors if it does not adjust.
        let is_present = |op: &&Op| {
            op.key().is_none_or(|key| usize::from(key) < scenario.hot.len())
                && (scenario.adjusts || !matches!(op, Op::Restructure | Op::Visit(_)))
        };
        Plan {
            subject: self.subject,
            scenario,
            nodes: 2,
            processes: processes
                .iter()
                .map(|&own| if self.subject.in_one_process { 0 } else { own })
                .collect(),
            warm: true,
            verbs: self.verbs,
            sides: Sides::One,
            medium: self.medium,
            groups: None,
            faults: Vec::new(),
            clients: clients.iter().map(|ops| ops.iter().filter(is_present).copied().collect()).collect(),
        }
    }

    /// The plans to strike, each at many points, and the faults that strike them.
    fn plans(&self) -> Vec<(Plan, Vec<String>)> {
        let [is_held, is_slow] = [HOLD, SLOW].map(|name| self.faults.iter().any(|fault| fault == name));
        let strikes: Vec<String> =
            self.faults.iter().filter(|fault| !matches!(&fault[..], HOLD | SLOW)).cloned().collect();
        let mut plans = Vec::new();
        for &scenario in &self.scenarios {
            for victim in victims(scenario) {
                if !strikes.is_empty() {
                    let clients = [victim.clone(), ops(BYSTANDER)];
                    plans.push((self.plan(scenario, &[0, 1], &clients), strikes.clone()));
                    if victim.iter().any(|op| matches!(op, Op::Transact(_))) {
                        let clients = [victim.clone(), ops(TRANSACTING_BYSTANDER)];
                        plans.push((self.plan(scenario, &[0, 1], &clients), strikes.clone()));
                    }
                }
                let is_long =
                    victim.iter().any(|op| matches!(op, Op::Restructure | Op::Visit(_) | Op::Scan(_)));
                let beside = |name: &str, programs: &[(&str, &str)]| -> Vec<(Plan, Vec<String>)> {
                    let plan = |&(near, far): &(&str, &str)| {
                        let clients = [victim.clone(), ops(near), ops(far)];
                        (self.plan(scenario, &[0, 0, 1], &clients), vec![name.to_owned()])
                    };
                    programs.iter().map(plan).collect()
                };
                if is_held {
                    plans.extend(beside(HOLD, &BESIDE_HELD));
                    if scenario.transacts {
                        plans.extend(beside(HOLD, &TRANSACTING_BESIDE_HELD));
                    }
                }
                if is_slow && is_long {
                    plans.extend(beside(SLOW, &BESIDE_SLOW));
                }
            }
        }
        plans
    }

    /// Returns the number of plans, each of which is struck at many points.
    pub fn plans_len(&self) -> usize {
        self.plans().len()
    }

    /// Sweeps all plans, or those up to the first violation. Calls `progress` with every plan.
    pub fn run(&self, progress: &(dyn Fn(&Plan) + Sync)) -> Summary {
        let plans = self.plans();
        let (next, stop_at) = (AtomicUsize::new(0), AtomicUsize::new(plans.len()));
        let total = Mutex::new(Summary::default());
        let worker = || {
            let (mut fixtures, mut summary) = (Fixtures::default(), Summary::default());
            take_situations();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= stop_at.load(Ordering::Relaxed) {
                    break;
                }
                let (plan, faults) = &plans[at];
                progress(plan);
                if let Some(finding) = self.sweep(plan, faults, &mut fixtures, &mut summary) {
                    stop_at.fetch_min(at, Ordering::Relaxed);
                    summary.finding = Some(Finding { run: at as u64, ..finding });
                    break;
                }
            }
            summary.situations = take_situations();
            total.lock().unwrap_or_else(PoisonError::into_inner).join(summary);
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads.max(1) {
                scope.spawn(worker);
            }
            worker();
        });
        total.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Strikes one plan at every point.
    fn sweep(
        &self,
        plan: &Plan,
        faults: &[String],
        fixtures: &mut Fixtures,
        summary: &mut Summary,
    ) -> Option<Finding> {
        let quiet = fixtures.replay(plan, &Schedule::default());
        summary.add(&quiet);
        let strikes_server = |name: &&String| self.subject.has_server && &name[..] == "kill";
        let servers = faults.iter().filter(strikes_server);
        let servers = servers.flat_map(|name| [SERVER, LATE_SERVER].map(|server| (name, server)));
        // Memory node 0 cannot be lost.
        let victim = |name: &String| u32::from(name == "lose");
        for (name, who) in faults.iter().map(|name| (name, victim(name))).chain(servers) {
            let points = match &name[..] {
                "cancel" | "drop" => quiet.awaits.first().copied().unwrap_or(0),
                "refuse" => quiet.allocations.first().copied().unwrap_or(0),
                HOLD | SLOW => quiet.events.first().copied().unwrap_or(0),
                "power" => quiet.power_points(),
                "lose" => quiet.verbs.iter().sum(),
                // Long verbs of the server execute in pieces.
                _ if who == SERVER => 3 * quiet.server_pieces + 1,
                _ if who == LATE_SERVER => quiet.verbs.get(SERVER as usize).copied().unwrap_or(0) + 1,
                _ => quiet.verbs.get(who as usize).copied().unwrap_or(0) + 1,
            };
            for point in 0..points {
                let mut plan = plan.clone();
                plan.faults.extend(Fault::named(name, who, point));
                let paces = if name == SLOW { PACES.len() as u64 } else { 1 };
                for schedule in 0..self.schedules * paces {
                    let scheduler = || self.scheduler(name, point, schedule);
                    if let Some(finding) = self.strike(&plan, &scheduler, fixtures, summary) {
                        return Some(finding);
                    }
                }
            }
        }
        None
    }

    /// Runs a plan under a schedule, and again for each other choice at a power failure, unless
    /// there are too many.
    fn strike(
        &self,
        plan: &Plan,
        scheduler: &dyn Fn() -> Box<dyn Scheduler>,
        fixtures: &mut Fixtures,
        summary: &mut Summary,
    ) -> Option<Finding> {
        let mut outcome = fixtures.run(plan, &mut *scheduler());
        let mut choices: Vec<u16> = Vec::new();
        for _ in 0..CHOICES_MAX {
            summary.add(&outcome);
            if outcome.violation.is_some() {
                return Some(self.finding(plan, outcome, fixtures));
            }
            if plan.medium == Medium::Never || outcome.choices.is_empty() {
                return None;
            }
            outcome = fixtures.run(plan, &mut Choosing::new(scheduler(), &choices));
            if outcome.choices.len() > CHOSEN_WORDS_MAX {
                break;
            }
            // The next choices in order; the first are the newest everywhere.
            let Some(last) = outcome.choices.iter().rposition(|&(back, most)| back + 1 < most) else { break };
            choices = outcome.choices[..=last].iter().map(|&(back, _)| back as u16).collect();
            choices[last] += 1;
        }
        summary.add(&outcome);
        outcome.violation.is_some().then(|| self.finding(plan, outcome, fixtures))
    }

    fn finding(&self, plan: &Plan, outcome: Outcome, fixtures: &mut Fixtures) -> Finding {
        let schedule = outcome.schedule.trimmed();
        let violation = outcome.violation.unwrap_or(Violation { kind: "none", text: String::new() });
        let (small_plan, small_schedule, violation) = if self.shrinks {
            shrink(fixtures, plan, &schedule, violation)
        } else {
            (plan.clone(), schedule.clone(), violation)
        };
        Finding { run: 0, plan: plan.clone(), schedule, small_plan, small_schedule, violation }
    }

    fn scheduler(&self, fault: &str, point: u64, schedule: u64) -> Box<dyn Scheduler> {
        let seed = self.seed.wrapping_mul(0x9e37_79b9).wrapping_add(schedule);
        match fault {
            SLOW => Box::new(Paced::new(seed, point, PACES[(schedule % PACES.len() as u64) as usize])),
            _ => Box::new(Random::new(seed)),
        }
    }
}
