//! The content of the miniature pool: words, page frames, and the slots of one node.
//!
//! A word is a `u16` whose fields are a nibble each. A LEAF word holds its leaf's key and value in
//! place of an address, since a leaf never changes while it is reachable. Every put of a scenario
//! writes a distinct value. If it needs another leaf, that one has the next *copy* number, so equal
//! LEAF words are equal addresses.

use std::fmt;

/// Keys of a scenario.
pub(crate) const KEYS: usize = 4;
/// Edges of the node, and slots.
pub(crate) const EDGES: usize = 3;
/// Capacity of a page in records.
pub(crate) const RECORDS: usize = 2;
/// Capacity of a page in delta slots.
pub(crate) const DELTAS: usize = 2;
/// Page frames.
pub(crate) const FRAMES: usize = 7;
/// Maximum number of clients.
pub(crate) const CLIENTS: usize = 3;

/// Places of a frame's words.
pub(crate) const GUARD: usize = 0;
pub(crate) const MAP: usize = 1;
pub(crate) const DELTA: usize = 2;
pub(crate) const SLOT: usize = DELTA + DELTAS;
pub(crate) const KEY: usize = SLOT + RECORDS;
pub(crate) const VALUE: usize = KEY + RECORDS;
pub(crate) const WORDS: usize = VALUE + RECORDS;

/// No key, frame or rank.
pub(crate) const NOTHING: u8 = 15;

/// The kind of a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Empty,
    Inline,
    Tomb,
    Leaf,
    None,
    Page,
    Guard,
}

/// One word: kind 3 bits, seal, and three fields of 4 bits. Zero is EMPTY.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Word(pub(crate) u16);

impl Word {
    const SEAL: u16 = 8;

    const fn new(kind: Kind, first: u8, second: u8, third: u8) -> Self {
        Self(kind as u16 | (first as u16) << 4 | (second as u16) << 8 | (third as u16) << 12)
    }

    pub(crate) const EMPTY: Self = Self(0);

    pub(crate) const fn inline(born: u8, hash: u8) -> Self {
        Self::new(Kind::Inline, born, hash, 0)
    }

    /// TOMB of a record.
    pub(crate) const fn tomb(born: u8, hash: u8) -> Self {
        Self::new(Kind::Tomb, born, hash, 0)
    }

    /// TOMB of a delta slot: only the key, whose hash counts as unique.
    pub(crate) const fn delta_tomb(key: u8) -> Self {
        Self::new(Kind::Tomb, 0, key, 0)
    }

    pub(crate) const fn leaf(key: u8, value: u8, copy: u8) -> Self {
        Self::new(Kind::Leaf, copy, key, value)
    }

    pub(crate) const fn none(hi: u8) -> Self {
        Self::new(Kind::None, hi, 0, 0)
    }

    pub(crate) const fn page(hi: u8, frame: u8) -> Self {
        Self::new(Kind::Page, hi, frame, 0)
    }

    pub(crate) const fn guard(born: u8, records: u8) -> Self {
        Self::new(Kind::Guard, born, records, 0)
    }

    pub(crate) fn kind(self) -> Kind {
        match self.0 & 7 {
            0 => Kind::Empty,
            1 => Kind::Inline,
            2 => Kind::Tomb,
            3 => Kind::Leaf,
            4 => Kind::None,
            5 => Kind::Page,
            _ => Kind::Guard,
        }
    }

    pub(crate) fn is(self, kind: Kind) -> bool {
        self.kind() == kind
    }

    pub(crate) fn is_sealed(self) -> bool {
        self.0 & Self::SEAL != 0
    }

    pub(crate) fn sealed(self) -> Self {
        Self(self.0 | Self::SEAL)
    }

    /// Born of INLINE, TOMB and guard, *hi* of NONE and PAGE, a leaf's copy number.
    pub(crate) fn first(self) -> u8 {
        (self.0 >> 4 & 15) as u8
    }

    /// Hash or key, the page's frame, the guard's number of records.
    pub(crate) fn second(self) -> u8 {
        (self.0 >> 8 & 15) as u8
    }

    /// A leaf's value.
    pub(crate) fn value(self) -> u8 {
        (self.0 >> 12) as u8
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, second) = (self.first(), self.second());
        let seal = if self.is_sealed() { " S" } else { "" };
        match self.kind() {
            Kind::Empty => write!(formatter, "EMPTY{seal}"),
            Kind::Inline => write!(formatter, "INLINE(born {first} hash {second}{seal})"),
            Kind::Tomb => write!(formatter, "TOMB(born {first} hash {second}{seal})"),
            Kind::Leaf => write!(formatter, "LEAF({second}={} copy {first}{seal})", self.value()),
            Kind::None => write!(formatter, "NONE(hi {first})"),
            Kind::Page => write!(formatter, "PAGE(hi {first} frame {second})"),
            Kind::Guard => write!(formatter, "GUARD(born {first} records {second}{seal})"),
        }
    }
}

/// The state of a frame between two uses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Life {
    Free,
    /// A client is writing a page in it.
    Draft,
    Linked,
    /// Unlinked; the bits are the clients that were in an operation then and still are.
    Retired(u8),
}

/// Memory for one page. Its words outlast the page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Frame {
    pub(crate) words: [Word; WORDS],
    pub(crate) lo: u8,
    pub(crate) hi: u8,
    pub(crate) life: Life,
    /// Born of the next page here: how many pages were linked here and freed. A draft that was
    /// given back has the born of the next page, which the epochs permit.
    pub(crate) born: u8,
}

impl Frame {
    pub(crate) const FREE: Self =
        Self { words: [Word::EMPTY; WORDS], lo: 0, hi: 0, life: Life::Free, born: 1 };

    /// Returns the rank of a static key; for other keys any rank, as in a blind trie.
    pub(crate) fn rank(map: Word, key: u8) -> u8 {
        match (0..RECORDS as u8).find(|&rank| Self::mapped(map, rank) == key) {
            Some(rank) => rank,
            None => u8::from(Self::mapped(map, 1) < key),
        }
    }

    /// Returns the key that the map has at `rank`, or `NOTHING`.
    pub(crate) fn mapped(map: Word, rank: u8) -> u8 {
        (map.0 >> (4 * rank) & 15) as u8
    }

    /// Returns a map of these keys.
    pub(crate) fn map(keys: [u8; RECORDS]) -> Word {
        Word(u16::from(keys[0]) | u16::from(keys[1]) << 4)
    }

    /// Returns the rank of `key`, if it is static.
    pub(crate) fn static_rank(&self, key: u8) -> Option<u8> {
        (0..RECORDS as u8).find(|&rank| Self::mapped(self.words[MAP], rank) == key)
    }
}
