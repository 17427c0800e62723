//! Integers in requests and values, parsed as strictly as Redis does.

/// Parses an integer without a plus sign, spaces or leading zeros. Rejects `-0`.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let (digits, sign) = match text {
        [b'-', digits @ ..] => (digits, -1),
        digits => (digits, 1),
    };
    match digits {
        [b'0'] => (sign > 0).then_some(0),
        [b'1'..=b'9', ..] => digits.iter().try_fold(0_i64, |number, byte| {
            let digit = byte.checked_sub(b'0').filter(|&digit| digit < 10)?;
            number.checked_mul(10)?.checked_add(sign * i64::from(digit))
        }),
        _ => None,
    }
}

/// Converts a count or a time to the integer of a reply.
pub(super) fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::integer;

    #[test]
    fn integers_are_canonical() {
        for number in [0, 1, -1, 10, i64::MAX, i64::MIN] {
            assert_eq!(integer(number.to_string().as_bytes()), Some(number));
        }
        for text in [
            "",
            "-",
            "-0",
            "00",
            "01",
            "+1",
            " 1",
            "1 ",
            "1.0",
            "9223372036854775808",
            "-9223372036854775809",
            "x",
        ] {
            assert_eq!(integer(text.as_bytes()), None, "{text}");
        }
    }
}
