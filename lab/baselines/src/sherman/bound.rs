//! Bounds: the keys that separate nodes, in fences and between children.
//!
//! A bound is the shortest key that separates its neighbours, usually a few bytes. A bound of up to
//! 64 bytes is stored in its node. A longer one is stored in a separate block, and the node holds
//! its first 32 bytes, which usually decide a comparison:
//!
//! ```text
//! long bound   word 0: length - 1, 16 | address of the block, 48     words 1..5: the first 32 bytes
//! ```
//!
//! A code of one byte encodes how it is stored: its length, or that it is long.

use super::format::SHORT_MAX;
use darter_fabric::{Batch, Fabric, GlobalAddr, ReadId};
use darter_index::radix::common_prefix;
use darter_index::radix::drafts::Drafts;
use darter_index::{IndexError, Result};
use darter_pool::{AllocKind, Client, Pinned};
use smallvec::SmallVec;
use std::cmp::Ordering;

/// Leading bytes of a long bound that its node holds.
const HEAD_BYTES: usize = 32;
/// Bytes of a long bound in a node; also its code.
const LONG_BYTES: usize = 8 + HEAD_BYTES;
const LONG: u8 = u8::MAX;

/// A bound as stored in a node, with the bytes that are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// All bytes, or the first 32 of a long bound not fetched yet.
    bytes: SmallVec<[u8; 16]>,
    /// The length of the whole bound.
    len: usize,
    /// The block of a long bound.
    block: GlobalAddr,
}

impl Bound {
    /// Returns the least bound.
    pub(crate) fn least() -> Self {
        Self::short(&[])
    }

    /// Creates a bound without a block, as bounds of at most 64 bytes have none.
    pub(crate) fn short(key: &[u8]) -> Self {
        Self { bytes: SmallVec::from_slice(key), len: key.len(), block: GlobalAddr::NULL }
    }

    fn is_long(&self) -> bool {
        self.len > SHORT_MAX
    }

    /// Returns all its bytes; `None` while some are unknown.
    pub(crate) fn whole(&self) -> Option<&[u8]> {
        (self.bytes.len() == self.len).then_some(&self.bytes[..])
    }

    /// Returns all its bytes, which [`fetch`] has loaded.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Compares a key with it; `None` if that needs bytes that are not known yet.
    pub(crate) fn place(&self, key: &[u8]) -> Option<Ordering> {
        if self.whole().is_some() {
            return Some(key.cmp(&self.bytes));
        }
        let shared = common_prefix(key, &self.bytes);
        if shared == self.bytes.len() {
            return None;
        }
        Some(if shared == key.len() { Ordering::Less } else { key[shared].cmp(&self.bytes[shared]) })
    }

    /// Returns the code of how it is stored.
    pub(crate) fn code(&self) -> u8 {
        if self.is_long() { LONG } else { self.len as u8 }
    }

    /// Returns the bytes that a bound of this code takes in a node; `None` if the code is invalid.
    pub(crate) fn stored_bytes(code: u8) -> Option<usize> {
        match code {
            LONG => Some(LONG_BYTES),
            len if usize::from(len) <= SHORT_MAX => Some(usize::from(len)),
            _ => None,
        }
    }

    /// Appends its stored form in a node.
    pub(crate) fn store(&self, out: &mut Vec<u8>) {
        if self.is_long() {
            let word = self.block.bits() | (self.len as u64 - 1) << 48;
            out.extend_from_slice(&word.to_le_bytes());
            out.extend_from_slice(&self.bytes[..HEAD_BYTES]);
        } else {
            out.extend_from_slice(&self.bytes);
        }
    }

    /// Decodes a bound; `None` if the code is invalid or `stored` is too short.
    pub(crate) fn parse(code: u8, stored: &[u8]) -> Option<Self> {
        let stored = stored.get(..Self::stored_bytes(code)?)?;
        if code != LONG {
            let bytes = SmallVec::from_slice(stored);
            return Some(Self { len: bytes.len(), bytes, block: GlobalAddr::NULL });
        }
        let word = u64::from_le_bytes(*stored.first_chunk()?);
        let len = (word >> 48) as usize + 1;
        let bytes = SmallVec::from_slice(&stored[8..]);
        (len > SHORT_MAX).then_some(Self { bytes, len, block: GlobalAddr::from_bits(word) })
    }

    fn block_bytes(len: usize) -> u64 {
        len.next_multiple_of(8) as u64
    }

    /// Creates a bound for a new node. A long bound gets a block, recorded in `fresh`, whose WRITE
    /// is added to `batch`.
    ///
    /// # Errors
    /// Errors of the pool.
    pub(crate) async fn make<F: Fabric>(
        client: &mut Client<F>,
        fresh: &mut Drafts,
        batch: &mut Batch,
        key: &[u8],
    ) -> Result<Self> {
        let mut bound = Self::short(key);
        if bound.is_long() {
            let bytes = Self::block_bytes(key.len());
            bound.block = fresh.alloc(client, 0, bytes, AllocKind::Leaf).await?;
            let mut padded = key.to_vec();
            padded.resize(bytes as usize, 0);
            batch.write_bytes(bound.block, &padded);
        }
        Ok(bound)
    }

    /// Retires its block: its node no longer has it, and the change is published.
    pub(crate) fn retire<F: Fabric>(&self, client: &mut Pinned<'_, F>) {
        if let Some((addr, bytes)) = self.object() {
            client.retire(addr, bytes, AllocKind::Leaf);
        }
    }

    /// Returns the block of a long bound, with its size in bytes.
    pub(crate) fn object(&self) -> Option<(GlobalAddr, u64)> {
        self.is_long().then(|| (self.block, Self::block_bytes(self.len)))
    }

    /// Posts a READ of the bytes still unknown.
    pub(crate) fn post(&self, batch: &mut Batch) -> Option<ReadId> {
        let (addr, bytes) = self.object().filter(|_| self.whole().is_none())?;
        Some(batch.read(addr, bytes as usize / 8))
    }

    /// Processes the result of that READ.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`].
    pub(crate) fn absorb(&mut self, words: &[u64]) -> Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(words);
        let whole = bytes.get(..self.len).filter(|whole| whole.starts_with(&self.bytes));
        let Some(whole) = whole else {
            return Err(IndexError::corrupt(self.block, "a bound does not match the bytes in its node"));
        };
        self.bytes = SmallVec::from_slice(whole);
        Ok(())
    }
}

/// Fetches the unknown bytes of some bounds, in one round trip if there are any.
///
/// # Errors
/// [`IndexError::Corrupt`]; errors of the fabric.
pub(crate) async fn fetch<F: Fabric>(
    client: &mut Client<F>,
    bounds: impl Iterator<Item = &mut Bound>,
) -> Result<()> {
    let mut unknown: Vec<&mut Bound> = bounds.filter(|bound| bound.whole().is_none()).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let mut batch = client.batch();
    let reads: Vec<_> = unknown.iter().map(|bound| bound.post(&mut batch)).collect();
    let done = client.submit(batch).await?;
    for (bound, read) in unknown.iter_mut().zip(reads) {
        if let Some(read) = read {
            bound.absorb(done.words(read))?;
        }
    }
    client.recycle(done);
    Ok(())
}

/// Returns the shortest key above `below` that is not above `above`; `below < above`.
pub(crate) fn separator<'a>(below: &[u8], above: &'a [u8]) -> &'a [u8] {
    &above[..(common_prefix(below, above) + 1).min(above.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_survive_storing_and_part_their_neighbours() {
        for (below, above) in [(&b""[..], &b"a"[..]), (b"ab", b"abc"), (b"a\xff", b"b"), (b"axx", b"ay\0")] {
            let parts = separator(below, above);
            assert!(below < parts && parts <= above, "{parts:?}");
        }
        let key: Vec<u8> = (0..100).collect();
        let long = Bound { bytes: SmallVec::from_slice(&key), len: 100, block: GlobalAddr::new(1, 64) };
        let mut stored = Vec::new();
        long.store(&mut stored);
        assert_eq!(stored.len(), LONG_BYTES);
        let mut parsed = Bound::parse(long.code(), &stored).unwrap();
        assert_eq!(parsed.place(b"\x00\x02"), Some(Ordering::Greater));
        assert_eq!(parsed.place(&key[..20]), Some(Ordering::Less));
        assert_eq!(parsed.place(&key), None);
        let mut words = key.clone();
        words.resize(104, 0);
        parsed
            .absorb(bytemuck::cast_slice::<[u8; 8], u64>(
                &words.chunks_exact(8).map(|c| <[u8; 8]>::try_from(c).unwrap()).collect::<Vec<_>>(),
            ))
            .unwrap();
        assert_eq!(parsed, long);
        assert_eq!(parsed.place(&key), Some(Ordering::Equal));
        assert!(Bound::parse(LONG, &stored[1..]).is_none());
    }
}
