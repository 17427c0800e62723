//! Indexes on simulated memory groups, whatever strikes these.
//!
//! ```sh
//! cargo test -p darter-check --test it groups::
//! DARTER_GROUP_INDEX=dart DARTER_GROUP_SEED=77 cargo test -p darter-check --test it groups::one_seed -- --ignored --nocapture
//! DARTER_GROUP_INDEX=dart DARTER_GROUP_RUNS=100000 cargo test -p darter-check --test it groups::many_seeds -- --ignored --nocapture
//! ```

use darter_check::explore::{Explored, GroupSummary, Groups, subject, subjects};
use std::ops::Range;

/// Seeds of each of the main indexes.
const SEEDS: u64 = 150;

/// Runs seeds, and returns what they have met. Panics at the first that goes wrong.
fn campaign(index: &str, seeds: Range<u64>) -> GroupSummary {
    let summary = Groups::of(subject(index).unwrap(), seeds).explore();
    println!("{index}: {} runs, {} operations, {:?}", summary.runs, summary.operations, summary.met);
    if let Some(finding) = &summary.finding {
        let (seed, violation) = (finding.seed, &finding.violation);
        panic!("{index}: seed {seed}: {}: {}\n{}", violation.kind, violation.text, finding.plan);
    }
    summary
}

/// A campaign means something only if it has met what groups are for.
fn assert_meets_all(summary: &GroupSummary, least: u64) {
    for what in [
        "clients shut out alive",
        "dead clients",
        "deaths",
        "failovers",
        "fences",
        "frames known to have been executed",
        "frames sent again",
        "handovers",
        "joins",
        "pauses",
        "returns with an old memory",
    ] {
        let count = summary.met.get(what).copied().unwrap_or(0);
        assert!(count >= least, "{what}: {count}: {:?}", summary.met);
    }
}

#[test]
fn a_seed_decides_everything() {
    let [one, other] = [1, 2].map(|threads| {
        let summary = Groups { threads, ..Groups::of(subject("dart").unwrap(), 30..42) }.explore();
        (summary.runs, summary.operations, summary.met)
    });
    assert_eq!(one, other);
}

#[test]
fn dart_on_groups_survives_whatever_happens() {
    assert_meets_all(&campaign("dart", 0..SEEDS), 3);
}

#[test]
fn quiver_on_groups_survives_whatever_happens() {
    assert_meets_all(&campaign("quiver", 0..SEEDS), 3);
}

#[test]
fn other_indexes_on_groups_survive_whatever_happens() {
    // A replica has no procedures.
    for index in subjects().iter().filter(|index| !index.has_server) {
        campaign(index.name, 1000..1004);
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// The index that `DARTER_GROUP_INDEX` names.
fn chosen() -> &'static Explored {
    subject(&std::env::var("DARTER_GROUP_INDEX").unwrap_or_else(|_| "dart".to_owned())).unwrap()
}

#[test]
#[ignore = "as many as DARTER_GROUP_RUNS says, from DARTER_GROUP_SEED on"]
fn many_seeds() {
    let first = number("DARTER_GROUP_SEED", 0);
    campaign(chosen().name, first..first + number("DARTER_GROUP_RUNS", 10_000));
}

#[test]
#[ignore = "the one of DARTER_GROUP_SEED, with a trace"]
fn one_seed() {
    let seed = number("DARTER_GROUP_SEED", 0);
    let groups = Groups { is_traced: true, threads: 1, ..Groups::of(chosen(), seed..seed + 1) };
    let summary = groups.explore();
    println!("{}\n{:?}", groups.plan(seed), summary.met);
    if let Some(finding) = summary.finding {
        panic!("{}\n{}: {}", finding.trace.join("\n"), finding.violation.kind, finding.violation.text);
    }
}
