//! Splits: full inner nodes on the way of an insert, from the top down, and full leaves.
//!
//! A split takes effect in the cache at one moment: from then on the new page, the old page and
//! the parent are hot and changed. Then the new page is written, as published. Pages that other owners use
//! are locked in the pool before, and written after; with `dex+wt` all three are written. Until then
//! they are *owed*: a failure leaves them to the next operation that needs them, in their order.
//!
//! | split of | under | round trips |
//! |---|---|---|
//! | a private page | a private page | 1: WRITE of the new page |
//! | a private page | a shared page | 5: CAS, READ, WRITE of the new page, WRITE of the parent, unlock |
//! | a shared page | a shared page | 9: CAS and READ twice, three WRITEs, two unlocks |
//!
//! The root never moves: its contents move to a new page, which is split next.

use super::node::{Fences, NODE_BYTES, NODE_WORDS, Node};
use super::pages::Io;
use super::{Operation, SPLITTING};
use crate::lock_token::LockTokens;
use crate::remote_lock::{Acquired, acquire};
use crate::sync::lock;
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::radix::drafts::Drafts;
use darter_index::radix::no_progress;
use darter_index::{IndexError, Result};
use darter_pool::AllocKind;

/// Locks of shared pages.
type Held = Vec<(GlobalAddr, Acquired)>;

impl<F: Fabric> Operation<'_, F> {
    /// Splits a full page on the way to a key, if it still is one. Errors may come after the split.
    pub(super) async fn split(&mut self, key: u64, addr: GlobalAddr) -> Result<()> {
        self.make_room().await?;
        let mut drafts = Drafts::new();
        let (node, level) = match self.cache().page(addr) {
            Some(frame) => (addr.node(), frame.node.level()),
            None => return Ok(()),
        };
        let nodes = self.client.pool().nodes();
        let next = if level < self.shared.subtree_levels { node } else { (node + 1) % nodes };
        let new = drafts.alloc(&mut self.client, next, NODE_BYTES, AllocKind::Inner).await?;
        let outcome = self.split_to(&mut drafts, key, (addr, new)).await;
        drafts.discard(&mut self.client);
        outcome
    }

    async fn split_to(
        &mut self,
        drafts: &mut Drafts,
        key: u64,
        (addr, new): (GlobalAddr, GlobalAddr),
    ) -> Result<()> {
        let writes_through = self.shared.options.write_through;
        let is_eager = writes_through || self.shared.owners.count() > 1;
        let turn = if is_eager { Some(self.lock_page(SPLITTING).await?) } else { None };
        let io = if writes_through { Some(self.lock_page(addr).await?) } else { None };
        let mut held = Held::new();
        let outcome = async {
            if is_eager {
                self.pay().await?;
            }
            if is_eager && !self.lock_shared(key, addr, &mut held).await? {
                return Ok(());
            }
            let is_divided = self.divide(key, (addr, new), is_eager).is_some();
            if !is_divided {
                // A round trip lets the other client go on, in modelled time too.
                self.client.retried();
                let [_] = self.client.read_words(addr).await?;
                return Ok(());
            }
            drafts.keep();
            if is_eager {
                return self.pay_holding(&held).await;
            }
            self.write_locked(new).await
        };
        let outcome = outcome.await;
        let unlocked = self.unlock(held).await;
        io.into_iter().chain(turn).for_each(Io::finish);
        outcome.and(unlocked)
    }

    /// Takes the locks of the page and its parent, if other owners use them; returns whether the
    /// cached images are current.
    async fn lock_shared(&mut self, key: u64, addr: GlobalAddr, held: &mut Held) -> Result<bool> {
        let (parent, is_shared) = {
            let mut cache = self.cache();
            let parent = cache.parent_of(addr, key).map(|(parent, _)| parent);
            let mut is_shared = |addr| cache.page(addr).is_some_and(|frame| frame.node.is_shared());
            (parent.filter(|&parent| is_shared(parent)), is_shared(addr))
        };
        let mut is_current = true;
        for page in parent.into_iter().chain(is_shared.then_some(addr)) {
            is_current &= self.lock_one(page, held).await?;
        }
        Ok(is_current)
    }

    async fn lock_one(&mut self, page: GlobalAddr, held: &mut Held) -> Result<bool> {
        let tokens = LockTokens::of(self.client.pool());
        held.push((page, acquire(&tokens, &mut self.client, (page, None)).await?));
        let words = self.client.read(page, NODE_WORDS).await?;
        let node = Node::from_words(page, &words);
        let node = node.ok_or(IndexError::corrupt(page, "words that are not a page of a DEX index"))?;
        self.renew(&node);
        let mut cache = self.cache();
        Ok(cache.page(page).is_some_and(|frame| frame.node.version() == node.version()))
    }

    async fn unlock(&mut self, held: Held) -> Result<()> {
        for (page, Acquired { token, .. }) in held {
            let fabric = self.client.pool().fabric().clone();
            self.client.post(|batch| token.unlock_in(&fabric, batch, page)).await?;
            token.release();
        }
        Ok(())
    }

    /// Splits a page in the cache; `None` if the tree has changed, or if a page below is being read or
    /// written.
    fn divide(&self, key: u64, (addr, new): (GlobalAddr, GlobalAddr), is_eager: bool) -> Option<()> {
        let share = |fences: Fences| self.shared.owners.share(fences);
        let mut cache = self.cache();
        // The room that was made may have been at the cost of this page.
        let _ = cache.descend(key, false);
        if !cache.is_free(addr) || !cache.page(addr)?.node.is_full() {
            return None;
        }
        let (made, mut changed) = if addr == self.shared.root {
            (cache.page(addr)?.node.grow(new), vec![addr])
        } else {
            let (parent, slot) = cache.parent_of(addr, key)?;
            let above = &cache.page(parent)?.node;
            let (range, is_full) = (above.range(slot), above.is_full());
            let node = &mut cache.page(addr)?.node;
            if is_full || node.fences() != range {
                return None;
            }
            let right = node.split(new, share);
            cache.page(parent)?.node.divide(slot, right.fences().low, new);
            (right, vec![parent, addr])
        };
        cache.insert(made, true);
        for &page in &changed {
            let frame = cache.page(page)?;
            frame.is_dirty = true;
            frame.edits += 1;
        }
        if is_eager {
            let all = self.shared.options.write_through;
            changed.retain(|&page| all || cache.page(page).is_some_and(|frame| frame.node.is_shared()));
            changed.insert(0, new);
            lock(&self.shared.owed).append(&mut changed);
        }
        Some(())
    }

    /// Writes the pages that earlier splits owe.
    pub(super) async fn pay(&mut self) -> Result<()> {
        if lock(&self.shared.owed).is_empty() { Ok(()) } else { self.pay_holding(&Held::new()).await }
    }

    /// The same, with the locks of some shared pages held.
    async fn pay_holding(&mut self, held: &Held) -> Result<()> {
        loop {
            let first = lock(&self.shared.owed).first().copied();
            let Some(page) = first else { return Ok(()) };
            let is_shared =
                self.cache().page(page).is_some_and(|frame| frame.node.is_shared() && frame.is_dirty);
            let is_new = self.cache().page(page).is_some_and(|frame| frame.node.version() == 0);
            let mut own = Held::new();
            let outcome = if !is_shared || is_new || held.iter().any(|(locked, _)| *locked == page) {
                self.write_owed(page, is_shared && !is_new).await
            } else if self.lock_one(page, &mut own).await? {
                self.write_owed(page, true).await
            } else {
                // Another owner has changed the page since the split failed.
                Err(no_progress(page))
            };
            let unlocked = self.unlock(own).await;
            outcome.and(unlocked)?;
            lock(&self.shared.owed).retain(|&owed| owed != page);
        }
    }

    /// Writes a page; of a locked one all words but the lock.
    async fn write_owed(&mut self, page: GlobalAddr, is_locked: bool) -> Result<()> {
        if !is_locked {
            return self.write_back(page).await;
        }
        let image = self.cache().page(page).map(|frame| (frame.node.clone(), frame.edits));
        let Some((mut image, edits)) = image else { return Ok(()) };
        let words = *image.sealed();
        self.client.post(|batch| batch.write(page.plus(8), &words[1..])).await?;
        if let Some(frame) = self.cache().page(page) {
            frame.node.set_version(image.version());
            frame.is_dirty &= frame.edits != edits;
        }
        Ok(())
    }
}
