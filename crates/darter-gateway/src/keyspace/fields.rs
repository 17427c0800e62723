//! The elements of a key in name order: the fields of a hash with their values, the members of a
//! sorted set with their records, and the members of a set, whose records are empty. They are read in
//! the same way whether or not they lie in the head.

use super::aggregate::Aggregate;
use super::packed::Packed;
use super::walk::go_behind;
use super::{Chunk, Family, Keyspace, Kind, TOGETHER_FIRST, TOGETHER_MAX, Walked, session, timed_record};
use crate::fault::Fault;
use crate::turns;
use darter::{Change, ScanRange};
use std::ops::{Bound, RangeBounds};

/// A range of a key's elements, by name, from either end.
#[derive(Clone, Debug)]
pub(crate) struct Elements {
    aggregate: Aggregate,
    range: ScanRange,
}

impl Aggregate {
    /// Returns the family that is in name order.
    pub(super) fn names(&self) -> Family {
        match self.kind() {
            Kind::Hash | Kind::TimedHash | Kind::Set => Family::Field,
            Kind::List => Family::ListChunk,
            Kind::Stream => Family::StreamChunk,
            Kind::String | Kind::SortedSet => Family::Member,
        }
    }

    /// Returns all elements, ascending.
    pub(crate) fn elements(&self) -> Elements {
        self.elements_of(self.names())
    }

    /// Returns all elements of a family, ascending.
    pub(super) fn elements_of(&self, family: Family) -> Elements {
        Elements { aggregate: self.clone(), range: self.range(family) }
    }

    /// Returns the elements between two bounds, ascending.
    pub(crate) fn elements_between(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Elements {
        let mut elements = self.elements();
        let place = |name: &[u8]| self.place(self.names(), name);
        if from != Bound::Unbounded {
            elements.range.from = from.map(place);
        }
        if to != Bound::Unbounded {
            elements.range.to = to.map(place);
        }
        elements
    }
}

/// Passes up to `count` elements that lie in a head to `visit`, as [`Keyspace::walk_elements`] does.
fn walk_packed(
    (aggregate, packed): (&Aggregate, Packed<'_>),
    range: &mut ScanRange,
    count: usize,
    mut visit: impl FnMut(&[u8], &[u8]),
) -> Walked {
    let stem = aggregate.place(aggregate.names(), b"");
    // A bound beyond the places of all elements has another stem.
    let bound = |bound: &Bound<Vec<u8>>| match bound {
        Bound::Included(place) => place.strip_prefix(&stem[..]).map(|name| Bound::Included(name.to_vec())),
        Bound::Excluded(place) => place.strip_prefix(&stem[..]).map(|name| Bound::Excluded(name.to_vec())),
        Bound::Unbounded => None,
    };
    let bounds = [&range.from, &range.to].map(|end| bound(end).unwrap_or(Bound::Unbounded));
    let [from, to] = bounds.each_ref().map(|bound| bound.as_ref().map(Vec::as_slice));
    let mut elements: Vec<_> =
        packed.iter().filter(|&(name, _)| RangeBounds::<[u8]>::contains(&(from, to), name)).collect();
    if range.reverse {
        elements.reverse();
    }
    for &(name, record) in elements.iter().take(count) {
        visit(name, record);
    }
    match elements.get(count - 1) {
        Some(&(last, _)) => {
            go_behind(range, &aggregate.place(aggregate.names(), last));
            Walked::Paused
        }
        None => Walked::Through,
    }
}

impl Elements {
    /// Returns the same elements, descending.
    #[must_use]
    pub(crate) fn reversed(mut self) -> Self {
        self.range = self.range.reversed();
        self
    }

    /// Returns the elements after a name.
    #[must_use]
    pub(crate) fn behind(mut self, name: &[u8]) -> Self {
        let place = self.aggregate.place(self.aggregate.names(), name);
        go_behind(&mut self.range, &place);
        self
    }

    /// Leaves out the elements before a name, if they are ascending.
    pub(super) fn go_to(&mut self, name: &[u8]) {
        let place = self.aggregate.place(self.aggregate.names(), name);
        let is_ahead = match &self.range.from {
            Bound::Included(from) | Bound::Excluded(from) => *from < place,
            Bound::Unbounded => true,
        };
        if is_ahead {
            self.range.from = Bound::Included(place);
        }
    }

    /// Returns the name after which the range begins, if a walk has reached one.
    pub(crate) fn position(&self) -> Option<&[u8]> {
        match if self.range.reverse { &self.range.to } else { &self.range.from } {
            Bound::Excluded(place) => Some(self.aggregate.element(place)),
            _ => None,
        }
    }
}

impl Keyspace {
    /// Examines up to `count` elements, and passes the names and the records of those that exist to
    /// `visit`; `elements` becomes the rest of the range. Every element that exists during the whole walk
    /// is visited exactly once. The record of a field is its value.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn walk_elements(
        &mut self,
        elements: &mut Elements,
        count: usize,
        mut visit: impl FnMut(&[u8], &[u8]) + Send,
    ) -> Result<Walked, Fault> {
        let (kind, now) = (elements.aggregate.kind(), self.now);
        self.walk_records(elements, count, |name, record| {
            if let Some(record) = timed_record::seen(kind, record, now) {
                visit(name, record);
            }
        })
        .await
    }

    /// Does the same with all elements and their records as they are stored.
    pub(super) async fn walk_records(
        &mut self,
        elements: &mut Elements,
        mut count: usize,
        mut visit: impl FnMut(&[u8], &[u8]) + Send,
    ) -> Result<Walked, Fault> {
        let mut chunk = Chunk::default();
        let Elements { aggregate, range } = elements;
        if count > 0
            && let Some(packed) = aggregate.packed()
        {
            return Ok(walk_packed((aggregate, packed), range, count, visit));
        }
        session(&mut self.session, &self.store)?.has_read_all(aggregate)?;
        let has_chunks = aggregate.kind().lasts();
        while count > 0 {
            let mut chunks = Vec::new();
            let walked = self.next_chunk(range, &mut chunk, &mut count, |place, record| {
                visit(aggregate.element(place), record);
                if has_chunks {
                    chunks.push(place.to_vec());
                }
            });
            let walked = walked.await?;
            let session = session(&mut self.session, &self.store)?;
            for place in chunks {
                session.has_read_chunk(place);
            }
            if walked == Walked::Through {
                return Ok(Walked::Through);
            }
            if count > 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(Walked::Paused)
    }

    /// Returns the record of an element.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn element(
        &mut self,
        aggregate: &Aggregate,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>, Fault> {
        aggregate.check(name)?;
        if let Some(packed) = aggregate.packed() {
            let record =
                packed.get(name).and_then(|record| timed_record::seen(aggregate.kind(), record, self.now));
            return Ok(record.map(<[u8]>::to_vec));
        }
        let place = aggregate.place(aggregate.names(), name);
        let record = session(&mut self.session, &self.store)?.get(&place).await?;
        Ok(record.and_then(|mut record| {
            let seen = timed_record::seen(aggregate.kind(), &record, self.now)?.len();
            Some(record.split_off(record.len() - seen))
        }))
    }

    /// Passes the records of several elements to `visit`, in the order of `names`; `None` for an absent
    /// element. Their size determines how many are read at a time. The record of a field is its value.
    ///
    /// # Errors
    /// The store's errors, and those of `visit`.
    pub(crate) async fn some_elements<'n>(
        &mut self,
        aggregate: &Aggregate,
        names: impl Iterator<Item = &'n [u8]>,
        mut visit: impl FnMut(Option<&[u8]>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let (kind, now) = (aggregate.kind(), self.now);
        let visit =
            |record: Option<&[u8]>| visit(record.and_then(|record| timed_record::seen(kind, record, now)));
        self.some_records(aggregate, names, visit).await
    }

    /// Does the same with the records as they are stored.
    pub(super) async fn some_records<'n>(
        &mut self,
        aggregate: &Aggregate,
        mut names: impl Iterator<Item = &'n [u8]>,
        mut visit: impl FnMut(Option<&[u8]>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if let Some(packed) = aggregate.packed() {
            for name in names {
                aggregate.check(name)?;
                visit(packed.get(name))?;
                turns::worked().await;
            }
            return Ok(());
        }
        let (mut places, mut asked) = (Vec::new(), TOGETHER_FIRST);
        loop {
            for name in names.by_ref().take(asked - places.len()) {
                aggregate.check(name)?;
                places.push(aggregate.place(aggregate.names(), name));
            }
            if places.is_empty() {
                return Ok(());
            }
            let records = session(&mut self.session, &self.store)?.get_many_first(&places).await?;
            places.drain(..records.len());
            asked = (records.len() * 2).clamp(places.len(), TOGETHER_MAX);
            for record in records {
                visit(record.as_deref())?;
                turns::worked().await;
            }
        }
    }

    /// Reads several elements together, so that a transaction in progress finds them in memory.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn read_elements<'n>(
        &mut self,
        aggregate: &Aggregate,
        names: impl Iterator<Item = &'n [u8]>,
    ) -> Result<(), Fault> {
        if !self.is_in_transaction() {
            return Ok(());
        }
        self.some_elements(aggregate, names, |_| Ok(())).await
    }

    /// Sets the record of a field of a large hash, or adds a member of a large set, if `decide` writes
    /// a new record and returns true. Calls `decide` again if another client changes the element in
    /// between. Returns whether the element is new; `None` if it was not changed.
    ///
    /// # Errors
    /// The store's errors, and those of `decide`.
    pub(crate) async fn change_field(
        &mut self,
        hash: &Aggregate,
        name: &[u8],
        mut decide: impl FnMut(Option<&[u8]>, &mut Vec<u8>) -> Result<bool, Fault> + Send,
    ) -> Result<Option<bool>, Fault> {
        hash.check(name)?;
        let place = hash.place(Family::Field, name);
        let _guard = self.locks.lock(self.session.as_ref(), &place).await;
        let (mut decided, kind, now) = (None, hash.kind(), self.now);
        let modified = session(&mut self.session, &self.store)?.update(&place, |old| {
            let mut new = Vec::new();
            let old = old.filter(|old| !timed_record::is_over(kind, old, now));
            let is_put = decide(old, &mut new);
            match decided.insert(is_put.map(|is_put| is_put.then_some(old.is_none()))) {
                Ok(Some(_)) if timed_record::is_over(kind, &new, now) => Change::Remove,
                Ok(Some(_)) => Change::Put(new),
                Ok(None) | Err(_) => Change::Keep,
            }
        });
        modified.await?;
        decided.unwrap_or_else(|| unreachable!("a change is decided at least once"))
    }

    /// Removes a field of a large hash, or a member of a large set. Returns whether it existed.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn remove_field(&mut self, hash: &Aggregate, name: &[u8]) -> Result<bool, Fault> {
        hash.check(name)?;
        let place = hash.place(Family::Field, name);
        let (now, session) = (self.now, session(&mut self.session, &self.store)?);
        if hash.kind() != Kind::TimedHash {
            return Ok(session.discard(&place).await?);
        }
        let mut lived = false;
        let removed = session.remove_if(&place, |record| {
            lived = !timed_record::is_over(Kind::TimedHash, record, now);
            true
        });
        Ok(removed.await? && lived)
    }
}
