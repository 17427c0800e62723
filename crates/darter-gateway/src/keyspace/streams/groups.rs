//! Consumer groups of a stream.
//!
//! ```text
//! y, key, generation, name of the group     -> id of the group, 8 bytes | last id, 16 bytes
//!                                              | entries read, 8 bytes | insertions, 8 bytes
//! u, key, generation, id of the group, name -> when the consumer was seen, 8 bytes | pending entries, 8 bytes
//! ```
//!
//! Numbers are little-endian. The id of a group is random. The entries read are all ones if they are
//! not known. *Insertions* counts the changes that have made entries pending: so two such changes
//! never commit without knowing of each other. The pending entries are in `pending.rs`.

use super::head::Stream;
use super::id::StreamId;
use crate::fault::{FOREIGN, Fault};
use crate::keyspace::aggregate::Aggregate;
use crate::keyspace::walk::go_behind;
use crate::keyspace::{Family, Keyspace, session};
use crate::turns;

/// Records read at a time.
const TOGETHER: usize = 128;

/// The id of a group.
pub(super) type GroupId = [u8; 8];

/// A consumer group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(super) id: GroupId,
    /// The id of the last entry that was delivered.
    pub(crate) last: StreamId,
    /// The number of entries up to that one, deleted ones included, if it is known.
    pub(crate) read: Option<u64>,
    insertions: u64,
}

/// A consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Consumer {
    /// When it has got or claimed entries, in ms since the Unix epoch.
    pub(crate) seen: u64,
    /// The number of its pending entries.
    pub(crate) pending: u64,
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

impl Group {
    /// Returns a new group, which has read a stream up to an id.
    pub(crate) fn new(last: StreamId, read: Option<u64>) -> Self {
        Self { id: darter_fabric::random_word().to_le_bytes(), last, read, insertions: 0 }
    }

    fn parse(mut record: &[u8]) -> Option<Self> {
        let (id, last) = (take(&mut record)?, StreamId::of_bytes(take(&mut record)?));
        let read = Some(u64::from_le_bytes(take(&mut record)?)).filter(|read| *read != u64::MAX);
        Some(Self { id, last, read, insertions: u64::from_le_bytes(take(&mut record)?) })
    }

    pub(super) fn record(&self) -> Vec<u8> {
        let (read, insertions) = (self.read.unwrap_or(u64::MAX), self.insertions);
        [&self.id[..], &self.last.bytes(), &read.to_le_bytes(), &insertions.to_le_bytes()].concat()
    }

    /// Returns the group after it has read the stream up to an id.
    pub(crate) fn at(self, last: StreamId, read: Option<u64>) -> Self {
        Self { last, read, ..self }
    }

    /// Must be called when entries become pending.
    pub(crate) fn has_inserted(&mut self) {
        self.insertions = self.insertions.wrapping_add(1);
    }

    /// Notes that an entry was delivered.
    pub(crate) fn deliver(&mut self, stream: &Stream, id: StreamId) {
        if id <= self.last {
            return;
        }
        match self.read {
            Some(read) if !stream.has_gap_after(id) => {
                self.read = Some(read.wrapping_add(1)).filter(|read| *read != u64::MAX);
            }
            _ if stream.added > 0 => self.read = stream.distance_to(id),
            _ => {}
        }
        self.last = id;
    }

    /// Returns the number of entries that were not delivered yet, if it is known.
    pub(crate) fn lag(&self, stream: &Stream) -> Option<i64> {
        if stream.added == 0 {
            return Some(0);
        }
        let read = match self.read {
            Some(read) if !stream.has_gap_after(self.last) => read,
            _ => stream.distance_to(self.last)?,
        };
        Some(stream.added.wrapping_sub(read).cast_signed())
    }
}

impl Stream {
    /// Returns whether entries from an id on were deleted, so that others after it may be missing.
    fn has_gap_after(&self, id: StreamId) -> bool {
        self.length > 0 && self.deleted != StreamId::ZERO && self.first <= self.deleted && id <= self.deleted
    }

    /// Returns the number of entries ever added up to an id, if it can be computed.
    pub(super) fn distance_to(&self, id: StreamId) -> Option<u64> {
        if self.added == 0 {
            return Some(0);
        }
        if id == self.last || self.length == 0 && id < self.last {
            return Some(self.added);
        }
        let is_whole = self.deleted == StreamId::ZERO || self.deleted < self.first;
        let before = self.added.wrapping_sub(self.length);
        match id {
            _ if id > self.last || !is_whole => None,
            _ if id < self.first => Some(before),
            _ if id == self.first => Some(before.wrapping_add(1)),
            _ => None,
        }
    }
}

impl Consumer {
    fn parse(mut record: &[u8]) -> Option<Self> {
        let seen = u64::from_le_bytes(take(&mut record)?);
        Some(Self { seen, pending: u64::from_le_bytes(take(&mut record)?) })
    }

    pub(super) fn record(self) -> Vec<u8> {
        [self.seen.to_le_bytes(), self.pending.to_le_bytes()].concat()
    }
}

/// Returns the name of a consumer's record.
pub(super) fn consumer_name(group: &Group, name: &[u8]) -> Vec<u8> {
    [&group.id, name].concat()
}

impl Keyspace {
    /// Returns the record of a stream's group or consumer.
    async fn stream_record(
        &mut self,
        records: &Aggregate,
        family: Family,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>, Fault> {
        records.check(name)?;
        let at = records.place(family, name);
        let session = session(&mut self.session, &self.store)?;
        let record = session.get(&at).await?;
        session.has_read_chunk(at);
        Ok(record)
    }

    /// Writes or removes the record of a stream's group or consumer.
    async fn put_stream_record(
        &mut self,
        records: &Aggregate,
        family: Family,
        name: &[u8],
        record: Option<&[u8]>,
    ) -> Result<(), Fault> {
        records.check(name)?;
        let at = records.place(family, name);
        session(&mut self.session, &self.store)?.store(&at, record).await
    }

    /// Returns a consumer group.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn group(&mut self, records: &Aggregate, name: &[u8]) -> Result<Option<Group>, Fault> {
        let record = self.stream_record(records, Family::StreamGroup, name).await?;
        record.map(|record| Group::parse(&record).ok_or(FOREIGN)).transpose()
    }

    /// Writes a consumer group, in a transaction.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn put_group(
        &mut self,
        records: &Aggregate,
        name: &[u8],
        group: &Group,
    ) -> Result<(), Fault> {
        self.put_stream_record(records, Family::StreamGroup, name, Some(&group.record())).await
    }

    /// Returns a consumer.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn consumer(
        &mut self,
        records: &Aggregate,
        group: &Group,
        name: &[u8],
    ) -> Result<Option<Consumer>, Fault> {
        let record = self.stream_record(records, Family::StreamConsumer, &consumer_name(group, name)).await?;
        record.map(|record| Consumer::parse(&record).ok_or(FOREIGN)).transpose()
    }

    /// Writes or removes a consumer, in a transaction.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn put_consumer(
        &mut self,
        records: &Aggregate,
        group: &Group,
        name: &[u8],
        consumer: Option<Consumer>,
    ) -> Result<(), Fault> {
        let record = consumer.map(Consumer::record);
        let name = consumer_name(group, name);
        self.put_stream_record(records, Family::StreamConsumer, &name, record.as_deref()).await
    }

    /// Passes the names and the records of a family that begin with some bytes to `visit`, in order.
    async fn walk_stream_records(
        &mut self,
        records: &Aggregate,
        family: Family,
        prefix: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Fault> {
        let start = records.place(family, prefix);
        let mut range = darter::ScanRange::prefix(&start);
        loop {
            let mut met = Vec::new();
            let session = session(&mut self.session, &self.store)?;
            let scan = session.scan_with(&range, TOGETHER, |place, record| {
                met.push((place.to_vec(), record.to_vec()));
            });
            scan.await?;
            let is_last = met.len() < TOGETHER;
            if let Some((last, _)) = met.last() {
                go_behind(&mut range, last);
            }
            for (place, record) in met {
                visit(place.get(start.len()..).unwrap_or_default(), &record);
                session.has_read_chunk(place);
                turns::worked().await;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Returns the groups of a stream, by name.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn groups(&mut self, records: &Aggregate) -> Result<Vec<(Vec<u8>, Group)>, Fault> {
        let mut groups = Vec::new();
        self.walk_stream_records(records, Family::StreamGroup, b"", |name, record| {
            groups.extend(Group::parse(record).map(|group| (name.to_vec(), group)));
        })
        .await?;
        Ok(groups)
    }

    /// Returns the consumers of a group, by name.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn consumers(
        &mut self,
        records: &Aggregate,
        group: &Group,
    ) -> Result<Vec<(Vec<u8>, Consumer)>, Fault> {
        let mut consumers = Vec::new();
        self.walk_stream_records(records, Family::StreamConsumer, &group.id, |name, record| {
            consumers.extend(Consumer::parse(record).map(|consumer| (name.to_vec(), consumer)));
        })
        .await?;
        Ok(consumers)
    }

    /// Removes a group with its consumers and pending entries, in a transaction.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn remove_group(
        &mut self,
        records: &Aggregate,
        name: &[u8],
        group: &Group,
    ) -> Result<(), Fault> {
        self.put_stream_record(records, Family::StreamGroup, name, None).await?;
        for family in [Family::StreamConsumer, Family::StreamPending] {
            let mut names = Vec::new();
            self.walk_stream_records(records, family, &group.id, |name, _| names.push(name.to_vec())).await?;
            for name in names {
                let name = [&group.id[..], &name].concat();
                self.put_stream_record(records, family, &name, None).await?;
                turns::worked().await;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64) -> StreamId {
        StreamId { ms, seq: 0 }
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        for read in [None, Some(0), Some(7)] {
            let mut group = Group::new(id(5), read);
            group.has_inserted();
            assert_eq!(Group::parse(&group.record()), Some(group));
        }
        let consumer = Consumer { seen: 7, pending: 8 };
        assert_eq!(Consumer::parse(&consumer.record()), Some(consumer));
        assert_eq!((Group::parse(&[0; 39]), Consumer::parse(&[0; 15])), (None, None));
    }

    #[test]
    fn the_lag_is_known_unless_entries_in_between_were_deleted() {
        let stream = Stream { length: 5, added: 5, first: id(1), last: id(5), ..Stream::new() };
        let mut group = Group::new(StreamId::ZERO, None);
        assert_eq!(group.lag(&stream), Some(5));
        group.deliver(&stream, id(1));
        assert_eq!((group.read, group.lag(&stream)), (Some(1), Some(4)));
        group.deliver(&stream, id(2));
        group.deliver(&stream, id(2));
        assert_eq!((group.read, group.lag(&stream)), (Some(2), Some(3)));
        let gap = Stream { length: 4, deleted: id(4), ..stream.clone() };
        assert_eq!(group.lag(&gap), None);
        group.deliver(&gap, id(3));
        assert_eq!((group.read, group.lag(&gap)), (None, None));
        group.deliver(&gap, id(5));
        assert_eq!((group.read, group.lag(&gap)), (Some(5), Some(0)));
        let empty = Stream { length: 0, added: 5, first: StreamId::ZERO, ..stream };
        assert_eq!(Group::new(id(3), None).lag(&empty), Some(0));
        assert_eq!(Group::new(id(3), None).lag(&Stream::new()), Some(0));
        assert_eq!(Group::new(id(9), None).lag(&empty), None);
    }
}
