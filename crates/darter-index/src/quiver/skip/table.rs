//! One skip table: its descriptor, and where its buckets are.
//!
//! ```text
//! root word   | version 20 | address of the descriptor / 16, 44 |
//! descriptor  check | born 64 | prefix list | bits 8, segments 8 | segment 0 | ... | segment 59
//! segment     2^bits buckets of 4 entries
//! ```
//!
//! Only the entries of a table ever change: another list or size requires another table. The
//! version of each table is one higher than that of the table it replaces, so a word read long ago
//! is not mistaken for another that names the same address.

use super::entry::{self, BUCKET_ENTRIES, BUCKET_WORDS, ENTRY_WORDS, Place};
use crate::quiver::hint::NodeHint;
use crate::radix::prefix_hash::HashKeys;
use crate::radix::prefix_list::PrefixList;
use crate::{IndexError, Result};
use darter_fabric::GlobalAddr;

/// Words of a descriptor.
pub(super) const DESCRIPTOR_WORDS: usize = 64;
/// Bytes of a descriptor.
pub(super) const DESCRIPTOR_BYTES: u64 = DESCRIPTOR_WORDS as u64 * 8;
/// Words before the addresses of segments.
const FIXED_WORDS: usize = 4;
/// Most segments.
const SEGMENTS_MAX: usize = DESCRIPTOR_WORDS - FIXED_WORDS;
/// Most buckets of a segment, as a power of two: the segment has one mebibyte.
const BITS_MAX: u32 = 14;
/// Buckets of a segment in a table of several, as a power of two, unless that is not enough.
const BITS_USUAL: u32 = 8;
/// Epochs for which a table is used. The nodes it leads to were born at most 2^31 epochs before
/// they were entered, so no life is mistaken for another (L1).
pub(super) const TABLE_KEPT: u64 = 1 << 30;

const ADDR_BITS: u32 = 44;
const VERSION_BITS: u32 = 64 - ADDR_BITS;

/// The address of the descriptor that a root word names; `None` if the word names none.
pub(super) fn descriptor_of(word: u64) -> Option<GlobalAddr> {
    let addr = GlobalAddr::from_bits((word & ((1 << ADDR_BITS) - 1)) << 4);
    (word != 0).then_some(addr)
}

/// The root word that names a descriptor, as the successor of another root word.
pub(super) fn word_after(word: u64, descriptor: GlobalAddr) -> u64 {
    let version = (word >> ADDR_BITS) + 1;
    (version & ((1 << VERSION_BITS) - 1)) << ADDR_BITS | descriptor.bits() >> 4
}

/// The number of buckets of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// Buckets of a segment, as a power of two.
    bits: u32,
    segments: usize,
}

impl Size {
    /// The size of a table for `entries` entries, which fill about a third of its places.
    pub(super) fn for_entries(entries: u64) -> Self {
        let buckets = (entries * 3 / BUCKET_ENTRIES as u64).max(1);
        let fits = |bits: &u32| buckets.div_ceil(1 << bits) <= SEGMENTS_MAX as u64;
        let small = buckets.next_power_of_two().ilog2().min(BITS_USUAL);
        let bits = (small..BITS_MAX).find(fits).unwrap_or(BITS_MAX);
        let segments = buckets.div_ceil(1 << bits).min(SEGMENTS_MAX as u64) as usize;
        Self { bits, segments }
    }

    /// The number of entries for which a table of at most `bytes` bytes is made.
    pub(super) fn entries_within(bytes: u64) -> u64 {
        bytes / (ENTRY_WORDS as u64 * 8 * 3)
    }

    fn buckets(self) -> usize {
        self.segments << self.bits
    }

    /// Words of all buckets.
    pub(super) fn words(self) -> usize {
        self.buckets() * BUCKET_WORDS
    }

    /// Words of a segment.
    pub(super) fn segment_words(self) -> usize {
        BUCKET_WORDS << self.bits
    }

    /// Bytes of a segment.
    pub(super) fn segment_bytes(self) -> u64 {
        self.segment_words() as u64 * 8
    }

    /// The bucket for a prefix with this hash.
    pub(super) fn bucket(self, hash: u64) -> usize {
        (((hash & u64::from(u32::MAX)) * self.buckets() as u64) >> 32) as usize
    }
}

/// A table as given by its descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// The lengths of prefixes, in nibbles.
    pub(super) list: PrefixList,
    pub(super) size: Size,
    /// The epoch that its builder was pinned at.
    pub(super) born: u64,
    pub(super) segments: Box<[GlobalAddr]>,
}

impl Table {
    /// The words of the table's descriptor.
    pub(super) fn descriptor(&self, keys: &HashKeys) -> [u64; DESCRIPTOR_WORDS] {
        let mut words = [0; DESCRIPTOR_WORDS];
        let shape = u64::from(self.size.bits) | (self.size.segments as u64) << 8;
        words[1..FIXED_WORDS].copy_from_slice(&[self.born, self.list.word(), shape]);
        for (word, segment) in words[FIXED_WORDS..].iter_mut().zip(&self.segments) {
            *word = segment.bits();
        }
        words[0] = check(keys, &words);
        words
    }

    /// The table that a descriptor describes.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`] if there is none.
    pub(super) fn parse(keys: &HashKeys, addr: GlobalAddr, words: &[u64]) -> Result<Self> {
        let corrupt = || IndexError::corrupt(addr, "skip table descriptor fails its check");
        if words.len() != DESCRIPTOR_WORDS || words[0] != check(keys, words) {
            return Err(corrupt());
        }
        let size = Size { bits: (words[3] & 0xff) as u32, segments: (words[3] >> 8) as usize };
        if size.bits > BITS_MAX || !(1..=SEGMENTS_MAX).contains(&size.segments) {
            return Err(corrupt());
        }
        let segments = words[FIXED_WORDS..].iter().take(size.segments);
        Ok(Self {
            list: PrefixList::from_word(words[2]),
            size,
            born: words[1],
            segments: segments.map(|&bits| GlobalAddr::from_bits(bits)).collect(),
        })
    }

    /// Whether it has this list, approximately this size, and is not too old.
    pub(super) fn is_fit(&self, list: PrefixList, size: Size, epoch: u64) -> bool {
        let (is, should) = (self.size.words(), size.words());
        self.list == list
            && is * 2 >= should
            && is <= should * 4
            && epoch.wrapping_sub(self.born) < TABLE_KEPT / 2
    }

    /// The address of the bucket for a prefix with this hash.
    pub(super) fn bucket(&self, hash: u64) -> GlobalAddr {
        let bucket = self.size.bucket(hash);
        let within = bucket & ((1 << self.size.bits) - 1);
        self.segments[bucket >> self.size.bits].plus((within * BUCKET_WORDS * 8) as u64)
    }

    /// Bytes of the descriptor and the segments.
    pub(super) fn bytes(&self) -> u64 {
        DESCRIPTOR_BYTES + self.size.segments as u64 * self.size.segment_bytes()
    }
}

fn check(keys: &HashKeys, words: &[u64]) -> u64 {
    words[1..].iter().fold(1, |check, word| keys.express_of(check ^ word))
}

/// The place in a bucket for an entry: that of its prefix, otherwise one without an entry,
/// otherwise one chosen by its hash.
pub(super) fn place_for(keys: &HashKeys, hash: u64, len: usize, bucket: &[u64]) -> usize {
    let places = || bucket.chunks_exact(ENTRY_WORDS).map(|words| entry::decode(keys, hash, len, words));
    let own = places().position(|place| matches!(place, Place::Own(_)));
    let free = || places().position(|place| matches!(place, Place::Empty | Place::Torn));
    own.or_else(free).unwrap_or((hash >> 40) as usize % BUCKET_ENTRIES)
}

/// The words of a table that is being filled.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) size: Size,
    pub(super) words: Vec<u64>,
    /// Entries that found a place.
    pub(super) entries: u64,
}

impl Image {
    /// Creates a table without entries.
    pub(super) fn new(size: Size) -> Self {
        Self { size, words: vec![0; size.words()], entries: 0 }
    }

    /// Puts an entry in its bucket, unless that is full.
    pub(super) fn enter(&mut self, keys: &HashKeys, hash: u64, len: usize, node: NodeHint) {
        let at = self.size.bucket(hash) * BUCKET_WORDS;
        let bucket = &mut self.words[at..at + BUCKET_WORDS];
        let at = place_for(keys, hash, len, bucket) * ENTRY_WORDS;
        if bucket[at..at + ENTRY_WORDS] == [0; ENTRY_WORDS] {
            bucket[at..at + ENTRY_WORDS].copy_from_slice(&entry::encode(keys, hash, len, node));
            self.entries += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: fn() -> HashKeys =
        || HashKeys::new([0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 1]);

    #[test]
    fn tables_are_what_their_descriptors_say() {
        let keys = KEYS();
        for entries in [0, 1, 5, 4_096, 100_000, 1 << 40] {
            let size = Size::for_entries(entries);
            let segments = (1..=size.segments as u64).map(|at| GlobalAddr::new(2, at << 20)).collect();
            let table = Table { list: PrefixList::new(&[3, 9]), size, born: 1 << 40, segments };
            let mut words = table.descriptor(&keys);
            let addr = GlobalAddr::new(1, 64);
            assert_eq!(Table::parse(&keys, addr, &words).unwrap(), table);
            for hash in [0, 77 << 20, u64::MAX] {
                let bucket = table.bucket(hash);
                let is_in = |at: &GlobalAddr| {
                    at.bits() <= bucket.bits() && bucket.bits() < at.plus(size.segment_bytes()).bits()
                };
                assert!(table.segments.iter().any(is_in));
            }
            assert!(size.segment_bytes() <= 1 << 20);
            words[3] ^= 1;
            assert!(Table::parse(&keys, addr, &words).is_err());
        }
    }

    #[test]
    fn each_table_has_another_version() {
        let addr = GlobalAddr::new(3, 4096);
        let one = word_after(0, addr);
        let other = word_after(one, addr);
        assert_eq!([one, other].map(descriptor_of), [Some(addr); 2]);
        assert_ne!(one, other);
        assert_eq!(descriptor_of(0), None);
    }

    /// Few entries find their bucket full.
    #[test]
    fn most_entries_find_a_place() {
        let keys = KEYS();
        let mut image = Image::new(Size::for_entries(10_000));
        for at in 0..10_000 {
            let node = NodeHint { addr: GlobalAddr::new(1, at << 4), born: 1, depth: 5 };
            image.enter(&keys, keys.express_of(at), 5, node);
        }
        assert!(image.entries > 9_850, "{} of 10,000", image.entries);
    }
}
