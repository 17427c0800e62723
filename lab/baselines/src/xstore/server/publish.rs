//! The end of a bulk load: leaves written by a client replace all existing leaves, which are empty.

use super::super::leaf::{Bound, Leaf};
use super::super::table::Table;
use super::{Operation, Owner};
use crate::compute_node::LocalGuard;
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::radix::leaf::class_words;
use darter_index::{IndexError, Result};
use darter_pool::AllocKind;

/// A leaf to be replaced: its lock, its number and its content.
type Going = (LocalGuard<()>, u32, Leaf);

impl<F: Fabric> Owner<F> {
    /// Returns whether this server's range covers all keys.
    fn has_all_keys(&self) -> bool {
        self.tree().span.as_ref().is_some_and(|span| span.low.1.is_empty() && span.high.1.is_none())
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Makes the leaves from this one on the leaves of the index and returns their number of keys.
    /// The previous leaves enter a motion that never ends, so that no reader concludes anything
    /// from them, and are freed.
    ///
    /// # Errors
    /// [`IndexError::NotEmpty`]; a damaged index; errors of the fabric.
    /// # Errors
    /// [`IndexError::NotEmpty`]; a damaged index; errors of the fabric.
    pub(super) async fn publish(&mut self, first: u32) -> Result<u64> {
        if !self.shared.has_all_keys() {
            return Err(self.shared.moved());
        }
        let new = self.walk(first, (Bound::LEAST, &Bound::None)).await?;
        let _guard = self.lock_training().await;
        let going = self.lock_all().await?;
        self.stop(&going).await?;
        let word = self.shared.descriptor.first();
        let [old] = self.client.read_words(word).await?;
        if !self.cas_or_lose(word, old, u64::from(first)).await? {
            return Err(self.shared.damage("another process wrote the descriptor"));
        }
        let keys = new.keys;
        self.shared.know(new);
        self.retire_all(&going);
        Ok(keys)
    }

    /// The same for leaves on several nodes, to which a table leads. The table's ranges replace
    /// this one, which is over. Their servers verify the leaves when they start.
    ///
    /// # Errors
    /// [`IndexError::NotEmpty`]; [`IndexError::Moved`] if the index already has other ranges; a
    /// damaged index; errors of the fabric.
    pub(super) async fn publish_ranges(&mut self, addr: GlobalAddr) -> Result<()> {
        let table = Table::read_at(&mut self.client, addr).await?;
        if table.find(self.shared.index.addr).is_some() {
            return Err(IndexError::corrupt(addr, "not a table of a bulk load"));
        }
        let _guard = self.lock_training().await;
        if !self.shared.has_all_keys() {
            return Err(self.shared.moved());
        }
        let going = self.lock_all().await?;
        self.stop(&going).await?;
        let word = self.shared.index.ranges();
        if !self.cas_or_lose(word, 0, addr.bits()).await? {
            return Err(self.shared.damage("another process wrote the descriptor"));
        }
        // Objects that its clients have unlinked are freed after its end.
        self.shared.lose();
        self.retire_all(&going);
        Ok(())
    }

    /// Starts a motion that never ends in each leaf, and ends the generation that leads to them.
    async fn stop(&mut self, going: &[Going]) -> Result<()> {
        for (_, number, leaf) in going {
            let (word, header) = (self.word_of(*number, 0), leaf.head.header);
            self.client.cas(word, header.word(), header.stepped().word()).await?;
        }
        self.end_generation().await?;
        Ok(())
    }

    /// Makes other leaves the index's by a CAS. If its outcome is unknown, this server stops
    /// serving calls until another owner has determined it.
    ///
    /// # Errors
    /// Errors of the fabric.
    pub(super) async fn cas_or_lose(&mut self, word: GlobalAddr, old: u64, new: u64) -> Result<bool> {
        let mut batch = self.client.batch();
        let cas = batch.cas(word, old, new);
        let submitted = self.client.submit(batch).await;
        if submitted.is_err() {
            self.shared.lose();
        }
        let done = submitted?;
        let is_done = done.swapped(cas);
        self.client.recycle(done);
        Ok(is_done)
    }

    /// Retires leaves and their low bounds.
    fn retire_all(&mut self, going: &[Going]) {
        let layout = self.shared.descriptor.layout;
        for (_, number, leaf) in going {
            self.client.retire(self.word_of(*number, 0), layout.bytes(), AllocKind::Inner);
            if let Bound::Blob(addr, class) = leaf.head.low {
                self.client.retire(addr, class_words(class) as u64 * 8, AllocKind::Leaf);
            }
        }
    }

    /// Locks all leaves, from left to right.
    ///
    /// # Errors
    /// [`IndexError::NotEmpty`] if one has a key; a damaged index; errors of the fabric.
    async fn lock_all(&mut self) -> Result<Vec<Going>> {
        let (mut going, mut low): (Vec<Going>, Option<Vec<u8>>) = (Vec::new(), Some(Vec::new()));
        while let Some(bound) = low {
            let (guard, number, leaf) = self.lock_leaf(&bound).await?;
            if !leaf.head.counted().is_empty() {
                return Err(IndexError::NotEmpty);
            }
            going.push((guard, number, leaf));
            low = self.shared.bound_behind(&bound);
        }
        Ok(going)
    }
}
