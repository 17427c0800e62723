//! Values that are written before a head names them, so that other clients see the whole value or
//! none of it: copies of keys, restored values, the results of operations on several sets, and small
//! keys that become large.
//!
//! The elements are written into a generation that no head names yet, and then one change of the
//! head makes them the key's. So that the background walk does not remove them as leftovers, a
//! record announces them:
//!
//! ```text
//! b, key, generation -> time, 8 bytes, little-endian
//! ```
//!
//! The record is removed after the head is in place. If the gateway dies before that, the record
//! expires after an hour, and the walk removes the elements.

use super::aggregate::{Aggregate, bury, check_name};
use super::order::{Scored, score_of_record, stamp};
use super::packed::{Packed, push};
use super::{Change, Family, Head, Keyspace, Kind, check_key, place, session};
use crate::fault::{FOREIGN, Fault};
use std::time::Instant;

/// Most records that are written together.
const CHUNK: usize = 512;
/// Bytes of elements beyond which they are written.
const CHUNK_BYTES: usize = 1 << 20;

/// A value that no head names yet.
#[derive(Debug)]
pub(super) struct Copied {
    /// The destination's head.
    pub(super) record: Vec<u8>,
    /// The elements.
    pub(super) aggregate: Option<Aggregate>,
}

pub(super) fn place_of_announcement(aggregate: &Aggregate) -> Vec<u8> {
    let mut at = Vec::new();
    place(&mut at, Family::Building, aggregate.stem());
    at
}

/// A hash, a set, a sorted set or a stream that is being written.
#[derive(Debug)]
pub(crate) struct Draft {
    kind: Kind,
    pub(super) key: Vec<u8>,
    expiry: Option<u64>,
    began: Instant,
    /// The number of elements.
    pub(super) count: usize,
    /// The elements in any order, as long as they fit into a head.
    packed: Vec<u8>,
    /// The generation of the elements, if they do not.
    aggregate: Option<Aggregate>,
    /// The head, if it is not made from the elements.
    head: Option<Vec<u8>>,
    /// Elements that are not written yet: places and records.
    waiting: Vec<(Vec<u8>, Vec<u8>)>,
    waiting_bytes: usize,
}

impl Draft {
    /// Begins a value of a key.
    ///
    /// # Errors
    /// Fails if the key is too long.
    pub(crate) fn new(kind: Kind, key: &[u8], expiry: Option<u64>) -> Result<Self, Fault> {
        check_key(key)?;
        Ok(Self {
            kind,
            key: key.to_vec(),
            expiry,
            began: Instant::now(),
            count: 0,
            packed: Vec::new(),
            aggregate: None,
            head: None,
            waiting: Vec::new(),
            waiting_bytes: 0,
        })
    }

    /// Returns the type of the value.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Gives the value a head that is complete, and the generation of its records if there are any.
    pub(super) fn name_by(&mut self, head: Vec<u8>, records: Option<Aggregate>) {
        (self.head, self.aggregate) = (Some(head), records);
    }

    /// Adds a record to those that wait. Returns whether they should be written.
    fn wait(&mut self, place: Vec<u8>, record: &[u8]) -> bool {
        self.waiting_bytes += place.len() + record.len();
        self.waiting.push((place, record.to_vec()));
        self.waiting.len() >= CHUNK || self.waiting_bytes >= CHUNK_BYTES
    }

    /// Adds an element to a value that has a generation. Returns whether the elements should be
    /// written.
    fn wait_element(&mut self, name: &[u8], record: &[u8], now: u64) -> Result<bool, Fault> {
        let aggregate = self.generation();
        let place = aggregate.place(aggregate.names(), name);
        if aggregate.kind() != Kind::SortedSet {
            return Ok(self.wait(place, record));
        }
        let scored = Scored { score: score_of_record(record).ok_or(FOREIGN)?, stamp: stamp(now) };
        let index = aggregate.place(Family::Score, &scored.index(name));
        self.wait(place, &scored.record());
        Ok(self.wait(index, b""))
    }

    /// Returns the generation, which begins with the first call.
    pub(super) fn generation(&mut self) -> &Aggregate {
        let Self { kind, key, aggregate, .. } = self;
        aggregate
            .get_or_insert_with(|| Aggregate::new(*kind, key, darter_fabric::random_word().to_le_bytes()))
    }

    /// Returns the value that a head can name once all elements are written.
    fn finished(self) -> Copied {
        if let Some(record) = self.head {
            return Copied { record, aggregate: self.aggregate };
        }
        let mut record = Vec::new();
        if let Some(aggregate) = &self.aggregate {
            Head::begin(&mut record, self.kind, self.expiry);
            record.extend_from_slice(&aggregate.generation());
        } else {
            Head::begin_packed(&mut record, self.kind, self.expiry);
            let mut elements: Vec<_> = Packed::of_valid(self.kind, &self.packed).iter().collect();
            elements.sort_unstable();
            let start = record.len();
            for element in elements {
                push(&mut record, start, self.kind, element);
            }
        }
        Copied { record, aggregate: self.aggregate }
    }
}

impl Keyspace {
    /// Adds an element with its record, as a head has it, to a value that is being written. Each
    /// element may be added once.
    ///
    /// # Errors
    /// The store's errors, and an error if the name is too long.
    pub(crate) async fn draft_element(
        &mut self,
        draft: &mut Draft,
        name: &[u8],
        record: &[u8],
    ) -> Result<(), Fault> {
        draft.count += 1;
        check_name(draft.kind, &draft.key, name)?;
        if draft.aggregate.is_none() {
            if push(&mut draft.packed, 0, draft.kind, (name, record)) {
                return Ok(());
            }
            let packed = std::mem::take(&mut draft.packed);
            for (name, record) in Packed::of_valid(draft.kind, &packed).iter() {
                draft.wait_element(name, record, self.now)?;
            }
        }
        if draft.wait_element(name, record, self.now)? {
            self.write_waiting(draft).await?;
        }
        Ok(())
    }

    /// Adds a record to a value that has its head and a generation.
    ///
    /// # Errors
    /// The store's errors.
    pub(super) async fn draft_record(
        &mut self,
        draft: &mut Draft,
        place: Vec<u8>,
        record: &[u8],
    ) -> Result<(), Fault> {
        if draft.wait(place, record) {
            self.write_waiting(draft).await?;
        }
        Ok(())
    }

    /// Writes the elements that wait.
    async fn write_waiting(&mut self, draft: &mut Draft) -> Result<(), Fault> {
        let now = self.now + draft.began.elapsed().as_millis() as u64;
        let announcement = place_of_announcement(draft.generation());
        let session = session(&mut self.session, &self.store)?;
        session.store(&announcement, Some(&now.to_le_bytes())).await?;
        let waiting = std::mem::take(&mut draft.waiting);
        draft.waiting_bytes = 0;
        if session.is_in_transaction() {
            for (place, record) in waiting {
                session.store(&place, Some(&record)).await?;
            }
        } else {
            session.put_many(&waiting).await?;
        }
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Makes a value that was written the value of its key, if the key may be replaced: `may_replace`
    /// gets its head, or `None` if it is absent. Returns whether it did.
    ///
    /// # Errors
    /// The store's errors. Nothing has changed then.
    pub(crate) async fn publish_draft(
        &mut self,
        mut draft: Draft,
        may_replace: impl FnMut(Option<&Head<'_>>) -> bool + Send,
    ) -> Result<bool, Fault> {
        if !draft.waiting.is_empty()
            && let Err(fault) = self.write_waiting(&mut draft).await
        {
            self.discard_draft(draft).await?;
            return Err(fault);
        }
        let key = std::mem::take(&mut draft.key);
        self.install(&key, &draft.finished(), may_replace).await
    }

    /// Makes a value that was written the value of its key, whatever that was before. A value
    /// without elements removes the key. Returns the number of elements.
    ///
    /// # Errors
    /// The store's errors. Nothing has changed then.
    pub(crate) async fn replace_by(&mut self, draft: Draft) -> Result<usize, Fault> {
        let count = draft.count;
        if count == 0 {
            self.remove(&draft.key).await?;
        } else {
            self.publish_draft(draft, |_| true).await?;
        }
        Ok(count)
    }

    /// Removes what was written of a value.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn discard_draft(&mut self, draft: Draft) -> Result<(), Fault> {
        self.discard(&draft.finished()).await
    }

    /// Makes a value the value of a key, if the key may be replaced. Returns whether it did.
    pub(super) async fn install(
        &mut self,
        to: &[u8],
        copied: &Copied,
        mut may_replace: impl FnMut(Option<&Head<'_>>) -> bool + Send,
    ) -> Result<bool, Fault> {
        let is_placed = self.change(to, |head, record| {
            if !may_replace(head.as_ref()) {
                return Ok(Change::Keep(false));
            }
            record.clear();
            record.extend_from_slice(&copied.record);
            Ok(Change::Put(true))
        });
        let is_placed = match is_placed.await {
            Ok(is_placed) => is_placed,
            Err(fault) => {
                self.discard(copied).await?;
                return Err(fault);
            }
        };
        if is_placed {
            self.settle(copied).await?;
        } else {
            self.discard(copied).await?;
        }
        Ok(is_placed)
    }

    /// Removes the announcement of a value that its key's head names.
    async fn settle(&mut self, copied: &Copied) -> Result<(), Fault> {
        if let Some(aggregate) = &copied.aggregate {
            session(&mut self.session, &self.store)?.store(&place_of_announcement(aggregate), None).await?;
        }
        Ok(())
    }

    /// Removes a value that no head names.
    pub(super) async fn discard(&mut self, copied: &Copied) -> Result<(), Fault> {
        if let Some(aggregate) = &copied.aggregate {
            bury(session(&mut self.session, &self.store)?, aggregate, usize::MAX).await?;
        }
        self.settle(copied).await
    }
}

#[cfg(test)]
mod tests {
    use super::super::order::record_of_score;
    use super::*;
    use darter::engine::Engine;
    use darter::{Store, block_on};
    use std::sync::Arc;

    /// More members than are written together.
    const MEMBERS: usize = 2 * CHUNK + 1;

    fn draft(keys: &mut Keyspace) -> Draft {
        let mut draft = Draft::new(Kind::SortedSet, b"key", Some(u64::MAX)).unwrap();
        for member in 0..MEMBERS {
            let name = member.to_string();
            let record = record_of_score(member as f64);
            block_on(keys.draft_element(&mut draft, name.as_bytes(), &record)).unwrap();
        }
        draft
    }

    fn records(store: &Store, family: Family) -> usize {
        store.session_in(darter::engine::KeySpace::Gateway).unwrap().prefix([family as u8]).count()
    }

    fn kind(keys: &mut Keyspace) -> Option<Kind> {
        block_on(keys.look(b"key", |head| head.map(|head| head.kind))).unwrap()
    }

    #[test]
    fn a_value_appears_whole_and_replaces_the_old_one() {
        let store = Store::open("mem:64M").unwrap();
        let mut keys = Keyspace::new(store.clone(), Arc::default());
        block_on(keys.set(b"key", b"old", None)).unwrap();
        let first = draft(&mut keys);
        assert_eq!(kind(&mut keys), Some(Kind::String));
        assert_eq!(records(&store, Family::Building), 1);
        assert_eq!(block_on(keys.replace_by(first)).unwrap(), MEMBERS);
        assert_eq!(kind(&mut keys), Some(Kind::SortedSet));
        // The elements of the first value are removed.
        let second = draft(&mut keys);
        assert_eq!(block_on(keys.replace_by(second)).unwrap(), MEMBERS);
        let families = [Family::Member, Family::Score, Family::Building];
        assert_eq!(families.map(|family| records(&store, family)), [MEMBERS, MEMBERS, 0]);
        let empty = Draft::new(Kind::SortedSet, b"key", None).unwrap();
        assert_eq!(block_on(keys.replace_by(empty)).unwrap(), 0);
        assert_eq!(kind(&mut keys), None);
    }

    #[test]
    fn a_value_that_may_not_replace_the_old_one_leaves_nothing() {
        let store = Store::open("mem:64M").unwrap();
        let mut keys = Keyspace::new(store.clone(), Arc::default());
        block_on(keys.set(b"key", b"old", None)).unwrap();
        let refused = draft(&mut keys);
        assert!(!block_on(keys.publish_draft(refused, |head| head.is_none())).unwrap());
        let discarded = draft(&mut keys);
        block_on(keys.discard_draft(discarded)).unwrap();
        let families = [Family::Member, Family::Score, Family::Building];
        assert_eq!(families.map(|family| records(&store, family)), [0, 0, 0]);
        assert_eq!(kind(&mut keys), Some(Kind::String));
    }
}
