//! Reads and writes of pages, and the room for them in the cache.
//!
//! No mutex is held while a verb is in progress. Instead the operation holds the page's local lock
//! ([`Io`]), and if the page is not cached, it pins the parent, so that the page can be added to the
//! cache afterwards. These rules make the memory of a page current while the page is not hot:
//!
//! - A page is written only under its lock: when it cools, by an operation on a leaf that is not
//!   admitted, or by a memory node for an operation that holds the lock of a page above the leaf.
//! - A page cools only after its WRITE has completed, and never while it is locked or pinned.
//!
//! So a reader that finds a page missing may READ it, or let a memory node read below it, without a
//! lock: it takes effect at the moment of the miss or later. If an operation is cancelled, its locks
//! stay until its verbs have completed.

use super::cache::{Cache, Missing, Step};
use super::node::{Fences, NODE_WORDS, Node};
use super::{Operation, SPLITTING, Shared};
use crate::compute_node::{LocalGuard, yield_now};
use crate::sync::lock;
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::radix::leaf as pair;
use darter_index::{IndexError, Result};
use darter_pool::{AllocKind, Leftovers};
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

/// READs of a page that is being written.
const READS_MAX: u32 = 200;
/// Pages to cool that are tried before the cache may exceed its size.
const VICTIMS_TRIED: u32 = 8;
/// Pages that are cooled at a time, as published.
const COOLED: u32 = 2;
const ROUNDS: u32 = 4;
/// More levels than any tree has.
const LEVELS_MAX: u32 = 32;

/// Cached pages that are outdated if a verb in progress takes effect.
#[derive(Clone, Copy, Debug)]
pub(super) enum Doubt {
    Leaf(GlobalAddr),
    /// One cooling leaf of these.
    Below(Fences),
}

/// The lock of a page during its READ or WRITE.
#[derive(Debug)]
pub(super) struct Io {
    guard: Option<LocalGuard<()>>,
    page: GlobalAddr,
    parent: Option<GlobalAddr>,
    /// Cleared once the outcome of the verbs is known.
    pub(super) doubt: Option<Doubt>,
    shared: Arc<Shared>,
    leftovers: Arc<Leftovers>,
}

impl Io {
    /// Unlocks the page. The operation's verbs have completed.
    pub(super) fn finish(mut self) {
        release(&self.shared, self.parent, self.doubt);
        self.guard = None;
    }
}

impl Drop for Io {
    /// If the operation was cancelled, the page stays locked until its verbs have completed.
    fn drop(&mut self) {
        if self.guard.is_some() {
            let (shared, page, parent, doubt) =
                (Arc::clone(&self.shared), self.page, self.parent, self.doubt);
            lock(&shared.unsettled).push(page);
            self.leftovers.push(move || {
                release(&shared, parent, doubt);
                lock(&shared.unsettled).retain(|&other| other != page);
            });
        }
    }
}

fn release(shared: &Shared, parent: Option<GlobalAddr>, doubt: Option<Doubt>) {
    let mut cache = lock(&shared.cache);
    match doubt {
        Some(Doubt::Leaf(addr)) => cache.spoil(addr),
        Some(Doubt::Below(fences)) => cache.forget_all(fences),
        None => {}
    }
    if let Some(parent) = parent {
        cache.unpin(parent);
    }
}

impl<F: Fabric> Operation<'_, F> {
    pub(super) fn cache(&self) -> MutexGuard<'_, Cache> {
        lock(&self.shared.cache)
    }

    fn io(&mut self, page: GlobalAddr, guard: LocalGuard<()>, parent: Option<GlobalAddr>) -> Io {
        let (shared, leftovers) = (Arc::clone(self.shared), self.client.leftovers());
        Io { guard: Some(guard), page, parent, doubt: None, shared, leftovers }
    }

    /// Takes a page's lock.
    pub(super) async fn lock_page(&mut self, page: GlobalAddr) -> Result<Io> {
        let guard = self.guard(page).await?;
        Ok(self.io(page, guard, None))
    }

    /// Waits for the lock of a page, and for the verbs of a cancelled operation that had it.
    async fn guard(&mut self, page: GlobalAddr) -> Result<LocalGuard<()>> {
        let guard = self.shared.locks.lock(page.bits()).await;
        while lock(&self.shared.unsettled).contains(&page) {
            self.client.settle_leftovers();
            self.client.maintain().await?;
            self.client.pause().await;
        }
        Ok(guard)
    }

    /// Takes the lock of a missing page and pins its parent; `None` if a descent to the key no
    /// longer misses it.
    pub(super) async fn begin(&mut self, key: u64, missing: &Missing) -> Result<Option<Io>> {
        let guard = self.guard(missing.addr).await?;
        let mut cache = self.cache();
        if cache.descend(key, false) != Step::Missing(*missing) {
            return Ok(None);
        }
        cache.pin(missing.parent);
        drop(cache);
        Ok(Some(self.io(missing.addr, guard, Some(missing.parent))))
    }

    /// Reads a page: one round trip, or three if several owners use it. No client of this owner may be
    /// writing it.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`] if it never is a whole image; errors of the fabric.
    pub(super) async fn read_page(&mut self, addr: GlobalAddr, is_shared: bool) -> Result<Node> {
        let node = self.read_whole(addr, is_shared, READS_MAX).await?;
        node.ok_or(IndexError::corrupt(addr, "words that are not a page of a DEX index"))
    }

    /// Reads a page; `None` if a client wrote it during each of some READs.
    pub(super) async fn read_whole(
        &mut self,
        addr: GlobalAddr,
        is_shared: bool,
        tries: u32,
    ) -> Result<Option<Node>> {
        let begun = Instant::now();
        for _ in 0..tries {
            let before: [u64; 2] = if is_shared { self.client.read_words(addr).await? } else { [0; 2] };
            let words = self.client.read(addr, NODE_WORDS).await?;
            let after = if is_shared { self.client.read_words(addr).await? } else { before };
            if before[1] == after[1]
                && let Some(node) = Node::from_words(addr, &words)
            {
                self.note(begun, false);
                return Ok(Some(node));
            }
            self.client.retried();
            yield_now().await;
        }
        Ok(None)
    }

    /// Adds a missing page to the cache, or finds out why it does not match its parent. The caller
    /// descends again.
    pub(super) async fn fetch(&mut self, key: u64, missing: &Missing) -> Result<()> {
        self.make_room().await?;
        let Some(io) = self.begin(key, missing).await? else { return Ok(()) };
        let outcome = self.fetch_locked(key, missing).await;
        io.finish();
        outcome
    }

    async fn fetch_locked(&mut self, key: u64, missing: &Missing) -> Result<()> {
        let is_shared = self.shared.owners.share(missing.fences);
        let mut node = self.read_page(missing.addr, is_shared).await?;
        if node.level() != missing.level {
            return Err(IndexError::corrupt(missing.addr, "a page of another level than its parent says"));
        }
        let matches = node.fences() == missing.fences;
        if !matches {
            if missing.parent_is_shared && self.refresh(key).await? {
                return Ok(());
            }
            if is_shared {
                // Another owner is splitting it.
                yield_now().await;
                return Ok(());
            }
            node.clamp(missing.fences);
        }
        self.cache().insert(node, !matches);
        Ok(())
    }

    /// Reads the shared pages on the way to a key again; returns whether one has changed.
    pub(super) async fn refresh(&mut self, key: u64) -> Result<bool> {
        let (mut addr, mut has_changed) = (self.shared.root, false);
        for _ in 0..LEVELS_MAX {
            let node = self.read_page(addr, true).await?;
            has_changed |= self.renew(&node);
            let slot = node.child_for(key);
            let is_end = node.level() == 0 || !node.fences().contains(key);
            if is_end || !self.shared.owners.share(node.range(slot)) {
                break;
            }
            addr = node.child(slot);
        }
        Ok(has_changed)
    }

    /// Replaces the cached image of a shared page if this one is newer, unless the cached one has a
    /// change that is not in the pool.
    pub(super) fn renew(&self, node: &Node) -> bool {
        let mut cache = self.cache();
        let Some(frame) = cache.page(node.addr()) else { return false };
        let is_newer = node.version() > frame.node.version();
        if !is_newer || frame.is_dirty && !frame.node.has_body_of(node) {
            return false;
        }
        frame.node = node.clone();
        frame.is_dirty = false;
        frame.edits += 1;
        true
    }

    /// Returns whether to cache a missing leaf.
    pub(super) fn admits(&self) -> bool {
        let mut cache = self.cache();
        !cache.was_full() || cache.draw(self.shared.options.leaf_admission)
    }

    /// Makes sure that the cache has a free frame, by cooling pages and evicting cold ones.
    pub(super) async fn make_room(&mut self) -> Result<()> {
        for _ in 0..ROUNDS {
            if !self.cache().was_full() || self.cache().has_room() {
                return Ok(());
            }
            for _ in 0..COOLED {
                self.cool_one().await?;
            }
            let mut cache = self.cache();
            if cache.has_room() || cache.evict_cold() && cache.has_room() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Chooses a page to cool, and locks it.
    fn choose(&mut self) -> Option<(GlobalAddr, Io)> {
        let addr = self.cache().victim()?;
        let guard = self.shared.locks.try_lock(addr.bits())?;
        let is_busy =
            [&self.shared.owed, &self.shared.unsettled].iter().any(|list| lock(list).contains(&addr));
        (!is_busy).then(|| (addr, self.io(addr, guard, None)))
    }

    async fn cool_one(&mut self) -> Result<()> {
        for _ in 0..VICTIMS_TRIED {
            if let Some((addr, io)) = self.choose() {
                let written = self.write_back(addr).await;
                if written.is_ok() {
                    self.cache().cool(addr);
                }
                io.finish();
                return written;
            }
        }
        Ok(())
    }

    /// Writes a changed page of this owner, whose lock is held: one round trip.
    pub(super) async fn write_back(&mut self, addr: GlobalAddr) -> Result<()> {
        let taken = {
            let mut cache = self.cache();
            let frame = cache.page(addr).filter(|frame| frame.is_dirty);
            frame.map(|frame| (frame.node.clone(), frame.edits, std::mem::take(&mut frame.dropped)))
        };
        let Some((mut image, edits, mut dropped)) = taken else { return Ok(()) };
        let outcome = self.write_page(&mut image).await;
        if let Some(frame) = self.cache().page(addr) {
            frame.node.set_version(image.version());
            frame.is_dirty &= outcome.is_err() || frame.edits != edits;
            if outcome.is_err() {
                frame.dropped.append(&mut dropped);
            }
        }
        outcome?;
        for word in dropped {
            self.retire_block(word);
        }
        Ok(())
    }

    /// Writes an image of a page of this owner.
    pub(super) async fn write_page(&mut self, image: &mut Node) -> Result<()> {
        let (addr, words) = (image.addr(), *image.sealed());
        Ok(self.client.post(|batch| batch.write(addr, &words)).await?)
    }

    /// Writes all changed pages, children before their parents.
    pub(super) async fn flush(&mut self) -> Result<()> {
        let turn = self.lock_page(SPLITTING).await?;
        let mut outcome = self.pay().await;
        let dirty = self.cache().dirty();
        for addr in dirty {
            if outcome.is_ok() {
                outcome = self.write_locked(addr).await;
            }
        }
        turn.finish();
        outcome
    }

    /// Locks a changed page and writes it.
    pub(super) async fn write_locked(&mut self, addr: GlobalAddr) -> Result<()> {
        let io = self.lock_page(addr).await?;
        let written = self.write_back(addr).await;
        io.finish();
        written
    }

    /// Frees the block of a value that no page names any longer.
    pub(super) fn retire_block(&mut self, word: u64) {
        let (addr, class) = block_of(word);
        self.client.retire(addr, pair::class_words(class) as u64 * 8, AllocKind::Leaf);
    }
}

/// Returns the address and the size class of a value's block.
pub(super) fn block_of(word: u64) -> (GlobalAddr, u8) {
    (GlobalAddr::from_bits(word), (word >> 48) as u8 & 127)
}
