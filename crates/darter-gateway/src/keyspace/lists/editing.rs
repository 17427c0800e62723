//! Changes of the head and the chunks of a list together, in a transaction of the index. Its commit
//! verifies the head and every chunk that it has read, so the functions here read and write as if
//! no other client existed.
//!
//! Each transaction that adds or removes a chunk changes the head.

use super::chunk_id::{self, ChunkId};
use super::form::{self, Chunks, Form, ListChunk};
use super::packed::{self, Packed};
use super::reading::{ChunkWalk, Found};
use super::{Edit, Elements, End};
use crate::fault::Fault;
use crate::keyspace::aggregate::{Aggregate, bury};
use crate::keyspace::{Family, Head, Keyspace, Kind, place, session};
use crate::turns;

/// The elements of a list that a transaction has opened.
#[derive(Debug)]
pub(super) enum Opened {
    /// There are none, and no head.
    Absent,
    /// The packed elements in the head.
    Small(Vec<u8>),
    Large(Large),
}

/// A large list.
#[derive(Debug)]
pub(super) struct Large {
    list: Aggregate,
    chunks: Chunks,
}

/// A list that a transaction reads and changes.
#[derive(Debug)]
pub(crate) struct OpenList {
    key: Vec<u8>,
    expiry: Option<u64>,
    form: Opened,
}

impl OpenList {
    /// Creates a list whose chunks were written, and whose head was not.
    pub(super) fn new(key: &[u8], expiry: Option<u64>, form: Opened) -> Self {
        Self { key: key.to_vec(), expiry, form }
    }

    /// Writes the head, if the list exists.
    pub(super) fn write_head(&self, record: &mut Vec<u8>) {
        match &self.form {
            Opened::Absent => {}
            Opened::Small(packed) => {
                Head::begin_packed(record, Kind::List, self.expiry);
                record.extend_from_slice(packed);
            }
            Opened::Large(large) => large.chunks.write(record, self.expiry),
        }
    }

    /// Returns whether the list exists.
    pub(crate) fn exists(&self) -> bool {
        !matches!(self.form, Opened::Absent)
    }
}

/// Returns the generation of a list that becomes large.
fn new_list(key: &[u8]) -> Aggregate {
    Aggregate::new(Kind::List, key, darter_fabric::random_word().to_le_bytes())
}

impl Keyspace {
    /// Opens a list in the transaction in progress. Its changes of chunks are part of the
    /// transaction at once, that of the head with [`Keyspace::close_list`].
    ///
    /// # Errors
    /// The store's errors, and [`crate::fault::WRONG_TYPE`].
    pub(crate) async fn open_list(&mut self, key: &[u8]) -> Result<OpenList, Fault> {
        let record = self.head_of_list(key).await?;
        let head = record.as_deref().map(Head::parse).transpose()?;
        let form = match head.as_ref().map(Form::of).transpose()? {
            None => Opened::Absent,
            Some(Form::Small(packed)) => {
                let mut bytes = Vec::new();
                packed.write(&mut bytes);
                Opened::Small(bytes)
            }
            Some(Form::Large(chunks)) => {
                Opened::Large(Large { list: Aggregate::new(Kind::List, key, chunks.generation), chunks })
            }
        };
        Ok(OpenList::new(key, head.and_then(|head| head.expiry), form))
    }

    /// Writes the head of an open list that has changed.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn close_list(&mut self, list: OpenList) -> Result<(), Fault> {
        let mut record = Vec::new();
        list.write_head(&mut record);
        place(&mut self.key, Family::Key, &list.key);
        let record = list.exists().then_some(&record[..]);
        session(&mut self.session, &self.store)?.store(&self.key, record).await
    }

    /// Adds elements at an end of an open list, one after the other.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn push_to_list(
        &mut self,
        list: &mut OpenList,
        end: End,
        elements: &[&[u8]],
    ) -> Result<(), Fault> {
        let small = match &mut list.form {
            Opened::Large(large) => return self.push_to_chunks(large, end, elements).await,
            Opened::Absent => Vec::new(),
            Opened::Small(packed) => std::mem::take(packed),
        };
        let packed = if small.is_empty() { Packed::EMPTY } else { Packed::parse(&small)? };
        let mut all = packed.elements()?;
        for element in elements {
            match end {
                End::Left => all.push_front(element),
                End::Right => all.push_back(element),
            }
        }
        list.form = self.form_of(new_list(&list.key), all).await?;
        Ok(())
    }

    /// Removes up to `count` elements at an end of an open list, and passes them to `visit`.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn pop_from_list(
        &mut self,
        list: &mut OpenList,
        end: End,
        count: usize,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<(), Fault> {
        let is_over = match &mut list.form {
            Opened::Absent => return Ok(()),
            Opened::Small(small) => {
                let mut packed = Packed::parse(small)?;
                std::iter::from_fn(|| packed.pop(end)).take(count).for_each(visit);
                let mut rest = Vec::new();
                packed.write(&mut rest);
                let is_over = packed.count() == 0;
                *small = rest;
                is_over
            }
            Opened::Large(large) => self.pop_from_chunks(large, end, count, &mut visit).await?,
        };
        if is_over {
            list.form = Opened::Absent;
        }
        Ok(())
    }

    /// Removes all elements of an open list.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn clear_list(&mut self, list: &mut OpenList) -> Result<(), Fault> {
        if let Opened::Large(large) = &list.form {
            bury(session(&mut self.session, &self.store)?, &large.list, usize::MAX).await?;
        }
        list.form = Opened::Absent;
        Ok(())
    }

    /// Edits the elements of an open list, from an end. Returns whether they have changed.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn edit_list<E: Edit>(
        &mut self,
        list: &mut OpenList,
        from: End,
        edit: &mut E,
    ) -> Result<bool, Fault> {
        let is_changed = match &mut list.form {
            Opened::Absent => false,
            Opened::Small(small) => {
                let small = std::mem::take(small);
                let mut elements = Packed::parse(&small)?.elements()?;
                let edited = edit.apply(&mut elements);
                list.form = self.form_of(new_list(&list.key), elements).await?;
                edited.is_changed
            }
            Opened::Large(large) => {
                let (is_changed, is_over) = self.edit_chunks(large, from, edit).await?;
                if is_over {
                    list.form = Opened::Absent;
                }
                is_changed
            }
        };
        Ok(is_changed)
    }

    /// Returns the form of a new list with these elements; writes them if they do not fit into a head.
    pub(super) async fn form_of(
        &mut self,
        list: Aggregate,
        mut elements: Elements<'_>,
    ) -> Result<Opened, Fault> {
        if elements.is_empty() {
            return Ok(Opened::Absent);
        }
        if packed::all_fit(elements.iter().copied()) {
            let mut bytes = Vec::new();
            packed::pack(&mut bytes, elements.into_iter());
            return Ok(Opened::Small(bytes));
        }
        let chunks = Chunks::new(list.generation());
        let mut large = Large { list, chunks };
        let id = large.chunks.first.clone();
        self.write_parts(&mut large, &id, None, elements.make_contiguous()).await?;
        Ok(Opened::Large(large))
    }

    /// Writes a chunk.
    async fn write_chunk(
        &mut self,
        large: &Large,
        id: &[u8],
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Fault> {
        large.list.check(id)?;
        let mut record = Vec::new();
        large.chunks.begin_chunk(&mut record, id);
        write(&mut record);
        let at = large.list.place(Family::ListChunk, id);
        session(&mut self.session, &self.store)?.store(&at, Some(&record)).await?;
        turns::copied(record.len()).await;
        Ok(())
    }

    /// Returns the record of the chunk at an end.
    async fn end_chunk(&mut self, large: &Large, end: End) -> Result<Vec<u8>, Fault> {
        let at = large.list.place(Family::ListChunk, large.chunks.at(end));
        let session = session(&mut self.session, &self.store)?;
        let record = session.get(&at).await?;
        session.has_read_chunk(at);
        let is_end = |record: &Vec<u8>| ListChunk::parse(record).is_ok_and(|chunk| chunk.is_at(end));
        record.filter(is_end).ok_or_else(|| self.torn())
    }

    /// Returns the next chunk after one, away from an end.
    async fn chunk_behind(&mut self, large: &Large, id: &[u8], from: End) -> Result<Found, Fault> {
        let found = self.next_chunk_of_list(&mut ChunkWalk::behind(&large.list, id, from)).await?;
        found.ok_or_else(|| self.torn())
    }

    async fn push_to_chunks(&mut self, large: &mut Large, end: End, elements: &[&[u8]]) -> Result<(), Fault> {
        let record = self.end_chunk(large, end).await?;
        let (mut packed, mut left) = (ListChunk::parse(&record)?.elements, elements);
        while !left.is_empty() {
            let id = large.chunks.at(end).clone();
            let (added, rest) = left.split_at(packed.room_for(left));
            if !rest.is_empty() {
                large.chunks.set(end, chunk_id::beyond(&id, end)?);
                if large.chunks.is_inner(&id) {
                    large.chunks.inner += (packed.count() + added.len()) as u64;
                }
            }
            self.write_chunk(large, &id, |record| packed.write_with(record, end, added)).await?;
            (packed, left) = (Packed::EMPTY, rest);
        }
        Ok(())
    }

    /// Returns whether no element is left.
    async fn pop_from_chunks(
        &mut self,
        large: &mut Large,
        end: End,
        count: usize,
        visit: &mut impl FnMut(&[u8]),
    ) -> Result<bool, Fault> {
        let mut left = count;
        loop {
            let record = self.end_chunk(large, end).await?;
            let mut packed = ListChunk::parse(&record)?.elements;
            let before = packed.count();
            std::iter::from_fn(|| packed.pop(end)).take(left).for_each(&mut *visit);
            left -= before - packed.count();
            let id = large.chunks.at(end).clone();
            if packed.count() > 0 {
                self.write_chunk(large, &id, |record| packed.write(record)).await?;
                return Ok(false);
            }
            if self.remove_chunk(large, &id, before).await? {
                return Ok(true);
            }
        }
    }

    /// Edits the elements of chunks, from an end. Returns whether they have changed, and whether no
    /// element is left.
    async fn edit_chunks<E: Edit>(
        &mut self,
        large: &mut Large,
        from: End,
        edit: &mut E,
    ) -> Result<(bool, bool), Fault> {
        let mut is_changed = false;
        let mut walk = ChunkWalk::new(&large.list, from);
        while let Some((id, record)) = self.next_chunk_of_list(&mut walk).await? {
            let mut elements = ListChunk::parse(&record)?.elements.elements()?;
            let before = elements.len();
            let edited = edit.apply(&mut elements);
            is_changed |= edited.is_changed;
            if edited.is_changed && self.replace_chunk(large, &id, before, &mut elements).await? {
                return Ok((true, true));
            }
            if !edited.goes_on {
                break;
            }
            turns::copied(record.len()).await;
        }
        Ok((is_changed, false))
    }

    /// Replaces the elements of a chunk, which had `before` elements. Returns whether no element is
    /// left in the list.
    async fn replace_chunk(
        &mut self,
        large: &mut Large,
        id: &ChunkId,
        before: usize,
        elements: &mut Elements<'_>,
    ) -> Result<bool, Fault> {
        if elements.is_empty() {
            return self.remove_chunk(large, id, before).await;
        }
        let next = if *id == large.chunks.last || packed::all_fit(elements.iter().copied()) {
            None
        } else {
            Some(self.chunk_behind(large, id, End::Left).await?.0)
        };
        if large.chunks.is_inner(id) {
            large.chunks.leave(before);
        }
        self.write_parts(large, id, next, elements.make_contiguous()).await?;
        Ok(false)
    }

    /// Writes elements to a chunk, and to new ones after it if it has no room for them. `next` is
    /// the chunk after them; if there is none, the last of them becomes the last of the list. Counts
    /// the elements of inner chunks.
    async fn write_parts(
        &mut self,
        large: &mut Large,
        id: &ChunkId,
        next: Option<ChunkId>,
        elements: &[&[u8]],
    ) -> Result<(), Fault> {
        let (mut parts, mut ids) = (Vec::new(), vec![id.clone()]);
        form::parts(elements, &mut parts);
        while let Some(last) = ids.last().filter(|_| ids.len() < parts.len()) {
            ids.push(match &next {
                Some(next) => chunk_id::between(last, next),
                None => chunk_id::beyond(last, End::Right)?,
            });
        }
        if parts.len() > 1 {
            large.chunks.splits += 1;
            if let Some(last) = ids.last().filter(|_| next.is_none()) {
                large.chunks.last.clone_from(last);
            }
        }
        for (id, part) in ids.iter().zip(parts) {
            if large.chunks.is_inner(id) {
                large.chunks.inner += part.len() as u64;
            }
            self.write_chunk(large, id, |record| packed::pack(record, part.iter().copied())).await?;
        }
        Ok(())
    }

    /// Removes a chunk, which had `before` elements. Returns whether it was the only one.
    async fn remove_chunk(&mut self, large: &mut Large, id: &ChunkId, before: usize) -> Result<bool, Fault> {
        let at = large.list.place(Family::ListChunk, id);
        session(&mut self.session, &self.store)?.store(&at, None).await?;
        if large.chunks.is_inner(id) {
            large.chunks.leave(before);
            return Ok(false);
        }
        if large.chunks.first == large.chunks.last {
            return Ok(true);
        }
        let end = if *id == large.chunks.first { End::Left } else { End::Right };
        let (next, record) = self.chunk_behind(large, id, end).await?;
        let packed = ListChunk::parse(&record)?.elements;
        if large.chunks.is_inner(&next) {
            large.chunks.leave(packed.count());
        }
        large.chunks.set(end, next.clone());
        self.write_chunk(large, &next, |record| packed.write(record)).await?;
        Ok(false)
    }
}
