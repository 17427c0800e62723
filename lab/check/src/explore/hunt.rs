//! Whether the explorer finds an error that is brought back: the check of the checker, and what shows where a published
//! design breaks.

use super::campaign::{Settings, Summary};
use super::plan::Explored;
use super::subject::Holes;
use super::sweep::Sweep;

/// Runs of a sweep that stand for one schedule for each point.
const RUNS_OF_A_SWEEP: u64 = 1000;

impl Explored {
    /// Looks for what a hole shows, as the hole says it shows, within so many schedules and with these holes open. With none open
    /// the same must find nothing.
    ///
    /// # Panics
    /// When the hole names scenarios or faults that there are not.
    pub fn hunt(&'static self, hole: usize, open: Holes, budget: u64, threads: usize) -> Summary {
        let hole = &self.holes[hole];
        let scenario = |name| self.scenario(name).unwrap_or_else(|error| panic!("{}: {error}", hole.name));
        let mut settings = Settings { seed: 1, runs: budget, holes: open, threads, ..Settings::of(self) };
        settings.faults = hole.faults.iter().map(ToString::to_string).collect();
        if !hole.scenarios.is_empty() {
            settings.scenarios = hole.scenarios.iter().copied().map(scenario).collect();
        }
        if !hole.sweep {
            return settings.explore(&|_| {});
        }
        let Settings { subject, faults, scenarios, seed, holes, verbs, medium, .. } = settings;
        let schedules = budget.div_ceil(RUNS_OF_A_SWEEP);
        Sweep { subject, faults, scenarios, schedules, seed, holes, verbs, medium, shrinks: true, threads }
            .run(&|_| {})
    }
}
