//! Emptied leaves: upkeep removes them from the index and reclaims their memory.
//!
//! The removal of a leaf without keys, other than the first, begins with a header whose odd
//! incarnation is final (the leaf is *going*). Then a motion of its left neighbour takes over the
//! leaf's next and high bound. The first word of that motion is the moment at which the leaf leaves
//! the index. The removed leaf still leads to its right neighbour, so walks can continue; a lookup
//! that reaches it goes elsewhere.
//!
//! Tables lead to the leaf until their generation ends, and clients know its number until then. So
//! leaves are removed together, right before a full training, and retired right after the CAS that
//! begins another generation. Both happen in one operation, whose pin prevents a sweep, which does
//! not reach these leaves, from freeing them first. If that fails, the leaves are left to the sweep
//! of this server's objects.

use super::super::descriptor::Descriptor;
use super::super::leaf::{Bound, Header};
use super::{Operation, Owner};
use crate::sync::lock;
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::Result;
use darter_index::radix::leaf::class_words;
use darter_pool::AllocKind;
use std::collections::BTreeSet;
use std::ops::Bound as At;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Emptied leaves are removed once they are this fraction of all leaves: one in `SHARE`.
const SHARE: u64 = 8;
/// They are also removed once there are at most this many leaves per round of upkeep.
const LEAVES_A_ROUND: u64 = 1024;

/// What a server knows about leaves without keys.
#[derive(Debug, Default)]
pub(super) struct Emptied {
    /// The low bounds of leaves that were seen without keys.
    lows: Mutex<BTreeSet<Vec<u8>>>,
    /// Rounds of upkeep since leaves were last removed.
    rounds: AtomicU64,
}

impl Emptied {
    /// Records the emptied leaves that a walk has seen.
    pub(super) fn note_all(&self, lows: BTreeSet<Vec<u8>>) {
        *lock(&self.lows) = lows;
    }

    /// Returns the low bounds of the leaves to remove now, given the total number of leaves. The
    /// limits bound the number of leaves that training has to read per removed leaf or per round of
    /// upkeep.
    fn due(&self, leaves: u64) -> Vec<Vec<u8>> {
        let rounds = self.rounds.fetch_add(1, Ordering::Relaxed) + 1;
        let lows = lock(&self.lows);
        let emptied = lows.len() as u64;
        let is_due = emptied * SHARE >= leaves || rounds.saturating_mul(LEAVES_A_ROUND) >= leaves;
        if emptied == 0 || !is_due {
            return Vec::new();
        }
        self.rounds.store(0, Ordering::Relaxed);
        lows.iter().cloned().collect()
    }
}

impl<F: Fabric> Owner<F> {
    /// Records that the leaf of a key has no keys left. The first leaf stays.
    pub(super) fn note_emptied(&self, key: &[u8]) {
        let low = {
            let tree = self.tree();
            let mut below = tree.by_low.range::<[u8], _>((At::Unbounded, At::Included(key)));
            let last = below.next_back();
            last.filter(|_| below.next().is_some()).map(|(low, _)| low.clone())
        };
        if let Some(low) = low {
            lock(&self.emptied.lows).insert(low);
        }
    }

    /// Returns the low bound of the leaf before the one with this low bound.
    pub(super) fn last_below(&self, low: &[u8]) -> Option<Vec<u8>> {
        let tree = self.tree();
        let below = tree.by_low.range::<[u8], _>((At::Unbounded, At::Excluded(low))).next_back();
        below.map(|(low, _)| low.clone())
    }
}

/// Objects removed from the index, to be retired when the generation has ended.
#[derive(Debug, Default)]
pub(super) struct Going(Vec<(GlobalAddr, u64, AllocKind)>);

impl Going {
    /// Returns whether there are any: clients know their numbers until the generation ends.
    pub(super) fn ends_generation(&self) -> bool {
        !self.0.is_empty()
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Removes emptied leaves from the index if that is due. The caller holds the training lock and
    /// must end the generation before it retires the objects in `going`.
    ///
    /// # Errors
    /// A damaged index; errors of the fabric. Leaves removed before the error are in `going`.
    pub(super) async fn take_out_emptied(&mut self, going: &mut Going) -> Result<()> {
        let leaves = self.shared.tree().by_low.len() as u64;
        for low in self.shared.emptied.due(leaves) {
            self.take_out(&low, going).await?;
            lock(&self.shared.emptied.lows).remove(&low);
        }
        Ok(())
    }

    /// Retires the removed leaves.
    pub(super) fn retire_going(&mut self, going: Going) {
        for (addr, bytes, kind) in going.0 {
            self.client.retire(addr, bytes, kind);
        }
    }

    /// Removes the leaf with this low bound if it exists and has no keys.
    async fn take_out(&mut self, low: &[u8], going: &mut Going) -> Result<()> {
        let (owner, Descriptor { layout, .. }) = (self.shared, self.shared.descriptor);
        while let Some(left) = owner.last_below(low) {
            let (_guard, number, leaf) = self.lock_leaf(&left).await?;
            let behind = owner.bound_behind(&left);
            if behind.as_deref().is_some_and(|behind| behind < low) {
                // The neighbour has split in between.
                continue;
            }
            if behind.as_deref() != Some(low) {
                break;
            }
            // While its neighbour is locked, the leaf cannot be removed, and no leaf can be
            // inserted between the two.
            let emptied = leaf.head.header.next;
            let _guard = owner.locks.lock(u64::from(emptied)).await;
            let old = self.sound_leaf(emptied).await?;
            if !old.head.counted().is_empty() {
                break;
            }
            let header = old.head.header;
            let word = self.word_of(emptied, 0);
            if !self.client.cas(word, header.word(), header.going().word()).await?.swapped {
                return Err(owner.damage("another process wrote a leaf's header"));
            }
            // From here on its keys are the neighbour's. If the motion did not take effect, the
            // leaf is found again as the neighbour's next.
            owner.tree().remove(low);
            let kept: Vec<usize> = (0..leaf.head.counted().len()).collect();
            let moving = Header { next: header.next, ..leaf.head.header.stepped() };
            self.change(number, &leaf, moving, &kept, &old.head.high).await?;
            owner.tree().remove(low);
            going.0.push((word, layout.bytes(), AllocKind::Inner));
            if let Bound::Blob(addr, class) = old.head.low {
                going.0.push((addr, class_words(class) as u64 * 8, AllocKind::Leaf));
            }
            break;
        }
        Ok(())
    }
}
