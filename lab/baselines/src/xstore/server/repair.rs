//! Repair of leaves that a dead server or a failed write left half done.
//!
//! A leaf is repaired from its own words and its right neighbour's low bound:
//!
//! - A torn record in a leaf at rest was being updated: the spare holds the new record.
//! - A leaf in motion keeps each pair that is whole and below the neighbour's low bound once. In
//!   every kind of motion, a pair that is moved stays whole at its old place until it is whole at
//!   the new one.
//! - A leaf that was *going* but is still in the index comes to rest again: it has no pairs.
//! - In a leaf at rest, pointers past the count belong to an insert that did not take effect.

use super::super::leaf::{Bound, Head, Header, KEYS_AT, Leaf, NEW, Pointer, SLOTS, shape_word};
use super::super::record::Record;
use super::super::root::ModelsWord;
use super::super::table::Table;
use super::{Operation, Owner, Span};
use darter_fabric::{Batch, Fabric, GlobalAddr};
use darter_index::{IndexError, Result};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The result of a walk.
#[derive(Debug)]
pub(super) struct Walked {
    /// The leaves' numbers by their low bounds.
    tree: BTreeMap<Vec<u8>, u32>,
    pub(super) keys: u64,
    /// The low bounds of the leaves without keys, except the first leaf's.
    emptied: BTreeSet<Vec<u8>>,
}

impl<F: Fabric> Owner<F> {
    /// Adopts the leaves of a walk as the index's.
    pub(super) fn know(&self, Walked { tree, keys, emptied }: Walked) {
        self.tree().know(tree);
        self.learning.set_keys(keys);
        self.emptied.note_all(emptied);
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Reads which keys belong to the range, walks the leaves, repairs each, and builds the inner
    /// nodes. The previous server's models are abandoned: the sweep reclaims their memory.
    ///
    /// # Errors
    /// [`IndexError::Moved`]; a damaged index; errors of the fabric.
    pub(super) async fn recover(&mut self) -> Result<()> {
        let table = Table::read(&mut self.client, &self.shared.index).await?;
        let at = table.find(self.shared.descriptor.addr).ok_or(self.shared.moved())?;
        let (low, high) = (table.entries[at].low.clone(), table.high(at));
        let low_bytes = self.bound_bytes(&low).await?.unwrap_or_default();
        let high_bytes = self.bound_bytes(&high).await?;
        self.shared.tree().span =
            Some(Span { low: (low.clone(), low_bytes), high: (high.clone(), high_bytes) });
        let words = [self.shared.descriptor.first(), self.shared.descriptor.models()];
        let [first, models] = self.client.read_each(words).await?;
        if ModelsWord::from_word(models).root != 0 {
            self.end_generation().await?;
        }
        let walked = self.walk(first as u32, (low, &high)).await?;
        self.shared.know(walked);
        Ok(())
    }

    /// Walks the leaves from this one on, between these bounds, and repairs each.
    ///
    /// # Errors
    /// A damaged index; errors of the fabric.
    pub(super) async fn walk(&mut self, first: u32, (low, high): (Bound, &Bound)) -> Result<Walked> {
        let (mut tree, mut seen, mut number) = (BTreeMap::new(), HashSet::new(), first);
        let (mut keys, mut emptied) = (0, BTreeSet::new());
        let mut expected = low;
        let mut last = Vec::new();
        while number != 0 {
            let leaf = self.sound_leaf(number).await?;
            let low = self.bound_bytes(&leaf.head.low).await?;
            let low = low.filter(|low| leaf.head.low == expected && (tree.is_empty() || *low > last));
            let low =
                low.filter(|_| seen.insert(number)).ok_or(self.shared.damage("leaves are out of order"))?;
            last.clone_from(&low);
            if leaf.head.counted().is_empty() && !tree.is_empty() {
                emptied.insert(low.clone());
            }
            tree.insert(low, number);
            keys += leaf.head.counted().len() as u64;
            (expected, number) = (leaf.head.high, leaf.head.header.next);
        }
        if tree.is_empty() || expected != *high {
            return Err(self.shared.damage("the last leaf is missing"));
        }
        Ok(Walked { tree, keys, emptied })
    }

    /// Repairs a leaf whose lock the caller holds.
    ///
    /// # Errors
    /// A damaged index; errors of the fabric.
    pub(super) async fn repair(&mut self, number: u32, leaf: &Leaf) -> Result<()> {
        let layout = self.shared.descriptor.layout;
        let Header { count, next, .. } = leaf.head.header;
        if !leaf.head.header.is_moving() && layout.is_inline() {
            return self.repair_records(number, leaf).await;
        }
        let high = if next == 0 { self.shared.high() } else { self.read_leaf(next).await?.head.low };
        let kept = self.kept_slots(leaf, &high).await?;
        let moving = if leaf.head.header.is_moving() {
            leaf.head.header
        } else {
            let moving = leaf.head.header.stepped();
            let word = self.word_of(number, 0);
            self.client.cas(word, leaf.head.header.word(), moving.word()).await?;
            moving
        };
        debug_assert!(kept.len() <= usize::from(count));
        self.finish_motion(number, leaf, moving, &kept, &high).await?;
        // After a split that failed past its linearization point, the right half is not known yet.
        if next != 0
            && let Some(low) = self.bound_bytes(&high).await?
            && !self.shared.tree().by_low.is_empty()
        {
            self.shared.learn_leaf(&low, next);
        }
        Ok(())
    }

    /// Restores torn records of a leaf at rest from the spare.
    async fn repair_records(&mut self, number: u32, leaf: &Leaf) -> Result<()> {
        let layout = self.shared.descriptor.layout;
        let spare = leaf.records[SLOTS].as_ref();
        for slot in (0..leaf.head.counted().len()).filter(|&slot| leaf.record(slot).is_none()) {
            let addr = self.word_of(number, layout.record_at(slot));
            let spare = spare.filter(|spare| spare.key == leaf.head.keys[slot]);
            let spare = spare.ok_or(IndexError::corrupt(addr, "a torn record without a spare of its key"))?;
            let words = spare.words(layout.value_words.into());
            self.client.post(|batch| batch.write(addr, &words)).await?;
        }
        Ok(())
    }

    /// Returns the slots of a leaf that hold whole pairs below a bound, each pair once.
    async fn kept_slots(&mut self, leaf: &Leaf, high: &Bound) -> Result<Vec<usize>> {
        let high = self.bound_bytes(high).await?;
        let (mut kept, mut seen) = (Vec::new(), HashSet::new());
        for (slot, &word) in leaf.head.counted().iter().enumerate() {
            let key = if self.shared.descriptor.layout.is_inline() {
                leaf.record(slot).map(|record| record.key.to_be_bytes().to_vec())
            } else if let Some(pointer) = Pointer::from_word(word).filter(|_| !seen.contains(&word)) {
                Some(self.pair_of(pointer).await?.0)
            } else {
                None
            };
            let is_below = |key: &Vec<u8>| high.as_ref().is_none_or(|high| key < high);
            if key.is_some_and(|key| is_below(&key)) && seen.insert(word) {
                kept.push(slot);
            }
        }
        Ok(kept)
    }

    /// Ends the motion of a leaf whose header is `moving`, in one batch. The leaf keeps the pairs
    /// of these slots, which ascend, and gets this high bound.
    ///
    /// # Errors
    /// A damaged index; errors of the fabric.
    pub(super) async fn finish_motion(
        &mut self,
        number: u32,
        leaf: &Leaf,
        moving: Header,
        kept: &[usize],
        high: &Bound,
    ) -> Result<()> {
        let mut batch = self.client.batch();
        let moved = self.fill_motion(&mut batch, number, leaf, moving, kept, high);
        let done = self.client.submit(batch).await?;
        let is_done = done.swapped(moved);
        self.client.recycle(done);
        if is_done { Ok(()) } else { Err(self.shared.damage("another process wrote a leaf's header")) }
    }

    /// Adds the verbs of [`Operation::finish_motion`] to a batch.
    pub(super) fn fill_motion(
        &self,
        batch: &mut Batch,
        number: u32,
        leaf: &Leaf,
        moving: Header,
        kept: &[usize],
        high: &Bound,
    ) -> darter_fabric::CasId {
        let layout = self.shared.descriptor.layout;
        let at = |word: usize| -> GlobalAddr { self.word_of(number, word) };
        let still = if moving.is_moving() { moving.stepped() } else { moving };
        let still = Header { count: kept.len() as u8, ..still };
        batch.fence();
        if *high != leaf.head.high {
            batch.write(at(3), &[high.word()]);
            batch.write(at(1), &[shape_word(layout, &leaf.head.low, high)]);
        }
        // Fill holes among the first slots with pairs from later slots.
        let mut sources = kept.iter().copied().filter(|&slot| slot >= kept.len());
        for hole in (0..kept.len()).filter(|slot| !kept.contains(slot)) {
            let Some(source) = sources.next() else { break };
            if let Some(record) = leaf.record(source) {
                let placed = Record { version: still.incarnation, ..record.clone() };
                batch.write(at(layout.record_at(hole)), &placed.words(layout.value_words.into()));
            }
            batch.write(at(KEYS_AT + hole), &[leaf.head.keys[source]]);
        }
        if !layout.is_inline() && kept.len() < SLOTS {
            batch.write(at(KEYS_AT + kept.len()), &vec![0; SLOTS - kept.len()]);
        }
        batch.fence().cas(at(0), moving.word(), still.word())
    }
}

/// Returns the head of a new leaf, which is not visible to clients yet.
pub(super) fn new_head(low: Bound, high: Bound, next: u32, keys: &[u64]) -> Head {
    let mut all = [0; SLOTS];
    all[..keys.len()].copy_from_slice(keys);
    Head { header: Header { incarnation: NEW, count: keys.len() as u8, next }, low, high, keys: all }
}
