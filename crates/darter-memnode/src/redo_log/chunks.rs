//! Sets of chunks, and the lines that are not durable yet.

use super::manifest::CHUNK_BYTES;

/// A set of chunks of the region: a bit for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChunkSet {
    bits: Vec<u64>,
}

impl ChunkSet {
    /// Returns the empty set of a region with so many chunks.
    pub(super) fn new(chunks: usize) -> Self {
        Self { bits: vec![0; chunks.div_ceil(64)] }
    }

    #[inline]
    pub(super) fn add(&mut self, chunk: usize) {
        self.bits[chunk / 64] |= 1 << (chunk % 64);
    }

    /// Adds the chunks that a range of the region's bytes lies in. The range is not empty.
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

/// Bytes of a line.
const LINE_BYTES: u64 = 64;
/// The table has two to this many entries.
const LINE_ENTRIES_LOG2: u32 = 16;

/// For each line of the region, a position of the log behind the last record that has changed it.
///
/// A table of fixed size, without keys: lines that share an entry share the later of their
/// positions. So the answer may be too late a position, for which a reply then waits though it need
/// not, and never too early a one. An entry whose position is durable says nothing any more, so
/// nothing is ever removed.
#[derive(Debug)]
pub(super) struct Lines {
    positions: Box<[u64]>,
}

impl Lines {
    pub(super) fn new() -> Self {
        Self { positions: vec![0; 1 << LINE_ENTRIES_LOG2].into_boxed_slice() }
    }

    /// Returns the entries of the lines that a range lies in.
    #[inline]
    fn entries(offset: u64, bytes: usize) -> impl Iterator<Item = usize> {
        // Consecutive lines have different entries, as far as there are enough.
        let lines = offset / LINE_BYTES..(offset + bytes as u64).div_ceil(LINE_BYTES);
        lines.map(|line| (line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - LINE_ENTRIES_LOG2)) as usize)
    }

    /// Notes that the record that ends at a position changes these bytes. Positions only grow.
    #[inline]
    pub(super) fn changed(&mut self, offset: u64, bytes: usize, end: u64) {
        Self::entries(offset, bytes).for_each(|entry| self.positions[entry] = end);
    }

    /// Returns a position up to which the log has changed these bytes; 0 if it has not.
    #[inline]
    pub(super) fn need(&self, offset: u64, bytes: usize) -> u64 {
        Self::entries(offset, bytes).map(|entry| self.positions[entry]).max().unwrap_or(0)
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

    #[test]
    fn a_line_needs_no_less_than_its_last_change() {
        let mut lines = Lines::new();
        for line in 0..100_000_u64 {
            lines.changed(line * LINE_BYTES + 8, 8, line + 1);
            assert!(lines.need(line * LINE_BYTES + 48, 8) > line);
        }
        assert!((0..100_000).all(|line| lines.need(line * LINE_BYTES, 64) > line));
        let mut lines = Lines::new();
        lines.changed(LINE_BYTES - 8, 16, 7);
        assert_eq!([0, 1, 2].map(|line| lines.need(line * LINE_BYTES, 8)), [7, 7, 0]);
        assert_eq!(lines.need(0, 0), 0);
    }
}
