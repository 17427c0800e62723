//! Where a scan's pairs go, and how much of it one round trip does.

use crate::ScanRange;
use std::ops::Bound;

/// Most items one round trip reads.
pub(crate) const WIDTH_MAX: usize = 256;
/// Bytes after which a round trip takes no further item.
pub(crate) const BYTES_MAX: u64 = 1 << 20;

/// Takes pairs in order, at most so many.
pub(crate) struct Sink<V> {
    visit: V,
    /// Pairs still to be taken.
    pub(crate) left: usize,
    reverse: bool,
    last: Option<Vec<u8>>,
}

impl<V: FnMut(&[u8], &[u8])> Sink<V> {
    pub(crate) fn new(visit: V, limit: usize, reverse: bool) -> Self {
        Self { visit, left: limit, reverse, last: None }
    }

    /// Takes a pair unless it would break the order, which a damaged tree could.
    pub(crate) fn take(&mut self, key: &[u8], value: &[u8]) {
        let follows = match &self.last {
            Some(last) if self.reverse => key < &last[..],
            Some(last) => key > &last[..],
            None => true,
        };
        if !follows || self.left == 0 {
            return;
        }
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        self.left -= 1;
        (self.visit)(key, value);
    }
}

/// Whether no key can lie in a range.
pub(crate) fn is_void(range: &ScanRange) -> bool {
    match (&range.from, &range.to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to) | Bound::Included(to)) => {
            from >= to
        }
        _ => false,
    }
}
