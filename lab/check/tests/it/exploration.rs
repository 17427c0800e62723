//! The explorer on the indexes: it finds nothing in them as they are, errors found before stay
//! fixed, and the explorer itself works as documented. `darter-lab mutants hunt` tests that it
//! finds errors.

use darter_check::explore::{
    Exhaustion, Explored, Fault, Finding, Fixtures, Left, Plan, Schedule, SchedulerKind, Settings, Sides,
    Sweep, exhaust, parse_replay, subject, subjects,
};
use darter_check::history::{Operation, Outcome as Told};
use darter_sim::{Medium, Relaxations};

fn quiver() -> &'static Explored {
    subject("quiver").unwrap()
}

fn dart() -> &'static Explored {
    subject("dart").unwrap()
}

/// Settings of Quiver, the main index.
fn settings(seed: u64, runs: u64) -> Settings {
    Settings { seed, runs, threads: 2, ..Settings::of(quiver()) }
}

fn sweep(subject: &'static Explored, fault: &str, scenarios: &[&str], seed: u64) -> Sweep {
    let scenarios = scenarios.iter().map(|name| subject.scenario(name).unwrap()).collect();
    Sweep {
        subject,
        faults: vec![fault.into()],
        scenarios,
        schedules: 1,
        seed,
        verbs: Relaxations::default(),
        medium: Medium::Never,
        shrinks: true,
        threads: 2,
    }
}

fn assert_clean(finding: Option<&Finding>) {
    if let Some(finding) = finding {
        panic!("{}: {}\n{}", finding.violation.kind, finding.violation.text, finding.replay_line());
    }
}

#[test]
fn every_index_stands_verbs_that_promise_no_more_than_rdma() {
    for index in subjects() {
        for verbs in ["rdma", "rdma+split"] {
            let verbs = verbs.parse().unwrap();
            let settings = Settings { seed: 3, runs: 200, threads: 2, verbs, ..Settings::of(index) };
            assert_clean(settings.explore(&|_| {}).finding.as_ref());
        }
    }
}

/// Why a memory node with a device does not execute verbs itself: if the device executes some
/// clients' atomics and the processor others', every index breaks, while the same schedules with
/// all clients on one side harm none.
#[test]
fn no_index_stands_atomics_of_two_sides() {
    // A server is one process, on one side, and the only writer except for the pool.
    for index in subjects().iter().filter(|index| !index.has_server) {
        let finding = Settings { shrinks: false, ..two_sides(index) }.explore(&|_| {}).finding;
        let finding = finding.unwrap_or_else(|| panic!("{index:?}: not found"));
        let (mut plan, schedule) = parse_replay(&finding.replay_line()).unwrap();
        assert_eq!(plan.sides, Sides::Mixed, "{}", finding.replay_line());
        let mut fixtures = Fixtures::default();
        let again = fixtures.replay(&plan, &schedule).violation.expect("the replay line shows no violation");
        assert_eq!(again.kind, finding.violation.kind, "{}", finding.replay_line());
        plan.sides = Sides::One;
        assert_eq!(fixtures.replay(&plan, &schedule).violation, None, "{}", finding.replay_line());
    }
}

/// Settings with atomics of two sides, which show a violation in sources without errors.
fn two_sides(index: &'static Explored) -> Settings {
    let verbs = "split".parse().unwrap();
    Settings { runs: 6000, threads: 2, verbs, sides: Sides::Mixed, ..Settings::of(index) }
}

#[test]
fn a_violation_is_made_shorter_and_shows_again_by_its_line() {
    for name in ["quiver", "dart", "smart"] {
        let finding = two_sides(subject(name).unwrap()).explore(&|_| {}).finding;
        let finding = finding.unwrap_or_else(|| panic!("{name}: not found"));
        let before = finding.plan.clients.iter().map(Vec::len).sum::<usize>();
        let after = finding.small_plan.clients.iter().map(Vec::len).sum::<usize>();
        let (switches, at_first) = (finding.small_schedule.switches(), finding.schedule.switches());
        // A smaller plan is preferred, and may need another schedule; the same plan has at most as
        // many switches as before.
        let is_smaller = finding.small_plan != finding.plan;
        assert!(
            after <= before && (is_smaller || switches <= at_first.max(1)),
            "{name}: {before} operations to {after}, {at_first} switches to {switches}"
        );
        let (plan, schedule) = parse_replay(&finding.replay_line()).unwrap();
        let again = Fixtures::default().replay(&plan, &schedule).violation;
        let again = again.expect("the replay line shows no violation");
        assert_eq!(again.kind, finding.violation.kind, "{}", finding.replay_line());
    }
}

/// Every index keeps its guarantees; the tests below check the main one more closely.
#[test]
fn every_index_holds_what_it_promises() {
    for index in &subjects()[1..] {
        let calm = Settings { runs: 500, threads: 2, ..Settings::of(index) };
        let faults = index.promises.survives.iter().map(ToString::to_string).collect();
        let struck = Settings { seed: 2, faults, ..calm.clone() };
        assert_clean(calm.explore(&|_| {}).finding.as_ref());
        assert_clean(struck.explore(&|_| {}).finding.as_ref());
        for fault in index.promises.survives {
            // Not all indexes can hold keys of any length.
            let pair = index.scenario("pair").unwrap_or(&index.scenarios()[0]);
            let sweep = Sweep { scenarios: vec![pair], ..sweep(index, fault, &[], 3) };
            assert_clean(sweep.run(&|_| {}).finding.as_ref());
        }
    }
}

#[test]
fn nothing_is_found_as_it_stands() {
    let summary = settings(1, 2000).explore(&|_| {});
    assert_clean(summary.finding.as_ref());
    assert_eq!(summary.runs, 2000);
    let faults = Fault::NAMES.map(str::to_owned).into();
    let summary = Settings { faults, ..settings(2, 2000) }.explore(&|_| {});
    assert_clean(summary.finding.as_ref());
    assert!(Fault::NAMES.iter().all(|name| summary.faults.contains_key(name)), "{:?}", summary.faults);
}

#[test]
fn faults_at_every_point_harm_nothing() {
    for fault in ["kill", "cancel", "pause", "cut", "refuse"] {
        for (index, scenarios) in [
            (quiver(), ["pair", "split", "grow-page", "shrink-page"]),
            (dart(), ["pair", "split", "grow-n4", "shrink-n12"]),
        ] {
            let summary = sweep(index, fault, &scenarios, 3).run(&|_| {});
            assert_clean(summary.finding.as_ref());
            assert!(summary.faults[fault] > 30, "{index:?} {fault}: {:?}", summary.faults);
        }
    }
}

const DURABLE: [Medium; 2] = [Medium::Log, Medium::Flush];

/// If memory keeps acknowledged writes, a power failure is equivalent to the death of all clients,
/// which every index survives except those that acknowledge writes before they are in memory.
#[test]
fn every_index_that_survives_deaths_stands_power_failures_of_durable_memory() {
    for index in subjects().iter().filter(|index| index.promises.survives.contains(&"kill")) {
        for medium in DURABLE {
            assert!(index.survives(medium).contains(&"power".to_owned()));
            let faults = vec!["power".to_owned()];
            let settings = Settings { seed: 5, runs: 300, threads: 2, medium, faults, ..Settings::of(index) };
            let summary = settings.explore(&|_| {});
            assert_clean(summary.finding.as_ref());
            assert!(summary.faults["power"] > 50 && summary.taken_back > 0, "{index:?} {medium}");
        }
    }
}

#[test]
fn power_fails_at_every_point_with_every_choice_that_tells() {
    // Quiver's operations have fewer verbs than DART's.
    for (index, least) in [(quiver(), 50), (dart(), 1000)] {
        for medium in DURABLE {
            let summary = Sweep { medium, ..sweep(index, "power", &["plain"], 3) }.run(&|_| {});
            assert_clean(summary.finding.as_ref());
            let (failures, taken_back) = (summary.faults["power"], summary.taken_back);
            assert!(taken_back > least && failures > least, "{index:?} {medium}: {failures}, {taken_back}");
        }
    }
}

/// Memory nodes are lost for good while clients work, and are given up afterwards by processes that
/// may die. Nothing is gone but what was in a gap, and the pool is whole. `DARTER_LOSSES` sets the number
/// of runs of each index, and `DARTER_LOSSES_SEED` chooses others.
#[test]
fn lost_memory_nodes_take_only_what_was_on_them() {
    let set = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (runs, seed) = (set("DARTER_LOSSES", 600), set("DARTER_LOSSES_SEED", 4));
    for index in ["quiver", "quiver-skip", "quiver-uncached"] {
        let (index, faults) = (subject(index).unwrap(), vec!["lose".to_owned()]);
        let settings = Settings { seed, runs, threads: 2, faults, ..Settings::of(index) };
        let summary = settings.explore(&|_| {});
        assert_clean(summary.finding.as_ref());
        let (losses, deaths) = (summary.faults["lose"], summary.faults["kill"]);
        assert!(losses > 150 && deaths > 50, "{index:?}: {losses}, {deaths}");
        let Left { kept, gone, reverted: _ } = summary.left;
        eprintln!("{index:?}: {losses} losses, {deaths} deaths, {:?}", summary.left);
        assert!(kept > gone && gone > losses, "{index:?}: {kept} keys kept, {gone} gone");
    }
}

/// A node is lost at one verb after the other, and the process that gives it up dies at another place
/// each time.
#[test]
fn a_node_is_given_up_whatever_was_done_before() {
    let (mut left, mut losses) = (Left::default(), 0);
    for scenario in ["transfer-ranges", "ranges", "grow-page", "parts"] {
        for lost_at in 0..40 {
            let line = format!(
                "quiver/{scenario}/nodes=3/process=each/warm/lose={}@{}/kill=60@{}/tppp;i2,d1,tpp-;p0,i1,tgp-",
                1 + lost_at % 2,
                lost_at * 3,
                lost_at * 17
            );
            let (plan, _) = parse_replay(&line).unwrap();
            let outcome = Fixtures::default().replay(&plan, &Schedule::default());
            assert_eq!(outcome.violation, None, "{line}");
            left = Left { kept: left.kept + outcome.left.kept, gone: left.gone + outcome.left.gone, ..left };
            losses += u64::from(outcome.left != Left::default());
        }
    }
    assert!(left.kept > 0 && losses > 50, "{losses} losses, {left:?}");
}

#[test]
fn a_client_may_be_held_at_any_event() {
    for (index, scenarios) in [(quiver(), ["plain", "full-page"]), (dart(), ["plain", "full-segment"])] {
        let summary = sweep(index, "hold", &scenarios, 1).run(&|_| {});
        assert_clean(summary.finding.as_ref());
        assert!(summary.runs > 1000, "{index:?}: {} runs", summary.runs);
    }
}

#[test]
fn held_client_continues_when_no_other_can_move_and_resting_ones_after_it() {
    let (plan, _) = parse_replay("dart/plain/nodes=1/process=each/warm/hold=0@3/p0;g0,H,g0").unwrap();
    let outcome = Fixtures::default().replay(&plan, &Schedule::default());
    assert_eq!(outcome.violation, None);
    let told = |operation: &Operation| operation.returned.map(|(_, told)| told);
    let found: Vec<_> = outcome.history.iter().filter(|operation| operation.client == 1).map(told).collect();
    // The initial value, then the held client's.
    assert_eq!(found, [Some(Told::Found(Some(1))), Some(Told::Found(Some(1000)))]);
    assert!(outcome.events[0] > 3);
}

#[test]
fn a_process_that_comes_and_goes_leaves_nothing_that_a_sweep_does_not_find() {
    for line in ["j0;d0,M,M,i0,M", "j0,j1;j0,d1,j2", "M,M;j0,M;d0,j0"] {
        let line = format!("dart/plain/nodes=2/process=each/warm/{line}");
        let (plan, _) = parse_replay(&line).unwrap();
        let outcome = Fixtures::default().replay(&plan, &Schedule::default());
        assert_eq!(outcome.violation, None, "{line}");
        assert!(outcome.has_remains);
    }
}

/// If any client stops for ever at any verb, the others' operations end within a bound.
#[test]
fn no_client_waits_for_a_stopped_one() {
    for (index, scenarios) in [
        (quiver(), ["plain", "pair", "split", "grow-page", "full-page", "shrink-page"]),
        (dart(), ["plain", "pair", "split", "grow-n4", "grow-n8", "shrink-n16"]),
    ] {
        let summary = sweep(index, "stop", &scenarios, 4).run(&|_| {});
        assert_clean(summary.finding.as_ref());
        let (trips, verbs) = summary.longest_while_stopped;
        assert!((1..100).contains(&trips) && verbs < 1000, "{index:?}: {trips} round trips, {verbs} verbs");
    }
}

#[test]
fn small_cases_are_searched_to_their_end() {
    for (plan, tears) in [
        ("quiver/plain/nodes=1/process=each/warm/p1;p1", false),
        ("quiver/plain/nodes=1/process=each/warm/i1;i2", false),
        ("quiver/plain/nodes=1/process=each/warm/d0;g0", false),
        ("quiver/pair/nodes=1/process=each/warm/d0;p1", false),
        ("dart/plain/nodes=1/process=each/warm/p1;p1", true),
        ("dart/plain/nodes=1/process=each/warm/d0;p0", false),
        ("dart/plain/nodes=1/process=each/warm/i1;i1;g1", false),
        ("dart/grow-n4/nodes=1/process=each/warm/i0;g1", false),
    ] {
        let plan: Plan = plan.parse().unwrap();
        let Exhaustion { runs, complete, finding, .. } = exhaust(&plan, tears, 100_000, &|_| {});
        assert_clean(finding.as_ref());
        assert!(complete && runs > 1, "{plan}: {runs} runs");
    }
}

/// The exhaustive search finds an error that needs one context switch, in the order it enumerates.
#[test]
fn the_exhaustive_search_finds_a_lost_write() {
    let plan: Plan = "dart/pair/nodes=1/process=each/warm/verbs=split/sides=mixed/p1;p1".parse().unwrap();
    let finding = exhaust(&plan, true, 200_000, &|_| {}).finding.expect("not found");
    let (_, schedule) = parse_replay(&finding.replay_line()).unwrap();
    assert!(!schedule.0.is_empty());
}

#[test]
fn a_seed_means_the_same_run_for_ever() {
    let settings = Settings {
        faults: vec!["kill".into(), "cut".into()],
        scheduler: SchedulerKind::Random,
        ..settings(1, 300)
    };
    let one = settings.explore(&|_| {});
    let two = Settings { threads: 1, ..settings }.explore(&|_| {});
    assert_eq!((one.steps, one.verbs, one.torn), (two.steps, two.verbs, two.torn));
    assert_eq!(one.faults, two.faults);
}

/// Lines of runs that once failed, and the errors.
const FOUND: &[(&str, &str)] = &[
    (
        "xstore-inline/contest-few/nodes=1/process=each/warm/durability=log/power=0@6/u0#0x5.1.0.0:1d.0:2d.0:1",
        "a reader retried for ever on a record that a power failure had left torn",
    ),
    (
        "xstore-inline/unloaded/nodes=2/process=each/warm/refuse=0@0/B;B#",
        "a bulk load that another one had overtaken, on another node, reported that keys had moved",
    ),
    (
        "xstore-inline/unloaded/nodes=1/process=each/warm/cut=50@11/r0,u0,B#0x2.0:25d.0x22.0:38",
        "a server whose CAS had no reply no longer knew any leaves, and did not reply",
    ),
    (
        "dart/segment/nodes=2/process=each/warm/stop=0@2737/p0#",
        "a repair finished a segment's split and leaked the old segment",
    ),
    (
        "dart/chain/nodes=1/process=each/warm/cancel=0@8/d1,p2;i0,d0#1.0x32.1",
        "an insert next to a chain above an emptied node sealed the chain's node and looped for ever",
    ),
    (
        "smart/chain/nodes=1/process=one/warm/d0;d0,i0#0x132.1.0x61.1.0x12.1.0x5.1.0x8.1.0x15.1",
        "a cache remembered a sealed slot, and an insert swung it in a node that was gone",
    ),
    (
        "smart-in-place/chain/nodes=2/process=each/warm/u1;p0,d0;d1,i1#0x84.2.0x6.2",
        "a cache remembered a sealed slot, and a value's move swung it in a node that was gone",
    ),
    (
        "smart-in-place/plain/nodes=1/process=one/warm/i1,u1;u1;M#2.0x4.0:7d.2x2.0.2x3",
        "an update shared a refusal that was read before the update began and before the key was put",
    ),
    (
        "smart/chain/nodes=1/process=each/warm/refuse=0@2/d1;d1#0x76.1.0x7.1.0x119.1",
        "a delete without memory for handing work to others reported that it had changed nothing",
    ),
    (
        "smart-in-place/plain/nodes=1/process=each/warm/p0;;i0,r0#0.2.1.2:2d.0x4.1x3.0x2.1:2.0x4.1.0.0:7d.1",
        "a lock was free before the rest of the WRITE that freed it had executed",
    ),
    (
        "smart-in-place/row-40/nodes=1/process=one/warm/kill=0@18/z;p1;i0,i0#1x2.0x2.2.0x2.2.0x2.2.2:4d.0.1x2.2.0.2.0x4.1.0.2.0x2.1.0x2.2.0:11.2",
        "the final check took a value lost by a dead writer for an error, since it did not know of a writer",
    ),
    (
        "art/long/nodes=1/process=each/warm/cancel=0@10/d0,p1#",
        "an operation waited for a hold that its own client had abandoned",
    ),
    (
        "sherman/pair/nodes=1/process=one/warm/cancel=0@3/d1,i0;p1#0x5.1",
        "a client waited for an operation that another of its process had abandoned, which waited for it in the local queue",
    ),
    (
        "sherman-inline/root-full/nodes=1/process=one/warm/kill=0@47/p0,M,M,M,M,M,M,i0,r0,u1;p0,M,M,M,M,M,p0#\
         0x32.1x3.0x9.1.0x3.1.0x5.1x2.0x9.1.0x4.1",
        "the final check did not know whose write had lost a value",
    ),
    (
        "quiver-uncached/churn-split/nodes=3/process=00101/warm/lose=1@271/lose=2@193/kill=60@34/d1,g0,i0,p1,p1,d1,d0,g1,d0,M,d1,i1;d0,M,M;;;R,R,R#4.2.0:21d.1x2.0x2.1x2.2x4.3:27d.0.2.0:2d.0.1.0x3.2.1.0.1.2.1.2.1.1:4.2x2.0.2.0x2.1.0.2.1.0.1.2.1.0x2.1.2x3.2:36.0.1x2.0x2.1.0.2.0x2.1.2x2.1x2.0.2x2.0x2.1.0.2x3.1x2.0x2.2x2.0.2.0x2.2.0.1.0.2x2.1.0.1.0.1.0x2.2.0.2.0.2.1.0.2x2.1x2.0x4.2.0.1x4.0.1.2.0.1x3.0.2.0x4.2.0x2.0:15.2.1.2x3.0.1.2.1.0.1x2.2x2.1x3.0.1x2.2x2.1.0x2.2.0x2.1.0.1x2.0x2.2x2.1.2.0.1:2d.0.1x4.0.2.1.0x2.1.0.1.0.1x3.0.2.3.1.4.1.4.1.0x2.4.1.4.3x2.1x2.3.0.0:6.2.3.0x2.3x2.0:15d.3x2.1.4.0.1.0:3.4.2.3.4.1.3.0.3.1x4.2.1x2.0.2.1x2.0.3x2.0.3.1x2.2x2.0x2.2x2.0:3.2x2.0.2.0.1.2.1.0.2x4.0.2x2.1x2.0x4.1.2x2.0.2.1x3.2.1.2x3.0.2.0:2.3.2.1x2.2:2d.0.2x2.0.1x2.2.0.1x3.0.1x2.2:4.2.1.0.1x2.0.1.0x2.1:12.1.0x5.1x3.0x4.1.0x3.1.0.1.0x4.1.0.1x5.0.0:5.0.1x3.0.1x2.0x2.1.0x12.0:2d",
        "nodes that were lost together could not be given up after a death between two of them",
    ),
    ("dart/empty/nodes=1/process=one/warm/B;B#0x24.1", "a bulk load that came second leaked its root's node"),
    (
        "art-hashed/empty/nodes=1/process=each/warm/B;p0#0x9.1",
        "a bulk load that came second leaked its root's node",
    ),
    (
        "sherman/unloaded/nodes=1/process=001/warm/drop=1@2/d1;p0,p1;#0x5.1",
        "a waiter that was dropped with a lock just handed to it left it taken, since the client that gave it stayed idle",
    ),
    (
        "fg-plus/tall/nodes=1/process=each/warm/p1,d0;z;d0;i0#3.0.1.2.2:23d.3x3.1.0.3.1.2x2.3x2.2.0.3.3:25.0x4.1.3x3.1.0.2.1.2x2.3.0.1.0.3:1d.2:1.3.1x2.3.1.0x2.2.1.0.1.3.1.0.1.0x6.3.3:8d.0x3.2.3.2.0.3:8d.3.1:2.0.2.1.0x2.2.1x2.0x2.1.0.1:5.0.2x2.3.1.0x4.3.1x2.0x7.1x2.0x4.2.0x8.1.2x2.0x3.2.0x3.1:7d.1.0x2.2.1x2.0x2.2.0x2.1.0x2.1.0.1.2x2.0x6.2:4.1.2.1.2x2.0x4.1x2.0x3.1x2.2.0.1.0.2.0.1.2x3.1.0.1.2x2.0x3.1:7d.0x2.0:2d.1.0x4.2.0x2.1.0x3.1.0x3.1.0.2.0.2x2.0.2x4.0.1.0:9.1.2.1.2.1.0.1.0.2.0.1.2x3.1.0.1.0.1.0.2.0.1.0.2.1x2.0.1:3.2.0x5.2.1.0x2.2.0.2x3.0.1x2.0.1x3.2x4.0:62.2.1x2",
        "a scan returned keys twice if a leaf that it reached had absorbed the one before",
    ),
    (
        "dart/chain/nodes=2/process=001/warm/y;M,d0,j1;i2,M,j2#0x36.0:2.0x7.2.0:5.2.0.1.0x2.0:7.0.2.0x2.1:6d.0.2.0.1.2.0x5.1.0:3d.2.1.0x3.2.1.0.2.1.0x4.2.1.2.0x2.1.0x2.2.1.0x2.2.0x2.1.2.1.2.1.0.2.0x3.1.2.1.0x4.2.1.0x2.1:4d.1.0x4.1.2.1.2.0.1.2.0x2.1.2.1.0x2.2.0x4.1.2.0.1.0.1.2x2.0x3.1.0.2.1.0.2:4d.0.1.2:1.0x4.1.0.2.0x3.1.0.0:2d.2.0.1.0.2.0.1.2:3d.1",
        "a process that had just joined was shut out, by a torn READ of its line that named the previous holder",
    ),
    (
        "dart/empty/nodes=2/process=01230123/warm/cut=0@51/B,U;d0;U;e0,U;M,M,M,M,M,M,M,M,M,M,M,M,M,M,M,M,M;M,M,M,M,M,M,M,M,M,M,M,M;M,M,M,M,M,M,M,M,M;M,M,M,M,M,M,M,M,M,M,M#5.2x2.6.1.0.4.3.4.2.1.7.4:8d.5:3d.5.4x2.7.2.1.2.5x2.3.4.7.6.5.4.6.7x3.5.6.3.0.7.4.5.3.5.3.6.3.5.0.2.1.0.3.7.3x2.1.1:1d.1.4.1.4.3.2.5.6.5x2.3.6:3d.6.2:2.5.4.2:2.4x2.6x2.5:1d.3:19d.1:24.6.2:22.4.6.3:2.5.6.0.1.4.1:1.6.3.2.3x2.6.1x2.4.5.2.4.3.1:2.3.6.4.5x2.2.0.6.5.3.6.3.4.1.5.2:25d.4.3.4.1.4.0.1.5.0.1:20.0x2.1.4.2.0x2.1.0:10.3.1.5:22d.0.3.0.4.1.4.1:11.5.1.5.0x3.3x2.2.1.4.1.4.2.0.5.1x2.4.0.1x2.5x2.2.5.4.1.5.3.4.1.0x4.1.0.5.0.1.3x2.0x2.5.1.5.5:1d.0.5.2.1.5x2.2.0.5.4.3.4.1.5.2.3.1.5:25.0.1.5.2.5x2.0.3x2.0:3d.0.3:31d.4.1.4.2.4:3d.1.0.1.4.3x2.1.5.0.3.0.3.1.5.1x2.3.1x2.3.1.0.4.0.2.0.4x2.0.3x2.1x2.0.3.2.3.1.2x2.3.1.2.0x2.1.2.1.2.1.2.0.1.0.2.0x5.0:15.0.1.0.2.1.0.2.0x2.1.0.2:2.0.1.2",
        "a bulk load that lost its connection read nodes that it had not written, to free the objects they name",
    ),
    (
        "quiver-uncached/empty/nodes=1/process=each/warm/cut=0@15/tgp#",
        "a commit that lost its connection freed an intent that a new page names",
    ),
];

#[test]
fn errors_found_before_stay_fixed() {
    let mut fixtures = Fixtures::default();
    for (line, what) in FOUND {
        let (plan, schedule) = parse_replay(line).unwrap();
        let violation = fixtures.replay(&plan, &schedule).violation;
        assert_eq!(violation, None, "{what}\n{line}");
    }
}

#[test]
fn lines_without_a_replay_are_refused() {
    for line in ["", "#", "dart/plain/p0#9", "dart/plain/p0#0x3.y", "nobody/plain/p0#", "dart/plain/p7#"] {
        let parsed = parse_replay(line);
        if let Ok((plan, schedule)) = parsed {
            // A decision that is not on offer counts as zero: such a line runs, with another
            // meaning.
            assert_eq!(line, "dart/plain/p0#9");
            assert_eq!(Fixtures::default().replay(&plan, &schedule).violation, None);
        }
    }
    assert!("0x99999999999".parse::<Schedule>().is_err());
}
