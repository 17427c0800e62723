//! One express skip table as this process knows it: its descriptor, and a cached copy of its
//! directory.
//!
//! Once an epoch, the cached directory is checked against the version word, which every split
//! increments before it retires the old segment. So a segment that a cached entry names cannot be
//! reused while its reader is pinned; at worst the segment is sealed, which any reader detects.

use super::super::drafts::Drafts;
use super::super::node::NodeRef;
use super::{BUCKET_SLOTS, DirectoryEntry, Entry, SEGMENT_BUCKETS_MAX};
use crate::radix::prefix_list::PrefixList;
use crate::{IndexError, Result};
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::{AllocKind, Pinned};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Words of a descriptor.
pub(crate) const DESCRIPTOR_WORDS: usize = 8;
/// Bytes of a descriptor.
pub(crate) const DESCRIPTOR_BYTES: u64 = DESCRIPTOR_WORDS as u64 * 8;
const TAG: u64 = u64::from_le_bytes(*b"dart-est");
/// Maximum number of directory bits that a table may declare.
const BITS_MAX: u32 = 20;

/// The size of a table's segments, in buckets; a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentSize(usize);

impl SegmentSize {
    /// Rounds `buckets` up to a power of two of at most [`SEGMENT_BUCKETS_MAX`].
    pub(crate) fn new(buckets: u32) -> Self {
        Self((buckets as usize).clamp(1, SEGMENT_BUCKETS_MAX).next_power_of_two())
    }

    /// The size in a descriptor's word; `None` if it is not valid.
    fn from_word(word: u64) -> Option<Self> {
        let is_size = word.is_power_of_two() && word <= SEGMENT_BUCKETS_MAX as u64;
        is_size.then_some(Self(word as usize))
    }

    /// Words of a segment.
    pub(crate) const fn words(self) -> usize {
        self.0 * BUCKET_SLOTS
    }

    /// Bytes of a segment.
    pub(crate) const fn bytes(self) -> u64 {
        self.words() as u64 * 8
    }

    /// The bucket of a hash in its segment.
    #[inline]
    pub(crate) const fn bucket_of(self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.0 - 1)
    }

    /// Maximum number of entries that a fresh segment is sized for. The number of segments is a
    /// power of two, so between 31 and 62 percent of the slots are taken; at 62 percent one entry
    /// in forty finds its bucket full.
    const fn entries(self) -> u64 {
        self.words() as u64 * 5 / 8
    }

    /// Entries that a table of at most this many bytes is sized for.
    pub(crate) fn entries_within(self, bytes: u64) -> u64 {
        let segments = (bytes / self.bytes()).max(1);
        (1 << segments.ilog2()) * self.entries()
    }
}

/// The contents of a table's descriptor.
#[derive(Clone, Copy)]
struct Descriptor {
    list: PrefixList,
    segment: SegmentSize,
    bits: u32,
    directory: GlobalAddr,
    born: u64,
}

impl Descriptor {
    fn words(self) -> [u64; DESCRIPTOR_WORDS] {
        let Self { list, segment, bits, directory, born } = self;
        [TAG, list.word(), bits.into(), directory.bits(), born, segment.0 as u64, 0, 0]
    }

    /// Returns `None` if the words are not a valid descriptor.
    fn from_words(words: [u64; DESCRIPTOR_WORDS]) -> Option<Self> {
        let [tag, list, bits, directory, born, buckets, ..] = words;
        let (list, directory) = (PrefixList::from_word(list), GlobalAddr::from_bits(directory));
        let segment = SegmentSize::from_word(buckets)?;
        let is_table = tag == TAG && bits <= u64::from(BITS_MAX);
        is_table.then_some(Self { list, segment, bits: bits as u32, directory, born })
    }
}

/// A table's location in the pool and its cached directory.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) descriptor: GlobalAddr,
    pub(crate) list: PrefixList,
    pub(crate) bits: u32,
    pub(crate) segment: SegmentSize,
    pub(crate) directory_addr: GlobalAddr,
    /// The epoch in which construction of the table began.
    pub(crate) born: u64,
    /// The version word at the time at which the directory was read.
    pub(crate) version: u64,
    /// The latest pin epoch of any client that found the table current.
    checked: AtomicU64,
    directory: Box<[AtomicU64]>,
    /// Set when a segment was full but could not be split further.
    pub(crate) saturated: AtomicBool,
}

impl Table {
    /// A table that has not been checked yet, with the directory as it was written or read.
    fn new(addr: GlobalAddr, descriptor: Descriptor, version: u64, directory: &[u64]) -> Self {
        let Descriptor { list, segment, bits, directory: directory_addr, born } = descriptor;
        Self {
            descriptor: addr,
            list,
            bits,
            segment,
            directory_addr,
            born,
            version,
            checked: AtomicU64::new(0),
            directory: directory.iter().map(|&word| AtomicU64::new(word)).collect(),
            saturated: AtomicBool::new(false),
        }
    }

    /// Creates an empty table for about `entries` entries, with a directory in which it can double.
    ///
    /// # Errors
    /// Out of space; everything allocated is then freed.
    pub(crate) async fn create<F: Fabric>(
        client: &mut Pinned<'_, F>,
        list: PrefixList,
        segment: SegmentSize,
        entries: u64,
    ) -> Result<Self> {
        let depth = entries.div_ceil(segment.entries()).max(1).next_power_of_two().ilog2();
        let room = client.pool().object_bytes_max().ilog2().saturating_sub(4);
        let ample = if list == PrefixList::NONE { 1 } else { Self::bits_for_pool(client) };
        let bits = (depth + 1).max(ample).min(BITS_MAX).min(room);
        let depth = depth.max(bits.saturating_sub(8)).min(bits);
        let mut drafts = Drafts::new();
        match Self::build(client, &mut drafts, (list, segment), bits, depth).await {
            Ok(table) => {
                drafts.keep();
                Ok(table)
            }
            Err(error) => {
                drafts.discard(client);
                Err(error)
            }
        }
    }

    /// The number of directory bits for the size of the pool: that many segments of the usual size
    /// could take about an eighth of it.
    fn bits_for_pool<F: Fabric>(client: &Pinned<'_, F>) -> u32 {
        let fabric = client.pool().fabric();
        let bytes: u64 = (0..fabric.nodes()).map(|node| fabric.node_bytes(node as u8)).sum();
        (bytes / SegmentSize(SEGMENT_BUCKETS_MAX).bytes() / 64).max(16).ilog2().min(16)
    }

    async fn build<F: Fabric>(
        client: &mut Pinned<'_, F>,
        drafts: &mut Drafts,
        (list, segment): (PrefixList, SegmentSize),
        bits: u32,
        depth: u32,
    ) -> Result<Self> {
        let zeros = vec![0; segment.words()];
        let nodes = client.pool().nodes();
        let segments = 1_usize << depth;
        let mut words = vec![0_u64; 1 << bits];
        for chunk in 0..segments.div_ceil(16) {
            let mut batch = client.batch();
            for at in chunk * 16..segments.min(chunk * 16 + 16) {
                let node = (at % usize::from(nodes)) as u8;
                let addr = drafts.alloc(client, node, segment.bytes(), AllocKind::Inner).await?;
                batch.write(addr, &zeros);
                let entry = DirectoryEntry::new(addr, depth).word();
                words.iter_mut().skip(at).step_by(segments).for_each(|word| *word = entry);
            }
            client.complete(batch).await?;
        }
        let directory = drafts.alloc(client, 0, 8 << bits, AllocKind::Inner).await?;
        let addr = drafts.alloc(client, 0, DESCRIPTOR_BYTES, AllocKind::Inner).await?;
        let descriptor = Descriptor { list, segment, bits, directory, born: client.epoch() };
        let mut batch = client.batch();
        batch.write(directory, &words);
        batch.write(addr, &descriptor.words());
        client.complete(batch).await?;
        Ok(Self::new(addr, descriptor, 0, &words))
    }

    /// Reads a table: its descriptor, then its directory.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`] if the bytes are not a valid descriptor.
    pub(crate) async fn load<F: Fabric>(
        client: &mut Pinned<'_, F>,
        addr: GlobalAddr,
        version: u64,
    ) -> Result<Self> {
        let words = client.read_words(addr).await?;
        let descriptor =
            Descriptor::from_words(words).ok_or(IndexError::corrupt(addr, "no express skip table here"))?;
        let words = client.read(descriptor.directory, 1 << descriptor.bits).await?;
        Ok(Self::new(addr, descriptor, version, &words))
    }

    /// Records that a client pinned at `epoch` has found this table current.
    pub(crate) fn found_current(&self, epoch: u64) {
        self.checked.fetch_max(epoch, Ordering::AcqRel);
    }

    /// The latest pin epoch at which the table was found current.
    pub(crate) fn checked(&self) -> u64 {
        self.checked.load(Ordering::Acquire)
    }

    /// Whether an operation pinned at `epoch` may take hints from the table.
    #[inline]
    pub(crate) fn is_fresh(&self, epoch: u64) -> bool {
        self.checked() >= epoch
    }

    /// The directory index of a hash.
    #[inline]
    pub(crate) fn index(&self, hash: u64) -> usize {
        hash as usize & (self.directory.len() - 1)
    }

    /// The lowest directory index of the other half of the split that created the segment of this
    /// index, according to the cached directory.
    pub(crate) fn other_half(&self, index: usize) -> usize {
        let depth = self.cached(index).local_depth().min(self.bits);
        (index ^ (1 << depth >> 1)) & ((1 << depth) - 1)
    }

    /// The address of a directory entry.
    pub(crate) fn entry_addr(&self, index: usize) -> GlobalAddr {
        self.directory_addr.plus(index as u64 * 8)
    }

    /// The cached directory entry of an index.
    #[inline]
    pub(crate) fn cached(&self, index: usize) -> DirectoryEntry {
        DirectoryEntry::from_word(self.directory[index].load(Ordering::Acquire))
    }

    /// Updates the cached directory at an index.
    pub(crate) fn remember(&self, index: usize, entry: DirectoryEntry) {
        self.directory[index].store(entry.word(), Ordering::Release);
    }

    /// The address of the bucket for a hash, according to the cached directory.
    #[inline]
    pub(crate) fn bucket_addr(&self, hash: u64) -> GlobalAddr {
        self.cached(self.index(hash)).segment().plus((self.segment.bucket_of(hash) * BUCKET_SLOTS * 8) as u64)
    }

    /// Number of directory entries.
    pub(crate) fn directory_len(&self) -> usize {
        self.directory.len()
    }

    /// Whether the table is so much larger than needed for this number of entries that building a
    /// new one is worthwhile.
    pub(crate) fn is_oversized(&self, entries: u64) -> bool {
        let segments: HashSet<u64> = self
            .directory
            .iter()
            .map(|word| DirectoryEntry::from_word(word.load(Ordering::Relaxed)).segment().bits())
            .collect();
        let fresh = 1 << self.bits.saturating_sub(8);
        segments.len() as u64 > fresh.max(entries / self.segment.entries() * 8)
    }

    /// Bytes that this process holds for the table.
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.directory.len() as u64 * 8
    }
}

/// The nodes that a bucket's entries name for a prefix of `len` bytes with this hash.
///
/// A sealed entry is not a hint. It is moving to another segment or was moved long ago, and scrubs
/// clear it there and not here. An unsealed entry was read before any half of its segment was
/// linked, so no scrub of its node had ended.
#[inline]
pub(crate) fn hits(bucket: &[u64], hash: u64, len: usize) -> impl Iterator<Item = NodeRef> + '_ {
    bucket
        .iter()
        .map(|&word| Entry::from_word(word))
        .filter(move |entry| !entry.is_sealed() && entry.matches(hash))
        .filter_map(move |entry| entry.node(len))
}
