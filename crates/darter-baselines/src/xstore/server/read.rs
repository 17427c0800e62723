//! Scans, a leaf at a time.

use super::super::leaf::{Leaf, Pointer};
use super::super::wire::{self, ANSWER_WORDS, PLAIN_WORDS, Text};
use super::Operation;
use darter_fabric::{Fabric, mutant};
use darter_index::{Result, ScanRange};
use std::ops::Bound as At;

/// A pair of a leaf: key, value, and its blob if it has one.
type Pair = (Vec<u8>, Vec<u8>, Option<Pointer>);

/// Adds a pair to an answer: its blob's name if it is long.
fn add(words: &mut Vec<u64>, (key, value, pointer): &Pair) {
    if let Some(pointer) = pointer.filter(|_| (key.len() + value.len()) / 8 > PLAIN_WORDS) {
        wire::write(words, Some(Text::Blob(pointer.addr(), pointer.class())));
    } else {
        wire::write(words, Some(Text::Plain(key)));
        wire::write(words, Some(Text::Plain(value)));
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// The pairs of a leaf that lie in a range, in its direction.
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

    /// The words of an answer with the first pairs of a range: whether there may be more behind
    /// them, how many they are, and the pairs.
    ///
    /// # Errors
    /// Damage, those of the fabric.
    pub(super) async fn scan(&mut self, range: &ScanRange, limit: u64) -> Result<Vec<u64>> {
        let (mut words, mut count) = (vec![0, 0], 0);
        let mut at = match (if range.reverse { &range.to } else { &range.from }, range.reverse) {
            (At::Unbounded, true) => None,
            (At::Unbounded, false) => Some(Vec::new()),
            (At::Included(key) | At::Excluded(key), _) => Some(key.clone()),
        };
        // In reverse, the low bound of the leaf that was read last.
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
            if at.is_none() && self.shared.bound_behind(&key).is_some() {
                // It is not the last one any more.
                continue;
            }
            let behind = self.shared.bound_behind(&key);
            if let (Some(reached), Some(behind)) = (&reached, &behind)
                && behind < reached
                && !mutant!("xstore-scan-skips-a-split")
            {
                // It has split meanwhile: its right neighbour comes first.
                at = self.shared.last_below(reached);
                continue;
            }
            let mut pairs = self.pairs_of(&leaf, range).await?;
            // A leaf that has taken the place of others begins in front of `key`, or ends behind what
            // was reached.
            pairs.retain(|(pair, ..)| match &reached {
                Some(reached) => pair < reached,
                None => range.reverse || *pair >= key,
            });
            let low = self.bound_bytes(&leaf.head.low).await?.unwrap_or_default();
            drop(guard);
            for pair in &pairs {
                if count == limit || words.len() > ANSWER_WORDS {
                    words[..2].copy_from_slice(&[u64::from(count < limit), count]);
                    return Ok(words);
                }
                add(&mut words, pair);
                count += 1;
            }
            words[1] = count;
            let next = if range.reverse { self.shared.last_below(&low) } else { behind };
            let is_over = |next: &Vec<u8>| match (&range.from, &range.to) {
                _ if count == limit => true,
                (_, At::Included(to) | At::Excluded(to)) if !range.reverse => next > to,
                (At::Included(from) | At::Excluded(from), _) if range.reverse => low <= *from,
                _ => false,
            };
            match next.filter(|next| !is_over(next)) {
                Some(next) => at = Some(next),
                None => return Ok(words),
            }
            reached = range.reverse.then_some(low);
        }
    }
}
