//! SMART under exploration: without locks no client waits and no value is lost; with leaves in
//! place writers of one key wait for each other, and a value is lost if its writer dies during the
//! write.

use super::super::fault::Fault;
use super::super::op::Op;
use super::super::scenario::{self, Scenario};
use super::super::subject::{Promises, Subject};
use darter_baselines::{Smart, SmartOptions};
use darter_pool::AllocKind;
use darter_sim::Sim;

/// The subject, with leaves out of place or in place.
pub(super) struct OfSmart<const IN_PLACE: bool>;

/// Names of the types, and their capacities in children.
const TYPES: [(&str, usize); 4] = [("node-4", 4), ("node-8", 8), ("node-16", 16), ("node-32", 32)];

/// A key that comes and goes, with enough upkeep that its leaf's memory is reused while others
/// remember the leaf.
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

impl<const IN_PLACE: bool> Subject for OfSmart<IN_PLACE> {
    type Index = Smart<Sim>;

    const NAME: &'static str = if IN_PLACE { "smart-in-place" } else { "smart" };

    const PROMISES: Promises = Promises {
        survives: &Fault::BESIDE_LOCKS,
        trips_while_stopped: if IN_PLACE { None } else { Some(1000) },
        may_lose_values: IN_PLACE,
        exact_uses: false,
        exact_memory: false,
    };

    const WARM: &'static [(u64, AllocKind)] =
        &[(2072, AllocKind::Inner), (48, AllocKind::Leaf), (80, AllocKind::Leaf), (128, AllocKind::Leaf)];

    fn options() -> SmartOptions {
        // A client that waits in this process for a stopped lead would wait for as long.
        SmartOptions {
            in_place: IN_PLACE,
            read_delegation: IN_PLACE,
            write_combining: IN_PLACE,
            // At once, so that memory is reused within a run.
            quarantine_bytes: Some(1),
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
