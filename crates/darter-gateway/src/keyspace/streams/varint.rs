//! Numbers of variable length in the records of streams: seven bits in a byte, the lowest ones first;
//! the highest bit of a byte is set if more follow.

/// Most bytes of a number.
const BYTES_MAX: usize = 10;

/// Appends a number.
pub(super) fn put(record: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        record.push(number as u8 | 0x80);
        number >>= 7;
    }
    record.push(number as u8);
}

/// Appends a text after its length.
pub(super) fn put_text(record: &mut Vec<u8>, text: &[u8]) {
    put(record, text.len() as u64);
    record.extend_from_slice(text);
}

/// Takes a number from the beginning of some bytes.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for (at, &byte) in bytes.iter().enumerate().take(BYTES_MAX) {
        let bits = u64::from(byte & 0x7f);
        let shifted = bits << (7 * at);
        if shifted >> (7 * at) != bits {
            return None;
        }
        number |= shifted;
        if byte & 0x80 == 0 {
            *bytes = &bytes[at + 1..];
            return Some(number);
        }
    }
    None
}

/// Takes a text from the beginning of some bytes.
pub(super) fn take_text<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let length = usize::try_from(take(bytes)?).ok()?;
    let (text, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_read_as_they_were_written(number in any::<u64>(), bits in 0_u32..64) {
            let mut record = Vec::new();
            for number in [number, number >> bits, u64::MAX] {
                put(&mut record, number);
            }
            put_text(&mut record, b"text");
            let mut left = &record[..];
            for number in [number, number >> bits, u64::MAX] {
                prop_assert_eq!(take(&mut left), Some(number));
            }
            prop_assert_eq!(take_text(&mut left), Some(&b"text"[..]));
            prop_assert!(left.is_empty());
        }
    }

    #[test]
    fn damaged_numbers_are_refused() {
        for bytes in [&b""[..], b"\x80", &[0x80; 11], &[0xff; 10]] {
            assert_eq!(take(&mut &*bytes), None);
        }
        assert_eq!(take_text(&mut &b"\x05four"[..]), None);
    }
}
