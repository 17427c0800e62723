//! Decompression of LZF, which Redis uses for long strings.
//!
//! ```text
//! 000nnnnn                    n + 1 bytes follow
//! nnnddddd dddddddd           copy n + 2 bytes from d + 1 bytes back, if n is less than 7
//! 111ddddd nnnnnnnn dddddddd  copy n + 9 bytes from d + 1 bytes back
//! ```

/// The length of the longest copy, and so more than any byte of input makes on average.
const GROWTH_MAX: usize = 264;

/// Returns decompressed bytes, if there are exactly `length`.
pub(super) fn decompressed(mut input: &[u8], length: usize) -> Option<Vec<u8>> {
    // No memory is taken for more bytes than the input can make.
    if length > input.len().saturating_mul(GROWTH_MAX) {
        return None;
    }
    let mut output = Vec::with_capacity(length);
    while let Some((&control, rest)) = input.split_first() {
        input = rest;
        let short = usize::from(control >> 5);
        if short == 0 {
            let (bytes, rest) = input.split_at_checked(usize::from(control) + 1)?;
            input = rest;
            output.extend_from_slice(bytes);
        } else {
            let mut count = short + 2;
            if short == 7 {
                let (&more, rest) = input.split_first()?;
                (count, input) = (count + usize::from(more), rest);
            }
            let (&low, rest) = input.split_first()?;
            input = rest;
            let back = (usize::from(control & 0x1f) << 8 | usize::from(low)) + 1;
            let from = output.len().checked_sub(back)?;
            if output.len() + count > length {
                return None;
            }
            // The copied part may overlap itself.
            for at in from..from + count {
                output.push(output[at]);
            }
        }
        if output.len() > length {
            return None;
        }
    }
    (output.len() == length).then_some(output)
}

#[cfg(test)]
mod tests {
    use super::decompressed;
    use proptest::prelude::*;

    #[test]
    fn copies_may_overlap() {
        assert_eq!(decompressed(b"\x01ab", 2).unwrap(), b"ab");
        assert_eq!(decompressed(b"\x01ab\x20\x01", 5).unwrap(), b"ababa");
        assert_eq!(decompressed(b"\0a\xe0\xff\0", 265).unwrap(), vec![b'a'; 265]);
    }

    #[test]
    fn damaged_input_is_refused() {
        for (input, length) in [
            (&b""[..], 1),
            (b"\x01a", 2),
            (b"\0a\x20\x01", 4),
            (b"\0a\x20", 4),
            (b"\0a\xe0", 4),
            (b"\0a\xe0\xff\0", 264),
            (b"\0a", usize::MAX),
            (b"\x01ab", 1),
        ] {
            assert_eq!(decompressed(input, length), None, "{}", input.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn any_input_has_the_length_or_is_refused(input in proptest::collection::vec(any::<u8>(), 0..60), length in 0_usize..3000) {
            if let Some(output) = decompressed(&input, length) {
                prop_assert_eq!(output.len(), length);
            }
        }
    }
}
