//! Hashes and sorted sets: what holds a key's elements together, and how they end.
//!
//! An element is a record of its own, under `family, the key's length (2 bytes), the key, generation, element`. The head names the
//! generation that counts: once the head is gone or names another, all elements end, though they still lie there, and
//! never count again. Whoever ended them removes them (`bury`); what the dead left, the walk finds (`sweep.rs`): the record
//! itself says which head to ask.
//!
//! A key without elements counts as absent, whether or not it has a head: its last element may go while another comes, and
//! nobody need take turns for that. A writer reads the head, or makes one (`open`), writes its elements, and reads the head again
//! (`confirm`): if another generation counts now, it does its work anew.
//!
//! A head without elements ends only after a *doubt*: a mark, like no other, that its record then bears. `confirm` takes
//! it off. So if the key is empty behind the mark, and the record still bears it, then no write that was acknowledged is
//! lost with it.

use super::head::Generation;
use super::{Family, Head, Keyspace, Kind, place, session};
use crate::fault::{Fault, WRONG_TYPE};
use darter::{AsyncSession, Condition, PutOutcome, ScanRange};
use darter_fabric::mutant;

/// Elements that are buried at a time.
const BURIED: usize = 256;

/// A generation of a key's elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Aggregate {
    /// What they are.
    kind: Kind,
    /// What their places have in common, behind the family's byte.
    stem: Vec<u8>,
}

impl Kind {
    /// The families of its elements; that which tells whether there are any, first.
    fn families(self) -> &'static [Family] {
        match self {
            Self::String => &[],
            Self::Hash => &[Family::Field],
            Self::SortedSet => &[Family::Member, Family::Score],
        }
    }
}

impl Aggregate {
    pub(super) fn new(kind: Kind, key: &[u8], generation: Generation) -> Self {
        // The index has no longer keys.
        let bytes = key.len() as u16;
        Self { kind, stem: [&bytes.to_be_bytes()[..], key, &generation].concat() }
    }

    /// What a key's head stands for; nothing for a string.
    pub(super) fn of(key: &[u8], head: &Head<'_>) -> Option<Self> {
        Some(Self::new(head.kind, key, head.generation()?))
    }

    /// What an element's place says that it belongs to, by the family alone.
    pub(super) fn of_place(family: Family, place: &[u8]) -> Option<Self> {
        let kind =
            [Kind::Hash, Kind::SortedSet].into_iter().find(|kind| kind.families().contains(&family))?;
        let (bytes, rest) = place.get(1..)?.split_first_chunk::<2>()?;
        let stem = 2 + usize::from(u16::from_be_bytes(*bytes)) + size_of::<Generation>();
        (rest.len() + 2 >= stem).then(|| Self { kind, stem: place[1..=stem].to_vec() })
    }

    /// What they are.
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Whose elements they are.
    pub(super) fn key(&self) -> &[u8] {
        &self.stem[2..self.stem.len() - size_of::<Generation>()]
    }

    /// Whether this is what a record of the key's says that counts.
    pub(super) fn is_of(&self, record: &[u8]) -> bool {
        Head::parse(record).is_ok_and(|head| Self::of(self.key(), &head).as_ref() == Some(self))
    }

    /// Where an element lies.
    pub(super) fn place(&self, family: Family, element: &[u8]) -> Vec<u8> {
        let mut place = Vec::with_capacity(1 + self.stem.len() + element.len());
        place.push(family as u8);
        place.extend_from_slice(&self.stem);
        place.extend_from_slice(element);
        place
    }

    /// The element that lies at a place.
    pub(super) fn element<'p>(&self, place: &'p [u8]) -> &'p [u8] {
        place.get(1 + self.stem.len()..).unwrap_or_default()
    }

    /// Where all elements of a family lie.
    pub(super) fn range(&self, family: Family) -> ScanRange {
        ScanRange::prefix(&self.place(family, b""))
    }
}

/// Whether there is no element.
pub(super) async fn is_empty(session: &mut AsyncSession, aggregate: &Aggregate) -> Result<bool, Fault> {
    let Some(&family) = aggregate.kind.families().first() else { return Ok(false) };
    Ok(session.scan_with(&aggregate.range(family), 1, |_, _| {}).await? == 0)
}

/// Puts the head of a key that seems empty in a doubt of its own; answers its record then, unless there is an element after all,
/// or somebody else came between.
pub(super) async fn doubt(
    session: &mut AsyncSession,
    aggregate: &Aggregate,
    record: &[u8],
    now: u64,
) -> Result<Option<Vec<u8>>, Fault> {
    let mut doubted = Vec::new();
    Head::parse(record)?.doubt(&mut doubted, now);
    let mut place_of_head = Vec::new();
    place(&mut place_of_head, Family::Key, aggregate.key());
    if session.put_if(&place_of_head, &doubted, Condition::Equals(record)).await? == PutOutcome::Refused {
        return Ok(None);
    }
    let is_empty = mutant!("gateway-doubt-without-second-look") || is_empty(session, aggregate).await?;
    Ok(is_empty.then_some(doubted))
}

/// Removes the elements of a generation that has ended, up to so many, taking turns with others; answers whether all are gone.
pub(super) async fn bury(
    session: &mut AsyncSession,
    aggregate: &Aggregate,
    most: usize,
) -> Result<bool, Fault> {
    let mut left = most;
    let families = aggregate.kind.families();
    let buried = if mutant!("gateway-buries-members-alone") { families.len().min(1) } else { families.len() };
    for &family in &families[..buried] {
        loop {
            let (asked, mut places) = (left.min(BURIED), Vec::new());
            session
                .scan_with(&aggregate.range(family), asked, |place, _| places.push(place.to_vec()))
                .await?;
            for place in &places {
                session.delete(place).await?;
            }
            left -= places.len();
            if left == 0 {
                return Ok(false);
            }
            if places.len() < asked || mutant!("gateway-buries-one-turn-alone") {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    Ok(true)
}

impl Keyspace {
    /// The record of a key's head, if it lives.
    async fn head_record(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        place(&mut self.key, Family::Key, key);
        let record = session(&mut self.session, &self.store)?.get(&self.key).await?;
        let Some(record) = record else { return Ok(None) };
        let lives = Head::parse(&record)?.lives(self.now);
        if !lives {
            self.remove_if_over(key).await?;
        }
        Ok((lives || mutant!("gateway-expired-hash-found-once-more")).then_some(record))
    }

    /// What a key holds; nothing when it is absent. It may have no elements, and is then absent too.
    ///
    /// # Errors
    /// The store's, [`WRONG_TYPE`], and [`super::super::fault::FOREIGN`].
    pub(crate) async fn find(&mut self, key: &[u8], kind: Kind) -> Result<Option<Aggregate>, Fault> {
        let Some(record) = self.head_record(key).await? else { return Ok(None) };
        let head = Head::parse(&record)?;
        let aggregate = Aggregate::of(key, &head).ok_or(WRONG_TYPE)?;
        if head.kind == kind {
            return Ok(Some(aggregate));
        }
        let session = session(&mut self.session, &self.store)?;
        if is_empty(session, &aggregate).await? { Ok(None) } else { Err(WRONG_TYPE) }
    }

    /// What a key holds, to be added to; makes a head where there is none, or one of another kind without elements.
    ///
    /// # Errors
    /// As [`Keyspace::find`].
    pub(crate) async fn open(&mut self, key: &[u8], kind: Kind) -> Result<Aggregate, Fault> {
        loop {
            let mut old = self.head_record(key).await?;
            let session = session(&mut self.session, &self.store)?;
            if let Some(record) = &old {
                let head = Head::parse(record)?;
                let aggregate = Aggregate::of(key, &head).ok_or(WRONG_TYPE)?;
                if head.kind != kind {
                    if !is_empty(session, &aggregate).await? {
                        return Err(WRONG_TYPE);
                    }
                    if !mutant!("gateway-other-kind-opened-without-doubt") {
                        old = doubt(session, &aggregate, record, self.now).await?;
                    }
                    if old.is_none() {
                        continue;
                    }
                } else if head.expiry.is_none()
                    || mutant!("gateway-empty-key-keeps-its-end")
                    || !is_empty(session, &aggregate).await?
                {
                    return Ok(aggregate);
                } else {
                    // What is absent has no end either.
                    head.rewrite(&mut self.new, None);
                    place(&mut self.key, Family::Key, key);
                    session.put_if(&self.key, &self.new, Condition::Equals(record)).await?;
                    continue;
                }
            }
            let is_dated = mutant!("gateway-generation-of-the-time");
            let drawn = if is_dated { self.now } else { darter_fabric::random_word() };
            let aggregate = Aggregate::new(kind, key, drawn.to_le_bytes());
            Head::begin(&mut self.new, kind, None);
            self.new.extend_from_slice(&aggregate.stem[aggregate.stem.len() - size_of::<Generation>()..]);
            place(&mut self.key, Family::Key, key);
            let condition = old.as_deref().map_or(Condition::Absent, Condition::Equals);
            if session.put_if(&self.key, &self.new, condition).await? != PutOutcome::Refused {
                return Ok(aggregate);
            }
        }
    }

    /// Whether a generation still counts, so that what was read of it is what there was.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn stands(&mut self, aggregate: &Aggregate) -> Result<bool, Fault> {
        place(&mut self.key, Family::Key, aggregate.key());
        let session = session(&mut self.session, &self.store)?;
        let stands = session.get_with(&self.key, |record| aggregate.is_of(record)).await?;
        Ok(stands.unwrap_or(false) || mutant!("gateway-read-across-generations"))
    }

    /// Whether a generation still counts, without doubt, so that what was written into it lasts; buries it otherwise.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn confirm(&mut self, aggregate: &Aggregate) -> Result<bool, Fault> {
        place(&mut self.key, Family::Key, aggregate.key());
        let session = session(&mut self.session, &self.store)?;
        loop {
            self.old.clear();
            let old = &mut self.old;
            let counts = session.get_with(&self.key, |record| {
                let counts = aggregate.is_of(record);
                let is_doubted =
                    counts && Head::parse(record).is_ok_and(|head| head.doubted_since().is_some());
                if is_doubted && !mutant!("gateway-confirms-in-doubt") {
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
            Head::parse(&self.old)?.dispel(&mut self.new);
            session.put_if(&self.key, &self.new, Condition::Equals(&self.old)).await?;
            if mutant!("gateway-confirms-without-looking-again") {
                return Ok(true);
            }
        }
    }
}
