//! Numbers as C's `printf` formats them, and as its conversions truncate them.

/// Formats a number as `%.*g` does with `digits` significant digits.
pub(super) fn general(number: f64, digits: usize) -> String {
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

/// Converts a number to an integer as x86-64 does: numbers out of range become the least integer.
pub(super) fn truncated(number: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if (-END..END).contains(&number) { number as i64 } else { i64::MIN }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn numbers_out_of_range_become_the_least_integer() {
        assert_eq!(
            [3.99, -3.99, 1e30, f64::NAN, -9.3e18].map(truncated),
            [3, -3, i64::MIN, i64::MIN, i64::MIN]
        );
    }
}
