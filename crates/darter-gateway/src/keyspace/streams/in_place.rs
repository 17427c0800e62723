//! Changes of a stream within its head. All others take a transaction (`editing.rs`).

use super::head::{NewId, Stream, Trim};
use super::id::StreamId;
use crate::fault::{Fault, WRONG_TYPE};
use crate::keyspace::lists::InPlace;
use crate::keyspace::{Change, Head, Keyspace, Kind, Retries, place_of_head, session};

/// An added entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Added {
    pub(crate) id: StreamId,
    /// The number of entries that were trimmed.
    pub(crate) trimmed: u64,
}

/// What a change of a head has found.
enum Met<R> {
    Decided(Result<Change<R>, Fault>),
    /// The key is absent, has expired, or has another type.
    Other,
}

impl Keyspace {
    /// Changes the head of a stream as `decide` says: `None` leaves it unchanged. `decide` gets a new
    /// stream if the key is absent and `creates` is set; otherwise the result is `None`.
    pub(super) async fn change_stream<R: Send>(
        &mut self,
        key: &[u8],
        creates: bool,
        mut decide: impl FnMut(&mut Stream) -> Result<Change<R>, Fault> + Send,
    ) -> Result<Option<R>, Fault> {
        let mut retries = Retries::default();
        loop {
            if let Met::Decided(decided) = self.change_living_stream(key, &mut decide).await? {
                return decided.map(|change| Some(change.result()));
            }
            let created = self.change(key, |head, record| match head {
                Some(head) if head.kind == Kind::Stream => Ok(Change::Keep(None)),
                Some(_) => Err(WRONG_TYPE),
                None if !creates => Ok(Change::Keep(Some(None))),
                None => {
                    let mut stream = Stream::new();
                    Ok(match decide(&mut stream)? {
                        Change::Put(done) => {
                            stream.write(record);
                            Change::Put(Some(Some(done)))
                        }
                        change => Change::Keep(Some(Some(change.result()))),
                    })
                }
            });
            if let Some(done) = created.await? {
                return Ok(done);
            }
            // It was created in between.
            retries.again().await?;
        }
    }

    /// Does the same if there is a stream.
    async fn change_living_stream<R: Send>(
        &mut self,
        key: &[u8],
        decide: &mut (impl FnMut(&mut Stream) -> Result<Change<R>, Fault> + Send),
    ) -> Result<Met<R>, Fault> {
        place_of_head(&mut self.key, key)?;
        let Self { store, session: slot, now, key: at, locks, .. } = self;
        let _guard = locks.lock(slot.as_ref(), at).await;
        let mut met = Met::Other;
        let update = session(slot, store)?.update(&at, |record| {
            met = Met::Other;
            let head = record.and_then(|record| Head::parse(record).ok());
            let Some(head) = head.filter(|head| head.kind == Kind::Stream && head.lives(*now)) else {
                return darter::Change::Keep;
            };
            let mut stream = Stream::of(&head);
            let decided = stream.as_mut().map_err(|_| crate::fault::FOREIGN).and_then(&mut *decide);
            let is_put = matches!(decided, Ok(Change::Put(_)));
            met = Met::Decided(decided);
            match stream {
                Ok(stream) if is_put => {
                    let mut new = Vec::new();
                    stream.write(&mut new);
                    darter::Change::Put(new)
                }
                _ => darter::Change::Keep,
            }
        });
        update.await?;
        Ok(met)
    }

    /// Adds an entry, and trims the stream. Returns `None` if the key is absent and `creates` is not
    /// set.
    ///
    /// # Errors
    /// The store's errors, [`WRONG_TYPE`], and an error if the id is not possible.
    pub(crate) async fn add_in_place(
        &mut self,
        key: &[u8],
        creates: bool,
        wanted: NewId,
        body: &[u8],
        trim: Option<&Trim>,
    ) -> Result<InPlace<Option<Added>>, Fault> {
        let change = self.change_stream(key, creates, |stream| {
            let id = stream.next_id(wanted)?;
            if !stream.tail.has_room(body) {
                return Ok(Change::Keep(None));
            }
            stream.push(id, body);
            let mut trimmed = 0;
            if let Some(trim) = trim {
                if stream.trims_front(trim) {
                    return Ok(Change::Keep(None));
                }
                if stream.front.is_none() {
                    stream.trim_tail(trim, &mut trimmed)?;
                }
            }
            Ok(Change::Put(Some(Added { id, trimmed })))
        });
        Ok(match change.await? {
            None => InPlace::Done(None),
            Some(None) => InPlace::Several,
            Some(added) => InPlace::Done(added),
        })
    }

    /// Trims a stream. Returns the number of removed entries.
    ///
    /// # Errors
    /// The store's errors, and [`WRONG_TYPE`].
    pub(crate) async fn trim_in_place(&mut self, key: &[u8], trim: &Trim) -> Result<InPlace<u64>, Fault> {
        let change = self.change_stream(key, false, |stream| {
            if stream.trims_front(trim) {
                return Ok(Change::Keep(InPlace::Several));
            }
            let mut trimmed = 0;
            if stream.front.is_none() {
                stream.trim_tail(trim, &mut trimmed)?;
            }
            let done = InPlace::Done(trimmed);
            Ok(if trimmed > 0 { Change::Put(done) } else { Change::Keep(done) })
        });
        Ok(change.await?.unwrap_or(InPlace::Done(0)))
    }

    /// Deletes the entries of some ids, which are in order. Returns the number of deleted entries.
    ///
    /// # Errors
    /// The store's errors, and [`WRONG_TYPE`].
    pub(crate) async fn delete_in_place(
        &mut self,
        key: &[u8],
        ids: &[StreamId],
    ) -> Result<InPlace<u64>, Fault> {
        let change = self.change_stream(key, false, |stream| {
            if ids.iter().any(|id| stream.first <= *id && stream.is_in_chunks(*id)) {
                return Ok(Change::Keep(InPlace::Several));
            }
            let deleted = stream.delete_from_tail(ids)?;
            let done = InPlace::Done(deleted);
            Ok(if deleted > 0 { Change::Put(done) } else { Change::Keep(done) })
        });
        Ok(change.await?.unwrap_or(InPlace::Done(0)))
    }

    /// Creates a stream without entries if the key is absent.
    ///
    /// # Errors
    /// The store's errors, and [`WRONG_TYPE`].
    pub(crate) async fn create_stream(&mut self, key: &[u8]) -> Result<(), Fault> {
        let mut is_new = false;
        self.change_stream(key, true, |stream| {
            is_new = *stream == Stream { generation: stream.generation, ..Stream::new() };
            Ok(if is_new { Change::Put(()) } else { Change::Keep(()) })
        })
        .await?;
        Ok(())
    }

    /// Sets the last id of a stream, the number of entries ever added, and the greatest deleted id, if
    /// these are given. `top` is the id of its last entry, if there are entries and the head has none
    /// of them. Returns `None` if the key is absent.
    ///
    /// # Errors
    /// The store's errors, [`WRONG_TYPE`], and an error if a value is not possible.
    pub(crate) async fn set_last_id(
        &mut self,
        key: &[u8],
        id: StreamId,
        added: Option<u64>,
        deleted: Option<StreamId>,
        top: Option<StreamId>,
    ) -> Result<Option<()>, Fault> {
        let change = self.change_stream(key, false, |stream| {
            if stream.length > 0 {
                let top = stream.tail.ends()?.map(|(_, last)| last).or(top);
                if top.is_some_and(|top| id < top) {
                    return Err(Fault::said(
                        "ERR The ID specified in XSETID is smaller than the target stream top item",
                    ));
                }
                if added.is_some_and(|added| stream.length > added) {
                    return Err(Fault::said(
                        "ERR The entries_added specified in XSETID is smaller than the target stream length",
                    ));
                }
            }
            stream.last = id;
            stream.added = added.unwrap_or(stream.added);
            stream.deleted = deleted.unwrap_or(stream.deleted);
            Ok(Change::Put(()))
        });
        change.await
    }
}
