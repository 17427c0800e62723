//! Integers in requests and values, parsed as strictly as Redis does; numbers as C's `printf` formats
//! them.

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

/// Formats a number as `%.*g` does with `digits` significant digits.
pub(crate) fn general(number: f64, digits: usize) -> String {
    if number.is_nan() {
        return if number.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let digits = digits.max(1);
    let written = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let without_zeros = |text: &str| {
        let digits = if text.contains('.') { text.trim_end_matches('0') } else { text };
        digits.trim_end_matches('.').to_owned()
    };
    let fraction = i32::try_from(digits).unwrap_or(i32::MAX) - 1 - exponent;
    if exponent < -4 || fraction < 0 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs());
    }
    without_zeros(&format!("{number:.*}", usize::try_from(fraction).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::{general, integer};

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

    #[test]
    fn numbers_are_formatted_as_c_does() {
        for (number, digits, text) in [
            (0.0, 14, "0"),
            (-0.0, 17, "-0"),
            (3.0, 17, "3"),
            (0.1, 14, "0.1"),
            (0.1, 17, "0.10000000000000001"),
            (1e14, 14, "1e+14"),
            (123_456_789_012_345.0, 14, "1.2345678901234e+14"),
            (1e15, 17, "1000000000000000"),
            (1e-5, 14, "1e-05"),
            (0.0001, 14, "0.0001"),
            (-1.5e300, 14, "-1.5e+300"),
            (999_999.5, 6, "1e+06"),
            (f64::INFINITY, 14, "inf"),
        ] {
            assert_eq!(general(number, digits), text, "{number} {digits}");
        }
    }
}
