//! Lookups and scans.
//!
//! The paper has no links between leaves: a scan descends anew for the keys after each leaf's high
//! fence. It ends at the owner's bounds. The published scan returns the rows of a leaf only if its
//! start key is present, and overwrites rows of earlier leaves; this one returns all.

use super::Operation;
use super::cache::{Missing, Step};
use super::node::{Fences, Node};
use super::pages::block_of;
use darter_fabric::Fabric;
use darter_index::radix::leaf as pair;
use darter_index::radix::{TURNS_MAX, no_progress};
use darter_index::{KeyValue, Result, ScanRange};
use std::ops::Bound;

/// READs of a leaf without its lock.
const READS_MAX: u32 = 4;

/// The result of a search.
enum Found {
    /// The leaf of the key.
    Leaf(Node),
    /// The key's word, from a memory node.
    Word(Option<u64>),
}

impl<F: Fabric> Operation<'_, F> {
    /// Returns the value of a key of this owner.
    pub(super) async fn value(&mut self, key: u64) -> Result<Option<Vec<u8>>> {
        match self.word(key).await? {
            Some(word) => Ok(Some(self.value_of(key, word).await?)),
            None => Ok(None),
        }
    }

    /// Returns the word of a key.
    pub(super) async fn word(&mut self, key: u64) -> Result<Option<u64>> {
        Ok(match self.search(key, true).await? {
            Found::Leaf(leaf) => leaf.get(key),
            Found::Word(word) => word,
        })
    }

    /// Returns the value that a word stands for: one round trip if values are in blocks.
    pub(super) async fn value_of(&mut self, key: u64, word: u64) -> Result<Vec<u8>> {
        if !self.shared.has_blocks() {
            return Ok(word.to_le_bytes().to_vec());
        }
        let (addr, class) = block_of(word);
        let words = self.client.read(addr, pair::class_words(class)).await?;
        let held = pair::parse(addr, &words)?;
        if held.key != key.to_be_bytes() {
            return Err(darter_index::IndexError::corrupt(
                addr,
                "the block of a value belongs to another key",
            ));
        }
        Ok(held.value.to_vec())
    }

    async fn search(&mut self, key: u64, may_call: bool) -> Result<Found> {
        for _ in 0..TURNS_MAX {
            let missing = {
                let mut cache = self.cache();
                match cache.descend(key, false) {
                    Step::Leaf(at) => match cache.frame(at) {
                        Some(frame) => return Ok(Found::Leaf(frame.node.clone())),
                        None => continue,
                    },
                    Step::Missing(missing) => missing,
                    Step::Full(_) => continue,
                }
            };
            if missing.level == 0 && !self.admits() {
                // If a client is writing it, wait for the page's lock, and cache it.
                let leaf = self.read_whole(missing.addr, false, READS_MAX).await?;
                if let Some(leaf) = leaf.filter(|leaf| matches(leaf, &missing)) {
                    return Ok(Found::Leaf(leaf));
                }
            } else if may_call
                && self.calls(&missing)
                && let Some(word) = self.call_get(key, &missing).await?
            {
                return Ok(Found::Word(word));
            }
            self.fetch(key, &missing).await?;
        }
        Err(no_progress(self.shared.root))
    }

    /// Returns the first pairs of a range in its direction.
    pub(super) async fn scan(&mut self, range: &ScanRange, limit: usize) -> Result<Vec<KeyValue>> {
        let (mut pairs, part) = (Vec::new(), self.shared.part);
        // Numbers of the first and the last key that may be in the range.
        let first = bound_number(&range.from).map_or(part.first(), |first| first.max(part.first()));
        let last = bound_number(&range.to).map_or(part.high, |last| last.min(part.high));
        let mut at = if range.reverse { last } else { first };
        while first <= last && pairs.len() < limit {
            let Found::Leaf(leaf) = self.search(at, false).await? else { break };
            let inside = leaf.entries().filter(|(key, _)| range.contains(&key.to_be_bytes()));
            let mut rows: Vec<_> = inside.collect();
            if range.reverse {
                rows.reverse();
            }
            for (key, word) in rows.into_iter().take(limit - pairs.len()) {
                pairs.push((key.to_be_bytes().to_vec(), self.value_of(key, word).await?));
            }
            let Fences { low, high } = leaf.fences();
            at = match range.reverse {
                true if low < first || low == 0 => break,
                true => low,
                false if high >= last => break,
                false => high + 1,
            };
        }
        Ok(pairs)
    }
}

/// Returns whether a page is the one that its parent describes.
pub(super) fn matches(node: &Node, missing: &Missing) -> bool {
    node.level() == missing.level && node.fences() == missing.fences
}

/// Returns the number of the first eight bytes of a bound. All keys with smaller numbers are below the
/// bound, and all with greater numbers above it.
fn bound_number(bound: &Bound<Vec<u8>>) -> Option<u64> {
    let (Bound::Included(bytes) | Bound::Excluded(bytes)) = bound else { return None };
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    Some(u64::from_be_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_any_length_have_numbers() {
        let number = |bytes: &[u8]| bound_number(&Bound::Included(bytes.to_vec()));
        assert_eq!(number(b""), Some(0));
        assert_eq!(number(&[1]), Some(1 << 56));
        assert_eq!(number(&[0, 0, 0, 0, 0, 0, 0, 9, 7]), Some(9));
        assert_eq!(bound_number(&Bound::Unbounded), None);
    }
}
