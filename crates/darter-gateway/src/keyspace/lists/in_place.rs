//! Changes of a list within one record: its head, or the chunk at an end.
//!
//! A push or a pop reads the head, and changes the chunk that the head names if that chunk is still
//! at this end of the list. If the list was removed in between, the command comes before its removal:
//! no client can find out that it does not, since a transaction that ends a list removes the chunks
//! that it has read (`end_chunks`).

use super::form::{Chunks, Form, ListChunk};
use super::packed::{self, Packed};
use super::{Edit, End};
use crate::fault::Fault;
use crate::keyspace::aggregate::Aggregate;
use crate::keyspace::{Change, Family, Head, Keyspace, Kind, Retries, session};

/// The result of a command on a list, if one record was enough.
#[derive(Debug)]
pub(crate) enum InPlace<R> {
    /// The command is done.
    Done(R),
    /// Several records must change, in a transaction.
    Several,
}

/// What a command on the head has found.
enum Met<R> {
    Done(InPlace<R>),
    /// The elements lie in chunks.
    Chunks(Chunks),
}

/// The result of a change of a chunk.
enum Changed<R> {
    Done(R),
    /// Several records must change.
    Several,
    /// The chunk is no longer at this end.
    Elsewhere,
}

impl Keyspace {
    /// Adds elements at an end, one after the other. Returns the new length; 0 if the key is absent
    /// and `must_exist` is set.
    ///
    /// # Errors
    /// The store's errors, and [`crate::fault::WRONG_TYPE`].
    pub(crate) async fn push_in_place(
        &mut self,
        key: &[u8],
        end: End,
        elements: &[&[u8]],
        must_exist: bool,
    ) -> Result<InPlace<usize>, Fault> {
        let mut retries = Retries::default();
        loop {
            let met = self.change_unless_kept(key, Some(Kind::List), |head, record| {
                let form = head.as_ref().map(Form::of).transpose()?;
                let packed = match form {
                    None if must_exist => return Ok(Change::Keep(Met::Done(InPlace::Done(0)))),
                    None => Packed::EMPTY,
                    Some(Form::Small(packed)) => packed,
                    Some(Form::Large(chunks)) => return Ok(Change::Keep(Met::Chunks(chunks))),
                };
                if !packed.has_room(elements) {
                    return Ok(Change::Keep(Met::Done(InPlace::Several)));
                }
                Head::begin_packed(record, Kind::List, head.and_then(|head| head.expiry));
                packed.write_with(record, end, elements);
                Ok(Change::Put(Met::Done(InPlace::Done(packed.count() + elements.len()))))
            });
            let chunks = match met.await? {
                Met::Done(done) => return Ok(done),
                Met::Chunks(chunks) => chunks,
            };
            let list = Aggregate::new(Kind::List, key, chunks.generation);
            let pushed = self.change_end(&list, &chunks, end, |elements_now, record| {
                if !elements_now.has_room(elements) {
                    return Changed::Several;
                }
                elements_now.write_with(record, end, elements);
                Changed::Done(elements_now.count() + elements.len())
            });
            match pushed.await? {
                Changed::Done(count) => {
                    let length = self.length_after_push(&list, &chunks, end, count).await?;
                    return Ok(InPlace::Done(length.max(elements.len())));
                }
                Changed::Several => return Ok(InPlace::Several),
                Changed::Elsewhere => {}
            }
            self.read_again(&mut retries).await?;
        }
    }

    /// Removes up to `count` elements at an end, and appends them to `popped`. Returns whether the
    /// key exists.
    ///
    /// # Errors
    /// The store's errors, and [`crate::fault::WRONG_TYPE`].
    pub(crate) async fn pop_in_place(
        &mut self,
        key: &[u8],
        end: End,
        count: usize,
        popped: &mut Vec<Vec<u8>>,
    ) -> Result<InPlace<bool>, Fault> {
        let mut retries = Retries::default();
        loop {
            let met = self.change_unless_kept(key, Some(Kind::List), |head, record| {
                popped.clear();
                let Some(head) = head else { return Ok(Change::Keep(Met::Done(InPlace::Done(false)))) };
                let mut packed = match Form::of(&head)? {
                    Form::Small(packed) => packed,
                    Form::Large(chunks) => return Ok(Change::Keep(Met::Chunks(chunks))),
                };
                take(&mut packed, end, count, popped);
                let done = Met::Done(InPlace::Done(true));
                if packed.count() == 0 {
                    return Ok(Change::Remove(done));
                }
                Head::begin_packed(record, Kind::List, head.expiry);
                packed.write(record);
                Ok(Change::Put(done))
            });
            let chunks = match met.await? {
                Met::Done(done) => return Ok(done),
                Met::Chunks(chunks) => chunks,
            };
            let list = Aggregate::new(Kind::List, key, chunks.generation);
            let change = self.change_end(&list, &chunks, end, |mut elements, record| {
                if elements.count() <= count {
                    return Changed::Several;
                }
                take(&mut elements, end, count, popped);
                elements.write(record);
                Changed::Done(())
            });
            match change.await? {
                Changed::Done(()) => return Ok(InPlace::Done(true)),
                Changed::Several => return Ok(InPlace::Several),
                Changed::Elsewhere => {}
            }
            self.read_again(&mut retries).await?;
        }
    }

    /// Edits the elements of a list if they lie in the head and still fit into it afterwards.
    /// Returns the edit, or `None` if the key is absent.
    ///
    /// # Errors
    /// The store's errors, and [`crate::fault::WRONG_TYPE`].
    pub(crate) async fn edit_in_place<E: Edit>(
        &mut self,
        key: &[u8],
        edit: &E,
    ) -> Result<InPlace<Option<E>>, Fault> {
        let change = self.change(key, |head, record| {
            let Some(head) = head else { return Ok(Change::Keep(InPlace::Done(None))) };
            let Form::Small(packed) = Form::of(&head)? else { return Ok(Change::Keep(InPlace::Several)) };
            let (mut edit, mut elements) = (edit.clone(), packed.elements()?);
            let edited = edit.apply(&mut elements);
            if !edited.is_changed {
                return Ok(Change::Keep(InPlace::Done(Some(edit))));
            }
            if elements.is_empty() {
                return Ok(Change::Remove(InPlace::Done(Some(edit))));
            }
            if !packed::all_fit(elements.iter().copied()) {
                return Ok(Change::Keep(InPlace::Several));
            }
            Head::begin_packed(record, Kind::List, head.expiry);
            packed::pack(record, elements.into_iter());
            Ok(Change::Put(InPlace::Done(Some(edit))))
        });
        change.await
    }

    /// Changes the chunk that the head names at an end, if it is still at this end. `decide` gets
    /// its elements and appends the new ones to the record.
    async fn change_end<R: Send>(
        &mut self,
        list: &Aggregate,
        chunks: &Chunks,
        end: End,
        mut decide: impl FnMut(Packed<'_>, &mut Vec<u8>) -> Changed<R> + Send,
    ) -> Result<Changed<R>, Fault> {
        let at = list.place(Family::ListChunk, chunks.at(end));
        let Self { store, session: slot, locks, .. } = self;
        let _guard = locks.lock(slot.as_ref(), &at).await;
        let mut changed = Changed::Elsewhere;
        let update = session(slot, store)?.update(&at, |record| {
            changed = Changed::Elsewhere;
            let chunk = record.and_then(|record| ListChunk::parse(record).ok());
            let Some(chunk) = chunk.filter(|chunk| chunk.is_at(end)) else { return darter::Change::Keep };
            let mut new = vec![chunk.ends];
            changed = decide(chunk.elements, &mut new);
            if matches!(changed, Changed::Done(_)) { darter::Change::Put(new) } else { darter::Change::Keep }
        });
        update.await?;
        session(slot, store)?.has_read_chunk(at);
        Ok(changed)
    }

    /// Returns the length of a list whose chunk at an end has got `count` elements by a push.
    async fn length_after_push(
        &mut self,
        list: &Aggregate,
        chunks: &Chunks,
        end: End,
        count: usize,
    ) -> Result<usize, Fault> {
        if chunks.first == chunks.last {
            return Ok(count);
        }
        let at = list.place(Family::ListChunk, chunks.at(end.other()));
        let session = session(&mut self.session, &self.store)?;
        let other = session.get_with(&at, |record| {
            let chunk = ListChunk::parse(record).ok().filter(|chunk| chunk.is_at(end.other()));
            chunk.map(|chunk| chunk.elements.count())
        });
        let other = other.await?.flatten();
        session.has_read_chunk(at);
        match other {
            Some(other) => Ok(chunks.length(count, other)),
            None => Box::pin(self.list_length(list.key())).await,
        }
    }
}

/// Removes up to `count` elements at an end, and appends them to `popped`.
fn take(elements: &mut Packed<'_>, end: End, count: usize, popped: &mut Vec<Vec<u8>>) {
    popped.clear();
    popped.extend(std::iter::from_fn(|| elements.pop(end)).take(count).map(<[u8]>::to_vec));
}
