//! Scenarios by the thousand: every choice of short programs, from a few starts.

use crate::memory::KEYS;
use crate::scenario::Scenario;
use crate::state::Op;

/// What the clients of a family begin with.
pub(crate) fn starts() -> Vec<Scenario> {
    let page = |name| Scenario::new(name).page(0, 2, &[(0, 1), (2, 2)]);
    vec![
        page("an empty delta"),
        page("a full delta").taken(2),
        page("a full delta, and two parts").room(1).taken(2),
        page("a crowded edge").room(1).later(0, 1, 3).taken_at(1),
        Scenario::new("no page in a range").one_delta().page(0, 0, &[(0, 1)]).none(1, 2),
        Scenario::new("a collision").one_delta().collision(0, 1).page(0, 2, &[(0, 1), (2, 2)]),
        Scenario::new("a collision in a full page").one_delta().collision(0, 1).page(0, 2, &[(0, 1)]).taken(1),
    ]
}

/// Every operation, with a value of its own for each place in the programs.
pub(crate) fn operations(place: u8) -> Vec<Op> {
    let value = 4 + place;
    let mut all = Vec::new();
    for key in 0..KEYS as u8 {
        all.extend([Op::Get(key), Op::Put(key, value), Op::Insert(key, value), Op::Delete(key)]);
    }
    all.extend([Op::Rebuild(0), Op::Rebuild(3)]);
    all
}

/// Two clients, of two operations and of one. The first remembers the page, or its frame's former
/// life if `stale`.
pub(crate) fn pairs(start: &Scenario) -> impl Iterator<Item = Scenario> + '_ {
    operations(0).into_iter().flat_map(move |first| {
        operations(1).into_iter().flat_map(move |second| {
            operations(2).into_iter().map(move |other| start.clone().knowing(&[first, second]).client(&[other]))
        })
    })
}

/// Three clients of one operation each. The first two remember the page.
pub(crate) fn triples(start: &Scenario) -> impl Iterator<Item = Scenario> + '_ {
    operations(0).into_iter().flat_map(move |first| {
        operations(1).into_iter().flat_map(move |second| {
            let both = start.clone().knowing(&[first]).knowing(&[second]);
            operations(2).into_iter().map(move |third| both.clone().client(&[third]))
        })
    })
}
