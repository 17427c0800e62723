//! The scenarios by name. Keys 0 and 1 have edge 0, key 2 has edge 1, and key 3 edge 2, unless said
//! otherwise. The number after a key is a value.

use crate::scenario::Scenario;
use crate::state::Op::{Delete, Get, Insert, Put, Rebuild};

/// Scenarios that are explored in seconds.
pub(crate) fn small() -> Vec<Scenario> {
    let mut all = changes();
    all.extend(copies());
    all.extend(splits());
    all.extend(rebuilds());
    all.extend(old_hints());
    all.extend(collisions());
    all
}

/// A page of the whole node, with an empty delta.
fn page(name: &'static str) -> Scenario {
    Scenario::new(name).page(0, 2, &[(0, 1), (2, 2)])
}

/// The same with a full delta.
fn full(name: &'static str) -> Scenario {
    page(name).taken(2)
}

/// The same page, which a plan cuts in two parts.
fn parts(name: &'static str) -> Scenario {
    full(name).room(1)
}

/// Operations that meet in one page.
fn changes() -> Vec<Scenario> {
    vec![
        page("one new key, two inserters").client(&[Insert(1, 3), Get(1)]).client(&[Insert(1, 4), Delete(1)]),
        page("two new keys, two inserters").client(&[Put(1, 3), Put(3, 4)]).client(&[Put(3, 5), Get(1)]),
        page("three inserters of one key")
            .client(&[Insert(1, 3)])
            .client(&[Insert(1, 4), Delete(1)])
            .client(&[Put(1, 5)]),
        page("insert, delete, insert")
            .client(&[Put(1, 3), Delete(1), Put(3, 5)])
            .client(&[Put(1, 4), Get(1)]),
        page("a record updated by hints")
            .knowing(&[Put(0, 3), Get(0)])
            .knowing(&[Put(0, 4), Delete(0)])
            .knowing(&[Get(0)]),
        page("a record deleted and put again")
            .knowing(&[Delete(0), Insert(0, 3)])
            .knowing(&[Insert(0, 4), Get(0)]),
        page("a new key that hints find in the delta")
            .knowing(&[Put(1, 3), Get(1)])
            .knowing(&[Get(1), Delete(1)]),
        page("a key deleted beside two inserters of another")
            .later(0, 1, 3)
            .client(&[Delete(1), Insert(3, 4)])
            .client(&[Insert(3, 5)]),
    ]
}

/// Pages that are copied whole, removed, or added.
fn copies() -> Vec<Scenario> {
    vec![
        full("a copy with an updater").knowing(&[Put(0, 4), Get(0)]).client(&[Put(1, 3), Get(0)]),
        full("a copy with a reader").knowing(&[Get(0), Get(0)]).client(&[Put(1, 3), Put(0, 4)]),
        Scenario::new("a page without pairs")
            .room(1)
            .page(0, 0, &[(0, 1)])
            .page(1, 2, &[(2, 2)])
            .taken(2)
            .knowing(&[Delete(2), Put(3, 4)])
            .client(&[Put(3, 5), Get(2)]),
        Scenario::new("a range without a page")
            .page(0, 0, &[(0, 1)])
            .none(1, 2)
            .client(&[Put(2, 3), Get(3)])
            .client(&[Put(3, 4), Insert(2, 5)]),
    ]
}

/// Pages that are cut into parts.
fn splits() -> Vec<Scenario> {
    vec![
        parts("a split with an updater").knowing(&[Put(2, 4), Put(2, 5)]).client(&[Put(1, 3)]),
        parts("a split with a reader").knowing(&[Get(2), Get(2)]).client(&[Put(1, 3), Put(2, 4)]),
        parts("a split with a reader without hints")
            .client(&[Get(2), Get(2)])
            .client(&[Put(1, 3), Put(2, 4)]),
        parts("two that split").knowing(&[Put(1, 3), Get(3)]).knowing(&[Put(3, 4), Get(1)]),
        parts("two that split, and an updater")
            .client(&[Put(1, 3)])
            .client(&[Put(3, 4)])
            .knowing(&[Put(2, 5)]),
        parts("two that split, and a reader").client(&[Put(1, 3)]).client(&[Put(2, 4)]).client(&[Get(2)]),
        parts("two that split, and a deleter")
            .client(&[Put(1, 3)])
            .client(&[Put(3, 4)])
            .knowing(&[Delete(2)]),
        Scenario::new("three parts")
            .edges([0, 1, 1, 2])
            .room(1)
            .page(0, 2, &[(0, 1), (3, 2)])
            .taken(1)
            .later(1, 1, 3)
            .client(&[Put(2, 4), Get(3)])
            .client(&[Put(3, 5), Put(1, 6)]),
    ]
}

/// Rebuilds while the delta has room.
fn rebuilds() -> Vec<Scenario> {
    vec![
        page("a rebuild beside inserters")
            .knowing(&[Put(1, 3), Get(3)])
            .client(&[Insert(3, 4), Insert(1, 5)])
            .client(&[Rebuild(0)]),
        page("a rebuild with a deleter")
            .room(1)
            .knowing(&[Delete(0), Get(0)])
            .client(&[Insert(0, 4), Put(1, 5)])
            .client(&[Rebuild(0)]),
        page("a rebuild with an updater")
            .room(1)
            .knowing(&[Put(2, 3), Put(2, 4)])
            .client(&[Get(2), Get(2)])
            .client(&[Rebuild(0)]),
        page("a page that is rebuilt twice under a reader")
            .room(1)
            .later(0, 1, 3)
            .client(&[Get(2)])
            .client(&[Rebuild(0), Rebuild(0)]),
        page("a crowded edge")
            .room(1)
            .later(0, 1, 3)
            .client(&[Delete(2), Rebuild(2)])
            .client(&[Put(3, 4), Get(2)])
            .client(&[Rebuild(0)]),
    ]
}

/// Hints that outlive their page, whose frame is reused.
fn old_hints() -> Vec<Scenario> {
    let old = |name| Scenario::new(name).one_delta().page(0, 2, &[(0, 1)]);
    let again = |scenario: Scenario| scenario.rebuilt(&[(0, 1)]).taken(1);
    vec![
        again(old("a reader with an old hint").knowing(&[Get(0)]))
            .client(&[Put(1, 5)])
            .client(&[Put(1, 6), Put(0, 7)]),
        again(old("an updater with an old hint").knowing(&[Put(0, 7)]))
            .client(&[Put(1, 5)])
            .client(&[Put(1, 6), Get(0)]),
        again(old("a deleter with an old hint").knowing(&[Delete(0)]))
            .client(&[Put(1, 5)])
            .client(&[Put(1, 6), Get(0)]),
        again(old("an old hint to a delta").knowing(&[Insert(1, 3), Get(1)])).client(&[Put(1, 5), Delete(1)]),
        old("old hints and an updated record")
            .updated(0, 0, 2)
            .knowing(&[Get(0), Put(0, 7)])
            .rebuilt(&[(0, 2)])
            .taken(1)
            .client(&[Put(1, 5), Put(0, 6)]),
        old("an old hint to a record that is another key's now")
            .knowing(&[Get(0)])
            .rebuilt(&[(1, 2)])
            .taken(1)
            .client(&[Put(3, 5), Put(1, 6)]),
        old("an old hint to a key that came later").taken(1).knowing(&[Get(1)]).client(&[Put(1, 3)]),
        old("an old hint to a key that is static now")
            .knowing(&[Get(1)])
            .rebuilt(&[(2, 2)])
            .later(0, 1, 3)
            .client(&[Rebuild(0)]),
    ]
}

/// Blind updates that hit another key's record, and wrong maps.
fn collisions() -> Vec<Scenario> {
    let page = |name| Scenario::new(name).one_delta().collision(0, 1).page(0, 2, &[(0, 1)]);
    let two = |name| Scenario::new(name).one_delta().page(0, 2, &[(0, 1), (1, 2)]);
    vec![
        page("a wrong leaf beside readers")
            .knowing(&[Put(1, 3)])
            .knowing(&[Get(0), Get(0)])
            .knowing(&[Get(1)]),
        page("a wrong leaf with a reader without hints").knowing(&[Put(1, 3)]).client(&[Get(0), Get(1)]),
        page("a wrong leaf with an updater").knowing(&[Put(1, 3)]).knowing(&[Put(0, 4), Get(0)]),
        page("a wrong leaf with a deleter").knowing(&[Put(1, 3)]).knowing(&[Delete(0), Insert(0, 4)]),
        page("a wrong leaf in a rebuild").taken(1).knowing(&[Put(1, 3), Get(0)]).client(&[Put(3, 4), Get(0)]),
        page("two wrong leaves").knowing(&[Put(1, 3)]).knowing(&[Put(1, 4)]).knowing(&[Put(0, 5)]),
        two("a wrong map").knowing(&[Get(1), Put(1, 3)]).misled(1, 0).knowing(&[Delete(1)]).misled(1, 0),
        two("a wrong map and equal hashes")
            .collision(0, 1)
            .knowing(&[Put(1, 3), Get(1)])
            .misled(1, 0)
            .knowing(&[Put(0, 4), Get(0)]),
    ]
}

/// Scenarios of three clients with two operations each, which take minutes.
pub(crate) fn large() -> Vec<Scenario> {
    let small = |name| Scenario::new(name).one_delta().page(0, 2, &[(0, 1), (2, 2)]);
    vec![
        small("a split, three clients")
            .taken(1)
            .room(1)
            .knowing(&[Put(2, 4), Get(2)])
            .client(&[Put(1, 3), Get(2)])
            .client(&[Put(3, 5), Delete(2)]),
        small("old hints, three clients")
            .knowing(&[Get(0), Put(0, 7)])
            .rebuilt(&[(0, 1), (2, 2)])
            .taken(1)
            .client(&[Put(1, 5), Delete(0)])
            .client(&[Rebuild(0), Get(0)]),
        small("a wrong leaf, three clients")
            .collision(0, 1)
            .taken(1)
            .knowing(&[Put(1, 3), Get(1)])
            .knowing(&[Put(0, 4), Get(0)])
            .client(&[Rebuild(0), Get(0)]),
        small("a crowded edge, three clients")
            .room(1)
            .later(0, 1, 3)
            .knowing(&[Put(1, 4), Delete(0)])
            .client(&[Insert(3, 5), Get(1)])
            .client(&[Rebuild(0), Rebuild(2)]),
    ]
}
