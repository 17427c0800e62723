//! Indexes on simulated memory groups under all their faults, as `darter-lab sim --groups` explores
//! them.

use darter_check::explore::{
    Fixtures, GroupFaults, Replay, Schedule, Settings, Summary, parse_replay, subject, subjects,
};

/// Runs of each of the main indexes.
const RUNS: u64 = 150;

fn settings(index: &str, runs: u64) -> Settings {
    let index = subject(index).unwrap();
    let is_known = |name: &&&str| index.promises.survives.contains(*name);
    let faults = GroupFaults::OF_CLIENTS.iter().filter(is_known).map(ToString::to_string).collect();
    Settings { runs, ops: 6, faults, groups: true, threads: 2, ..Settings::of(index) }
}

/// Explores, and returns the summary. Panics at the first run that fails.
fn explore(settings: &Settings) -> Summary {
    let summary = settings.explore(&|_| {});
    println!("{}: {} runs, {:?}, {:?}", settings.subject.name, summary.runs, summary.faults, summary.met);
    if let Some(finding) = &summary.finding {
        let violation = &finding.violation;
        panic!("{}: {}\ndarter sim --replay '{}'", violation.kind, violation.text, finding.replay_line());
    }
    summary
}

/// Asserts that a campaign exercised what groups are for; otherwise it proves little.
fn assert_meets_all(summary: &Summary, least: u64) {
    for what in [
        "deaths",
        "failovers",
        "fences",
        "frames known to have been executed",
        "frames sent again",
        "handovers",
        "joins",
        "pauses",
        "power failures of all nodes",
        "returns with a log",
        "returns with nothing",
    ] {
        let count = summary.met.get(what).copied().unwrap_or(0);
        assert!(count >= least, "{what}: {count}: {:?}", summary.met);
    }
    for fault in GroupFaults::OF_CLIENTS {
        let count = summary.faults.get(fault).copied().unwrap_or(0);
        assert!(count >= least, "{fault}: {count}: {:?}", summary.faults);
    }
}

#[test]
fn a_seed_decides_everything() {
    let [one, other] = [1, 2].map(|threads| {
        let summary = explore(&Settings { threads, seed: 5, ..settings("dart", 16) });
        (summary.runs, summary.steps, summary.states, summary.met)
    });
    assert_eq!(one, other);
}

#[test]
fn dart_on_groups_survives_whatever_happens() {
    assert_meets_all(&explore(&settings("dart", RUNS)), 3);
}

#[test]
fn quiver_on_groups_survives_whatever_happens() {
    assert_meets_all(&explore(&settings("quiver", RUNS)), 3);
}

#[test]
fn other_indexes_on_groups_survive_whatever_happens() {
    // A replica does not run procedures.
    for index in subjects().iter().filter(|index| !index.has_server) {
        explore(&Settings { seed: 1000, ..settings(index.name, 4) });
    }
}

#[test]
fn a_run_on_groups_is_a_line_of_text() {
    let settings = settings("dart", 1);
    let nodes = |run| settings.plan(run).nodes;
    let plan = (0..64).find(|&run| nodes(run) == 2).map(|run| settings.plan(run)).unwrap();
    let (read, schedule) = parse_replay(&plan.to_string()).unwrap();
    assert_eq!((read, schedule), (plan.clone(), Schedule::default()));
    let [one, other] = [plan.clone(), plan].map(|plan| {
        let outcome = Fixtures::default().run(&plan, &mut Replay::traced(&Schedule::default()));
        assert_eq!(outcome.violation, None);
        (outcome.steps, outcome.history, outcome.trace)
    });
    assert_eq!(one, other);
    assert!(one.2.iter().any(|line| line.contains("group 1")), "{:?}", one.2);
}
