//! DEX (VLDB 2024): a B+-tree whose keys are divided among compute servers, its *owners*, each of
//! which caches pages of its part and writes them back late.
//!
//! | module | content |
//! |---|---|
//! | [`node`] | pages: inner nodes and leaves of 1,024 bytes with fences and versions |
//! | [`cache`] | frames, mapping table, cooling map, delegation |
//! | [`pages`] | READs and WRITEs of pages, admission, room in the cache |
//! | [`read`], [`write`], [`split`] | the operations |
//! | [`offload`] | operations at memory nodes, and the rule that chooses them |
//! | [`load`], [`check`] | bulk load, and the walk of all pages |
//!
//! *Owners.* The bounds of the parts are stored with the index. Inner nodes on the way to a bound are
//! *shared*: they are read in three round trips and written under a lock in the pool. All other pages
//! are private: their owner reads them in one round trip, and locks them only locally. A shared page
//! in a cache may be outdated, which does no harm: the keys of an owner are moved only by the owner,
//! except when another owner splits a shared page, and then the fences of a child do not match, so
//! the shared pages on the way are read again. The root never moves; it grows in place. Keys of other
//! owners are refused, and a scan ends at the owner's bounds.
//!
//! *What it promises.* While its process lives, each operation is linearizable. A change is
//! acknowledged when it is in the owner's cache. If the owner dies, all changes since the last WRITE
//! of their pages are lost, splits included. Then a page and its parent may disagree about the page's
//! keys. The parent is right, because it is written after its children: the next owner adjusts the
//! page ([`node::Node::clamp`]), and [`check`] remarks it. A WRITE that the death cuts short leaves
//! a page that is neither the old one nor the new one, and every operation on its keys then returns
//! an error. Locks of shared pages stay taken by a dead owner; unlike the published ones they are
//! leases ([`crate::remote_lock`]), so that others go on. With [`DexOptions::write_through`] a change
//! is acknowledged after the WRITE of its page, and a split after the WRITEs of the new page, the
//! parent and the old page, in this order: then only a cut WRITE loses keys.
//!
//! `lab/docs/dex.md` has the measured costs, and all differences from the published code.
//!
//! Root words of the pool: 3 the kind, 8 the address of the descriptor: a word of flags (values in
//! blocks 8 | subtree levels 8 | number of bounds 16), the root's address, and the last key of each
//! owner except the last.

mod cache;
mod check;
#[cfg(test)]
mod figures;
mod load;
mod node;
mod offload;
mod options;
mod pages;
mod read;
mod split;
#[cfg(test)]
mod tests;
mod write;

pub use offload::DexService;
pub use options::{DexOptions, DexValues, Offload};

use crate::compute_node::LocalLocks;
use cache::Cache;
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_index::radix::drafts::Drafts;
use darter_index::{
    CheckReport, Condition, IndexError, IndexStats, KeyValue, OrderedIndex, PutOutcome, Result, ScanRange,
};
use darter_pool::{AllocKind, Client};
use node::{CHILDREN_MAX, Fences, NODE_BYTES, Node};
use offload::Costs;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

const NAME: &str = "dex";
/// "DEX" and the format's version, in the kind word of a pool's root.
const KIND: u64 = u64::from_le_bytes(*b"DEX\x01\0\0\0\0");
const KIND_WORD: usize = 3;
const DESCRIPTOR_WORD: usize = 8;
/// Words of the descriptor before the bounds.
const DESCRIPTOR_WORDS: usize = 2;
/// Maximum number of owners: at first the root has a leaf for each.
const OWNERS_MAX: usize = CHILDREN_MAX;
/// READs of the root, which another owner may be writing, when an index is opened.
const ROOT_READS: u32 = 64;
/// Bytes of a key.
const KEY_BYTES: usize = 8;
/// Number of the lock under which pages are split that several owners use, or whose changes are
/// written through. No page has this address.
const SPLITTING: GlobalAddr = GlobalAddr::new(0, 1);

type Operation<'a, F> = crate::operation::Operation<'a, Arc<Shared>, F>;

/// The parts of the owners.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owners {
    /// The last key of each owner except the last.
    highs: Vec<u64>,
}

impl Owners {
    fn of(&self, key: u64) -> usize {
        self.highs.partition_point(|&high| high < key)
    }

    fn count(&self) -> usize {
        self.highs.len() + 1
    }

    fn part(&self, owner: usize) -> Fences {
        let low = owner.checked_sub(1).map_or(0, |before| self.highs[before]);
        Fences { low, high: self.highs.get(owner).copied().unwrap_or(u64::MAX) }
    }

    /// Returns whether a page with these keys is used by several owners.
    fn share(&self, fences: Fences) -> bool {
        self.of(fences.first()) != self.of(fences.high)
    }
}

/// State of an owner, shared by the clients of its process.
#[derive(Debug)]
struct Shared {
    descriptor: GlobalAddr,
    root: GlobalAddr,
    owners: Owners,
    /// The owner's keys.
    part: Fences,
    subtree_levels: u8,
    options: DexOptions,
    cache: Mutex<Cache>,
    /// Locks of pages, by address, and [`SPLITTING`].
    locks: Arc<LocalLocks<()>>,
    /// Pages of splits that remain to be written, in this order.
    owed: Mutex<Vec<GlobalAddr>>,
    /// Pages of cancelled operations whose verbs may not have completed.
    unsettled: Mutex<Vec<GlobalAddr>>,
    costs: Mutex<Costs>,
}

impl Shared {
    fn has_blocks(&self) -> bool {
        self.options.values == DexValues::Blocks
    }

    /// Returns the number of a key of this owner.
    fn own(&self, key: &[u8]) -> Result<u64> {
        let number = number_of(key)?;
        if !self.part.contains(number) {
            return Err(IndexError::Options("the key belongs to another owner; send the operation there"));
        }
        Ok(number)
    }
}

/// Returns the number of a key.
fn number_of(key: &[u8]) -> Result<u64> {
    let number = key.try_into().map(u64::from_be_bytes);
    number.map_err(|_| IndexError::WrongLength { what: "key", bytes: key.len(), expected: KEY_BYTES })
}

/// One owner of a DEX index in a pool. Clones are the same owner and share its cache.
#[derive(Debug)]
pub struct Dex<F: Fabric> {
    shared: Arc<Shared>,
    fabric: PhantomData<fn() -> F>,
}

impl<F: Fabric> Clone for Dex<F> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), fabric: PhantomData }
    }
}

impl<F: Fabric> Dex<F> {
    /// Returns the owner of a key.
    ///
    /// # Errors
    /// [`IndexError::WrongLength`].
    pub fn owner_of(&self, key: &[u8]) -> Result<usize> {
        Ok(self.shared.owners.of(number_of(key)?))
    }

    /// Writes all changed pages of the cache to the pool.
    ///
    /// # Errors
    /// Errors of the pool and the fabric; the pages that were not written stay in the cache.
    pub async fn flush(&self, client: &mut Client<F>) -> Result<()> {
        Operation::pin(&self.shared, client, OpKind::Maintain).await?.flush().await
    }
}

impl<F: Fabric> OrderedIndex<F> for Dex<F> {
    const NAME: &'static str = NAME;

    type Options = DexOptions;

    async fn open(client: &mut Client<F>, options: DexOptions) -> Result<Self> {
        let mut client = client.pin(OpKind::Maintain).await?;
        let pool = client.pool();
        let (kind_word, descriptor_word) = (pool.root_word(KIND_WORD), pool.root_word(DESCRIPTOR_WORD));
        let [kind, descriptor] = client.read_each([kind_word, descriptor_word]).await?;
        if kind != KIND {
            return Err(IndexError::NoIndex { expected: NAME, found: kind });
        }
        let descriptor = GlobalAddr::from_bits(descriptor);
        let malformed = IndexError::corrupt(descriptor, "malformed descriptor of a DEX index");
        let [flags, root] = client.read_words(descriptor).await?;
        let [blocks, subtree_levels, few, many, ..] = flags.to_le_bytes();
        let bounds = usize::from(u16::from_le_bytes([few, many]));
        if bounds >= OWNERS_MAX || blocks > 1 || subtree_levels == 0 {
            return Err(malformed);
        }
        let highs = match bounds {
            0 => Vec::new(),
            _ => client.read(descriptor.plus(DESCRIPTOR_WORDS as u64 * 8), bounds).await?,
        };
        let (owners, root) = (Owners { highs }, GlobalAddr::from_bits(root));
        let owner = usize::from(options.owner);
        if owner >= owners.count() {
            return Err(IndexError::Options("owner: the index was created with fewer owners"));
        }
        let mut image = None;
        for _ in 0..ROOT_READS {
            let words = client.read(root, node::NODE_WORDS).await?;
            image = Node::from_words(root, &words).filter(|node| node.level() > 0);
            if image.is_some() {
                break;
            }
        }
        let image = image.ok_or(malformed)?;
        let values = if blocks == 1 { DexValues::Blocks } else { DexValues::Inline };
        let shared = Shared {
            descriptor,
            root,
            part: owners.part(owner),
            owners,
            subtree_levels,
            cache: Mutex::new(Cache::new(options.cache_bytes, options.seed, image)),
            locks: Arc::default(),
            owed: Mutex::default(),
            unsettled: Mutex::default(),
            costs: Mutex::default(),
            options: DexOptions { values, ..options },
        };
        Ok(Self { shared: Arc::new(shared), fabric: PhantomData })
    }

    async fn create(client: &mut Client<F>, options: DexOptions) -> Result<Self> {
        options.verify()?;
        create(client, &options).await?;
        Self::open(client, options).await
    }

    fn check_key(&self, key: &[u8]) -> Result<()> {
        number_of(key).map(drop)
    }

    async fn get(&self, client: &mut Client<F>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let key = self.shared.own(key)?;
        Operation::pin(&self.shared, client, OpKind::Get).await?.value(key).await
    }

    async fn put(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> Result<PutOutcome> {
        let number = self.shared.own(key)?;
        let mut operation = Operation::pin(&self.shared, client, condition.op_kind()).await?;
        operation.put(number, value, condition).await
    }

    async fn delete_when(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        condition: Condition<'_>,
    ) -> Result<bool> {
        let number = self.shared.own(key)?;
        Operation::pin(&self.shared, client, OpKind::Delete).await?.delete(number, condition).await
    }

    /// Reads the keys one after another: nothing like it is published.
    async fn multi_get_chunk(&self, client: &mut Client<F>, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut operation = Operation::pin(&self.shared, client, OpKind::MultiGet).await?;
        let mut values = Vec::with_capacity(keys.len());
        for key in keys {
            values.push(operation.value(self.shared.own(key)?).await?);
        }
        Ok(values)
    }

    async fn scan(&self, client: &mut Client<F>, range: &ScanRange, limit: usize) -> Result<Vec<KeyValue>> {
        Operation::pin(&self.shared, client, OpKind::Scan).await?.scan(range, limit).await
    }

    async fn bulk_load<I>(&self, client: &mut Client<F>, sorted: I) -> Result<u64>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        Operation::pin(&self.shared, client, OpKind::Load).await?.load(sorted).await
    }

    async fn maintain(&self, client: &mut Client<F>) -> Result<()> {
        if self.shared.options.flushes_in_upkeep { self.flush(client).await } else { Ok(()) }
    }

    async fn check(&self, client: &mut Client<F>) -> Result<CheckReport> {
        Operation::pin(&self.shared, client, OpKind::Maintain).await?.inspect(true).await
    }

    async fn stats(&self, client: &mut Client<F>) -> Result<IndexStats> {
        Ok(Operation::pin(&self.shared, client, OpKind::Maintain).await?.inspect(false).await?.stats)
    }

    fn cache_used_bytes(&self) -> u64 {
        crate::sync::lock(&self.shared.cache).used() as u64 * NODE_BYTES
    }
}

/// Creates a root with an empty leaf for each owner; if several clients create them, one wins.
async fn create<F: Fabric>(client: &mut Client<F>, options: &DexOptions) -> Result<()> {
    let mut client = client.pin(OpKind::Maintain).await?;
    let owners = Owners { highs: options.bounds.iter().map(|&first| first - 1).collect() };
    let pool = client.pool();
    let nodes = pool.nodes();
    let (kind_word, descriptor_word) = (pool.root_word(KIND_WORD), pool.root_word(DESCRIPTOR_WORD));
    let mut drafts = Drafts::new();
    let made = async {
        let bytes = (DESCRIPTOR_WORDS + owners.highs.len()) as u64 * 8;
        let descriptor = drafts.alloc(&mut client, 0, bytes, AllocKind::Inner).await?;
        let root = drafts.alloc(&mut client, 0, NODE_BYTES, AllocKind::Inner).await?;
        let mut leaves = Vec::new();
        for owner in 0..owners.count() {
            let node = (owner % usize::from(nodes)) as u8;
            leaves.push(drafts.alloc(&mut client, node, NODE_BYTES, AllocKind::Inner).await?);
        }
        Ok::<_, IndexError>((descriptor, root, leaves))
    };
    let (descriptor, root, leaves) = match made.await {
        Ok(made) => made,
        Err(error) => {
            drafts.discard(&mut client);
            return Err(error);
        }
    };
    let mut image = Node::new(root, 1, Fences::ALL, owners.count() > 1);
    let mut batch = client.batch();
    for (owner, leaf) in leaves.into_iter().enumerate() {
        let part = owners.part(owner);
        image.push_child(leaf, part.high);
        batch.write(leaf, Node::new(leaf, 0, part, false).sealed());
    }
    batch.write(root, image.sealed());
    let [few, many] = (owners.highs.len() as u16).to_le_bytes();
    let blocks = u8::from(options.values == DexValues::Blocks);
    let flags = u64::from_le_bytes([blocks, options.subtree_levels, few, many, 0, 0, 0, 0]);
    let words: Vec<u64> = [flags, root.bits()].into_iter().chain(owners.highs).collect();
    batch.write(descriptor, &words);
    client.complete(batch).await?;
    let mut batch = client.batch();
    let cas = batch.cas(descriptor_word, 0, descriptor.bits());
    batch.fence().cas(kind_word, 0, KIND);
    let done = client.submit(batch).await?;
    let won = done.swapped(cas);
    client.recycle(done);
    if won {
        drafts.keep();
    } else {
        drafts.discard(&mut client);
    }
    Ok(())
}
