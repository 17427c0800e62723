//! The encoding of scores and members as bytes in the same order.
//!
//! ```text
//! member's record (little-endian): score, 8 bytes | stamp, 8 bytes, unless it lies in a head
//! index element (big-endian):      ordered score, 8 bytes | member, 00 as 00 ff | 00 00 | stamp
//! ```
//!
//! A stamp is unique to a write: the second at which it was drawn, and a random part.

use crate::fault::{FOREIGN, Fault};

/// Bytes of a score.
pub(super) const SCORE_BYTES: usize = size_of::<f64>();

/// Distinguishes the index records of different writes.
pub(super) type Stamp = [u8; 8];

/// Draws a stamp at a time in ms since the Unix epoch.
pub(super) fn stamp(now: u64) -> Stamp {
    ((now / 1000) << 32 | darter_fabric::random_word() >> 32).to_be_bytes()
}

/// Returns when a stamp was drawn, in seconds since the Unix epoch.
pub(super) fn drawn_at(stamp: Stamp) -> u64 {
    u64::from_be_bytes(stamp) >> 32
}

/// Maps scores to integers in the same order; both zeros map to one integer.
pub(super) fn order_of(score: f64) -> u64 {
    const SIGN: u64 = 1 << 63;
    let bits = if score == 0.0 { 0 } else { score.to_bits() };
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// Returns the score at the beginning of a member's record.
pub(crate) fn score_of_record(record: &[u8]) -> Option<f64> {
    let score = record.first_chunk().map(|score| f64::from_le_bytes(*score));
    score.filter(|score| !score.is_nan())
}

/// Returns the record of a member in a head. There is one zero, the positive one, as in Redis's small
/// sorted sets.
pub(crate) fn record_of_score(score: f64) -> [u8; SCORE_BYTES] {
    (score + 0.0).to_le_bytes()
}

/// A parsed record of a member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scored {
    pub(super) score: f64,
    pub(super) stamp: Stamp,
}

impl Scored {
    /// Parses a record.
    pub(super) fn parse(record: &[u8]) -> Result<Self, Fault> {
        let score = score_of_record(record).ok_or(FOREIGN)?;
        let stamp = record[SCORE_BYTES..].try_into().map_err(|_| FOREIGN)?;
        Ok(Self { score, stamp })
    }

    /// Returns the record.
    pub(super) fn record(self) -> [u8; 16] {
        let mut record = [0; 16];
        record[..8].copy_from_slice(&self.score.to_bits().to_le_bytes());
        record[8..].copy_from_slice(&self.stamp);
        record
    }

    /// Builds the index element for a member with this record.
    pub(super) fn index(self, member: &[u8]) -> Vec<u8> {
        let mut element = Vec::with_capacity(8 + member.len() + 2 + 8);
        element.extend_from_slice(&order_of(self.score).to_be_bytes());
        for &byte in member {
            element.push(byte);
            if byte == 0 {
                element.push(0xff);
            }
        }
        element.extend_from_slice(&[0, 0]);
        element.extend_from_slice(&self.stamp);
        element
    }
}

/// Parses an index element into the member and its stamp; `None` if it is not valid.
pub(super) fn parse_index(element: &[u8]) -> Option<(Vec<u8>, Stamp)> {
    let (rest, stamp) = element.get(8..)?.split_last_chunk()?;
    let escaped = rest.strip_suffix(&[0, 0])?;
    let mut member = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.iter();
    while let Some(&byte) = bytes.next() {
        member.push(byte);
        if byte == 0 && bytes.next() != Some(&0xff) {
            return None;
        }
    }
    Some((member, *stamp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_lie_in_the_order_of_scores_and_members() {
        let scores = [
            f64::NEG_INFINITY,
            f64::MIN,
            -1.5,
            -1.0,
            -f64::MIN_POSITIVE,
            -5e-324,
            0.0,
            5e-324,
            1.0,
            1.5,
            1e300,
            f64::INFINITY,
        ];
        assert!(scores.windows(2).all(|pair| order_of(pair[0]) < order_of(pair[1])));
        assert_eq!(order_of(-0.0), order_of(0.0));
        let members =
            [&b""[..], b"\0", b"\0\0", b"\0\x01", b"\0\xff", b"\x01", b"a", b"a\0", b"a\0b", b"ab", b"\xff"];
        let mut elements = Vec::new();
        for score in scores {
            for member in members {
                let scored = Scored { score, stamp: stamp(darter_fabric::random_word() >> 20) };
                assert_eq!(Scored::parse(&scored.record()).unwrap(), scored);
                let element = scored.index(member);
                assert_eq!(parse_index(&element), Some((member.to_vec(), scored.stamp)));
                elements.push(element);
            }
        }
        assert!(elements.is_sorted());
        assert_eq!(drawn_at(stamp(1_700_000_000_999)), 1_700_000_000);
        // Two clients that write the same score produce different index elements.
        let [one, other] = [(); 2].map(|()| Scored { score: 1.0, stamp: stamp(7000) }.index(b"member"));
        assert_ne!(one, other);
    }

    #[test]
    fn bytes_that_are_not_a_record_are_refused() {
        for element in [
            &b""[..],
            b"12345678",
            b"12345678\0\x01\0\0stampsta",
            b"12345678\0\0stampst",
            b"12345678a\0stampsta",
        ] {
            assert_eq!(parse_index(element), None, "{}", element.escape_ascii());
        }
        let nan = [&f64::NAN.to_bits().to_le_bytes()[..], b"stampsta"].concat();
        for record in [&b""[..], b"12345678", b"12345678stampst", &nan] {
            assert!(Scored::parse(record).is_err(), "{}", record.escape_ascii());
        }
    }
}
