//! Publishing a change: new objects are written, then one word makes them visible. Also determines
//! which lines each change has to flush.
//!
//! ```text
//! 1. new objects, whole | words without effect yet | a header that becomes shorter   flush, fence
//! 2. one word of 8 bytes, by CAS                                                      flush, fence
//! 3. a header that becomes longer (after a collapse)                                  flush, fence
//! ```
//!
//! A change is one batch if it goes to one memory node: the WRITEs precede the CAS, and verbs after
//! the CAS are fenced. Verbs to another memory node before the CAS are awaited first.

use super::descent::SlotAt;
use super::lines::{Flushes, Line};
use super::node::{Edit, Slot};
use super::shared::Operation;
use crate::hocl::Locked;
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::Result;
use darter_pool::AllocKind;
use darter_pool::size_class::class_bytes;
use smallvec::SmallVec;

/// A change.
#[derive(Default)]
pub(super) struct Change<'a> {
    /// New objects.
    pub(super) fresh: SmallVec<[(GlobalAddr, &'a [u64]); 3]>,
    /// Words of existing objects that have no effect yet, or no other effect.
    pub(super) before: SmallVec<[(GlobalAddr, usize, u64); 2]>,
    /// The deciding word: its object, its position, its current value, its new value.
    pub(super) commit: (GlobalAddr, usize, u64, u64),
    /// A word that is changed afterwards.
    pub(super) after: Option<(GlobalAddr, usize, u64)>,
}

impl<'a> Change<'a> {
    /// Creates a change of a slot's content.
    pub(super) fn swing(at: SlotAt, new: Slot) -> Self {
        Self { commit: (at.base, at.at, at.slot.word(), new.word()), ..Self::default() }
    }

    /// Creates a change by which a node gains or loses a child in place.
    pub(super) fn edit(node: GlobalAddr, edit: &Edit) -> Self {
        let (at, old, new) = edit.commit;
        let before = edit.before.iter().map(|&(at, word)| (node, at, word)).collect();
        Self { before, commit: (node, at, old, new), ..Self::default() }
    }

    /// Adds a new object.
    pub(super) fn with(mut self, addr: GlobalAddr, words: &'a [u64]) -> Self {
        self.fresh.push((addr, words));
        self
    }

    /// Returns the lines flushed before each fence, in the paper's model.
    pub(super) fn flushes(&self) -> Flushes {
        let line_of = |&(base, at, _): &(GlobalAddr, usize, u64)| Line::of(base, at);
        let mut first: SmallVec<[Line; 8]> = self.before.iter().map(line_of).collect();
        first.sort_unstable();
        first.dedup();
        first.extend(self.fresh.iter().flat_map(|&(addr, words)| Line::of_first(addr, words.len())));
        let (base, at, ..) = self.commit;
        [first, SmallVec::from_iter([Line::of(base, at)]), self.after.iter().map(line_of).collect()]
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Makes a change under the lock, which is released with it if possible; the lock still has to
    /// be ended. Returns whether the word was as expected: only the lock's holder changes it.
    pub(super) async fn publish(&mut self, change: &Change<'_>, lock: &mut Locked) -> Result<bool> {
        let flushes = change.flushes();
        let (base, at, old, new) = change.commit;
        let home = base.node();
        let mut batch = self.client.batch();
        for (base, at, word) in &change.before {
            batch.write(base.plus(*at as u64 * 8), &[*word]);
        }
        for (addr, words) in &change.fresh {
            batch.write(*addr, words);
        }
        if batch.verbs().iter().any(|verb| verb.addr.node() != home) {
            self.client.send(&mut batch).await?;
        }
        let unlocks = self.shared.words.root.node() == home;
        let cas = batch.cas(base.plus(at as u64 * 8), old, new);
        let mut late = change.after;
        if let Some((base, at, word)) = late.take_if(|(base, ..)| base.node() == home) {
            batch.fence().write(base.plus(at as u64 * 8), &[word]);
        }
        if unlocks && late.is_none() {
            lock.unlock_in(self.client.pool().fabric(), &mut batch);
        }
        let done = self.client.submit(batch).await?;
        let won = done.swapped(cas);
        self.client.recycle(done);
        if won {
            self.shared.count(&flushes);
            if let Some((base, at, word)) = late {
                self.client.post(|batch| batch.write(base.plus(at as u64 * 8), &[word])).await?;
            }
            if base == self.shared.words.root {
                self.shared.remember_root(Slot::from_word(new), self.client.epoch());
            }
        }
        Ok(won)
    }

    /// Moves an object to limbo that is no longer linked.
    pub(super) fn retire(&mut self, slot: Slot) {
        match slot.content() {
            super::node::Content::Leaf { addr, class } => {
                self.client.retire(addr, class_bytes(class), AllocKind::Leaf);
            }
            super::node::Content::Node { addr, ty, .. } => {
                self.client.retire(addr, ty.bytes(), AllocKind::Inner);
            }
            _ => {}
        }
    }
}
