//! The contract that every index fulfils, so that one benchmark and one checker run them all.
//!
//! Every index promises:
//!
//! - Point operations are linearizable.
//! - A scan returns keys in order, each at most once: every key that was there throughout, and none
//!   that was absent throughout.
//! - An operation ends with a result or a typed error, whatever bytes the pool holds.
//!
//! Whether an operation may wait for another client differs. Those of DART never do. Indexes with
//! locks do while another client holds one; the lock of a client that can write no more is taken
//! over.

mod modify;
mod sweep;
mod tree;

pub use sweep::Swept;
pub use tree::{TreeEdge, TreeView};

use crate::{IndexError, Result};
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_pool::{Client, ReachableSet};
use std::fmt::Display;
use std::future::Future;
use std::ops::Bound;

/// Keys that share the round trips of one multi-get; longer lists go in several.
pub(crate) const MULTI_GET_WIDTH: usize = 256;

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 * 1024;

/// Returns an error for a key that is too long.
///
/// # Errors
/// [`IndexError::KeyTooLong`] if the key is longer than [`KEY_BYTES_MAX`].
pub fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > KEY_BYTES_MAX {
        return Err(IndexError::KeyTooLong { bytes: key.len(), max: KEY_BYTES_MAX });
    }
    Ok(())
}

/// Takes the pairs of a scan.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) + Send + 'a;

/// Decides by a key's value, none when it is absent; for [`Decision::Put`] it writes the new value.
pub type Decide<'a> = dyn FnMut(Option<&[u8]>, &mut Vec<u8>) -> Decision + Send + 'a;

/// A key with its value.
pub type KeyValue = (Vec<u8>, Vec<u8>);

/// When a put takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition<'a> {
    /// Always: an upsert.
    Always,
    /// Only when the key is absent: an insert.
    Absent,
    /// Only when the key is present: an update.
    Present,
    /// Only when the key's value equals this one: a compare-and-swap of values.
    Equals(&'a [u8]),
}

/// What becomes of a key, as decided by a closure that has seen its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It stays as it is.
    Keep,
    /// It gets the value that was written.
    Put,
    /// It goes; one that is absent stays so.
    Remove,
}

impl Condition<'_> {
    /// Whether it can hold only for a key that is there.
    pub const fn wants_key(self) -> bool {
        matches!(self, Self::Present | Self::Equals(_))
    }

    /// Whether it holds for a key with this value, none when the key is absent.
    pub fn holds_for(self, value: Option<&[u8]>) -> bool {
        match self {
            Self::Always => true,
            Self::Absent => value.is_none(),
            Self::Present => value.is_some(),
            Self::Equals(wanted) => value == Some(wanted),
        }
    }

    /// What a put under this condition counts as.
    pub const fn op_kind(self) -> OpKind {
        match self {
            Self::Always | Self::Absent => OpKind::Insert,
            Self::Present | Self::Equals(_) => OpKind::Update,
        }
    }
}

/// What a put did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The key was absent and is now there.
    Inserted,
    /// The key's value was replaced.
    Replaced,
    /// The condition did not hold; nothing changed.
    Refused,
}

/// The part of the key space a scan covers, and its direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanRange {
    /// Lower bound.
    pub from: Bound<Vec<u8>>,
    /// Upper bound.
    pub to: Bound<Vec<u8>>,
    /// Whether keys come in descending order.
    pub reverse: bool,
}

impl ScanRange {
    /// All keys, ascending.
    pub fn all() -> Self {
        Self { from: Bound::Unbounded, to: Bound::Unbounded, reverse: false }
    }

    /// The keys that begin with `prefix`, ascending.
    pub fn prefix(prefix: &[u8]) -> Self {
        let from = if prefix.is_empty() { Bound::Unbounded } else { Bound::Included(prefix.to_vec()) };
        // The least string above every string with the prefix: drop trailing 0xff, add one to the
        // last byte left.
        let kept = prefix.iter().rposition(|&b| b != 0xff).map(|last| {
            let mut bound = prefix[..=last].to_vec();
            bound[last] += 1;
            bound
        });
        Self { from, to: kept.map_or(Bound::Unbounded, Bound::Excluded), reverse: false }
    }

    /// Whether a key lies in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        !self.begins_behind(key) && !self.ends_before(key)
    }

    /// Whether all keys in it are greater than this one.
    pub(crate) fn begins_behind(&self, key: &[u8]) -> bool {
        match &self.from {
            Bound::Included(from) => key < &from[..],
            Bound::Excluded(from) => key <= &from[..],
            Bound::Unbounded => false,
        }
    }

    /// Whether all keys in it are less than this one.
    pub(crate) fn ends_before(&self, key: &[u8]) -> bool {
        match &self.to {
            Bound::Included(to) => key > &to[..],
            Bound::Excluded(to) => key >= &to[..],
            Bound::Unbounded => false,
        }
    }

    /// The same range in descending order.
    #[must_use]
    pub fn reversed(mut self) -> Self {
        self.reverse = !self.reverse;
        self
    }
}

/// An ordered index over a pool. `client` is the calling thread's or task's own. Clones are handles
/// of the same index in the same compute node: they share its caches and whatever else its clients
/// share.
///
/// An index writes the methods of the first part, and those of the second part that it has something to
/// say to: of `get` and `get_with`, of `scan` and `visit`, and of `delete_when` and `modify_as` it
/// writes at least one, by which the trait makes the other. All else follows.
pub trait OrderedIndex<F: Fabric>: Clone + Sized + Send + Sync + 'static {
    /// The index's name in commands and tables.
    const NAME: &'static str;

    /// How a process uses an index; where it shapes what is stored, it counts when the index is
    /// created.
    type Options: Clone + Default + Send + Sync + 'static;

    /// Opens the pool's index of this kind. Fails with [`IndexError::NoIndex`] if it holds none.
    fn open(client: &mut Client<F>, options: Self::Options) -> impl Future<Output = Result<Self>> + Send;

    /// Creates an index of this kind in a pool that holds none, and opens it. Of several clients
    /// that do so at once each gets the same index.
    fn create(client: &mut Client<F>, options: Self::Options) -> impl Future<Output = Result<Self>> + Send;

    /// Stores a value under a key when the condition holds.
    fn put(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> impl Future<Output = Result<PutOutcome>> + Send;

    /// The values of the first of several keys, in their order, in the round trips of the longest
    /// search among them: of at least one, and of all if the values are small. A part of
    /// [`OrderedIndex::multi_get`], which has checked the keys.
    fn multi_get_chunk(
        &self,
        client: &mut Client<F>,
        keys: &[&[u8]],
    ) -> impl Future<Output = Result<Vec<Option<Vec<u8>>>>> + Send;

    /// Fills an empty index from strictly ascending keys. Returns how many there were. Nothing is
    /// visible before the end.
    fn bulk_load<I>(&self, client: &mut Client<F>, sorted: I) -> impl Future<Output = Result<u64>> + Send
    where
        I: Iterator<Item = KeyValue> + Send;

    /// Walks the whole index, verifies every invariant, and reports what is reachable.
    fn check(&self, client: &mut Client<F>) -> impl Future<Output = Result<CheckReport>> + Send;

    /// Counts and sizes, by a walk of the whole index.
    fn stats(&self, client: &mut Client<F>) -> impl Future<Output = Result<IndexStats>> + Send;

    // Methods that an index may have of its own.

    /// Returns the index's name; that of the index itself where `Self` stands for one of several.
    fn name(&self) -> &'static str {
        Self::NAME
    }

    /// Returns an error for a key that the index cannot hold, whatever its value.
    ///
    /// # Errors
    /// [`IndexError::KeyTooLong`], or [`IndexError::WrongLength`].
    fn check_key(&self, key: &[u8]) -> Result<()> {
        check_key(key)
    }

    /// The value of a key.
    fn get(
        &self,
        client: &mut Client<F>,
        key: &[u8],
    ) -> impl Future<Output = Result<Option<Vec<u8>>>> + Send {
        self.get_with(client, key, <[u8]>::to_vec)
    }

    /// Returns what `f` makes of a key's value. An index that need not copy the value out first does
    /// without.
    fn get_with<R>(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> R + Send,
    ) -> impl Future<Output = Result<Option<R>>> + Send {
        async move { Ok(self.get(client, key).await?.map(|value| f(&value))) }
    }

    /// The first `limit` keys of a range in its direction, with their values. Fewer mean the range
    /// is exhausted.
    fn scan(
        &self,
        client: &mut Client<F>,
        range: &ScanRange,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<KeyValue>>> + Send {
        async move {
            let mut pairs = Vec::new();
            let mut keep = |key: &[u8], value: &[u8]| pairs.push((key.to_vec(), value.to_vec()));
            self.visit(client, range, limit, &mut keep).await?;
            Ok(pairs)
        }
    }

    /// [`OrderedIndex::scan_with`] by a reference, so that a scan is compiled once. An index that need
    /// not copy the pairs first does without.
    fn visit<'v>(
        &self,
        client: &mut Client<F>,
        range: &ScanRange,
        limit: usize,
        visit: &'v mut Visit<'v>,
    ) -> impl Future<Output = Result<usize>> + Send {
        async move {
            let pairs = self.scan(client, range, limit).await?;
            for (key, value) in &pairs {
                visit(key, value);
            }
            Ok(pairs.len())
        }
    }

    /// Removes a key when the condition holds. Returns whether it was there and is gone.
    fn delete_when(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        condition: Condition<'_>,
    ) -> impl Future<Output = Result<bool>> + Send {
        self.delete_if(client, key, move |value| condition.holds_for(Some(value)))
    }

    /// [`OrderedIndex::modify`] by a reference, counted as an operation of this kind.
    ///
    /// An index without a way of its own reads the key, and puts or removes it on the condition that
    /// its value is still that one, until the condition holds.
    fn modify_as(
        &self,
        client: &mut Client<F>,
        _kind: OpKind,
        key: &[u8],
        decide: &mut Decide<'_>,
    ) -> impl Future<Output = Result<Decision>> + Send {
        modify::by_conditions(self, client, key, decide)
    }

    /// Prefetches what operations on these keys are going to read, where that is in memory of this
    /// machine.
    fn prefetch<'k>(&self, _client: &Client<F>, _keys: impl Iterator<Item = &'k [u8]>) {}

    /// Upkeep that is due: scrubbing of hints, and the like. Cheap when nothing is.
    fn maintain(&self, _client: &mut Client<F>) -> impl Future<Output = Result<()>> + Send {
        std::future::ready(Ok(()))
    }

    /// Adapts what the index keeps to the accesses that it has seen, if that is due.
    fn adapt(&self, _client: &mut Client<F>) -> impl Future<Output = Result<()>> + Send {
        std::future::ready(Ok(()))
    }

    /// Frees what dead clients left behind. The client must not be pinned; other clients may be at
    /// work, and are waited for as [`darter_pool::Pool::finish_adoption`] says. When a walk cannot
    /// go on, what was not freed is left to another sweep.
    fn sweep_dead(&self, client: &mut Client<F>) -> impl Future<Output = Result<Swept>> + Send {
        sweep::sweep_dead(self, client)
    }

    /// Clears what leads anywhere outside `reachable` although the index does not rest on it.
    /// Returns whether that may have made more unreachable. A part of [`OrderedIndex::sweep_dead`],
    /// for an index that keeps hints in the pool.
    fn scrub_unreachable(
        &self,
        _client: &mut Client<F>,
        _reachable: &ReachableSet,
    ) -> impl Future<Output = Result<bool>> + Send {
        std::future::ready(Ok(false))
    }

    /// Bytes this process caches for the index.
    fn cache_used_bytes(&self) -> u64 {
        0
    }

    // What follows from these.

    /// Opens the pool's index of this kind, creating it in a pool that holds none. Fails with
    /// [`IndexError::NoIndex`] if it holds another kind.
    fn open_or_create(
        client: &mut Client<F>,
        options: Self::Options,
    ) -> impl Future<Output = Result<Self>> + Send {
        async move {
            match Self::open(client, options.clone()).await {
                Err(IndexError::NoIndex { found: 0, .. }) => Self::create(client, options).await,
                opened => opened,
            }
        }
    }

    /// Removes a key. Returns whether it was there.
    fn delete(&self, client: &mut Client<F>, key: &[u8]) -> impl Future<Output = Result<bool>> + Send {
        self.delete_when(client, key, Condition::Always)
    }

    /// Removes a key whose value `is_wanted`. Returns whether it did. It may be called several
    /// times; the value it was called with last is the one that is gone.
    fn delete_if(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        mut is_wanted: impl FnMut(&[u8]) -> bool + Send,
    ) -> impl Future<Output = Result<bool>> + Send {
        async move {
            let mut decide = |value: Option<&[u8]>, _: &mut Vec<u8>| {
                if value.is_some_and(&mut is_wanted) { Decision::Remove } else { Decision::Keep }
            };
            Ok(self.modify_as(client, OpKind::Delete, key, &mut decide).await? == Decision::Remove)
        }
    }

    /// Puts, changes or removes a key as `decide` says of its value, none when it is absent; for
    /// [`Decision::Put`] it writes the new value. It may be called several times, with the buffer
    /// empty each time; the value it was called with last is the one that its decision took the
    /// place of. Returns that decision.
    fn modify(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        mut decide: impl FnMut(Option<&[u8]>, &mut Vec<u8>) -> Decision + Send,
    ) -> impl Future<Output = Result<Decision>> + Send {
        async move { self.modify_as(client, OpKind::Update, key, &mut decide).await }
    }

    /// Hands the first `limit` pairs of a range, in its direction, to `visit`; returns how many there
    /// were.
    fn scan_with(
        &self,
        client: &mut Client<F>,
        range: &ScanRange,
        limit: usize,
        mut visit: impl FnMut(&[u8], &[u8]) + Send,
    ) -> impl Future<Output = Result<usize>> + Send {
        async move { self.visit(client, range, limit, &mut visit).await }
    }

    /// The values of the first of several keys, in their order: of at least one if there is one. Large
    /// values end the read early. Up to 256 keys share the round trips of the longest search among
    /// them.
    fn multi_get_first(
        &self,
        client: &mut Client<F>,
        keys: &[&[u8]],
    ) -> impl Future<Output = Result<Vec<Option<Vec<u8>>>>> + Send {
        async move {
            let keys = &keys[..keys.len().min(MULTI_GET_WIDTH)];
            for key in keys {
                self.check_key(key)?;
            }
            if keys.is_empty() { Ok(Vec::new()) } else { self.multi_get_chunk(client, keys).await }
        }
    }

    /// The values of several keys, in their order, as [`OrderedIndex::multi_get_first`] reads them.
    fn multi_get(
        &self,
        client: &mut Client<F>,
        keys: &[&[u8]],
    ) -> impl Future<Output = Result<Vec<Option<Vec<u8>>>>> + Send {
        async move {
            for key in keys {
                self.check_key(key)?;
            }
            let (mut values, mut width) = (Vec::with_capacity(keys.len()), MULTI_GET_WIDTH);
            while values.len() < keys.len() {
                let end = keys.len().min(values.len() + width);
                let first = self.multi_get_chunk(client, &keys[values.len()..end]).await?;
                width = MULTI_GET_WIDTH.min(first.len() * 2);
                values.extend(first);
            }
            Ok(values)
        }
    }
}

/// What a check found.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// Broken invariants, in words a person can act on; empty when the index is sound. At most
    /// 1,000 are kept.
    pub violations: Vec<String>,
    /// Things worth knowing that break nothing: work a dead client left half done, and the like.
    pub remarks: Vec<String>,
    /// Hints that name a node which is no longer in the index. None is left when nothing unlinked
    /// waits to be freed.
    pub stale_hints: u64,
    /// Every object reachable from the index's roots, for the pool's audit.
    pub reachable: ReachableSet,
    /// Counts and sizes.
    pub stats: IndexStats,
}

/// Bytes of leaves that a check reads in one round trip.
const LEAF_BATCH_BYTES: usize = 1 << 20;

/// Violations and remarks kept each.
const FINDINGS_MAX: usize = 1000;

impl CheckReport {
    /// Adds a broken invariant, unless as many as are kept are there.
    pub fn violation(&mut self, text: String) {
        if self.violations.len() < FINDINGS_MAX {
            self.violations.push(text);
        }
    }

    /// Records that `what` cannot be read because no such object is there.
    ///
    /// # Errors
    /// An error that says nothing about the pool's bytes, such as a lost connection: then the check cannot go on.
    pub fn unreadable(&mut self, what: impl Display, error: impl Into<IndexError>) -> Result<()> {
        let error = error.into();
        if !error.is_damage() {
            return Err(error);
        }
        self.violation(format!("{what}: {error}"));
        Ok(())
    }

    /// Reads leaves, each by its address and length in words, as many in a round trip as a mebibyte
    /// holds, and hands the words of each to `verify`.
    ///
    /// # Errors
    /// Those of [`CheckReport::unreadable`].
    pub async fn verify_each<F: Fabric, T: Sync>(
        &mut self,
        client: &mut Client<F>,
        leaves: &[(T, GlobalAddr, usize)],
        mut verify: impl FnMut(&mut Self, &T, &[u64]) + Send,
    ) -> Result<()> {
        let mut rest = leaves;
        while let [(_, first, _), ..] = rest {
            let (mut batch, mut reads, mut bytes) = (client.batch(), Vec::new(), 0);
            while let [(leaf, addr, words), tail @ ..] = rest
                && (reads.is_empty() || bytes + words * 8 <= LEAF_BATCH_BYTES)
            {
                reads.push((leaf, batch.read(*addr, *words)));
                bytes += words * 8;
                rest = tail;
            }
            match client.complete(batch).await {
                Ok(done) => reads.iter().for_each(|&(leaf, read)| verify(self, leaf, done.words(read))),
                Err(error) => self.unreadable(format_args!("leaves read with that at {first}"), error)?,
            }
        }
        Ok(())
    }

    /// Adds a remark, unless as many as are kept are there.
    pub fn remark(&mut self, text: String) {
        if self.remarks.len() < FINDINGS_MAX {
            self.remarks.push(text);
        }
    }

    /// Notes an object as reached. Returns whether it is new and overlaps no other; otherwise that
    /// is a violation.
    pub fn reach(&mut self, addr: GlobalAddr, bytes: u64, what: &str) -> bool {
        let is_fresh = self.reachable.insert(addr, bytes);
        if !is_fresh {
            self.violation(format!("{what} at {addr}: overlaps another object, or is reached twice"));
        }
        is_fresh
    }
}

/// Counts and sizes of an index.
#[derive(Clone, Debug, Default)]
pub struct IndexStats {
    /// Keys.
    pub keys: u64,
    /// Bytes of leaves: keys, values, headers, rounding.
    pub kv_bytes: u64,
    /// Bytes of everything else: inner nodes and the express skip table; of Quiver nodes and pages, with
    /// the pairs that lie in these.
    pub index_bytes: u64,
    /// Inner nodes by type name, smallest type first: count, bytes, live children.
    pub nodes: Vec<NodeTypeStats>,
    /// `levels[d]` counts the leaves with `d` inner nodes above them (index 0 unused).
    pub levels: Vec<u64>,
    /// Deepest leaf, in inner nodes.
    pub depth_max: usize,
    /// The express skip table, where the index has one.
    pub est: Option<EstStats>,
}

/// One inner-node type's share.
#[derive(Clone, Debug)]
pub struct NodeTypeStats {
    /// `N4` and so on.
    pub name: &'static str,
    /// Nodes of this type.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Live children in them.
    pub children: u64,
}

/// The express skip table's state (DART, section 3.1).
#[derive(Clone, Debug, Default)]
pub struct EstStats {
    /// The prefix list, in bytes, ascending.
    pub prefix_list: Vec<u8>,
    /// Entries in the directory.
    pub directory_entries: u64,
    /// Segments.
    pub segments: u64,
    /// Slots in use.
    pub entries: u64,
    /// Slots there are.
    pub slots: u64,
    /// Bytes of directory and segments.
    pub bytes: u64,
}
