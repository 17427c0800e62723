//! Puts and deletes.
//!
//! | the leaf is | write-back | `dex+wt` |
//! |---|---|---|
//! | cached | changed in the cache, 0 round trips | + WRITE of the page, then in the cache |
//! | not cached, not admitted | READ and WRITE of the page | the same |
//! | under a missing inner node | a call of the memory node, if the rule says so | the same |
//!
//! If values are in blocks, the block is written first, and the block of the old value is retired
//! after the WRITE of the page that named it.

use super::Operation;
use super::cache::{Missing, Step};
use super::node::{Applied, Change, Guard};
use super::pages::Doubt;
use super::read::matches;
use crate::sync::lock;
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::radix::drafts::Drafts;
use darter_index::radix::leaf as pair;
use darter_index::radix::{TURNS_MAX, no_progress};
use darter_index::{Condition, IndexError, PutOutcome, Result};
use darter_pool::AllocKind;
use darter_pool::size_class::class_bytes;

impl<F: Fabric> Operation<'_, F> {
    /// Stores a value under a key of this owner if the condition holds.
    pub(super) async fn put(
        &mut self,
        key: u64,
        value: &[u8],
        condition: Condition<'_>,
    ) -> Result<PutOutcome> {
        let mut drafts = Drafts::new();
        let word = if self.shared.has_blocks() {
            self.write_block(&mut drafts, key, value).await?
        } else {
            word_of(value)?
        };
        let applied = self.change_when(key, Change::Put(word), condition).await;
        match &applied {
            Ok(Applied::Done(_)) => drafts.keep(),
            Ok(_) => drafts.discard(&mut self.client),
            // Out of space is found before anything changes. After other errors the outcome is open.
            Err(error) if error.is_out_of_space() => drafts.discard(&mut self.client),
            Err(_) => drafts.keep(),
        }
        Ok(match applied? {
            Applied::Done(None) => PutOutcome::Inserted,
            Applied::Done(Some(_)) => PutOutcome::Replaced,
            _ => PutOutcome::Refused,
        })
    }

    /// Removes a key of this owner if the condition holds.
    pub(super) async fn delete(&mut self, key: u64, condition: Condition<'_>) -> Result<bool> {
        let condition = match condition {
            Condition::Always => Condition::Present,
            Condition::Absent => return Ok(false),
            other => other,
        };
        Ok(matches!(self.change_when(key, Change::Remove, condition).await?, Applied::Done(Some(_))))
    }

    async fn write_block(&mut self, drafts: &mut Drafts, key: u64, value: &[u8]) -> Result<u64> {
        let class = pair::class_within(self.client.pool().object_bytes_max(), super::KEY_BYTES, value.len())?;
        let node = (key % u64::from(self.client.pool().nodes())) as u8;
        let addr = drafts.alloc(&mut self.client, node, class_bytes(class), AllocKind::Leaf).await?;
        let image = pair::image(&key.to_be_bytes(), value);
        if let Err(error) = self.client.post(|batch| batch.write(addr, &image)).await {
            drafts.discard(&mut self.client);
            return Err(error.into());
        }
        Ok(addr.bits() | u64::from(class) << 48)
    }

    /// Changes a key if a condition on its value holds.
    async fn change_when(&mut self, key: u64, change: Change, condition: Condition<'_>) -> Result<Applied> {
        let wanted = match condition {
            Condition::Always => return self.change(key, change, Guard::Any).await,
            Condition::Absent => return self.change(key, change, Guard::Absent).await,
            Condition::Present => return self.change(key, change, Guard::Present).await,
            Condition::Equals(value) => value,
        };
        if !self.shared.has_blocks() {
            return match word_of(wanted) {
                Ok(word) => self.change(key, change, Guard::Equals(word)).await,
                Err(_) => Ok(Applied::Refused(None)),
            };
        }
        for _ in 0..TURNS_MAX {
            let Some(word) = self.word(key).await? else { return Ok(Applied::Refused(None)) };
            if self.value_of(key, word).await? != wanted {
                return Ok(Applied::Refused(Some(word)));
            }
            let applied = self.change(key, change, Guard::Equals(word)).await?;
            if matches!(applied, Applied::Done(_)) {
                return Ok(applied);
            }
            self.client.retried();
        }
        Err(no_progress(self.shared.root))
    }

    /// Changes a key's word if a guard holds. Never returns [`Applied::Full`].
    async fn change(&mut self, key: u64, change: Change, guard: Guard) -> Result<Applied> {
        let inserts = matches!(change, Change::Put(_)) && matches!(guard, Guard::Any | Guard::Absent);
        let wanted = (key, change, guard);
        // A leaf that is full is cached whatever the dice say, so that it can be split.
        let mut is_forced = false;
        for _ in 0..TURNS_MAX {
            let (step, cached) = {
                let mut cache = self.cache();
                match cache.descend(key, inserts) {
                    Step::Leaf(at) => {
                        let addr = cache.frame(at).map_or(GlobalAddr::NULL, |frame| frame.node.addr());
                        let is_late = !self.shared.options.write_through;
                        let applied = is_late.then(|| cache.apply(at, wanted, self.shared.has_blocks()));
                        (None, Some((addr, applied)))
                    }
                    step => (Some(step), None),
                }
            };
            if let Some((addr, applied)) = cached {
                let applied = match applied {
                    Some(applied) => Some(applied),
                    None => self.write_through(addr, wanted).await?,
                };
                match applied {
                    Some(Applied::Full) => self.split(key, addr).await?,
                    Some(applied) => return Ok(applied),
                    None => {}
                }
                continue;
            }
            match step {
                Some(Step::Full(addr)) => self.split(key, addr).await?,
                Some(Step::Missing(missing)) => {
                    let applied = if missing.level == 0 && !is_forced && !self.admits() {
                        self.write_around(wanted, &missing).await?
                    } else if !is_forced && self.calls(&missing) {
                        self.call_change(wanted, &missing).await?
                    } else {
                        None
                    };
                    match applied {
                        Some(Applied::Full) => is_forced = true,
                        Some(applied) => return Ok(applied),
                        None => self.fetch(key, &missing).await?,
                    }
                }
                _ => {}
            }
        }
        Err(no_progress(self.shared.root))
    }

    /// Changes a key of a cached leaf after writing the page; `None` if the leaf is no longer the
    /// key's.
    async fn write_through(
        &mut self,
        addr: GlobalAddr,
        (key, change, guard): (u64, Change, Guard),
    ) -> Result<Option<Applied>> {
        if lock(&self.shared.owed).contains(&addr) {
            let turn = self.lock_page(super::SPLITTING).await?;
            let paid = self.pay().await;
            turn.finish();
            return paid.map(|()| None);
        }
        let mut io = self.lock_page(addr).await?;
        let taken = {
            let mut cache = self.cache();
            let is_owed = lock(&self.shared.owed).contains(&addr);
            let frame = match cache.descend(key, false) {
                Step::Leaf(at) if !is_owed => cache.frame(at),
                _ => None,
            };
            frame.filter(|frame| frame.node.addr() == addr).map(|frame| frame.node.clone())
        };
        let Some(mut image) = taken else {
            io.finish();
            return Ok(None);
        };
        let applied = image.apply(key, change, guard);
        let Applied::Done(old) = applied else {
            io.finish();
            return Ok(Some(applied));
        };
        io.doubt = Some(Doubt::Leaf(addr));
        let written = self.write_page(&mut image).await;
        if written.is_ok() {
            io.doubt = None;
            self.cache().insert(image, false);
        }
        io.finish();
        written?;
        self.retire_old(old);
        Ok(Some(applied))
    }

    /// Changes a key of a leaf that is not admitted to the cache: READ and WRITE of the page. `None`
    /// if the leaf must be fetched after all.
    async fn write_around(
        &mut self,
        (key, change, guard): (u64, Change, Guard),
        missing: &Missing,
    ) -> Result<Option<Applied>> {
        let Some(io) = self.begin(key, missing).await? else { return Ok(None) };
        let outcome = async {
            let mut leaf = self.read_page(missing.addr, false).await?;
            if !matches(&leaf, missing) {
                return Ok(None);
            }
            let applied = leaf.apply(key, change, guard);
            if let Applied::Done(old) = applied {
                self.write_page(&mut leaf).await?;
                self.retire_old(old);
            }
            Ok(Some(applied))
        };
        let outcome = outcome.await;
        io.finish();
        outcome
    }

    /// Retires the block of a replaced value after the WRITE of its page.
    pub(super) fn retire_old(&mut self, old: Option<u64>) {
        if let Some(word) = old.filter(|_| self.shared.has_blocks()) {
            self.retire_block(word);
        }
    }
}

/// Returns the word of a value in a leaf.
pub(super) fn word_of(value: &[u8]) -> Result<u64> {
    let word = value.try_into().map(u64::from_le_bytes);
    word.map_err(|_| IndexError::WrongLength { what: "value", bytes: value.len(), expected: 8 })
}
