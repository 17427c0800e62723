//! Whole streams, for `DUMP` and `RESTORE`. The records of a restored one are in a generation that no
//! head names before all of them are written (`drafts.rs`).

use super::groups::{Consumer, Group, consumer_name};
use super::head::{Front, Stream};
use super::id::StreamId;
use super::packed::Packed;
use super::pending::{Pending, PendingWalk, pages};
use super::reading::StreamWalk;
use crate::fault::Fault;
use crate::keyspace::aggregate::Aggregate;
use crate::keyspace::drafts::Draft;
use crate::keyspace::{Family, Head, Keyspace, Kind, Retries};
use crate::turns;
use std::collections::BTreeMap;

/// A stream with all entries and groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WholeStream {
    /// The ids and the bodies of the entries, in order.
    pub(crate) entries: Vec<(StreamId, Vec<u8>)>,
    /// The greatest id ever used.
    pub(crate) last: StreamId,
    /// The greatest id of a deleted entry.
    pub(crate) deleted: StreamId,
    /// How many entries were ever added.
    pub(crate) added: u64,
    pub(crate) groups: Vec<WholeGroup>,
}

/// A consumer group with all pending entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WholeGroup {
    pub(crate) name: Vec<u8>,
    /// The id of the last entry that was delivered.
    pub(crate) last: StreamId,
    /// The number of entries up to that one, if it is known.
    pub(crate) read: Option<u64>,
    /// When each consumer was seen, in ms since the Unix epoch.
    pub(crate) consumers: BTreeMap<Vec<u8>, u64>,
    /// In the order of their ids.
    pub(crate) pending: Vec<Pending>,
}

impl WholeStream {
    /// Returns the head of the stream, with all entries in chunks that are passed to `visit`, except the
    /// last ones.
    fn head(&self, mut visit: impl FnMut(StreamId, &Packed)) -> Result<Stream, Fault> {
        let mut stream = Stream::new();
        for (id, body) in &self.entries {
            if !stream.tail.has_room(body)
                && let Some((first, last)) = stream.tail.ends()?
            {
                let full = std::mem::take(&mut stream.tail);
                stream.chunks += 1;
                // A record has fewer entries than that.
                stream.front.get_or_insert(Front { count: full.count() as u32, last });
                visit(first, &full);
            }
            stream.push(*id, body);
        }
        (stream.last, stream.deleted, stream.added) = (self.last, self.deleted, self.added);
        Ok(stream)
    }

    /// Returns whether the stream is one record.
    pub(crate) fn is_one_record(&self) -> bool {
        let mut tail = Packed::default();
        self.groups.is_empty()
            && self.entries.iter().all(|(id, body)| {
                let fits = tail.count() == 0 || tail.has_room(body);
                tail.push(*id, body);
                fits
            })
    }

    /// Determines how many entries each group has read, as far as that can be computed.
    pub(crate) fn compute_reads(&mut self) {
        let mut stream = Stream::new();
        (stream.length, stream.added) = (self.entries.len() as u64, self.added);
        (stream.last, stream.deleted) = (self.last, self.deleted);
        stream.first = self.entries.first().map_or(StreamId::ZERO, |(id, _)| *id);
        for group in &mut self.groups {
            group.read = stream.distance_to(group.last);
        }
    }
}

impl Keyspace {
    /// Returns the stream of a key, or `None` if it has changed too much while it was read. An error of
    /// the type means the same. The groups are read before the entries: a group may not have read
    /// entries that are missing.
    ///
    /// # Errors
    /// The store's errors, [`crate::fault::WRONG_TYPE`], and the error that `check` returns for the
    /// bytes read so far.
    pub(crate) async fn whole_stream(
        &mut self,
        key: &[u8],
        check: impl Fn(usize) -> Result<(), Fault>,
    ) -> Result<Option<WholeStream>, Fault> {
        let Some(stream) = self.stream(key).await? else { return Ok(None) };
        let (records, mut whole, mut bytes) = (stream.aggregate(key), WholeStream::default(), 0);
        for (name, _) in self.groups(&records).await? {
            if let Some(group) = self.whole_group(&records, name, &mut bytes, &check).await? {
                whole.groups.push(group);
            }
        }
        let Some(stream) = self.stream(key).await? else { return Ok(None) };
        if stream.aggregate(key) != records {
            return Ok(None);
        }
        let mut walk = StreamWalk::new(key, &stream, StreamId::ZERO..=StreamId::MAX, false);
        while let Some(piece) = self.next_entries(&mut walk).await? {
            for entry in piece.entries()? {
                bytes += size_of::<(StreamId, Vec<u8>)>() + entry.body.len();
                whole.entries.push((entry.id, entry.body.to_vec()));
            }
            check(bytes)?;
            turns::worked().await;
        }
        (whole.last, whole.deleted, whole.added) = (stream.last, stream.deleted, stream.added);
        Ok(self.stream_stands(&walk).await?.then_some(whole))
    }

    /// Returns a group as it was at one moment, except that entries may have been acknowledged since.
    async fn whole_group(
        &mut self,
        records: &Aggregate,
        name: Vec<u8>,
        bytes: &mut usize,
        check: impl Fn(usize) -> Result<(), Fault>,
    ) -> Result<Option<WholeGroup>, Fault> {
        let mut retries = Retries::default();
        loop {
            let Some(group) = self.group(records, &name).await? else { return Ok(None) };
            let mut own = 0;
            let mut walk = PendingWalk::new(records, &group, StreamId::ZERO);
            let (mut pending, mut consumers) = (Vec::new(), BTreeMap::new());
            while let Some(entries) = self.next_pending(&mut walk).await? {
                own += entries.iter().map(|entry| size_of::<Pending>() + entry.consumer.len()).sum::<usize>();
                check(*bytes + own)?;
                // A consumer may be removed before it is read.
                consumers.extend(entries.iter().map(|entry| (entry.consumer.clone(), entry.time)));
                pending.extend(entries);
            }
            let found = self.consumers(records, &group).await?;
            consumers.extend(found.into_iter().map(|(name, consumer)| (name, consumer.seen)));
            if self.group(records, &name).await? == Some(group) {
                *bytes += own;
                let (last, read) = (group.last, group.read);
                return Ok(Some(WholeGroup { name, last, read, consumers, pending }));
            }
            retries.again().await?;
        }
    }

    /// Makes a stream the value of a key, if the key may be replaced: `may_replace` gets its head, or
    /// `None` if it is absent. Returns whether it did.
    ///
    /// # Errors
    /// The store's errors. Nothing has changed then.
    pub(crate) async fn set_stream(
        &mut self,
        key: &[u8],
        whole: &WholeStream,
        expiry: Option<u64>,
        may_replace: impl FnMut(Option<&Head<'_>>) -> bool + Send,
    ) -> Result<bool, Fault> {
        let mut draft = Draft::new(Kind::Stream, key, expiry)?;
        if let Err(fault) = self.draft_stream(&mut draft, whole, expiry).await {
            self.discard_draft(draft).await?;
            return Err(fault);
        }
        self.publish_draft(draft, may_replace).await
    }

    async fn draft_stream(
        &mut self,
        draft: &mut Draft,
        whole: &WholeStream,
        expiry: Option<u64>,
    ) -> Result<(), Fault> {
        let mut chunks = Vec::new();
        let mut stream = whole.head(|first, full| {
            let mut record = Vec::new();
            full.write(&mut record);
            chunks.push((first, record));
        })?;
        stream.expiry = expiry;
        let mut head = Vec::new();
        stream.write(&mut head);
        let records = stream.aggregate(&draft.key);
        draft.name_by(head, (!whole.is_one_record()).then(|| records.clone()));
        for (first, record) in chunks {
            self.draft_stream_record(draft, (&records, Family::StreamChunk), &first.bytes(), &record).await?;
        }
        for group in &whole.groups {
            self.draft_group(draft, &records, group).await?;
        }
        Ok(())
    }

    async fn draft_group(
        &mut self,
        draft: &mut Draft,
        records: &Aggregate,
        whole: &WholeGroup,
    ) -> Result<(), Fault> {
        let group = Group::new(whole.last, whole.read);
        self.draft_stream_record(draft, (records, Family::StreamGroup), &whole.name, &group.record()).await?;
        let mut counts = BTreeMap::<&[u8], u64>::new();
        for entry in &whole.pending {
            *counts.entry(&entry.consumer).or_default() += 1;
        }
        for (name, seen) in &whole.consumers {
            let pending = counts.get(&name[..]).copied().unwrap_or(0);
            let (name, record) = (consumer_name(&group, name), Consumer { seen: *seen, pending }.record());
            self.draft_stream_record(draft, (records, Family::StreamConsumer), &name, &record).await?;
        }
        let Some(first) = whole.pending.first() else { return Ok(()) };
        for (start, page) in pages(first.id, &whole.pending) {
            let name = [&group.id[..], &start.bytes()].concat();
            self.draft_stream_record(draft, (records, Family::StreamPending), &name, &page).await?;
        }
        Ok(())
    }

    async fn draft_stream_record(
        &mut self,
        draft: &mut Draft,
        (records, family): (&Aggregate, Family),
        name: &[u8],
        record: &[u8],
    ) -> Result<(), Fault> {
        records.check(name)?;
        self.draft_record(draft, records.place(family, name), record).await?;
        turns::copied(record.len()).await;
        Ok(())
    }
}
