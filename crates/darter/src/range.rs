//! The pairs of a range, as iterators and streams over the chunks that a [cursor](crate::cursor)
//! fetches.

use crate::cursor::{Cursor, CursorStep, RangeEnd};
use crate::workers::Workers;
use crate::{Error, Session, Store};
use darter_index::{KeyValue, ScanRange};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

impl Session {
    pub(crate) fn iter(&self, range: ScanRange) -> Range<'_> {
        Range { source: Source::Session(self), cursor: Cursor::new(range) }
    }
}

impl Store {
    pub(crate) fn iter(&self, range: ScanRange) -> Range<'static> {
        Range { source: Source::Store(self.clone()), cursor: Cursor::new(range) }
    }
}

/// An iterator over the pairs of a range, from either end. It ends after an error.
///
/// Keys are returned in order, each at most once: every key that is present from the beginning to
/// the end of the iteration, and none that is absent for that time. A key that other clients insert
/// or remove during the iteration may be returned.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// store.put_many(&[("fig", "blue"), ("pear", "green"), ("plum", "red")])?;
/// let mut pairs = store.range(..);
/// assert_eq!(pairs.next().transpose()?.unwrap().0, b"fig");
/// assert_eq!(pairs.next_back().transpose()?.unwrap().0, b"plum");
/// assert_eq!(pairs.next().transpose()?.unwrap().0, b"pear");
/// assert!(pairs.next().is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a range does nothing until iterated"]
pub struct Range<'s> {
    source: Source<'s>,
    cursor: Cursor,
}

#[derive(Debug)]
enum Source<'s> {
    Session(&'s Session),
    Store(Store),
}

impl Range<'_> {
    /// Limits the iteration to `limit` pairs, counted from the end from which they are taken:
    /// `limit(3).rev()` returns the last three. Unlike [`Iterator::take`], it also limits the
    /// number of pairs that are fetched from the pool.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// store.put_many(&[("fig", "blue"), ("pear", "green"), ("plum", "red")])?;
    /// let last_two = store.range(..).limit(2).rev().map(|pair| Ok(pair?.0));
    /// let last_two = last_two.collect::<Result<Vec<_>, darter::Error>>()?;
    /// assert_eq!(last_two, [&b"plum"[..], b"pear"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn limit(mut self, limit: usize) -> Self {
        self.cursor.limit(limit);
        self
    }

    fn next_from(&mut self, front: bool) -> Option<Result<KeyValue, Error>> {
        let end = self.cursor.end(front);
        loop {
            let (range, limit) = match self.cursor.step(end) {
                CursorStep::Pair(pair) => return pair.map(Ok),
                CursorStep::Fetch(range, limit) => (range, limit),
            };
            let fetched = match &self.source {
                Source::Session(session) => session.scan_chunk(&range, limit),
                Source::Store(store) => store.scan_chunk(&range, limit),
            };
            if let Err(error) = self.cursor.accept(end, limit, fetched) {
                return Some(Err(error));
            }
        }
    }
}

impl Iterator for Range<'_> {
    type Item = Result<KeyValue, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_from(true)
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_from(false)
    }
}

impl std::iter::FusedIterator for Range<'_> {}

/// A chunk that is being fetched.
type Fetch<'s> = Pin<Box<dyn Future<Output = Result<Vec<KeyValue>, Error>> + Send + 's>>;

/// The pairs of a range, as awaited values; otherwise the same as [`Range`]. With the feature
/// `stream` it is a `futures_core::Stream`.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # darter::block_on(async {
/// # let store = darter::AsyncStore::open("mem:16M").await?;
/// store.put_many(&[("pear", "green"), ("plum", "red")]).await?;
/// let mut pairs = store.range(..);
/// while let Some(pair) = pairs.next().await {
///     let (key, value) = pair?;
///     println!("{} is {}", key.escape_ascii(), value.escape_ascii());
/// }
/// # Ok(())
/// # })
/// # }
/// ```
#[must_use = "a range does nothing until polled"]
pub struct AsyncRange<'s> {
    workers: &'s Workers,
    /// The chunk that is being fetched, its end, and its largest number of pairs.
    fetch: Option<(Fetch<'s>, RangeEnd, usize)>,
    cursor: Cursor,
}

impl<'s> AsyncRange<'s> {
    pub(crate) fn new(workers: &'s Workers, range: ScanRange) -> Self {
        Self { workers, fetch: None, cursor: Cursor::new(range) }
    }

    /// As [`Range::limit`].
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// store.put_many(&[("pear", "green"), ("plum", "red")]).await?;
    /// let mut first = store.range(..).limit(1);
    /// assert_eq!(first.next().await.transpose()?.unwrap().0, b"pear");
    /// assert!(first.next().await.is_none());
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn limit(mut self, limit: usize) -> Self {
        self.cursor.limit(limit);
        self
    }

    /// Returns the next pair in the range's direction. No pair is lost if the future is dropped.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// store.put("pear", "green").await?;
    /// let mut pairs = store.prefix("p");
    /// let first = pairs.next().await.transpose()?;
    /// assert_eq!(first, Some((b"pear".to_vec(), b"green".to_vec())));
    /// assert!(pairs.next().await.is_none());
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub async fn next(&mut self) -> Option<Result<KeyValue, Error>> {
        poll_fn(|context| self.poll_next_from(true, context)).await
    }

    /// Returns the next pair from the other end.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// store.put_many(&[("pear", "green"), ("plum", "red")]).await?;
    /// let last = store.prefix("p").next_back().await.transpose()?;
    /// assert_eq!(last, Some((b"plum".to_vec(), b"red".to_vec())));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub async fn next_back(&mut self) -> Option<Result<KeyValue, Error>> {
        poll_fn(|context| self.poll_next_from(false, context)).await
    }

    fn poll_next_from(
        &mut self,
        front: bool,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<KeyValue, Error>>> {
        let end = self.cursor.end(front);
        loop {
            // A pending chunk whose future was dropped may be of the other end.
            if let Some((fetch, end, limit)) = &mut self.fetch {
                let fetched = ready!(fetch.as_mut().poll(context));
                let accepted = self.cursor.accept(*end, *limit, fetched);
                self.fetch = None;
                if let Err(error) = accepted {
                    return Poll::Ready(Some(Err(error)));
                }
            }
            let (range, limit) = match self.cursor.step(end) {
                CursorStep::Pair(pair) => return Poll::Ready(pair.map(Ok)),
                CursorStep::Fetch(range, limit) => (range, limit),
            };
            let workers = self.workers;
            let fetch = async move { workers.lease()?.scan_chunk(&range, limit).await };
            self.fetch = Some((Box::pin(fetch), end, limit));
        }
    }
}

#[cfg(feature = "stream")]
impl futures_core::Stream for AsyncRange<'_> {
    type Item = Result<KeyValue, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_next_from(true, context)
    }
}

impl std::fmt::Debug for AsyncRange<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AsyncRange").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}
