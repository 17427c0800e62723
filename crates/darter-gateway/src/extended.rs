//! Decimal numbers in the precision of `INCRBYFLOAT`: 64 bits of mantissa, as `long double` has on
//! x86.
//!
//! Arithmetic is exact on big integers and rounds once, half to even.

use super::hexadecimal::Hexadecimal;
use num_bigint::{BigInt, BigUint, Sign};

/// Maximum bytes of a number's text.
const TEXT_BYTES_MAX: usize = 5119;
/// Bits of a mantissa.
const BITS: u64 = 64;
/// The largest exponent of two.
const POWER_MAX: i64 = 16_383 - 63;
/// The smallest exponent of two at full precision; smaller numbers are rounded as if it did not
/// exist.
const POWER_MIN: i64 = -16_445;
/// Digits after the decimal point.
const DECIMALS: u32 = 17;

/// A number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Extended {
    /// `mantissa * 2^power`, the mantissa of at most 64 bits.
    Finite {
        /// The value with its sign.
        mantissa: BigInt,
        /// The power of two.
        power: i64,
    },
    /// Infinity, with either sign.
    Infinite,
}

impl Extended {
    /// Parses a number as C does: sign, digits, point, exponent.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (sign, text) = match text {
            [b'-', rest @ ..] => (Sign::Minus, rest),
            [b'+', rest @ ..] | rest => (Sign::Plus, rest),
        };
        if text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity") {
            return Some(Self::Infinite);
        }
        if Hexadecimal::is_begun_by(text) {
            let Hexadecimal { mantissa, power } = Hexadecimal::parse(text)?;
            return Self::rounded(sign, &mantissa, false, power).in_range(mantissa == BigUint::ZERO);
        }
        let e = text.iter().position(|byte| byte.eq_ignore_ascii_case(&b'e'));
        let (number, exponent) = match e {
            Some(at) => (&text[..at], exponent(&text[at + 1..])?),
            None => (text, 0),
        };
        let point = number.iter().position(|&byte| byte == b'.');
        let (whole, fraction) = point.map_or((number, &b""[..]), |at| (&number[..at], &number[at + 1..]));
        let digits = [whole, fraction].concat();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let digits = BigUint::parse_bytes(&digits, 10)?;
        let exponent = exponent.saturating_sub(super::number::signed(fraction.len()));
        if digits == BigUint::ZERO {
            return Some(Self::exactly(BigInt::ZERO, 0));
        }
        // With this many digits before the point or zeros after it, the result is infinite or zero.
        if !(-10_000..=5_000).contains(&exponent) {
            return None;
        }
        let power_of_ten = BigUint::from(10_u8).pow(exponent.unsigned_abs() as u32);
        let number = if exponent >= 0 {
            Self::rounded(sign, &(digits * power_of_ten), false, 0)
        } else {
            let shift = (BITS + 2 + power_of_ten.bits()).saturating_sub(digits.bits());
            let shifted = digits << shift;
            let quotient = &shifted / &power_of_ten;
            let is_inexact = &quotient * &power_of_ten != shifted;
            Self::rounded(sign, &quotient, is_inexact, -shift.cast_signed())
        };
        number.in_range(false)
    }

    /// Returns whether the number is zero; a number whose text is `0` may be smaller than all digits.
    pub(super) fn is_zero(&self) -> bool {
        matches!(self, Self::Finite { mantissa, .. } if *mantissa == BigInt::ZERO)
    }

    /// Returns the number, unless it is too large or too small.
    fn in_range(self, is_zero: bool) -> Option<Self> {
        match &self {
            Self::Finite { .. } if is_zero => Some(Self::exactly(BigInt::ZERO, 0)),
            Self::Finite { power, mantissa }
                if power + mantissa.bits().cast_signed() > POWER_MIN && *mantissa != BigInt::ZERO =>
            {
                Some(self)
            }
            _ => None,
        }
    }

    fn exactly(mantissa: BigInt, power: i64) -> Self {
        Self::Finite { mantissa, power }
    }

    /// Rounds a number to the nearest representable one; `is_inexact` means that the exact value is
    /// slightly larger.
    fn rounded(sign: Sign, number: &BigUint, is_inexact: bool, power: i64) -> Self {
        let excess = number.bits().saturating_sub(BITS);
        let mut mantissa = number >> excess;
        if excess > 0 {
            let half = BigUint::from(1_u8) << (excess - 1);
            let rest = number - (&mantissa << excess);
            let is_up = rest > half || rest == half && (is_inexact || mantissa.bit(0));
            mantissa += u8::from(is_up);
        }
        let power = power + excess.cast_signed();
        if power + mantissa.bits().saturating_sub(BITS).cast_signed() > POWER_MAX {
            return Self::Infinite;
        }
        Self::exactly(BigInt::from_biguint(sign, mantissa), power)
    }

    /// Returns the sum, unless it is not a number.
    pub(super) fn plus(&self, other: &Self) -> Option<Self> {
        let (Self::Finite { mantissa: a, power: p }, Self::Finite { mantissa: b, power: q }) = (self, other)
        else {
            return None;
        };
        let least = *p.min(q);
        let sum = (a << (p - least) as u64) + (b << (q - least) as u64);
        match Self::rounded(sum.sign(), sum.magnitude(), false, least) {
            Self::Infinite => None,
            sum @ Self::Finite { .. } => Some(sum),
        }
    }

    /// Formats the number in decimal, rounded to 17 digits after the point, without trailing zeros.
    pub(super) fn text(&self) -> String {
        let Self::Finite { mantissa, power } = self else { return "inf".to_owned() };
        let scaled = mantissa.magnitude() * BigUint::from(10_u8).pow(DECIMALS);
        let scaled = if *power >= 0 {
            scaled << *power as u64
        } else {
            let shift = power.unsigned_abs();
            let mut whole = &scaled >> shift;
            let rest = scaled - (&whole << shift);
            let half = BigUint::from(1_u8) << (shift - 1);
            let is_up = rest > half || rest == half && whole.bit(0);
            whole += u8::from(is_up);
            whole
        };
        let digits = format!("{scaled:0>width$}", width = DECIMALS as usize + 1);
        let (whole, fraction) = digits.split_at(digits.len() - DECIMALS as usize);
        let fraction = fraction.trim_end_matches('0');
        let sign = if mantissa.sign() == Sign::Minus && scaled != BigUint::ZERO { "-" } else { "" };
        let point = if fraction.is_empty() { "" } else { "." };
        format!("{sign}{whole}{point}{fraction}")
    }
}

fn exponent(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // An exponent that does not fit also means infinity or zero.
    let size = std::str::from_utf8(digits).ok()?.parse().unwrap_or(i64::from(i32::MAX));
    Some(if text[0] == b'-' { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(a: &str, b: &str) -> String {
        let number = |text: &str| Extended::parse(text.as_bytes()).unwrap();
        number(a).plus(&number(b)).map_or("none".to_owned(), |sum| sum.text())
    }

    #[test]
    fn sums_are_those_of_a_long_double() {
        assert_eq!(sum("10.50", "0.1"), "10.6");
        assert_eq!(sum("5.0e3", "2.0e2"), "5200");
        assert_eq!(sum("3.0", "1.1"), "4.1");
        assert_eq!(sum("0.1", "0.2"), "0.3");
        assert_eq!(sum("1", "-1"), "0");
        assert_eq!(sum("-0", "-0.0"), "0");
        assert_eq!(sum("1e18", "0.1"), "1000000000000000000.125");
        assert_eq!(sum("-.5", "+.25"), "-0.25");
        assert_eq!(sum("1e4932", "1e4932"), "none");
        assert_eq!(sum("1e-30", "0"), "0");
        assert_eq!(sum("18446744073709551615", "1"), "18446744073709551616");
        assert_eq!(sum("0x1.8p1", "-0x.8"), "2.5");
        assert_eq!(sum("0x0", "0xff"), "255");
    }

    #[test]
    fn text_that_is_not_a_number_is_refused() {
        for text in [
            "",
            "-",
            ".",
            "0x",
            "0x1p20000",
            "0x1p-20000",
            "e5",
            "1e",
            "1e+",
            "1.2.3",
            " 1",
            "1 ",
            "nan",
            "abc",
            "1e5000",
            "1e-9000",
            "--1",
        ] {
            assert!(Extended::parse(text.as_bytes()).is_none(), "{text}");
        }
        assert!(Extended::parse(&[b'1'; TEXT_BYTES_MAX + 1]).is_none());
        let [zero, least] = [&b"-0.0e9"[..], b"5e-324"].map(|text| Extended::parse(text).unwrap().is_zero());
        assert!(zero && !least);
        assert_eq!(Extended::parse(b"-inf"), Some(Extended::Infinite));
        assert!(Extended::parse(b"1e99999999999999999999").is_none());
    }
}
