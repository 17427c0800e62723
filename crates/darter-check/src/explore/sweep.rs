//! Faults at every point: each operation in each scenario is counted, then struck at every verb, await or request in turn,
//! while a bystander works on the same keys.

use super::campaign::{Finding, Stages, Summary};
use super::plan::{Fault, Op, Plan};
use super::scenario::Scenario;
use super::schedule::{Random, Scheduler};
use super::shrink::shrink;
use darter_index::{Holes, take_situations};

/// What is swept.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Names of the faults.
    pub faults: Vec<String>,
    /// Where runs begin.
    pub scenarios: Vec<Scenario>,
    /// Schedules for each point.
    pub schedules: u64,
    /// Seed of the schedules.
    pub seed: u64,
    /// Errors brought back.
    pub holes: Holes,
}

/// Operations that the victim of a sweep performs, each in plans of its own.
pub fn victims(scenario: Scenario) -> Vec<Vec<Op>> {
    let mut victims: Vec<Vec<Op>> =
        [Op::Get(0), Op::Put(0), Op::Insert(2), Op::Update(0), Op::Replace(0), Op::Delete(0), Op::MultiGet]
            .map(|op| vec![op])
            .into();
    victims.push(vec![Op::Scan(false)]);
    victims.push(vec![Op::Insert(0), Op::Insert(1), Op::Insert(2)]);
    victims.push(vec![Op::Delete(0), Op::Delete(1)]);
    victims.push(vec![Op::Put(0), Op::Delete(1), Op::Maintain, Op::Maintain, Op::Maintain, Op::Maintain]);
    if scenario == Scenario::Adjust {
        victims.push(vec![Op::Adjust]);
    }
    victims
}

impl Sweep {
    fn plan(&self, scenario: Scenario, victim: &[Op]) -> Plan {
        Plan {
            scenario,
            nodes: 2,
            apart: true,
            warm: true,
            holes: self.holes,
            faults: Vec::new(),
            clients: vec![victim.to_vec(), vec![Op::Put(0), Op::Delete(1), Op::Insert(2), Op::Get(0)]],
        }
    }

    /// How many plans there are, each struck at many points.
    pub fn plans(&self) -> usize {
        self.scenarios.iter().map(|&scenario| victims(scenario).len()).sum()
    }

    /// Sweeps everything, or up to the first violation. `progress` hears of every plan.
    pub fn run(&self, progress: &dyn Fn(&Plan)) -> Summary {
        let mut stages = Stages::default();
        let mut summary = Summary::default();
        take_situations();
        'all: for &scenario in &self.scenarios {
            for victim in victims(scenario) {
                let plan = self.plan(scenario, &victim);
                progress(&plan);
                let quiet = stages.replay(&plan, &super::Schedule::default());
                summary.add(&quiet);
                for name in &self.faults {
                    let points = match &name[..] {
                        "cancel" => quiet.awaits.first().copied().unwrap_or(0),
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
                                    shrink(&mut stages, &plan, &schedule, violation);
                                let run = summary.runs;
                                summary.finding = Some(Finding {
                                    run,
                                    plan,
                                    schedule,
                                    small_plan,
                                    small_schedule,
                                    violation,
                                });
                                break 'all;
                            }
                        }
                    }
                }
            }
        }
        summary.situations = take_situations();
        summary
    }

    fn scheduler(&self, schedule: u64) -> impl Scheduler + use<> {
        Random::new(self.seed.wrapping_mul(0x9e37_79b9).wrapping_add(schedule))
    }
}
