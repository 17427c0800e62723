//! The server: one process that owns the leaves of a range and writes them for clients that call
//! it.
//!
//! It is a member of the pool and takes over the lock in the range's descriptor from a server that
//! can no longer write. Its inner nodes are in its own memory: a map from the low bounds of the
//! leaves to their numbers, built by a walk of the leaves at start. A call holds at most one leaf's
//! lock at a time, so no two calls deadlock. There are two exceptions: bulk loading holds all
//! locks, and removing an emptied leaf holds two, taken from left to right.

mod emptied;
mod image;
mod learning;
mod publish;
mod read;
mod repair;
mod service;
mod survey;
mod write;

pub use service::XStoreService;

use super::descriptor::Descriptor;
use super::leaf::{Bound, Leaf, Pointer};
use super::table::{Table, bound_bytes};
use crate::compute_node::{LocalGuard, LocalLocks};
use crate::lock_token::{LockToken, LockTokens};
use crate::operation;
use crate::remote_lock;
use crate::sync::lock;
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_index::radix::leaf as pair;
use darter_index::{IndexError, Result};
use darter_pool::{Client, Pool};
use emptied::Emptied;
use learning::Learning;
use std::collections::{BTreeMap, HashSet};
use std::ops::Bound as At;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Number of clients kept for later calls.
const STOCK_MAX: usize = 32;

/// Number of leaves that one call can add to the inner nodes.
const LEARNT_MAX: u32 = 64;

/// A call in progress.
pub(super) type Operation<'a, F> = operation::Operation<'a, Owner<F>, F>;

/// The keys of a range: its bounds, and their bytes.
#[derive(Clone, Debug)]
struct Span {
    low: (Bound, Vec<u8>),
    high: (Bound, Option<Vec<u8>>),
}

impl Span {
    /// Returns whether a key is in the range.
    fn has(&self, key: &[u8]) -> bool {
        key >= &self.low.1[..] && self.high.1.as_ref().is_none_or(|high| key < &high[..])
    }
}

/// The inner nodes: the leaves by their low bounds, and the numbers of all leaves.
#[derive(Debug, Default)]
struct Tree {
    by_low: BTreeMap<Vec<u8>, u32>,
    numbers: HashSet<u32>,
    /// The keys of this server; none if it owns no range.
    span: Option<Span>,
}

impl Tree {
    /// Replaces all leaves by these.
    fn know(&mut self, by_low: BTreeMap<Vec<u8>, u32>) {
        self.numbers = by_low.values().copied().collect();
        self.by_low = by_low;
    }

    /// Returns whether a key belongs to this server.
    fn has(&self, key: &[u8]) -> bool {
        self.span.as_ref().is_some_and(|span| span.has(key))
    }

    fn insert(&mut self, low: Vec<u8>, number: u32) {
        self.by_low.insert(low, number);
        self.numbers.insert(number);
    }

    fn remove(&mut self, low: &[u8]) {
        if let Some(number) = self.by_low.remove(low) {
            self.numbers.remove(&number);
        }
    }
}

/// State shared by the calls of a server.
#[derive(Debug)]
pub(super) struct Owner<F: Fabric> {
    pool: Pool<F>,
    /// The descriptor of the index.
    index: Descriptor,
    /// The descriptor of the range.
    pub(super) descriptor: Descriptor,
    tree: Mutex<Tree>,
    locks: Arc<LocalLocks<()>>,
    stock: Mutex<Vec<Client<F>>>,
    learning: Learning,
    emptied: Emptied,
    /// Whether the server no longer knows which leaves belong to the index.
    is_lost: AtomicBool,
    /// The name in the descriptor's lock. Dropping it lets another server take over.
    _token: LockToken,
}

impl<F: Fabric> Owner<F> {
    /// Becomes the owner of a range of the pool's index, by default the range whose descriptor is
    /// the index's. Waits while another server can still write, then repairs what it left half
    /// done.
    ///
    /// # Errors
    /// [`IndexError::NoIndex`]; [`IndexError::Moved`] if there is no such range; a damaged index;
    /// errors of the fabric.
    pub(super) async fn start(pool: &Pool<F>, range: Option<GlobalAddr>) -> Result<Arc<Self>> {
        let mut client = pool.client()?;
        // Models that a CAS may have linked are kept beyond their operation.
        pool.keep_blocks();
        let index = Descriptor::read(&mut client).await?;
        let descriptor = {
            let mut client = client.pin(OpKind::Maintain).await?;
            let table = Table::read(&mut client, &index).await?;
            let addr = range.unwrap_or(index.addr);
            let entry = table.find(addr).map(|at| &table.entries[at]);
            let entry = entry.ok_or(IndexError::Moved { addr })?;
            index.of_range(addr, (entry.node, entry.server))
        };
        if client.read_words::<1>(descriptor.lock()).await? != [0] {
            // The previous server may be dead while its lease still runs.
            pool.evict(&mut client).await?;
        }
        let tokens = LockTokens::of(pool);
        let acquired = {
            let mut pinned = client.pin(OpKind::Maintain).await?;
            remote_lock::acquire(&tokens, &mut pinned, (descriptor.lock(), None)).await?
        };
        let owner = Self {
            pool: pool.clone(),
            index,
            descriptor,
            tree: Mutex::default(),
            locks: Arc::default(),
            stock: Mutex::default(),
            learning: Learning::default(),
            emptied: Emptied::default(),
            is_lost: AtomicBool::new(false),
            _token: acquired.token.leave(),
        };
        let mut operation = Operation::pin(&owner, &mut client, OpKind::Maintain).await?;
        operation.recover().await?;
        drop(operation);
        owner.give_back(client);
        Ok(Arc::new(owner))
    }

    /// Returns a client for a call.
    fn take_client(&self) -> Result<Client<F>> {
        let kept = lock(&self.stock).pop();
        Ok(kept.map_or_else(|| self.pool.client(), Ok)?)
    }

    fn give_back(&self, client: Client<F>) {
        let mut stock = lock(&self.stock);
        if stock.len() < STOCK_MAX {
            stock.push(client);
        }
    }

    /// Stops serving calls: another owner has to find out which leaves belong to the index.
    fn lose(&self) {
        *self.tree() = Tree::default();
        self.is_lost.store(true, Ordering::Release);
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        lock(&self.tree)
    }

    /// Returns the number of the leaf for a key.
    ///
    /// # Errors
    /// [`IndexError::Moved`]; a damaged index.
    fn locate(&self, key: &[u8]) -> Result<u32> {
        let tree = self.tree();
        if !tree.has(key) {
            return Err(self.moved());
        }
        let below = tree.by_low.range::<[u8], _>((At::Unbounded, At::Included(key))).next_back();
        below.map(|(_, number)| *number).ok_or(self.damage("no leaf covers the key"))
    }

    /// Returns whether this server has no keys: its range is no longer part of the index.
    fn is_empty(&self) -> bool {
        self.tree().span.is_none()
    }

    /// The error for a call with keys of another server.
    fn moved(&self) -> IndexError {
        IndexError::Moved { addr: self.descriptor.addr }
    }

    /// The bound above all keys of this server.
    fn high(&self) -> Bound {
        self.tree().span.as_ref().map_or(Bound::None, |span| span.high.0.clone())
    }

    /// Returns the low bound of the leaf after the one that holds a key.
    fn bound_behind(&self, key: &[u8]) -> Option<Vec<u8>> {
        let tree = self.tree();
        tree.by_low.range::<[u8], _>((At::Excluded(key), At::Unbounded)).next().map(|(low, _)| low.clone())
    }

    /// Returns the number of the leaf after the one that holds a key; 0 if there is none.
    fn number_behind(&self, key: &[u8]) -> u32 {
        let tree = self.tree();
        let behind = tree.by_low.range::<[u8], _>((At::Excluded(key), At::Unbounded)).next();
        behind.map_or(0, |(_, number)| *number)
    }

    /// The error for a damaged index.
    fn damage(&self, what: &'static str) -> IndexError {
        IndexError::corrupt(self.descriptor.addr, what)
    }

    /// Runs one round of upkeep: begins to free everything that clients have unlinked, and trains
    /// models.
    async fn maintain(&self) -> Result<()> {
        let stock = std::mem::take(&mut *lock(&self.stock));
        drop(stock);
        let mut client = self.take_client()?;
        client.maintain().await?;
        let mut operation = Operation::pin(self, &mut client, OpKind::Maintain).await?;
        operation.learn().await?;
        drop(operation);
        self.give_back(client);
        Ok(())
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Locks the leaf for a key, repairs it if needed, and returns its number and content.
    ///
    /// # Errors
    /// [`IndexError::Moved`] for a key of another server; a damaged index; errors of the fabric.
    async fn lock_leaf(&mut self, key: &[u8]) -> Result<(LocalGuard<()>, u32, Leaf)> {
        let owner = self.shared;
        let mut learnt = 0;
        loop {
            let number = owner.locate(key)?;
            let guard = owner.locks.lock(u64::from(number)).await;
            // The leaf may have split or been removed in between.
            if owner.locate(key)? != number {
                continue;
            }
            let leaf = self.sound_leaf(number).await?;
            let next = leaf.head.header.next;
            if owner.number_behind(key) == next {
                return Ok((guard, number, leaf));
            }
            // It has split: a write failed but took effect.
            let low = self.bound_bytes(&leaf.head.high).await?.filter(|_| next != 0 && learnt < LEARNT_MAX);
            let low = low.ok_or(owner.damage("a leaf's right neighbour has changed"))?;
            owner.learn_leaf(&low, next);
            learnt += 1;
        }
    }

    /// The same, but tries the leaf of number `hint` first.
    ///
    /// # Errors
    /// A damaged index; errors of the fabric.
    async fn lock_hinted(&mut self, key: &[u8], hint: u32) -> Result<(LocalGuard<()>, u32, Leaf)> {
        let owner = self.shared;
        let is_leaf = || owner.tree().numbers.contains(&hint);
        if is_leaf() {
            let guard = owner.locks.lock(u64::from(hint)).await;
            // A bulk load may have removed it in between.
            if is_leaf() {
                let leaf = self.sound_leaf(hint).await?;
                if leaf.head.holds(key) == Some(true) {
                    return Ok((guard, hint, leaf));
                }
            }
        }
        self.lock_leaf(key).await
    }

    /// Returns the address of a word of a leaf.
    fn word_of(&self, number: u32, word: usize) -> GlobalAddr {
        self.shared.descriptor.leaf(number).plus(word as u64 * 8)
    }

    async fn read_leaf(&mut self, number: u32) -> Result<Leaf> {
        let Descriptor { layout, .. } = self.shared.descriptor;
        let addr = self.shared.descriptor.leaf(number);
        let words = self.client.read(addr, layout.words()).await?;
        Leaf::parse(layout, &words).ok_or(IndexError::corrupt(addr, "not a leaf of the index"))
    }

    /// Reads a leaf whose lock the caller holds, and repairs it if a write left it half done.
    ///
    /// # Errors
    /// A damaged index; errors of the fabric.
    async fn sound_leaf(&mut self, number: u32) -> Result<Leaf> {
        for _ in 0..3 {
            let leaf = self.read_leaf(number).await?;
            if self.is_sound(&leaf) {
                return Ok(leaf);
            }
            self.repair(number, &leaf).await?;
        }
        Err(IndexError::corrupt(self.shared.descriptor.leaf(number), "a leaf that cannot be repaired"))
    }

    /// Returns whether no change of a leaf is half done.
    fn is_sound(&self, leaf: &Leaf) -> bool {
        let Descriptor { layout, .. } = self.shared.descriptor;
        let count = leaf.head.counted().len();
        let is_whole = if layout.is_inline() {
            (0..count).all(|slot| leaf.record(slot).is_some())
        } else {
            leaf.head.keys[count..].iter().all(|&word| word == 0)
        };
        is_whole && !leaf.head.header.is_moving()
    }

    /// Returns the bytes of a bound; `None` for the bound above all keys.
    async fn bound_bytes(&mut self, bound: &Bound) -> Result<Option<Vec<u8>>> {
        bound_bytes(&mut self.client, bound).await
    }

    /// Reads the pair that a pointer leads to.
    async fn pair_of(&mut self, pointer: Pointer) -> Result<(Vec<u8>, Vec<u8>)> {
        let words = self.client.read(pointer.addr(), pointer.words()).await?;
        let held = pair::parse(pointer.addr(), &words)?;
        Ok((held.key.to_vec(), held.value.to_vec()))
    }
}
