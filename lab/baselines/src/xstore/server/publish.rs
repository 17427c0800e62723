//! The end of a bulk load: leaves that a client has written take the place of all there are, which
//! are empty.

use super::super::leaf::{Bound, Leaf};
use super::super::table::Table;
use super::{Operation, Owner};
use crate::compute_node::LocalGuard;
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::radix::leaf::class_words;
use darter_index::{IndexError, Result};
use darter_pool::AllocKind;

/// A leaf that is to go: its lock, its number, and the leaf.
type Going = (LocalGuard<()>, u32, Leaf);

impl<F: Fabric> Owner<F> {
    /// Whether this server's range is all there is.
    fn has_all_keys(&self) -> bool {
        self.tree().span.as_ref().is_some_and(|span| span.low.1.is_empty() && span.high.1.is_none())
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Makes the leaves from this one on the index's; returns how many keys they have. The leaves
    /// before them go into a motion that never ends, so that no reader proves anything by them, and
    /// are freed.
    ///
    /// # Errors
    /// [`IndexError::NotEmpty`]; damage; those of the fabric.
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
            return Err(self.shared.damage("somebody else wrote the descriptor"));
        }
        let keys = new.keys;
        self.shared.know(new);
        self.retire_all(&going);
        Ok(keys)
    }

    /// The same with leaves on several nodes, to which a table leads: its ranges take the place of this
    /// one, which is over. Their servers verify the leaves when they begin.
    ///
    /// # Errors
    /// [`IndexError::NotEmpty`]; [`IndexError::Moved`] if the index has other ranges already; damage;
    /// those of the fabric.
    pub(super) async fn publish_ranges(&mut self, addr: GlobalAddr) -> Result<()> {
        let table = Table::read_at(&mut self.client, addr).await?;
        if table.find(self.shared.index.addr).is_some() {
            return Err(IndexError::corrupt(addr, "a table that is no load's"));
        }
        let _guard = self.lock_training().await;
        if !self.shared.has_all_keys() {
            return Err(self.shared.moved());
        }
        let going = self.lock_all().await?;
        self.stop(&going).await?;
        let word = self.shared.index.ranges();
        if !self.cas_or_lose(word, 0, addr.bits()).await? {
            return Err(self.shared.damage("somebody else wrote the descriptor"));
        }
        // What its clients have unlinked is freed behind its end.
        self.shared.lose();
        self.retire_all(&going);
        Ok(())
    }

    /// Puts leaves into a motion that never ends, and ends the generation that leads to them.
    async fn stop(&mut self, going: &[Going]) -> Result<()> {
        for (_, number, leaf) in going {
            let (word, header) = (self.word_of(*number, 0), leaf.head.header);
            self.client.cas(word, header.word(), header.stepped().word()).await?;
        }
        self.end_generation().await?;
        Ok(())
    }

    /// A CAS after which other leaves are the index's. If nobody knows what has become of it, nothing
    /// is answered until another owner has found out.
    ///
    /// # Errors
    /// Those of the fabric.
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
    /// [`IndexError::NotEmpty`] if one has a key; damage; those of the fabric.
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
