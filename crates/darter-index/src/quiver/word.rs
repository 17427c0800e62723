//! The words of a page that change: those of records and of the delta.
//!
//! ```text
//!          63  61 60    56 55  54    51 50    44 43                  0
//!         +------+--------+---+--------+--------+---------------------+
//! INLINE  |  1   | hash 5 | S |     born 32      |  hash 23            |   born from bit 23
//! TOMB    |  2   | hash 5 | S |     born 32      |  hash 23            |
//! LEAF    |  3   | print 5| S | print 4| class 7 |  address / 16        |   edge and hash
//! erased  |  4   |   0    | S |     hash 55                            |
//!         +------+--------+---+----------------------------------------+
//! ```
//!
//! A record is INLINE, TOMB or LEAF; a delta slot is EMPTY (0), LEAF or *erased*.
//!
//! The print of a LEAF in a page for the edges `lo` to `hi` is the key's edge less `lo`, in as many
//! bits as `hi - lo` has, and hash in the bits that are left of 9. So the page alone tells which part
//! of it a leaf belongs to.

use super::nibble::{EdgeRange, NibbleKey};
use crate::radix::prefix_hash::HashKeys;
use crate::radix::seal::SEAL;
use darter_fabric::GlobalAddr;
use darter_pool::size_class::class_bytes;

const KIND_AT: u32 = 61;
const INLINE: u64 = 1;
const TOMB: u64 = 2;
const LEAF: u64 = 3;
const ERASED: u64 = 4;
const UPPER_AT: u32 = 56;
const BORN_AT: u32 = 23;
const CLASS_AT: u32 = 44;
const PRINT_AT: u32 = 51;
const PRINT_BITS: u32 = 9;
const ADDR_BITS: u32 = 44;

/// What a word of a page says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A delta slot that was never taken.
    Empty,
    /// A record whose value stands behind it.
    Inline,
    /// No value.
    Tomb,
    /// The value is in a leaf.
    Leaf {
        /// Where it is.
        addr: GlobalAddr,
        /// Its size class.
        class: u8,
    },
    /// None of these: damage.
    Invalid,
}

/// A word of a record or of the delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

/// What the words of one key have of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Print(u64);

impl Print {
    /// That of a key.
    pub(super) fn new(keys: HashKeys, key: &[u8]) -> Self {
        Self::of(&mut NibbleKey::new(keys, key))
    }

    /// That of a key whose hashes are needed for more.
    pub(super) fn of(key: &mut NibbleKey<'_>) -> Self {
        Self(key.whole())
    }

    fn of_record(self) -> u64 {
        (self.0 >> 59) << UPPER_AT | self.0 & ((1 << BORN_AT) - 1)
    }

    /// What a page for these edges has of the key beside its leaf.
    pub(super) fn of_leaf(self, edges: EdgeRange, edge: u8) -> LeafPrint {
        let room = PRINT_BITS - edges.bits();
        let print = u64::from(edge.saturating_sub(edges.lo)) << room | self.0 >> (u64::BITS - room);
        LeafPrint((print >> 4 & 31) << UPPER_AT | (print & 15) << PRINT_AT)
    }
}

/// What a word has of a key beside its leaf: the key's edge and some hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeafPrint(u64);

impl LeafPrint {
    /// One of so many parts that prints fall in, about as likely as every other.
    pub(super) fn bucket(self, parts: u32) -> u32 {
        let print = (self.0 >> UPPER_AT & 31) << 4 | self.0 >> PRINT_AT & 15;
        (print as u32).wrapping_mul(0x9e37_79b1) >> 7 & (parts - 1)
    }
}

impl Word {
    /// A delta slot that was never taken.
    pub(super) const EMPTY: Self = Self(0);

    /// A record whose value stands behind it.
    pub(super) fn inline(born: u32, print: Print) -> Self {
        Self(INLINE << KIND_AT | print.of_record() | u64::from(born) << BORN_AT)
    }

    /// A record without a value.
    pub(super) fn tomb(born: u32, print: Print) -> Self {
        Self(TOMB << KIND_AT | print.of_record() | u64::from(born) << BORN_AT)
    }

    /// A record or a delta slot with a leaf.
    pub(super) fn leaf(LeafPrint(print): LeafPrint, class: u8, addr: GlobalAddr) -> Self {
        Self(LEAF << KIND_AT | print | u64::from(class) << CLASS_AT | addr.bits() >> 4)
    }

    /// A delta slot whose key was removed.
    pub(super) fn erased(print: Print) -> Self {
        Self(ERASED << KIND_AT | print.0 >> 9)
    }

    /// Whether it is sealed.
    pub(super) const fn is_sealed(self) -> bool {
        self.0 & SEAL != 0
    }

    /// The same without the seal.
    pub(super) const fn unsealed(self) -> Self {
        Self(self.0 & !SEAL)
    }

    /// What it says.
    #[inline]
    pub(super) fn state(self) -> State {
        match self.0 >> KIND_AT {
            0 if self.unsealed() == Self::EMPTY => State::Empty,
            INLINE => State::Inline,
            TOMB | ERASED => State::Tomb,
            LEAF => State::Leaf {
                addr: GlobalAddr::from_bits((self.0 & ((1 << ADDR_BITS) - 1)) << 4),
                class: (self.0 >> CLASS_AT & 0x7f) as u8,
            },
            _ => State::Invalid,
        }
    }

    /// Whether it is the word of this key's record, INLINE or TOMB, of this life.
    pub(super) fn proves_record_of(self, born: u32, print: Print) -> bool {
        self == Self::inline(born, print) || self == Self::tomb(born, print)
    }

    /// Whether it may hold the leaf of a key with this print.
    pub(super) fn may_be_leaf_of(self, LeafPrint(print): LeafPrint) -> bool {
        self.leaf_print() == Some(LeafPrint(print))
    }

    /// The edge of the key whose leaf it holds, in a page for these edges.
    pub(super) fn leaf_edge(self, edges: EdgeRange) -> u8 {
        let print = (self.0 >> UPPER_AT & 31) << 4 | self.0 >> PRINT_AT & 15;
        edges.lo + (print >> (PRINT_BITS - edges.bits())) as u8
    }

    /// What it has of its leaf's key, if it has a leaf.
    pub(super) fn leaf_print(self) -> Option<LeafPrint> {
        let mask = 0b1_1111 << UPPER_AT | 0b1111 << PRINT_AT;
        (self.0 >> KIND_AT == LEAF).then_some(LeafPrint(self.0 & mask))
    }

    /// Whether it is the slot that this key had in the delta, and left.
    pub(super) fn is_erased_by(self, print: Print) -> bool {
        self.unsealed() == Self::erased(print)
    }

    /// The leaf's address, class and bytes, if it has one.
    pub(super) fn leaf_object(self) -> Option<(GlobalAddr, u8, u64)> {
        match self.state() {
            State::Leaf { addr, class } => Some((addr, class, class_bytes(class))),
            _ => None,
        }
    }
}

/// Two keys that the words of a page's own records cannot tell apart in a pool with this secret,
/// for checks of the blind CAS.
///
/// # Panics
/// If there are none among a million.
#[cfg(any(test, feature = "checker"))]
pub(super) fn twins(secret: [u64; 4]) -> [Vec<u8>; 2] {
    let keys = HashKeys::new(secret);
    let mut seen = std::collections::HashMap::new();
    for number in 0..1_000_000_u32 {
        let key = [&b"twin"[..], &number.to_be_bytes()].concat();
        let hash = Print::new(keys, &key).of_record();
        if let Some(other) = seen.insert(hash, key.clone()) {
            return [other, key];
        }
    }
    panic!("no two of a million keys have the same hash of 28 bits");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quiver::nibble::{END, LAST};

    #[test]
    fn words_say_what_they_were_made_of() {
        let keys = HashKeys::new([0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 1]);
        let print = |key: &[u8]| Print::new(keys, key);
        let addr = GlobalAddr::new(255, (1 << 40) - 16);
        for (key, other) in [(&b"pear"[..], &b"plum"[..]), (b"", b"\0")] {
            for born in [0, 7, u32::MAX] {
                let (inline, tomb) = (Word::inline(born, print(key)), Word::tomb(born, print(key)));
                assert_eq!((inline.state(), tomb.state()), (State::Inline, State::Tomb));
                let proves = |word: Word, born| word.proves_record_of(born, print(key));
                assert!(proves(inline, born) && proves(tomb, born) && !proves(inline, born ^ 1));
                assert!(!inline.proves_record_of(born, print(other)));
                assert!(!proves(Word(inline.0 | SEAL), born));
                assert_ne!(inline, Word::inline(born, print(other)));
            }
            for (lo, hi) in [(3, 3), (3, 4), (3, 11), (END, LAST)] {
                let edges = EdgeRange { lo, hi };
                let of_leaf = |key: &[u8], edge| print(key).of_leaf(edges, edge);
                for edge in lo..=hi {
                    let leaf = Word::leaf(of_leaf(key, edge), 127, addr);
                    assert_eq!(leaf.state(), State::Leaf { addr, class: 127 });
                    assert_eq!(Word(leaf.0 | SEAL).leaf_edge(edges), edge);
                    assert!(leaf.may_be_leaf_of(of_leaf(key, edge)));
                    assert!(!leaf.proves_record_of(0, print(key)));
                    assert!(!leaf.may_be_leaf_of(of_leaf(other, edge)));
                    assert!(Word(leaf.0 | SEAL).may_be_leaf_of(of_leaf(key, edge)));
                    assert!(edge == lo || !leaf.may_be_leaf_of(of_leaf(key, edge - 1)));
                }
            }
            let erased = Word(Word::erased(print(key)).0 | SEAL);
            assert_eq!(erased.state(), State::Tomb);
            assert!(erased.is_erased_by(print(key)) && !erased.is_erased_by(print(other)));
        }
        assert_eq!(Word(SEAL).state(), State::Empty);
        assert_eq!(Word(u64::MAX).state(), State::Invalid);
    }
}
