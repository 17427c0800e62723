//! SMART under exploration: without locks nobody waits and nothing is lost; with leaves in place writers of one key wait for each
//! other, and a value whose writer died amid is lost.

use super::super::plan::Fault;
use super::super::scenario::{self, Scenario};
use super::super::subject::{Holes, Promises, Subject};
use darter_fabric::Sim;
use darter_index::{Smart, SmartOptions};
use darter_pool::AllocKind;

/// The subject, with leaves out of place or in place.
pub(super) struct OfSmart<const IN_PLACE: bool>;

/// Names of the types, and how many children they hold.
const TYPES: [(&str, usize); 4] = [("node-4", 4), ("node-8", 8), ("node-16", 16), ("node-32", 32)];

impl<const IN_PLACE: bool> Subject for OfSmart<IN_PLACE> {
    type Index = Smart<Sim>;

    const NAME: &'static str = if IN_PLACE { "smart-in-place" } else { "smart" };

    const PROMISES: Promises = Promises {
        survives: &Fault::NAMES,
        trips_beside_stopped: if IN_PLACE { None } else { Some(1000) },
        may_lose_values: IN_PLACE,
    };

    const WARM: &'static [(u64, AllocKind)] =
        &[(2072, AllocKind::Inner), (48, AllocKind::Leaf), (80, AllocKind::Leaf), (128, AllocKind::Leaf)];

    fn options(_open: Holes) -> SmartOptions {
        // Whoever waits in this process for a lead that has stopped would wait for as long.
        SmartOptions {
            in_place: IN_PLACE,
            read_delegation: IN_PLACE,
            write_combining: IN_PLACE,
            ..SmartOptions::default()
        }
    }

    fn scenarios() -> Vec<Scenario> {
        let mut all = scenario::common();
        all.extend(TYPES.iter().map(|&(ty, children)| scenario::grow(ty, children)));
        all
    }
}
