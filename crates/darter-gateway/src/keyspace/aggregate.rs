//! Hashes, sorted sets and sets: the link between a key and its elements, and how elements are
//! removed.
//!
//! Each element is a separate record, whose key is `family, length of the key (2 bytes), key,
//! generation, element`. The head names the current generation. When the head is removed, or
//! replaced by one with another generation, all elements of the old generation become invalid at
//! once and forever, though their records still exist. The client that ended the generation removes
//! them (`bury`). The background walk finds the elements that a dead process left (`sweep.rs`),
//! since each record names the head it depends on.
//!
//! A key without elements counts as absent, with or without a head: its last element may be removed
//! while another is added, without any lock. A writer reads the head, or creates one (`open`),
//! writes its elements, and reads the head again (`confirm`). If another generation is current by
//! then, it starts over.
//!
//! A head without elements is removed in two steps. First the remover writes a unique mark, a
//! *doubt*, into the head; `confirm` removes the mark. If the remover then finds the key empty and
//! the head still has the mark, no acknowledged write is lost with it.
//!
//! The elements of a small key lie in its head (`packed.rs`), which is then the only record.

use super::changed::Changed;
use super::head::Generation;
use super::key_event::KeyEvent;
use super::packed::Packed;
use super::{
    Family, Head, Keyspace, Kind, PLACE_BYTES, Retries, Scoped, place, place_of_head, session, timed_record,
};
use crate::fault::{Fault, WRONG_TYPE};
use crate::turns;
use darter::engine::Worker;
use darter::{Condition, PutOutcome, ScanRange};
use std::collections::BTreeSet;
use std::ops::{Bound, Deref, DerefMut};
use std::time::Duration;

/// Pause between two reads of a doubt that must stay in a head.
pub(super) const HELD_LOOK: Duration = Duration::from_millis(10);
/// Elements removed at a time.
const BURIED: usize = 256;

/// Most bytes of a key and a field together: a field's place also has the family, the key's length
/// and the generation.
const FIELD_BYTES: usize = PLACE_BYTES - 1 - 2 - size_of::<Generation>();
/// Most bytes of a key and a member together: the member's index element also has the score, an end
/// mark and a stamp.
const MEMBER_BYTES: usize = FIELD_BYTES - 8 - 2 - 8;

/// A connection to the pool.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) worker: Worker,
    /// The number of the selected database.
    pub(super) database: u8,
    /// The changes of keys with the numbers of their databases, if they are recorded.
    pub(super) events: Option<Vec<(u8, KeyEvent)>>,
    /// What the current command has changed.
    pub(super) changed: Changed,
    /// The generations that the transaction in progress ends, with the numbers of their databases.
    pub(super) ended: Vec<(u8, Aggregate)>,
    /// The keys of which it has read all elements, though their heads were not in doubt.
    pub(super) unheld: BTreeSet<Scoped>,
    /// The heads with doubts that other clients leave in place until it has ended, with the numbers
    /// of their databases.
    pub(super) held: Vec<(u8, Aggregate, Vec<u8>)>,
    /// Whether it has read records that never existed together, and must be run again.
    pub(super) is_torn: bool,
    /// The places of the chunks of lists that it has read, with the numbers of their databases.
    pub(super) chunks: BTreeSet<Scoped>,
}

impl Session {
    pub(super) fn new(worker: Worker) -> Self {
        Self {
            worker,
            database: 0,
            events: None,
            changed: Changed::default(),
            ended: Vec::new(),
            unheld: BTreeSet::new(),
            held: Vec::new(),
            is_torn: false,
            chunks: BTreeSet::new(),
        }
    }

    /// Stores a record, or removes it, whatever it was before. A transaction in progress does not
    /// read it.
    pub(super) async fn store(&mut self, at: &[u8], record: Option<&[u8]>) -> Result<(), Fault> {
        if self.is_in_transaction() {
            self.write_blind(at, record.map(<[u8]>::to_vec))?;
            return Ok(());
        }
        match record {
            Some(record) => drop(self.put(at, record).await?),
            None => drop(self.discard(at).await?),
        }
        Ok(())
    }

    /// Must be called when all elements of a range were read: a transaction in progress will notice
    /// elements that other clients add, or will not commit.
    pub(super) fn has_read_all(&mut self, aggregate: &Aggregate) -> Result<(), Fault> {
        if self.is_in_transaction() {
            let mut at = Vec::new();
            place(&mut at, Family::Key, aggregate.key());
            // Other clients cannot add to a generation that the transaction itself has begun.
            if let Some(record) = self.worker.read_by_transaction(&at)?
                && aggregate.is_of(record)
                && doubtable(aggregate.key(), &Head::parse(record)?, 0).is_some()
            {
                self.unheld.insert((self.database, aggregate.key().to_vec()));
            }
        }
        Ok(())
    }
}

impl Deref for Session {
    type Target = Worker;

    fn deref(&self) -> &Worker {
        &self.worker
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Worker {
        &mut self.worker
    }
}

/// Returns the elements of a key whose head needs a doubt that other clients leave in place for
/// `held_seconds`; `None` if it has such a doubt, or if the head is the whole value. A list or a
/// stream needs no doubt: each element that is added changes a chunk or the head.
pub(super) fn doubtable(key: &[u8], head: &Head<'_>, held_seconds: u8) -> Option<Aggregate> {
    let is_held = head.doubted_since().is_some() && head.held_seconds() >= held_seconds;
    Aggregate::of(key, head).filter(|_| !head.kind.lasts() && !is_held)
}

/// Fails if an element of this name is too long to be stored with the key.
pub(super) fn check_name(kind: Kind, key: &[u8], name: &[u8]) -> Result<(), Fault> {
    let (what, most, bytes, counted) = match kind {
        Kind::SortedSet => {
            let zeros: usize = name.iter().map(|&byte| usize::from(byte == 0)).sum();
            ("member", MEMBER_BYTES, name.len() + zeros, ", each zero byte of the member counted twice")
        }
        Kind::Set => ("member", FIELD_BYTES, name.len(), ""),
        Kind::Stream => ("name", FIELD_BYTES, name.len(), ""),
        Kind::Hash | Kind::TimedHash | Kind::List | Kind::String => ("field", FIELD_BYTES, name.len(), ""),
    };
    let key = key.len();
    if key + bytes <= most {
        return Ok(());
    }
    Err(Fault::said(format!(
        "ERR key of {key} bytes and {what} of {} bytes: together they hold at most {most} bytes{counted}; shorten them",
        name.len()
    )))
}

/// A generation of a key's elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Aggregate {
    /// The type of the key.
    kind: Kind,
    /// The common part of its elements' keys, after the family's byte.
    stem: Vec<u8>,
    /// The elements, if they lie in the head. They have no generation, and can only be read.
    packed: Option<Vec<u8>>,
}

impl Kind {
    /// The families of its elements. The first one decides whether it is empty.
    pub(super) fn families(self) -> &'static [Family] {
        match self {
            Self::String => &[],
            Self::Hash | Self::TimedHash | Self::Set => &[Family::Field],
            Self::SortedSet => &[Family::Member, Family::Score],
            Self::List => &[Family::ListChunk],
            Self::Stream => {
                &[Family::StreamChunk, Family::StreamGroup, Family::StreamConsumer, Family::StreamPending]
            }
        }
    }
}

impl Aggregate {
    pub(super) fn new(kind: Kind, key: &[u8], generation: Generation) -> Self {
        // Keys of the index are not longer.
        let bytes = key.len() as u16;
        Self { kind, stem: [&bytes.to_be_bytes()[..], key, &generation].concat(), packed: None }
    }

    /// Returns the aggregate that a key's head refers to; `None` if the head is the whole value.
    pub(super) fn of(key: &[u8], head: &Head<'_>) -> Option<Self> {
        Some(Self::new(head.kind, key, head.generation()?))
    }

    /// Returns the elements that lie in a head, to be read.
    fn of_packed(key: &[u8], head: &Head<'_>) -> Result<Self, Fault> {
        Packed::parse(head.kind, head.body)?;
        let packed = Some(head.body.to_vec());
        Ok(Self { packed, ..Self::new(head.kind, key, Generation::default()) })
    }

    /// Returns the elements, if they lie in the head.
    pub(crate) fn packed(&self) -> Option<Packed<'_>> {
        self.packed.as_deref().map(|body| Packed::of_valid(self.kind, body))
    }

    /// Returns the aggregate that an element belongs to, from the element's place alone. A set is
    /// returned as a hash, whose elements are in the same family.
    pub(super) fn of_place(family: Family, place: &[u8]) -> Option<Self> {
        let kind = [Kind::Hash, Kind::SortedSet, Kind::List, Kind::Stream]
            .into_iter()
            .find(|kind| kind.families().contains(&family))?;
        let (bytes, rest) = place.get(1..)?.split_first_chunk::<2>()?;
        let stem = 2 + usize::from(u16::from_be_bytes(*bytes)) + size_of::<Generation>();
        (rest.len() + 2 >= stem).then(|| Self { kind, stem: place[1..=stem].to_vec(), packed: None })
    }

    /// Returns the list or the stream that a record other than the head belongs to, from its place.
    pub(super) fn of_chunk(place: &[u8]) -> Option<Self> {
        let families = [Kind::List, Kind::Stream].map(Kind::families).concat();
        let family = families.into_iter().find(|family| place.first() == Some(&(*family as u8)))?;
        Self::of_place(family, place)
    }

    /// Returns the type of the key.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the generation.
    pub(super) fn generation(&self) -> Generation {
        self.stem.last_chunk().copied().unwrap_or_default()
    }

    /// Returns the common part of its elements' places, after the family's byte.
    pub(super) fn stem(&self) -> &[u8] {
        &self.stem
    }

    /// Returns the key.
    pub(super) fn key(&self) -> &[u8] {
        &self.stem[2..self.stem.len() - size_of::<Generation>()]
    }

    /// Returns whether this is the current generation of a head.
    pub(super) fn is_of(&self, record: &[u8]) -> bool {
        let own = Some(self.generation());
        self.packed.is_none() && Head::parse(record).is_ok_and(|head| head.generation() == own)
    }

    /// Builds the place of an element.
    pub(super) fn place(&self, family: Family, element: &[u8]) -> Vec<u8> {
        let mut place = Vec::with_capacity(1 + self.stem.len() + element.len());
        place.push(family as u8);
        place.extend_from_slice(&self.stem);
        place.extend_from_slice(element);
        place
    }

    /// Fails if an element of this name is too long to be stored with the key.
    pub(super) fn check(&self, name: &[u8]) -> Result<(), Fault> {
        check_name(self.kind, self.key(), name)
    }

    /// Returns the element at a place.
    pub(super) fn element<'p>(&self, place: &'p [u8]) -> &'p [u8] {
        place.get(1 + self.stem.len()..).unwrap_or_default()
    }

    /// Returns the range of places of all elements of a family.
    pub(super) fn range(&self, family: Family) -> ScanRange {
        ScanRange::prefix(&self.place(family, b""))
    }
}

/// Returns whether there are no elements. A list whose head exists has elements, and a stream exists
/// without any.
pub(super) async fn is_empty(session: &mut Session, aggregate: &Aggregate, now: u64) -> Result<bool, Fault> {
    if aggregate.kind.lasts() {
        return Ok(false);
    }
    let Some(&family) = aggregate.kind.families().first() else { return Ok(false) };
    // Boxed, since most commands need it for large keys only.
    let is_empty = if aggregate.kind == Kind::TimedHash {
        Box::pin(have_ended(session, aggregate, now)).await?
    } else {
        Box::pin(session.scan_with(&aggregate.range(family), 1, |_, _| {})).await? == 0
    };
    if is_empty {
        session.has_read_all(aggregate)?;
    }
    Ok(is_empty)
}

/// Returns whether all fields of a hash have ended.
async fn have_ended(session: &mut Session, hash: &Aggregate, now: u64) -> Result<bool, Fault> {
    let (mut range, mut asked) = (hash.range(Family::Field), 1);
    loop {
        let (mut lives, mut last) = (false, None);
        let seen = session.scan_with(&range, asked, |place, record| {
            lives |= !timed_record::is_over(hash.kind, record, now);
            last = Some(place.to_vec());
        });
        let seen = seen.await?;
        let Some(last) = last.filter(|_| seen == asked && !lives) else { return Ok(!lives) };
        range.from = Bound::Excluded(last);
        asked = BURIED;
        tokio::task::yield_now().await;
    }
}

/// Writes a doubt into the head of a key, which writers leave there for `held_seconds`. Returns the
/// head's new record, unless another client has changed the head.
pub(super) async fn mark(
    session: &mut Session,
    aggregate: &Aggregate,
    record: &[u8],
    now: u64,
    held_seconds: u8,
) -> Result<Option<Vec<u8>>, Fault> {
    let mut doubted = Vec::new();
    Head::parse(record)?.doubt(&mut doubted, now, held_seconds);
    let mut place_of_head = Vec::new();
    place(&mut place_of_head, Family::Key, aggregate.key());
    // Not a change of the key's value.
    let outcome = session.worker.put_if(&place_of_head, &doubted, Condition::Equals(record)).await?;
    Ok((outcome != PutOutcome::Refused).then_some(doubted))
}

/// Writes a doubt into the head of a key that seems empty. Returns the head's record, unless the key
/// exists after all or another client has changed it.
pub(super) async fn doubt(
    session: &mut Session,
    aggregate: &Aggregate,
    record: &[u8],
    now: u64,
) -> Result<Option<Vec<u8>>, Fault> {
    let Some(doubted) = mark(session, aggregate, record, now, 0).await? else { return Ok(None) };
    let is_empty = is_empty(session, aggregate, now).await?;
    Ok(is_empty.then_some(doubted))
}

/// Removes up to `most` elements of a generation that has ended, and yields to other tasks. Returns
/// whether all are gone. In a transaction they are removed after the commit.
pub(super) async fn bury(session: &mut Session, aggregate: &Aggregate, most: usize) -> Result<bool, Fault> {
    if session.is_in_transaction() {
        session.ended.push((session.database, aggregate.clone()));
        return Ok(true);
    }
    let mut left = most;
    for &family in aggregate.kind.families() {
        loop {
            let (asked, mut places) = (left.min(BURIED), Vec::new());
            session
                .scan_with(&aggregate.range(family), asked, |place, _| places.push(place.to_vec()))
                .await?;
            for place in &places {
                session.discard(place).await?;
                turns::worked().await;
            }
            left -= places.len();
            if left == 0 {
                return Ok(false);
            }
            if places.len() < asked {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    Ok(true)
}

impl Keyspace {
    /// Returns the record of a key's head, if the head exists and has not expired.
    pub(super) async fn head_record(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        place_of_head(&mut self.key, key)?;
        let record = session(&mut self.session, &self.store)?.get(&self.key).await?;
        let Some(record) = record else { return Ok(None) };
        let lives = Head::parse(&record)?.lives(self.now);
        if !lives {
            self.remove_if_over(key).await?;
        }
        Ok(lives.then_some(record))
    }

    /// Returns the aggregate of a key, or `None` if the key is absent. The aggregate may be empty,
    /// which also counts as absent.
    ///
    /// # Errors
    /// The store's errors, [`WRONG_TYPE`], and [`super::super::fault::FOREIGN`].
    pub(crate) async fn find(&mut self, key: &[u8], kind: Kind) -> Result<Option<Aggregate>, Fault> {
        let Some(record) = self.head_record(key).await? else { return Ok(None) };
        self.found(key, &record, &[kind]).await
    }

    /// Returns the aggregate of a key with a head, which must have one of several types.
    ///
    /// # Errors
    /// As for [`Keyspace::find`].
    pub(crate) async fn found(
        &mut self,
        key: &[u8],
        record: &[u8],
        kinds: &[Kind],
    ) -> Result<Option<Aggregate>, Fault> {
        let head = Head::parse(record)?;
        let is_wanted = kinds.contains(&head.kind.seen());
        if is_wanted && head.is_packed {
            return Aggregate::of_packed(key, &head).map(Some);
        }
        let aggregate = Aggregate::of(key, &head).ok_or(WRONG_TYPE)?;
        if is_wanted {
            return Ok(Some(aggregate));
        }
        let session = session(&mut self.session, &self.store)?;
        if is_empty(session, &aggregate, self.now).await? { Ok(None) } else { Err(WRONG_TYPE) }
    }

    /// Returns the record of an element of a key; `None` if either is absent.
    ///
    /// # Errors
    /// As for [`Keyspace::find`], and an error if the name is too long.
    pub(crate) async fn element_of(
        &mut self,
        (key, kind): (&[u8], Kind),
        name: &[u8],
    ) -> Result<Option<Vec<u8>>, Fault> {
        place_of_head(&mut self.key, key)?;
        let (now, old) = (self.now, &mut self.old);
        let looked = session(&mut self.session, &self.store)?.get_with(&self.key, |record| {
            let head = Head::parse(record)?;
            if head.kind.seen() == kind && head.is_packed && head.lives(now) {
                check_name(kind, key, name)?;
                let element = Packed::parse(head.kind, head.body)?.get(name);
                let element = element.and_then(|record| timed_record::seen(head.kind, record, now));
                return Ok::<_, Fault>(Some(element.map(<[u8]>::to_vec)));
            }
            old.clear();
            old.extend_from_slice(record);
            Ok(None)
        });
        match looked.await?.transpose()? {
            None => Ok(None),
            Some(Some(element)) => Ok(element),
            Some(None) => self.element_elsewhere((key, kind), name).await,
        }
    }

    /// Returns the record of an element of a key that is not small, or has expired, and whose head was
    /// just read.
    async fn element_elsewhere(
        &mut self,
        (key, kind): (&[u8], Kind),
        name: &[u8],
    ) -> Result<Option<Vec<u8>>, Fault> {
        let record = std::mem::take(&mut self.old);
        let lives = Head::parse(&record)?.lives(self.now);
        let aggregate = if lives {
            self.found(key, &record, &[kind]).await?
        } else {
            self.remove_if_over(key).await?;
            None
        };
        self.old = record;
        match aggregate {
            Some(aggregate) => self.element(&aggregate, name).await,
            None => Ok(None),
        }
    }

    /// Returns whether a generation is still current, so that the elements read from it are
    /// consistent.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn stands(&mut self, aggregate: &Aggregate) -> Result<bool, Fault> {
        if aggregate.packed.is_some() {
            // They were read together.
            return Ok(true);
        }
        place(&mut self.key, Family::Key, aggregate.key());
        let session = session(&mut self.session, &self.store)?;
        let stands = session.get_with(&self.key, |record| aggregate.is_of(record)).await?;
        Ok(stands.unwrap_or(false))
    }

    /// Confirms that a generation is still current and not in doubt, so that the elements written
    /// to it persist. Removes its elements otherwise.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn confirm(&mut self, aggregate: &Aggregate) -> Result<bool, Fault> {
        place(&mut self.key, Family::Key, aggregate.key());
        let session = session(&mut self.session, &self.store)?;
        let (mut retries, mut waited) = (Retries::default(), Duration::ZERO);
        loop {
            self.old.clear();
            let old = &mut self.old;
            let counts = session.get_with(&self.key, |record| {
                let counts = aggregate.is_of(record);
                let is_doubted =
                    counts && Head::parse(record).is_ok_and(|head| head.doubted_since().is_some());
                if is_doubted {
                    old.extend_from_slice(record);
                }
                counts
            });
            if counts.await? != Some(true) {
                bury(session, aggregate, usize::MAX).await?;
                return Ok(false);
            }
            if self.old.is_empty() {
                return Ok(true);
            }
            let head = Head::parse(&self.old)?;
            if self.may_sleep
                && !session.is_in_transaction()
                && waited < Duration::from_secs(head.held_seconds().into())
            {
                // A rename is in progress, and would have to copy all elements again.
                tokio::time::sleep(HELD_LOOK).await;
                waited += HELD_LOOK;
                continue;
            }
            head.dispel(&mut self.new);
            session.put_if(&self.key, &self.new, Condition::Equals(&self.old)).await?;
            retries.again().await?;
        }
    }
}
