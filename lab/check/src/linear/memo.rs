//! The set of states that a search has visited, kept exactly: a hash table over one flat array of
//! rows.
//!
//! A row encodes a state: the words of its *key*, and then those of its *used* set. A visited state
//! is as good as any with the same key that has used more, so the memo knows a row if it holds one
//! with the same key whose used set is a subset. Rows are consecutive in a single vector and the
//! table holds their numbers. A state therefore needs no separate allocation, and forgetting all of
//! them only costs the reset of a table that starts small, however large it was before.

/// A set of rows of equal width.
#[derive(Debug, Default)]
pub(super) struct Memo {
    /// Number of words of a key.
    key_width: usize,
    /// Number of words in a row.
    width: usize,
    /// The rows.
    words: Vec<u64>,
    /// Number of rows.
    count: u32,
    /// Row numbers, or [`VACANT`]; the length is a power of two, at most half are used, and probing
    /// is linear.
    table: Vec<u32>,
}

/// No row.
const VACANT: u32 = u32::MAX;

/// Initial size of the table.
const FIRST_TABLE: usize = 32;

impl Memo {
    /// Forgets everything; rows will have keys of `key_width` words and used sets of `used_width`.
    pub(super) fn reset(&mut self, key_width: usize, used_width: usize) {
        self.key_width = key_width;
        self.width = key_width + used_width;
        self.words.clear();
        self.count = 0;
        self.table.clear();
        self.table.resize(FIRST_TABLE, VACANT);
    }

    /// Adds a row, given in parts that are concatenated. Returns `false` if it was known.
    pub(super) fn insert(&mut self, head: [u64; 3], rest: &[u64]) -> bool {
        let start = self.words.len();
        self.words.extend_from_slice(&head);
        self.words.extend_from_slice(rest);
        debug_assert_eq!(self.words.len() - start, self.width);
        if (self.count as usize + 1) * 2 > self.table.len() {
            self.grow();
        }
        let (known, row) = self.words.split_at_mut(start);
        let (key, used) = row.split_at(self.key_width);
        let last = self.table.len() - 1;
        let mut place = hash(key) as usize & last;
        loop {
            let number = self.table[place];
            if number == VACANT {
                break;
            }
            let known_start = number as usize * self.width;
            let (known_key, known_used) =
                known[known_start..known_start + self.width].split_at_mut(self.key_width);
            if known_key == key {
                let is_known = is_subset(known_used, used);
                if is_known || is_subset(used, known_used) {
                    // Of the two rows, the one that used less is kept.
                    if !is_known {
                        known_used.copy_from_slice(used);
                    }
                    self.words.truncate(start);
                    return !is_known;
                }
            }
            place = (place + 1) & last;
        }
        assert!(self.count < VACANT, "the memo has no numbers left: the budget of steps is too large");
        self.table[place] = self.count;
        self.count += 1;
        true
    }

    /// Doubles the table.
    fn grow(&mut self) {
        let length = self.table.len() * 2;
        self.table.clear();
        self.table.resize(length, VACANT);
        for (number, row) in (0..self.count).zip(self.words.chunks_exact(self.width)) {
            let mut place = hash(&row[..self.key_width]) as usize & (length - 1);
            while self.table[place] != VACANT {
                place = (place + 1) & (length - 1);
            }
            self.table[place] = number;
        }
    }
}

fn is_subset(part: &[u64], whole: &[u64]) -> bool {
    part.iter().zip(whole).all(|(part, whole)| part & !whole == 0)
}

/// A multiplicative hash, folded so that the low bits depend on all of the key.
fn hash(key: &[u64]) -> u64 {
    let mut sum = 0_u64;
    for &word in key {
        sum = (sum.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        sum ^= sum >> 32;
    }
    sum.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 24
}

#[cfg(test)]
mod tests {
    use super::Memo;

    #[test]
    fn rows_are_known_exactly_and_forgotten_at_once() {
        let mut memo = Memo::default();
        for width in [4, 3, 7] {
            memo.reset(width, 0);
            let rest = |i: u64| vec![i % 3; width - 3];
            for i in 0..1000 {
                assert!(memo.insert([i, i / 7, 0], &rest(i)), "row {i} is new");
            }
            for i in 0..1000 {
                assert!(!memo.insert([i, i / 7, 0], &rest(i)), "row {i} is known");
                assert!(memo.insert([i, i / 7, 1], &rest(i)), "row {i} with another word is new");
            }
        }
    }

    #[test]
    fn a_row_that_used_less_stands_for_those_that_used_more() {
        let mut memo = Memo::default();
        memo.reset(3, 2);
        assert!(memo.insert([1, 2, 3], &[0b011, 0]));
        assert!(!memo.insert([1, 2, 3], &[0b111, 0]));
        assert!(!memo.insert([1, 2, 3], &[0b011, 1]));
        assert!(memo.insert([1, 2, 4], &[0b111, 0]), "another key");
        assert!(memo.insert([1, 2, 3], &[0b101, 0]), "neither is a subset of the other");
        assert!(memo.insert([1, 2, 3], &[0b001, 0]));
        assert!(!memo.insert([1, 2, 3], &[0b011, 0]));
    }
}
