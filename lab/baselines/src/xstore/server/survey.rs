//! What training reads of leaves: headers and keys, without locks. Torn words make a worse model
//! but never a wrong result.

use super::super::leaf::{HEAD_WORDS, Head, Pointer};
use super::super::model::{LeafView, last_below, least_key, model_key};
use super::{Operation, Owner};
use darter_fabric::{Batch, Fabric, ReadId};
use darter_index::radix::leaf::key_place;
use darter_index::{IndexError, Result};
use std::ops::Bound as At;

/// Number of leaves read in one round trip.
const LEAVES: usize = 128;
/// Number of words read of a blob: its lengths, and the part of its key that models use.
const BLOB_WORDS: usize = 3;

/// A leaf to read.
#[derive(Debug)]
struct Place {
    number: u32,
    bytes: Vec<u8>,
    low: u64,
    high: u64,
}

/// The words read of a leaf.
#[derive(Debug)]
pub(super) struct Seen {
    number: u32,
    incarnation: u32,
    keys: Vec<u64>,
    low: u64,
    high: u64,
}

impl Seen {
    pub(super) fn view(&self) -> LeafView<'_> {
        let Self { number, incarnation, low, high, .. } = *self;
        LeafView { number, incarnation, keys: &self.keys, low, high }
    }

    pub(super) fn count(&self) -> u64 {
        self.keys.len() as u64
    }
}

impl<F: Fabric> Owner<F> {
    /// Returns the leaves from the one of a key on that can have a model key up to `last`, and the
    /// low bound of the next leaf if there are too many.
    fn places(&self, from: &[u8], last: u64) -> (Vec<Place>, Option<Vec<u8>>) {
        let tree = self.tree();
        let first = tree.by_low.range::<[u8], _>((At::Unbounded, At::Included(from))).next_back();
        // Keys below all leaves belong to another server.
        let first = first.or_else(|| tree.by_low.iter().next());
        let Some((first, _)) = first else { return (Vec::new(), None) };
        let mut leaves = tree.by_low.range::<[u8], _>((At::Included(&first[..]), At::Unbounded)).peekable();
        let mut places = Vec::new();
        while let Some((bytes, &number)) = leaves.next() {
            let low = model_key(bytes);
            if low > last {
                break;
            }
            if places.len() == LEAVES {
                return (places, Some(bytes.clone()));
            }
            let high = last_below(leaves.peek().map(|(high, _)| &high[..]));
            places.push(Place { number, bytes: bytes.clone(), low, high });
        }
        (places, None)
    }

    /// Returns the number of leaves that can have model keys of an interval, if at most `max`.
    pub(super) fn count_leaves(&self, (first, last): (u64, u64), max: usize) -> usize {
        let (bytes, length) = least_key(first);
        let tree = self.tree();
        let behind = tree.by_low.range::<[u8], _>((At::Excluded(&bytes[..length]), At::Unbounded));
        behind.take(max).take_while(|(low, _)| model_key(low) <= last).count() + 1
    }

    /// Returns keys to train the top model, in order, with their positions, and the number of
    /// positions. The keys are the bounds between leaves.
    pub(super) fn sample(&self) -> (Vec<(u64, u64)>, u64) {
        let tree = self.tree();
        let bounds = tree.by_low.keys().zip(0..).skip(1);
        (bounds.map(|(low, at)| (model_key(low), at)).collect(), tree.by_low.len() as u64)
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Reads the leaves from the one of a key on that can have a model key up to `last`. Also
    /// returns the low bound of the next leaf if there are too many.
    ///
    /// # Errors
    /// A damaged index; errors of the fabric.
    pub(super) async fn survey(&mut self, from: &[u8], last: u64) -> Result<(Vec<Seen>, Option<Vec<u8>>)> {
        let (places, next) = self.shared.places(from, last);
        let layout = self.shared.descriptor.layout;
        let mut batch = self.client.batch();
        let reads: Vec<ReadId> =
            places.iter().map(|place| batch.read(self.word_of(place.number, 0), HEAD_WORDS)).collect();
        let mut heads = Vec::with_capacity(places.len());
        {
            let done = self.client.complete(batch).await?;
            heads.extend(reads.iter().map(|&read| Head::parse(layout, done.words(read))));
        }
        let mut sound = Vec::with_capacity(places.len());
        for (place, head) in places.into_iter().zip(heads) {
            let addr = self.shared.descriptor.leaf(place.number);
            let head = head.ok_or(IndexError::corrupt(addr, "not a leaf of the index"))?;
            if head.header.is_moving() {
                let (_guard, number, leaf) = self.lock_leaf(&place.bytes).await?;
                sound.push((Place { number, ..place }, leaf.head));
            } else {
                sound.push((place, head));
            }
        }
        let keys = self.model_keys(&sound).await?;
        let seen = sound.into_iter().zip(keys).map(|((place, head), mut keys)| {
            keys.sort_unstable();
            let Place { number, low, high, .. } = place;
            Seen { number, incarnation: head.header.incarnation, keys, low, high }
        });
        Ok((seen.collect(), next))
    }

    /// The model keys of leaves.
    async fn model_keys(&mut self, leaves: &[(Place, Head)]) -> Result<Vec<Vec<u64>>> {
        if self.shared.descriptor.layout.is_inline() {
            return Ok(leaves.iter().map(|(_, head)| head.counted().to_vec()).collect());
        }
        let mut batch: Batch = self.client.batch();
        let mut reads = Vec::with_capacity(leaves.len());
        for (_, head) in leaves {
            let pointers = head.counted().iter().filter_map(|&word| Pointer::from_word(word));
            reads.push(
                pointers
                    .map(|pointer| batch.read(pointer.addr(), BLOB_WORDS.min(pointer.words())))
                    .collect::<Vec<_>>(),
            );
        }
        let done = self.client.complete(batch).await?;
        let key_of = |read: &ReadId| {
            let words = done.words(*read);
            let (first, length) = key_place(words).unwrap_or_default();
            let seen = words.get(first / 8).copied().unwrap_or(0).to_le_bytes();
            model_key(&seen[..length.min(8)])
        };
        Ok(reads.iter().map(|reads| reads.iter().map(key_of).collect()).collect())
    }

    /// Reads all leaves that can have model keys of an interval.
    ///
    /// # Errors
    /// A damaged index; errors of the fabric.
    pub(super) async fn survey_interval(&mut self, (first, last): (u64, u64)) -> Result<Vec<Seen>> {
        let (bytes, length) = least_key(first);
        let (mut all, mut next) = (Vec::new(), Some(bytes[..length].to_vec()));
        while let Some(from) = next {
            let (seen, behind) = self.survey(&from, last).await?;
            all.extend(seen);
            next = behind;
        }
        Ok(all)
    }
}
