//! An entry of a translation table: the leaf at a position of the sorted order (section 5.1).
//!
//! ```text
//! word    valid 1 | leaf number 31 | incarnation 24 | count 8
//! ```

const COUNT_BITS: u32 = 8;
const INCARNATION_BITS: u32 = 24;
const NUMBER_BITS: u32 = 31;
const NUMBER_SHIFT: u32 = COUNT_BITS + INCARNATION_BITS;
const VALID: u64 = 1 << 63;

const _: () = assert!(NUMBER_SHIFT + NUMBER_BITS == 63);

/// An entry. Any word is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry(u64);

impl Entry {
    /// Bytes of an entry.
    pub(crate) const BYTES: u64 = 8;
    /// Leaf numbers are below this.
    pub(crate) const NUMBERS: u32 = 1 << NUMBER_BITS;

    /// Creates an entry of a leaf from the low 31 bits of `number` and the low 24 bits of
    /// `incarnation`.
    pub(crate) fn new(number: u32, incarnation: u32, count: u8) -> Self {
        let incarnation = u64::from(incarnation) & ((1 << INCARNATION_BITS) - 1);
        let number = u64::from(number) & ((1 << NUMBER_BITS) - 1);
        Self(VALID | number << NUMBER_SHIFT | incarnation << COUNT_BITS | u64::from(count))
    }

    pub(crate) fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(crate) fn word(self) -> u64 {
        self.0
    }

    /// Returns whether the entry leads to a leaf.
    pub(crate) fn is_valid(self) -> bool {
        self.0 & VALID != 0
    }

    /// Returns the leaf's offset in its node's memory, in units of 64 bytes.
    pub(crate) fn number(self) -> u32 {
        (self.0 >> NUMBER_SHIFT) as u32 & (Self::NUMBERS - 1)
    }

    /// Returns the incarnation that the leaf had.
    pub(crate) fn incarnation(self) -> u32 {
        (self.0 >> COUNT_BITS) as u32 & ((1 << INCARNATION_BITS) - 1)
    }

    /// Returns the number of keys that the leaf had.
    #[cfg(test)]
    pub(crate) fn count(self) -> u8 {
        self.0 as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_come_back(number in 0..Entry::NUMBERS, incarnation in 0_u32..1 << 24, count: u8) {
            let entry = Entry::from_word(Entry::new(number, incarnation, count).word());
            prop_assert!(entry.is_valid());
            let parts = (entry.number(), entry.incarnation(), entry.count());
            prop_assert_eq!(parts, (number, incarnation, count));
        }

        #[test]
        fn any_word_is_an_entry(word: u64) {
            let entry = Entry::from_word(word);
            let same = Entry::new(entry.number(), entry.incarnation(), entry.count());
            prop_assert_eq!(same.word() & !VALID, word & !VALID);
            prop_assert_eq!(entry.is_valid(), entry == same);
        }
    }
}
