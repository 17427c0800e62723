//! Put and delete: lock the leaf, read it, write the entry back and unlock (Sherman, sections 2.2
//! and 2.3).
//!
//! | verbs | entry inserted | value replaced | entry cleared |
//! |---|---|---|---|
//! | pair in a block | key, then pointer | pointer | pointer |
//! | inline | key and value, then check | check, then value | check |
//!
//! The order of the WRITEs, kept by a doorbell batch, shows the next holder of the lock how far a
//! dead writer came.

use super::entry::{Block, Entry, EntryState, Words, key_words};
use super::format::mix;
use super::nodes::{Change, is_harmless};
use super::page::{Body, Page};
use super::search::{Matches, inline_value};
use super::split::Parted;
use super::{Operation, Sherman};
use crate::hocl::Locked;
use darter_fabric::{Batch, Fabric, GlobalAddr, OpKind};
use darter_index::radix::drafts::Draft as Pair;
use darter_index::radix::leaf as pair;
use darter_index::{Condition, IndexError, PutOutcome, Result};
use darter_pool::{AllocKind, Client, PoolError};
use smallvec::SmallVec;

/// An entry that holds a key, under the leaf's lock.
pub(crate) struct Present {
    pub(crate) slot: usize,
    pub(crate) entry: Entry,
    /// The value, if it had to be read.
    pub(crate) value: Option<Vec<u8>>,
}

impl Present {
    /// Returns whether a condition holds for the key. The value was fetched if the condition
    /// compares it.
    pub(crate) fn meets(&self, condition: Condition<'_>) -> bool {
        match condition {
            Condition::Always | Condition::Present => true,
            Condition::Absent => false,
            Condition::Equals(wanted) => self.value.as_deref() == Some(wanted),
        }
    }
}

/// The change of one entry.
enum Edit<'e> {
    Insert(&'e Entry),
    Replace(&'e Entry),
    Clear,
}

/// The result of an attempt to put.
enum Put {
    Done(PutOutcome),
    /// The key is stored and the leaf was split: its parent must list the new leaf.
    Split(Option<Parted>),
}

impl<F: Fabric> Sherman<F> {
    pub(crate) async fn put_value(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> Result<PutOutcome> {
        self.check_sizes(key, Some(value))?;
        let format = &self.shared.format;
        let kind = condition.op_kind();
        let mut pair = if format.is_inline() { None } else { Some(Pair::new(client, key, value)?) };
        if self.shared.cannot_tell() {
            self.tell_parents(client).await?;
        }
        let mut operation = Operation::pin(&*self.shared, client, kind).await?;
        let outcome = operation.put_pair(key, value, condition, pair.as_mut()).await;
        if let Some(pair) = &mut pair {
            match &outcome {
                Ok(PutOutcome::Refused) => pair.discard(&mut operation.client),
                Err(error) if is_harmless(error) => {
                    pair.discard(&mut operation.client);
                }
                _ => {}
            }
        }
        outcome
    }

    pub(crate) async fn delete_key(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        condition: Condition<'_>,
    ) -> Result<bool> {
        self.check_sizes(key, None)?;
        let format = &self.shared.format;
        let mut operation = Operation::pin(&*self.shared, client, OpKind::Delete).await?;
        let link = operation.leaf_of(key).await?;
        let first = operation.client.batch();
        let (mut locked, page) = operation.lock_leaf(key, (link, first)).await?;
        let found = async {
            let present = operation.find_locked(&page, key, condition).await?;
            let Some(present) = present.filter(|present| present.meets(condition)) else {
                return Ok(None);
            };
            operation.write_entry(&mut locked, &page, present.slot, Edit::Clear).await?;
            Ok(Some(present))
        };
        let present = match found.await {
            Ok(present) => present,
            Err(error) => return operation.give_up(locked, error).await,
        };
        let left = (0..page.slots(format)).filter(|&slot| page.entry(format, slot) != EntryState::Empty);
        let left = left.count() - usize::from(present.is_some());
        locked.end(&mut operation.client).await?;
        let Some(present) = present else { return Ok(false) };
        operation.retire_block(&present.entry);
        // Not on every delete from a leaf that cannot be merged.
        let is_due = left == 0 || left * 4 <= page.slots(format) && left.is_power_of_two();
        let merged = is_due && operation.merge_upwards(key).await?;
        if left == 0 && !merged && page.addr != self.shared.root.addr() {
            self.shared.note_unmerged(key);
        }
        Ok(true)
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Returns the memory node for a key's pair.
    pub(crate) fn home(&self, key: &[u8]) -> u8 {
        let words = key_words(&self.shared.format, key, 0);
        let hash = words.iter().fold(self.shared.format.seed, |hash, &word| mix(hash, word));
        ((hash >> 32) % u64::from(self.client.pool().nodes())) as u8
    }

    async fn put_pair(
        &mut self,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
        pair: Option<&mut Pair<'_>>,
    ) -> Result<PutOutcome> {
        let link = self.leaf_of(key).await?;
        let mut first = self.client.batch();
        let mut block = None;
        let payload: Words = if let Some(pair) = pair {
            let home = self.home(key);
            let addr = pair.place(&mut self.client, home).await?;
            first.write(addr, &pair.words);
            let placed = Block { addr, class: pair.class };
            block = Some(pair);
            SmallVec::from_slice(&[placed.word()])
        } else {
            let mut words: Words = SmallVec::from_elem(0, self.shared.format.payload_words());
            bytemuck::cast_slice_mut(&mut words)[..value.len()].copy_from_slice(value);
            words
        };
        let (mut locked, page) = self.lock_leaf(key, (link, first)).await?;
        let put = match self.put_locked(&mut locked, &page, (key, &payload), condition).await {
            Ok(put) => put,
            Err(error) => return self.give_up(locked, error).await,
        };
        if !matches!(put, Put::Done(PutOutcome::Refused))
            && let Some(pair) = block
        {
            pair.linked();
        }
        locked.end(&mut self.client).await?;
        match put {
            Put::Done(outcome) => Ok(outcome),
            Put::Split(parted) => {
                self.post_separator(0, parted).await?;
                Ok(PutOutcome::Inserted)
            }
        }
    }

    async fn put_locked(
        &mut self,
        locked: &mut Locked,
        page: &Page,
        (key, payload): (&[u8], &Words),
        condition: Condition<'_>,
    ) -> Result<Put> {
        let format = &self.shared.format;
        let present = self.find_locked(page, key, condition).await?;
        let holds = present.as_ref().map_or(!condition.wants_key(), |present| present.meets(condition));
        if !holds {
            return Ok(Put::Done(PutOutcome::Refused));
        }
        let new = Entry { key: key_words(format, key, page.prefix), payload: payload.clone(), lost: false };
        if let Some(Present { slot, entry, .. }) = present {
            self.write_entry(locked, page, slot, Edit::Replace(&new)).await?;
            self.retire_block(&entry);
            return Ok(Put::Done(PutOutcome::Replaced));
        }
        let free = (0..page.slots(format)).find(|&slot| page.entry(format, slot) == EntryState::Empty);
        match free {
            Some(slot) => {
                self.write_entry(locked, page, slot, Edit::Insert(&new)).await?;
                Ok(Put::Done(PutOutcome::Inserted))
            }
            None if self.shared.cannot_tell() => {
                // There is no room to update parents: further splits would only move more keys away
                // from the nodes that parents list.
                let (needed, node) = (format.node_bytes(), page.addr.node());
                Err(PoolError::OutOfSpace { needed, node }.into())
            }
            None => {
                let parted = self.split_leaf(locked, page, (key, payload)).await?;
                Ok(Put::Split(parted))
            }
        }
    }

    /// Returns the entry that holds a key, in a leaf whose lock the caller holds, with the value if
    /// a condition compares it.
    async fn find_locked(
        &mut self,
        page: &Page,
        key: &[u8],
        condition: Condition<'_>,
    ) -> Result<Option<Present>> {
        let matches = page.matches(&self.shared.format, key).unwrap_or_default();
        self.find_among(page.addr, matches, key, condition).await
    }

    /// Returns the entry that holds a key, among the possible ones. Its value is fetched if the
    /// condition compares it.
    ///
    /// # Errors
    /// [`IndexError::LostInWrite`] and [`IndexError::Corrupt`]; errors of the fabric.
    pub(crate) async fn find_among(
        &mut self,
        leaf: GlobalAddr,
        mut matches: Matches,
        key: &[u8],
        condition: Condition<'_>,
    ) -> Result<Option<Present>> {
        let format = &self.shared.format;
        let reads_value = matches!(condition, Condition::Equals(_));
        if format.is_inline() {
            let Some((slot, entry)) = matches.pop() else { return Ok(None) };
            let value = if reads_value { Some(inline_value(format, leaf, &entry)?) } else { None };
            return Ok(Some(Present { slot, entry, value }));
        }
        if matches.is_empty() {
            return Ok(None);
        }
        if format.key.is_some() && !reads_value {
            return Ok(matches.pop().map(|(slot, entry)| Present { slot, entry, value: None }));
        }
        let mut batch = self.client.batch();
        let reads: Vec<_> =
            matches.iter().map(|(_, entry)| batch.read(entry.block().addr, entry.block().words())).collect();
        let done = self.client.submit(batch).await?;
        let mut present = None;
        for ((slot, entry), read) in matches.into_iter().zip(reads) {
            let found = pair::parse(entry.block().addr, done.words(read))?;
            if found.key == key {
                present = Some(Present { slot, entry, value: Some(found.value.to_vec()) });
                break;
            }
        }
        self.client.recycle(done);
        Ok(present)
    }

    /// Writes back one entry, or the whole leaf if the options say so, and unlocks.
    async fn write_entry(
        &mut self,
        locked: &mut Locked,
        page: &Page,
        slot: usize,
        edit: Edit<'_>,
    ) -> Result<()> {
        let options = &self.shared.options;
        let moves = !matches!(edit, Edit::Replace(_));
        if !options.two_level_versions || moves && !options.unsorted_leaves {
            match self.write_leaf(locked, page, slot, &edit).await {
                // Making room must work in a full pool too: an entry can always be cleared in
                // place.
                Err(IndexError::Pool(PoolError::OutOfSpace { .. })) if matches!(edit, Edit::Clear) => {}
                other => return other,
            }
        }
        let mut batch = self.client.batch();
        self.post_entry(&mut batch, page, slot, &edit);
        self.submit_and_unlock(batch, vec![locked]).await
    }

    fn post_entry(&self, batch: &mut Batch, page: &Page, slot: usize, edit: &Edit<'_>) {
        let format = &self.shared.format;
        let at = page.slot_addr(format, slot);
        let (entry, replaces) = match edit {
            Edit::Insert(entry) => (Some(*entry), false),
            Edit::Replace(entry) => (Some(*entry), true),
            Edit::Clear => (None, false),
        };
        let words = Entry::image(format, (page.addr, page.stamp, slot), entry);
        let key_at = usize::from(format.is_inline());
        let payload_at = key_at + format.key_words();
        match (format.is_inline(), entry.is_some(), replaces) {
            (true, true, false) => {
                batch.write(at.plus(8), &words[key_at..]);
                batch.write(at, &words[..1]);
            }
            (true, true, true) => {
                batch.write(at, &words[..1]);
                if payload_at < words.len() {
                    batch.write(at.plus(payload_at as u64 * 8), &words[payload_at..]);
                }
            }
            (true, false, _) => batch.write(at, &words[..1]),
            (false, inserts, replaces) => {
                if inserts && !replaces {
                    batch.write(at, &words[key_at..payload_at]);
                }
                batch.write(at.plus(payload_at as u64 * 8), &words[payload_at..]);
            }
        }
    }

    /// Writes back the whole leaf, with its entries in order if the options say so.
    async fn write_leaf(
        &mut self,
        locked: &mut Locked,
        page: &Page,
        slot: usize,
        edit: &Edit<'_>,
    ) -> Result<()> {
        let format = &self.shared.format;
        let mut draft = page.draft(format);
        if let Body::Leaf { entries, .. } = &mut draft.body {
            let holds = |slot: &usize| page.entry(format, *slot) != EntryState::Empty;
            let at = (0..slot).filter(holds).count();
            match edit {
                Edit::Insert(entry) => entries.insert(at, (*entry).clone()),
                Edit::Replace(entry) => entries[at] = (*entry).clone(),
                Edit::Clear => {
                    entries.remove(at);
                }
            }
            if !self.shared.options.unsorted_leaves {
                entries.sort_by(|a, b| a.key.cmp(&b.key));
            }
        }
        let mut change = Change::default();
        self.rewrite(&mut change, page, &draft, vec![locked]).await.map(drop)
    }

    /// Retires the block of an entry that is no longer in its leaf.
    pub(crate) fn retire_block(&mut self, entry: &Entry) {
        if !self.shared.format.is_inline() {
            self.client.retire(entry.block().addr, entry.block().bytes(), AllocKind::Leaf);
        }
    }
}
