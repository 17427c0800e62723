//! Leaves: sixteen keys and, if values are in leaves, sixteen records and a spare.
//!
//! ```text
//! word 0       incarnation 24 | count 8 | next 32
//! word 1       magic 32 | value words 8 | low code 8 | high code 8 | 0
//! word 2, 3    low bound (inclusive), high bound (exclusive)
//! words 4..20  keys: a key of 8 bytes as a big-endian number, or a pointer to a pair's blob:
//!              hash 9 | size class 7 | address 48
//! words 20..   in an inline leaf: 17 records, the last of which is the spare
//! ```
//!
//! *Next*: the number of the right neighbour, which is its offset in the node divided by 64; 0 for
//! none. An odd incarnation means that the leaf is *in motion*: only its server can interpret it.
//! With a count of 255 it is also *going*: it had no keys, and its left neighbour takes its place.
//! A bound's code is its length if it has up to 8 bytes, which are in the bound's word; or `0x80`
//! and the size class of a blob that the word points to; or `0xff` for none.

use super::record::{INCARNATIONS, RECORD_HEAD, Record};
use darter_fabric::GlobalAddr;
use darter_pool::size_class::class_bytes;

/// The incarnation of a new leaf.
pub(crate) const NEW: u32 = 2;
/// Slots of a leaf.
pub(crate) const SLOTS: usize = 16;
/// The first word of the keys.
pub(crate) const KEYS_AT: usize = 4;
/// Words up to and including the keys.
pub(crate) const HEAD_WORDS: usize = KEYS_AT + SLOTS;
/// Bytes per leaf number.
pub(crate) const UNIT: u64 = 64;
/// Limit of leaf numbers: a table entry has 31 bits for one.
const NUMBER_LIMIT: u64 = 1 << 31;
/// The count of a leaf that is being removed.
const GOING: u8 = u8::MAX;
const MAGIC: u64 = 0x584c_6601;
const NO_BOUND: u8 = 0xff;
const BLOB_BOUND: u8 = 0x80;

/// The first word of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) incarnation: u32,
    pub(crate) count: u8,
    /// The number of the right neighbour, 0 for none.
    pub(crate) next: u32,
}

impl Header {
    pub(crate) fn from_word(word: u64) -> Self {
        Self { incarnation: (word >> 40) as u32, count: (word >> 32) as u8, next: word as u32 }
    }

    pub(crate) fn word(self) -> u64 {
        u64::from(self.incarnation % INCARNATIONS) << 40 | u64::from(self.count) << 32 | u64::from(self.next)
    }

    /// Returns whether the leaf is in motion.
    pub(crate) fn is_moving(self) -> bool {
        self.incarnation % 2 == 1
    }

    /// Returns whether the leaf, in motion, is being removed from the index or was removed.
    pub(crate) fn is_going(self) -> bool {
        self.is_moving() && self.count == GOING
    }

    /// Returns the header that begins the removal of a leaf at rest.
    pub(crate) fn going(self) -> Self {
        Self { count: GOING, ..self.stepped() }
    }

    /// Returns the header with the next incarnation.
    pub(crate) fn stepped(self) -> Self {
        Self { incarnation: (self.incarnation + 1) % INCARNATIONS, ..self }
    }
}

/// The shape of an index's leaves, fixed at creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Words of a value in an inline leaf; 0 if leaves point to blobs.
    pub(crate) value_words: u8,
}

impl Layout {
    pub(crate) fn is_inline(self) -> bool {
        self.value_words > 0
    }

    pub(crate) fn record_words(self) -> usize {
        RECORD_HEAD + usize::from(self.value_words)
    }

    /// Returns the first word of a slot's record; slot 16 is the spare.
    pub(crate) fn record_at(self, slot: usize) -> usize {
        HEAD_WORDS + slot * self.record_words()
    }

    pub(crate) fn words(self) -> usize {
        if self.is_inline() { self.record_at(SLOTS + 1) } else { HEAD_WORDS }
    }

    /// Returns the bytes of a leaf's memory, a multiple of 64 to keep leaves aligned.
    pub(crate) fn bytes(self) -> u64 {
        (self.words() as u64 * 8).next_multiple_of(UNIT)
    }
}

/// Returns the address of a leaf on a node.
pub(crate) fn address(node: u8, number: u32) -> GlobalAddr {
    GlobalAddr::new(node, u64::from(number) * UNIT)
}

/// Returns the number of a leaf if memory at this address can have one.
pub(crate) fn number_of(addr: GlobalAddr) -> Option<u32> {
    let number = addr.offset() / UNIT;
    let is_one = addr.offset().is_multiple_of(UNIT) && number > 0 && number < NUMBER_LIMIT;
    is_one.then_some(number as u32)
}

/// A bound of a leaf's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Above all keys.
    None,
    /// At most 8 bytes.
    Short(Vec<u8>),
    /// In a blob of this size class.
    Blob(GlobalAddr, u8),
}

impl Bound {
    /// The bound below all keys.
    pub(crate) const LEAST: Self = Self::Short(Vec::new());

    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::None => NO_BOUND,
            Self::Short(bytes) => bytes.len() as u8,
            Self::Blob(_, class) => BLOB_BOUND | class,
        }
    }

    pub(crate) fn word(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Short(bytes) => {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                u64::from_be_bytes(word)
            }
            Self::Blob(addr, _) => addr.bits(),
        }
    }

    pub(crate) fn parse(code: u8, word: u64) -> Option<Self> {
        match code {
            NO_BOUND => Some(Self::None),
            0..=8 => Some(Self::Short(word.to_be_bytes()[..usize::from(code)].to_vec())),
            BLOB_BOUND.. => Some(Self::Blob(GlobalAddr::from_bits(word), code & !BLOB_BOUND)),
            _ => None,
        }
    }
}

/// The second word of a leaf.
pub(crate) fn shape_word(layout: Layout, low: &Bound, high: &Bound) -> u64 {
    MAGIC << 32
        | u64::from(layout.value_words) << 24
        | u64::from(low.code()) << 16
        | u64::from(high.code()) << 8
}

/// A pointer to a pair's blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pointer(u64);

impl Pointer {
    /// Creates a pointer to a pair whose key has this hash.
    pub(crate) fn new(addr: GlobalAddr, class: u8, hash: u64) -> Self {
        Self((hash & 0x1ff) << 55 | u64::from(class & 0x7f) << 48 | addr.bits())
    }

    /// Decodes a pointer; `None` for an empty word.
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        (!GlobalAddr::from_bits(word).is_null()).then_some(Self(word))
    }

    pub(crate) fn word(self) -> u64 {
        self.0
    }

    pub(crate) fn addr(self) -> GlobalAddr {
        GlobalAddr::from_bits(self.0)
    }

    pub(crate) fn class(self) -> u8 {
        (self.0 >> 48) as u8 & 0x7f
    }

    pub(crate) fn bytes(self) -> u64 {
        class_bytes(self.class())
    }

    pub(crate) fn words(self) -> usize {
        (self.bytes() / 8) as usize
    }

    /// Returns whether the pair's key may have this hash.
    pub(crate) fn may_be(self, hash: u64) -> bool {
        self.0 >> 55 == hash & 0x1ff
    }
}

/// Returns the hash of a key in pointers.
pub(crate) fn key_hash(key: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(key)
}

/// A leaf's words up to its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) header: Header,
    pub(crate) low: Bound,
    pub(crate) high: Bound,
    pub(crate) keys: [u64; SLOTS],
}

impl Head {
    /// Reads the words of a leaf; `None` if they are not a leaf.
    pub(crate) fn parse(layout: Layout, words: &[u64]) -> Option<Self> {
        let (head, keys) = (words.get(..KEYS_AT)?, words.get(KEYS_AT..HEAD_WORDS)?);
        let (header, shape) = (Header::from_word(head[0]), head[1]);
        let is_leaf = shape >> 32 == MAGIC && (shape >> 24) as u8 == layout.value_words;
        let is_counted = usize::from(header.count) <= SLOTS || header.is_going();
        if !is_leaf || !is_counted || u64::from(header.next) >= NUMBER_LIMIT {
            return None;
        }
        let low = Bound::parse((shape >> 16) as u8, head[2])?;
        let high = Bound::parse((shape >> 8) as u8, head[3])?;
        Some(Self { header, low, high, keys: keys.try_into().ok()? })
    }

    /// Returns the words.
    pub(crate) fn words(&self, layout: Layout) -> Vec<u64> {
        let bounds = [shape_word(layout, &self.low, &self.high), self.low.word(), self.high.word()];
        [&[self.header.word()][..], &bounds, &self.keys].concat()
    }

    /// Returns whether a key is between the bounds; `None` if these words are not enough to decide.
    pub(crate) fn holds(&self, key: &[u8]) -> Option<bool> {
        let is_above = match &self.low {
            Bound::Short(low) => key >= &low[..],
            Bound::Blob(..) => return None,
            Bound::None => false,
        };
        let is_below = match &self.high {
            Bound::Short(high) => key < &high[..],
            Bound::Blob(..) => return None,
            Bound::None => true,
        };
        Some(is_above && is_below)
    }

    /// Returns whether a key is above all keys that the leaf can hold; `None` if these words are
    /// not enough to decide.
    pub(crate) fn is_below(&self, key: &[u8]) -> Option<bool> {
        match &self.high {
            Bound::Short(high) => Some(key >= &high[..]),
            Bound::Blob(..) => None,
            Bound::None => Some(false),
        }
    }

    /// Returns the key words of the slots below the count.
    pub(crate) fn counted(&self) -> &[u64] {
        let count = if self.header.is_going() { 0 } else { usize::from(self.header.count) };
        &self.keys[..count.min(SLOTS)]
    }
}

/// A whole leaf.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    pub(crate) head: Head,
    /// The records and the spare; `None` for torn ones. Empty if leaves point to blobs.
    pub(crate) records: Vec<Option<Record>>,
}

impl Leaf {
    /// Reads the words of a leaf; `None` if they are not a leaf.
    pub(crate) fn parse(layout: Layout, words: &[u64]) -> Option<Self> {
        let head = Head::parse(layout, words)?;
        let mut records = Vec::new();
        if layout.is_inline() {
            let body = words.get(HEAD_WORDS..layout.words())?;
            records.extend(body.chunks_exact(layout.record_words()).map(Record::parse));
        }
        Some(Self { head, records })
    }

    /// Returns the record of a slot if it is whole and has the slot's key.
    pub(crate) fn record(&self, slot: usize) -> Option<&Record> {
        self.records.get(slot)?.as_ref().filter(|record| record.key == self.head.keys[slot])
    }

    /// Returns the words of a new leaf; `records` is empty unless the leaf is inline.
    pub(crate) fn image(layout: Layout, head: &Head, records: &[Record]) -> Vec<u64> {
        let mut words = head.words(layout);
        words.resize(layout.words(), 0);
        for (slot, record) in records.iter().enumerate() {
            let at = layout.record_at(slot);
            words[at..at + layout.record_words()].copy_from_slice(&record.words(layout.value_words.into()));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    const INLINE: Layout = Layout { value_words: 2 };
    const FAT: Layout = Layout { value_words: 0 };

    fn head() -> Head {
        let header = Header { incarnation: 8, count: 2, next: 77 };
        let mut keys = [0; SLOTS];
        keys[..2].copy_from_slice(&[5, 9]);
        Head { header, low: Bound::Short(b"a".to_vec()), high: Bound::None, keys }
    }

    #[test]
    fn leaves_round_trip() {
        let records: Vec<_> =
            [5, 9].map(|key| Record { key, version: 8, value: key.to_le_bytes().to_vec() }).into();
        let words = Leaf::image(INLINE, &head(), &records);
        let leaf = Leaf::parse(INLINE, &words).unwrap();
        assert_eq!(leaf.head, head());
        assert_eq!(leaf.record(1), Some(&records[1]));
        assert_eq!(leaf.records.len(), SLOTS + 1);
        assert!(Leaf::parse(FAT, &words).is_none());
        let blob = Bound::Blob(GlobalAddr::new(1, 64), 9);
        let fat = Head { low: blob, ..head() };
        assert_eq!(Head::parse(FAT, &fat.words(FAT)).unwrap(), fat);
        assert_eq!(INLINE.bytes() % 64, 0);
        assert_eq!(Layout { value_words: 1 }.bytes(), 576);
    }

    #[test]
    fn any_words_are_a_leaf_or_none() {
        let mut dice = Pcg64Mcg::seed_from_u64(1);
        for length in 0..INLINE.words() + 3 {
            let words: Vec<u64> = (0..length).map(|_| dice.random()).collect();
            assert!(Leaf::parse(INLINE, &words).is_none());
        }
        let sound = Leaf::image(INLINE, &head(), &[]);
        for bit in 0..KEYS_AT * 64 {
            let mut words = sound.clone();
            words[bit / 64] ^= 1 << (bit % 64);
            if let Some(leaf) = Leaf::parse(INLINE, &words) {
                assert!(leaf.head.counted().len() <= SLOTS);
            }
        }
    }

    #[test]
    fn numbers_and_pointers_come_back() {
        let addr = address(3, 12_345);
        assert_eq!((number_of(addr), number_of(addr.plus(8))), (Some(12_345), None));
        let pointer = Pointer::new(addr, 100, 0x1_55);
        assert_eq!((pointer.addr(), pointer.class()), (addr, 100));
        assert!(pointer.may_be(0x355) && !pointer.may_be(0x154));
        assert_eq!(Pointer::from_word(0), None);
        let header = Header { incarnation: INCARNATIONS - 1, count: 16, next: u32::MAX };
        assert_eq!(Header::from_word(header.word()), header);
        assert_eq!(header.stepped().incarnation, 0);
        let going = Header { incarnation: 8, ..header }.going();
        assert_eq!(Header::from_word(going.word()), going);
        assert!(going.is_going() && going.next == header.next);
        let head = Head { header: going, ..head() };
        assert_eq!(head.counted(), [0; 0]);
        assert!(
            Head::parse(FAT, &Head { header: Header { next: 7, ..going }, ..head.clone() }.words(FAT))
                .is_some()
        );
        let at_rest = Header { next: 7, ..going.stepped() };
        assert_eq!(Head::parse(FAT, &Head { header: at_rest, ..head }.words(FAT)), None);
    }
}
