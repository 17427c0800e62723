//! XStore under exploration, with pointers in its leaves and with values: a server writes for the
//! clients that call it and can die like them; readers use models that it trains, or the image of
//! its inner nodes.
//!
//! Leaves have 16 slots.

use super::super::op::Op;
use super::super::scenario::{self, Scenario};
use super::super::subject::{Promises, Serves, Subject};
use darter_baselines::{XStore, XStoreOptions, XStoreService};
use darter_fabric::Procedures;
use darter_index::{Condition, IndexError, OrderedIndex};
use darter_pool::{AllocKind, Client};
use darter_sim::Sim;
use std::marker::PhantomData;
use std::pin::Pin;

/// The subject, with these leaves.
pub(super) struct OfXStore<H>(PhantomData<H>);

/// The contents of the leaves, and how readers find them.
pub(super) trait Held: 'static {
    const NAME: &'static str;
    const VALUE_WORDS: u8;
    /// The level from which inner nodes are cached, if readers use these.
    const TREE_FROM: Option<u8> = None;
}

/// Pointers.
pub(super) struct Pointers;

/// Values of up to two words, under keys of eight bytes.
pub(super) struct Values;

/// Pointers, found through inner nodes, the lowest of which are READ each time.
pub(super) struct Tree;

impl Held for Pointers {
    const NAME: &'static str = "xstore";
    const VALUE_WORDS: u8 = 0;
}

impl Held for Values {
    const NAME: &'static str = "xstore-inline";
    const VALUE_WORDS: u8 = 2;
}

impl Held for Tree {
    const NAME: &'static str = "xstore-tree";
    const VALUE_WORDS: u8 = 0;
    const TREE_FROM: Option<u8> = Some(2);
}

/// Slots of a leaf.
const SLOTS: u64 = 16;
/// `power` only if memory keeps acknowledged writes: if the pool has lost the words that
/// distinguish them, a member may start under the name of the server that the descriptor's lock
/// still names, and another server then waits for ever.
const SURVIVES: &[&str] = &["kill", "cancel", "drop", "hold", "pause", "stop", "cut", "refuse"];
/// Maximum number of round trips of an operation while another client has stopped: no client waits
/// for another.
const TRIPS: u64 = 200;

impl Serves for XStoreService<Sim> {
    fn procedures(&self) -> Procedures {
        Self::procedures(self)
    }

    fn garbage(&self) -> usize {
        Self::garbage(self)
    }

    fn has_unconfirmed_frees(&self) -> bool {
        Self::has_unconfirmed_frees(self)
    }

    fn renew(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        // A server that is shut out is replaced.
        Box::pin(async { Self::renew(self).await.unwrap_or(()) })
    }

    fn abandon(&self) {
        Self::abandon(self);
    }

    fn end(&self) {
        Self::end(self);
    }
}

impl<H: Held> Subject for OfXStore<H> {
    type Index = XStore<Sim>;

    const NAME: &'static str = H::NAME;

    const PROMISES: Promises = Promises {
        survives: SURVIVES,
        trips_while_stopped: Some(TRIPS),
        may_lose_values: false,
        exact_uses: true,
        exact_memory: true,
    };

    const HAS_SERVER: bool = true;

    const WARM: &'static [(u64, AllocKind)] = &[];

    fn options() -> XStoreOptions {
        // All nodes may hold keys: a bulk load gives each its share.
        XStoreOptions {
            value_words: H::VALUE_WORDS,
            cache_bytes: if H::TREE_FROM.is_some() { 0 } else { u64::MAX },
            tree_from: H::TREE_FROM,
            nodes: 0,
            ..XStoreOptions::default()
        }
    }

    fn server(sim: &Sim) -> Option<Box<dyn Serves>> {
        Some(Box::new(XStoreService::new(sim)))
    }

    fn scenarios() -> Vec<Scenario> {
        let all = vec![
            few(),
            leaf_full(),
            leaf_full().churning(),
            seam(),
            shared(),
            generation(),
            generation().churning(),
            emptied(),
            contest(),
            moved(),
            unloaded(),
        ];
        if H::VALUE_WORDS > 0 {
            return all.into_iter().map(|scenario| scenario.with_values([8, 16, 13])).collect();
        }
        all.into_iter().chain(scenario::common()).collect()
    }

    async fn delete_if(
        index: &XStore<Sim>,
        client: &mut Client<Sim>,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, IndexError> {
        index.delete_when(client, key, Condition::Equals(value)).await
    }
}

/// A key of eight bytes.
fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn keys(numbers: impl IntoIterator<Item = u64>) -> impl Iterator<Item = Vec<u8>> {
    numbers.into_iter().map(key)
}

/// One leaf with few keys: inserts append, deletes move the last pair into the gap.
fn few() -> Scenario {
    Scenario::new("few", keys([8, 24, 40]), &[0, 1]).with_filler(keys([16, 32]))
}

/// One leaf with one free slot, so that the second insert splits it.
fn leaf_full() -> Scenario {
    Scenario::new("leaf-full", keys([5, 85, 241]), &[1]).with_filler(keys((0..SLOTS - 2).map(|at| at * 16)))
}

/// Two leaves, and keys on both sides of the bound between them: those next to it are predicted
/// into the neighbour.
fn seam() -> Scenario {
    // Put in order, the first leaf keeps eight keys.
    let bound = 8 * 16;
    let filler = keys((0..SLOTS + 8).map(|at| at * 16));
    Scenario::new("seam", keys([bound - 1, bound + 1, bound - 2]), &[1]).with_filler(filler)
}

/// More keys than one sub-model has, so that two share the leaf in the middle.
fn shared() -> Scenario {
    let filler = keys((0..208).map(|at| at * 16));
    Scenario::new("shared", keys([103 * 16 + 1, 104 * 16 + 1, 105 * 16 + 1]), &[0, 1]).with_filler(filler)
}

/// Two keys fewer than one sub-model has: with two more, all models are retrained.
fn generation() -> Scenario {
    const OPS: &[Op] = &[
        Op::Insert(0),
        Op::Insert(1),
        Op::Insert(2),
        Op::Delete(0),
        Op::Get(0),
        Op::Get(1),
        Op::Get(2),
        Op::Scan(false),
        Op::Maintain,
        Op::Maintain,
    ];
    let filler = keys((0..199).map(|at| at * 16));
    Scenario::new("full", keys([1, 99 * 16 + 1, 199 * 16 + 1]), &[0])
        .with_filler(filler)
        .doing("generation", OPS)
}

/// A leaf between others that deletes empty. Upkeep removes it; puts fill its neighbour until that
/// splits.
fn emptied() -> Scenario {
    const OPS: &[Op] = &[
        Op::Maintain,
        Op::Maintain,
        Op::Insert(0),
        Op::Put(1),
        Op::Delete(0),
        Op::Delete(1),
        Op::Delete(2),
        Op::Get(0),
        Op::Get(2),
        Op::MultiGet,
        Op::Scan(false),
        Op::Scan(true),
    ];
    let hot = [8 * 16 + 2, 8 * 16 + 4, 8 * 16 + 6];
    let filler = (0..8).chain(24..40).map(|at| at * 16);
    let former = keys((8..24).map(|at| at * 16));
    Scenario::new("leaf", keys(hot), &[0, 1, 2])
        .with_filler(keys(filler))
        .with_former(former)
        .doing("emptied", OPS)
}

/// A leaf of two keys: when the first is deleted, its slot goes to the other, whose slot a third
/// may take.
fn moved() -> Scenario {
    const OPS: &[Op] = &[Op::Get(2), Op::Get(2), Op::Delete(0), Op::Insert(1), Op::Delete(1), Op::Insert(0)];
    Scenario::new("pair", keys([32, 48, 40]), &[0, 2]).doing("moved", OPS)
}

/// Concurrent writers of one key.
fn contest() -> Scenario {
    const OPS: &[Op] = &[Op::Put(0), Op::Update(0), Op::Insert(0), Op::Delete(0), Op::Get(0), Op::Maintain];
    few().doing("contest", OPS)
}

/// An empty index for bulk loads.
fn unloaded() -> Scenario {
    Scenario::new("unloaded", keys([1, 2, 3]), &[]).loading()
}
