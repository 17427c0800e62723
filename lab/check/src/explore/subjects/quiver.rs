//! Quiver under exploration: there are no locks, so no client waits for another, and no value is
//! lost. Pages are small enough for a few keys to fill, part and empty them.

use super::super::fault::Fault;
use super::super::fixture::open_new;
use super::super::op::Op;
use super::super::roles::{Role, Roles};
use super::super::scenario::{self, Scenario};
use super::super::subject::{Promises, Subject};
use darter_fabric::block_on;
use darter_index::checker::Situation;
use darter_index::{
    Condition, Decision, IndexError, OrderedIndex, PutOutcome, Quiver, QuiverOptions, quiver_situations,
    quiver_twins,
};
use darter_pool::{AllocKind, Client};
use darter_sim::Sim;
use std::ops::RangeInclusive;

/// The subject: with the processes' caches, with the skip table, or both. With neither, nothing
/// leads to memory that the pin does not protect, so every use of such memory is detected.
pub(super) struct OfQuiver<const REMEMBERS: bool, const SKIPS: bool>;

/// Maximum number of records of a page.
const RECORDS: u32 = 3;
/// Delta slots of a page.
const DELTA: u32 = 2;

/// Prefix lists, in nibbles, that changes of the skip table cycle through: each covers nodes of the
/// scenarios that another does not.
const LISTS: [&[u8]; 3] = [&[1, 4, 8, 10, 11], &[3, 9, 22], &[2, 12, 23]];

impl<const REMEMBERS: bool, const SKIPS: bool> Subject for OfQuiver<REMEMBERS, SKIPS> {
    type Index = Quiver<Sim>;

    const NAME: &'static str = match (REMEMBERS, SKIPS) {
        (true, _) => "quiver",
        (false, true) => "quiver-skip",
        (false, false) => "quiver-uncached",
    };

    const PROMISES: Promises = Promises {
        survives: &Fault::NAMES,
        trips_while_stopped: Some(1000),
        may_lose_values: false,
        exact_uses: !REMEMBERS && !SKIPS,
        exact_memory: true,
    };

    const WARM: &'static [(u64, AllocKind)] =
        &[(152, AllocKind::Inner), (552, AllocKind::Inner), (48, AllocKind::Leaf), (80, AllocKind::Leaf)];

    fn options() -> QuiverOptions {
        let cache_bytes = if REMEMBERS { 1 << 16 } else { 0 };
        QuiverOptions { cache_bytes, page_records: RECORDS, page_delta: DELTA, ..QuiverOptions::default() }
    }

    fn options_for(scenario: &Scenario) -> QuiverOptions {
        let (page_records, page_delta) = scenario.page.unwrap_or((RECORDS, DELTA));
        QuiverOptions { page_records, page_delta, ..Self::options() }
    }

    fn scenarios() -> Vec<Scenario> {
        let mut all = scenario::common();
        all.push(scenario::grow("page", 3));
        all.push(scenario::full("page", 3));
        all.push(scenario::shrink("page", 8));
        all.push(scenario::above("page", 4));
        all.push(scenario::contest());
        all.push(scenario::superseded());
        all.push(head());
        all.push(parts());
        all.push(walk());
        all.push(ranges());
        all.push(hollow());
        all.push(vacated());
        all.push(twins());
        all.push(twins().churning());
        all.push(rivals());
        all.push(strays());
        all.push(head().churning());
        all.push(parts().churning());
        all.push(scenario::plain().churning());
        all.push(scenario::pair().churning());
        all.push(scenario::split().churning());
        if SKIPS {
            all.push(swap());
            all.push(skip());
            all.push(skip().churning());
            all.push(tear());
        }
        all.push(wide());
        all.push(wide_walk());
        all.push(wide_ebb());
        all.push(widest());
        all.push(transfers());
        all.push(transfers_apart());
        all.push(moves());
        all.into_iter().map(Scenario::transacting).collect()
    }

    fn refine(scenario: &mut Scenario, nodes: u8) {
        if scenario.name.ends_with("twins") {
            let opened = block_on(open_new::<Self>(nodes));
            let (pool, ..) = opened.unwrap_or_else(|error| panic!("failed to create a pool: {error}"));
            let [one, other] = quiver_twins(pool.secret());
            if let Some(filler) = scenario.filler.first_mut() {
                (*filler, scenario.hot[0]) = (one, other);
            } else {
                (scenario.hot[0], scenario.hot[1]) = (one, other);
            }
        }
    }

    fn situations() -> Vec<Situation> {
        quiver_situations()
    }

    /// Uses `modify` for every other conditional put.
    async fn put(
        index: &Quiver<Sim>,
        client: &mut Client<Sim>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> Result<PutOutcome, IndexError> {
        if condition == Condition::Always || value.first().is_none_or(|first| first % 2 == 0) {
            return index.put(client, key, value, condition).await;
        }
        let mut was_there = false;
        let modified = index.modify(client, key, |old, new| {
            was_there = old.is_some();
            if !condition.holds_for(old) {
                return Decision::Keep;
            }
            new.extend_from_slice(value);
            Decision::Put
        });
        Ok(match (modified.await?, was_there) {
            (Decision::Put, true) => PutOutcome::Replaced,
            (Decision::Put, false) => PutOutcome::Inserted,
            _ => PutOutcome::Refused,
        })
    }

    async fn delete_if(
        index: &Quiver<Sim>,
        client: &mut Client<Sim>,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, IndexError> {
        index.delete_if(client, key, |found| found == value).await
    }

    /// Adjusts the skip table; a forced change cycles through [`LISTS`].
    async fn adjust(
        index: &Quiver<Sim>,
        client: &mut Client<Sim>,
        is_forced: bool,
    ) -> Result<(), IndexError> {
        if !SKIPS {
            return Ok(());
        }
        if !is_forced {
            return index.adjust(client).await.map(drop);
        }
        let now = index.prefix_list(client).await?;
        let at = LISTS.iter().position(|list| *list == now).map_or(0, |at| at + 1);
        index.adjust_to(client, LISTS[at % LISTS.len()]).await.map(drop)
    }
}

/// A page whose delta is full or nearly full.
fn head() -> Scenario {
    let hot = [&b"head-1"[..], b"head-2", b"head-3"];
    Scenario::new("head", hot, &[0]).with_filler([&b"head-0"[..], b"head-4", b"head-5", b"head-6"])
}

/// A page of three edges whose delta has room for two more keys; a third parts it.
fn parts() -> Scenario {
    let hot = [&b"part\x12"[..], b"part\x24", b"part\x36"];
    Scenario::new("parts", hot, &[]).with_filler([&b"part\x11"[..], b"part\x21", b"part\x31", b"part\x51"])
}

/// Scans, beside puts that part pages.
const WALK: &[Op] = &[
    Op::Scan(false),
    Op::Scan(true),
    Op::Windows(false),
    Op::Windows(true),
    Op::Put(0),
    Op::Put(1),
    Op::Insert(0),
    Op::Insert(1),
    Op::Put(2),
    Op::Delete(2),
];

/// Scans of two full pages of one node, which the first two hot keys part.
fn walk() -> Scenario {
    let first = [0x10, 0x20, 0x30, 0x90, 0xa0, 0xb0, 0x40, 0x50, 0xc0, 0xd0].map(|key| [key]);
    Scenario::new("parts", [[0x60], [0xe0], [0x15]], &[]).with_filler(first).doing("walk", WALK).tearing(4)
}

/// The records of wide pages, and their delta slots.
const WIDE: (u32, u32) = (8, 3);

/// Returns keys of one byte: of each of these edges, these leaves.
fn grid(edges: RangeInclusive<u8>, leaves: &'static [u8]) -> impl Iterator<Item = [u8; 1]> {
    edges.flat_map(move |edge| leaves.iter().map(move |leaf| [edge << 4 | leaf]))
}

/// A wide page that is full but for its last delta slot: one more key parts it, and a scan reads some
/// records of it.
fn wide() -> Scenario {
    let hot = [[0x14], [0x2c], [0x44]];
    Scenario::new("wide", hot, &[1])
        .with_filler(grid(1..=4, &[0x0, 0x8]).chain([[0x34]]))
        .with_pages(WIDE.0, WIDE.1)
        .churning()
}

/// Scans of two wide pages of one node, which the first two hot keys part.
fn wide_walk() -> Scenario {
    let filler =
        grid(1..=4, &[0x0, 0x8]).chain(grid(9..=0xc, &[0x0, 0x8])).chain([[0x24], [0x34], [0xa4], [0xb4]]);
    Scenario::new("wide", [[0x14], [0xc4], [0x2c]], &[])
        .with_filler(filler)
        .with_pages(WIDE.0, WIDE.1)
        .doing("walk", WALK)
        .tearing(4)
}

/// Wide pages below one node that are nearly empty, so that they collapse while a put parts one of them.
fn wide_ebb() -> Scenario {
    const OPS: &[Op] = &[
        Op::Delete(0),
        Op::Delete(1),
        Op::Delete(2),
        Op::Put(0),
        Op::Put(1),
        Op::Put(2),
        Op::Insert(0),
        Op::Scan(false),
        Op::Maintain,
    ];
    let key = |end: u8| [&b"wide-"[..], &[end]].concat();
    let former = grid(1..=0xc, &[0x0, 0x6, 0x8]).map(|[end]| key(end));
    Scenario::new("wide", [0x14, 0x59, 0xb2].map(key), &[0, 1])
        .with_filler([b"wide-\x31".to_vec(), b"w".to_vec()])
        .with_former(former)
        .with_pages(WIDE.0, WIDE.1)
        .doing("ebb", OPS)
        .churning()
}

/// A page of sixteen records whose words fill several cache lines, read in pieces.
fn widest() -> Scenario {
    Scenario::new("widest", [[0x14], [0x2c], [0x44]], &[1])
        .with_filler(grid(1..=4, &[0x0, 0x6, 0x8, 0xe]))
        .with_pages(16, 4)
        .doing("walk", WALK)
        .tearing(4)
}

/// Pages on both sides of a child node.
fn ranges() -> Scenario {
    let hot = [&b"rang\x11"[..], b"rang\x35", b"rang\x52"];
    let child = (0..6).map(|at| [&b"rang\x31"[..], &[at * 40]].concat());
    let filler = child.chain([b"rang\x10".to_vec(), b"rang\x51".to_vec(), b"rang\x72".to_vec()]);
    Scenario::new("ranges", hot, &[0, 2]).with_filler(filler)
}

/// A path on which all keys are removed, and a key that branches off it.
fn hollow() -> Scenario {
    const OPS: &[Op] = &[Op::Delete(0), Op::Delete(1), Op::Delete(0), Op::Delete(1), Op::Put(2)];
    scenario::split().doing("hollow", OPS)
}

/// A node from which all keys are removed, and one is put again.
fn vacated() -> Scenario {
    const OPS: &[Op] =
        &[Op::Delete(0), Op::Delete(1), Op::Delete(2), Op::Delete(0), Op::Delete(1), Op::Put(2), Op::Get(0)];
    let key = |end: u8| [&b"node-"[..], &[end]].concat();
    let hot = Scenario::new("node", [key(0x11), key(0x25), key(0x32)], &[0, 1, 2]);
    hot.with_filler([b"\x11"]).with_former([0x15, 0x21, 0x35, 0x41].map(key)).doing("vacate", OPS)
}

/// Nested nodes that the skip table leads to, of which some become empty.
fn skip() -> Scenario {
    let key = |end: u8| [&b"node-"[..], &[end]].concat();
    let deep = |end: u8| [&b"node-\x31deep-"[..], &[end]].concat();
    let hot = Scenario::new("skip", [key(0x11), deep(0x25), deep(0x32)], &[0, 1, 2]);
    let filler = (0..4).map(|at| key(at << 4 | 2)).chain([b"\x11".to_vec(), b"node".to_vec()]);
    hot.with_filler(filler).with_former([0x15, 0x21, 0x35, 0x41].map(deep)).adjusting()
}

/// The same while tables, but not nodes, are replaced.
fn swap() -> Scenario {
    const OPS: &[Op] = &[
        Op::Restructure,
        Op::Restructure,
        Op::Adjust,
        Op::Get(0),
        Op::Get(1),
        Op::Get(2),
        Op::Put(1),
        Op::Maintain,
    ];
    skip().doing("swap", OPS)
}

/// Full pages that one more key turns into nodes, while skip tables are replaced: clients that pass
/// such a node enter it in the table while others look it up.
fn tear() -> Scenario {
    const EDGES: [u8; 3] = [0x31, 0x52, 0x73];
    const OPS: &[Op] = &[
        Op::Restructure,
        Op::Restructure,
        Op::Get(0),
        Op::Get(1),
        Op::Get(2),
        Op::Put(0),
        Op::Put(1),
        Op::Put(2),
    ];
    let deep = |edge: u8, end: u8| [&b"node-"[..], &[edge], b"deep-", &[end]].concat();
    let records = EDGES.map(|edge| [0x10, 0x20, 0x30].map(|end| deep(edge, end)));
    let delta = EDGES.map(|edge| [0x40, 0x50].map(|end| deep(edge, end)));
    let pages = Scenario::new("skip", EDGES.map(|edge| deep(edge, 0x60)), &[]);
    let pages = pages.with_filler(records.into_iter().flatten().chain(delta.into_iter().flatten()));
    pages.adjusting().doing("tear", OPS).churning().tearing(4)
}

/// Two keys with equal hashes, chosen by the pool's secret: the first is in a page's only record,
/// which a blind CAS for the second hits.
fn twins() -> Scenario {
    Scenario::new("twins", [&b"one"[..], b"other", b"twin"], &[0])
}

/// Writers of both keys, and readers of the first.
fn rivals() -> Scenario {
    const OPS: &[Op] = &[
        Op::Put(1),
        Op::Put(1),
        Op::Put(0),
        Op::Update(0),
        Op::Get(0),
        Op::Delete(0),
        Op::Delete(1),
        Op::Scan(false),
    ];
    twins().doing("rivals", OPS)
}

/// The first of the two stays, in a page whose delta is full: a put of another key replaces the
/// page.
fn strays() -> Scenario {
    const OPS: &[Op] = &[Op::Put(0), Op::Put(0), Op::Put(1), Op::Put(2), Op::Delete(0), Op::Scan(false)];
    let filler = [&b"one"[..], b"u", b"v"];
    Scenario::new("twins", [&b"other"[..], b"w", b"x"], &[]).with_filler(filler).doing("stray", OPS)
}

/// A transaction with these roles of the hot keys.
const fn transact(first: Option<Role>, second: Option<Role>, third: Option<Role>) -> Op {
    Op::Transact(Roles([first, second, third]))
}

const GET: Option<Role> = Some(Role::Get);
const PUT: Option<Role> = Some(Role::Put);
const DELETE: Option<Role> = Some(Role::Delete);
const BLIND: Option<Role> = Some(Role::Blind);

/// Transactions and other operations on the same two or three keys.
const TRANSFERS: &[Op] = &[
    transact(PUT, PUT, None),
    transact(PUT, PUT, None),
    transact(PUT, GET, None),
    transact(GET, PUT, None),
    transact(PUT, DELETE, PUT),
    transact(BLIND, None, PUT),
    Op::Put(0),
    Op::Put(1),
    Op::Delete(0),
    Op::Get(0),
    Op::Get(1),
    Op::MultiGet,
    Op::Scan(false),
];

/// Transactions of keys in one page.
fn transfers() -> Scenario {
    Scenario::new("plain", [b"a", b"b", b"c"], &[0, 1]).doing("transfer", TRANSFERS)
}

/// Transactions of keys in pages of different nodes.
fn transfers_apart() -> Scenario {
    ranges().doing("transfer", TRANSFERS)
}

/// Transactions in a page that other keys make grow and split, and that removals empty.
fn moves() -> Scenario {
    const OPS: &[Op] = &[
        transact(PUT, PUT, None),
        transact(PUT, None, PUT),
        transact(DELETE, PUT, None),
        transact(GET, DELETE, PUT),
        Op::Insert(0),
        Op::Insert(1),
        Op::Insert(2),
        Op::Delete(0),
        Op::Delete(1),
        Op::Delete(2),
        Op::Get(0),
        Op::Scan(false),
        Op::Maintain,
    ];
    scenario::full("page", 3).doing("move", OPS).churning()
}
