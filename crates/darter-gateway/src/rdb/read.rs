//! The reader of lengths, strings and scores.
//!
//! ```text
//! 00nnnnnn                       the length n
//! 01nnnnnn nnnnnnnn              the length n
//! 80, 4 bytes; 81, 8 bytes       a length, big-endian
//! c0, 1 byte; c1, 2 bytes; c2, 4 bytes      a string that is an integer, little-endian
//! c3, length, length, bytes      a compressed string: its compressed and its original length
//! ```

use super::Text;
use super::lzf::decompressed;
use std::borrow::Cow;

/// Bytes that an element takes in memory besides its own.
const ELEMENT_BYTES: usize = 2 * size_of::<Text<'_>>();

/// Reads a value. All functions return `None` at the end of the bytes, for bytes that have no
/// meaning, and when the value takes too much memory.
#[derive(Debug)]
pub(super) struct Reader<'p> {
    bytes: &'p [u8],
    /// Bytes of memory that the value may still take.
    room: usize,
    is_out_of_room: bool,
}

/// A length, or the number of a special encoding.
enum Length {
    Plain(usize),
    Special(u8),
}

impl<'p> Reader<'p> {
    pub(super) fn new(bytes: &'p [u8], room: usize) -> Self {
        Self { bytes, room, is_out_of_room: false }
    }

    /// Takes memory for a part of the value.
    pub(super) fn take_room(&mut self, bytes: usize) -> Option<()> {
        let room = self.room.checked_sub(bytes);
        self.is_out_of_room |= room.is_none();
        self.room = room?;
        Some(())
    }

    /// Returns whether the value takes more memory than it may.
    pub(super) fn is_out_of_room(&self) -> bool {
        self.is_out_of_room
    }

    /// Returns the number of bytes that were not read.
    pub(super) fn left(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether all bytes were read.
    pub(super) fn is_at_end(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the next bytes.
    fn take(&mut self, count: usize) -> Option<&'p [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    pub(super) fn chunk<const COUNT: usize>(&mut self) -> Option<[u8; COUNT]> {
        self.take(COUNT)?.try_into().ok()
    }

    fn any_length(&mut self) -> Option<Length> {
        let [first] = self.chunk()?;
        let low = first & 0x3f;
        Some(match first {
            ..0x40 => Length::Plain(low.into()),
            0x40..0x80 => {
                let [second] = self.chunk()?;
                Length::Plain(usize::from(low) << 8 | usize::from(second))
            }
            0x80 => Length::Plain(u32::from_be_bytes(self.chunk()?) as usize),
            0x81 => Length::Plain(usize::try_from(u64::from_be_bytes(self.chunk()?)).ok()?),
            0xc0.. => Length::Special(low),
            _ => return None,
        })
    }

    pub(super) fn length(&mut self) -> Option<usize> {
        match self.any_length()? {
            Length::Plain(length) => Some(length),
            Length::Special(_) => None,
        }
    }

    /// Reads a string.
    pub(super) fn string(&mut self) -> Option<Text<'p>> {
        let number = |number: i32| Cow::Owned(itoa::Buffer::new().format(number).into());
        Some(match self.any_length()? {
            Length::Plain(length) => Cow::Borrowed(self.take(length)?),
            Length::Special(0) => number(i8::from_le_bytes(self.chunk()?).into()),
            Length::Special(1) => number(i16::from_le_bytes(self.chunk()?).into()),
            Length::Special(2) => number(i32::from_le_bytes(self.chunk()?)),
            Length::Special(3) => {
                let (compressed, length) = (self.length()?, self.length()?);
                self.take_room(length)?;
                Cow::Owned(decompressed(self.take(compressed)?, length)?)
            }
            Length::Special(_) => return None,
        })
    }

    /// Reads a time in ms since the Unix epoch. One before it counts as the epoch.
    pub(super) fn time(&mut self) -> Option<u64> {
        Some(u64::try_from(i64::from_le_bytes(self.chunk()?)).unwrap_or(0))
    }

    /// Reads a score of 8 bytes.
    pub(super) fn score(&mut self) -> Option<f64> {
        Some(f64::from_le_bytes(self.chunk()?)).filter(|score| !score.is_nan())
    }

    /// Reads a score that is a text after its length.
    pub(super) fn score_in_text(&mut self) -> Option<f64> {
        match self.chunk()? {
            [253] => None,
            [254] => Some(f64::INFINITY),
            [255] => Some(f64::NEG_INFINITY),
            [length] => crate::score::parse(self.take(length.into())?),
        }
    }

    /// Reads elements after their number: names, and what `rest` reads behind each.
    pub(super) fn elements<V>(&mut self, rest: fn(&mut Self) -> Option<V>) -> Option<Vec<(Text<'p>, V)>> {
        let mut elements = Vec::new();
        for _ in 0..self.length()? {
            self.take_room(ELEMENT_BYTES)?;
            elements.push((self.string()?, rest(self)?));
        }
        Some(elements)
    }

    /// Reads the nodes of a list after their number, each by `node`.
    pub(super) fn nodes(&mut self, node: fn(&mut Self) -> Option<Vec<Text<'p>>>) -> Option<Vec<Text<'p>>> {
        let mut elements = Vec::new();
        for _ in 0..self.length()? {
            elements.extend(node(self)?);
        }
        Some(elements)
    }

    /// Reads a string that contains others, which `unpack` returns.
    pub(super) fn packed(
        &mut self,
        unpack: for<'s> fn(&'s [u8], &mut Reader<'_>) -> Option<Vec<Text<'s>>>,
    ) -> Option<Vec<Text<'p>>> {
        let packed = self.string()?;
        match packed {
            Cow::Borrowed(packed) => unpack(packed, self),
            Cow::Owned(packed) => {
                self.take_room(packed.len())?;
                let strings = unpack(&packed, self)?;
                Some(strings.into_iter().map(|string| Cow::Owned(string.into_owned())).collect())
            }
        }
    }

    /// Takes memory for one string of a packed value.
    pub(super) fn take_element(&mut self) -> Option<()> {
        self.take_room(ELEMENT_BYTES)
    }
}
