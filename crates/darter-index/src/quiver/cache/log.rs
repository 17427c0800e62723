//! The memory of a shard of the cache: consecutive blocks, removed at the front and added at the
//! back.
//!
//! Memory is counted in *units* of 4 bytes. A unit keeps its position until it is removed.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::mem::size_of;

/// A queue of units, each at its position.
#[derive(Debug, Default)]
pub(super) struct Log {
    units: VecDeque<u32>,
    /// The position of the first unit; positions count modulo 2^32.
    first: u32,
}

impl Log {
    /// Number of units.
    pub(super) fn len(&self) -> usize {
        self.units.len()
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> usize {
        self.units.capacity() * size_of::<u32>()
    }

    /// The position of the first unit.
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// The unit at a position, which must be in the log.
    #[inline]
    pub(super) fn unit(&self, at: u32) -> u32 {
        self.units[at.wrapping_sub(self.first) as usize]
    }

    /// The two units at a position, the low one first.
    #[inline]
    pub(super) fn pair(&self, at: u32) -> u64 {
        u64::from(self.unit(at)) | u64::from(self.unit(at.wrapping_add(1))) << 32
    }

    /// Sets bits of the unit at a position.
    pub(super) fn set_bits(&mut self, at: u32, bits: u32) {
        self.units[at.wrapping_sub(self.first) as usize] |= bits;
    }

    /// The units from a position on, which must be in the log.
    pub(super) fn units(&self, at: u32, count: usize) -> Cow<'_, [u32]> {
        let (front, back) = self.units.as_slices();
        let start = at.wrapping_sub(self.first) as usize;
        let end = start + count;
        if end <= front.len() {
            Cow::Borrowed(&front[start..end])
        } else if start >= front.len() {
            Cow::Borrowed(&back[start - front.len()..end - front.len()])
        } else {
            Cow::Owned([&front[start..], &back[..end - front.len()]].concat())
        }
    }

    /// Appends units; with the present ones they must fit in `most_bytes`. Returns their position.
    pub(super) fn append(&mut self, units: &[u32], most_bytes: usize) -> u32 {
        let needed = self.units.len() + units.len();
        if needed > self.units.capacity() {
            let most = most_bytes / size_of::<u32>();
            let roomy = needed.saturating_add(needed / 8).min(most).max(needed);
            self.units.reserve_exact(roomy - self.units.len());
        }
        let at = self.first.wrapping_add(self.units.len() as u32);
        self.units.extend(units);
        at
    }

    /// Drops units at the front.
    pub(super) fn drop_first(&mut self, count: usize) {
        self.units.drain(..count);
        self.first = self.first.wrapping_add(count as u32);
    }

    /// Gives back unused memory beyond `bytes` bytes.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        self.units.shrink_to(bytes / size_of::<u32>());
    }
}
