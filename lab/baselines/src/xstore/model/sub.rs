//! A sub-model: the position of a key in the sorted order of its leaves (section 5.1).
//!
//! ```text
//! word 0    slope f32 | intercept f32                     slot = slope * (key - base) + intercept
//! word 1    table 32 | min error 8 | max error 8 | check 16
//! ```
//!
//! Only the pool needs the check, because a READ can tear the two words. The other 14 bytes are the
//! model. Slot s of the sorted order is slot s % 16 of leaf s / 16 of the model's table. A key is
//! between the predicted slot less `min error` and the predicted slot plus `max error`, in slots.

use crate::sherman::format::mix;
use std::ops::RangeInclusive;

/// Slots of a leaf.
pub(crate) const LEAF_SLOTS: u64 = 16;
/// Maximum number of leaves that a client reads for a key. If more are predicted, it calls the
/// server.
pub(crate) const PREDICTED_MAX: u32 = 10;
/// Entries of the smallest table.
const TABLE_ENTRIES_MIN: u32 = 8;
/// Alignment of tables, in bytes.
const TABLE_ALIGN: u64 = 64;

/// The address of a table and its size in entries: 8, 16, 32 …
///
/// With a size of 8 << c entries at offset 64 n it is (2 n + 1) << c. So a table of up to 32
/// entries, as for 200 keys, can be in the first 32 GiB of a node, and one of 8 in the first 128
/// GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableRef(u32);

impl TableRef {
    /// Returns the size of a table for `entries` entries. `None` if there are too many.
    pub(crate) fn room(entries: usize) -> Option<u32> {
        u32::try_from(entries).ok()?.max(TABLE_ENTRIES_MIN).checked_next_power_of_two()
    }

    /// Creates a reference to a table at an offset of a node's memory, with a size that
    /// [`Self::room`] has returned. `None` if the offset is not a multiple of 64 or too large for
    /// the size.
    pub(crate) fn new(offset: u64, room: u32) -> Option<Self> {
        if !offset.is_multiple_of(TABLE_ALIGN) || !room.is_power_of_two() || room < TABLE_ENTRIES_MIN {
            return None;
        }
        let class = (room / TABLE_ENTRIES_MIN).trailing_zeros();
        let word = (u128::from(offset / TABLE_ALIGN) * 2 + 1) << class;
        u32::try_from(word).ok().map(Self)
    }

    /// Decodes a reference. Returns `None` if it leads to no table.
    fn from_bits(bits: u32) -> Option<Self> {
        let is_table = bits != 0 && bits.trailing_zeros() + TABLE_ENTRIES_MIN.trailing_zeros() < u32::BITS;
        is_table.then_some(Self(bits))
    }

    /// Returns the offset of the table's first entry in its node's memory, in bytes.
    pub(crate) fn offset(self) -> u64 {
        u64::from(self.0) >> (self.0.trailing_zeros() + 1) << TABLE_ALIGN.trailing_zeros()
    }

    /// Returns the number of entries, in which the entry of the last leaf is repeated up to the
    /// end.
    pub(crate) fn entries(self) -> u32 {
        TABLE_ENTRIES_MIN << self.0.trailing_zeros()
    }
}

/// A sub-model.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, packed(2))]
pub(crate) struct SubModel {
    slope: f32,
    intercept: f32,
    /// A [`TableRef`]; zero in a model that predicts nothing.
    table: u32,
    min_error: u8,
    max_error: u8,
}

const _: () = assert!(size_of::<SubModel>() as u64 == SubModel::BYTES);

impl SubModel {
    /// Bytes of a sub-model.
    pub(crate) const BYTES: u64 = 14;
    /// Words of a sub-model in the pool.
    pub(crate) const WORDS: usize = 2;
    /// The sub-model that predicts nothing.
    pub(crate) const NONE: Self = Self { slope: 0.0, intercept: 0.0, table: 0, min_error: 0, max_error: 0 };

    /// Creates a model of a line; its table is set later ([`Self::with_table`]).
    pub(super) fn new((slope, intercept): (f64, f64)) -> Self {
        Self { slope: slope as f32, intercept: intercept as f32, ..Self::NONE }
    }

    /// Returns the model with errors. `None` if one does not fit in a byte.
    pub(super) fn with_errors(self, min: u64, max: u64) -> Option<Self> {
        let (min_error, max_error) = (u8::try_from(min).ok()?, u8::try_from(max).ok()?);
        Some(Self { min_error, max_error, ..self })
    }

    /// Returns the model with a table.
    pub(crate) fn with_table(self, table: TableRef) -> Self {
        Self { table: table.0, ..self }
    }

    /// Returns its table. `None` if it predicts nothing.
    pub(crate) fn table(&self) -> Option<TableRef> {
        TableRef::from_bits(self.table)
    }

    /// Reads a model from its words. Returns `None` if they are invalid or torn.
    pub(crate) fn from_words([line, rest]: [u64; Self::WORDS]) -> Option<Self> {
        let model = Self {
            slope: f32::from_bits(line as u32),
            intercept: f32::from_bits((line >> 32) as u32),
            table: rest as u32,
            min_error: (rest >> 32) as u8,
            max_error: (rest >> 40) as u8,
        };
        let is_line =
            { model.slope }.is_finite() && { model.slope } >= 0.0 && { model.intercept }.is_finite();
        let is_whole = model.words() == [line, rest];
        let is_model = is_line && is_whole;
        is_model.then_some(model)
    }

    pub(crate) fn words(&self) -> [u64; Self::WORDS] {
        let line = u64::from({ self.slope }.to_bits()) | u64::from({ self.intercept }.to_bits()) << 32;
        let rest = u64::from(self.table) | u64::from(self.min_error) << 32 | u64::from(self.max_error) << 40;
        [line, rest | check(line, rest) << 48]
    }

    /// Returns the slot on the line. `x` is the key less the model's base.
    pub(super) fn slot(&self, x: f64) -> u64 {
        // The cast saturates at zero and at the maximum of the type.
        (f64::from(self.slope) * x + f64::from(self.intercept)) as u64
    }

    /// Returns the first and the last position that a key's leaf can have, ignoring the table's
    /// end.
    pub(super) fn pages(&self, x: f64) -> (u64, u64) {
        let slot = self.slot(x);
        let start = slot.saturating_sub(self.min_error.into()) / LEAF_SLOTS;
        (start, slot.saturating_add(self.max_error.into()) / LEAF_SLOTS)
    }

    /// Returns the positions in its table that the leaf of a key can have. `x` is the key less the
    /// model's base. `None` if it predicts nothing.
    pub(crate) fn predict(&self, x: f64) -> Option<RangeInclusive<u32>> {
        let last = u64::from(self.table()?.entries() - 1);
        let (start, end) = self.pages(x);
        Some(start.min(last) as u32..=end.min(last) as u32)
    }

    /// Returns the width of a prediction, in slots: the error as published.
    #[cfg(test)]
    pub(crate) fn error(&self) -> u32 {
        u32::from(self.min_error) + u32::from(self.max_error)
    }
}

/// Returns a 16-bit check of both words.
fn check(line: u64, rest: u64) -> u64 {
    mix(mix(0x5842_5354, line), rest) >> 48
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_words_predict_within_the_table_or_are_refused(words: [u64; 2], x: f64) {
            // Random words have a valid check once in 65,536 cases: set it.
            let check = check(words[0], words[1] & !0 >> 16);
            let words = [words[0], words[1] & !0 >> 16 | check << 48];
            if let Some(model) = SubModel::from_words(words) {
                prop_assert_eq!(model.words(), words);
                if let Some(range) = model.predict(x) {
                    prop_assert!(range.start() <= range.end());
                    prop_assert!(*range.end() < model.table().unwrap().entries());
                }
            }
        }

        #[test]
        fn tables_come_back(number in 0_u64..1 << 31, entries in 0_usize..1 << 20) {
            let room = TableRef::room(entries).unwrap();
            prop_assert!(room as usize >= entries);
            if let Some(table) = TableRef::new(number * 64, room) {
                prop_assert_eq!((table.offset(), table.entries()), (number * 64, room));
                prop_assert_eq!(TableRef::from_bits(table.0), Some(table));
                let model = SubModel::NONE.with_table(table);
                prop_assert_eq!(SubModel::from_words(model.words()).unwrap().table(), Some(table));
            } else {
                prop_assert!(number * u64::from(room) / 8 >= 1 << 30);
            }
        }

        #[test]
        fn any_bits_lead_to_a_table_or_none(bits: u32) {
            if let Some(table) = TableRef::from_bits(bits) {
                prop_assert_eq!(TableRef::new(table.offset(), table.entries()), Some(table));
            }
        }
    }

    #[test]
    fn torn_words_are_not_a_model() {
        let model =
            |n: u32| SubModel { slope: n as f32, intercept: -3.5, table: n, min_error: 3, max_error: 200 };
        for n in 1..1000 {
            let words = model(n).words();
            assert_eq!(SubModel::from_words(words), Some(model(n)));
            assert_eq!(SubModel::from_words([words[0], model(n + 1).words()[1]]), None);
            for bit in 0..64 {
                assert_eq!(SubModel::from_words([words[0], words[1] ^ 1 << bit]), None, "{n} {bit}");
            }
        }
    }

    #[test]
    fn zeros_are_not_a_model() {
        assert_eq!(SubModel::from_words([0; 2]), None);
        assert_eq!(SubModel::from_words(SubModel::NONE.words()), Some(SubModel::NONE));
        assert_eq!(SubModel::NONE.predict(3.0), None);
        for (offset, room) in [(32, 8), (64, 4), (64, 12), (1 << 37, 8), (u64::MAX - 63, 1 << 31)] {
            assert_eq!(TableRef::new(offset, room), None, "{offset} {room}");
        }
        assert_eq!(
            (TableRef::room(0), TableRef::room(9), TableRef::room(usize::MAX)),
            (Some(8), Some(16), None)
        );
    }
}
