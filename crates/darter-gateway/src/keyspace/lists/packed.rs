//! Elements of a list in one record.
//!
//! ```text
//! number of elements, 2 bytes, little-endian | elements
//! an element: length | bytes | length backwards
//! ```
//!
//! A length has seven bits in a byte, the lowest ones first, and the highest bit of the byte is set
//! if more follow. It stands on both sides, so that a record can be read from either end.

use crate::fault::{FOREIGN, Fault};
use std::collections::VecDeque;

/// Most bytes of packed elements in a record.
const BYTES_MAX: usize = 1 << 10;
/// Most bytes of packed elements in a record with few elements.
const FEW_BYTES_MAX: usize = 8 << 10;
/// Most elements that are few.
const FEW: usize = 8;
/// Bytes of the number of elements.
const COUNT_BYTES: usize = 2;
/// Most bytes of a length.
const LENGTH_BYTES_MAX: usize = 5;

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The first element.
    Left,
    /// The last element.
    Right,
}

impl End {
    /// Returns the opposite end.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }
}

/// Consecutive elements of a list.
pub(crate) type Elements<'e> = VecDeque<&'e [u8]>;

/// The packed elements of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packed<'r> {
    count: usize,
    bytes: &'r [u8],
}

/// Returns the bytes of a length.
fn length_bytes(length: usize) -> usize {
    let bits = (usize::BITS - length.leading_zeros()).max(1);
    bits.div_ceil(7) as usize
}

/// Returns the bytes of a packed element.
fn packed_bytes(element: &[u8]) -> usize {
    element.len() + 2 * length_bytes(element.len())
}

/// Returns whether a record may hold this many elements with this many packed bytes. A single
/// element may have any length.
pub(in crate::keyspace) fn fits(count: usize, bytes: usize) -> bool {
    count <= 1 || bytes <= BYTES_MAX || count <= FEW && bytes <= FEW_BYTES_MAX
}

/// Returns whether a record may hold these elements.
pub(super) fn all_fit<'e>(elements: impl Iterator<Item = &'e [u8]> + Clone) -> bool {
    fits(elements.clone().count(), elements.map(packed_bytes).sum())
}

/// Writes the length of an element and returns its bytes.
fn write_length(record: &mut Vec<u8>, length: usize) -> usize {
    let (start, mut left) = (record.len(), length);
    while left >= 0x80 {
        record.push(left as u8 | 0x80);
        left >>= 7;
    }
    record.push(left as u8);
    record.len() - start
}

fn write_element(record: &mut Vec<u8>, element: &[u8]) {
    let bytes = write_length(record, element.len());
    record.extend_from_slice(element);
    let end = record.len();
    record.extend_from_within(end - element.len() - bytes..end - element.len());
    record[end..].reverse();
}

/// Parses a length. Returns it with the number of its bytes.
fn parse_length<'b>(bytes: impl Iterator<Item = &'b u8>) -> Option<(usize, usize)> {
    let mut length = 0;
    for (number, &byte) in bytes.take(LENGTH_BYTES_MAX).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * number);
        if byte < 0x80 {
            return Some((length, number + 1));
        }
    }
    None
}

/// Writes elements as they lie in a record.
pub(super) fn pack<'e>(record: &mut Vec<u8>, elements: impl ExactSizeIterator<Item = &'e [u8]>) {
    // No record has more elements.
    record.extend_from_slice(&(elements.len() as u16).to_le_bytes());
    elements.for_each(|element| write_element(record, element));
}

impl<'r> Packed<'r> {
    /// No elements.
    pub(super) const EMPTY: Self = Self { count: 0, bytes: &[] };

    /// Parses the end of a record.
    ///
    /// # Errors
    /// Fails if it is too short.
    pub(super) fn parse(record: &'r [u8]) -> Result<Self, Fault> {
        let (count, bytes) = record.split_first_chunk::<COUNT_BYTES>().ok_or(FOREIGN)?;
        Ok(Self { count: u16::from_le_bytes(*count).into(), bytes })
    }

    /// Returns the number of elements.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Writes the elements.
    pub(super) fn write(&self, record: &mut Vec<u8>) {
        record.reserve(COUNT_BYTES + self.bytes.len());
        record.extend_from_slice(&(self.count as u16).to_le_bytes());
        record.extend_from_slice(self.bytes);
    }

    /// Returns how many of these elements, from the first on, the record has room for.
    pub(super) fn room_for(&self, elements: &[&[u8]]) -> usize {
        let (mut count, mut bytes) = (self.count, self.bytes.len());
        let has_room = |element: &&&[u8]| {
            (count, bytes) = (count + 1, bytes + packed_bytes(element));
            fits(count, bytes)
        };
        elements.iter().take_while(has_room).count()
    }

    /// Returns whether the record has room for more elements.
    pub(super) fn has_room(&self, elements: &[&[u8]]) -> bool {
        self.room_for(elements) == elements.len()
    }

    /// Writes the elements with others, which are added one after the other at an end.
    pub(super) fn write_with(&self, record: &mut Vec<u8>, end: End, elements: &[&[u8]]) {
        let more: usize = elements.iter().map(|element| packed_bytes(element)).sum();
        record.reserve(COUNT_BYTES + self.bytes.len() + more);
        record.extend_from_slice(&((self.count + elements.len()) as u16).to_le_bytes());
        if end == End::Left {
            elements.iter().rev().for_each(|element| write_element(record, element));
        }
        record.extend_from_slice(self.bytes);
        if end == End::Right {
            for element in elements {
                write_element(record, element);
            }
        }
    }

    /// Takes the element at an end; `None` if there is none, or if the record is damaged.
    pub(super) fn pop(&mut self, end: End) -> Option<&'r [u8]> {
        let bytes = self.bytes;
        let (element, rest) = match end {
            End::Left => {
                let (length, header) = parse_length(bytes.iter())?;
                let after = header.checked_add(length)?;
                (bytes.get(header..after)?, bytes.get(after + header..)?)
            }
            End::Right => {
                let (length, footer) = parse_length(bytes.iter().rev())?;
                let after = bytes.len() - footer;
                let start = after.checked_sub(length)?;
                (&bytes[start..after], &bytes[..start.checked_sub(footer)?])
            }
        };
        *self = Self { count: self.count.checked_sub(1)?, bytes: rest };
        Some(element)
    }

    /// Returns the elements, beginning at an end.
    pub(super) fn from(self, end: End) -> impl Iterator<Item = &'r [u8]> {
        let mut left = self;
        std::iter::from_fn(move || left.pop(end))
    }

    /// Returns all elements.
    ///
    /// # Errors
    /// Fails if the record is damaged.
    pub(super) fn elements(self) -> Result<Elements<'r>, Fault> {
        let elements: Elements<'r> = self.from(End::Left).collect();
        if elements.len() == self.count { Ok(elements) } else { Err(FOREIGN) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packed(elements: &[&[u8]]) -> Vec<u8> {
        let mut record = Vec::new();
        pack(&mut record, elements.iter().copied());
        record
    }

    proptest! {
        #[test]
        fn elements_are_read_from_both_ends_as_they_were_pushed(
            pushes in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..300)), 0..40),
        ) {
            let (mut model, mut record) = (VecDeque::<Vec<u8>>::new(), packed(&[]));
            for (is_left, element) in pushes {
                let mut next = Vec::new();
                let end = if is_left { End::Left } else { End::Right };
                Packed::parse(&record).unwrap().write_with(&mut next, end, &[&element]);
                record = next;
                if is_left { model.push_front(element) } else { model.push_back(element) }
                let read = Packed::parse(&record).unwrap();
                prop_assert!(read.from(End::Left).eq(model.iter().map(Vec::as_slice)));
                prop_assert!(read.from(End::Right).eq(model.iter().rev().map(Vec::as_slice)));
                prop_assert_eq!(read.elements().unwrap().len(), model.len());
            }
        }

        #[test]
        fn damaged_records_are_refused(record in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(read) = Packed::parse(&record) {
                prop_assert!(read.from(End::Left).count() <= record.len());
                prop_assert!(read.from(End::Right).count() <= record.len());
                if let Ok(elements) = read.elements() {
                    prop_assert_eq!(elements.len(), read.count());
                }
            }
        }
    }

    #[test]
    fn several_elements_are_added_one_after_the_other() {
        let record = packed(&[b"m"]);
        let read = Packed::parse(&record).unwrap();
        let with = |end| {
            let mut record = Vec::new();
            read.write_with(&mut record, end, &[b"a", b"b"]);
            record
        };
        assert_eq!(with(End::Left), packed(&[b"b", b"a", b"m"]));
        assert_eq!(with(End::Right), packed(&[b"m", b"a", b"b"]));
    }

    #[test]
    fn long_elements_have_longer_lengths() {
        for length in [0, 127, 128, 16_383, 16_384, 3_000_000] {
            let element = vec![7; length];
            let record = packed(&[&element, b"end"]);
            assert_eq!(record.len(), 2 + packed_bytes(&element) + packed_bytes(b"end"));
            let mut read = Packed::parse(&record).unwrap();
            assert_eq!(read.pop(End::Right), Some(&b"end"[..]));
            assert_eq!(read.pop(End::Right), Some(&element[..]));
            assert_eq!(read, Packed::EMPTY);
        }
    }

    #[test]
    fn a_record_has_about_a_kibibyte_or_a_few_longer_elements() {
        let fits = |count: usize, bytes: usize| {
            let element = vec![0; bytes];
            all_fit(std::iter::repeat_n(&element[..], count))
        };
        assert!(fits(512, 0) && !fits(513, 0));
        assert!(fits(8, 1000) && !fits(9, 1000));
        assert!(fits(1, 100_000) && !fits(2, 5000));
    }
}
