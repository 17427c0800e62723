//! Pages: records in key order, a map to them, and a delta for later changes (`docs/quiver.md`,
//! "Page").

use super::map;
use super::nibble::{EdgeRange, LAST, common, edge};
use super::word::{LeafPrint, Print, State, Word};
use crate::checksum;
use crate::radix::leaf::{self, Image, Leaf};
use crate::radix::seal::SEAL;
use crate::{IndexError, Result};
use darter_fabric::GlobalAddr;
use darter_pool::size_class::class_bytes;
use smallvec::SmallVec;
use std::iter::once;

/// Words before the delta: guard, identity, shape, and the count of removals with the checksum.
pub(super) const FIXED_WORDS: usize = 4;
/// Words of a map that are read with the head in one READ; a longer map costs another READ.
pub(super) const MAP_WORDS_FORESEEN: usize = 8;
/// Most records of a page.
pub(super) const RECORDS_MAX: usize = 64;
/// Most delta slots of a page.
pub(super) const DELTA_MAX: usize = 16;
/// Fewest records of a page that is replaced because most of them are dead.
const THIN_RECORDS_MIN: usize = 8;
/// The word with the node's identity.
pub(super) const IDENTITY_AT: usize = 1;
/// The word that counts removals, above the checksum of guard, identity, shape and map.
pub(super) const REMOVALS_AT: usize = 3;
/// The value that FAA adds to count a removal.
pub(super) const REMOVAL: u64 = 1 << 32;

const KIND_AT: u32 = 61;
const GUARD: u64 = 4;
const DELTA_AT: u32 = 56;
const BORN_AT: u32 = 23;
const COUNT_AT: u32 = 16;
const RECORD_WORDS_AT: u32 = 9;
const HI_AT: u32 = 5;
const DEPTH_AT: u32 = 10;
const WIDTH_AT: u32 = 28;
const BASE_AT: u32 = 33;

/// A page, by the slot that points to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRef {
    /// The page's address.
    pub(super) addr: GlobalAddr,
    /// The page's size class.
    pub(super) class: u8,
}

impl PageRef {
    /// The address of the count of removals.
    pub(super) fn removals_addr(&self) -> GlobalAddr {
        self.addr.plus(REMOVALS_AT as u64 * 8)
    }

    /// Size in bytes.
    pub(super) fn bytes(self) -> u64 {
        class_bytes(self.class)
    }

    /// Size in words, including those after the last record.
    pub(super) fn words(self) -> usize {
        (self.bytes() / 8) as usize
    }

    /// The page's shape, after verification of all words of the head.
    ///
    /// # Errors
    /// As [`Shape::of`], and if the head is damaged.
    pub(super) fn verified(self, words: &[u64]) -> Result<Shape> {
        let shape = Shape::of(self, words)?;
        if words.len() < shape.head_words() {
            return Err(IndexError::corrupt(self.addr, "page shorter than its head"));
        }
        let sum = shape.checksum(self.addr, words[IDENTITY_AT], shape.map_in(words));
        if words[REMOVALS_AT] as u32 != sum {
            return Err(IndexError::corrupt(self.addr, "page's checksum does not match its head and map"));
        }
        self.verify_delta(&shape, words)?;
        Ok(shape)
    }

    /// Verifies each word of the delta by itself.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`].
    pub(super) fn verify_delta(self, shape: &Shape, words: &[u64]) -> Result<()> {
        let empty = Word::empty(self.addr);
        let mut delta = shape.delta_in(words).enumerate();
        if delta.all(|(at, word)| word.fits_delta_of(empty, delta_addr(self.addr, at))) {
            return Ok(());
        }
        Err(IndexError::corrupt(self.addr, "delta slot of unknown kind"))
    }

    /// The page's shape, and those of the words read that belong to the page.
    ///
    /// # Errors
    /// As [`PageRef::verified`].
    pub(super) fn parse(self, mut words: Vec<u64>) -> Result<(Shape, Vec<u64>)> {
        let shape = self.verified(&words)?;
        words.truncate(shape.words());
        Ok((shape, words))
    }

    /// Words that most likely hold the whole head.
    pub(super) fn head_words(self, delta: usize) -> usize {
        (FIXED_WORDS + delta + MAP_WORDS_FORESEEN).min(self.words())
    }
}

/// The layout of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// The page's life.
    pub(super) born: u32,
    /// Number of delta slots.
    pub(super) delta: usize,
    /// Number of records.
    pub(super) records: usize,
    /// Words of a record.
    pub(super) record_words: usize,
    /// Words of the map.
    pub(super) map_words: usize,
    /// The edges that the page is responsible for.
    pub(super) edges: EdgeRange,
    /// Nibbles of the prefix of the node that it was made for.
    pub(super) depth: usize,
    /// The least position in the map.
    pub(super) base: u32,
    /// Bits of a position.
    pub(super) width: u32,
}

impl Shape {
    /// The shape given by a page's first words.
    ///
    /// # Errors
    /// As [`Shape::parse`].
    pub(super) fn of(page: PageRef, words: &[u64]) -> Result<Self> {
        match *words {
            [guard, _, shape, _, ..] => Self::parse(page, guard, shape),
            _ => Err(IndexError::corrupt(page.addr, "page shorter than a head")),
        }
    }

    /// The shape given by the guard and the shape word.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`] if the words are not those of a page, or if the page does not fit
    /// its size class.
    pub(super) fn parse(page: PageRef, guard: u64, shape: u64) -> Result<Self> {
        let parsed = Self {
            born: born(guard),
            delta: (guard >> DELTA_AT & 31) as usize,
            records: (guard >> COUNT_AT & 127) as usize,
            record_words: (guard >> RECORD_WORDS_AT & 127) as usize,
            map_words: (guard & 511) as usize,
            edges: EdgeRange { lo: (shape & 31) as u8, hi: (shape >> HI_AT & 31) as u8 },
            depth: (shape >> DEPTH_AT & ((1 << 18) - 1)) as usize,
            base: (shape >> BASE_AT & ((1 << 20) - 1)) as u32,
            width: (shape >> WIDTH_AT & 31) as u32,
        };
        let fits = parsed.records <= RECORDS_MAX
            && parsed.delta <= DELTA_MAX
            && parsed.edges.lo <= parsed.edges.hi
            && parsed.edges.hi <= LAST
            && (parsed.record_words > 0 || parsed.records == 0)
            && parsed.words() as u64 * 8 <= page.bytes();
        if guard >> KIND_AT != GUARD || !fits {
            return Err(IndexError::corrupt(page.addr, "not a page: invalid head"));
        }
        Ok(parsed)
    }

    /// The guard.
    pub(super) fn guard(&self) -> u64 {
        GUARD << KIND_AT
            | (self.delta as u64) << DELTA_AT
            | u64::from(self.born) << BORN_AT
            | (self.records as u64) << COUNT_AT
            | (self.record_words as u64) << RECORD_WORDS_AT
            | self.map_words as u64
    }

    /// The shape word.
    pub(super) fn word(&self) -> u64 {
        u64::from(self.base) << BASE_AT
            | u64::from(self.width) << WIDTH_AT
            | (self.depth as u64) << DEPTH_AT
            | u64::from(self.edges.hi) << HI_AT
            | u64::from(self.edges.lo)
    }

    /// The checksum of the page's address and of the constant parts of its head.
    pub(super) fn checksum(&self, page: GlobalAddr, identity: u64, map: &[u64]) -> u32 {
        let head = [page.bits(), self.guard(), identity, self.word()];
        checksum::append(checksum::crc32c(&head), map)
    }

    /// Whether a key may be in the page; `own` is another key with the page's prefix.
    pub(super) fn may_have(&self, key: &[u8], own: &[u8]) -> bool {
        common(key, own) >= self.depth && self.edges.contains(edge(key, self.depth))
    }

    /// Whether a key may be stored in this record of a page with this map.
    pub(super) fn may_stand_at(&self, rank: usize, map: &[u64], key: &[u8], own: &[u8]) -> bool {
        self.may_have(key, own) && self.rank(map, key) == Some(rank)
    }

    /// Words before the first record.
    pub(super) fn head_words(&self) -> usize {
        FIXED_WORDS + self.delta + self.map_words
    }

    /// Words of the page.
    pub(super) fn words(&self) -> usize {
        self.head_words() + self.records * self.record_words
    }

    /// The word at which a record begins.
    pub(super) fn record_at(&self, rank: usize) -> usize {
        self.head_words() + rank * self.record_words
    }

    /// The map in a page's words.
    pub(super) fn map_in<'w>(&self, words: &'w [u64]) -> &'w [u64] {
        &words[self.head_words() - self.map_words..self.head_words()]
    }

    /// The delta in a page's words.
    pub(super) fn delta_in<'w>(&self, words: &'w [u64]) -> impl Iterator<Item = Word> + use<'w> {
        words[FIXED_WORDS..FIXED_WORDS + self.delta].iter().map(|&word| Word(word))
    }

    /// The rank of a key if it is static; `None` if the page has no records.
    pub(super) fn rank(&self, map: &[u64], key: &[u8]) -> Option<usize> {
        let rank = map::rank(self.base, self.width, map, self.records, key);
        (rank < self.records).then_some(rank)
    }

    /// The print of a key in the LEAF words of the page at an address.
    pub(super) fn leaf_print(&self, page: GlobalAddr, key: &[u8], print: Print) -> LeafPrint {
        print.of_leaf(page, self.edges, edge(key, self.depth))
    }

    /// The edge of a word's pair: that of the key stored in the record, or else the one in a LEAF.
    pub(super) fn edge_of(&self, word: Word, own: Option<&[u8]>) -> u8 {
        own.map_or_else(|| word.leaf_edge(self.edges), |key| edge(key, self.depth))
    }

    /// Whether any word is sealed, so that the page is being replaced.
    pub(super) fn has_seal(&self, words: &[u64]) -> bool {
        self.sealable().any(|at| words.get(at).is_some_and(|word| word & SEAL != 0))
    }

    /// The positions of the words that change by CAS: the guard, the delta's slots, and each record's
    /// first word.
    pub(super) fn sealable(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        let (first, step) = (self.head_words(), self.record_words);
        let delta = FIXED_WORDS..FIXED_WORDS + self.delta;
        once(0).chain(delta).chain((0..self.records).map(move |rank| first + rank * step))
    }
}

/// The address of a slot of a page's delta.
fn delta_addr(page: GlobalAddr, at: usize) -> GlobalAddr {
    page.plus((FIXED_WORDS + at) as u64 * 8)
}

/// The life that a page's guard belongs to.
pub(super) fn born(guard: u64) -> u32 {
    (guard >> BORN_AT) as u32
}

/// Whether a word is the guard of a live page: unsealed, and of this life.
pub(super) fn proves(word: u64, born: u32) -> bool {
    word >> KIND_AT == GUARD && word & SEAL == 0 && self::born(word) == born
}

/// A page's head as read.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) page: PageRef,
    pub(super) shape: Shape,
    /// Whether the guard is sealed.
    pub(super) is_sealed: bool,
    pub(super) identity: u64,
    /// Records removed less records put again, approximately.
    pub(super) removals: i32,
    pub(super) delta: SmallVec<[Word; DELTA_MAX]>,
    pub(super) map: SmallVec<[u64; MAP_WORDS_FORESEEN]>,
}

impl Head {
    /// Parses a head. Returns `Ok(Err(words))` if the head has `words` words, more than were read.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`].
    pub(super) fn parse(page: PageRef, words: &[u64]) -> Result<Result<Self, usize>> {
        let shape = Shape::of(page, words)?;
        if words.len() < shape.head_words() {
            return Ok(Err(shape.head_words()));
        }
        page.verified(words)?;
        Ok(Ok(Self::of(page, shape, words)))
    }

    /// The head of a page with this shape, from its first words, unverified.
    pub(super) fn of(page: PageRef, shape: Shape, words: &[u64]) -> Self {
        let (delta, map) = words[FIXED_WORDS..shape.head_words()].split_at(shape.delta);
        Self {
            page,
            shape,
            is_sealed: words[0] & SEAL != 0,
            identity: words[IDENTITY_AT],
            removals: (words[REMOVALS_AT] >> 32) as i32,
            delta: delta.iter().map(|&word| Word(word)).collect(),
            map: map.into(),
        }
    }

    /// The address of a delta slot.
    pub(super) fn delta_addr(&self, at: usize) -> GlobalAddr {
        delta_addr(self.page.addr, at)
    }

    /// The address of a record.
    pub(super) fn record_addr(&self, rank: usize) -> GlobalAddr {
        self.page.addr.plus(self.shape.record_at(rank) as u64 * 8)
    }
    /// The approximate number of live keys.
    pub(super) fn live_about(&self) -> u64 {
        let in_delta = self.delta.iter().filter(|word| word.leaf_object().is_some()).count();
        // A count below zero means that no record is gone.
        let removals = self.removals.max(0) as usize;
        (self.shape.records.saturating_sub(removals) + in_delta) as u64
    }

    /// Whether a page with `live` live keys should be replaced: it has none, or few for its number
    /// of records.
    pub(super) fn is_thin(&self, live: u64) -> bool {
        live == 0 || self.shape.records >= THIN_RECORDS_MIN && live * 4 <= self.shape.records as u64
    }
}

/// The pair stored in a record, regardless of the record's word; `None` if there never was one.
///
/// # Errors
/// [`IndexError::Corrupt`] if the pair is damaged.
pub(super) fn standing_whole(page: GlobalAddr, record: &[u64]) -> Result<Option<Leaf<'_>>> {
    match record.get(1..).filter(|body| body.first().is_some_and(|&header| header != 0)) {
        Some(body) => leaf::parse_bound(page, body).map(Some),
        None => Ok(None),
    }
}

/// Verifies the word of the record at an address; `own` is the print of the key stored there, if
/// any. No CAS can have put another record's word there.
///
/// # Errors
/// [`IndexError::Corrupt`].
pub(super) fn verify_word(addr: GlobalAddr, word: Word, born: u32, own: Option<Print>) -> Result<()> {
    let fits = match (own, word.state()) {
        (_, State::Leaf { .. }) => true,
        (Some(print), State::Inline | State::Tomb) => word.unsealed().proves_record_of(born, print),
        (None, State::Tomb) => word.is_erased_at(addr),
        _ => false,
    };
    if fits {
        return Ok(());
    }
    Err(IndexError::corrupt(addr, "record has another record's word"))
}

/// The image of the pair stored in a record of a page, in the form of a leaf's image.
pub(super) fn image_in(page: GlobalAddr, record: &[u64]) -> Image {
    let mut image = Image::from(&record[1..]);
    image[0] = leaf::bind(image[0], page);
    image
}

/// As [`standing_whole`], but unverified: the key may only be compared with a known key.
pub(super) fn standing(addr: GlobalAddr, record: &[u64]) -> Option<Leaf<'_>> {
    let body = record.get(1..).filter(|body| body.first().is_some_and(|&header| header != 0))?;
    leaf::parse_again(addr, body).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_say_what_they_were_made_of() {
        let page = PageRef { addr: GlobalAddr::new(1, 64), class: 127 };
        let shape = Shape {
            born: u32::MAX,
            delta: DELTA_MAX,
            records: RECORDS_MAX,
            record_words: 33,
            map_words: 20,
            edges: EdgeRange { lo: 3, hi: LAST },
            depth: 131_071,
            base: (1 << 20) - 1,
            width: 20,
        };
        assert_eq!(Shape::parse(page, shape.guard() | SEAL, shape.word()).unwrap(), shape);
        assert!(proves(shape.guard(), u32::MAX) && !proves(shape.guard() | SEAL, u32::MAX));
        assert!(!proves(shape.guard(), 0));
        let small = PageRef { class: 3, ..page };
        assert!(Shape::parse(small, shape.guard(), shape.word()).is_err());
        assert!(Shape::parse(page, 0, 0).is_err());
        let sealable = shape.sealable().count();
        assert_eq!(sealable, 1 + DELTA_MAX + RECORDS_MAX);
    }
}
