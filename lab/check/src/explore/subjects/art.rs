//! ART under exploration: writers lock, so they wait until the lease of a lock's holder expires,
//! and then take the lock over.

use super::super::fault::Fault;
use super::super::scenario::{self, Scenario};
use super::super::subject::{Promises, Subject};
use darter_baselines::{Art, ArtOptions};
use darter_pool::AllocKind;
use darter_sim::Sim;

/// The subject, in the published layout or the hashed one.
pub(super) struct OfArt<const HASHED: bool>;

/// Few enough that nodes share locks.
const LOCK_WORDS: u32 = 4;
/// Names of the types, and their capacities in children.
const PUBLISHED: [(&str, usize); 3] = [("n4", 4), ("n16", 16), ("n48", 48)];
const HASHED: [(&str, usize); 6] =
    [("h4", 4), ("h8", 8), ("h16", 16), ("h32", 30), ("h64", 60), ("h128", 120)];

impl<const HASHED_LAYOUT: bool> Subject for OfArt<HASHED_LAYOUT> {
    type Index = Art<Sim>;

    const NAME: &'static str = if HASHED_LAYOUT { "art-hashed" } else { "art" };

    const PROMISES: Promises = Promises {
        survives: &Fault::BESIDE_LOCKS,
        trips_while_stopped: None,
        may_lose_values: false,
        exact_uses: true,
        exact_memory: true,
    };

    const WARM: &'static [(u64, AllocKind)] = &[
        (56, AllocKind::Inner),
        (160, AllocKind::Inner),
        (48, AllocKind::Leaf),
        (80, AllocKind::Leaf),
        (128, AllocKind::Leaf),
    ];

    fn options() -> ArtOptions {
        ArtOptions { hashed: HASHED_LAYOUT, lock_words: LOCK_WORDS, ..ArtOptions::default() }
    }

    fn scenarios() -> Vec<Scenario> {
        let types: &[_] = if HASHED_LAYOUT { &HASHED } else { &PUBLISHED };
        let mut all = scenario::common();
        all.extend(types.iter().map(|&(ty, children)| scenario::grow(ty, children)));
        all.extend(types.iter().map(|&(ty, children)| scenario::shrink(&format!("to-{ty}"), children)));
        let (ty, children) = types[0];
        all.push(scenario::root(ty, children));
        all.push(scenario::root(ty, children).churning());
        all.extend(types.iter().take(3).map(|&(ty, children)| scenario::full(ty, children)));
        all.extend(types.iter().take(2).map(|&(ty, children)| scenario::above(ty, children)));
        all.push(scenario::full(ty, children).churning());
        all.push(scenario::grow(&format!("into-{ty}"), children - 1));
        all.push(scenario::contest());
        all.push(scenario::split().churning());
        all.push(scenario::pair().churning());
        all
    }
}
