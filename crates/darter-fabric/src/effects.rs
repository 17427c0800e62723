//! Records the changes made by frames as they execute, and determines which later replies depend on
//! them.
//!
//! It has two users: a memory node with a log on disk, which replies when the disk has the records
//! that a reply depends on, and the primary of a memory group (crate `darter-group`), which replies
//! when its backups have them. Both number their records, either by position in bytes or
//! consecutively. Every reply *needs* a number: that of its frame's own record, or of the last
//! record that changed a line which the frame has read.
//!
//! ```text
//! effects   offset 40 bits, words 24 bits | the words, repeated for each effect
//! ```

use crate::local::FrameObserver;

/// Bits of an effect's offset; the remaining bits hold the number of its words.
const OFFSET_BITS: u32 = 40;
/// Bytes of a line.
const LINE_BYTES: u64 = 64;
/// The table has two to the power of this many entries.
const LINE_ENTRIES_LOG2: u32 = 16;

/// Appends one effect: whole words stored at an offset.
#[inline]
pub fn put_effect(out: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let words = bytes.len() as u64 / 8;
    out.extend_from_slice(&(offset | words << OFFSET_BITS).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Parses consecutive effects; the last item is `None` if the last effect is incomplete.
pub fn effects(mut payload: &[u8]) -> impl Iterator<Item = Option<(u64, &[u8])>> {
    std::iter::from_fn(move || {
        if payload.is_empty() {
            return None;
        }
        let whole = payload.split_first_chunk::<8>().and_then(|(head, rest)| {
            let head = u64::from_le_bytes(*head);
            let bytes = (head >> OFFSET_BITS) as usize * 8;
            let (words, rest) = rest.split_at_checked(bytes)?;
            payload = rest;
            Some((head & ((1 << OFFSET_BITS) - 1), words))
        });
        if whole.is_none() {
            payload = &[];
        }
        Some(whole)
    })
}

/// Records a frame's effects and the numbers that it depends on.
#[derive(Debug)]
pub struct EffectsObserver<'r> {
    /// Buffer to which effects are appended.
    pub effects: &'r mut Vec<u8>,
    /// `None` if no reply waits for records.
    pub lines: Option<&'r Lines>,
    /// The number of the last record that changed the lines that the frame has read; 0 at first.
    pub need: u64,
    /// The effects, counted from 0, of [volatile](crate::Batch::volatile) verbs, which need
    /// nothing; `None` if such verbs are treated like any other.
    pub volatile: Option<&'r mut VolatileEffects>,
}

/// The volatile effects of a frame, which no reply waits for.
#[derive(Debug, Default)]
pub struct VolatileEffects {
    /// Number of effects so far.
    count: usize,
    /// The numbers of the volatile ones, ascending.
    numbers: Vec<usize>,
}

impl VolatileEffects {
    /// Starts a new frame.
    pub fn clear(&mut self) {
        self.count = 0;
        self.numbers.clear();
    }

    /// Returns whether all effects are volatile.
    pub fn are_all(&self) -> bool {
        self.numbers.len() == self.count
    }

    /// Returns whether no effect is volatile.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Returns whether an effect is volatile.
    pub fn has(&self, number: usize) -> bool {
        !self.is_empty() && self.numbers.binary_search(&number).is_ok()
    }
}

impl FrameObserver for EffectsObserver<'_> {
    #[inline]
    fn saw(&mut self, offset: u64, bytes: usize, is_volatile: bool) {
        if let Some(lines) = self.lines
            && !(is_volatile && self.volatile.is_some())
        {
            self.need = self.need.max(lines.need(offset, bytes));
        }
    }

    #[inline]
    fn wrote(&mut self, offset: u64, bytes: &[u8], is_volatile: bool) {
        if bytes.is_empty() {
            return;
        }
        put_effect(self.effects, offset, bytes);
        if let Some(volatile) = &mut self.volatile {
            if is_volatile {
                volatile.numbers.push(volatile.count);
            }
            volatile.count += 1;
        }
    }
}

/// For each line of the region, the number of the last record that changed it.
///
/// A table of fixed size, without keys: lines that share an entry share the later of their numbers.
/// So the result may be too late a record, for which a reply then waits unnecessarily, but never
/// too early a one. An entry whose record no reply awaits has no effect, so entries are never
/// removed.
#[derive(Debug)]
pub struct Lines {
    numbers: Box<[u64]>,
}

impl Default for Lines {
    fn default() -> Self {
        Self { numbers: vec![0; 1 << LINE_ENTRIES_LOG2].into_boxed_slice() }
    }
}

impl Lines {
    /// Returns the entries of the lines that a range lies in.
    #[inline]
    fn entries(offset: u64, bytes: usize) -> impl Iterator<Item = usize> {
        // Consecutive lines have different entries if the table is large enough.
        let lines = offset / LINE_BYTES..(offset + bytes as u64).div_ceil(LINE_BYTES);
        lines.map(|line| (line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - LINE_ENTRIES_LOG2)) as usize)
    }

    /// Notes that a record changes these bytes. Numbers must not decrease.
    #[inline]
    pub fn changed(&mut self, offset: u64, bytes: usize, record: u64) {
        Self::entries(offset, bytes).for_each(|entry| self.numbers[entry] = record);
    }

    /// Returns the number of the last record that may have changed these bytes; 0 if none has.
    #[inline]
    pub fn need(&self, offset: u64, bytes: usize) -> u64 {
        Self::entries(offset, bytes).map(|entry| self.numbers[entry]).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_an_effect_is_none() {
        let mut payload = Vec::new();
        put_effect(&mut payload, 8, &[1; 16]);
        assert_eq!(effects(&payload).collect::<Vec<_>>(), [Some((8, &[1; 16][..]))]);
        assert_eq!(effects(&payload[..16]).collect::<Vec<_>>(), [None]);
        assert_eq!(effects(&payload[..4]).collect::<Vec<_>>(), [None]);
    }

    #[test]
    fn a_line_needs_no_less_than_its_last_change() {
        let mut lines = Lines::default();
        for line in 0..100_000_u64 {
            lines.changed(line * LINE_BYTES + 8, 8, line + 1);
            assert!(lines.need(line * LINE_BYTES + 48, 8) > line);
        }
        assert!((0..100_000).all(|line| lines.need(line * LINE_BYTES, 64) > line));
        let mut lines = Lines::default();
        lines.changed(LINE_BYTES - 8, 16, 7);
        assert_eq!([0, 1, 2].map(|line| lines.need(line * LINE_BYTES, 8)), [7, 7, 0]);
        assert_eq!(lines.need(0, 0), 0);
    }
}
