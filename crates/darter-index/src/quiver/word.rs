//! The words of a page that change: those of records and of the delta.
//!
//! ```text
//!          63  61 60    56 55  54    51 50    44 43                  0
//!         +------+--------+---+--------+--------+---------------------+
//! EMPTY   |  0   |        bits of the page's address, S among them        |
//! INLINE  |  1   | hash 5 | S |     born 32      |  hash 23            |   born from bit 23
//! TOMB    |  2   | hash 5 | S |     born 32      |  hash 23            |
//! LEAF    | 3, 5 | print 5| S | print 4| class 7 |  address / 16        |   edge and hash
//! INTENT  |  4   | print 5| S | 3 | P  | class 7 |  address / 16        |   edge and hash
//! erased  |  6   | check 5| S | check 8 |     hash 47                  |
//!         +------+--------+---+----------------------------------------+
//! ```
//!
//! A record is INLINE, TOMB, LEAF, INTENT or *erased*; a delta slot is EMPTY, LEAF, INTENT or
//! *erased*. None of these words is zero, and none is one bit away from another word of its place:
//! LEAF is 3 if the number of ones in the rest is even, else 5; *P* makes the number of ones in the
//! rest of INTENT even; *check* is 13 bits of the CRC32C of the word's address and the hash; INLINE
//! and TOMB are compared with born and hash.
//!
//! INTENT names the leaf of a transaction's intent ([`crate::radix::intent`]). Whatever moves leaves
//! moves it as it is: in memory it is a LEAF whose class has [`INTENT_CLASS`] set.
//!
//! The print of a LEAF in a page for the edges `lo` to `hi` is the key's edge less `lo`, in as many
//! bits as `hi - lo` has, and hash in the rest of the 9 bits. So the page alone shows which part of
//! it a leaf belongs to. The page's address changes the hash, so a word from another page matches
//! its leaf in only one case of 16 to 512.

use super::nibble::{EdgeRange, NibbleKey};
use crate::checksum;
use crate::radix::prefix_hash::HashKeys;
use crate::radix::seal::SEAL;
use darter_fabric::GlobalAddr;
use darter_pool::size_class::class_bytes;

const KIND_AT: u32 = 61;
const INLINE: u64 = 1;
const TOMB: u64 = 2;
const LEAF_EVEN: u64 = 3;
const LEAF_ODD: u64 = 5;
const INTENT: u64 = 4;
const ERASED: u64 = 6;
const UPPER_AT: u32 = 56;
const BORN_AT: u32 = 23;
const CLASS_AT: u32 = 44;
const PRINT_AT: u32 = 51;
const PRINT_BITS: u32 = 9;
/// The bit of an INTENT's print that makes the number of ones even.
const PARITY: u64 = 1 << PRINT_AT;
/// The bit that distinguishes an intent's class in memory from a pair's.
pub(super) const INTENT_CLASS: u8 = 1 << 7;
const ADDR_BITS: u32 = 44;
const HASH_BITS: u32 = 47;
/// The bits of an erased word that are its check.
const CHECK: u64 = 31 << UPPER_AT | 255 << HASH_BITS;
/// The bits of a word less its kind.
const REST: u64 = (1 << KIND_AT) - 1;

/// Returns the kind of a LEAF word, by the parity of its other bits: it reveals any single flipped
/// bit.
#[inline]
fn leaf_kind(rest: u64) -> u64 {
    if rest.count_ones().is_multiple_of(2) { LEAF_EVEN } else { LEAF_ODD }
}

/// Returns the exclusive or of a word's groups of 4 bits: any single flipped bit changes it.
pub(super) fn folded(mut word: u64) -> u8 {
    for half in [32, 16, 8, 4] {
        word ^= word >> half;
    }
    word as u8 & 15
}

/// The meaning of a page's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A delta slot that was never taken.
    Empty,
    /// A record whose value follows the word.
    Inline,
    /// No value.
    Tomb,
    /// The value is in a leaf.
    Leaf {
        /// The leaf's address.
        addr: GlobalAddr,
        /// The leaf's size class.
        class: u8,
    },
    /// None of these kinds: damage.
    Invalid,
}

/// A word of a record or of the delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

/// The part of a key that words of pages contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Print(u64);

impl Print {
    /// The print of a key.
    pub(super) fn new(keys: HashKeys, key: &[u8]) -> Self {
        Self::of(&mut NibbleKey::new(keys, key))
    }

    /// The print of a key whose hashes are also used elsewhere.
    pub(super) fn of(key: &mut NibbleKey<'_>) -> Self {
        Self(key.whole())
    }

    /// Whether two keys have the same bits of hash in the words of their records.
    pub(super) fn is_twin_of(self, other: Self) -> bool {
        self.of_record() == other.of_record()
    }

    fn of_record(self) -> u64 {
        (self.0 >> 59) << UPPER_AT | self.0 & ((1 << BORN_AT) - 1)
    }

    /// The print that the page at an address, for these edges, has of the key in a LEAF.
    pub(super) fn of_leaf(self, page: GlobalAddr, edges: EdgeRange, edge: u8) -> LeafPrint {
        let room = PRINT_BITS - edges.bits();
        let salt = page.bits().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let print = u64::from(edge.saturating_sub(edges.lo)) << room | (self.0 ^ salt) >> (u64::BITS - room);
        LeafPrint((print >> 4 & 31) << UPPER_AT | (print & 15) << PRINT_AT)
    }
}

/// The print of a key in a LEAF word: the key's edge and some bits of hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeafPrint(u64);

impl LeafPrint {
    /// The bucket of the print among `parts` buckets; all are about equally likely.
    pub(super) fn bucket(self, parts: u32) -> u32 {
        let print = (self.0 >> UPPER_AT & 31) << 4 | self.0 >> PRINT_AT & 15;
        (print as u32).wrapping_mul(0x9e37_79b1) >> 7 & (parts - 1)
    }
}

impl Word {
    /// A delta slot that was never taken, of the page at an address.
    pub(super) fn empty(page: GlobalAddr) -> Self {
        let pattern = page.bits().wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 3 | 1;
        Self(pattern & !SEAL)
    }

    /// A record whose value follows the word.
    pub(super) fn inline(born: u32, print: Print) -> Self {
        Self(INLINE << KIND_AT | print.of_record() | u64::from(born) << BORN_AT)
    }

    /// A record without a value.
    pub(super) fn tomb(born: u32, print: Print) -> Self {
        Self(TOMB << KIND_AT | print.of_record() | u64::from(born) << BORN_AT)
    }

    /// A record or a delta slot with a leaf; with an intent if the class says so.
    pub(super) fn leaf(LeafPrint(print): LeafPrint, class: u8, addr: GlobalAddr) -> Self {
        let rest = print | u64::from(class & !INTENT_CLASS) << CLASS_AT | addr.bits() >> 4;
        if class & INTENT_CLASS == 0 {
            return Self(leaf_kind(rest) << KIND_AT | rest);
        }
        let rest = rest & !PARITY;
        let parity = u64::from(rest.count_ones() % 2) * PARITY;
        Self(INTENT << KIND_AT | rest | parity)
    }

    /// The same LEAF with its leaf at another address. Not for an INTENT.
    pub(super) fn with_leaf_at(self, addr: GlobalAddr) -> Self {
        let rest = self.unsealed().0 & REST & !((1 << ADDR_BITS) - 1) | addr.bits() >> 4;
        Self(leaf_kind(rest) << KIND_AT | rest)
    }

    /// A slot whose key was removed: in the delta, or in a record without a pair.
    pub(super) fn erased(at: GlobalAddr, print: Print) -> Self {
        let hash = print.0 >> (u64::BITS - HASH_BITS);
        let sum = u64::from(checksum::crc32c(&[at.bits(), hash]));
        Self(ERASED << KIND_AT | (sum << UPPER_AT | sum >> 5 << HASH_BITS) & CHECK | hash)
    }

    /// Whether it is sealed.
    pub(super) const fn is_sealed(self) -> bool {
        self.0 & SEAL != 0
    }

    /// The word without the seal.
    pub(super) const fn unsealed(self) -> Self {
        Self(self.0 & !SEAL)
    }

    /// The meaning of the word.
    #[inline]
    pub(super) fn state(self) -> State {
        match self.0 >> KIND_AT {
            0 if self.is_empty() => State::Empty,
            INLINE => State::Inline,
            // An erased word is verified against its address.
            TOMB | ERASED => State::Tomb,
            LEAF_EVEN | LEAF_ODD | INTENT if self.is_leaf() => State::Leaf {
                addr: GlobalAddr::from_bits((self.0 & ((1 << ADDR_BITS) - 1)) << 4),
                class: (self.0 >> CLASS_AT & 0x7f) as u8 | if self.is_intent() { INTENT_CLASS } else { 0 },
            },
            _ => State::Invalid,
        }
    }

    /// Whether it is a LEAF or an INTENT.
    #[inline]
    fn is_leaf(self) -> bool {
        let kind = leaf_kind(self.unsealed().0 & REST);
        self.0 >> KIND_AT == kind || self.is_intent() && kind == LEAF_EVEN
    }

    /// Whether it is an INTENT, if it is valid.
    #[inline]
    pub(super) fn is_intent(self) -> bool {
        self.0 >> KIND_AT == INTENT
    }

    /// Whether it is *erased* and was made for this address.
    pub(super) fn is_erased_at(self, at: GlobalAddr) -> bool {
        let print = Print(self.0 << (u64::BITS - HASH_BITS));
        self.unsealed() == Self::erased(at, print)
    }

    /// Whether it is an INLINE or a TOMB of this life.
    pub(super) fn is_of_life(self, born: u32) -> bool {
        matches!(self.0 >> KIND_AT, INLINE | TOMB) && (self.0 >> BORN_AT) as u32 == born
    }

    /// Whether it may be the word at an address in the delta of a page whose [`Self::empty`] is
    /// given.
    #[inline]
    pub(super) fn fits_delta_of(self, empty: Self, at: GlobalAddr) -> bool {
        match self.0 >> KIND_AT {
            0 => self.unsealed() == empty,
            ERASED => self.is_erased_at(at),
            _ => self.is_leaf(),
        }
    }

    /// Whether it is the word of this key's record, INLINE or TOMB, of this life.
    pub(super) fn proves_record_of(self, born: u32, print: Print) -> bool {
        self == Self::inline(born, print) || self == Self::tomb(born, print)
    }

    /// Whether it may name the leaf of a key with this print.
    pub(super) fn may_be_leaf_of(self, LeafPrint(print): LeafPrint) -> bool {
        let ignored = if self.is_intent() { PARITY } else { 0 };
        self.leaf_print().is_some_and(|LeafPrint(own)| own & !ignored == print & !ignored)
    }

    /// The edge of the key whose leaf it names, in a page for these edges.
    pub(super) fn leaf_edge(self, edges: EdgeRange) -> u8 {
        let print = (self.0 >> UPPER_AT & 31) << 4 | self.0 >> PRINT_AT & 15;
        edges.lo + (print >> (PRINT_BITS - edges.bits())) as u8
    }

    /// The print of its leaf's key, if it names a leaf.
    pub(super) fn leaf_print(self) -> Option<LeafPrint> {
        let mask = 0b1_1111 << UPPER_AT | 0b1111 << PRINT_AT;
        self.is_leaf().then_some(LeafPrint(self.0 & mask))
    }

    /// Whether it is the slot at this address, erased by this key's removal.
    pub(super) fn is_erased_by(self, at: GlobalAddr, print: Print) -> bool {
        self.0 >> KIND_AT == ERASED && self.unsealed() == Self::erased(at, print)
    }

    /// Whether it is a delta slot that was never taken, if it is valid.
    pub(super) fn is_empty(self) -> bool {
        self.0 >> KIND_AT == 0 && self.unsealed().0 != 0
    }

    /// The leaf's address, class and bytes, if it has one.
    pub(super) fn leaf_object(self) -> Option<(GlobalAddr, u8, u64)> {
        match self.state() {
            State::Leaf { addr, class } => Some((addr, class, class_bytes(class))),
            _ => None,
        }
    }
}

/// Two keys that the words of a page's records cannot distinguish in a pool with this secret, for
/// checks of the blind CAS.
///
/// # Panics
/// If a million keys contain no such pair.
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
                let of_leaf = |key: &[u8], edge| print(key).of_leaf(GlobalAddr::NULL, edges, edge);
                for edge in lo..=hi {
                    let leaf = Word::leaf(of_leaf(key, edge), 127, addr);
                    assert_eq!(leaf.state(), State::Leaf { addr, class: 127 });
                    assert_eq!(Word(leaf.0 | SEAL).leaf_edge(edges), edge);
                    assert!(leaf.may_be_leaf_of(of_leaf(key, edge)));
                    assert!(!leaf.proves_record_of(0, print(key)));
                    assert!(!leaf.may_be_leaf_of(of_leaf(other, edge)));
                    assert!(Word(leaf.0 | SEAL).may_be_leaf_of(of_leaf(key, edge)));
                    assert!(edge == lo || !leaf.may_be_leaf_of(of_leaf(key, edge - 1)));
                    let intent = Word::leaf(of_leaf(key, edge), 127 | INTENT_CLASS, addr);
                    assert_eq!(intent.state(), State::Leaf { addr, class: 127 | INTENT_CLASS });
                    assert!(intent.is_intent() && !leaf.is_intent());
                    let elsewhere = GlobalAddr::new(3, 4096);
                    let moved = Word::leaf(of_leaf(key, edge), 127, elsewhere);
                    assert_eq!(leaf.with_leaf_at(elsewhere), moved);
                    assert_eq!(Word(intent.0 | SEAL).leaf_edge(edges), edge);
                    assert!(Word(intent.0 | SEAL).may_be_leaf_of(of_leaf(key, edge)));
                    assert!(edge == lo || !intent.may_be_leaf_of(of_leaf(key, edge - 1)));
                    for word in [leaf, intent] {
                        for bit in (0..64).filter(|bit| 1 << bit != SEAL) {
                            let flipped = Word(word.0 ^ 1 << bit);
                            assert!(flipped.leaf_object().is_none(), "bit {bit} of {word:x?}");
                        }
                    }
                }
            }
            let erased = Word(Word::erased(addr, print(key)).0 | SEAL);
            assert_eq!(erased.state(), State::Tomb);
            assert!(erased.is_erased_by(addr, print(key)) && !erased.is_erased_by(addr, print(other)));
            assert!(erased.is_erased_at(addr));
            for at in (0..100).map(|n| GlobalAddr::new(n % 3, u64::from(n) * 8)) {
                assert!(!erased.is_erased_at(at), "{at}");
            }
            for bit in (0..64).filter(|bit| 1 << bit != SEAL) {
                assert!(!Word(erased.0 ^ 1 << bit).is_erased_at(addr), "bit {bit}");
            }
        }
        assert_eq!([Word(0).state(), Word(SEAL).state()], [State::Invalid; 2]);
        assert_eq!(Word(u64::MAX).state(), State::Invalid);
    }
}
