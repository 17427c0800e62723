//! The interface and guarantees that all indexes share, so that one benchmark and one checker can
//! run any of them.
//!
//! Every index guarantees:
//!
//! - Point operations are linearizable.
//! - A scan returns keys in order, each at most once: every key that was present throughout, and no
//!   key that was absent throughout.
//! - An operation ends with a result or a typed error, whatever bytes the pool holds.
//!
//! Indexes differ in whether an operation may wait for another client. Operations of DART never do.
//! Indexes with locks wait while another client holds one; the lock of a client that can no longer
//! write is taken over.

mod balance;
mod evacuate;
mod loss;
mod modify;
mod report;
mod sweep;
mod transaction;
mod tree;

pub use balance::{Balance, NodeFill};
pub(crate) use balance::{fullest, is_even};
pub(crate) use evacuate::CANNOT_EVACUATE;
pub use evacuate::Evacuated;
pub(crate) use loss::CANNOT_SALVAGE;
pub use loss::{CutOff, Gap, LostNodes, Salvaged};
pub use report::{CheckReport, EstStats, IndexStats, NodeTypeStats};
pub use sweep::Swept;
pub(crate) use transaction::check_order;
pub use transaction::{Access, Commit, Version, Versioned, Write};
pub use tree::{TreeEdge, TreeView};

use crate::{IndexError, Result};
use darter_fabric::{Fabric, OpKind};
use darter_pool::{Client, ReachableSet};
use std::future::Future;
use std::ops::Bound;

/// Number of keys that share the round trips of one multi-get; longer lists are split.
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

/// Receives the pairs of a scan.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) + Send + 'a;

/// Decides by a key's value (`None` if the key is absent). For [`Decision::Put`] it writes the new
/// value to the buffer.
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

/// What to do with a key, as decided by a closure that has seen its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Leaves the key as it is.
    Keep,
    /// Stores the value that was written.
    Put,
    /// Removes the key, if it is present.
    Remove,
}

impl Condition<'_> {
    /// Whether the condition can hold only for a key that is present.
    pub const fn wants_key(self) -> bool {
        matches!(self, Self::Present | Self::Equals(_))
    }

    /// Whether the condition holds for a key with this value, or for an absent key if `None`.
    pub fn holds_for(self, value: Option<&[u8]>) -> bool {
        match self {
            Self::Always => true,
            Self::Absent => value.is_none(),
            Self::Present => value.is_some(),
            Self::Equals(wanted) => value == Some(wanted),
        }
    }

    /// The operation kind that a put under this condition is counted as.
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
    /// The key was absent and has been inserted.
    Inserted,
    /// The key's value was replaced.
    Replaced,
    /// The condition did not hold; nothing changed.
    Refused,
}

/// The part of the key space that a scan covers, and its direction.
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

    /// Whether a key lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        !self.begins_behind(key) && !self.ends_before(key)
    }

    /// Whether all keys in the range are greater than this one.
    pub(crate) fn begins_behind(&self, key: &[u8]) -> bool {
        match &self.from {
            Bound::Included(from) => key < &from[..],
            Bound::Excluded(from) => key <= &from[..],
            Bound::Unbounded => false,
        }
    }

    /// Whether all keys in the range are less than this one.
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

/// An ordered index over a pool. `client` belongs to the calling thread or task. Clones are handles
/// of the same index in the same compute node: they share its caches and all other per-process
/// state.
///
/// An index implements the required methods. It may also implement the provided methods of the
/// second part; of `get` and `get_with`, of `scan` and `visit`, and of `delete_when` and
/// `modify_as` it must implement at least one, because the default of each calls the other. The
/// remaining methods are built on these.
pub trait OrderedIndex<F: Fabric>: Clone + Sized + Send + Sync + 'static {
    /// The index's name in commands and tables.
    const NAME: &'static str;

    /// How a process uses an index. Options that determine what is stored take effect when the
    /// index is created.
    type Options: Clone + Default + Send + Sync + 'static;

    /// Opens the pool's index of this kind. Fails with [`IndexError::NoIndex`] if the pool holds
    /// none.
    fn open(client: &mut Client<F>, options: Self::Options) -> impl Future<Output = Result<Self>> + Send;

    /// Creates an index of this kind in a pool that holds none, and opens it. If several clients do
    /// so at once, each gets the same index.
    fn create(client: &mut Client<F>, options: Self::Options) -> impl Future<Output = Result<Self>> + Send;

    /// Stores a value under a key if the condition holds.
    fn put(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> impl Future<Output = Result<PutOutcome>> + Send;

    /// Returns the values of the first keys of a list, in their order: of at least one key, and of
    /// all keys if their values have less than 1 MiB together. Takes as many round trips as the
    /// longest search among them. Called by [`OrderedIndex::multi_get`], which has checked the keys.
    fn multi_get_chunk(
        &self,
        client: &mut Client<F>,
        keys: &[&[u8]],
    ) -> impl Future<Output = Result<Vec<Option<Vec<u8>>>>> + Send;

    /// Fills an empty index from strictly ascending keys. Returns the number of keys. Nothing is
    /// visible until the load ends.
    fn bulk_load<I>(&self, client: &mut Client<F>, sorted: I) -> impl Future<Output = Result<u64>> + Send
    where
        I: Iterator<Item = KeyValue> + Send;

    /// Walks the whole index, verifies every invariant, and reports what is reachable.
    fn check(&self, client: &mut Client<F>) -> impl Future<Output = Result<CheckReport>> + Send;

    /// Returns counts and sizes, from a walk of the whole index.
    fn stats(&self, client: &mut Client<F>) -> impl Future<Output = Result<IndexStats>> + Send;

    // Provided methods that an index may override.

    /// Returns the index's name. If `Self` can hold one of several indexes, this is the name of the
    /// one it holds.
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

    /// Returns the value of a key.
    fn get(
        &self,
        client: &mut Client<F>,
        key: &[u8],
    ) -> impl Future<Output = Result<Option<Vec<u8>>>> + Send {
        self.get_with(client, key, <[u8]>::to_vec)
    }

    /// Returns the result of `f` applied to a key's value. Indexes that can do so override this to
    /// avoid copying the value.
    fn get_with<R>(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> R + Send,
    ) -> impl Future<Output = Result<Option<R>>> + Send {
        async move { Ok(self.get(client, key).await?.map(|value| f(&value))) }
    }

    /// Returns the first `limit` keys of a range, in its direction, with their values. If there are
    /// fewer, the range is exhausted.
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

    /// [`OrderedIndex::scan_with`] by a reference, so that a scan is compiled once. Indexes that
    /// can do so override this to avoid copying the pairs.
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

    /// Removes a key if the condition holds. Returns whether the key was removed.
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
    /// The default reads the key, then puts or removes it on condition that its value has not
    /// changed, and repeats this until the condition holds.
    fn modify_as(
        &self,
        client: &mut Client<F>,
        _kind: OpKind,
        key: &[u8],
        decide: &mut Decide<'_>,
    ) -> impl Future<Output = Result<Decision>> + Send {
        modify::by_conditions(self, client, key, decide)
    }

    /// Returns the values of the first keys of a list as [`OrderedIndex::multi_get_first`] does,
    /// each with its version, for [`OrderedIndex::commit`]. Indexes without transactions return no
    /// versions.
    fn read_versions(
        &self,
        client: &mut Client<F>,
        keys: &[&[u8]],
    ) -> impl Future<Output = Result<Vec<Versioned>>> + Send {
        async move {
            let values = self.multi_get_first(client, keys).await?;
            Ok(values.into_iter().map(|value| (value, None)).collect())
        }
    }

    /// Changes several keys at once, if each key that was read still has the value that was read.
    /// The keys must ascend, each once. `attempt` says how often the caller has run the transaction
    /// before: of two transactions that meet, the one with more attempts goes on.
    ///
    /// # Errors
    /// [`IndexError::Options`] if the index has no transactions. Nothing has changed if the pool is
    /// out of space, or if a key and its two values are too long for this pool.
    fn commit(
        &self,
        _client: &mut Client<F>,
        _accesses: &[Access<'_>],
        _attempt: u16,
    ) -> impl Future<Output = Result<Commit>> + Send {
        async { Err(IndexError::Options("this index has no transactions; create the pool with `quiver`")) }
    }

    /// Prefetches the data that operations on these keys will read, if it is in this machine's
    /// memory.
    fn prefetch<'k>(&self, _client: &Client<F>, _keys: impl Iterator<Item = &'k [u8]>) {}

    /// Does upkeep that is due, such as scrubbing hints. Cheap if nothing is due.
    fn maintain(&self, _client: &mut Client<F>) -> impl Future<Output = Result<()>> + Send {
        std::future::ready(Ok(()))
    }

    /// Adapts the index's structure to the accesses seen so far, if that is due.
    fn adapt(&self, _client: &mut Client<F>) -> impl Future<Output = Result<()>> + Send {
        std::future::ready(Ok(()))
    }

    /// Frees what dead clients left behind. The client must not be pinned. Other clients may be
    /// working; the sweep waits for them as described at [`darter_pool::Pool::finish_adoption`]. If
    /// a walk fails, memory that was not freed is left to a later sweep.
    fn sweep_dead(&self, client: &mut Client<F>) -> impl Future<Output = Result<Swept>> + Send {
        sweep::sweep_dead(self, client)
    }

    /// Moves objects off a memory node on which no new ones are placed any longer
    /// ([`darter_pool::Pool::begin_removal`]): one step, from the first key that is `from` or
    /// greater. Other clients may work during the step; objects that they replace may stay.
    ///
    /// # Errors
    /// [`IndexError::Options`] if this index cannot do that; those of the fabric; out of space. What
    /// was moved stays moved.
    fn evacuate(
        &self,
        _client: &mut Client<F>,
        _node: u8,
        _from: &[u8],
    ) -> impl Future<Output = Result<Evacuated>> + Send {
        async { Err(IndexError::Options(CANNOT_EVACUATE)) }
    }

    /// Moves objects from memory nodes that hold more than their share to others, as far as `balance`
    /// says: one step, from the first key that is `from` or greater. Other clients may work during the
    /// step.
    ///
    /// # Errors
    /// As [`OrderedIndex::evacuate`].
    fn level(
        &self,
        _client: &mut Client<F>,
        _balance: &mut Balance,
        _from: &[u8],
    ) -> impl Future<Output = Result<Evacuated>> + Send {
        async { Err(IndexError::Options(CANNOT_EVACUATE)) }
    }

    /// Whether [`OrderedIndex::evacuate`] and [`OrderedIndex::level`] are implemented.
    fn evacuates(&self) -> bool {
        false
    }

    /// Reads the pairs that can be read without some memory nodes: one step, from the first key that is
    /// `from` or greater. Other clients may work during the step.
    ///
    /// # Errors
    /// [`IndexError::Options`] if this index cannot do that; those of the fabric, also if a node that is
    /// not one of `lost` cannot be reached.
    fn salvage(
        &self,
        _client: &mut Client<F>,
        _lost: LostNodes,
        _from: &[u8],
    ) -> impl Future<Output = Result<Salvaged>> + Send {
        async { Err(IndexError::Options(CANNOT_SALVAGE)) }
    }

    /// Removes all hints that lead to objects otherwise than by the tree: those in the pool, and those that
    /// this process keeps. What is below a lost object cannot be marked as removed, so hints must not
    /// lead there.
    ///
    /// # Errors
    /// As [`OrderedIndex::cut_off`].
    fn drop_hints(
        &self,
        _client: &mut Client<F>,
        _lost: LostNodes,
    ) -> impl Future<Output = Result<()>> + Send {
        async { Err(IndexError::Options(CANNOT_SALVAGE)) }
    }

    /// Removes all references to memory nodes that have left the pool although they were not empty
    /// ([`darter_pool::Pool::give_up_nodes`]): one step, from the first key that is `from` or greater.
    /// No hint may lead below the lost objects ([`OrderedIndex::drop_hints`]). After the last step
    /// the index is sound, without the keys that the steps have returned.
    ///
    /// # Errors
    /// [`IndexError::Options`] if this index cannot do that; those of the fabric; out of space. What was
    /// cut off stays so.
    fn cut_off(
        &self,
        _client: &mut Client<F>,
        _lost: LostNodes,
        _from: &[u8],
    ) -> impl Future<Output = Result<CutOff>> + Send {
        async { Err(IndexError::Options(CANNOT_SALVAGE)) }
    }

    /// Whether [`OrderedIndex::salvage`] and [`OrderedIndex::cut_off`] are implemented.
    fn salvages(&self) -> bool {
        false
    }

    /// Clears hints that point outside `reachable`. Returns whether that may have made more objects
    /// unreachable. Part of [`OrderedIndex::sweep_dead`], for an index that keeps hints in the
    /// pool.
    fn scrub_unreachable(
        &self,
        _client: &mut Client<F>,
        _reachable: &ReachableSet,
    ) -> impl Future<Output = Result<bool>> + Send {
        std::future::ready(Ok(false))
    }

    /// Bytes of cache that this process holds for the index.
    fn cache_used_bytes(&self) -> u64 {
        0
    }

    // Methods built on those above.

    /// Opens the pool's index of this kind, and creates it if the pool holds none. Fails with
    /// [`IndexError::NoIndex`] if the pool holds an index of another kind.
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

    /// Removes a key. Returns whether it was present.
    fn delete(&self, client: &mut Client<F>, key: &[u8]) -> impl Future<Output = Result<bool>> + Send {
        self.delete_when(client, key, Condition::Always)
    }

    /// Removes a key if `is_wanted` accepts its value. Returns whether the key was removed.
    /// `is_wanted` may be called several times; the last call received the value that was removed.
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

    /// Puts, changes or removes a key as `decide` says. `decide` receives the key's value (`None`
    /// if it is absent) and, for [`Decision::Put`], writes the new value to the buffer. It may be
    /// called several times, each time with an empty buffer; its last call received the value that
    /// was replaced. Returns the last decision.
    fn modify(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        mut decide: impl FnMut(Option<&[u8]>, &mut Vec<u8>) -> Decision + Send,
    ) -> impl Future<Output = Result<Decision>> + Send {
        async move { self.modify_as(client, OpKind::Update, key, &mut decide).await }
    }

    /// Passes the first `limit` pairs of a range, in its direction, to `visit`. Returns the number
    /// of pairs.
    fn scan_with(
        &self,
        client: &mut Client<F>,
        range: &ScanRange,
        limit: usize,
        mut visit: impl FnMut(&[u8], &[u8]) + Send,
    ) -> impl Future<Output = Result<usize>> + Send {
        async move { self.visit(client, range, limit, &mut visit).await }
    }

    /// Returns the values of the first keys of a list, in their order: of at least one key if the
    /// list is not empty, and of at most 256. They share the round trips of the longest search among
    /// them, except that values of 1 MiB or more together end the read early.
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

    /// Returns the values of several keys, in their order, read as by
    /// [`OrderedIndex::multi_get_first`].
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
