//! Scans as iterators and streams over what a [cursor](crate::cursor) fetches.

use crate::cursor::{Cursor, End, Step};
use crate::{AsyncSession, DefaultFabric, Error, KeyRange, Session};
use darter_fabric::Fabric;
use darter_index::{KeyValue, ScanRange};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

impl<F: Fabric> Session<F> {
    /// Returns the pairs whose keys lie in a range, in order, from either end. The session serves
    /// other calls meanwhile: the loop over a scan may put and delete.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let session = darter::Store::open("mem:16M")?.session()?;
    /// for key in ["a", "b", "c"] {
    ///     session.put(key, "")?;
    /// }
    /// let keys = session.scan("a".."c").rev().map(|pair| Ok(pair?.0)).collect::<Result<Vec<_>, darter::Error>>()?;
    /// assert_eq!(keys, [b"b", b"a"]);
    /// for pair in session.scan("b"..) {
    ///     session.delete(pair?.0)?;
    /// }
    /// assert!(!session.contains_key("c")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan(&self, range: impl KeyRange) -> Scan<'_, F> {
        Scan::new(self, Cursor::new(range.into_scan_range()))
    }

    /// Returns the pairs whose keys begin with `prefix`, in order, from either end.
    pub fn scan_prefix(&self, prefix: impl AsRef<[u8]>) -> Scan<'_, F> {
        self.scan(ScanRange::prefix(prefix.as_ref()))
    }
}

impl<F: Fabric> AsyncSession<F> {
    /// Returns the pairs whose keys lie in a range, fetched in chunks as the scan proceeds.
    pub fn scan(&mut self, range: impl KeyRange) -> AsyncScan<'_, F> {
        AsyncScan::new(self, Cursor::new(range.into_scan_range()))
    }

    /// Returns the pairs whose keys begin with `prefix`.
    pub fn scan_prefix(&mut self, prefix: impl AsRef<[u8]>) -> AsyncScan<'_, F> {
        self.scan(ScanRange::prefix(prefix.as_ref()))
    }
}

/// A scan as an iterator over pairs of key and value; `rev()` goes from the other end. It ends
/// after an error.
///
/// What others change while it runs may or may not appear; a key that is there throughout does,
/// once.
#[derive(Debug)]
#[must_use = "a scan does nothing until iterated"]
pub struct Scan<'s, F: Fabric = DefaultFabric> {
    session: &'s Session<F>,
    cursor: Cursor,
}

impl<'s, F: Fabric> Scan<'s, F> {
    pub(crate) fn new(session: &'s Session<F>, cursor: Cursor) -> Self {
        Self { session, cursor }
    }

    /// Hands out at most `limit` pairs, counted from whichever end they are taken: `limit(3).rev()`
    /// gives the last three. Unlike [`Iterator::take`], it also spares fetching more than that.
    pub fn limit(mut self, limit: usize) -> Self {
        self.cursor.limit(limit);
        self
    }

    fn next_from(&mut self, front: bool) -> Option<Result<KeyValue, Error>> {
        let end = self.cursor.end(front);
        loop {
            let (range, asked) = match self.cursor.step(end) {
                Step::Pair(pair) => return pair.map(Ok),
                Step::Fetch(range, asked) => (range, asked),
            };
            let fetched = self.session.scan_chunk(&range, asked);
            if let Err(error) = self.cursor.accept(end, asked, fetched) {
                return Some(Err(error));
            }
        }
    }
}

impl<F: Fabric> Iterator for Scan<'_, F> {
    type Item = Result<KeyValue, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_from(true)
    }
}

impl<F: Fabric> DoubleEndedIterator for Scan<'_, F> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_from(false)
    }
}

impl<F: Fabric> std::iter::FusedIterator for Scan<'_, F> {}

/// A chunk on its way, and the session that fetches it.
type Fetch<'s, F> =
    Pin<Box<dyn Future<Output = (&'s mut AsyncSession<F>, Result<Vec<KeyValue>, Error>)> + Send + 's>>;

/// A scan whose pairs are awaited; otherwise as [`Scan`]. With the feature `stream` it is a
/// `futures_core::Stream`.
#[must_use = "a scan does nothing until asked for its next pair"]
pub struct AsyncScan<'s, F: Fabric = DefaultFabric> {
    /// `None` while it fetches.
    session: Option<&'s mut AsyncSession<F>>,
    /// The chunk on its way, from which end, and of how many pairs at most.
    fetch: Option<(Fetch<'s, F>, End, usize)>,
    cursor: Cursor,
}

impl<'s, F: Fabric> AsyncScan<'s, F> {
    pub(crate) fn new(session: &'s mut AsyncSession<F>, cursor: Cursor) -> Self {
        Self { session: Some(session), fetch: None, cursor }
    }

    /// As [`Scan::limit`].
    pub fn limit(mut self, limit: usize) -> Self {
        self.cursor.limit(limit);
        self
    }

    /// Returns the next pair in the range's direction. A future dropped in mid-air loses no pair.
    pub async fn next(&mut self) -> Option<Result<KeyValue, Error>> {
        poll_fn(|context| self.poll_next_from(true, context)).await
    }

    /// Returns the next pair from the other end.
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
            // A chunk whose future was dropped before its arrival may be of the other end.
            if let Some((fetch, end, asked)) = &mut self.fetch {
                let (session, fetched) = ready!(fetch.as_mut().poll(context));
                self.session = Some(session);
                let accepted = self.cursor.accept(*end, *asked, fetched);
                self.fetch = None;
                if let Err(error) = accepted {
                    return Poll::Ready(Some(Err(error)));
                }
            }
            let (range, asked) = match self.cursor.step(end) {
                Step::Pair(pair) => return Poll::Ready(pair.map(Ok)),
                Step::Fetch(range, asked) => (range, asked),
            };
            let Some(session) = self.session.take() else { return Poll::Ready(None) };
            let fetch = async move {
                let fetched = session.scan_chunk(&range, asked).await;
                (session, fetched)
            };
            self.fetch = Some((Box::pin(fetch), end, asked));
        }
    }
}

#[cfg(feature = "stream")]
impl<F: Fabric> futures_core::Stream for AsyncScan<'_, F> {
    type Item = Result<KeyValue, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_next_from(true, context)
    }
}

impl<F: Fabric> std::fmt::Debug for AsyncScan<'_, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AsyncScan").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}
