//! Reads of streams. A command that reads several records reads each as it is at some time while the
//! command runs; a transaction verifies all of them.

use super::head::Stream;
use super::id::StreamId;
use super::packed::{Entry, Packed};
use crate::fault::{FOREIGN, Fault, WRONG_TYPE};
use crate::keyspace::aggregate::{Aggregate, is_empty};
use crate::keyspace::walk::go_behind;
use crate::keyspace::{Family, Head, Keyspace, Kind, session};
use darter::ScanRange;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, RangeInclusive};

/// Records that a walk reads at first.
const TOGETHER_FIRST: usize = 4;
/// Most records that are read at a time.
const TOGETHER_MAX: usize = 128;
/// Bytes of records that are read at a time, estimated from those before.
const TOGETHER_BYTES: usize = 1 << 20;

/// Returns the range whose first record is the chunk in which the entry of an id would be.
pub(super) fn chunk_at(records: &Aggregate, id: StreamId) -> ScanRange {
    let to = Bound::Included(records.place(Family::StreamChunk, &id.bytes()));
    ScanRange { to, ..records.range(Family::StreamChunk) }.reversed()
}

/// Which chunks a walk reads next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunks {
    /// The one in which the first id would be.
    First,
    /// The next ones.
    Next,
    /// None.
    Ended,
}

/// A walk over the entries between two ids, in either direction.
#[derive(Debug)]
pub(crate) struct StreamWalk {
    records: Aggregate,
    stream: Stream,
    ids: RangeInclusive<StreamId>,
    is_reverse: bool,
    /// The chunks that are still to be read.
    range: ScanRange,
    asked: usize,
    chunks: Chunks,
    /// The entries in the head, until they were returned.
    tail: Option<Packed>,
    /// Whether a chunk was read.
    has_read: bool,
    found: VecDeque<(StreamId, Vec<u8>)>,
}

/// Entries that a walk has met.
#[derive(Debug)]
pub(crate) struct Piece {
    entries: Packed,
    ids: RangeInclusive<StreamId>,
    /// The entries of chunks that were in the head when the walk began are left out.
    in_chunks: Option<Stream>,
    is_reverse: bool,
}

impl Piece {
    /// Returns the entries in the order of the walk.
    ///
    /// # Errors
    /// Fails if the record is damaged.
    pub(crate) fn entries(&self) -> Result<Vec<Entry<'_>>, Fault> {
        let mut entries = self.entries.entries()?;
        entries.retain(|entry| {
            let is_own = self.in_chunks.as_ref().is_none_or(|stream| stream.is_in_chunks(entry.id));
            is_own && self.ids.contains(&entry.id)
        });
        if self.is_reverse {
            entries.reverse();
        }
        Ok(entries)
    }
}

impl StreamWalk {
    /// Begins a walk.
    pub(crate) fn new(key: &[u8], stream: &Stream, ids: RangeInclusive<StreamId>, is_reverse: bool) -> Self {
        let records = stream.aggregate(key);
        let range = if is_reverse {
            chunk_at(&records, *ids.end())
        } else {
            let to = Bound::Included(records.place(Family::StreamChunk, &ids.end().bytes()));
            ScanRange { to, ..records.range(Family::StreamChunk) }
        };
        let has_chunks = !ids.is_empty() && stream.is_in_chunks(*ids.start()) && *ids.end() >= stream.first;
        let chunks = match has_chunks {
            false => Chunks::Ended,
            true if !is_reverse && *ids.start() > stream.first => Chunks::First,
            true => Chunks::Next,
        };
        let has_tail = !ids.is_empty() && stream.tail.count() > 0 && *ids.end() >= stream.tail.base();
        let tail = has_tail.then(|| stream.tail.clone());
        let (stream, asked, found) = (stream.clone(), TOGETHER_FIRST, VecDeque::new());
        Self { records, stream, ids, is_reverse, range, asked, chunks, tail, has_read: false, found }
    }

    fn tail(&mut self) -> Option<Piece> {
        let (ids, is_reverse) = (self.ids.clone(), self.is_reverse);
        self.tail.take().map(|entries| Piece { entries, ids, in_chunks: None, is_reverse })
    }
}

impl Keyspace {
    /// Returns the stream of a key; `None` if the key is absent.
    ///
    /// # Errors
    /// The store's errors, and [`WRONG_TYPE`].
    pub(crate) async fn stream(&mut self, key: &[u8]) -> Result<Option<Stream>, Fault> {
        let Some(record) = self.head_record(key).await? else { return Ok(None) };
        let head = Head::parse(&record)?;
        if head.kind == Kind::Stream {
            return Stream::of(&head).map(Some);
        }
        let aggregate = Aggregate::of(key, &head).ok_or(WRONG_TYPE)?;
        let session = session(&mut self.session, &self.store)?;
        if is_empty(session, &aggregate, self.now).await? { Ok(None) } else { Err(WRONG_TYPE) }
    }

    /// Returns the first record of a range, and its place.
    pub(super) async fn next_stream_record(
        &mut self,
        range: &ScanRange,
    ) -> Result<Option<(Vec<u8>, Vec<u8>)>, Fault> {
        let mut found = None;
        let session = session(&mut self.session, &self.store)?;
        session.scan_with(range, 1, |place, record| found = Some((place.to_vec(), record.to_vec()))).await?;
        if let Some((place, _)) = &found {
            session.has_read_chunk(place.clone());
        }
        Ok(found)
    }

    /// Returns the next entries of a walk.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn next_entries(&mut self, walk: &mut StreamWalk) -> Result<Option<Piece>, Fault> {
        if walk.is_reverse
            && let Some(tail) = walk.tail()
        {
            return Ok(Some(tail));
        }
        if walk.found.is_empty() && walk.chunks != Chunks::Ended {
            self.read_chunks(walk).await?;
        }
        let Some((start, record)) = walk.found.pop_front() else { return Ok(walk.tail()) };
        if walk.is_reverse && start <= *walk.ids.start() {
            (walk.chunks, walk.found) = (Chunks::Ended, VecDeque::new());
        }
        Ok(Some(Piece {
            entries: Packed::parse(&record)?,
            ids: walk.ids.clone(),
            in_chunks: Some(walk.stream.clone()),
            is_reverse: walk.is_reverse,
        }))
    }

    /// Reads the next chunks of a walk.
    async fn read_chunks(&mut self, walk: &mut StreamWalk) -> Result<(), Fault> {
        walk.has_read = true;
        let id_of = |records: &Aggregate, place: &[u8]| {
            let id = records.element(place).try_into().map_err(|_| FOREIGN)?;
            Ok::<_, Fault>(StreamId::of_bytes(id))
        };
        let chunks = std::mem::replace(&mut walk.chunks, Chunks::Next);
        if chunks == Chunks::First
            && let Some((place, record)) =
                self.next_stream_record(&chunk_at(&walk.records, *walk.ids.start())).await?
        {
            walk.found.push_back((id_of(&walk.records, &place)?, record));
            go_behind(&mut walk.range, &place);
            return Ok(());
        }
        let (mut read, mut bytes) = (Vec::new(), 0);
        let session = session(&mut self.session, &self.store)?;
        let seen = session.scan_with(&walk.range, walk.asked, |place, record| {
            bytes += record.len();
            read.push((place.to_vec(), record.to_vec()));
        });
        let seen = seen.await?;
        if seen < walk.asked {
            walk.chunks = Chunks::Ended;
        }
        walk.asked = (walk.asked * 2).min(TOGETHER_MAX).min(TOGETHER_BYTES * seen / bytes.max(1)).max(1);
        if let Some((last, _)) = read.last() {
            go_behind(&mut walk.range, last);
        }
        for (place, record) in read {
            walk.found.push_back((id_of(&walk.records, &place)?, record));
            session.has_read_chunk(place);
        }
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Returns whether a walk has met each entry that existed throughout.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn stream_stands(&mut self, walk: &StreamWalk) -> Result<bool, Fault> {
        if walk.has_read { self.stands(&walk.records).await } else { Ok(true) }
    }

    /// Returns the entries of some ids, which are in order, as far as they exist: their bodies, or
    /// `None` if these have more bytes than `most`.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn entries_of(
        &mut self,
        key: &[u8],
        stream: &Stream,
        ids: &[StreamId],
        most: usize,
    ) -> Result<Option<BTreeMap<StreamId, Vec<u8>>>, Fault> {
        let (mut found, mut at, mut bytes) = (BTreeMap::new(), 0, 0);
        let records = stream.aggregate(key);
        while let Some(&id) = ids.get(at).filter(|id| stream.is_in_chunks(**id)) {
            at += 1;
            let read = if id < stream.first {
                None
            } else {
                self.next_stream_record(&chunk_at(&records, id)).await?
            };
            let Some((_, record)) = read else { continue };
            let entries = Packed::parse(&record)?;
            let Some((_, last)) = entries.ends()? else { continue };
            let more = ids[at..].iter().take_while(|id| **id <= last).count();
            bytes += collect(&entries, &ids[at - 1..at + more], &mut found)?;
            if bytes > most {
                return Ok(None);
            }
            at += more;
            crate::turns::copied(record.len()).await;
        }
        bytes += collect(&stream.tail, &ids[at..], &mut found)?;
        Ok((bytes <= most).then_some(found))
    }
}

/// Collects the entries of some ids, which are in order. Returns the bytes of their bodies.
fn collect(
    entries: &Packed,
    ids: &[StreamId],
    found: &mut BTreeMap<StreamId, Vec<u8>>,
) -> Result<usize, Fault> {
    let mut bytes = 0;
    for entry in entries.entries()? {
        if ids.binary_search(&entry.id).is_ok() {
            bytes += entry.body.len();
            found.insert(entry.id, entry.body.to_vec());
        }
    }
    Ok(bytes)
}
