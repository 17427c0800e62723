//! Puts, deletes and splits.

use super::super::leaf::{Bound, HEAD_WORDS, Header, KEYS_AT, Leaf, NEW, Pointer, SLOTS, key_hash};
use super::super::record::Record;
use super::Operation;
use super::repair::new_head;
use crate::sherman::bound::separator;
use darter_fabric::{Batch, Fabric};
use darter_index::radix::drafts::Drafts;
use darter_index::radix::leaf as pair;
use darter_index::{Condition, IndexError, PutOutcome, Result, check_key};
use darter_pool::AllocKind;
use darter_pool::size_class::class_bytes;

/// Returns the key of an inline leaf as a number.
///
/// # Errors
/// [`IndexError::WrongLength`].
pub(super) fn key_number(key: &[u8]) -> Result<u64> {
    let bytes = key.try_into().map_err(|_| super::super::wrong_key(key))?;
    Ok(u64::from_be_bytes(bytes))
}

/// A pair found in a leaf.
struct Found {
    slot: usize,
    value: Vec<u8>,
}

impl<F: Fabric> Operation<'_, F> {
    /// Searches for a key in a leaf whose lock the caller holds.
    async fn find(&mut self, leaf: &Leaf, key: &[u8]) -> Result<Option<Found>> {
        let keys = leaf.head.counted().iter().enumerate();
        if self.shared.descriptor.layout.is_inline() {
            let number = key_number(key)?;
            let slot = keys.filter(|&(_, word)| *word == number).map(|(slot, _)| slot).next();
            let record = slot.and_then(|slot| Some((slot, leaf.record(slot)?)));
            return Ok(record.map(|(slot, record)| Found { slot, value: record.value.clone() }));
        }
        let hash = key_hash(key);
        for (slot, &word) in keys {
            let Some(pointer) = Pointer::from_word(word).filter(|pointer| pointer.may_be(hash)) else {
                continue;
            };
            let (held, value) = self.pair_of(pointer).await?;
            if held == key {
                return Ok(Some(Found { slot, value }));
            }
        }
        Ok(None)
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// A damaged index; errors of the fabric.
    pub(super) async fn value_of(&mut self, key: &[u8]) -> Result<Option<(Vec<u8>, Option<Pointer>)>> {
        let (_guard, _, leaf) = self.lock_leaf(key).await?;
        let Some(Found { slot, value }) = self.find(&leaf, key).await? else { return Ok(None) };
        let is_inline = self.shared.descriptor.layout.is_inline();
        let pointer = if is_inline { None } else { Pointer::from_word(leaf.head.keys[slot]) };
        Ok(Some((value, pointer)))
    }

    /// Rejects a pair that is too large for the index. Clients check this too, but the caller may
    /// be no client.
    fn check_pair(&self, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        let layout = self.shared.descriptor.layout;
        if !layout.is_inline() {
            return Ok(());
        }
        key_number(key)?;
        self.check_value(value)
    }

    /// Rejects a value that is too large for an inline leaf.
    fn check_value(&self, value: &[u8]) -> Result<()> {
        let (bytes, max) = (value.len(), usize::from(self.shared.descriptor.layout.value_words) * 8);
        let fits = bytes <= max;
        if fits { Ok(()) } else { Err(IndexError::ValueTooLong { bytes, max }) }
    }

    /// Stores a pair if the condition holds. The key may be in the leaf of number `hint`.
    ///
    /// # Errors
    /// Out of space, with nothing changed; a damaged index; errors of the fabric.
    pub(super) async fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
        hint: u32,
    ) -> Result<PutOutcome> {
        self.check_pair(key, value)?;
        loop {
            let (_guard, number, leaf) = self.lock_hinted(key, hint).await?;
            let found = self.find(&leaf, key).await?;
            if !condition.holds_for(found.as_ref().map(|found| &found.value[..])) {
                return Ok(PutOutcome::Refused);
            }
            match found {
                Some(found) => {
                    self.update(number, &leaf, found.slot, key, value).await?;
                    return Ok(PutOutcome::Replaced);
                }
                None if leaf.head.counted().len() < SLOTS => {
                    self.insert(number, &leaf, key, value).await?;
                    return Ok(PutOutcome::Inserted);
                }
                None => self.split(number, &leaf).await?,
            }
        }
    }

    /// Writes a pair's blob, which is not linked yet.
    async fn write_blob(&mut self, drafts: &mut Drafts, key: &[u8], value: &[u8]) -> Result<Pointer> {
        let class = pair::class_within(self.client.pool().object_bytes_max(), key.len(), value.len())?;
        let node = self.shared.descriptor.node;
        let addr = drafts.alloc(&mut self.client, node, class_bytes(class), AllocKind::Leaf).await?;
        let words = pair::image(key, value);
        self.client.post(|batch| batch.write(addr, &words)).await?;
        Ok(Pointer::new(addr, class, key_hash(key)))
    }

    fn record_for(&self, key: &[u8], value: &[u8], version: u32) -> Result<Record> {
        self.check_value(value)?;
        Ok(Record { key: key_number(key)?, version, value: value.to_vec() })
    }

    /// Replaces the value in a slot (rule X5).
    async fn update(
        &mut self,
        number: u32,
        leaf: &Leaf,
        slot: usize,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let layout = self.shared.descriptor.layout;
        if layout.is_inline() {
            let version = leaf.record(slot).map_or(leaf.head.header.incarnation, |record| record.version);
            let words = self.record_for(key, value, version)?.words(layout.value_words.into());
            let (spare, place) = (layout.record_at(SLOTS), layout.record_at(slot));
            let (spare, place) = (self.word_of(number, spare), self.word_of(number, place));
            let fill = |batch: &mut Batch| {
                batch.write(spare, &words);
                batch.write(place, &words);
            };
            return Ok(self.client.post(fill).await?);
        }
        let mut drafts = Drafts::new();
        let new = self.write_blob(&mut drafts, key, value).await?;
        let word = self.word_of(number, KEYS_AT + slot);
        self.client.post(|batch| batch.write(word, &[new.word()])).await?;
        drafts.keep();
        if let Some(old) = Pointer::from_word(leaf.head.keys[slot]) {
            self.client.retire(old.addr(), old.bytes(), AllocKind::Leaf);
        }
        Ok(())
    }

    /// Appends a pair (rule X3): record, key, count.
    async fn insert(&mut self, number: u32, leaf: &Leaf, key: &[u8], value: &[u8]) -> Result<()> {
        let layout = self.shared.descriptor.layout;
        let header = leaf.head.header;
        let slot = usize::from(header.count);
        let (mut drafts, mut record) = (Drafts::new(), None);
        let word = if layout.is_inline() {
            let placed = self.record_for(key, value, header.incarnation)?;
            record.insert(placed).key
        } else {
            self.write_blob(&mut drafts, key, value).await?.word()
        };
        let counted = Header { count: header.count + 1, ..header };
        let mut batch = self.client.batch();
        if let Some(record) = record {
            let at = self.word_of(number, layout.record_at(slot));
            batch.write(at, &record.words(layout.value_words.into()));
        }
        batch.write(self.word_of(number, KEYS_AT + slot), &[word]);
        batch.fence().cas(self.word_of(number, 0), header.word(), counted.word());
        self.client.complete(batch).await?;
        drafts.keep();
        self.shared.learning.count_insert();
        Ok(())
    }

    /// Removes a key if the condition holds (rule X4); returns whether it removed it.
    ///
    /// # Errors
    /// A damaged index; errors of the fabric.
    pub(super) async fn delete(&mut self, key: &[u8], condition: Condition<'_>) -> Result<bool> {
        let (_guard, number, leaf) = self.lock_leaf(key).await?;
        let Some(found) = self.find(&leaf, key).await? else { return Ok(false) };
        if !condition.holds_for(Some(&found.value)) {
            return Ok(false);
        }
        let count = leaf.head.counted().len();
        let kept: Vec<usize> = (0..count).filter(|&slot| slot != found.slot).collect();
        let header = leaf.head.header;
        self.change(number, &leaf, header.stepped(), &kept, &leaf.head.high).await?;
        self.shared.learning.count_delete();
        if kept.is_empty() {
            self.shared.note_emptied(key);
        }
        let is_inline = self.shared.descriptor.layout.is_inline();
        if let Some(old) = Pointer::from_word(leaf.head.keys[found.slot]).filter(|_| !is_inline) {
            self.client.retire(old.addr(), old.bytes(), AllocKind::Leaf);
        }
        Ok(true)
    }

    /// Performs a whole motion of a leaf whose lock the caller holds (rule X2), in one batch.
    pub(super) async fn change(
        &mut self,
        number: u32,
        leaf: &Leaf,
        moving: Header,
        kept: &[usize],
        high: &Bound,
    ) -> Result<()> {
        let mut batch = self.client.batch();
        let begun = batch.cas(self.word_of(number, 0), leaf.head.header.word(), moving.word());
        let ended = self.fill_motion(&mut batch, number, leaf, moving, kept, high);
        let done = self.client.submit(batch).await?;
        let is_done = done.swapped(begun) && done.swapped(ended);
        self.client.recycle(done);
        if !is_done {
            return Err(self.shared.damage("another process wrote a leaf's header"));
        }
        let still = moving.stepped();
        if still.incarnation < moving.incarnation {
            // The counter has wrapped: incarnations known from before are meaningless now.
            self.bump_generation().await?;
        }
        Ok(())
    }

    /// Moves the upper half of a full leaf into a new leaf to its right (rule X2).
    async fn split(&mut self, number: u32, leaf: &Leaf) -> Result<()> {
        let mut drafts = Drafts::new();
        let made = self.split_with(&mut drafts, number, leaf).await;
        if made.as_ref().is_err_and(IndexError::is_out_of_space) {
            drafts.discard(&mut self.client);
        }
        made
    }

    async fn split_with(&mut self, drafts: &mut Drafts, number: u32, leaf: &Leaf) -> Result<()> {
        let super::Descriptor { layout, node, .. } = self.shared.descriptor;
        let mut sorted = Vec::with_capacity(SLOTS);
        for (slot, &word) in leaf.head.counted().iter().enumerate() {
            let key = match Pointer::from_word(word).filter(|_| !layout.is_inline()) {
                Some(pointer) => self.pair_of(pointer).await?.0,
                None => word.to_be_bytes().to_vec(),
            };
            sorted.push((key, slot));
        }
        sorted.sort();
        let half = sorted.len() / 2;
        let parts = separator(&sorted[half - 1].0, &sorted[half].0).to_vec();
        let bound = if parts.len() <= 8 {
            Bound::Short(parts.clone())
        } else {
            let pointer = self.write_blob(drafts, &parts, &[]).await?;
            Bound::Blob(pointer.addr(), pointer.class())
        };
        let right = super::super::descriptor::alloc_leaf(&mut self.client, drafts, node, layout).await?;
        let (left, upper) = sorted.split_at(half);
        let keys: Vec<u64> = upper.iter().map(|&(_, slot)| leaf.head.keys[slot]).collect();
        let records: Option<Vec<Record>> = upper
            .iter()
            .map(|&(_, slot)| Some(Record { version: NEW, ..leaf.record(slot)?.clone() }))
            .collect();
        let head = new_head(bound.clone(), leaf.head.high.clone(), leaf.head.header.next, &keys);
        let image = Leaf::image(layout, &head, &records.filter(|_| layout.is_inline()).unwrap_or_default());
        let right_at = self.word_of(right, 0);
        self.client.post(|batch| batch.write(right_at, &image)).await?;
        // From here on the new leaf may be linked, whether or not the batch succeeds.
        drafts.keep();
        let mut kept: Vec<usize> = left.iter().map(|&(_, slot)| slot).collect();
        kept.sort_unstable();
        let moving = Header { next: right, ..leaf.head.header.stepped() };
        self.change(number, leaf, moving, &kept, &bound).await?;
        self.shared.learn_leaf(&parts, right);
        Ok(())
    }
}

const _: () = assert!(HEAD_WORDS == KEYS_AT + SLOTS);
