//! Sets of chunks.

use super::manifest::CHUNK_BYTES;

/// A set of chunks of the region: a bit for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChunkSet {
    bits: Vec<u64>,
}

impl ChunkSet {
    /// Returns the empty set of a region with this number of chunks.
    pub(super) fn new(chunks: usize) -> Self {
        Self { bits: vec![0; chunks.div_ceil(64)] }
    }

    #[inline]
    pub(super) fn add(&mut self, chunk: usize) {
        self.bits[chunk / 64] |= 1 << (chunk % 64);
    }

    /// Adds the chunks that overlap a range of the region's bytes. The range is not empty.
    #[inline]
    pub(super) fn add_range(&mut self, offset: u64, bytes: usize) {
        let last = (offset + bytes as u64 - 1) / CHUNK_BYTES;
        (offset / CHUNK_BYTES..=last).for_each(|chunk| self.add(chunk as usize));
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        self.bits.iter_mut().zip(&other.bits).for_each(|(bits, more)| *bits |= more);
    }

    pub(super) fn clear(&mut self) {
        self.bits.fill(0);
    }

    /// Takes the contents, and leaves the empty set.
    pub(super) fn take(&mut self) -> Self {
        let empty = Self { bits: vec![0; self.bits.len()] };
        std::mem::replace(self, empty)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        let bits = self.bits.clone();
        (0..bits.len() * 64).filter(move |chunk| bits[chunk / 64] >> (chunk % 64) & 1 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_in_all_its_chunks() {
        let mut set = ChunkSet::new(130);
        set.add_range(CHUNK_BYTES - 8, 8);
        set.add_range(3 * CHUNK_BYTES - 8, 16);
        set.add_range(129 * CHUNK_BYTES, 1);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 2, 3, 129]);
        assert_eq!(set.take().iter().count(), 4);
        assert_eq!(set.iter().count(), 0);
    }
}
