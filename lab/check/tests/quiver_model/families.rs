//! Thousands of generated scenarios: every choice of short programs, from a few starts.

use crate::scenario::Scenario;
use crate::state::Op::{self, Delete, Get, Insert, Put, Rebuild};

/// The state in which the clients of a family begin.
pub(crate) struct Start {
    /// The scenario at the time when the clients with hints took them.
    known: Scenario,
    /// The changes between then and the clients' beginning.
    since: fn(Scenario) -> Scenario,
}

/// All starts.
pub(crate) fn starts() -> Vec<Start> {
    let page = |name| Scenario::new(name).page(0, 2, &[(0, 1), (2, 2)]);
    let small = |name| Scenario::new(name).one_delta().page(0, 2, &[(0, 1), (2, 2)]);
    let now = |known| Start { known, since: |scenario| scenario };
    vec![
        now(page("programs in a page with an empty delta")),
        now(page("programs in a full page").taken(2)),
        now(page("programs in a full page of two parts").room(1).taken(2)),
        now(page("programs in a page with a crowded edge").room(1).later(0, 1, 3)),
        now(Scenario::new("programs beside NONE").one_delta().none(1, 2).page(0, 0, &[(0, 1)])),
        now(small("programs with a collision").collision(0, 1)),
        now(small("programs with a collision in a full page").collision(0, 1).taken(1)),
        Start {
            known: small("programs with old hints"),
            since: |scenario| scenario.rebuilt(&[(0, 1), (2, 2)]).taken(1),
        },
        Start {
            known: small("programs with old hints of other ranks"),
            since: |scenario| scenario.rebuilt(&[(2, 2)]).later(0, 1, 3),
        },
    ]
}

/// The operations of programs, with a distinct value for each place.
fn operations(place: u8) -> Vec<Op> {
    let value = 4 + place;
    let mut all = vec![Insert(1, value), Rebuild(0)];
    all.extend((0..3).flat_map(|key| [Get(key), Put(key, value), Delete(key)]));
    all
}

impl Start {
    pub(crate) fn name(&self) -> &'static str {
        self.known.name
    }

    /// Two clients, with programs of two operations and of one. The first has hints.
    pub(crate) fn pairs(&self) -> Vec<Scenario> {
        let mut all = Vec::new();
        for first in operations(0) {
            for second in operations(1) {
                let known = (self.since)(self.known.clone().knowing(&[first, second]));
                all.extend(operations(2).into_iter().map(|other| known.clone().client(&[other])));
            }
        }
        all
    }

    /// Two clients, with programs of two operations each. Both have hints.
    pub(crate) fn fours(&self) -> Vec<Scenario> {
        let mut all = Vec::new();
        for first in operations(0) {
            for second in operations(1) {
                let known = self.known.clone().knowing(&[first, second]);
                for third in operations(2) {
                    let more = |fourth| (self.since)(known.clone().knowing(&[third, fourth]));
                    all.extend(operations(3).into_iter().map(more));
                }
            }
        }
        all
    }

    /// Three clients of one operation each. The first two have hints.
    pub(crate) fn triples(&self) -> Vec<Scenario> {
        let mut all = Vec::new();
        for first in operations(0) {
            for second in operations(1) {
                let known = (self.since)(self.known.clone().knowing(&[first]).knowing(&[second]));
                all.extend(operations(2).into_iter().map(|third| known.clone().client(&[third])));
            }
        }
        all
    }
}
