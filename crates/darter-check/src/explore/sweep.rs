//! Faults at every point: each operation in each scenario is counted, then struck at every verb, await or request in turn,
//! while a bystander works on the same keys.

use super::campaign::{Finding, Stages, Summary};
use super::plan::{Fault, Op, Plan};
use super::scenario::Scenario;
use super::schedule::{Random, Scheduler};
use super::shrink::shrink;
use super::subject::{Explored, Holes};
use darter_index::take_situations;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// What is swept.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The index.
    pub subject: &'static Explored,
    /// Names of the faults.
    pub faults: Vec<String>,
    /// Where runs begin.
    pub scenarios: Vec<&'static Scenario>,
    /// Schedules for each point.
    pub schedules: u64,
    /// Seed of the schedules.
    pub seed: u64,
    /// Errors brought back.
    pub holes: Holes,
    /// Threads.
    pub threads: usize,
}

/// Operations that the victim of a sweep performs, each in plans of its own.
pub fn victims(scenario: &Scenario) -> Vec<Vec<Op>> {
    let mut victims: Vec<Vec<Op>> =
        [Op::Get(0), Op::Put(0), Op::Insert(2), Op::Update(0), Op::Replace(0), Op::Delete(0), Op::MultiGet]
            .map(|op| vec![op])
            .into();
    victims.push(vec![Op::Scan(false)]);
    victims.push(vec![Op::Insert(0), Op::Insert(1), Op::Insert(2)]);
    victims.push(vec![Op::Delete(0), Op::Delete(1)]);
    victims.push(vec![Op::Put(0), Op::Delete(1), Op::Maintain, Op::Maintain, Op::Maintain, Op::Maintain]);
    if scenario.loads {
        victims.push(vec![Op::Load(false)]);
        victims.push(vec![Op::Load(true)]);
    }
    if scenario.adjusts {
        victims.push(vec![Op::Adjust]);
        victims.push(vec![Op::Restructure]);
    }
    victims
}

impl Sweep {
    fn plan(&self, scenario: &'static Scenario, victim: &[Op]) -> Plan {
        // Some scenarios have few keys.
        let is_there = |op: &Op| op.key().is_none_or(|key| usize::from(key) < scenario.hot.len());
        let there = |ops: &[Op]| ops.iter().copied().filter(is_there).collect::<Vec<_>>();
        Plan {
            subject: self.subject,
            scenario,
            nodes: 2,
            processes: Plan::apart(2),
            warm: true,
            holes: self.holes,
            faults: Vec::new(),
            clients: vec![there(victim), there(&[Op::Put(0), Op::Delete(1), Op::Insert(2), Op::Get(0)])],
        }
    }

    /// How many plans there are, each struck at many points.
    pub fn plans(&self) -> usize {
        self.scenarios.iter().map(|&scenario| victims(scenario).len()).sum()
    }

    /// Sweeps everything, or up to the first violation. `progress` hears of every plan.
    pub fn run(&self, progress: &(dyn Fn(&Plan) + Sync)) -> Summary {
        let plans: Vec<Plan> = self
            .scenarios
            .iter()
            .flat_map(|&scenario| victims(scenario).into_iter().map(move |victim| (scenario, victim)))
            .map(|(scenario, victim)| self.plan(scenario, &victim))
            .collect();
        let (next, stop_at) = (AtomicUsize::new(0), AtomicUsize::new(plans.len()));
        let total = Mutex::new(Summary::default());
        let worker = || {
            let (mut stages, mut summary) = (Stages::default(), Summary::default());
            take_situations();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= stop_at.load(Ordering::Relaxed) {
                    break;
                }
                progress(&plans[at]);
                if let Some(finding) = self.sweep(&plans[at], &mut stages, &mut summary) {
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
    fn sweep(&self, plan: &Plan, stages: &mut Stages, summary: &mut Summary) -> Option<Finding> {
        let quiet = stages.replay(plan, &super::Schedule::default());
        summary.add(&quiet);
        for name in &self.faults {
            let points = match &name[..] {
                "cancel" | "drop" => quiet.awaits.first().copied().unwrap_or(0),
                "refuse" => quiet.allocations.first().copied().unwrap_or(0),
                "power" => quiet.verbs.iter().sum(),
                _ => quiet.verbs.first().copied().unwrap_or(0) + 1,
            };
            for point in 0..points {
                let mut plan = plan.clone();
                plan.faults.extend(Fault::named(name, 0, point));
                for schedule in 0..self.schedules {
                    let outcome = stages.run(&plan, &mut self.scheduler(schedule));
                    summary.add(&outcome);
                    if let Some(violation) = outcome.violation {
                        let schedule = outcome.schedule.trimmed();
                        let (small_plan, small_schedule, violation) =
                            shrink(stages, &plan, &schedule, violation);
                        return Some(Finding {
                            run: 0,
                            plan,
                            schedule,
                            small_plan,
                            small_schedule,
                            violation,
                        });
                    }
                }
            }
        }
        None
    }

    fn scheduler(&self, schedule: u64) -> impl Scheduler + use<> {
        Random::new(self.seed.wrapping_mul(0x9e37_79b9).wrapping_add(schedule))
    }
}
