//! How Redis keys are stored in an ordered index, and how a command reads and changes a key
//! (docs/gateway.md).
//!
//! A key has one record, its *head* (`head.rs`). The head's key in the index is a byte for the
//! family and then the Redis key, so heads are in the order of their keys. Every change of a key is
//! one put or delete of its head, on condition that the head is still the one that the command has
//! read. So commands are atomic for each key, across all gateways.
//!
//! A key whose expiry time has passed counts as absent; each gateway uses its own clock. A command
//! that finds such a head removes it, if it is still the same.
//!
//! The elements of a small hash, set or sorted set lie in its head (`packed.rs`, `small.rs`). Those of
//! a large one are separate records (`aggregate.rs`, `fields.rs`, `members.rs`), each as atomic as a
//! head. A head without elements also counts as absent. The elements of a list lie in its head, or in
//! chunks (`lists`), and the entries of a stream in both (`streams`).

mod aggregate;
mod atomically;
mod changed;
#[cfg(test)]
mod crossings;
mod cursors;
mod databases;
mod drafts;
mod events;
mod expiry;
mod fields;
mod gateways;
mod head;
mod joins;
mod key_event;
mod key_locks;
mod kind;
#[cfg(test)]
mod large;
#[cfg(feature = "scripts")]
mod libraries;
mod lists;
mod members;
mod order;
mod packed;
mod retries;
mod scoped;
mod small;
#[cfg(test)]
mod small_crossings;
mod streams;
mod sweep;
#[cfg(test)]
mod tests;
mod timed;
mod timed_change;
#[cfg(test)]
mod timed_crossings;
mod timed_record;
mod transfer;
mod usage;
mod users;
mod walk;

pub(super) use aggregate::Aggregate;
pub(super) use changed::Changes;
pub(super) use databases::{DATABASES, is_place_of_head, place_in_index};
pub(super) use drafts::Draft;
pub(super) use expiry::{Census, Expiry, Stepped};
pub(super) use gateways::GatewayRecord;
pub(super) use head::Head;
pub(super) use joins::{Join, Joined};
pub(super) use key_event::KeyEvent;
pub(super) use key_locks::KeyLocks;
pub(super) use kind::Kind;
pub(super) use lists::{Edit, Edited, Elements as ListElements, End, InPlace, is_one_record, part};
pub(super) use members::{Member, Ranks};
pub(super) use order::{record_of_score, score_of_record};
pub(super) use packed::{Packed, Tally};
pub(super) use retries::Retries;
pub(super) use scoped::Scoped;
pub(super) use small::Taken;
pub(super) use streams::{
    Added, Consumer, Entry as StreamEntry, Group, NewId, OpenStream, Pending, PendingEdit, PendingWalk,
    Stream, StreamId, StreamWalk, Trim, TrimTo, WholeGroup, WholeStream, body_of,
};
pub(super) use sweep::FORGOTTEN_MS;
pub(super) use timed_record::Field;
pub(super) use transfer::{Destination, Transferred};
pub(super) use walk::{Chunk, KeyRange, Walked};

use super::fault::Fault;
use super::turns;
use aggregate::{Session, bury, doubt, is_empty};
use darter::engine::{Engine, KeySpace};
use darter::{Condition, Counters, IndexError, KEY_BYTES_MAX, PutOutcome, Store};
use members::Rescored;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The first byte of a record's key, by kind of record. These keys belong to [`KeySpace::Gateway`],
/// so they never conflict with a program's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Generations whose elements are being written before any head names them.
    Building = b'b' as isize,
    /// Cursors of `SCAN`.
    Cursor = b'c' as isize,
    /// The records of databases other than 0 (`databases.rs`).
    Database = b'd' as isize,
    /// Fields of hashes and members of sets.
    Field = b'f' as isize,
    /// Gateways.
    Gateway = b'g' as isize,
    /// Heads.
    Key = b'k' as isize,
    /// Chunks of lists.
    ListChunk = b'e' as isize,
    /// Libraries of functions.
    #[cfg_attr(not(feature = "scripts"), expect(dead_code, reason = "scripts use it"))]
    Library = b'l' as isize,
    /// Members of sorted sets.
    Member = b'm' as isize,
    /// Members of sorted sets, by score.
    Score = b's' as isize,
    /// Chunks of streams.
    StreamChunk = b'x' as isize,
    /// Consumers of streams.
    StreamConsumer = b'u' as isize,
    /// Consumer groups of streams.
    StreamGroup = b'y' as isize,
    /// Pending entries of consumer groups.
    StreamPending = b'p' as isize,
    /// Users.
    User = b'a' as isize,
}

/// The effect of a command on a key.
#[derive(Debug)]
pub(super) enum Change<R> {
    /// Leaves it unchanged.
    Keep(R),
    /// Stores the new record.
    Put(R),
    /// Removes it.
    Remove(R),
}

impl<R> Change<R> {
    /// Returns the result of the command.
    fn result(self) -> R {
        let (Self::Keep(result) | Self::Put(result) | Self::Remove(result)) = self;
        result
    }
}

/// Access to the keys, for one command at a time.
#[derive(Debug)]
pub(super) struct Keyspace {
    store: Store,
    locks: Arc<KeyLocks>,
    /// Opened on first use, since some commands need no pool.
    session: Option<Session>,
    /// How many times the store had rejoined its pool when the keyspace was created.
    joins: u64,
    /// The time of the current command, in ms since the Unix epoch.
    pub now: u64,
    /// The keys that the commands of the transaction in progress may have changed, while clients
    /// wait for elements.
    pub changed: BTreeSet<Scoped>,
    /// Whether commands may sleep; if so, the executor must have timers.
    pub may_sleep: bool,
    key: Vec<u8>,
    old: Vec<u8>,
    new: Vec<u8>,
}

/// Maximum length of a key for which a prefetch is worthwhile.
const FORESEEN_BYTES_MAX: usize = 256;
/// Most bytes of a record's key in the index, without the byte of [`KeySpace::Gateway`].
const PLACE_BYTES: usize = KEY_BYTES_MAX - 1;
/// Most bytes of a key: its head's place also has the byte of the family.
pub(super) const KEY_BYTES: usize = PLACE_BYTES - 1;
/// Records that a read of several names requests at first; their values may be large.
pub(super) const TOGETHER_FIRST: usize = 16;
/// Most records that a read of several names requests.
pub(super) const TOGETHER_MAX: usize = 512;
/// Buffers beyond this size are freed after a command.
const KEPT_BYTES: usize = 64 << 10;

fn session<'s>(slot: &'s mut Option<Session>, store: &Store) -> Result<&'s mut Session, Fault> {
    match slot {
        Some(session) => Ok(session),
        None => Ok(slot.insert(Session::new(store.worker_in(KeySpace::Gateway)?))),
    }
}

fn place(buffer: &mut Vec<u8>, family: Family, key: &[u8]) {
    buffer.clear();
    buffer.push(family as u8);
    buffer.extend_from_slice(key);
}

/// Writes the place of a key's head.
///
/// # Errors
/// Fails if the key is longer than [`KEY_BYTES`].
fn place_of_head(buffer: &mut Vec<u8>, key: &[u8]) -> Result<(), Fault> {
    check_key(key)?;
    place(buffer, Family::Key, key);
    Ok(())
}

/// Fails if no gateway can store a key of this length.
fn check_key(key: &[u8]) -> Result<(), Fault> {
    if key.len() <= KEY_BYTES {
        return Ok(());
    }
    let too_long = IndexError::KeyTooLong { bytes: key.len(), max: KEY_BYTES };
    Err(Fault::Store(too_long.into()))
}

/// Returns the number of bytes before the value in a string's record.
fn bytes_before_value(record: &[u8]) -> usize {
    let head = Head::parse(record);
    let value = head.and_then(|head| head.string());
    value.map_or(0, |value| record.len() - value.len())
}

/// Returns the error of storing a head. It states the length of the value, without the head's bytes
/// before the value.
fn of_value(error: darter::Error, bytes_before: usize) -> Fault {
    match error {
        darter::Error::Index(IndexError::ValueTooLong { bytes, max }) => {
            let (bytes, max) = (bytes.saturating_sub(bytes_before), max.saturating_sub(bytes_before));
            Fault::Store(IndexError::ValueTooLong { bytes, max }.into())
        }
        error => error.into(),
    }
}

/// Removes the key whose head is at a place, with its elements, if it has expired. Returns whether
/// it was removed.
async fn remove_if_over(session: &mut Session, at: &[u8], now: u64) -> Result<bool, Fault> {
    let (mut aggregate, events) = (None, session.events());
    let removed = session.remove_if(at, |record| {
        let over = Head::parse(record).ok().filter(|head| !head.lives(now));
        aggregate = over.and_then(|head| Aggregate::of(&at[1..], &head));
        over.is_some()
    });
    let is_removed = removed.await?;
    if is_removed && let Some(aggregate) = &aggregate {
        bury(session, aggregate, usize::MAX).await?;
    }
    if is_removed {
        session.expired(&at[1..], events);
    }
    Ok(is_removed)
}

impl Keyspace {
    /// Creates access to a store's keys for commands that share these locks.
    pub(super) fn new(store: Store, locks: Arc<KeyLocks>) -> Self {
        let (key, old, new) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            joins: store.joins(),
            store,
            locks,
            session: None,
            now: 0,
            changed: BTreeSet::new(),
            may_sleep: false,
            key,
            old,
            new,
        }
    }

    /// Returns the locks that order the commands of this thread.
    pub(super) fn locks(&self) -> Arc<KeyLocks> {
        Arc::clone(&self.locks)
    }

    /// Returns whether the session belongs to the store's current membership. A command begins with
    /// such a session, so that it works on one pool from its first step to its last.
    pub(super) fn is_current(&self) -> bool {
        self.joins == self.store.joins()
    }

    /// Returns the costs so far.
    pub(super) fn counters(&self) -> Counters {
        self.session.as_ref().map(|session| session.counters()).unwrap_or_default()
    }

    /// Frees memory that a large command used, and ends a transaction that was abandoned.
    pub(super) fn rest(&mut self) {
        self.roll_back();
        if let Some(session) = &mut self.session {
            session.enter(0);
        }
        self.changed.clear();
        for buffer in [&mut self.key, &mut self.old, &mut self.new] {
            if buffer.capacity() > KEPT_BYTES {
                *buffer = Vec::new();
            }
        }
    }

    /// Prefetches the records that commands on these keys will read.
    pub(super) fn prefetch<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) {
        let Some(session) = &mut self.session else { return };
        let (places, mut ends) = (&mut self.new, SmallVec::<[usize; 32]>::new());
        places.clear();
        for key in keys.filter(|key| key.len() <= FORESEEN_BYTES_MAX) {
            places.push(Family::Key as u8);
            places.extend_from_slice(key);
            ends.push(places.len());
        }
        let mut from = 0;
        session.prefetch(ends.into_iter().map(|end| &places[std::mem::replace(&mut from, end)..end]));
    }

    /// Calls `f` with a key's head, or with `None` if the key is absent, and returns its result.
    ///
    /// # Errors
    /// The store's errors, and [`super::fault::FOREIGN`].
    #[inline]
    pub(super) async fn look<R: Send>(
        &mut self,
        key: &[u8],
        f: impl FnOnce(Option<Head<'_>>) -> R + Send,
    ) -> Result<R, Fault> {
        place_of_head(&mut self.key, key)?;
        let (now, mut f) = (self.now, Some(f));
        let session = session(&mut self.session, &self.store)?;
        let mut take = |head: Option<Head<'_>>| f.take().map(|f| f(head));
        let (mut is_over, mut aggregate, old) = (false, None, &mut self.old);
        let found = session.get_with(&self.key, |record| {
            let head = Head::parse(record)?;
            is_over = !head.lives(now);
            if !is_over && head.generation().is_some() {
                aggregate = Aggregate::of(key, &head);
                old.clear();
                old.extend_from_slice(record);
                return Ok(None);
            }
            Ok::<_, Fault>(if is_over { None } else { take(Some(head)) })
        });
        if let Some(result) = found.await?.transpose()?.flatten() {
            return Ok(result);
        }
        let mut head = None;
        if is_over {
            self.remove_if_over(key).await?;
        } else if let Some(aggregate) = aggregate
            && !is_empty(session, &aggregate, now).await?
        {
            head = Some(Head::parse(&self.old)?);
        }
        Ok(take(head).unwrap_or_else(|| unreachable!("a head is passed on once")))
    }

    /// Changes a key as `decide` says. Calls `decide` again with the new head if another client
    /// changes it in between. For [`Change::Put`], `decide` writes a whole record, begun with
    /// [`Head::begin`].
    ///
    /// # Errors
    /// The store's errors, [`super::fault::FOREIGN`], and those of `decide`.
    pub(super) async fn change<R: Send>(
        &mut self,
        key: &[u8],
        decide: impl FnMut(Option<Head<'_>>, &mut Vec<u8>) -> Result<Change<R>, Fault> + Send,
    ) -> Result<R, Fault> {
        self.change_unless_kept(key, None, decide).await
    }

    /// Does the same, but does not check whether a key of type `kept` that does not expire has
    /// elements. If its head names a generation, `decide` must return [`Change::Keep`] for it.
    async fn change_unless_kept<R: Send>(
        &mut self,
        key: &[u8],
        kept: Option<Kind>,
        mut decide: impl FnMut(Option<Head<'_>>, &mut Vec<u8>) -> Result<Change<R>, Fault> + Send,
    ) -> Result<R, Fault> {
        place_of_head(&mut self.key, key)?;
        let mut retries = Retries::default();
        loop {
            let Self { store, session: slot, now, key: at, locks, old, .. } = self;
            let guard = locks.lock(slot.as_ref(), at).await;
            let (mut changed, mut before, mut is_over) = (None, 0, false);
            let session = session(slot, store)?;
            let events = session.events();
            let modified = session.update(&at, |record| {
                changed = None;
                let head = match record.map(Head::parse).transpose() {
                    Ok(Some(head))
                        if head.generation().is_some()
                            && (head.expiry.is_some() || Some(head.kind.seen()) != kept) =>
                    {
                        // The head alone does not show whether there are elements.
                        old.clear();
                        old.extend_from_slice(record.unwrap_or_default());
                        return darter::Change::Keep;
                    }
                    Ok(head) => head,
                    Err(foreign) => {
                        changed = Some(Err(foreign));
                        return darter::Change::Keep;
                    }
                };
                let alive = head.filter(|head| head.lives(*now));
                is_over = head.is_some() && alive.is_none();
                let mut new = Vec::new();
                match changed.insert(decide(alive, &mut new)) {
                    Ok(Change::Put(_)) => {
                        before = bytes_before_value(&new);
                        darter::Change::Put(new)
                    }
                    Ok(Change::Remove(_)) => darter::Change::Remove,
                    // An expired key is removed, regardless of the command.
                    Ok(Change::Keep(_)) if is_over => darter::Change::Remove,
                    Ok(Change::Keep(_)) | Err(_) => darter::Change::Keep,
                }
            });
            modified.await.map_err(|error| of_value(error, before))?;
            drop(guard);
            if is_over && let Some(Ok(change)) = &changed {
                session.expired(key, events);
                if matches!(change, Change::Put(_)) {
                    session.touched(at);
                }
            }
            if let Some(change) = changed {
                return Ok(change?.result());
            }
            if let Some(result) = Box::pin(self.change_aggregate(key, &mut decide)).await? {
                return Ok(result);
            }
            retries.again().await?;
        }
    }

    /// Does the same for a key whose head, which was just read, has elements. Returns `None` if
    /// another client changes the head in between.
    async fn change_aggregate<R: Send>(
        &mut self,
        key: &[u8],
        decide: &mut impl FnMut(Option<Head<'_>>, &mut Vec<u8>) -> Result<Change<R>, Fault>,
    ) -> Result<Option<R>, Fault> {
        let Self { store, session: slot, now, key: at, old, new, .. } = self;
        let session = session(slot, store)?;
        let head = Head::parse(old)?;
        let lives = head.lives(*now);
        let aggregate = Aggregate::of(key, &head);
        let is_absent = match &aggregate {
            Some(aggregate) if lives => is_empty(session, aggregate, *now).await?,
            _ => !lives,
        };
        new.clear();
        let change = decide(Some(head).filter(|_| !is_absent), new)?;
        let (is_put, events) = (matches!(change, Change::Put(_)), session.events());
        if lives
            && is_absent
            && !matches!(change, Change::Keep(_))
            && let Some(aggregate) = &aggregate
        {
            let Some(doubted) = doubt(session, aggregate, old, *now).await? else { return Ok(None) };
            *old = doubted;
        }
        let result = match change {
            Change::Put(result) => {
                let put = session.put_if(&at, &new, Condition::Equals(old));
                let put = put.await.map_err(|error| of_value(error, bytes_before_value(new)))?;
                if put == PutOutcome::Refused {
                    return Ok(None);
                }
                if Head::parse(new)?.generation() == Head::parse(old).ok().and_then(|head| head.generation())
                {
                    return Ok(Some(result));
                }
                result
            }
            Change::Remove(result) => {
                if !session.remove_if(&at, |record| record == *old).await? {
                    return Ok(None);
                }
                result
            }
            Change::Keep(result) => {
                if lives || !session.remove_if(&at, |record| record == *old).await? {
                    return Ok(Some(result));
                }
                result
            }
        };
        if let Some(aggregate) = &aggregate {
            bury(session, aggregate, usize::MAX).await?;
        }
        if !lives {
            session.expired(key, events);
            if is_put {
                session.touched(at);
            }
        }
        Ok(Some(result))
    }

    /// Sets a key to a string, whatever its type was.
    ///
    /// # Errors
    /// The store's errors.
    #[inline]
    pub(super) async fn set(&mut self, key: &[u8], value: &[u8], expiry: Option<u64>) -> Result<(), Fault> {
        place_of_head(&mut self.key, key)?;
        Head::begin(&mut self.new, Kind::String, expiry);
        self.new.extend_from_slice(value);
        let before = self.new.len() - value.len();
        let session = session(&mut self.session, &self.store)?;
        if session.is_in_transaction() {
            session.write_blind(&self.key, Some(self.new.clone()))?;
            return Ok(());
        }
        session.put(&self.key, &self.new).await.map_err(|error| of_value(error, before))?;
        Ok(())
    }

    /// Removes a key. Returns whether it existed.
    ///
    /// # Errors
    /// The store's errors.
    pub(super) async fn remove(&mut self, key: &[u8]) -> Result<bool, Fault> {
        place_of_head(&mut self.key, key)?;
        let now = self.now;
        let session = session(&mut self.session, &self.store)?;
        let mut retries = Retries::default();
        let events = session.events();
        loop {
            let (mut lived, mut aggregate) = (false, None);
            let removed = session.remove_if(&self.key, |record| {
                let head = Head::parse(record);
                // An invalid record may be removed too.
                lived = head.as_ref().map_or(true, |head| head.lives(now));
                aggregate = head.ok().and_then(|head| Aggregate::of(key, &head));
                aggregate.is_none()
            });
            let removed = removed.await?;
            let Some(aggregate) = aggregate else {
                if removed && !lived {
                    session.expired(key, events);
                }
                return Ok(removed && lived);
            };
            if lived && is_empty(session, &aggregate, now).await? {
                return Ok(false);
            }
            if session.remove_if(&self.key, |record| aggregate.is_of(record)).await? {
                Box::pin(bury(session, &aggregate, usize::MAX)).await?;
                if !lived {
                    session.expired(key, events);
                }
                return Ok(lived);
            }
            retries.again().await?;
        }
    }

    /// Removes a key that has expired. Returns whether it was removed.
    async fn remove_if_over(&mut self, key: &[u8]) -> Result<bool, Fault> {
        place(&mut self.key, Family::Key, key);
        let now = self.now;
        let session = session(&mut self.session, &self.store)?;
        // Boxed, since it is rare, but within the futures of most commands.
        Box::pin(remove_if_over(session, &self.key, now)).await
    }

    /// Passes the heads of the first of several keys to `visit`, in their order, and `None` for
    /// each absent key. It does not check whether aggregates have elements. Returns the number of
    /// keys passed: at least one if there is a key, and fewer than all if their values are large.
    ///
    /// # Errors
    /// The store's errors. An invalid record counts as absent.
    pub(super) async fn look_at_first<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k [u8]>,
        mut visit: impl FnMut(Option<Head<'_>>),
    ) -> Result<usize, Fault> {
        let mut places = Vec::with_capacity(keys.size_hint().0);
        for key in keys {
            let mut buffer = Vec::with_capacity(key.len() + 1);
            place_of_head(&mut buffer, key)?;
            places.push(buffer);
        }
        let session = session(&mut self.session, &self.store)?;
        let records = session.get_many_first(&places).await?;
        for record in &records {
            let head = record.as_deref().and_then(|record| Head::parse(record).ok());
            let head = head.filter(|head| head.lives(self.now));
            visit(head);
            turns::worked().await;
        }
        Ok(records.len())
    }
}
