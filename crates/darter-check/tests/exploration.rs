//! The explorer against DART: nothing is found as it stands, everything is found with an error brought back, what was found
//! once stays mended, and the explorer itself does what it says.

#![allow(clippy::unwrap_used)] // a test may panic

use darter_check::explore::{
    Exhaustion, Fault, Finding, Plan, Scenario, Schedule, SchedulerKind, Settings, Stages, Summary, Sweep,
    exhaust, parse_replay,
};
use darter_index::{Hole, Holes};

/// Schedules within which each error must be found; 100 times as many must find nothing with all errors mended.
const BUDGETS: [(Hole, u64); 8] = [
    (Hole::DeleteToEmpty, 500),
    (Hole::FreezeParent, 500),
    (Hole::TrustExpress, 500),
    (Hole::TrustCompression, 500),
    (Hole::ReuseAtOnce, 2000),
    (Hole::TrustSealed, 500),
    (Hole::SkipScrub, 2000),
    (Hole::FreeAfterError, 2000),
];

fn settings(hole: Option<Hole>, runs: u64) -> Settings {
    let mut settings = Settings { seed: 1, runs, threads: 2, ..Settings::default() };
    if let Some(hole) = hole {
        settings.holes = Holes::default().with(hole);
    }
    settings
}

/// What a budget of schedules finds: at random, or for an error that only a lost reply shows, at every verb.
fn explored(open: Option<Hole>, sought: Hole, budget: u64) -> Summary {
    if sought == Hole::FreeAfterError {
        let sweep = Sweep {
            faults: vec!["cut".into()],
            scenarios: vec![Scenario::Pair],
            schedules: budget.div_ceil(1000),
            seed: 1,
            holes: open.map_or(Holes::default(), |hole| Holes::default().with(hole)),
            threads: 2,
        };
        return sweep.run(&|_| {});
    }
    let mut settings = settings(open, budget);
    if sought == Hole::SkipScrub {
        // Needs memory to come round again.
        settings.scenarios = vec![Scenario::Split, Scenario::Pair];
    }
    settings.explore(&|_| {})
}

fn assert_clean(finding: Option<&Finding>) {
    if let Some(finding) = finding {
        panic!("{}: {}\n{}", finding.violation.kind, finding.violation.text, finding.replay_line());
    }
}

/// A replay line that fails with its error brought back must not fail without it, and must fail again with it.
fn assert_shows(finding: &Finding, hole: Hole) {
    let (mut plan, schedule) = parse_replay(&finding.replay_line()).unwrap();
    let mut stages = Stages::default();
    let again = stages.replay(&plan, &schedule).violation.expect("the replay line shows nothing");
    assert_eq!(again.kind, finding.violation.kind, "{}", finding.replay_line());
    assert!(plan.holes.has(hole));
    plan.holes = Holes::default();
    let mended = stages.replay(&plan, &schedule).violation;
    assert_eq!(mended, None, "{}", finding.replay_line());
}

#[test]
fn every_error_brought_back_is_found_and_replayed() {
    for (hole, budget) in BUDGETS {
        let summary = explored(Some(hole), hole, budget);
        assert!(summary.runs <= budget, "{}: {} runs", hole.name(), summary.runs);
        let finding = summary.finding.unwrap_or_else(|| panic!("{}: not found in {budget}", hole.name()));
        let before = finding.plan.clients.iter().map(Vec::len).sum::<usize>();
        let after = finding.small_plan.clients.iter().map(Vec::len).sum::<usize>();
        assert!(after <= before && finding.small_schedule.switches() <= finding.schedule.switches().max(1));
        assert_shows(&finding, hole);
    }
}

/// A hundred times the budgets, with nothing brought back. Long: run it with `--ignored` in a release build.
#[test]
#[ignore = "a hundred times the budgets takes minutes in a release build"]
fn a_hundred_budgets_find_nothing() {
    for (hole, budget) in BUDGETS {
        assert_clean(explored(None, hole, budget * 100).finding.as_ref());
    }
}

#[test]
fn nothing_is_found_as_it_stands() {
    let summary = settings(None, 2000).explore(&|_| {});
    assert_clean(summary.finding.as_ref());
    assert_eq!(summary.runs, 2000);
    let faults = Fault::NAMES.map(str::to_owned).into();
    let summary = Settings { seed: 2, faults, ..settings(None, 2000) }.explore(&|_| {});
    assert_clean(summary.finding.as_ref());
    assert!(Fault::NAMES.iter().all(|name| summary.faults.contains_key(name)), "{:?}", summary.faults);
}

#[test]
fn faults_at_every_point_harm_nothing() {
    for fault in ["kill", "cancel", "pause", "cut", "refuse"] {
        let sweep = Sweep {
            faults: vec![fault.into()],
            scenarios: vec![Scenario::Pair, Scenario::Split, Scenario::Grow(0), Scenario::Shrink(2)],
            schedules: 1,
            seed: 3,
            holes: Holes::default(),
            threads: 2,
        };
        let summary = sweep.run(&|_| {});
        assert_clean(summary.finding.as_ref());
        assert!(summary.faults[fault] > 30, "{fault}: {:?}", summary.faults);
    }
}

/// With any one client stopped for ever at any verb, the others' operations end within a bound.
#[test]
fn nobody_waits_for_a_client_that_stopped() {
    let sweep = Sweep {
        faults: vec!["stop".into()],
        scenarios: vec![
            Scenario::Plain,
            Scenario::Pair,
            Scenario::Split,
            Scenario::Grow(1),
            Scenario::Shrink(3),
        ],
        schedules: 1,
        seed: 4,
        holes: Holes::default(),
        threads: 2,
    };
    let summary = sweep.run(&|_| {});
    assert_clean(summary.finding.as_ref());
    let (trips, verbs) = summary.longest_beside_stopped;
    assert!((1..100).contains(&trips) && verbs < 1000, "{trips} round trips, {verbs} verbs");
}

#[test]
fn small_cases_are_searched_to_their_end() {
    for (plan, tears) in [
        ("dart/plain/nodes=1/process=each/warm/p1;p1", true),
        ("dart/plain/nodes=1/process=each/warm/d0;p0", false),
        ("dart/plain/nodes=1/process=each/warm/i1;i2", false),
        ("dart/plain/nodes=1/process=each/warm/d0;g0", false),
        ("dart/plain/nodes=1/process=each/warm/i1;i1;g1", false),
        ("dart/grow-n4/nodes=1/process=each/warm/i0;g1", false),
    ] {
        let plan: Plan = plan.parse().unwrap();
        let Exhaustion { runs, complete, finding, .. } = exhaust(&plan, tears, 100_000, &|_| {});
        assert_clean(finding.as_ref());
        assert!(complete && runs > 1, "{plan}: {runs} runs");
    }
}

/// The exhaustive search finds what needs one context switch, in the order it enumerates.
#[test]
fn the_exhaustive_search_finds_a_lost_write() {
    let plan: Plan = "dart/pair/nodes=1/process=each/warm/hole=freeze-parent/d0;p1".parse().unwrap();
    let finding = exhaust(&plan, false, 200_000, &|_| {}).finding.expect("not found");
    let (plan, schedule) = parse_replay(&finding.replay_line()).unwrap();
    assert!(!schedule.0.is_empty() && plan.holes.has(Hole::FreezeParent));
}

#[test]
fn a_seed_means_the_same_run_for_ever() {
    let settings = Settings {
        faults: vec!["kill".into(), "cut".into()],
        scheduler: SchedulerKind::Random,
        ..settings(None, 300)
    };
    let one = settings.explore(&|_| {});
    let two = Settings { threads: 1, ..settings }.explore(&|_| {});
    assert_eq!((one.steps, one.verbs, one.torn), (two.steps, two.verbs, two.torn));
    assert_eq!(one.faults, two.faults);
}

/// Lines of runs that once failed, and how.
const FOUND: &[(&str, &str)] = &[
    (
        "dart/segment/nodes=2/process=each/warm/stop=0@2737/p0#",
        "a repair finished a segment's split and left the old segment to nobody",
    ),
    (
        "dart/chain/nodes=1/process=each/warm/cancel=0@8/d1,p2;i0,d0#1.0x32.1",
        "an insert beside a chain above an emptied node sealed the chain's node and turned for ever",
    ),
];

#[test]
fn what_was_found_stays_mended() {
    let mut stages = Stages::default();
    for (line, what) in FOUND {
        let (plan, schedule) = parse_replay(line).unwrap();
        let violation = stages.replay(&plan, &schedule).violation;
        assert_eq!(violation, None, "{what}\n{line}");
    }
}

#[test]
fn lines_that_are_no_replay_are_refused() {
    for line in ["", "#", "dart/plain/p0#9", "dart/plain/p0#0x3.y", "art/plain/p0#", "dart/plain/p7#"] {
        let parsed = parse_replay(line);
        if let Ok((plan, schedule)) = parsed {
            // A decision that is not on offer is a zero: such a line runs, it just says something else.
            assert_eq!(line, "dart/plain/p0#9");
            assert_eq!(Stages::default().replay(&plan, &schedule).violation, None);
        }
    }
    assert!("0x99999999999".parse::<Schedule>().is_err());
}
