//! The arguments of `scan(…)`: Rust's range expressions over any type of bytes, or a ready
//! [`ScanRange`].
//!
//! Unlike with `RangeBounds<K>`, no type has to be specified for `..`, and `str`, `[u8; N]` and
//! `Vec<u8>` can be used.

use darter_index::ScanRange;
use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// A part of the key space to scan.
///
/// ```
/// use darter::{KeyRange, ScanRange};
/// use std::ops::Bound;
///
/// let range: ScanRange = ("a".."b").into_scan_range();
/// assert_eq!(range.to, Bound::Excluded(b"b".to_vec()));
/// assert_eq!((..).into_scan_range(), ScanRange::all());
/// assert!((b"a"..=b"b").into_scan_range().reversed().reverse);
/// ```
pub trait KeyRange {
    /// Returns the range in the index's form. A range whose bounds cross is valid and empty.
    ///
    /// ```
    /// # use darter::KeyRange;
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// store.put("pear", "green")?;
    /// let crossed = ("z".."a").into_scan_range();
    /// assert_eq!(store.range(&crossed).count(), 0);
    /// assert_eq!(store.range(("a".."z").into_scan_range().reversed()).count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    fn into_scan_range(self) -> ScanRange;
}

/// Returns an ascending range between two bounds.
fn between<K: AsRef<[u8]>>(from: Bound<K>, to: Bound<K>) -> ScanRange {
    let owned = |bound: Bound<K>| bound.map(|key| key.as_ref().to_vec());
    ScanRange { from: owned(from), to: owned(to), reverse: false }
}

impl KeyRange for ScanRange {
    fn into_scan_range(self) -> ScanRange {
        self
    }
}

impl KeyRange for &ScanRange {
    fn into_scan_range(self) -> ScanRange {
        self.clone()
    }
}

impl KeyRange for RangeFull {
    fn into_scan_range(self) -> ScanRange {
        ScanRange::all()
    }
}

impl<K: AsRef<[u8]>> KeyRange for Range<K> {
    fn into_scan_range(self) -> ScanRange {
        between(Bound::Included(self.start), Bound::Excluded(self.end))
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeInclusive<K> {
    fn into_scan_range(self) -> ScanRange {
        let (from, to) = self.into_inner();
        between(Bound::Included(from), Bound::Included(to))
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeFrom<K> {
    fn into_scan_range(self) -> ScanRange {
        between(Bound::Included(self.start), Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeTo<K> {
    fn into_scan_range(self) -> ScanRange {
        between(Bound::Unbounded, Bound::Excluded(self.end))
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeToInclusive<K> {
    fn into_scan_range(self) -> ScanRange {
        between(Bound::Unbounded, Bound::Included(self.end))
    }
}

impl<K: AsRef<[u8]>> KeyRange for (Bound<K>, Bound<K>) {
    fn into_scan_range(self) -> ScanRange {
        between(self.0, self.1)
    }
}
