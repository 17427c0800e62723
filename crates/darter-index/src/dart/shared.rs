//! A process's state of one DART index: the addresses of its root words, and a view of them that
//! the process's threads share.
//!
//! The view (root slot, express skip table, directory) is a set of hints. It is read again by the
//! first operation that is pinned in a later epoch than the one in which it was read; until then,
//! everything it names is protected by the pins of its readers.
//!
//! *A view never goes back.* A client pinned at *e* reads the root words, and its reply may arrive
//! late, after others have read them again at *e + 1* and found another table. So a table records
//! in which epoch it was last found current ([`Table::is_fresh`]). A late reply brings a table with
//! an earlier epoch, which does not replace one that was found current later, and which no later
//! operation would take for fresh. Two replies of one epoch may replace each other in any order:
//! anything retired after the earlier of them has a stamp of that epoch or later, and is kept by
//! every pin that takes either for fresh.
//!
//! The root slot needs no epoch. A root node passes two graces between its unlinking and its reuse,
//! and a client that caches it late has been pinned since before the unlinking. So only operations
//! pinned at most one epoch later can find it, and their pins keep it. The position up to which the
//! log of retired nodes was read only grows ([`super::retired_log`]).

use super::DartOptions;
use super::est::Express;
use super::est::table::Table;
use super::hints::HintCache;
use super::log_reader::{LOG_WORDS, LogReader};
use super::node::Slot;
use super::prefix_hash::{HashKeys, HashedKey};
use super::situations;
use crate::Result;
use crate::checker::note;
use crate::radix::sampling::{Sampling, is_due};
use arc_swap::{ArcSwap, Guard};
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::{Pinned, Pool};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// "DART" and the format's version, in the kind word of a pool's root.
pub(crate) const KIND: u64 = u64::from_le_bytes(*b"DART\x05\0\0\0");

/// Addresses of the index's root words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RootWords {
    /// The slot that points to the root node.
    pub(crate) root: GlobalAddr,
    /// The current express skip table's descriptor.
    pub(crate) est: GlobalAddr,
    /// The descriptor of a table that is being built, or zero. Bit 63 is set when it is about to
    /// become current.
    pub(crate) est_next: GlobalAddr,
    /// The kind of index that the pool holds.
    pub(crate) kind: GlobalAddr,
    /// Incremented after every change of a directory.
    pub(crate) version: GlobalAddr,
    /// Number of nodes retired. Incremented after a node's first grace and before its second.
    pub(crate) retired: GlobalAddr,
    /// The first of the [`LOG_WORDS`] root words that hold the log of retired nodes.
    pub(crate) log: GlobalAddr,
}

/// Number of the root word at which the log begins.
const LOG_AT: usize = 8;
const _: () = assert!(LOG_AT + LOG_WORDS <= darter_pool::ROOT_WORDS);

impl RootWords {
    pub(crate) fn of<F: Fabric>(pool: &Pool<F>) -> Self {
        Self {
            root: pool.root_word(0),
            est_next: pool.root_word(1),
            est: pool.root_word(2),
            kind: pool.root_word(3),
            version: pool.root_word(4),
            retired: pool.root_word(5),
            log: pool.root_word(LOG_AT),
        }
    }
}

/// The state of the index that the clients of a compute node share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) keys: HashKeys,
    pub(crate) words: RootWords,
    pub(crate) hints: HintCache,
    pub(crate) log: LogReader,
    table: ArcSwap<Table>,
    root: AtomicU64,
    /// One search in this many counts an access in its leaf; 0 for none.
    pub(crate) frequency_every: u32,
    /// The cost of a verb when the prefix list is chosen, in hundredths of a round trip.
    pub(crate) verb_percent: u32,
    /// Number of new nodes after which a walk of the whole tree takes another pin.
    pub(crate) walk_nodes: usize,
    /// Statistics of sampled searches.
    pub(crate) sampling: Sampling,
    /// Number of sampled searches that began at an express entry or at a cached node.
    pub(crate) sampled_express: AtomicU64,
}

impl Shared {
    pub(crate) fn new(
        keys: HashKeys,
        words: RootWords,
        (hints, log): (HintCache, LogReader),
        table: Table,
        root: Slot,
        options: DartOptions,
    ) -> Self {
        Self {
            keys,
            words,
            hints,
            log,
            table: ArcSwap::from_pointee(table),
            root: AtomicU64::new(root.word()),
            frequency_every: options.frequency_every,
            verb_percent: options.verb_percent,
            walk_nodes: options.walk_nodes.max(1) as usize,
            sampling: Sampling::default(),
            sampled_express: AtomicU64::new(0),
        }
    }

    /// The express skip table, in the form that operations on it need.
    pub(crate) fn express<'t>(&'t self, table: &'t Table) -> Express<'t> {
        Express { table, keys: &self.keys, version: self.words.version }
    }

    /// A hashed key for `key`, under this pool's secret.
    pub(crate) fn hashed<'k>(&self, key: &'k [u8]) -> HashedKey<'k> {
        HashedKey::new(self.keys, key)
    }

    /// The root slot as last seen.
    pub(crate) fn root(&self) -> Slot {
        Slot::from_word(self.root.load(Ordering::Acquire))
    }

    /// Updates the cached root slot.
    pub(crate) fn remember_root(&self, slot: Slot) {
        self.root.store(slot.unsealed().word(), Ordering::Release);
    }

    /// The table as last seen, without checking its epoch.
    pub(crate) fn table(&self) -> Guard<Arc<Table>> {
        self.table.load()
    }

    /// The table, checked in the caller's epoch or a later one. The caller must be pinned.
    #[inline]
    pub(crate) async fn view<F: Fabric>(&self, client: &mut Pinned<'_, F>) -> Result<Guard<Arc<Table>>> {
        let table = self.table.load();
        if table.is_fresh(client.epoch()) {
            return Ok(table);
        }
        drop(table);
        self.refresh(client).await
    }

    /// Reads the root words, and the table if it has changed. Returns the table that they name.
    ///
    /// # Errors
    /// Those of the fabric, and [`IndexError::Corrupt`](crate::IndexError::Corrupt).
    #[cold]
    pub(crate) async fn refresh<F: Fabric>(&self, client: &mut Pinned<'_, F>) -> Result<Guard<Arc<Table>>> {
        let epoch = client.epoch();
        let RootWords { version, est, root, retired, .. } = self.words;
        let [version, est, root, retired] = client.read_each([version, est, root, retired]).await?;
        self.remember_root(Slot::from_word(root));
        self.follow_log(client, retired).await?;
        let est = GlobalAddr::from_bits(est);
        let known = self.table.load_full();
        let found = if known.descriptor == est && known.version == version {
            known.found_current(epoch);
            known
        } else {
            let table = Table::load(client, est, version).await?;
            if known.descriptor != est {
                note(situations::TABLE_REFRESHED);
            }
            table.found_current(epoch);
            let table = Arc::new(table);
            self.table.rcu(|known| {
                let is_late = known.checked() > table.checked();
                if is_late {
                    note(situations::VIEW_LATE);
                }
                Arc::clone(if is_late { known } else { &table })
            });
            table
        };
        // The view now shared may have been read by another client, possibly before this client
        // read its own.
        Ok(Guard::from_inner(found))
    }

    /// Whether the search that begins now is one of those that count an access (paper, section
    /// 3.1).
    #[inline]
    pub(crate) fn samples(&self) -> bool {
        thread_local! {
            static SINCE: Cell<u32> = const { Cell::new(0) };
        }
        self.frequency_every > 0 && is_due(&SINCE, self.frequency_every)
    }
}
