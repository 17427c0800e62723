//! Listpacks and ziplists: the strings of a small hash or sorted set in one string.
//!
//! ```text
//! listpack: bytes, 4 | strings, 2 | for each string: encoding, text, length of both backwards | ff
//! ziplist:  bytes, 4 | position of the last string, 4 | strings, 2 | for each string: length of the
//!           entry before, encoding, text | ff
//! ```
//!
//! The numbers at the beginning are little-endian. The number of strings is ffff if it is larger.

use super::Text;
use super::read::Reader;
use std::borrow::Cow;

const END: u8 = 0xff;
/// The number of strings if it is not known.
const MANY: usize = 0xffff;

fn number<'s>(number: i64) -> Text<'s> {
    Cow::Owned(itoa::Buffer::new().format(number).into())
}

/// Reads a little-endian integer of up to 8 bytes.
fn signed(bytes: &[u8]) -> i64 {
    let mut word = [if bytes.last().is_some_and(|last| last & 0x80 != 0) { 0xff } else { 0 }; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(word)
}

/// Splits bytes off the front.
fn take<'s>(bytes: &mut &'s [u8], count: usize) -> Option<&'s [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

/// Returns the little-endian number at a position.
fn word(bytes: &[u8], at: usize, count: usize) -> Option<usize> {
    let bytes = bytes.get(at..at + count)?;
    Some(bytes.iter().rev().fold(0, |word, &byte| word << 8 | usize::from(byte)))
}

/// Returns the length of a listpack's entry as its end has it: 7 bits in a byte, the highest first.
fn length_backwards(length: usize) -> Vec<u8> {
    let count = match length {
        ..128 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    };
    let byte = |at: usize| (length >> (7 * (count - 1 - at)) & 0x7f) as u8 | if at > 0 { 0x80 } else { 0 };
    (0..count).map(byte).collect()
}

/// A listpack that is being written.
#[derive(Debug)]
pub(super) struct Listpack {
    bytes: Vec<u8>,
    count: usize,
}

impl Listpack {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; 6], count: 0 }
    }

    /// Returns the number of strings.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Adds a string, in the shortest encoding.
    pub(super) fn push(&mut self, string: &[u8]) {
        match crate::number::integer(string) {
            Some(number) => self.push_number(number),
            None => self.push_entry(|bytes| {
                match string.len() {
                    length @ ..64 => bytes.push(0x80 | length as u8),
                    length @ 64..4096 => {
                        bytes.extend_from_slice(&(0xe000 | length as u16).to_be_bytes());
                    }
                    length => {
                        bytes.push(0xf0);
                        bytes.extend_from_slice(&(length as u32).to_le_bytes());
                    }
                }
                bytes.extend_from_slice(string);
            }),
        }
    }

    /// Adds an integer, in the shortest encoding.
    pub(super) fn push_number(&mut self, number: i64) {
        self.push_entry(|bytes| {
            let (code, length) = match number {
                0..128 => return bytes.push(number as u8),
                -4096..4096 => {
                    return bytes.extend_from_slice(&[0xc0 | (number >> 8 & 0x1f) as u8, number as u8]);
                }
                -32_768..32_768 => (0xf1, 2),
                -8_388_608..8_388_608 => (0xf2, 3),
                -2_147_483_648..2_147_483_648 => (0xf3, 4),
                _ => (0xf4, 8),
            };
            bytes.push(code);
            bytes.extend_from_slice(&number.to_le_bytes()[..length]);
        });
    }

    /// Adds a count.
    pub(super) fn push_count(&mut self, count: usize) {
        self.push_number(i64::try_from(count).unwrap_or(i64::MAX));
    }

    fn push_entry(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.bytes.len();
        write(&mut self.bytes);
        let end = length_backwards(self.bytes.len() - before);
        self.bytes.extend_from_slice(&end);
        self.count += 1;
    }

    /// Returns the bytes.
    pub(super) fn finished(mut self) -> Vec<u8> {
        self.bytes.push(END);
        let bytes = (self.bytes.len() as u32).to_le_bytes();
        self.bytes[..4].copy_from_slice(&bytes);
        self.bytes[4..6].copy_from_slice(&(self.count.min(MANY) as u16).to_le_bytes());
        self.bytes
    }
}

/// Reads a listpack's entry, without the length at its end.
fn listpack_entry<'s>(bytes: &mut &'s [u8]) -> Option<Text<'s>> {
    let &first = take(bytes, 1)?.first()?;
    let low = |mask: u8| usize::from(first & mask);
    let of_length = |bytes: &mut &'s [u8], length: usize| take(bytes, length).map(Cow::Borrowed);
    match first {
        ..0x80 => Some(number(first.into())),
        0x80..0xc0 => of_length(bytes, low(0x3f)),
        0xc0..0xe0 => {
            let second = take(bytes, 1)?;
            let unsigned = low(0x1f) << 8 | usize::from(second[0]);
            // 13 bits with a sign.
            Some(number((unsigned.cast_signed() as i64) << 51 >> 51))
        }
        0xe0..0xf0 => {
            let second = take(bytes, 1)?;
            of_length(bytes, low(0x0f) << 8 | usize::from(second[0]))
        }
        0xf0 => {
            let length = word(take(bytes, 4)?, 0, 4)?;
            of_length(bytes, length)
        }
        0xf1 => Some(number(signed(take(bytes, 2)?))),
        0xf2 => Some(number(signed(take(bytes, 3)?))),
        0xf3 => Some(number(signed(take(bytes, 4)?))),
        0xf4 => Some(number(signed(take(bytes, 8)?))),
        _ => None,
    }
}

/// Returns the strings of a listpack, unless it is damaged.
pub(super) fn listpack<'s>(packed: &'s [u8], reader: &mut Reader<'_>) -> Option<Vec<Text<'s>>> {
    let (bytes, announced) = (word(packed, 0, 4)?, word(packed, 4, 2)?);
    let mut left = packed.get(6..)?.strip_suffix(&[END])?;
    let mut strings = Vec::new();
    while !left.is_empty() {
        let before = left;
        reader.take_element()?;
        strings.push(listpack_entry(&mut left)?);
        let end = length_backwards(before.len() - left.len());
        left = left.strip_prefix(&end[..])?;
    }
    (bytes == packed.len() && (announced == MANY || announced == strings.len())).then_some(strings)
}

/// Reads a ziplist's entry behind the length of the entry before.
fn ziplist_entry<'s>(bytes: &mut &'s [u8]) -> Option<Text<'s>> {
    let &first = take(bytes, 1)?.first()?;
    let of_length = |bytes: &mut &'s [u8], length: usize| take(bytes, length).map(Cow::Borrowed);
    match first {
        ..0x40 => of_length(bytes, first.into()),
        0x40..0x80 => {
            let second = take(bytes, 1)?;
            of_length(bytes, usize::from(first & 0x3f) << 8 | usize::from(second[0]))
        }
        0x80 => {
            let length = u32::from_be_bytes(take(bytes, 4)?.try_into().ok()?);
            of_length(bytes, length as usize)
        }
        0xc0 => Some(number(signed(take(bytes, 2)?))),
        0xd0 => Some(number(signed(take(bytes, 4)?))),
        0xe0 => Some(number(signed(take(bytes, 8)?))),
        0xf0 => Some(number(signed(take(bytes, 3)?))),
        0xfe => Some(number(signed(take(bytes, 1)?))),
        0xf1..=0xfd => Some(number(i64::from(first & 0x0f) - 1)),
        _ => None,
    }
}

/// Returns the strings of a ziplist, unless it is damaged.
pub(super) fn ziplist<'s>(packed: &'s [u8], reader: &mut Reader<'_>) -> Option<Vec<Text<'s>>> {
    const HEADER_BYTES: usize = 10;
    let (bytes, tail, announced) = (word(packed, 0, 4)?, word(packed, 4, 4)?, word(packed, 8, 2)?);
    let mut left = packed.get(HEADER_BYTES..)?.strip_suffix(&[END])?;
    let (mut strings, mut length_before, mut last) = (Vec::new(), 0, HEADER_BYTES);
    while !left.is_empty() {
        let before = left.len();
        last = packed.len() - 1 - before;
        let length = match take(&mut left, 1)? {
            [0xfe] => word(take(&mut left, 4)?, 0, 4)?,
            [END] => return None,
            length => length[0].into(),
        };
        if length != length_before {
            return None;
        }
        reader.take_element()?;
        strings.push(ziplist_entry(&mut left)?);
        length_before = before - left.len();
    }
    let is_complete = announced == MANY || announced == strings.len();
    (bytes == packed.len() && tail == last && is_complete).then_some(strings)
}

/// Returns the integers of a set, in ascending order, unless they are damaged.
pub(super) fn integers<'s>(packed: &'s [u8], reader: &mut Reader<'_>) -> Option<Vec<Text<'s>>> {
    let (bytes, count, all) = (word(packed, 0, 4)?, word(packed, 4, 4)?, packed.get(8..)?);
    if !matches!(bytes, 2 | 4 | 8) || count.checked_mul(bytes)? != all.len() {
        return None;
    }
    let (mut strings, mut last) = (Vec::new(), None);
    for integer in all.chunks(bytes).map(signed) {
        if last.is_some_and(|last| last >= integer) {
            return None;
        }
        last = Some(integer);
        reader.take_element()?;
        strings.push(number(integer));
    }
    Some(strings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn build(strings: &[Vec<u8>]) -> Vec<u8> {
        let mut listpack = Listpack::new();
        for string in strings {
            listpack.push(string);
        }
        listpack.finished()
    }

    fn room() -> Reader<'static> {
        Reader::new(b"", 1 << 20)
    }

    fn strings() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let string = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            proptest::collection::vec(any::<u8>(), 4000..4200),
            (any::<i64>(), 0_u32..64).prop_map(|(number, shift)| (number >> shift).to_string().into_bytes()),
        ];
        proptest::collection::vec(string, 0..12)
    }

    proptest! {
        #[test]
        fn listpacks_are_read_as_they_were_built(strings in strings()) {
            let packed = build(&strings);
            let read = listpack(&packed, &mut room()).unwrap();
            prop_assert_eq!(read.iter().map(|string| string.to_vec()).collect::<Vec<_>>(), strings);
        }

        #[test]
        fn damaged_bytes_are_refused_or_read(strings in strings(), at: usize, byte: u8, cut: usize) {
            let mut packed = build(&strings);
            let at = at % packed.len();
            packed[at] = byte;
            let _ = (listpack(&packed, &mut room()), ziplist(&packed, &mut room()));
            packed.truncate(cut % packed.len());
            prop_assert!(listpack(&packed, &mut room()).is_none());
            let _ = ziplist(&packed, &mut room());
        }

        #[test]
        fn any_ziplist_is_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 11..80)) {
            // With a valid beginning, most bytes reach the entries.
            let length = (bytes.len() as u32).to_le_bytes();
            bytes[..4].copy_from_slice(&length);
            bytes[8..11].copy_from_slice(&[0xff, 0xff, 0]);
            *bytes.last_mut().unwrap() = END;
            let _ = ziplist(&bytes, &mut room());
        }
    }

    #[test]
    fn ziplists_have_strings_and_integers() {
        // "hello", 12, -1, 1024, 100000, 2^40.
        let entries: [&[u8]; 6] = [
            b"\x05hello",
            b"\xfd",
            b"\xfe\xff",
            b"\xc0\x00\x04",
            b"\xf0\xa0\x86\x01",
            b"\xe0\0\0\0\0\0\x01\0\0",
        ];
        let (mut packed, mut before, mut last) = (vec![0; 10], 0, 0);
        for entry in entries {
            last = packed.len();
            packed.push(before);
            packed.extend_from_slice(entry);
            before = entry.len() as u8 + 1;
        }
        packed.push(END);
        let bytes = packed.len() as u8;
        (packed[0], packed[4], packed[8]) = (bytes, last as u8, 6);
        let read = listpack(&packed, &mut room());
        assert_eq!(read, None);
        let read = ziplist(&packed, &mut room()).unwrap();
        let expected = ["hello", "12", "-1", "1024", "100000", "1099511627776"];
        assert!(read.iter().map(|string| &string[..]).eq(expected.map(str::as_bytes)));
        packed[8] = 5;
        assert_eq!(ziplist(&packed, &mut room()), None);
    }
}
