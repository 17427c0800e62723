//! The end of a bulk load: leaves that a client has written take the place of all there are, which
//! are empty.

use super::super::descriptor::Descriptor;
use super::super::leaf::{Bound, Leaf};
use super::Operation;
use crate::compute_node::LocalGuard;
use darter_fabric::{Fabric, mutant};
use darter_index::radix::leaf::class_words;
use darter_index::{IndexError, Result};
use darter_pool::AllocKind;

/// A leaf that is to go: its lock, its number, and the leaf.
type Going = (LocalGuard<()>, u32, Leaf);

impl<F: Fabric> Operation<'_, F> {
    /// Makes the leaves from this one on the index's; returns how many keys they have. The leaves
    /// before them go into a motion that never ends, so that no reader proves anything by them, and
    /// are freed.
    ///
    /// # Errors
    /// [`IndexError::NotEmpty`]; damage; those of the fabric.
    pub(super) async fn publish(&mut self, first: u32) -> Result<u64> {
        let new = self.walk(first).await?;
        let _guard = self.lock_training().await;
        let going = self.lock_all().await?;
        let Descriptor { layout, .. } = self.shared.descriptor;
        for (_, number, leaf) in &going {
            let (word, header) = (self.word_of(*number, 0), leaf.head.header);
            self.client.cas(word, header.word(), header.stepped().word()).await?;
        }
        if !mutant!("xstore-load-keeps-the-generation") {
            self.end_generation().await?;
        }
        let word = self.shared.descriptor.first();
        let [old] = self.client.read_words(word).await?;
        let mut batch = self.client.batch();
        let cas = batch.cas(word, old, u64::from(first));
        let submitted = self.client.submit(batch).await;
        if submitted.is_err() {
            // Nobody knows which leaves are the index's now: nothing is answered until another
            // owner has found out.
            self.shared.lose();
        }
        let done = submitted?;
        let is_done = done.swapped(cas);
        self.client.recycle(done);
        if !is_done {
            return Err(self.shared.damage("somebody else wrote the descriptor"));
        }
        let keys = new.keys;
        self.shared.know(new);
        for (_, number, leaf) in &going {
            self.client.retire(self.word_of(*number, 0), layout.bytes(), AllocKind::Inner);
            if let Bound::Blob(addr, class) = leaf.head.low {
                self.client.retire(addr, class_words(class) as u64 * 8, AllocKind::Leaf);
            }
        }
        Ok(keys)
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
