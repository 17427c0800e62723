//! Intents: leaves by which a transaction announces changes before they are decided
//! (`docs/transactions.md`).
//!
//! The value of an intent's leaf:
//!
//! ```text
//! +---------------+------------------+--------------------+-----+-----+
//! | status 8      | first 8          | lengths 4 + 4      | old | new |   bytes
//! +---------------+------------------+--------------------+-----+-----+
//! ```
//!
//! *Status* is the address of the transaction's status word, *first* the word as it was when it was
//! written. *Old* is the key's value before the transaction, *new* the one after it. A length is one
//! more than that of its value; 0 stands for no value. The length `u32::MAX` of *new* says that the
//! transaction only read the key: *new* is *old*.
//!
//! The status word decides all intents of one attempt of a transaction at once:
//!
//! ```text
//!  63        56 55    48 47        32 31                    0
//! +------------+--------+------------+-----------------------+
//! |  check 8   | state  | attempt 16 |  progress 32          |
//! +------------+--------+------------+-----------------------+
//! ```
//!
//! *Check* is of the word's address and its other bits, so a flipped bit is always noticed.

use super::leaf::{self, Image};
use crate::checksum;
use crate::{IndexError, Result};
use darter_fabric::GlobalAddr;

/// Bytes before the two values.
const HEAD_BYTES: usize = 24;
/// The length of *new* in an intent of a key that the transaction only read.
const SAME: u32 = u32::MAX;
/// Bytes of an intent's leaf less the key and the two values.
pub const INTENT_BYTES: usize = leaf::HEADER_BYTES_MAX + HEAD_BYTES;
/// Bytes of the object that holds a status word.
pub const STATUS_BYTES: u64 = 16;

const CHECK_AT: u32 = 56;
const STATE_AT: u32 = 48;
const ATTEMPT_AT: u32 = 32;

/// What is known of a transaction's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The transaction has not been decided: its keys have their old values.
    Undecided,
    /// The transaction has taken effect: its keys have their new values.
    Committed,
    /// The transaction has not taken effect and never will.
    Aborted,
}

impl State {
    /// No code becomes another one by a flipped bit.
    const fn code(self) -> u64 {
        match self {
            Self::Undecided => 0b0000_1111,
            Self::Committed => 0b0011_0011,
            Self::Aborted => 0b0101_0101,
        }
    }
}

/// The content of a status word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The outcome.
    pub state: State,
    /// How often the transaction was tried before.
    pub attempt: u16,
    /// Grows while the transaction installs its intents.
    pub progress: u32,
}

impl Status {
    /// The status of a new attempt.
    pub fn undecided(attempt: u16) -> Self {
        Self { state: State::Undecided, attempt, progress: 0 }
    }

    /// The status after a decision.
    #[must_use]
    pub fn decided(self, state: State) -> Self {
        Self { state, ..self }
    }

    /// The status after one more step of the owner.
    #[must_use]
    pub fn advanced(self) -> Self {
        Self { progress: self.progress.wrapping_add(1), ..self }
    }

    /// The word to store at an address.
    pub fn word(self, at: GlobalAddr) -> u64 {
        let rest =
            self.state.code() << STATE_AT | u64::from(self.attempt) << ATTEMPT_AT | u64::from(self.progress);
        u64::from(checksum::crc32c(&[at.bits(), rest]) & 0xff) << CHECK_AT | rest
    }

    /// Reads a word found at an address.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`] if no transaction has stored it there.
    pub fn parse(at: GlobalAddr, word: u64) -> Result<Self> {
        let states = [State::Undecided, State::Committed, State::Aborted];
        let state = states.into_iter().find(|state| state.code() == word >> STATE_AT & 0xff);
        let status =
            state.map(|state| Self { state, attempt: (word >> ATTEMPT_AT) as u16, progress: word as u32 });
        status
            .filter(|status| status.word(at) == word)
            .ok_or_else(|| IndexError::corrupt(at, "status word of a transaction is damaged"))
    }
}

/// The content of an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intent<'a> {
    /// The address of the status word.
    pub status: GlobalAddr,
    /// The status word as the transaction wrote it first.
    pub first: u64,
    /// The value of the key before the transaction; `None` if the key was absent.
    pub old: Option<&'a [u8]>,
    /// The value after it; `None` if the transaction removes the key.
    pub new: Option<&'a [u8]>,
}

impl<'a> Intent<'a> {
    /// The words of the intent's leaf for a key. `writes` is false if the transaction only reads
    /// the key.
    pub fn image(&self, key: &[u8], writes: bool) -> Image {
        let length = |value: Option<&[u8]>| value.map_or(0, |value| value.len() as u32 + 1);
        let new = if writes { length(self.new) } else { SAME };
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&self.status.bits().to_le_bytes());
        head[8..16].copy_from_slice(&self.first.to_le_bytes());
        head[16..20].copy_from_slice(&length(self.old).to_le_bytes());
        head[20..].copy_from_slice(&new.to_le_bytes());
        let written = self.new.filter(|_| writes).unwrap_or_default();
        leaf::intent_image(key, &[&head, self.old.unwrap_or_default(), written])
    }

    /// Reads the intent in the verified words of a leaf; `None` if the leaf is a pair's.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`].
    pub fn of(words: &'a [u64]) -> Result<Option<Self>> {
        if !leaf::is_intent(words) {
            return Ok(None);
        }
        let value = leaf::parse_again(GlobalAddr::NULL, words)?.value;
        Self::parse(value)
            .map(Some)
            .ok_or_else(|| IndexError::corrupt(GlobalAddr::NULL, "intent of a transaction is damaged"))
    }

    /// Reads the value of an intent's leaf.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let (head, values) = value.split_first_chunk::<HEAD_BYTES>()?;
        let word = |at: usize| head[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or_default();
        let lengths = word(16);
        let (old, new) = (lengths as u32, (lengths >> 32) as u32);
        let (first, rest) = values.split_at_checked(old.saturating_sub(1) as usize)?;
        let old = (old > 0).then_some(first);
        let new = match new {
            SAME => old,
            0 => None,
            _ => Some(rest),
        };
        Some(Self { status: GlobalAddr::from_bits(word(0)), first: word(8), old, new })
    }

    /// The key's value, given the transaction's outcome.
    pub fn value(&self, state: State) -> Option<&'a [u8]> {
        match state {
            State::Committed => self.new,
            State::Undecided | State::Aborted => self.old,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intents_round_trip() {
        let status = GlobalAddr::new(3, 4096);
        let long = vec![7; 9000];
        for key in [&b""[..], b"pear", &[9; 300]] {
            for (old, new) in [
                (None, None),
                (Some(&b""[..]), None),
                (None, Some(&b""[..])),
                (Some(&long[..]), Some(&b"v"[..])),
            ] {
                for writes in [true, false] {
                    let new = if writes { new } else { old };
                    let intent = Intent { status, first: 5, old, new };
                    let words = intent.image(key, writes);
                    let leaf = leaf::parse(status, &words).unwrap();
                    assert_eq!(leaf.key, key);
                    assert_eq!(Intent::of(&words).unwrap(), Some(intent));
                }
            }
        }
        assert_eq!(Intent::of(&leaf::image(b"pear", b"green")).unwrap(), None);
        assert_eq!(Intent::of(&leaf::image(b"pear", &long)).unwrap(), None);
        assert_eq!(Intent::parse(&[1; 23]), None);
    }

    #[test]
    fn a_flipped_bit_of_a_status_word_is_noticed() {
        let at = GlobalAddr::new(1, 64);
        for state in [State::Undecided, State::Committed, State::Aborted] {
            let status = Status { state, attempt: 7, progress: 1 << 20 };
            let word = status.word(at);
            assert_eq!(Status::parse(at, word).unwrap(), status);
            assert!((0..64).all(|bit| Status::parse(at, word ^ 1 << bit).is_err()));
            assert!(Status::parse(at.plus(16), word).is_err());
        }
        assert!(Status::parse(at, 0).is_err());
    }
}
