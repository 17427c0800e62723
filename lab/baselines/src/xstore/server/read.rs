//! Scans, one leaf at a time.

use super::super::leaf::{Leaf, Pointer};
use super::super::wire::{self, ANSWER_WORDS, PLAIN_WORDS, SCAN_ENDED, SCAN_MORE, SCAN_OVER, Text};
use super::{Operation, Owner};
use darter_fabric::Fabric;
use darter_index::{Result, ScanRange};
use std::ops::Bound as At;

/// A pair of a leaf: key, value, and its blob if it has one.
type Pair = (Vec<u8>, Vec<u8>, Option<Pointer>);

/// Adds a pair to a reply; a pair with a blob is added as the blob's name if it is long.
fn add(words: &mut Vec<u64>, (key, value, pointer): &Pair) {
    if let Some(pointer) = pointer.filter(|_| (key.len() + value.len()) / 8 > PLAIN_WORDS) {
        wire::write(words, Some(Text::Blob(pointer.addr(), pointer.class())));
    } else {
        wire::write(words, Some(Text::Plain(key)));
        wire::write(words, Some(Text::Plain(value)));
    }
}

impl<F: Fabric> Owner<F> {
    /// Returns whether a range begins, in its direction, among this server's keys.
    fn begins_here(&self, range: &ScanRange) -> bool {
        let tree = self.tree();
        let Some(span) = &tree.span else { return false };
        let (low, high) = (&span.low.1, span.high.1.as_ref());
        match (if range.reverse { &range.to } else { &range.from }, range.reverse) {
            (At::Unbounded, true) => high.is_none(),
            (At::Unbounded, false) => low.is_empty(),
            (At::Excluded(key), true) => {
                // Nothing is below all keys: the first range handles that case.
                (key > low || low.is_empty()) && high.is_none_or(|high| key <= high)
            }
            (At::Included(key) | At::Excluded(key), _) => span.has(key),
        }
    }

    /// Returns whether this server's keys end at a key.
    fn ends_at(&self, key: &[u8]) -> bool {
        self.tree().span.as_ref().is_some_and(|span| span.high.1.as_deref() == Some(key))
    }

    /// Returns the bound at which this server's keys end, in the range's direction, unless the
    /// range ends first.
    fn ends_before(&self, range: &ScanRange) -> Option<Vec<u8>> {
        let tree = self.tree();
        let span = tree.span.as_ref()?;
        if range.reverse {
            let low = &span.low.1;
            let goes_on = match &range.from {
                At::Unbounded => true,
                At::Included(from) | At::Excluded(from) => from < low,
            };
            return (goes_on && !low.is_empty()).then(|| low.clone());
        }
        span.high.1.clone().filter(|high| match &range.to {
            At::Unbounded => true,
            At::Included(to) => to >= high,
            At::Excluded(to) => to > high,
        })
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Returns the pairs of a leaf that are in a range, in its direction.
    async fn pairs_of(&mut self, leaf: &Leaf, range: &ScanRange) -> Result<Vec<Pair>> {
        let mut pairs = Vec::new();
        for (slot, &word) in leaf.head.counted().iter().enumerate() {
            if let Some(record) = leaf.record(slot) {
                pairs.push((record.key.to_be_bytes().to_vec(), record.value.clone(), None));
            } else if let Some(pointer) = Pointer::from_word(word) {
                let (key, value) = self.pair_of(pointer).await?;
                pairs.push((key, value, Some(pointer)));
            }
        }
        pairs.retain(|(key, ..)| range.contains(key));
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        if range.reverse {
            pairs.reverse();
        }
        Ok(pairs)
    }

    /// Returns the words of a reply with the first pairs of a range: whether more follow, the
    /// number of pairs, the pairs, and, if the range continues past this server's keys, the bound
    /// of these keys.
    ///
    /// # Errors
    /// [`IndexError::Moved`] if the range begins among another server's keys; a damaged index;
    /// errors of the fabric.
    ///
    /// [`IndexError::Moved`]: darter_index::IndexError::Moved
    pub(super) async fn scan(&mut self, range: &ScanRange, limit: u64) -> Result<Vec<u64>> {
        let (mut words, mut count) = (vec![0, 0], 0);
        let mut at = match (if range.reverse { &range.to } else { &range.from }, range.reverse) {
            (At::Unbounded, true) => None,
            // All keys of the range are below the end of this server's keys.
            (At::Excluded(key), true) if self.shared.ends_at(key) => None,
            (At::Unbounded, false) => Some(Vec::new()),
            (At::Included(key) | At::Excluded(key), _) => Some(key.clone()),
        };
        // In reverse, the low bound of the last leaf read.
        let mut reached: Option<Vec<u8>> = None;
        loop {
            let key = match &at {
                Some(key) => key.clone(),
                // The last leaf's low bound.
                None => {
                    self.shared.tree().by_low.last_key_value().map(|(low, _)| low.clone()).unwrap_or_default()
                }
            };
            let (guard, _, leaf) = self.lock_leaf(&key).await?;
            if reached.is_none() && !self.shared.begins_here(range) {
                return Err(self.shared.moved());
            }
            if at.is_none() && self.shared.bound_behind(&key).is_some() {
                // It is no longer the last leaf.
                continue;
            }
            let behind = self.shared.bound_behind(&key);
            if let (Some(reached), Some(behind)) = (&reached, &behind)
                && behind < reached
            {
                // It has split in between: its right neighbour comes first.
                at = self.shared.last_below(reached);
                continue;
            }
            let mut pairs = self.pairs_of(&leaf, range).await?;
            // A leaf that has replaced others may begin before `key`, or end after `reached`.
            pairs.retain(|(pair, ..)| match &reached {
                Some(reached) => pair < reached,
                None => range.reverse || *pair >= key,
            });
            let low = self.bound_bytes(&leaf.head.low).await?.unwrap_or_default();
            let ended = self.shared.ends_before(range);
            drop(guard);
            for pair in &pairs {
                if count == limit || words.len() > ANSWER_WORDS {
                    let behind = if count < limit { SCAN_MORE } else { SCAN_OVER };
                    words[..2].copy_from_slice(&[behind, count]);
                    return Ok(words);
                }
                add(&mut words, pair);
                count += 1;
            }
            words[1] = count;
            let next = if range.reverse { self.shared.last_below(&low) } else { behind };
            let has_ended = |next: &Vec<u8>| match (&range.from, &range.to) {
                _ if count == limit => true,
                (_, At::Included(to) | At::Excluded(to)) if !range.reverse => next > to,
                (At::Included(from) | At::Excluded(from), _) if range.reverse => low <= *from,
                _ => false,
            };
            let next_is_none = next.is_none();
            let Some(next) = next.filter(|next| !has_ended(next)) else {
                if let Some(bound) = ended.filter(|_| next_is_none && count < limit) {
                    words[0] = SCAN_ENDED;
                    wire::write(&mut words, Some(Text::Plain(&bound)));
                }
                return Ok(words);
            };
            at = Some(next);
            reached = range.reverse.then_some(low);
        }
    }
}
