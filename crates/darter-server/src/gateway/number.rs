//! Numbers in requests and values, read as strictly as Redis does.

/// A number without sign, space or zero that it could do without; `-0` is none.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [b'0'] => (digits.len() == text.len()).then_some(0),
        [b'1'..=b'9', ..] if text.len() <= 20 && digits.iter().all(u8::is_ascii_digit) => {
            std::str::from_utf8(text).ok()?.parse().ok()
        }
        _ => None,
    }
}

/// A count or a time as an integer of a reply.
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
