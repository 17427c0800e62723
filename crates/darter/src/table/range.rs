//! The pairs of a table, as an iterator and as awaited values.

use super::codec::Codec;
use super::{TableKey, TableValue};
use crate::Error;
use crate::range::{AsyncRange, Range};

/// An iterator over the pairs of a table; otherwise the same as [`Range`].
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// # let ages: darter::Table<String, u32> = store.table("ages")?;
/// ages.put_many(&[("Ada".to_owned(), 36), ("Grace".to_owned(), 85)])?;
/// let mut pairs = ages.iter();
/// assert_eq!(pairs.next_back().transpose()?, Some(("Grace".to_owned(), 85)));
/// assert_eq!(pairs.next().transpose()?, Some(("Ada".to_owned(), 36)));
/// assert!(pairs.next().is_none());
/// # Ok(())
/// # }
/// ```
#[must_use = "a range does nothing until iterated"]
pub struct TableRange<K, V> {
    range: Range<'static>,
    codec: Codec<K, V>,
}

impl<K, V> TableRange<K, V> {
    pub(super) fn new(range: Range<'static>, codec: &Codec<K, V>) -> Self {
        Self { range, codec: codec.clone() }
    }

    /// As [`Range::limit`].
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # let ages: darter::Table<String, u32> = store.table("ages")?;
    /// ages.put_many(&["Ada", "Alan", "Grace"].map(|name| (name.to_owned(), 1)))?;
    /// let last_two = ages.iter().limit(2).rev().map(|pair| Ok(pair?.0));
    /// assert_eq!(last_two.collect::<Result<Vec<_>, darter::Error>>()?, ["Grace", "Alan"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn limit(self, limit: usize) -> Self {
        Self { range: self.range.limit(limit), ..self }
    }
}

impl<K: TableKey, V: TableValue> Iterator for TableRange<K, V> {
    type Item = Result<(K, V), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.range.next().map(|pair| self.codec.decode_pair(&pair?))
    }
}

impl<K: TableKey, V: TableValue> DoubleEndedIterator for TableRange<K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.range.next_back().map(|pair| self.codec.decode_pair(&pair?))
    }
}

/// The pairs of a table, as awaited values; otherwise the same as [`AsyncRange`].
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # darter::block_on(async {
/// # let store = darter::AsyncStore::open("mem:16M").await?;
/// # let ages: darter::AsyncTable<String, u32> = store.table("ages").await?;
/// ages.put_many(&[("Ada".to_owned(), 36), ("Grace".to_owned(), 85)]).await?;
/// let mut pairs = ages.pairs();
/// assert_eq!(pairs.next().await.transpose()?, Some(("Ada".to_owned(), 36)));
/// assert_eq!(pairs.next().await.transpose()?, Some(("Grace".to_owned(), 85)));
/// assert!(pairs.next().await.is_none());
/// # Ok(())
/// # })
/// # }
/// ```
#[must_use = "a range does nothing until polled"]
pub struct AsyncTableRange<'s, K, V> {
    range: AsyncRange<'s>,
    codec: Codec<K, V>,
}

impl<'s, K: TableKey, V: TableValue> AsyncTableRange<'s, K, V> {
    pub(super) fn new(range: AsyncRange<'s>, codec: &Codec<K, V>) -> Self {
        Self { range, codec: codec.clone() }
    }

    /// As [`crate::Range::limit`].
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let ages: darter::AsyncTable<String, u32> = store.table("ages").await?;
    /// ages.put_many(&["Ada", "Alan", "Grace"].map(|name| (name.to_owned(), 1))).await?;
    /// let mut first = ages.pairs().limit(1);
    /// assert_eq!(first.next().await.transpose()?, Some(("Ada".to_owned(), 1)));
    /// assert!(first.next().await.is_none());
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn limit(self, limit: usize) -> Self {
        Self { range: self.range.limit(limit), ..self }
    }

    /// Returns the next pair. No pair is lost if the future is dropped.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let ages: darter::AsyncTable<String, u32> = store.table("ages").await?;
    /// ages.put("Ada", &36).await?;
    /// let mut pairs = ages.pairs();
    /// assert_eq!(pairs.next().await.transpose()?, Some(("Ada".to_owned(), 36)));
    /// assert!(pairs.next().await.is_none());
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub async fn next(&mut self) -> Option<Result<(K, V), Error>> {
        let pair = self.range.next().await?;
        Some(pair.and_then(|pair| self.codec.decode_pair(&pair)))
    }

    /// Returns the next pair from the other end.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let ages: darter::AsyncTable<String, u32> = store.table("ages").await?;
    /// ages.put_many(&[("Ada".to_owned(), 36), ("Grace".to_owned(), 85)]).await?;
    /// let last = ages.pairs().next_back().await.transpose()?;
    /// assert_eq!(last, Some(("Grace".to_owned(), 85)));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub async fn next_back(&mut self) -> Option<Result<(K, V), Error>> {
        let pair = self.range.next_back().await?;
        Some(pair.and_then(|pair| self.codec.decode_pair(&pair)))
    }
}
