//! DART under exploration: there are no locks, so no client waits for another, and no value is
//! lost.

use super::super::fault::Fault;
use super::super::op::Op;
use super::super::scenario::{self, Scenario};
use super::super::subject::{Promises, Subject};
use darter_fabric::block_on;
use darter_index::checker::Situation;
use darter_index::{
    Condition, Dart, DartOptions, Decision, IndexError, OrderedIndex, PutOutcome, dart_situations,
};
use darter_pool::{AllocKind, Client};
use darter_sim::Sim;

/// The subject.
pub(super) struct OfDart;

/// Maximum number of bytes that an edge skips.
const SKIP_MAX: usize = 127;
/// Capacity of each node type in children; consecutive edges fill its buckets evenly.
const CAPACITIES: [usize; 8] = [3, 7, 11, 15, 30, 60, 120, 257];
/// Names of the types.
const TYPES: [&str; 8] = ["n4", "n8", "n12", "n16", "n32", "n64", "n128", "n256"];
/// Prefix lists that changes cycle through: each covers nodes of the scenarios that another does
/// not.
const LISTS: [&[u8]; 3] = [&[1, 2, 4, 8, 16, 32, 64, 128], &[3, 7, 12], &[2, 5, 8, 11, 14]];
/// Room for the hints of a small tree; a larger cache would cost every run its zeroing.
const CACHE_BYTES: u64 = 4096;
/// Buckets of a segment of the express skip table, few enough that small trees split segments.
const SEGMENT_BUCKETS: u32 = 2;
/// Nodes of a walk under one pin, few enough that walks of small trees span several epochs.
const WALK_NODES: u32 = 2;
/// Maximum number of nodes for `segment` to enter in the express skip table.
const SEGMENT_NODES: u32 = 64;

impl Subject for OfDart {
    type Index = Dart<Sim>;

    const NAME: &'static str = "dart";

    const PROMISES: Promises = Promises {
        survives: &Fault::BESIDE_LOSSES,
        trips_while_stopped: Some(1000),
        may_lose_values: false,
        exact_uses: true,
        exact_memory: true,
    };

    const WARM: &'static [(u64, AllocKind)] = &[
        (40, AllocKind::Inner),
        (72, AllocKind::Inner),
        (48, AllocKind::Leaf),
        (80, AllocKind::Leaf),
        (128, AllocKind::Leaf),
    ];

    fn options() -> DartOptions {
        DartOptions {
            frequency_every: 1,
            cache_bytes: CACHE_BYTES,
            segment_buckets: SEGMENT_BUCKETS,
            walk_nodes: WALK_NODES,
            ..DartOptions::default()
        }
    }

    fn scenarios() -> Vec<Scenario> {
        let mut all = vec![
            scenario::plain(),
            scenario::prefixes(),
            scenario::split(),
            scenario::pair(),
            scenario::chain(),
            scenario::empty(),
            scenario::ends(),
            scenario::next_prefix(),
            edge(),
            empty_edge(),
            scenario::superseded(),
            hollow(),
            scenario::contest(),
            scenario::root(TYPES[0], CAPACITIES[0]),
            scenario::root(TYPES[0], CAPACITIES[0]).churning(),
            scenario::full(TYPES[0], CAPACITIES[0]),
            scenario::above(TYPES[0], CAPACITIES[0]),
            express(),
            segment(),
            full_segment(),
            adjust(),
            scenario::pair().churning(),
            scenario::split().churning(),
            scenario::chain().churning(),
            scenario::prefixes().churning(),
            express().churning(),
            segment().churning(),
            full_segment().churning(),
            fill().churning(),
            scenario::grow(TYPES[0], CAPACITIES[0]).churning(),
            scenario::grow(TYPES[1], CAPACITIES[1]).churning(),
            scenario::shrink(TYPES[2], CAPACITIES[1]).churning(),
        ];
        let types = TYPES.into_iter().zip(CAPACITIES);
        all.extend(types.clone().take(7).map(|(ty, capacity)| scenario::grow(ty, capacity)));
        all.extend(types.skip(1).zip(CAPACITIES).map(|((ty, _), below)| scenario::shrink(ty, below)));
        // Lists change in every kind of run.
        all.into_iter().map(Scenario::adjusting).collect()
    }

    /// Makes the key that splits a segment of the express skip table hot, and two keys that enter
    /// others of its nodes, or two that each keep an entered node.
    fn refine(scenario: &mut Scenario, nodes: u8) {
        if scenario.name.ends_with("segment") {
            let before = block_on(keys_before_split(scenario, nodes));
            let before = before.unwrap_or_else(|error| panic!("segment: failed to build: {error}"));
            let filler = &mut scenario.filler;
            let is_full = !scenario.present.is_empty();
            let at = |nth: usize| if is_full { before - 2 * nth } else { before + 2 * nth };
            scenario.hot = (0..3).map(|nth| filler[at(nth)].clone()).collect();
            filler.truncate(if is_full { before } else { before + 5 });
            filler.retain(|key| !scenario.hot.contains(key));
        }
    }

    fn situations() -> Vec<Situation> {
        dart_situations()
    }

    /// Uses `modify` for every other conditional put.
    async fn put(
        index: &Dart<Sim>,
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
        index: &Dart<Sim>,
        client: &mut Client<Sim>,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, IndexError> {
        index.delete_if(client, key, |found| found == value).await
    }

    /// Adjusts the prefix list; a forced change cycles through [`LISTS`].
    async fn adjust(index: &Dart<Sim>, client: &mut Client<Sim>, is_forced: bool) -> Result<(), IndexError> {
        if !is_forced {
            return index.adjust(client).await.map(drop);
        }
        let now = index.prefix_list();
        let at = LISTS.iter().position(|list| *list == now).map_or(0, |at| at + 1);
        index.adjust_to(client, LISTS[at % LISTS.len()]).await.map(drop)
    }
}

/// Long keys below express entries of several lengths.
fn express() -> Scenario {
    let hot = [&b"express-way-1"[..], b"express-way-2", b"express-wagon"];
    Scenario::new("express", hot, &[0, 1]).with_filler([&b"exp"[..], b"expr-1", b"express"])
}

/// Two keys that diverge after an edge from the root that skips one byte more than a slot can
/// encode, and one that branches off in the middle.
fn edge() -> Scenario {
    let key = |len: usize, end: u8| [&[b'x'; SKIP_MAX + 2][..len], &[end]].concat();
    let hot = [key(SKIP_MAX + 2, 1), key(SKIP_MAX + 2, 2), key(SKIP_MAX / 2, 3)];
    Scenario::new("edge", hot, &[0, 1])
}

/// The same for bulk loads, without the key that branches off.
fn empty_edge() -> Scenario {
    let Scenario { mut hot, .. } = edge();
    hot[2] = b"y".to_vec();
    Scenario::new("empty-edge", hot, &[]).loading()
}

/// A path on which all keys are removed, and a key that branches off it.
fn hollow() -> Scenario {
    const OPS: &[Op] = &[Op::Delete(0), Op::Delete(1), Op::Delete(0), Op::Delete(1), Op::Put(2)];
    scenario::split().doing("hollow", OPS)
}

/// A segment of the express skip table about to split.
fn segment() -> Scenario {
    // Chosen when the fixture is built.
    let hot = (65_500..65_503).map(|at| segment_key(at, 9));
    // Pairs of keys, each below a node with an entry.
    let filler = (0..2 * SEGMENT_NODES).map(|at| segment_key(at / 2, (at % 2) as u8));
    Scenario::new("segment", hot, &[]).with_filler(filler)
}

/// The same, with entered nodes that may be removed.
fn full_segment() -> Scenario {
    let Scenario { hot, filler, .. } = segment();
    Scenario::new("full-segment", hot, &[1, 2]).with_filler(filler)
}

fn segment_key(at: u32, end: u8) -> Vec<u8> {
    let at = at.wrapping_mul(40_503) & 0xffff;
    vec![(at >> 8) as u8, at as u8, 7, end]
}

/// A tree whose prefix list an adjustment changes.
fn adjust() -> Scenario {
    let hot = [&b"adjusted-key-1"[..], b"adjusted-key-2", b"adjusted-kex"];
    let filler =
        (b'a'..b'a' + 24).flat_map(|at| [b'0', b'1'].map(|end| [&b"adjusted-ke"[..], &[at, end]].concat()));
    Scenario::new("adjust", hot, &[0, 1]).with_filler(filler)
}

/// A tree that a builder needs many pins to enter in a new table, with changes at its beginning.
fn fill() -> Scenario {
    let hot = [&b"built-0-1"[..], b"built-0-2", b"built-0-3"];
    let filler =
        (b'a'..b'a' + 12).flat_map(|at| [b'0', b'1'].map(|end| [&b"built-"[..], &[at, end]].concat()));
    Scenario::new("fill", hot, &[0, 1]).with_filler(filler)
}

/// Returns how many of the keys can be put before one splits a segment of the express skip table.
async fn keys_before_split(scenario: &Scenario, nodes: u8) -> Result<usize, IndexError> {
    let (_pool, mut client, dart) = super::super::fixture::open_new::<OfDart>(nodes).await?;
    let mut segments = None;
    for (at, key) in scenario.filler.iter().enumerate() {
        dart.put(&mut client, key, &scenario.value(0), Condition::Always).await?;
        let now = dart.stats(&mut client).await?.est.map_or(0, |est| est.segments);
        if *segments.get_or_insert(now) != now {
            return Ok(at);
        }
    }
    Ok(scenario.filler.len() - 6)
}
