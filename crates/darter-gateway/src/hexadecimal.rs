//! Hexadecimal numbers with a fraction and an exponent of two, as C's `strtod` and `strtold` parse
//! them: `0x1.8p3` is 12.

use num_bigint::BigUint;

/// The largest exponent that is distinguished; beyond it every number is infinite or zero.
const EXPONENT_MAX: i64 = 1 << 20;

/// A number without its sign: `mantissa * 2^power`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hexadecimal {
    pub(super) mantissa: BigUint,
    pub(super) power: i64,
}

impl Hexadecimal {
    /// Returns whether a text without its sign begins like a hexadecimal number.
    pub(super) fn is_begun_by(text: &[u8]) -> bool {
        matches!(text, [b'0', b'x' | b'X', ..])
    }

    /// Parses the whole text, without a sign.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let [b'0', b'x' | b'X', text @ ..] = text else { return None };
        let p = text.iter().position(|byte| byte.eq_ignore_ascii_case(&b'p'));
        let (number, exponent) = match p {
            Some(at) => (&text[..at], exponent(&text[at + 1..])?),
            None => (text, 0),
        };
        let point = number.iter().position(|&byte| byte == b'.');
        let (whole, fraction) = point.map_or((number, &b""[..]), |at| (&number[..at], &number[at + 1..]));
        let digits = [whole, fraction].concat();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let mantissa = BigUint::parse_bytes(&digits, 16)?;
        Some(Self { mantissa, power: exponent - 4 * super::number::signed(fraction.len()) })
    }

    /// Returns the nearest `f64`, or the even one of two nearest; infinity or zero if the number is
    /// out of range.
    pub(super) fn to_f64(&self) -> f64 {
        const BITS: i64 = 53;
        const POWER_MIN: i64 = -1074;
        let bits = self.mantissa.bits().cast_signed();
        if bits == 0 {
            return 0.0;
        }
        if self.power + bits > 1024 {
            return f64::INFINITY;
        }
        // The power of the last bit kept.
        let power = (self.power + bits - BITS).max(POWER_MIN);
        let dropped = power - self.power;
        let kept = match u64::try_from(dropped) {
            Err(_) => &self.mantissa << dropped.unsigned_abs(),
            Ok(0) => self.mantissa.clone(),
            Ok(dropped) => {
                let kept = &self.mantissa >> dropped;
                let rest = &self.mantissa - (&kept << dropped);
                let half = BigUint::from(1_u8) << (dropped - 1);
                let is_up = rest > half || rest == half && kept.bit(0);
                kept + u8::from(is_up)
            }
        };
        // At most 53 bits, or a power of two, so every step is exact unless it overflows.
        let kept = kept.iter_u64_digits().next().unwrap_or(0) as f64;
        let half = power / 2;
        kept * 2_f64.powi(half as i32) * 2_f64.powi((power - half) as i32)
    }
}

fn exponent(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let size = std::str::from_utf8(digits).ok()?.parse().unwrap_or(EXPONENT_MAX).min(EXPONENT_MAX);
    Some(if text[0] == b'-' { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::Hexadecimal;

    #[test]
    fn numbers_are_those_of_strtod() {
        for (text, expected) in [
            ("0x0", 0.0),
            ("0xff", 255.0),
            ("0X1.8P3", 12.0),
            ("0x.8", 0.5),
            ("0x8.", 8.0),
            ("0x1p-1074", 5e-324),
            ("0x1p-1075", 0.0),
            ("0x1.8p-1075", 5e-324),
            ("0x1.fffffffffffffp1023", f64::MAX),
            ("0x1.fffffffffffff8p1023", f64::INFINITY),
            ("0x1p1024", f64::INFINITY),
            ("0x1p99999999999999999999", f64::INFINITY),
            ("0x1p-99999999999999999999", 0.0),
            // Half up, half to even, half down.
            ("0x1.00000000000018p0", 1.0 + 2.0 * f64::EPSILON),
            ("0x1.00000000000008p0", 1.0),
            ("0x1.000000000000081p0", 1.0 + f64::EPSILON),
            ("0x123456789abcdef", 81_985_529_216_486_895.0),
        ] {
            let number = Hexadecimal::parse(text.as_bytes()).unwrap().to_f64();
            assert!(number.total_cmp(&expected).is_eq(), "{text}: {number} {expected}");
        }
        for text in ["", "0", "x1", "0x", "0x.", "0xp1", "0x1p", "0x1p+", "0x1.1.1", "0xg", "-0x1", "0x1p1.5"]
        {
            assert_eq!(Hexadecimal::parse(text.as_bytes()), None, "{text}");
        }
    }
}
