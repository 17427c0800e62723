//! Hashes whose fields may expire. They are another type of head and of records, so that other hashes
//! keep their form (`timed_record.rs`).
//!
//! A field whose time has passed counts as absent; it still exists in that millisecond. It is removed
//! when a command writes it, with the next change of a small hash, or by the background walk.
//!
//! A hash gets this form with the first expiry time of a field, and keeps it.

use super::aggregate::{Aggregate, check_name, mark};
use super::packed::Packed;
use super::timed_change::living;
use super::timed_record::{Field, is_over};
use super::{Draft, Head, Keyspace, Kind, Retries, Session, Taken, Walked, check_key, place, session};
use crate::fault::Fault;
use crate::turns;
use darter::ScanRange;
use std::collections::BTreeMap;
use std::ops::Bound;

/// How often a large hash is written again while other clients change it.
const ATTEMPTS: u8 = 3;
/// Fields read at a time.
const CHUNK: usize = 512;

/// Removes the fields of a large hash that have ended, in a part of the records. Returns the number of
/// removed fields, and whether the hash has more records.
pub(super) async fn remove_ended(
    session: &mut Session,
    hash: &Aggregate,
    left: &mut ScanRange,
    most: usize,
    now: u64,
) -> Result<(usize, bool), Fault> {
    let (mut ended, mut last) = (Vec::new(), None);
    let own = ScanRange { from: left.from.clone(), ..hash.range(hash.names()) };
    let seen = session.scan_with(&own, most, |place, record| {
        if is_over(Kind::TimedHash, record, now) {
            ended.push(place.to_vec());
        }
        last = Some(place.to_vec());
    });
    let seen = seen.await?;
    for place in &ended {
        session.remove_if(place, |record| is_over(Kind::TimedHash, record, now)).await?;
        turns::worked().await;
    }
    if let Some(last) = last {
        left.from = Bound::Excluded(last);
    }
    Ok((ended.len(), seen == most))
}

/// Removes the fields of a small hash that have ended, if others exist. Returns whether there were any.
pub(super) async fn prune(session: &mut Session, at: &[u8], now: u64) -> Result<bool, Fault> {
    let pruned = session.update(at, |record| {
        let head = record.and_then(|record| Head::parse(record).ok());
        let Some(head) = head.filter(|head| has_ended(head, now) && head.lives(now)) else {
            return darter::Change::Keep;
        };
        let living = living(Packed::of_valid(head.kind, head.body), head.kind, now);
        let mut new = Vec::new();
        Head { body: &living, ..head }.rewrite(&mut new, head.expiry);
        darter::Change::Put(new)
    });
    Ok(pruned.await?)
}

/// Returns whether a field in a head has ended.
pub(super) fn has_ended(head: &Head<'_>, now: u64) -> bool {
    let is_small = head.kind == Kind::TimedHash && head.is_packed;
    is_small
        && Packed::of_valid(head.kind, head.body).iter().any(|(_, record)| is_over(head.kind, record, now))
}

impl Keyspace {
    /// Removes fields of a hash that is small, and returns their values; `None` if it is large.
    ///
    /// # Errors
    /// The store's errors, [`crate::fault::WRONG_TYPE`], and an error if a name is too long.
    pub(crate) async fn take_fields(
        &mut self,
        key: &[u8],
        names: &[&[u8]],
    ) -> Result<Option<Vec<Option<Vec<u8>>>>, Fault> {
        check_key(key)?;
        names.iter().try_for_each(|name| check_name(Kind::Hash, key, name))?;
        let (now, mut values) = (self.now, Vec::new());
        let taken = self.take_from_small((key, Kind::Hash), |packed| {
            let mut chosen = BTreeMap::new();
            values.clear();
            for name in names {
                let field = packed.get(name).and_then(|record| Field::living(packed.kind(), record, now));
                let is_first = field.is_some() && chosen.insert(name.to_vec(), Vec::new()).is_none();
                values.push(field.filter(|_| is_first).map(|field| field.value.to_vec()));
            }
            chosen.into_iter().collect()
        });
        Ok(match taken.await? {
            Taken::Done(_) => Some(values),
            Taken::Large(_) => None,
        })
    }

    /// Gives a large hash this form: writes all fields again, as a rename does, and replaces its head.
    ///
    /// # Errors
    /// The store's errors, and an error if other clients keep changing the hash.
    pub(super) async fn make_timed(&mut self, hash: &Aggregate) -> Result<(), Fault> {
        let (mut retries, mut copies, mut at) = (Retries::default(), 0, Vec::new());
        place(&mut at, super::Family::Key, hash.key());
        while copies < ATTEMPTS {
            retries.again().await?;
            let Some(record) = self.head_record(hash.key()).await? else { return Ok(()) };
            if !hash.is_of(&record) {
                return Ok(());
            }
            self.wait_while_held(&at, &record).await?;
            let opened = session(&mut self.session, &self.store)?;
            let Some(marked) = mark(opened, hash, &record, self.now, 1 << copies).await? else { continue };
            copies += 1;
            let before = Head::parse(&marked)?;
            let mut draft = Draft::new(Kind::TimedHash, hash.key(), before.expiry)?;
            // A hash that was emptied in between may become another empty one.
            draft.generation();
            if let Err(fault) = self.draft_fields(&mut draft, hash).await {
                self.discard_draft(draft).await?;
                return Err(fault);
            }
            let is_empty = draft.count == 0;
            if self.publish_draft(draft, |head| head.map_or(is_empty, |head| *head == before)).await? {
                return Ok(());
            }
        }
        Err(Fault::said("ERR other clients keep changing the key: no expiry time was set, try again"))
    }

    async fn draft_fields(&mut self, draft: &mut Draft, hash: &Aggregate) -> Result<(), Fault> {
        let (mut fields, mut walked) = (hash.elements(), Walked::Paused);
        while walked == Walked::Paused {
            let mut met = Vec::new();
            let walk = self.walk_elements(&mut fields, CHUNK, |name, value| {
                met.push((name.to_vec(), Field { value, end: None }.record()));
            });
            walked = walk.await?;
            for (name, record) in met {
                self.draft_element(draft, &name, &record).await?;
                turns::copied(record.len()).await;
            }
        }
        Ok(())
    }

    /// Returns the fields of a hash with these names, as far as they exist: their values and ends.
    ///
    /// # Errors
    /// The store's errors, [`crate::fault::WRONG_TYPE`], and an error if a name is too long.
    pub(crate) async fn some_fields(
        &mut self,
        key: &[u8],
        names: &[&[u8]],
        mut visit: impl FnMut(usize, Option<Field<'_>>),
    ) -> Result<(), Fault> {
        let mut retries = Retries::default();
        while let Some(hash) = self.find(key, Kind::Hash).await? {
            let (mut at, now) = (0, self.now);
            self.some_records(&hash, names.iter().copied(), |record| {
                visit(at, record.and_then(|record| Field::living(hash.kind(), record, now)));
                at += 1;
                Ok(())
            })
            .await?;
            if self.stands(&hash).await? {
                return Ok(());
            }
            retries.again().await?;
        }
        (0..names.len()).for_each(|at| visit(at, None));
        Ok(())
    }

    /// Passes the fields of a hash to `visit`, with their ends, as [`Keyspace::walk_elements`] does.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn walk_fields(
        &mut self,
        hash: &Aggregate,
        fields: &mut super::fields::Elements,
        count: usize,
        mut visit: impl FnMut(&[u8], Field<'_>) + Send,
    ) -> Result<Walked, Fault> {
        let (kind, now) = (hash.kind(), self.now);
        self.walk_records(fields, count, |name, record| {
            if let Some(field) = Field::living(kind, record, now) {
                visit(name, field);
            }
        })
        .await
    }
}
