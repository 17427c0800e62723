//! Hunts for a planted error with the explorer, or with a test.

use super::{FoundBy, Mutant, Schedules};
use crate::explore::{
    Explored, Finding, Fixtures, Scenario, Settings, Summary, Sweep, parse_replay, subject,
};
use darter_mutant::{VARIABLE, plant};
use darter_sim::{Medium, Relaxations};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time between two checks of a running test.
const LOOK: Duration = Duration::from_millis(50);

/// The result of exploring with a planted error.
#[derive(Debug)]
pub struct Hunted {
    /// The result of the runs.
    pub summary: Summary,
    /// Why the finding does not count, if it does not: its replay line shows no violation, or also
    /// shows it without the error.
    pub objection: Option<&'static str>,
}

impl Hunted {
    /// Returns the finding, if it counts.
    pub fn finding(&self) -> Option<&Finding> {
        self.summary.finding.as_ref().filter(|_| self.objection.is_none())
    }
}

impl Mutant {
    /// Plants the error in this process and runs the schedules or the sweep that find it; returns
    /// `None` if tests or damaged pools find it. The replay line of a finding must show the violation again, and
    /// must not show it without the error. Nothing else may run in the process at the same time.
    ///
    /// # Panics
    /// Panics if the list names an index, a scenario or a rule that does not exist.
    pub fn hunt(&self, threads: usize) -> Option<Hunted> {
        let campaign = self.campaign(threads)?;
        plant(Some(&self.name));
        let summary = match campaign {
            Campaign::Schedules(settings) => settings.explore(&|_| {}),
            Campaign::Sweep(sweep) => sweep.run(&|_| {}),
        };
        let line = summary.finding.as_ref().map(Finding::replay_line);
        let shows = |line: &str| {
            let (plan, schedule) = parse_replay(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            Fixtures::default().replay(&plan, &schedule).violation.is_some()
        };
        let mut objection =
            line.as_ref().filter(|line| !shows(line)).map(|_| "its replay line shows no violation");
        plant(None);
        if line.is_some_and(|line| objection.is_none() && shows(&line)) {
            objection = Some("its replay line also shows a violation without the error");
        }
        Some(Hunted { summary, objection })
    }

    /// Returns the run of the explorer that finds this error.
    ///
    /// # Panics
    /// Panics like [`Mutant::hunt`].
    fn campaign(&self, threads: usize) -> Option<Campaign> {
        let fail = |error: String| -> ! { panic!("{}: {error}", self.name) };
        let explored = |index: &str| subject(index).unwrap_or_else(|error| fail(error));
        let scenarios = |subject: &'static Explored, names: &[String]| -> Vec<&'static Scenario> {
            let found = names.iter().map(|name| subject.scenario(name).unwrap_or_else(|error| fail(error)));
            found.collect()
        };
        match &self.found_by {
            FoundBy::Schedules(Schedules { index, runs, scenarios: names, faults, verbs, durability }) => {
                let subject = explored(index);
                let medium = durability.as_ref().map_or(Ok(Medium::Never), |rule| rule.parse());
                let medium = medium.unwrap_or_else(|error| fail(error));
                let verbs = verbs.as_ref().map_or(Ok(Relaxations::default()), |which| which.parse());
                let verbs = verbs.unwrap_or_else(|error| fail(error));
                let faults = match faults {
                    Some(faults) => faults.clone(),
                    None if durability.is_some() => vec!["power".to_owned()],
                    None => subject.survives(medium),
                };
                let mut settings = Settings {
                    runs: *runs,
                    clients: 4,
                    faults,
                    verbs,
                    medium,
                    shrinks: false,
                    threads,
                    ..Settings::of(subject)
                };
                if !names.is_empty() {
                    settings.scenarios = scenarios(subject, names);
                }
                Some(Campaign::Schedules(settings))
            }
            FoundBy::Sweep { index, fault, scenarios: names } => {
                let subject = explored(index);
                let Settings { seed, verbs, medium, .. } = Settings::of(subject);
                let scenarios = scenarios(subject, names);
                let faults = vec![fault.clone()];
                let (schedules, shrinks) = (1, false);
                Some(Campaign::Sweep(Sweep {
                    subject,
                    faults,
                    scenarios,
                    schedules,
                    seed,
                    verbs,
                    medium,
                    shrinks,
                    threads,
                }))
            }
            FoundBy::Tests(_) | FoundBy::Damages(_) => None,
        }
    }
}

/// A run of the explorer, with all names resolved.
enum Campaign {
    Schedules(Settings),
    Sweep(Sweep),
}

/// Runs `cargo test` in a copy of the sources with an error planted, or none. Returns whether it
/// fails; `None` if it took longer than `timeout` and was killed.
///
/// # Errors
/// Fails if cargo cannot be run.
pub fn test_finds(
    root: &Path,
    arguments: &str,
    planted: Option<&str>,
    timeout: Duration,
) -> io::Result<Option<bool>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.arg("test").args(arguments.split(' ')).current_dir(root).process_group(0);
    cargo.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).env_remove(VARIABLE);
    if let Some(name) = planted {
        cargo.env(VARIABLE, name);
    }
    let (mut child, begun) = (cargo.spawn()?, Instant::now());
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(!status.success()));
        }
        if begun.elapsed() > timeout {
            // The processes of the test belong to its process group.
            if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
                kill_process_group(group, Signal::KILL)?;
            }
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::super::mutants;

    #[test]
    fn the_list_names_what_there_is() {
        let mutants = mutants().unwrap();
        let explored = mutants.iter().filter(|mutant| mutant.campaign(1).is_some()).count();
        assert!(explored > 100, "{explored}");
    }
}
