//! Publishing a change: new objects are written, then linked by one CAS, which also unlocks.

use super::descent::SlotAt;
use super::locks::Locks;
use super::node::Slot;
use super::shared::Operation;
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::Result;

/// One published change: the writes before it, the word with the slot's edge, and the slot.
pub(super) struct Change<'a> {
    pub(super) writes: &'a [(GlobalAddr, &'a [u64])],
    pub(super) key: Option<(GlobalAddr, u64)>,
    pub(super) at: SlotAt,
    pub(super) new: Slot,
}

impl<F: Fabric> Operation<'_, F> {
    /// Writes new objects and links them by one CAS, together with the unlock: one round trip if
    /// everything is on one memory node.
    pub(super) async fn publish(&mut self, change: Change<'_>, mut locks: Locks) -> Result<bool> {
        let lost = self.post(change, &mut locks).await?;
        locks.end(&mut self.client).await?;
        Ok(lost.is_none())
    }

    /// The same; returns the slot's other content if the CAS lost. The locks still have to be
    /// ended.
    pub(super) async fn post(&mut self, change: Change<'_>, locks: &mut Locks) -> Result<Option<Slot>> {
        let Change { writes, key, at, new } = change;
        let mut batch = self.client.batch();
        for (addr, words) in writes {
            batch.write(*addr, words);
        }
        if writes.iter().any(|(addr, _)| addr.node() != at.addr.node()) {
            // Complete before the CAS that links it: batches only order verbs of one memory node.
            self.client.send(&mut batch).await?;
        }
        if let Some((addr, word)) = key {
            batch.write(addr, &[word]);
        }
        let cas = batch.cas(at.addr, at.slot.word(), new.word());
        locks.unlock_in(self.client.pool().fabric(), &mut batch);
        let done = self.client.submit(batch).await?;
        let lost = (!done.swapped(cas)).then(|| Slot::from_word(done.found(cas)));
        self.client.recycle(done);
        Ok(lost)
    }
}
