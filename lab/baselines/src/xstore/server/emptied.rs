//! Emptied leaves: upkeep takes them out of the index and gives their memory back.
//!
//! A leaf without keys, other than the first, begins to go: its header gets an odd incarnation for
//! ever. Then a motion of its left neighbour takes its right neighbour as next, and its high bound
//! as high bound. The first word of that motion is the moment at which the leaf is out. It leads to
//! its right neighbour still, for those that walk; who looks for a key in it learns that it is
//! elsewhere.
//!
//! Tables lead to the leaf until their generation ends, and clients know its number for as long. So
//! leaves are taken out together, right before all is trained anew, and retired right behind the
//! CAS that begins another generation: in one operation, whose pin keeps a sweep, which does not
//! reach them, from freeing them first. When that fails they are left to the sweep of what this
//! server leaves.

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

/// Emptied leaves are taken out when they are one in so many.
const SHARE: u64 = 8;
/// Or when upkeep has come so often that all leaves are not more than so many for each time.
const LEAVES_A_ROUND: u64 = 1024;

/// What a server knows of leaves without keys.
#[derive(Debug, Default)]
pub(super) struct Emptied {
    /// The low bounds of leaves that were seen without keys.
    lows: Mutex<BTreeSet<Vec<u8>>>,
    /// Rounds of upkeep since leaves were taken out.
    rounds: AtomicU64,
}

impl Emptied {
    /// Notes the leaves that a walk has seen.
    pub(super) fn note_all(&self, lows: BTreeSet<Vec<u8>>) {
        *lock(&self.lows) = lows;
    }

    /// The low bounds of the leaves that are to be taken out now, of so many leaves: few enough of
    /// these have to be read by training for each leaf that goes, or for each round of upkeep.
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
    /// Notes that the leaf of a key has no keys any more. The first leaf stays.
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

    /// The low bound of the leaf in front of the one with this low bound.
    pub(super) fn last_below(&self, low: &[u8]) -> Option<Vec<u8>> {
        let tree = self.tree();
        let below = tree.by_low.range::<[u8], _>((At::Unbounded, At::Excluded(low))).next_back();
        below.map(|(low, _)| low.clone())
    }
}

/// Objects that are out of the index, to be retired when the generation has ended.
#[derive(Debug, Default)]
pub(super) struct Going(Vec<(GlobalAddr, u64, AllocKind)>);

impl Going {
    /// Whether there are any: clients know their numbers until the generation has ended.
    pub(super) fn ends_generation(&self) -> bool {
        !self.0.is_empty()
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Takes emptied leaves out of the index, if that is due. The lock of training is held, and the
    /// generation is to end before what is `going` is retired.
    ///
    /// # Errors
    /// Damage, those of the fabric. What was taken out before is `going` nonetheless.
    pub(super) async fn take_out_emptied(&mut self, going: &mut Going) -> Result<()> {
        let leaves = self.shared.tree().by_low.len() as u64;
        for low in self.shared.emptied.due(leaves) {
            self.take_out(&low, going).await?;
            lock(&self.shared.emptied.lows).remove(&low);
        }
        Ok(())
    }

    /// Retires what was taken out.
    pub(super) fn retire_going(&mut self, going: Going) {
        for (addr, bytes, kind) in going.0 {
            self.client.retire(addr, bytes, kind);
        }
    }

    /// Takes out the leaf with this low bound, if there is one, and it has no keys.
    async fn take_out(&mut self, low: &[u8], going: &mut Going) -> Result<()> {
        let (owner, Descriptor { layout, .. }) = (self.shared, self.shared.descriptor);
        while let Some(left) = owner.last_below(low) {
            let (_guard, number, leaf) = self.lock_leaf(&left).await?;
            let behind = owner.bound_behind(&left);
            if behind.as_deref().is_some_and(|behind| behind < low) {
                // The neighbour has split meanwhile.
                continue;
            }
            if behind.as_deref() != Some(low) {
                break;
            }
            // Nobody takes the leaf out, and none comes between, while its neighbour is locked.
            let emptied = leaf.head.header.next;
            let _guard = owner.locks.lock(u64::from(emptied)).await;
            let old = self.sound_leaf(emptied).await?;
            if !old.head.counted().is_empty() {
                break;
            }
            let header = old.head.header;
            let word = self.word_of(emptied, 0);
            if !self.client.cas(word, header.word(), header.going().word()).await?.swapped {
                return Err(owner.damage("somebody else wrote a leaf's header"));
            }
            // From here on its keys are the neighbour's. If the neighbour has not become so, it is
            // found behind that again.
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
