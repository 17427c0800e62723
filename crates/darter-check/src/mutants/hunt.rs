//! Looking for a planted error with the explorer.

use super::{FoundBy, Mutant};
use crate::explore::{Explored, Settings, Summary, Sweep, subject};
use darter_fabric::mutants::plant;

impl Mutant {
    /// The indexes under which the explorer can meet the error, the likeliest first; none where no simulated client comes.
    pub fn indexes(&self) -> &'static [&'static str] {
        match self.area {
            "pool" | "tree" | "radix" | "skip table" => &["dart"],
            "ART" => &["art", "art-hashed"],
            "SMART" => &["smart", "smart-in-place"],
            "Sherman" => &["sherman", "sherman-inline", "fg-plus"],
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
            FoundBy::Explorer(index, schedules_max)
            | FoundBy::Focused { index, schedules: schedules_max, .. } => {
                let subject = explored(index);
                let scenarios = match self.found_by {
                    FoundBy::Focused { scenarios, .. } => {
                        scenarios.iter().map(|name| scenario(subject, name)).collect()
                    }
                    _ => Settings::of(subject).scenarios,
                };
                let faults = subject.promises.survives.iter().map(ToString::to_string).collect();
                let runs = schedules.unwrap_or(schedules_max);
                let settings = Settings {
                    faults,
                    runs,
                    clients: 4,
                    shrinks: false,
                    threads,
                    scenarios,
                    ..Settings::of(subject)
                };
                Some(settings.explore(&|_| {}))
            }
            FoundBy::Sweep(index, faults) => {
                let subject = explored(index);
                let faults = faults.split(',').map(str::to_owned).collect();
                let Settings { seed, holes, scenarios, .. } = Settings::of(subject);
                let sweep =
                    Sweep { subject, faults, scenarios, schedules: 1, seed, holes, shrinks: false, threads };
                Some(sweep.run(&|_| {}))
            }
            FoundBy::Tests(_) | FoundBy::Stress(_) | FoundBy::Equivalent(_) | FoundBy::Nobody => None,
        };
        plant(None);
        summary
    }
}
