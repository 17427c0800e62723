//! The set of objects that an index can reach. Audits and sweeps compare it with the pool's books.
//!
//! Two bits per 16-byte granule, in chunks of 1 MiB of address space that are allocated on first
//! use: one bit says that an object covers the granule, the other that an object begins there. An
//! object ends before the next granule that is uncovered or begins another, so boundaries need no
//! further storage, and the set costs at most a 64th of the bytes it covers plus one chunk per
//! object.

use darter_fabric::GlobalAddr;
use std::collections::BTreeMap;

use super::bits::ones;
use super::size_class::CLASS_BYTES_MAX;

const GRANULE_BYTES: u64 = 16;
const CHUNK_SHIFT: u32 = 20;
const CHUNK_GRANULES: u64 = (1 << CHUNK_SHIFT) / GRANULE_BYTES;
const CHUNK_WORDS: usize = (CHUNK_GRANULES / 64) as usize;

#[derive(Clone, Debug)]
struct Chunk {
    covered: Box<[u64]>,
    starts: Box<[u64]>,
}

impl Chunk {
    fn new() -> Self {
        Self { covered: vec![0; CHUNK_WORDS].into(), starts: vec![0; CHUNK_WORDS].into() }
    }
}

/// Objects by address and length, without overlaps.
#[derive(Clone, Debug, Default)]
pub struct ReachableSet {
    chunks: BTreeMap<u64, Chunk>,
    bytes: u64,
    objects: u64,
}

impl ReachableSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an object of `bytes` bytes, rounded up to 16. Returns `false` and changes nothing if it
    /// overlaps another object, if `addr` is not a multiple of 16, or if no object can have that
    /// length.
    pub fn insert(&mut self, addr: GlobalAddr, bytes: u64) -> bool {
        let Some((first, last)) = granules(addr, bytes) else { return false };
        for (chunk, word, mask) in spans(first, last) {
            if self.chunks.get(&chunk).is_some_and(|c| c.covered[word] & mask != 0) {
                return false;
            }
        }
        for (chunk, word, mask) in spans(first, last) {
            self.chunks.entry(chunk).or_insert_with(Chunk::new).covered[word] |= mask;
        }
        let (chunk, word, bit) = place(first);
        if let Some(chunk) = self.chunks.get_mut(&chunk) {
            chunk.starts[word] |= 1 << bit;
        }
        self.bytes += (last - first + 1) * GRANULE_BYTES;
        self.objects += 1;
        true
    }

    /// Whether an object begins at `addr`.
    pub fn contains(&self, addr: GlobalAddr) -> bool {
        addr.bits().is_multiple_of(GRANULE_BYTES) && self.starts_at(addr.bits() / GRANULE_BYTES)
    }

    /// The length of the object that begins at `addr`, in bytes rounded up to 16.
    pub fn extent(&self, addr: GlobalAddr) -> Option<u64> {
        if !self.contains(addr) {
            return None;
        }
        let first = addr.bits() / GRANULE_BYTES;
        let longest = first + CLASS_BYTES_MAX / GRANULE_BYTES;
        let end = (first + 1..longest).find(|&g| !self.covers(g) || self.starts_at(g)).unwrap_or(longest);
        Some((end - first) * GRANULE_BYTES)
    }

    /// Bytes of all objects, each rounded up to 16.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of objects.
    pub fn objects(&self) -> u64 {
        self.objects
    }

    /// The objects that begin in the `bytes` bytes from `addr`, in address order, with their
    /// lengths in bytes.
    pub fn objects_in(&self, addr: GlobalAddr, bytes: u64) -> impl Iterator<Item = (GlobalAddr, u64)> + '_ {
        let from = addr.bits().div_ceil(GRANULE_BYTES);
        let to = addr.bits().saturating_add(bytes).div_ceil(GRANULE_BYTES).max(from);
        self.chunks
            .range(from / CHUNK_GRANULES..to.div_ceil(CHUNK_GRANULES))
            .flat_map(move |(&index, chunk)| {
                chunk.starts.iter().enumerate().filter(|(_, bits)| **bits != 0).flat_map(
                    move |(word, &bits)| {
                        ones(bits).map(move |bit| index * CHUNK_GRANULES + word as u64 * 64 + bit)
                    },
                )
            })
            .filter(move |granule| (from..to).contains(granule))
            .map(|granule| {
                let addr = GlobalAddr::from_bits(granule * GRANULE_BYTES);
                (addr, self.extent(addr).unwrap_or(GRANULE_BYTES))
            })
    }

    /// Every object, in address order, with its length in bytes.
    pub fn iter(&self) -> impl Iterator<Item = (GlobalAddr, u64)> + '_ {
        self.objects_in(GlobalAddr::NULL, 1 << 48)
    }

    fn covers(&self, granule: u64) -> bool {
        let (chunk, word, bit) = place(granule);
        self.chunks.get(&chunk).is_some_and(|c| c.covered[word] >> bit & 1 == 1)
    }

    fn starts_at(&self, granule: u64) -> bool {
        let (chunk, word, bit) = place(granule);
        self.chunks.get(&chunk).is_some_and(|c| c.starts[word] >> bit & 1 == 1)
    }
}

fn place(granule: u64) -> (u64, usize, u64) {
    (granule / CHUNK_GRANULES, (granule % CHUNK_GRANULES / 64) as usize, granule % 64)
}

fn granules(addr: GlobalAddr, bytes: u64) -> Option<(u64, u64)> {
    let start = addr.bits();
    let fits = bytes > 0
        && bytes <= CLASS_BYTES_MAX
        && start.is_multiple_of(GRANULE_BYTES)
        && addr.offset() + bytes <= darter_fabric::OFFSET_LIMIT;
    fits.then(|| (start / GRANULE_BYTES, (start + bytes - 1) / GRANULE_BYTES))
}

/// The words that granules `first..=last` touch: chunk, word in it, mask.
fn spans(first: u64, last: u64) -> impl Iterator<Item = (u64, usize, u64)> {
    (first / 64..=last / 64).map(move |word| {
        let low = if word == first / 64 { first % 64 } else { 0 };
        let high = if word == last / 64 { last % 64 } else { 63 };
        let mask = (u64::MAX >> (63 - high)) & (u64::MAX << low);
        (word * 64 / CHUNK_GRANULES, (word % CHUNK_WORDS as u64) as usize, mask)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_is_refused_and_neighbours_are_kept_apart() {
        let mut set = ReachableSet::new();
        let at = |offset| GlobalAddr::new(2, offset);
        assert!(set.insert(at(4096), 48));
        assert!(set.insert(at(4144), 16));
        assert!(!set.insert(at(4128), 16));
        assert!(!set.insert(at(4080), 32));
        assert!(!set.insert(at(4097), 16));
        assert!(!set.insert(at(8192), 0));
        assert!(!set.insert(at(0), CLASS_BYTES_MAX + 1));
        assert!(set.contains(at(4096)) && !set.contains(at(4112)) && set.contains(at(4144)));
        assert_eq!((set.extent(at(4096)), set.extent(at(4144))), (Some(48), Some(16)));
        assert_eq!((set.bytes(), set.objects()), (64, 2));
        assert_eq!(set.iter().collect::<Vec<_>>(), vec![(at(4096), 48), (at(4144), 16)]);
        assert_eq!(set.objects_in(at(4097), 4096).count(), 1);
    }

    #[test]
    fn objects_may_span_chunks() {
        let mut set = ReachableSet::new();
        let addr = GlobalAddr::new(0, (1 << 20) - 64);
        assert!(set.insert(addr, (3 << 20) + 128));
        assert_eq!(set.extent(addr), Some((3 << 20) + 128));
        assert!(!set.insert(GlobalAddr::new(0, 2 << 20), 16));
        assert!(set.insert(GlobalAddr::new(0, (4 << 20) + 64), 16));
    }
}
