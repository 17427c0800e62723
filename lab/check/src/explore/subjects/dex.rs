//! DEX under exploration: one owner, whose clients are threads of one process, with a cache of 16
//! pages, and memory nodes that run its operations.
//!
//! Leaves have 58 entries. A death loses what the owner has not written, so no fault that ends a
//! process is survived. With `dex+wt` only the page is lost whose WRITE the death cuts short.

use super::super::scenario::Scenario;
use super::super::subject::{Promises, Serves, Subject};
use darter_baselines::{Dex, DexOptions, DexService, Offload};
use darter_fabric::Procedures;
use darter_index::{Condition, IndexError, OrderedIndex};
use darter_pool::Client;
use darter_sim::Sim;
use std::future::ready;
use std::pin::Pin;

/// The subject; `THROUGH` if changes are written through.
pub(super) struct OfDex<const THROUGH: bool>;

/// Faults that end no process.
const SURVIVES: &[&str] = &["cancel", "drop", "hold", "refuse"];
/// Entries of a leaf.
const ENTRIES: u64 = 58;

/// The memory nodes' procedures keep no state.
impl Serves for DexService<Sim> {
    fn procedures(&self) -> Procedures {
        Self::procedures(self)
    }

    fn garbage(&self) -> usize {
        0
    }

    fn has_unconfirmed_frees(&self) -> bool {
        false
    }

    fn renew(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(ready(()))
    }

    fn abandon(&self) {}

    fn end(&self) {}
}

impl<const THROUGH: bool> Subject for OfDex<THROUGH> {
    type Index = Dex<Sim>;

    const NAME: &'static str = if THROUGH { "dex+wt" } else { "dex" };

    const PROMISES: Promises = Promises {
        survives: SURVIVES,
        trips_while_stopped: None,
        may_lose_values: false,
        exact_uses: true,
        exact_memory: true,
    };

    const HAS_SERVER: bool = true;

    const IN_ONE_PROCESS: bool = true;

    fn server(sim: &Sim) -> Option<Box<dyn Serves>> {
        Some(Box::new(DexService::new(sim)))
    }

    fn options() -> DexOptions {
        DexOptions {
            cache_bytes: 0,
            write_through: THROUGH,
            // Processes leave in order, and others check the pool after upkeep.
            flushes_in_upkeep: true,
            offload: Offload::Fixed { call_ns: 3000, read_ns: 2000 },
            leaf_admission: 50,
            ..DexOptions::default()
        }
    }

    fn scenarios() -> Vec<Scenario> {
        let all = [few(), leaf_full(), seam(), many(), many().churning()];
        all.into_iter().map(|scenario| scenario.with_values([8; 3])).collect()
    }

    async fn delete_if(
        index: &Dex<Sim>,
        client: &mut Client<Sim>,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, IndexError> {
        index.delete_when(client, key, Condition::Equals(value)).await
    }
}

fn keys(numbers: impl IntoIterator<Item = u64>) -> impl Iterator<Item = Vec<u8>> {
    numbers.into_iter().map(|number| number.to_be_bytes().to_vec())
}

/// One leaf with few keys.
fn few() -> Scenario {
    Scenario::new("few", keys([8, 24, 40]), &[0, 1]).with_filler(keys([16, 32]))
}

/// One leaf with one free slot, so that the second insert splits it.
fn leaf_full() -> Scenario {
    let filler = keys((0..ENTRIES - 2).map(|at| at * 16));
    Scenario::new("leaf-full", keys([5, 85, 241]), &[1]).with_filler(filler)
}

/// Two leaves, and keys on both sides of the fence between them.
fn seam() -> Scenario {
    let fence = (ENTRIES / 2 - 1) * 16;
    let filler = keys((0..ENTRIES + 8).map(|at| at * 16));
    Scenario::new("seam", keys([fence - 1, fence + 1, fence + 2]), &[1]).with_filler(filler)
}

/// More leaves than frames, with hot keys in three of them, the last of which is nearly full.
fn many() -> Scenario {
    let filler = keys((0..1200).map(|at| at * 16));
    Scenario::new("many", keys([1, 600 * 16 + 1, 1200 * 16 + 1]), &[0, 1]).with_filler(filler)
}
