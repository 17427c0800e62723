//! Sizes in bytes with suffixes: `4096`, `64K`, `1G`, `512MiB`. Suffixes are powers of 1024.

use std::fmt;
use std::str::FromStr;

/// A number of bytes that reads and prints with a binary suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteSize(pub u64);

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a size ({what}); write bytes, or a number with K, M, G or T, as in `512M` or `4GiB`"
)]
pub struct SizeError {
    text: String,
    what: &'static str,
}

/// Suffix letters and their powers of two, largest first.
const SUFFIXES: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

impl FromStr for ByteSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let error = |what| SizeError { text: text.to_owned(), what };
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, suffix) = text.split_at(digits);
        if number.is_empty() {
            return Err(error("it does not begin with a digit"));
        }
        let number: u64 = number.parse().map_err(|_| error("the number is too large"))?;
        let suffix = suffix.to_ascii_uppercase();
        let letter = suffix.strip_suffix("IB").or_else(|| suffix.strip_suffix('B')).unwrap_or(&suffix);
        let shift = match (letter, suffix.as_str()) {
            ("", "" | "B") => 0,
            (letter, _) => SUFFIXES
                .iter()
                .find(|(name, _)| letter.len() == 1 && letter.starts_with(*name))
                .map(|(_, shift)| *shift)
                .ok_or_else(|| error("unknown suffix"))?,
        };
        number.checked_mul(1 << shift).map(Self).ok_or_else(|| error("the number is too large"))
    }
}

impl fmt::Display for ByteSize {
    /// Writes the exact size: the largest suffix that leaves no fraction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |shift: u32| self.0 != 0 && self.0.trailing_zeros() >= shift;
        match SUFFIXES.iter().find(|(_, shift)| exact(*shift)) {
            Some((name, shift)) => write!(f, "{}{name}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_and_print() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("17B", 17),
            ("64K", 64 << 10),
            ("64k", 64 << 10),
            ("3MB", 3 << 20),
            ("2GiB", 2 << 30),
            ("1T", 1 << 40),
            ("18446744073709551615", u64::MAX),
        ] {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!(size.0, bytes, "{text}");
            assert_eq!(size.to_string().parse::<ByteSize>().unwrap(), size);
        }
        assert_eq!(ByteSize(1536 << 20).to_string(), "1536M");
    }

    #[test]
    fn nonsense_is_refused_with_a_hint() {
        for text in
            ["", "G", "-1", "1.5G", "1X", "1iB", "1KK", "1é", "18446744073709551616", "99999999999T", " 1"]
        {
            let error = text.parse::<ByteSize>().unwrap_err().to_string();
            assert!(error.contains("512M"), "{error}");
        }
    }
}
