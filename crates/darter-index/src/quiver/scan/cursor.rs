//! Positions in key order, as a scan goes from page to page.

use crate::ScanRange;
use crate::quiver::nibble::{EdgeRange, LAST, first_after, first_below, nibbles};
use std::ops::Bound;

/// Number of nibbles by which an upper bound is extended at a time.
const EXTENSION: usize = 16;

/// A position in key order where the walk continues: the pairs from `key` on, or, descending, the
/// pairs up to `key`, and with `is_open` also those whose keys extend it.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    pub(super) key: Vec<u8>,
    pub(super) is_open: bool,
}

impl Cursor {
    /// The first position of a range.
    pub(super) fn of(range: &ScanRange) -> Option<Self> {
        if !range.reverse {
            let key = match &range.from {
                Bound::Included(key) | Bound::Excluded(key) => key.clone(),
                Bound::Unbounded => Vec::new(),
            };
            return Some(Self { key, is_open: false });
        }
        match &range.to {
            Bound::Included(key) => Some(Self { key: key.clone(), is_open: false }),
            Bound::Excluded(key) => Self::below(key),
            Bound::Unbounded => Some(Self::extended(Vec::new())),
        }
    }

    /// The position of the greatest key below a bound.
    pub(super) fn below(bound: &[u8]) -> Option<Self> {
        let (last, head) = bound.split_last()?;
        let mut key = head.to_vec();
        if *last == 0 {
            return Some(Self { key, is_open: false });
        }
        key.push(last - 1);
        Some(Self::extended(key))
    }

    /// The position after some edges of the node whose prefix is the first `depth` nibbles of
    /// `key`; `None` at the end.
    pub(super) fn past(
        key: &[u8],
        depth: usize,
        EdgeRange { lo, hi }: EdgeRange,
        reverse: bool,
    ) -> Option<Self> {
        match (reverse, lo) {
            (false, _) => first_after(key, depth, hi).map(|key| Self { key, is_open: false }),
            (true, ..=LAST) => Self::below(&first_below(key, depth, lo)),
            (true, _) => Self::end_of(key, depth),
        }
    }

    /// The position of the greatest key below the node whose prefix is the first `depth` nibbles of
    /// `key`.
    pub(super) fn end_of(key: &[u8], depth: usize) -> Option<Self> {
        match first_after(key, depth, LAST) {
            Some(bound) => Self::below(&bound),
            None => Some(Self::extended(Vec::new())),
        }
    }

    pub(super) fn extended(mut key: Vec<u8>) -> Self {
        key.resize(key.len() + EXTENSION, 0xff);
        Self { key, is_open: true }
    }

    /// Whether the position must be extended before it leads beyond a depth.
    pub(super) fn falls_short_of(&self, depth: usize) -> bool {
        self.is_open && depth + 2 > nibbles(&self.key)
    }

    /// Whether any pair of the range can come from here on.
    pub(super) fn is_within(&self, range: &ScanRange) -> bool {
        let far = if range.reverse { &range.from } else { &range.to };
        let (Bound::Included(far) | Bound::Excluded(far)) = far else { return true };
        if range.reverse {
            self.is_open && far.starts_with(&self.key) || &self.key >= far
        } else {
            &self.key <= far
        }
    }

    /// The position after a key in the walk's direction.
    pub(super) fn behind(key: &[u8], reverse: bool) -> Option<Self> {
        if reverse {
            return Self::below(key);
        }
        Some(Self { key: [key, &[0]].concat(), is_open: false })
    }

    /// Whether a key lies at this position or before it in the walk's direction, so that nothing
    /// before the key matters.
    pub(super) fn has_passed(&self, key: &[u8], reverse: bool) -> bool {
        if reverse {
            key >= &self.key[..] && !(self.is_open && key.starts_with(&self.key))
        } else {
            key <= &self.key[..]
        }
    }
}
