//! Walks over the heads of a range of keys, in chunks, so that other clients get their turn.

use super::aggregate::is_empty;
use super::{Aggregate, Family, Head, Keyspace, session};
use crate::fault::Fault;
use crate::turns;
use darter::ScanRange;
use std::ops::Bound;

/// Most records in the first chunk of a walk.
const CHUNK_FIRST: usize = 128;
/// Most records in any chunk.
const CHUNK_MAX: usize = 512;
/// Bytes of keys and records that a chunk should not exceed, estimated from the previous chunk.
const CHUNK_BYTES: usize = 1 << 20;

/// Steps down the tree of prefixes to draw a random key.
const STEPS_MAX: usize = 100;

/// The number of records to request at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk(usize);

impl Default for Chunk {
    fn default() -> Self {
        Self(CHUNK_FIRST)
    }
}

impl Chunk {
    /// Returns the number of records to request, at most `left`.
    pub(crate) fn of(self, left: usize) -> usize {
        left.min(self.0)
    }

    /// Returns the next chunk, after one with `records` records of `bytes` bytes in total.
    #[must_use]
    pub(crate) fn after(self, records: usize, bytes: usize) -> Self {
        Self((self.0 * 2).min(CHUNK_MAX).min(CHUNK_BYTES * records / bytes.max(1)).max(1))
    }
}

/// A range of the keys, from either end.
#[derive(Clone, Debug)]
pub(crate) struct KeyRange(ScanRange);

fn beyond(family: Family) -> Bound<Vec<u8>> {
    Bound::Excluded(vec![family as u8 + 1])
}

impl KeyRange {
    /// Returns the keys between two bounds, ascending.
    pub(crate) fn between(from: Bound<&[u8]>, to: Bound<&[u8]>) -> Self {
        let placed = |key: &[u8]| [&[Family::Key as u8], key].concat();
        let from = match from {
            Bound::Unbounded => Bound::Included(placed(b"")),
            bound => bound.map(placed),
        };
        let to = match to {
            Bound::Unbounded => beyond(Family::Key),
            bound => bound.map(placed),
        };
        Self(ScanRange { from, to, reverse: false })
    }

    /// Returns all keys, ascending.
    pub(crate) fn all() -> Self {
        Self::between(Bound::Unbounded, Bound::Unbounded)
    }

    /// Returns the keys that begin with a prefix, ascending.
    pub(crate) fn prefixed(prefix: &[u8]) -> Self {
        Self(ScanRange::prefix(&[&[Family::Key as u8], prefix].concat()))
    }

    /// Returns the same keys, descending.
    #[must_use]
    pub(crate) fn reversed(self) -> Self {
        Self(self.0.reversed())
    }

    /// Returns the keys of the range after a key, in the range's direction.
    #[must_use]
    pub(crate) fn behind(mut self, key: &[u8]) -> Self {
        go_behind(&mut self.0, &[&[Family::Key as u8], key].concat());
        self
    }

    /// Returns the key after which the range begins, if a walk has reached one.
    pub(crate) fn position(&self) -> Option<&[u8]> {
        match if self.0.reverse { &self.0.to } else { &self.0.from } {
            Bound::Excluded(place) => place.get(1..),
            _ => None,
        }
    }
}

/// Removes the part of a range up to a place, in the range's direction.
pub(super) fn go_behind(range: &mut ScanRange, place: &[u8]) {
    let end = if range.reverse { &mut range.to } else { &mut range.from };
    if let Bound::Included(bound) | Bound::Excluded(bound) = end {
        let mut bound = std::mem::take(bound);
        bound.clear();
        bound.extend_from_slice(place);
        *end = Bound::Excluded(bound);
    }
}

/// The progress of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walked {
    /// The end of the range was reached.
    Through,
    /// The requested number of records was examined, and there may be more.
    Paused,
}

impl Keyspace {
    /// Passes keys and their heads to `visit`, in the order of the range and without expired ones,
    /// until `records` records were examined; `part` becomes the rest of the range. Every key that
    /// exists during the whole walk is visited exactly once.
    ///
    /// # Errors
    /// The store's errors. An invalid record is skipped.
    pub(crate) async fn walk(
        &mut self,
        part: &mut KeyRange,
        mut records: usize,
        mut visit: impl FnMut(&[u8], &Head<'_>) + Send,
    ) -> Result<Walked, Fault> {
        let mut chunk = Chunk::default();
        while records > 0 {
            let now = self.now;
            // The first key that may have no elements, which must be determined, and the keys after
            // it.
            let mut late: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            let walked = self.next_chunk(&mut part.0, &mut chunk, &mut records, |place, record| {
                if let Ok(head) = Head::parse(record)
                    && head.lives(now)
                {
                    if late.is_empty() && head.generation().is_none() {
                        visit(&place[1..], &head);
                    } else {
                        late.push((place[1..].to_vec(), record.to_vec()));
                    }
                }
            });
            let walked = walked.await?;
            let session = session(&mut self.session, &self.store)?;
            for (key, record) in &late {
                let head = Head::parse(record)?;
                let is_absent = match Aggregate::of(key, &head) {
                    Some(aggregate) => is_empty(session, &aggregate, now).await?,
                    None => false,
                };
                if !is_absent {
                    visit(key, &head);
                }
                turns::worked().await;
            }
            if walked == Walked::Through {
                return Ok(walked);
            }
            if records > 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(Walked::Paused)
    }

    /// Passes the next records of a range to `visit`, as many as the chunk says and at most `left`;
    /// updates the range, the chunk and `left` for the next call.
    ///
    /// # Errors
    /// The store's errors.
    pub(super) async fn next_chunk(
        &mut self,
        range: &mut ScanRange,
        chunk: &mut Chunk,
        left: &mut usize,
        mut visit: impl FnMut(&[u8], &[u8]) + Send,
    ) -> Result<Walked, Fault> {
        let (mut last, mut bytes) = (Vec::new(), 0);
        let asked = chunk.of(*left);
        let session = session(&mut self.session, &self.store)?;
        let seen = session.scan_with(range, asked, |place, record| {
            last.clear();
            last.extend_from_slice(place);
            bytes += place.len() + record.len();
            visit(place, record);
        });
        let seen = seen.await?;
        if seen > 0 {
            go_behind(range, &last);
        }
        *left -= seen;
        *chunk = chunk.after(seen, bytes);
        Ok(if seen < asked { Walked::Through } else { Walked::Paused })
    }

    /// Returns a random key, which may have expired; `None` if there is none.
    ///
    /// It descends the tree of the keys' prefixes: it draws one of the bytes that may follow the
    /// common prefix of a range, and continues with the keys that begin with the next existing
    /// byte. After [`STEPS_MAX`] such steps it takes the first key of the range: keys that are
    /// prefixes of each other can make the tree as deep as a key is long, and removals make it
    /// start over.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn draw(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        let (mut part, mut is_whole) = (KeyRange::all(), true);
        let mut found = None;
        for _ in 0..STEPS_MAX {
            let first = self.first(&part).await?;
            let last = self.first(&part.clone().reversed()).await?;
            let (Some(first), Some(last)) = (first, last) else {
                if is_whole {
                    return Ok(None);
                }
                // The keys were removed in between.
                (part, is_whole) = (KeyRange::all(), true);
                continue;
            };
            if first == last {
                return Ok(Some(first));
            }
            let common = first.iter().zip(&last).take_while(|(a, b)| a == b).count();
            // A key that ends here counts as one more byte.
            let (Some(&high), low) = (last.get(common), first.get(common)) else { return Ok(Some(first)) };
            let low = low.map_or(-1, |&low| i64::from(low));
            let choices = (i64::from(high) - low + 1) as u64;
            let drawn = low + (darter_fabric::random_word() % choices).cast_signed();
            let Ok(drawn) = u8::try_from(drawn) else { return Ok(Some(first)) };
            let from = [&first[..common], &[drawn]].concat();
            let next = KeyRange::between(Bound::Included(&from), Bound::Included(&last));
            let Some(next) = self.first(&next).await? else { return Ok(Some(last)) };
            (part, is_whole) = (KeyRange::prefixed(next.get(..=common).unwrap_or(&next)), false);
            found = Some(next);
        }
        Ok(found)
    }

    /// Returns the first key of a range in its direction. The key may have expired.
    async fn first(&mut self, part: &KeyRange) -> Result<Option<Vec<u8>>, Fault> {
        let session = session(&mut self.session, &self.store)?;
        let mut found = None;
        session.scan_with(&part.0, 1, |place, _| found = Some(place[1..].to_vec())).await?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::place;
    use super::*;
    use darter::engine::Engine;
    use darter::{Store, block_on};

    /// Each key is a prefix of the next except for its last byte, and a draw goes deeper with a
    /// probability of 255 in 256.
    #[test]
    fn a_random_key_takes_a_bounded_number_of_round_trips() {
        const DEPTH: usize = 150;
        let store = Store::open("mem:64M").unwrap();
        let session = store.session_in(darter::engine::KeySpace::Gateway).unwrap();
        let put = |key: &[u8]| {
            let mut at = Vec::new();
            place(&mut at, Family::Key, key);
            session.put(at, "a head").unwrap();
        };
        (0..DEPTH).for_each(|depth| put(&[&vec![0xff; depth][..], &[0]].concat()));
        put(&[0xff; DEPTH]);
        let mut keys = Keyspace::new(store.clone(), std::sync::Arc::default());
        let mut deepest = 0;
        for _ in 0..20 {
            let key = block_on(keys.draw()).unwrap().unwrap();
            assert!(key.iter().rev().skip(1).all(|byte| *byte == 0xff), "{key:?}");
            deepest = deepest.max(key.len());
        }
        // One step for each byte; without a limit most draws go deeper than this.
        assert!((STEPS_MAX / 2..=STEPS_MAX + 2).contains(&deepest), "{deepest}");
    }
}
