//! SMART under exploration: without locks nobody waits and nothing is lost; with leaves in place writers of one key wait for each
//! other, and a value whose writer died amid is lost.

use super::super::fault::Fault;
use super::super::op::Op;
use super::super::scenario::{self, Scenario};
use super::super::subject::{Hole, Holes, Promises, Subject};
use darter_baselines::{Smart, SmartHole, SmartHoles, SmartOptions};
use darter_fabric::Sim;
use darter_pool::AllocKind;

/// The subject, with leaves out of place or in place.
pub(super) struct OfSmart<const IN_PLACE: bool>;

/// Names of the types, and how many children they hold.
const TYPES: [(&str, usize); 4] = [("node-4", 4), ("node-8", 8), ("node-16", 16), ("node-32", 32)];

/// A key that comes and goes, with so much upkeep that its leaf's memory is used again while others remember the leaf.
fn forgetting() -> Scenario {
    const OPS: &[Op] = &[
        Op::Get(0),
        Op::Get(0),
        Op::Delete(0),
        Op::Insert(0),
        Op::Insert(0),
        Op::Maintain,
        Op::Maintain,
        Op::Maintain,
        Op::Maintain,
    ];
    scenario::full(TYPES[0].0, TYPES[0].1).churning().doing("forgetting", OPS)
}

const UNSEEN_SLOTS: Hole = Hole::published(
    "unseen-slots",
    "a put follows a slot beyond its header's type; what is acknowledged there is not found before that is raised, or ever",
    4000,
)
.with_faults(&["kill"])
.in_scenarios(&["grow-node-4"]);

const LOCKS_OF_THE_DEAD: Hole = Hole::published(
    "locks-of-the-dead",
    "a leaf's lock is a bit without a lease: who dies holding it leaves it taken for ever",
    1000,
)
.with_faults(&["kill"])
.in_scenarios(&["plain"])
.swept();

const LOCK_IN_WRITE: Hole = Hole::published(
    "lock-in-write",
    "a lock is the last word of the WRITE that it protects, and words land in any order",
    40000,
)
.in_scenarios(&["pair"]);

impl<const IN_PLACE: bool> Subject for OfSmart<IN_PLACE> {
    type Index = Smart<Sim>;

    const NAME: &'static str = if IN_PLACE { "smart-in-place" } else { "smart" };

    const PROMISES: Promises = Promises {
        survives: &Fault::BESIDE_LOCKS,
        trips_beside_stopped: if IN_PLACE { None } else { Some(1000) },
        may_lose_values: IN_PLACE,
        exact_memory: false,
    };

    /// In the order of [`SmartHole::ALL`].
    const HOLES: &'static [Hole] =
        if IN_PLACE { &[UNSEEN_SLOTS, LOCKS_OF_THE_DEAD, LOCK_IN_WRITE] } else { &[UNSEEN_SLOTS] };

    const WARM: &'static [(u64, AllocKind)] =
        &[(2072, AllocKind::Inner), (48, AllocKind::Leaf), (80, AllocKind::Leaf), (128, AllocKind::Leaf)];

    fn options(open: Holes) -> SmartOptions {
        let open = SmartHole::ALL.into_iter().enumerate().filter(|&(at, _)| open.has(at));
        let holes = open.fold(SmartHoles::default(), |holes, (_, hole)| holes.with(hole));
        // Whoever waits in this process for a lead that has stopped would wait for as long.
        SmartOptions {
            in_place: IN_PLACE,
            read_delegation: IN_PLACE,
            write_combining: IN_PLACE,
            // At once, so that memory is used again within a run.
            quarantine_bytes: Some(1),
            holes,
            ..SmartOptions::default()
        }
    }

    fn scenarios() -> Vec<Scenario> {
        let mut all = scenario::common();
        all.extend(TYPES.iter().map(|&(ty, children)| scenario::grow(ty, children)));
        let (ty, children) = TYPES[0];
        all.push(scenario::root(ty, children));
        all.push(scenario::full(ty, children));
        all.push(scenario::above(ty, children));
        all.push(scenario::contest());
        all.push(forgetting());
        all.push(scenario::pair().churning());
        all.push(scenario::split().churning());
        all.push(scenario::plain().churning());
        all
    }
}
