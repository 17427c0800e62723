//! Looking for a planted error with the explorer.

use super::{FoundBy, Mutant};
use crate::explore::{Explored, Scenario, Settings, Summary, Sweep, subject};
use darter_fabric::mutants::plant;
use darter_fabric::sim::Relaxations;

impl Mutant {
    /// The indexes under which the explorer can meet the error, the likeliest first; none where no simulated client comes.
    pub fn indexes(&self) -> &'static [&'static str] {
        match self.area {
            "pool" | "tree" | "radix" | "skip table" => &["dart"],
            "ART" => &["art", "art-hashed"],
            "SMART" => &["smart", "smart-in-place"],
            "Sherman" => &["sherman", "sherman-inline", "fg-plus"],
            "CHIME" => &["chime-inline", "chime"],
            "XStore" => &["xstore-inline", "xstore"],
            "WORT" => &["wort", "woart", "artcow"],
            "medium" => &["dart", "wort"],
            "locks" => &["sherman", "art", "smart-in-place"],
            _ => &[],
        }
    }

    /// Plants the error in this process and looks for it as the list says that it is found, if that is by the explorer or the
    /// sweep. `schedules` takes the place of the list's budget. Nothing else may run in the process meanwhile.
    ///
    /// # Panics
    /// When the list names an index or a fault that there is not.
    pub fn hunt(&self, schedules: Option<u64>, threads: usize) -> Option<Summary> {
        let explored = |index| subject(index).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let scenario = |subject: &'static Explored, name: &str| {
            subject.scenario(name).unwrap_or_else(|error| panic!("{}: {error}", self.name))
        };
        plant(Some(self.name));
        let summary = match self.found_by {
            FoundBy::Explorer(index, runs) => {
                Some(explore(explored(index), None, schedules.unwrap_or(runs), threads))
            }
            FoundBy::Relaxed { index, schedules: runs } => {
                let verbs = Relaxations { order: true, cas_writes_back: true, split_atomics: false };
                let settings = Settings { verbs, ..Settings::of(explored(index)) };
                let faults = settings.subject.survives(settings.medium);
                Some(explore_with(settings, faults, schedules.unwrap_or(runs), threads))
            }
            FoundBy::Focused { index, scenarios, schedules: runs } => {
                let subject = explored(index);
                let scenarios = scenarios.iter().map(|name| scenario(subject, name)).collect();
                Some(explore(subject, Some(scenarios), schedules.unwrap_or(runs), threads))
            }
            FoundBy::Power { index, medium, schedules: runs } => {
                let settings = Settings { medium, ..Settings::of(explored(index)) };
                Some(explore_with(settings, vec!["power".to_owned()], schedules.unwrap_or(runs), threads))
            }
            FoundBy::Sweep { index, fault, scenarios } => {
                let subject = explored(index);
                let faults = vec![fault.to_owned()];
                let scenarios = scenarios.iter().map(|name| scenario(subject, name)).collect();
                let Settings { seed, holes, verbs, medium, .. } = Settings::of(subject);
                let sweep = Sweep {
                    subject,
                    faults,
                    scenarios,
                    schedules: 1,
                    seed,
                    holes,
                    verbs,
                    medium,
                    shrinks: false,
                    threads,
                };
                Some(sweep.run(&|_| {}))
            }
            FoundBy::Tests(_) | FoundBy::Stress(_) | FoundBy::Equivalent(_) | FoundBy::Nobody => None,
        };
        plant(None);
        summary
    }
}

/// So many schedules of an index with every fault that it survives, from these scenarios or all.
fn explore(
    subject: &'static Explored,
    scenarios: Option<Vec<&'static Scenario>>,
    runs: u64,
    threads: usize,
) -> Summary {
    let settings = Settings::of(subject);
    let scenarios = scenarios.unwrap_or(settings.scenarios.clone());
    let faults = subject.survives(settings.medium);
    explore_with(Settings { scenarios, ..settings }, faults, runs, threads)
}

fn explore_with(settings: Settings, faults: Vec<String>, runs: u64, threads: usize) -> Summary {
    Settings { faults, runs, clients: 4, shrinks: false, threads, ..settings }.explore(&|_| {})
}
