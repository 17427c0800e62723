//! The receiver of a scan's pairs, and the limits of one round trip.

use super::leaf::Leaf;
use super::limits::{Limits, Touches};
use super::{common_prefix, compare, leaf};
use crate::{Result, ScanRange, Visit};
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::Pinned;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::ops::Bound;

/// Maximum number of items that one round trip reads.
pub const WIDTH_MAX: usize = 256;
/// Bytes after which no further item is added to a round trip.
pub const BYTES_MAX: u64 = 1 << 20;

/// Receives a limited number of pairs in order.
pub struct Sink<'v> {
    visit: &'v mut Visit<'v>,
    /// Number of pairs still to receive.
    pub left: usize,
    reverse: bool,
    last: Option<Vec<u8>>,
}

impl<'v> Sink<'v> {
    /// Passes at most `limit` pairs to `visit`, in descending order if `reverse`.
    pub fn new(visit: &'v mut Visit<'v>, limit: usize, reverse: bool) -> Self {
        Self { visit, left: limit, reverse, last: None }
    }

    /// Receives a pair, unless it would violate the order, which is possible in a damaged tree.
    pub fn take(&mut self, key: &[u8], value: &[u8]) {
        self.take_all(std::iter::once(Leaf { key, value }));
    }

    /// As [`Self::take_all`], for pairs that are in order among themselves.
    pub(crate) fn take_ordered<'p>(&mut self, pairs: impl ExactSizeIterator<Item = Leaf<'p>> + Clone) {
        let mut ordered = pairs.clone().take(self.left);
        let Some(first) = ordered.next() else { return };
        if self.last.as_ref().is_some_and(|last| compare(last, first.key) != self.forwards()) {
            return self.take_all(pairs);
        }
        self.left -= 1 + ordered.len();
        let mut last = first.key;
        (self.visit)(first.key, first.value);
        for Leaf { key, value } in ordered {
            last = key;
            (self.visit)(key, value);
        }
        self.keep(last);
    }

    /// How a key compares with the next one.
    fn forwards(&self) -> Ordering {
        if self.reverse { Ordering::Greater } else { Ordering::Less }
    }

    fn keep(&mut self, key: &[u8]) {
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
    }

    /// Receives pairs, except for those that would violate the order.
    pub fn take_all<'p>(&mut self, pairs: impl Iterator<Item = Leaf<'p>>) {
        let forwards = self.forwards();
        let Self { visit, left, last, .. } = self;
        // Compared in place as long as there are pairs.
        let mut before: Option<&[u8]> = None;
        for Leaf { key, value } in pairs {
            if *left == 0 {
                break;
            }
            if before.or(last.as_deref()).is_none_or(|last| compare(last, key) == forwards) {
                before = Some(key);
                *left -= 1;
                visit(key, value);
            }
        }
        if let Some(key) = before {
            self.keep(key);
        }
    }
}

/// Reads leaves in one round trip and passes on those in the range. Each is given with its size
/// class and the bounds that it touches.
///
/// # Errors
/// Those of the fabric, and [`IndexError::Corrupt`](crate::IndexError::Corrupt).
pub async fn emit<F: Fabric>(
    client: &mut Pinned<'_, F>,
    limits: &Limits<'_>,
    leaves: impl Iterator<Item = (GlobalAddr, u8, Touches)> + Send,
    sink: &mut Sink<'_>,
) -> Result<()> {
    let mut batch = client.batch();
    let reads: SmallVec<[_; 64]> = leaves
        .map(|(addr, class, touches)| (addr, touches, batch.read(addr, leaf::class_words(class))))
        .collect();
    let done = client.submit(batch).await?;
    for (addr, touches, read) in reads {
        let leaf = leaf::parse(addr, done.words(read))?;
        if !(touches.low || touches.high) || limits.contains(leaf.key) {
            sink.take(leaf.key, leaf.value);
        }
    }
    client.recycle(done);
    Ok(())
}

/// The bound at which a walk of a range begins, and the number of leading bytes that all keys of
/// the range share. `None` for a range without such a bound.
pub fn first_bound(range: &ScanRange) -> Option<(&[u8], usize)> {
    let (near, far) = if range.reverse { (&range.to, &range.from) } else { (&range.from, &range.to) };
    let (Bound::Included(near) | Bound::Excluded(near)) = near else { return None };
    let shared = match far {
        Bound::Included(far) | Bound::Excluded(far) => common_prefix(near, far),
        Bound::Unbounded => 0,
    };
    Some((near, shared))
}

/// Whether the range can contain no key.
pub fn is_void(range: &ScanRange) -> bool {
    match (&range.from, &range.to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to) | Bound::Included(to)) => {
            from >= to
        }
        _ => false,
    }
}

/// The part of a range after the subtree of a prefix, in the walk's direction.
pub fn beyond(range: &ScanRange, prefix: &[u8]) -> Option<ScanRange> {
    let mut rest = range.clone();
    if range.reverse {
        rest.to = Bound::Excluded(prefix.to_vec());
    } else {
        match ScanRange::prefix(prefix).to {
            Bound::Excluded(next) => rest.from = Bound::Included(next),
            _ => return None,
        }
    }
    (!is_void(&rest)).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_beyond_a_prefix() {
        let all = ScanRange::all();
        assert_eq!(beyond(&all, b"ab").unwrap().from, Bound::Included(b"ac".to_vec()));
        assert_eq!(beyond(&all, &[7, 0xff]).unwrap().from, Bound::Included(vec![8]));
        assert!(beyond(&all, &[0xff, 0xff]).is_none());
        assert_eq!(beyond(&all.clone().reversed(), b"ab").unwrap().to, Bound::Excluded(b"ab".to_vec()));
        let range = ScanRange { to: Bound::Excluded(b"ac".to_vec()), ..all };
        assert!(beyond(&range, b"ab").is_none());
    }
}
