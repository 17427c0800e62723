//! Scores of sorted sets as text: parsed as C's `strtod` does, and formatted as `%.17g` does.

use super::hexadecimal::Hexadecimal;
use super::number::general;
use std::ops::Bound;

/// Splits a sign off.
fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] | rest => (false, rest),
    }
}

/// Returns whether a number's text has a digit other than 0 before its exponent.
fn has_weight(text: &[u8]) -> bool {
    let text = split_sign(text).1;
    let (text, exponent) = if Hexadecimal::is_begun_by(text) { (&text[2..], b'p') } else { (text, b'e') };
    let mut digits = text.iter().take_while(|byte| !byte.eq_ignore_ascii_case(&exponent));
    digits.any(|byte| byte.is_ascii_hexdigit() && *byte != b'0')
}

/// Parses a number, which may be infinite.
fn read(text: &[u8]) -> Option<f64> {
    let (is_negative, digits) = split_sign(text);
    if Hexadecimal::is_begun_by(digits) {
        let number = Hexadecimal::parse(digits)?.to_f64();
        return Some(if is_negative { -number } else { number });
    }
    std::str::from_utf8(text).ok()?.parse().ok().filter(|number: &f64| !number.is_nan())
}

/// Parses a score. Rejects a finite number that overflows to infinity or underflows to zero.
pub(super) fn parse(text: &[u8]) -> Option<f64> {
    let score = read(text)?;
    let is_word = split_sign(text).1.first().is_some_and(u8::is_ascii_alphabetic);
    let is_out_of_range = score.is_infinite() && !is_word || score == 0.0 && has_weight(text);
    (!is_out_of_range).then_some(score)
}

/// Parses an end of a range of scores. `(` excludes it, leading spaces are allowed, and numbers out
/// of range become infinity or zero.
pub(super) fn bound(text: &[u8]) -> Option<Bound<f64>> {
    let (is_exclusive, text) = match text {
        [b'(', rest @ ..] => (true, rest),
        text => (false, text),
    };
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    let text = text[..end].trim_ascii_start();
    let score = if end == 0 { 0.0 } else { read(text)? };
    Some(if is_exclusive { Bound::Excluded(score) } else { Bound::Included(score) })
}

/// Formats a score as `%.17g` does.
pub(super) fn text(score: f64) -> String {
    general(score, 17)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_written_as_c_does() {
        for (score, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-17.0, "-17"),
            (0.1, "0.10000000000000001"),
            (3.5, "3.5"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (123_456_789_012_345_680_000.0, "1.2345678901234568e+20"),
            (0.0001, "0.0001"),
            (0.000_012_5, "1.2500000000000001e-05"),
            (5e-324, "4.9406564584124654e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(text(score), expected);
        }
    }

    #[test]
    fn scores_are_read_as_c_does() {
        for (said, expected) in [
            ("1", 1.0),
            ("+1.5", 1.5),
            ("-.5", -0.5),
            ("5.", 5.0),
            ("1e3", 1000.0),
            ("0e9", 0.0),
            ("5e-324", 5e-324),
            ("0x1p4", 16.0),
            ("-0x.8", -0.5),
            ("0x0p9", 0.0),
        ] {
            assert_eq!(parse(said.as_bytes()), Some(expected), "{said}");
        }
        for said in ["inf", "+inf", "-Infinity", "INF"] {
            assert!(parse(said.as_bytes()).unwrap().is_infinite(), "{said}");
        }
        for said in [
            "nan",
            "-nan",
            "x",
            " 1",
            "1 ",
            "1e400",
            "-1e400",
            "1e-400",
            "1_0",
            "1e",
            "--1",
            "(1",
            "0x",
            "0x1p1024",
            "0x1p-1080",
        ] {
            assert_eq!(parse(said.as_bytes()), None, "{said}");
        }
        assert_eq!(bound(b"(1.5"), Some(Bound::Excluded(1.5)));
        assert_eq!(bound(b" 1"), Some(Bound::Included(1.0)));
        assert_eq!(bound(b""), Some(Bound::Included(0.0)));
        assert_eq!(bound(b"1e400"), Some(Bound::Included(f64::INFINITY)));
        assert_eq!(bound(b"(0x10"), Some(Bound::Excluded(16.0)));
        assert_eq!(bound(b"0x1p-1080"), Some(Bound::Included(0.0)));
        assert_eq!(bound(b"nan"), None);
    }
}
