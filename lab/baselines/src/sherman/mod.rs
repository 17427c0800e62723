//! Sherman (SIGMOD 2022): a B-link tree in disaggregated memory; with its techniques switched off,
//! FG+ and FG (SIGMOD 2019).
//!
//! Nodes ([`page`]) have 1 KiB, fences and sibling links. Leaves have unsorted entries ([`entry`]),
//! of which only the changed one is written back. Every compute node caches inner nodes
//! ([`cache`]). The hierarchical locks ([`crate::hocl`]) are leases. The root's address never
//! changes: it grows and shrinks in place.
//!
//! Root words: 3 the kind, 8 the address of a descriptor: shape, link to the root, descriptor of
//! the locks.
//!
//! `lab/docs/sherman.md` states what the published design leaves open, what this implementation
//! does, and what that costs.

pub(crate) mod bound;
mod bulk;
pub(crate) mod cache;
mod check;
pub(crate) mod entry;
pub(crate) mod format;
pub(crate) mod hopscotch;
mod hopscotch_layout;
#[cfg(test)]
mod interleavings;
mod link;
mod merge;
pub(crate) mod nodes;
pub(crate) mod options;
pub(crate) mod page;
mod scan;
pub(crate) mod search;
pub(crate) mod situations;
pub(crate) mod split;
pub(crate) mod walk;
pub(crate) mod write;

pub use options::{Records, ShermanOptions};
#[cfg(feature = "checker")]
pub use situations::sherman_situations;

use crate::hocl::Hocl;
use crate::lock_token::LockTokens;
use crate::sync::lock;
use bound::Bound;
use cache::Cache;
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_index::check_key;
use darter_index::{
    CheckReport, Condition, IndexError, IndexStats, KeyValue, OrderedIndex, PutOutcome, Result, ScanRange,
};
use darter_pool::{AllocKind, Client};
use entry::STAMP_BITS;
use format::Shape;
use format::{Format, mix};
use page::{Body, Draft, Link, is_plausible, tag_with_size};
use split::Parted;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The differences between the indexes that are such trees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeKind {
    pub(crate) name: &'static str,
    /// The kind word of a pool's root.
    pub(crate) word: u64,
}

/// "SHERMAN" and the format's version, in the kind word of a pool's root.
const KIND: TreeKind = TreeKind { name: "sherman", word: u64::from_le_bytes(*b"SHERMAN\x02") };
const KIND_WORD: usize = 3;
const DESCRIPTOR_WORD: usize = 8;
/// Words of the descriptor: shape, root, locks.
const DESCRIPTOR_WORDS: usize = 3;
/// Maximum number of recorded nodes that a parent may not list, and of keys of leaves to merge.
const UNTOLD_MAX: usize = 256;
/// Number of unlisted nodes from which no more are created.
const UNTOLD_MANY: usize = 16;
const DESCRIPTOR_BYTES: u64 = DESCRIPTOR_WORDS as u64 * 8;

/// An operation in progress.
pub(crate) type Operation<'a, F> = crate::operation::Operation<'a, Shared, F>;

/// State of the index shared by the clients of a compute node.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) format: Format,
    pub(crate) descriptor: GlobalAddr,
    pub(crate) root: Link,
    pub(crate) locks: Hocl,
    pub(crate) cache: Cache,
    options: ShermanOptions,
    /// Nodes that their parents may not list, with their levels, and whether updating the parent
    /// found the pool full.
    untold: Mutex<Vec<(u8, Parted, bool)>>,
    /// Keys of leaves that were left empty.
    unmerged: Mutex<Vec<Vec<u8>>>,
    /// Source of the stamps, tags and places of new nodes.
    dice: AtomicU64,
}

impl Shared {
    fn untold(&self) -> MutexGuard<'_, Vec<(u8, Parted, bool)>> {
        lock(&self.untold)
    }

    /// Records that a node of this level may be missing in its parent: the next maintenance adds
    /// it.
    fn note_untold(&self, level: u8, parted: Parted, was_full: bool) {
        let mut untold = self.untold();
        if untold.len() < UNTOLD_MAX && !untold.iter().any(|(_, known, _)| known.1 == parted.1) {
            untold.push((level, parted, was_full));
        }
    }

    /// Returns whether no more nodes may be created, because too many could not be added to their
    /// parents for lack of room.
    pub(crate) fn cannot_tell(&self) -> bool {
        self.untold().iter().filter(|(.., was_full)| *was_full).count() >= UNTOLD_MANY
    }

    fn unmerged(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        lock(&self.unmerged)
    }

    /// Records that the leaf of this key is empty: the next maintenance tries to merge it.
    pub(crate) fn note_unmerged(&self, key: &[u8]) {
        let mut unmerged = self.unmerged();
        if unmerged.len() < UNTOLD_MAX {
            unmerged.push(key.to_vec());
        }
    }

    fn random(&self) -> u64 {
        let drawn = self.dice.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        mix(mix(self.format.seed, drawn), drawn >> 32)
    }

    /// Returns a stamp for the image after one with this stamp: 64 new bits, of which the bits in
    /// pointers count up and are never 0.
    fn stamp_after(&self, stamp: u64) -> u64 {
        const MASK: u64 = (1 << STAMP_BITS) - 1;
        let random = self.random();
        let low = if stamp == 0 { random } else { stamp + 1 } & MASK;
        random & !MASK | low.max(1)
    }
}

/// A Sherman index in a pool. Clones share locks and cache.
#[derive(Debug)]
pub struct Sherman<F: Fabric> {
    pub(crate) shared: Arc<Shared>,
    fabric: PhantomData<fn() -> F>,
}

impl<F: Fabric> Clone for Sherman<F> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), fabric: PhantomData }
    }
}

impl<F: Fabric> Sherman<F> {
    /// Rejects keys and values that do not fit the index's shape.
    pub(crate) fn check_sizes(&self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        check_key(key)?;
        let shape = &self.shared.format;
        match (shape.key, shape.value, value) {
            (Some(expected), ..) if key.len() != expected => {
                Err(IndexError::WrongLength { what: "key", bytes: key.len(), expected })
            }
            (_, Some(expected), Some(value)) if value.len() != expected => {
                Err(IndexError::WrongLength { what: "value", bytes: value.len(), expected })
            }
            _ => Ok(()),
        }
    }
}

impl Draft {
    /// Returns an empty leaf of all keys.
    fn empty() -> Self {
        let body = Body::Leaf { prefix: 0, entries: Vec::new() };
        Self { level: 0, low: Bound::least(), high: None, sibling: Link::NONE, body }
    }
}

impl<F: Fabric> Sherman<F> {
    /// Opens a tree of a kind.
    ///
    /// # Errors
    /// Errors of [`OrderedIndex::open`].
    pub(crate) async fn open_as(
        client: &mut Client<F>,
        options: ShermanOptions,
        tree: TreeKind,
    ) -> Result<Self> {
        let mut client = client.pin(OpKind::Maintain).await?;
        let pool = client.pool();
        let (kind_word, descriptor_word) = (pool.root_word(KIND_WORD), pool.root_word(DESCRIPTOR_WORD));
        let [kind, descriptor] = client.read_each([kind_word, descriptor_word]).await?;
        let descriptor = GlobalAddr::from_bits(descriptor);
        if kind != tree.word {
            return Err(IndexError::NoIndex { expected: tree.name, found: kind });
        }
        let words = client.read(descriptor, DESCRIPTOR_WORDS).await?;
        let root = Link::from_word(words[1]);
        let mut shape = Shape::from_word(words[0])
            .filter(|shape| is_plausible(client.pool(), root.addr(), shape.leaf_bytes()))
            .ok_or(IndexError::corrupt(descriptor, "malformed descriptor of a Sherman index"))?;
        shape.redo &= options.redo_images;
        let format = Format::new(shape, client.pool().secret());
        // No other handle has the word of this token.
        let token = LockTokens::of(client.pool()).issue(&mut client)?;
        let dice = AtomicU64::new(mix(format.seed, token.word()));
        token.release();
        let locks = Hocl::open(&mut client, GlobalAddr::from_bits(words[2]), options.locks).await?;
        let shared = Shared {
            format,
            descriptor,
            root,
            locks,
            cache: Cache::new(options.cache_bytes),
            options,
            untold: Mutex::default(),
            unmerged: Mutex::default(),
            dice,
        };
        Ok(Self { shared: Arc::new(shared), fabric: PhantomData })
    }

    /// Creates an empty root and its locks; if several clients create them, one wins.
    ///
    /// # Errors
    /// Errors of [`OrderedIndex::create`].
    pub(crate) async fn create_as(
        client: &mut Client<F>,
        options: ShermanOptions,
        shape: Shape,
        tree: TreeKind,
    ) -> Result<Self> {
        {
            let mut client = client.pin(OpKind::Maintain).await?;
            let pool = client.pool();
            let (kind_word, descriptor_word) = (pool.root_word(KIND_WORD), pool.root_word(DESCRIPTOR_WORD));
            let format = Format::new(shape, pool.secret());
            let locks = Hocl::create(&mut client, u64::from(options.lock_words)).await?;
            let mut drafts = darter_index::radix::drafts::Drafts::new();
            let made = async {
                let root = drafts.alloc(&mut client, 0, shape.leaf_bytes(), AllocKind::Inner).await?;
                let descriptor = drafts.alloc(&mut client, 0, DESCRIPTOR_BYTES, AllocKind::Inner).await?;
                Ok::<_, IndexError>((root, descriptor))
            };
            let (root, descriptor) = match made.await {
                Ok(made) => made,
                Err(error) => {
                    drafts.discard(&mut client);
                    Hocl::free_unpublished(&mut client, locks);
                    return Err(error);
                }
            };
            let root = Link::new(root, tag_with_size(&format, mix(format.seed, root.bits()), true));
            let image = Draft::empty().image(&format, root.addr(), root.tag(), 1).unwrap_or_default();
            let mut batch = client.batch();
            batch.write(root.addr(), &image);
            batch.write(descriptor, &[shape.word(), root.word(), locks.bits()]);
            client.complete(batch).await?;
            let mut batch = client.batch();
            let cas = batch.cas(descriptor_word, 0, descriptor.bits());
            batch.fence().cas(kind_word, 0, tree.word);
            let done = client.submit(batch).await?;
            let won = done.swapped(cas);
            client.recycle(done);
            if won {
                drafts.keep();
            } else {
                drafts.discard(&mut client);
                Hocl::free_unpublished(&mut client, locks);
            }
        }
        let index = Self::open_as(client, options, tree).await?;
        index.shared.locks.make_tables(client).await?;
        Ok(index)
    }
}

impl<F: Fabric> OrderedIndex<F> for Sherman<F> {
    const NAME: &'static str = KIND.name;

    type Options = ShermanOptions;

    async fn open(client: &mut Client<F>, options: ShermanOptions) -> Result<Self> {
        Self::open_as(client, options, KIND).await
    }

    async fn create(client: &mut Client<F>, options: ShermanOptions) -> Result<Self> {
        Self::create_as(client, options, Shape::of(&options)?, KIND).await
    }

    fn check_key(&self, key: &[u8]) -> Result<()> {
        self.check_sizes(key, None)
    }

    async fn get(&self, client: &mut Client<F>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.check_sizes(key, None)?;
        Ok(self.values_of(client, &[key], OpKind::Get).await?.pop().flatten())
    }

    async fn put(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> Result<PutOutcome> {
        self.put_value(client, key, value, condition).await
    }

    async fn delete_when(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        condition: Condition<'_>,
    ) -> Result<bool> {
        self.delete_key(client, key, condition).await
    }

    async fn multi_get_chunk(&self, client: &mut Client<F>, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.values_of(client, keys, OpKind::MultiGet).await
    }

    async fn scan(&self, client: &mut Client<F>, range: &ScanRange, limit: usize) -> Result<Vec<KeyValue>> {
        self.scan_pairs(client, range, limit).await
    }

    async fn bulk_load<I>(&self, client: &mut Client<F>, sorted: I) -> Result<u64>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        self.load_sorted(client, sorted).await
    }

    async fn maintain(&self, client: &mut Client<F>) -> Result<()> {
        self.tell_parents(client).await?;
        self.merge_left_over(client).await
    }

    async fn check(&self, client: &mut Client<F>) -> Result<CheckReport> {
        self.check_all(client).await
    }

    async fn stats(&self, client: &mut Client<F>) -> Result<IndexStats> {
        Ok(self.inspect(client, false).await?.stats)
    }

    fn cache_used_bytes(&self) -> u64 {
        self.shared.cache.bytes()
    }
}
