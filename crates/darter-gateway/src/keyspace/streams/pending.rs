//! The pending entries of a consumer group, which were delivered and not acknowledged. They lie in
//! *pages*, records of up to 4 KiB, in the order of the entries' ids.
//!
//! ```text
//! p, key, generation, id of the group, id of the first entry, 16 bytes -> pending entries
//! a pending entry: ms | number in the ms | when it was delivered, in ms | how often | consumer
//! ```
//!
//! Numbers have a variable length, and the name of the consumer follows its length (`varint.rs`). A
//! page has the entries from its id on up to that of the next page; the first entry may have gone.
//!
//! They change in transactions of the index.

use super::groups::{Consumer, Group};
use super::id::StreamId;
use super::varint;
use crate::fault::{FOREIGN, Fault};
use crate::keyspace::aggregate::Aggregate;
use crate::keyspace::walk::go_behind;
use crate::keyspace::{Family, Keyspace, session};
use crate::turns;
use darter::ScanRange;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Most bytes of a page with several entries.
const PAGE_BYTES: usize = 4 << 10;

/// A pending entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) id: StreamId,
    /// When it was delivered, in ms since the Unix epoch.
    pub(crate) time: u64,
    pub(crate) deliveries: u64,
    pub(crate) consumer: Vec<u8>,
}

impl Pending {
    /// Returns how long ago it was delivered, in ms.
    pub(crate) fn idle(&self, now: u64) -> u64 {
        now.saturating_sub(self.time)
    }

    fn write(&self, record: &mut Vec<u8>) {
        for number in [self.id.ms, self.id.seq, self.time, self.deliveries] {
            varint::put(record, number);
        }
        varint::put_text(record, &self.consumer);
    }

    fn take(record: &mut &[u8]) -> Option<Self> {
        let id = StreamId { ms: varint::take(record)?, seq: varint::take(record)? };
        let (time, deliveries) = (varint::take(record)?, varint::take(record)?);
        Some(Self { id, time, deliveries, consumer: varint::take_text(record)?.to_vec() })
    }
}

fn parse(mut record: &[u8]) -> Result<Vec<Pending>, Fault> {
    let mut entries = Vec::new();
    while !record.is_empty() {
        entries.push(Pending::take(&mut record).ok_or(FOREIGN)?);
    }
    Ok(entries)
}

/// Divides pending entries into pages, the first of which has the id `start`: their ids and records.
/// Without entries there is one page, whose record is empty.
pub(super) fn pages(mut start: StreamId, entries: &[Pending]) -> Vec<(StreamId, Vec<u8>)> {
    let (mut pages, mut record) = (Vec::new(), Vec::new());
    for entry in entries {
        let before = record.len();
        entry.write(&mut record);
        if record.len() > PAGE_BYTES && before > 0 {
            let next = record.split_off(before);
            pages.push((start, std::mem::replace(&mut record, next)));
            start = entry.id;
        }
    }
    pages.push((start, record));
    pages
}

/// Returns the place of a page.
fn place_of_page(records: &Aggregate, group: &Group, id: StreamId) -> Vec<u8> {
    records.place(Family::StreamPending, &[&group.id[..], &id.bytes()].concat())
}

/// Returns the range of all pages of a group.
fn pages_of(records: &Aggregate, group: &Group) -> ScanRange {
    ScanRange::prefix(&records.place(Family::StreamPending, &group.id))
}

/// A page in memory.
#[derive(Debug)]
struct Page {
    start: StreamId,
    /// The place of the next page.
    next: Option<Vec<u8>>,
    entries: Vec<Pending>,
    is_changed: bool,
}

/// Changes of the pending entries of a group, in a transaction.
#[derive(Debug)]
pub(crate) struct PendingEdit {
    records: Aggregate,
    group: Group,
    page: Option<Page>,
    /// How many more pending entries each consumer has.
    counts: BTreeMap<Vec<u8>, i64>,
    /// Whether an entry has become pending.
    pub(crate) has_inserted: bool,
}

impl PendingEdit {
    /// Begins changes.
    pub(crate) fn new(records: &Aggregate, group: &Group) -> Self {
        let (counts, has_inserted) = (BTreeMap::new(), false);
        Self { records: records.clone(), group: *group, page: None, counts, has_inserted }
    }

    fn count(&mut self, consumer: &[u8], more: i64) {
        *self.counts.entry(consumer.to_vec()).or_default() += more;
    }

    /// Returns the page in memory, if it has the entries around an id.
    fn page_at(&mut self, id: StreamId) -> Option<&mut Page> {
        let place = place_of_page(&self.records, &self.group, id);
        let page = self.page.as_mut()?;
        let has = page.start <= id && page.next.as_ref().is_none_or(|next| place < *next);
        has.then_some(page)
    }
}

/// A walk over pending entries, in the order of their ids.
#[derive(Debug)]
pub(crate) struct PendingWalk {
    records: Aggregate,
    group: Group,
    from: StreamId,
    range: ScanRange,
    begins: bool,
}

impl PendingWalk {
    /// Begins at an id.
    pub(crate) fn new(records: &Aggregate, group: &Group, from: StreamId) -> Self {
        let range = pages_of(records, group);
        Self { records: records.clone(), group: *group, from, range, begins: true }
    }
}

impl Keyspace {
    /// Returns the next pending entries of a walk.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn next_pending(
        &mut self,
        walk: &mut PendingWalk,
    ) -> Result<Option<Vec<Pending>>, Fault> {
        if std::mem::take(&mut walk.begins) {
            let to = Bound::Included(place_of_page(&walk.records, &walk.group, walk.from));
            let at = ScanRange { to, ..pages_of(&walk.records, &walk.group) }.reversed();
            if let Some((place, _)) = self.next_stream_record(&at).await? {
                walk.range.from = Bound::Included(place);
            }
        }
        let Some((place, record)) = self.next_stream_record(&walk.range).await? else { return Ok(None) };
        go_behind(&mut walk.range, &place);
        turns::copied(record.len()).await;
        let mut entries = parse(&record)?;
        entries.retain(|entry| entry.id >= walk.from);
        Ok(Some(entries))
    }

    /// Returns the ids of the first and the last pending entry, if there are any.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn pending_ends(
        &mut self,
        records: &Aggregate,
        group: &Group,
    ) -> Result<Option<(StreamId, StreamId)>, Fault> {
        let pages = pages_of(records, group);
        let Some((_, first)) = self.next_stream_record(&pages).await? else { return Ok(None) };
        let Some((_, last)) = self.next_stream_record(&pages.reversed()).await? else { return Ok(None) };
        let (first, last) = (parse(&first)?, parse(&last)?);
        Ok(first.first().zip(last.last()).map(|(first, last)| (first.id, last.id)))
    }

    /// Reads the page that has, or would have, the entry of an id.
    async fn open_page<'e>(
        &mut self,
        edit: &'e mut PendingEdit,
        id: StreamId,
    ) -> Result<&'e mut Page, Fault> {
        if edit.page_at(id).is_none() {
            self.close_page(edit).await?;
            let at = place_of_page(&edit.records, &edit.group, id);
            let pages = pages_of(&edit.records, &edit.group);
            let before = ScanRange { to: Bound::Included(at.clone()), ..pages.clone() }.reversed();
            let found = self.next_stream_record(&before).await?;
            let mut after = pages;
            go_behind(&mut after, found.as_ref().map_or(&at, |(place, _)| place));
            let next = self.next_stream_record(&after).await?.map(|(place, _)| place);
            let (start, entries) = if let Some((place, record)) = found {
                let start = place.last_chunk().copied().ok_or(FOREIGN)?;
                (StreamId::of_bytes(start), parse(&record)?)
            } else {
                // The transaction notices a page that another client writes there.
                session(&mut self.session, &self.store)?.get(&at).await?;
                (id, Vec::new())
            };
            edit.page = Some(Page { start, next, entries, is_changed: false });
        }
        edit.page.as_mut().ok_or(FOREIGN)
    }

    /// Writes the page in memory, if it has changed, as several ones if it is too long.
    async fn close_page(&mut self, edit: &mut PendingEdit) -> Result<(), Fault> {
        let Some(page) = edit.page.take().filter(|page| page.is_changed) else { return Ok(()) };
        let session = session(&mut self.session, &self.store)?;
        for (start, record) in pages(page.start, &page.entries) {
            let at = place_of_page(&edit.records, &edit.group, start);
            session.store(&at, (!record.is_empty()).then_some(&record[..])).await?;
            turns::copied(record.len()).await;
        }
        Ok(())
    }

    /// Returns a pending entry.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn pending(
        &mut self,
        edit: &mut PendingEdit,
        id: StreamId,
    ) -> Result<Option<Pending>, Fault> {
        let page = self.open_page(edit, id).await?;
        let at = page.entries.binary_search_by_key(&id, |entry| entry.id);
        Ok(at.ok().map(|at| page.entries[at].clone()))
    }

    /// Makes an entry pending, or changes it.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn put_pending(&mut self, edit: &mut PendingEdit, entry: Pending) -> Result<(), Fault> {
        let consumer = entry.consumer.clone();
        let page = self.open_page(edit, entry.id).await?;
        page.is_changed = true;
        let old = match page.entries.binary_search_by_key(&entry.id, |entry| entry.id) {
            Ok(at) => Some(std::mem::replace(&mut page.entries[at], entry)),
            Err(at) => {
                page.entries.insert(at, entry);
                None
            }
        };
        edit.has_inserted |= old.is_none();
        edit.count(&consumer, 1);
        if let Some(old) = old {
            edit.count(&old.consumer, -1);
        }
        Ok(())
    }

    /// Removes a pending entry. Returns whether there was one.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn remove_pending(
        &mut self,
        edit: &mut PendingEdit,
        id: StreamId,
    ) -> Result<bool, Fault> {
        let page = self.open_page(edit, id).await?;
        let Ok(at) = page.entries.binary_search_by_key(&id, |entry| entry.id) else { return Ok(false) };
        page.is_changed = true;
        let old = page.entries.remove(at);
        edit.count(&old.consumer, -1);
        Ok(true)
    }

    /// Removes all pending entries of a consumer. Returns their number.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn remove_pending_of(
        &mut self,
        edit: &mut PendingEdit,
        consumer: &[u8],
    ) -> Result<u64, Fault> {
        let mut walk = PendingWalk::new(&edit.records, &edit.group, StreamId::ZERO);
        let mut removed = 0;
        while let Some(entries) = self.next_pending(&mut walk).await? {
            for entry in entries.iter().filter(|entry| entry.consumer == consumer) {
                removed += u64::from(self.remove_pending(edit, entry.id).await?);
            }
        }
        Ok(removed)
    }

    /// Ends changes: writes the counts of the consumers, and notes that `acting` was seen if it is
    /// given. Returns whether it is new.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn close_pending(
        &mut self,
        mut edit: PendingEdit,
        acting: Option<&[u8]>,
    ) -> Result<bool, Fault> {
        self.close_page(&mut edit).await?;
        let (now, mut is_new) = (self.now, false);
        if let Some(acting) = acting {
            edit.count(acting, 0);
        }
        for (name, more) in std::mem::take(&mut edit.counts) {
            let is_acting = acting == Some(&name[..]);
            if more == 0 && !is_acting {
                continue;
            }
            let found = self.consumer(&edit.records, &edit.group, &name).await?;
            is_new |= is_acting && found.is_none();
            let mut consumer = match found {
                Some(consumer) => consumer,
                None if is_acting => Consumer { seen: now, pending: 0 },
                None => continue,
            };
            consumer.pending = consumer.pending.saturating_add_signed(more);
            consumer.seen = if is_acting { now } else { consumer.seen };
            self.put_consumer(&edit.records, &edit.group, &name, Some(consumer)).await?;
        }
        Ok(is_new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter::{Store, block_on};
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn pages_have_all_pending_entries(
            steps in prop::collection::vec((0_u64..300, 0_u8..3, 0_usize..4), 1..200),
        ) {
            let store = Store::open("mem:64M").unwrap();
            let mut keys = Keyspace::new(store, Arc::default());
            block_on(keys.create_stream(b"key")).unwrap();
            let records = block_on(keys.stream(b"key")).unwrap().unwrap().aggregate(b"key");
            let group = Group::new(StreamId::ZERO, None);
            let mut model = BTreeMap::new();
            for chunk in steps.chunks(9) {
                block_on(async {
                    keys.begin(0, &BTreeSet::new()).await.unwrap();
                    let mut edit = PendingEdit::new(&records, &group);
                    for &(ms, what, consumer) in chunk {
                        let id = StreamId { ms, seq: 7 };
                        let consumer = vec![b'c'; 200 * consumer + 1];
                        let entry = Pending { id, time: ms, deliveries: 1, consumer };
                        assert_eq!(keys.pending(&mut edit, id).await.unwrap(), model.get(&id).cloned());
                        if what == 0 {
                            let is_removed = keys.remove_pending(&mut edit, id).await.unwrap();
                            assert_eq!(is_removed, model.remove(&id).is_some());
                        } else {
                            model.insert(id, entry.clone());
                            keys.put_pending(&mut edit, entry).await.unwrap();
                        }
                    }
                    keys.close_pending(edit, Some(b"c")).await.unwrap();
                    assert!(keys.commit().await.unwrap());
                    keys.roll_back();
                    let (mut walk, mut found) = (PendingWalk::new(&records, &group, StreamId::ZERO), Vec::new());
                    while let Some(entries) = keys.next_pending(&mut walk).await.unwrap() {
                        found.extend(entries);
                    }
                    assert_eq!(found, model.values().cloned().collect::<Vec<_>>());
                    let ends = model.keys().next().copied().zip(model.keys().last().copied());
                    assert_eq!(keys.pending_ends(&records, &group).await.unwrap(), ends);
                });
            }
            let own = model.values().filter(|entry| entry.consumer == b"c").count() as u64;
            let consumer = block_on(keys.consumer(&records, &group, b"c")).unwrap().unwrap();
            prop_assert_eq!(consumer.pending, own);
        }
    }
}
