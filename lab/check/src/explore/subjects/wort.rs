//! WORT, WOART and ART+CoW under exploration: one lock for all writers, which is taken over after
//! its holder's lease has expired.

use super::super::fault::Fault;
use super::super::scenario::{self, Scenario};
use super::super::subject::{Promises, Subject};
use darter_baselines::{Design, Wort, WortOptions, wort_situations};
use darter_index::checker::Situation;
use darter_pool::AllocKind;
use darter_sim::Sim;

/// The subject: the tree of this number in [`DESIGNS`].
pub(super) struct OfWort<const DESIGN: usize>;

const DESIGNS: [Design; 3] = [Design::Wort, Design::Woart, Design::ArtCow];
/// Names of the adaptive types, and their capacities in children.
const ADAPTIVE: [(&str, usize); 3] = [("n4", 4), ("n16", 16), ("n48", 48)];

impl<const DESIGN: usize> Subject for OfWort<DESIGN> {
    type Index = Wort<Sim>;

    const NAME: &'static str = DESIGNS[DESIGN].name();

    const PROMISES: Promises = Promises {
        survives: &Fault::BESIDE_LOCKS,
        trips_while_stopped: None,
        may_lose_values: false,
        exact_uses: true,
        exact_memory: true,
    };

    const WARM: &'static [(u64, AllocKind)] = &[
        (144, AllocKind::Inner),
        (56, AllocKind::Inner),
        (168, AllocKind::Inner),
        (48, AllocKind::Leaf),
        (80, AllocKind::Leaf),
        (128, AllocKind::Leaf),
    ];

    fn options() -> WortOptions {
        WortOptions::of(DESIGNS[DESIGN])
    }

    fn scenarios() -> Vec<Scenario> {
        let mut all = scenario::common();
        all.push(scenario::split().churning());
        all.push(scenario::pair().churning());
        all.push(scenario::contest());
        all.push(scenario::above("few", 3));
        all.push(scenario::above("few", 3).churning());
        if DESIGNS[DESIGN] == Design::Wort {
            // By nodes of 16, a scan takes more round trips than fit in a lease that is not renewed
            // during the scan.
            all.retain(|scenario| scenario.name != "row-200");
        } else {
            all.extend(ADAPTIVE.iter().map(|&(ty, children)| scenario::grow(ty, children)));
            all.extend(
                ADAPTIVE.iter().map(|&(ty, children)| scenario::shrink(&format!("to-{ty}"), children)),
            );
            all.extend(ADAPTIVE.iter().map(|&(ty, children)| scenario::full(ty, children)));
            all.push(scenario::full("n4", 4).churning());
            all.push(scenario::grow("into-n16", 9));
        }
        all
    }

    fn situations() -> Vec<Situation> {
        wort_situations(DESIGNS[DESIGN])
    }
}
