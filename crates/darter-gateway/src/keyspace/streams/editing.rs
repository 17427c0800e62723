//! Changes of the head and the chunks of a stream together, in a transaction of the index, which
//! verifies every record that it has read.
//!
//! Each such change also changes the head.

use super::head::{Front, Stream, Trim};
use super::id::StreamId;
use super::packed::Packed;
use super::reading::chunk_at;
use crate::fault::Fault;
use crate::keyspace::aggregate::Aggregate;
use crate::keyspace::{Family, Keyspace, place, session};
use crate::turns;

/// A stream that a transaction reads and changes.
#[derive(Debug)]
pub(crate) struct OpenStream {
    key: Vec<u8>,
    records: Aggregate,
    pub(super) stream: Stream,
}

impl Keyspace {
    /// Opens a stream in the transaction in progress; a new one if the key is absent and `creates` is
    /// set. Its changes of chunks are part of the transaction at once, that of the head with
    /// [`Keyspace::close_stream`].
    ///
    /// # Errors
    /// The store's errors, and [`crate::fault::WRONG_TYPE`].
    pub(crate) async fn open_stream(
        &mut self,
        key: &[u8],
        creates: bool,
    ) -> Result<Option<OpenStream>, Fault> {
        let found = self.stream(key).await?;
        let stream = found.or_else(|| creates.then(Stream::new));
        let open = |stream: Stream| OpenStream { key: key.to_vec(), records: stream.aggregate(key), stream };
        Ok(stream.map(open))
    }

    /// Writes the head of an open stream that has changed.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn close_stream(&mut self, open: OpenStream) -> Result<(), Fault> {
        let mut record = Vec::new();
        open.stream.write(&mut record);
        place(&mut self.key, Family::Key, &open.key);
        session(&mut self.session, &self.store)?.store(&self.key, Some(&record)).await
    }

    /// Writes a chunk, or removes it if it has no entries.
    async fn write_stream_chunk(&mut self, at: &[u8], entries: &Packed) -> Result<(), Fault> {
        let mut record = Vec::new();
        entries.write(&mut record);
        let written = (entries.count() > 0).then_some(&record[..]);
        session(&mut self.session, &self.store)?.store(at, written).await?;
        turns::copied(record.len()).await;
        Ok(())
    }

    /// Adds an entry. Returns its id.
    ///
    /// # Errors
    /// The store's errors, and an error if the id is not possible.
    pub(crate) async fn add_to_stream(
        &mut self,
        open: &mut OpenStream,
        wanted: super::NewId,
        body: &[u8],
    ) -> Result<StreamId, Fault> {
        let id = open.stream.next_id(wanted)?;
        if !open.stream.tail.has_room(body)
            && let Some((first, last)) = open.stream.tail.ends()?
        {
            let full = std::mem::take(&mut open.stream.tail);
            let at = open.records.place(Family::StreamChunk, &first.bytes());
            open.records.check(&first.bytes())?;
            self.write_stream_chunk(&at, &full).await?;
            open.stream.chunks += 1;
            if open.stream.front.is_none() {
                // A record has fewer entries than that.
                open.stream.front = Some(Front { count: full.count() as u32, last });
            }
        }
        open.stream.push(id, body);
        Ok(id)
    }

    /// Removes the oldest entries. Returns their number.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn trim_stream(&mut self, open: &mut OpenStream, trim: &Trim) -> Result<u64, Fault> {
        let (mut removed, mut goes_on) = (0, true);
        while goes_on && open.stream.front.is_some() {
            let Some((at, mut entries)) = self.first_stream_chunk(&open.records).await? else { break };
            let before = removed;
            goes_on = open.stream.trim_record(trim, &mut entries, &mut removed)?;
            if removed > before {
                self.write_stream_chunk(&at, &entries).await?;
                open.stream.chunks -= u64::from(entries.count() == 0).min(open.stream.chunks);
                self.find_front(open).await?;
            }
            goes_on &= removed > before;
        }
        if open.stream.front.is_none() && goes_on {
            open.stream.trim_tail(trim, &mut removed)?;
        }
        Ok(removed)
    }

    /// Deletes the entries of some ids, which are in order. Returns the number of deleted entries.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn delete_from_stream(
        &mut self,
        open: &mut OpenStream,
        ids: &[StreamId],
    ) -> Result<u64, Fault> {
        let (mut deleted, mut at) = (0, 0);
        while let Some(&id) = ids.get(at).filter(|id| open.stream.is_in_chunks(**id)) {
            at += 1;
            let Some((place, mut entries)) = self.stream_chunk_at(&open.records, id).await? else { continue };
            let Some((_, last)) = entries.ends()? else { continue };
            let more = ids[at..].iter().take_while(|id| **id <= last).count();
            let wanted = &ids[at - 1..at + more];
            at += more;
            let mut greatest = open.stream.deleted;
            let gone = entries.retain(|id| {
                let goes = wanted.binary_search(&id).is_ok();
                greatest = if goes { greatest.max(id) } else { greatest };
                !goes
            })?;
            if gone > 0 {
                open.stream.deleted = greatest;
                open.stream.length = open.stream.length.saturating_sub(gone as u64);
                deleted += gone as u64;
                self.write_stream_chunk(&place, &entries).await?;
                open.stream.chunks -= u64::from(entries.count() == 0).min(open.stream.chunks);
            }
        }
        if deleted > 0 {
            self.find_front(open).await?;
        }
        Ok(deleted + open.stream.delete_from_tail(ids)?)
    }

    /// Finds the first chunk and the first entry.
    async fn find_front(&mut self, open: &mut OpenStream) -> Result<(), Fault> {
        open.stream.front = None;
        if let Some((_, entries)) = self.first_stream_chunk(&open.records).await?
            && let Some((first, last)) = entries.ends()?
        {
            open.stream.front = Some(Front { count: entries.count() as u32, last });
            open.stream.first = first;
        }
        open.stream.find_first()
    }

    /// Returns the first chunk and its place.
    async fn first_stream_chunk(&mut self, records: &Aggregate) -> Result<Option<(Vec<u8>, Packed)>, Fault> {
        let range = records.range(Family::StreamChunk);
        self.next_stream_record(&range)
            .await?
            .map(|(at, record)| Ok((at, Packed::parse(&record)?)))
            .transpose()
    }

    /// Returns the chunk in which the entry of an id would be, and its place.
    async fn stream_chunk_at(
        &mut self,
        records: &Aggregate,
        id: StreamId,
    ) -> Result<Option<(Vec<u8>, Packed)>, Fault> {
        let range = chunk_at(records, id);
        self.next_stream_record(&range)
            .await?
            .map(|(at, record)| Ok((at, Packed::parse(&record)?)))
            .transpose()
    }
}
