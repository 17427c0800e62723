//! Records: the value slots of an inline leaf.
//!
//! ```text
//! word 0    key (its 8 bytes as a big-endian number)
//! word 1    version 24 | length 8 | check 32
//! words 2.. value bytes, then zeros
//! ```
//!
//! *Version*: the incarnation of the leaf when the pair was placed in this slot. *Check*: a hash of
//! all other words. A record whose check does not match was read during a write, or its writer
//! died.

/// Words before the value.
pub(crate) const RECORD_HEAD: usize = 2;

/// Incarnations, and so versions, wrap at this number.
pub(crate) const INCARNATIONS: u32 = 1 << 24;

/// A whole record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: u64,
    pub(crate) version: u32,
    pub(crate) value: Vec<u8>,
}

impl Record {
    /// Returns the words of a slot with room for this many words of value.
    pub(crate) fn words(&self, value_words: usize) -> Vec<u64> {
        let mut words = vec![0; RECORD_HEAD + value_words];
        words[0] = self.key;
        words[1] = u64::from(self.version) << 40 | (self.value.len() as u64) << 32;
        for (word, bytes) in words[RECORD_HEAD..].iter_mut().zip(self.value.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(whole);
        }
        words[1] |= check(&words);
        words
    }

    /// Reads a slot; `None` if its words are inconsistent.
    pub(crate) fn parse(words: &[u64]) -> Option<Self> {
        let [key, meta, value @ ..] = words else { return None };
        let length = (meta >> 32 & 0xff) as usize;
        if length > value.len() * 8 || check(words) != meta & u64::from(u32::MAX) {
            return None;
        }
        let mut bytes: Vec<u8> = value.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(length);
        Some(Self { key: *key, version: (meta >> 40) as u32, value: bytes })
    }

    /// Returns whether the pair was placed in its slot no later than in this incarnation of the
    /// leaf, if they differ by less than half the range of incarnations.
    pub(crate) fn is_not_newer_than(&self, incarnation: u32) -> bool {
        incarnation.wrapping_sub(self.version) % INCARNATIONS < INCARNATIONS / 2
    }
}

/// Returns the check of a record's words, regardless of the stored one.
fn check(words: &[u64]) -> u64 {
    let mut sum = 0x9e37_79b9_7f4a_7c15_u64;
    for (at, &word) in words.iter().enumerate() {
        let word = if at == 1 { word >> 32 } else { word };
        sum = (sum.rotate_left(23) ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        sum ^= sum >> 29;
    }
    (sum.wrapping_mul(0xc4ce_b9fe_1a85_ec53)) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_torn_ones_are_none() {
        for length in 0..=24 {
            let old = Record { key: 7, version: 3, value: vec![1; length] };
            let new = Record { key: 7, version: 3, value: vec![2; length] };
            let (before, after) = (old.words(3), new.words(3));
            assert_eq!(Record::parse(&before).unwrap(), old);
            for cut in 1..before.len() {
                let torn = [&after[..cut], &before[cut..]].concat();
                let expected = [&before, &after].into_iter().find(|whole| **whole == torn);
                assert_eq!(
                    Record::parse(&torn).map(|record| record.words(3)),
                    expected.cloned(),
                    "{length} {cut}"
                );
            }
        }
        assert_eq!(Record::parse(&[]), None);
        assert_eq!(Record::parse(&[1]), None);
        assert_eq!(Record::parse(&[1, u64::MAX]), None);
    }

    #[test]
    fn versions_are_compared_in_a_window() {
        let placed = |version| Record { key: 0, version, value: Vec::new() };
        assert!(placed(4).is_not_newer_than(4) && placed(4).is_not_newer_than(6));
        assert!(!placed(6).is_not_newer_than(4));
        assert!(placed(INCARNATIONS - 2).is_not_newer_than(2));
    }
}
