//! Leaves that are written in place, under the lock at their end (SMART, sections 4.1.1 and 4.1.2).
//!
//! An update takes two round trips after the search: CAS of the lock, with a READ of the leaf in
//! the same batch; then a WRITE of checksum, key and value followed, in the same batch, by a WRITE
//! of the lock, which unlocks. Without the *rear lock* the unlock is a third round trip. In the
//! paper, the lock is the last word of one WRITE. But the words of a WRITE may take effect in any
//! order; if that word is first, the next holder reads and writes words that the previous one is
//! still writing.
//!
//! The leaf decides the state of its key, since clients cache its address: a delete kills the leaf
//! before it clears the slot; a value of another length gets another leaf, whose address is stored
//! in the old leaf before the slot changes. A client that finds a dead or moved leaf in a slot can
//! clear or swing the slot.
//!
//! The lock is a [`LockToken`]. In the paper, a client that dies with the lock leaves it taken
//! forever. Here a client that finds that the holder can no longer write takes the lock over. If
//! the holder had not begun its WRITE, or had completed it, the leaf is valid. If it died during
//! the WRITE, the checksum shows that, and the value is lost: neither the old nor the new one can
//! be read. The leaf is then marked, and reads of the key fail ([`IndexError::LostInWrite`]) until
//! it is put again or deleted.

use super::Smart;
use super::descent::{Descent, LeafAt, Purpose, SmartEnd};
use super::leaf::{self, Read};
use super::node::HEADER_WORDS;
use super::rdwc::Lead;
use super::shared::Operation;
use super::slot::{Slot, SlotAt};
use super::write::{Attempt, Deletion, Draft};
use crate::compute_node::yield_now;
use crate::lock_token::LockToken;
use darter_fabric::{Batch, Fabric, GlobalAddr};
use darter_index::radix::slot::edge_of;
use darter_index::radix::{TURNS_MAX, no_progress};
use darter_index::{Condition, IndexError, PutOutcome, Result};
use darter_pool::{AllocKind, Client};

/// Attempts that find a leaf locked before its holder's state is checked, unpinned.
const SPINS: u32 = 32;

/// The result of waiting for a leaf.
pub(super) enum Settled {
    Again,
    /// It is locked by this holder.
    Busy(u64),
}

impl From<Settled> for Attempt {
    fn from(settled: Settled) -> Self {
        match settled {
            Settled::Again => Self::Again,
            Settled::Busy(holder) => Self::Busy(holder),
        }
    }
}

impl From<Settled> for Deletion {
    fn from(settled: Settled) -> Self {
        match settled {
            Settled::Again => Self::Again,
            Settled::Busy(holder) => Self::Busy(holder),
        }
    }
}

/// A locked leaf, with its words under the lock.
struct Locked {
    leaf: LeafAt,
    token: LockToken,
    words: Vec<u64>,
}

impl<F: Fabric> Smart<F> {
    /// Waits, unpinned, until a holder is over or has had time to make progress. Returns the holder
    /// to take the lock over from, or 0.
    pub(super) async fn await_holder(&self, client: &mut Client<F>, holder: u64) -> Result<u64> {
        if self.shared.tokens.holder_has_ended(client, holder).await? {
            return Ok(holder);
        }
        client.pause().await;
        Ok(0)
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Locks a leaf: one round trip if it is free. `Err` names the holder. The lock is taken over
    /// from `over`, a holder that was just found to be over, or 0.
    async fn lock_leaf(&mut self, leaf: LeafAt, over: u64) -> Result<Result<Locked, u64>> {
        let lock = leaf::lock_addr(leaf.addr, leaf.len);
        let token = self.shared.tokens.issue(&mut self.client)?.at(lock);
        let (mut expected, mut tries) = (over, 0);
        loop {
            let mut batch = self.client.batch();
            let cas = batch.cas(lock, expected, token.word());
            let read = batch.read(leaf.addr, leaf::words_of(leaf.len));
            let done = self.client.submit(batch).await?;
            let (swapped, found) = (done.swapped(cas), done.found(cas));
            let words = swapped.then(|| done.words(read).to_vec());
            self.client.recycle(done);
            if let Some(words) = words {
                return Ok(Ok(Locked { leaf, token, words }));
            }
            self.client.retried();
            tries += 1;
            expected = 0;
            if tries >= SPINS && found != 0 {
                token.release();
                return Ok(Err(found));
            }
            yield_now().await;
        }
    }

    /// Unlocks an unchanged leaf.
    async fn unlock(&mut self, locked: Locked) -> Result<()> {
        let mut batch = self.client.batch();
        self.unlock_in(&mut batch, &locked);
        self.client.complete(batch).await?;
        locked.token.release();
        Ok(())
    }

    /// Adds the verb that unlocks a leaf, after all others of a batch.
    fn unlock_in(&self, batch: &mut Batch, locked: &Locked) {
        let lock = leaf::lock_addr(locked.leaf.addr, locked.leaf.len);
        locked.token.unlock_in(self.client.pool().fabric(), batch, lock);
    }

    /// Checks under the lock of a leaf that stays torn whether its value is lost, and marks it if
    /// so.
    pub(super) async fn settle(&mut self, leaf: LeafAt, over: u64) -> Result<Settled> {
        let mut locked = match self.lock_leaf(leaf, over).await? {
            Ok(locked) => locked,
            Err(holder) => return Ok(Settled::Busy(holder)),
        };
        self.mark_if_lost(&mut locked).await?;
        self.unlock(locked).await?;
        Ok(Settled::Again)
    }

    /// The same for a leaf whose slot is unknown. Returns the holder of its lock if the lock could
    /// not be taken.
    pub(super) async fn settle_at(&mut self, addr: GlobalAddr, len: u8, over: u64) -> Result<Option<u64>> {
        let at = SlotAt { addr: GlobalAddr::NULL, slot: Slot::EMPTY };
        let settled = self.settle(LeafAt { at, index: 0, addr, len }, over).await?;
        Ok(match settled {
            Settled::Busy(holder) => Some(holder),
            Settled::Again => None,
        })
    }

    /// Marks a leaf whose former holder died while writing it.
    async fn mark_if_lost(&mut self, locked: &mut Locked) -> Result<()> {
        let addr = locked.leaf.addr;
        if matches!(self.shared.format.parse(addr, &locked.words)?, Read::Torn) {
            let lost = leaf::lost_word(locked.words[0]);
            self.client
                .post(|batch| {
                    batch.faa(addr, leaf::change_of(locked.words[0], lost));
                })
                .await?;
            locked.words[0] = lost;
        }
        Ok(())
    }

    /// Writes the leaf of a present key in place, or replaces the leaf for a value of another
    /// length.
    pub(super) async fn update_leaf(
        &mut self,
        draft: &mut Draft<'_>,
        descent: &Descent<'_>,
        leaf: LeafAt,
        (condition, lead): (Condition<'_>, Option<&Lead<'_>>),
    ) -> Result<Attempt> {
        let mut locked = match self.lock_leaf(leaf, draft.take_over()).await? {
            Ok(locked) => locked,
            Err(holder) => return Ok(Attempt::Busy(holder)),
        };
        self.mark_if_lost(&mut locked).await?;
        let known_len = match self.shared.format.parse(leaf.addr, &locked.words)? {
            Read::Pair(pair) if pair.key != draft.key => {
                let what = "leaf whose key has changed";
                return Err(IndexError::corrupt(leaf.addr, what));
            }
            Read::Pair(pair) => {
                if let Condition::Equals(wanted) = condition
                    && pair.value != Some(wanted)
                {
                    let is_known = pair.value.is_some();
                    self.unlock(locked).await?;
                    return if is_known {
                        Ok(Attempt::Done(PutOutcome::Refused))
                    } else {
                        Err(IndexError::LostInWrite { addr: leaf.addr })
                    };
                }
                pair.value.map(<[u8]>::len)
            }
            Read::Torn | Read::Dead | Read::Moved(..) => {
                self.unlock(locked).await?;
                return Ok(Attempt::Again);
            }
        };
        if draft.len != leaf.len {
            return self.move_leaf(draft, descent, locked, lead).await;
        }
        if let Some(lead) = lead {
            lead.close();
        }
        let image = self.shared.format.image(descent.node, draft.len, draft.key, draft.value);
        // The reverse pointer stays, and the first word unless the length changes.
        let lock_word = image.len() - 1;
        let mut batch = self.client.batch();
        if known_len != Some(draft.value.len()) {
            let live = leaf::live_like(locked.words[0], draft.value.len());
            batch.faa(leaf.addr, leaf::change_of(locked.words[0], live));
        }
        batch.write(leaf.addr.plus(8), &image[1..lock_word]);
        if !self.shared.options.rear_lock {
            self.client.send(&mut batch).await?;
        }
        self.unlock_in(&mut batch, &locked);
        self.client.complete(batch).await?;
        locked.token.release();
        Ok(Attempt::Done(PutOutcome::Replaced))
    }

    /// Gives a key another leaf, with the old one locked.
    async fn move_leaf(
        &mut self,
        draft: &mut Draft<'_>,
        descent: &Descent<'_>,
        locked: Locked,
        lead: Option<&Lead<'_>>,
    ) -> Result<Attempt> {
        let old = locked.leaf;
        let addr = match draft.place(&mut self.client, old.at.addr.node()).await {
            Ok(addr) => addr,
            Err(error) => {
                self.unlock(locked).await?;
                return Err(error);
            }
        };
        if let Some(lead) = lead {
            lead.close();
        }
        let image = self.shared.format.image(descent.node, draft.len, draft.key, draft.value);
        let slot = Slot::leaf(edge_of(draft.key, descent.depth), draft.len, addr);
        let mut batch = self.client.batch();
        batch.write(addr, &image);
        if addr.node() != old.addr.node() {
            self.client.send(&mut batch).await?;
        }
        // Until this succeeds the old leaf is valid, so the slot has to wait.
        let moved = leaf::moved_word(addr, draft.len);
        let mut word = locked.words[0];
        loop {
            let cas = batch.cas(old.addr, word, moved);
            let done = self.client.submit(batch).await?;
            let (swapped, found) = (done.swapped(cas), done.found(cas));
            self.client.recycle(done);
            batch = self.client.batch();
            if swapped {
                break;
            }
            // Only the reverse pointer changes under the lock.
            word = found;
        }
        draft.linked();
        let cas = batch.cas(old.at.addr, old.at.slot.word(), slot.word());
        self.unlock_in(&mut batch, &locked);
        let done = self.client.submit(batch).await?;
        let swapped = done.swapped(cas);
        self.client.recycle(done);
        locked.token.release();
        if swapped {
            self.note_child(descent, old.index, slot);
            self.set_aside(old.addr, leaf::bytes_of(old.len), AllocKind::Leaf);
        } else {
            self.shared.unless_full(self.repair_slot(draft.key).await)?;
        }
        Ok(Attempt::Done(PutOutcome::Replaced))
    }

    /// Finds the slot of a leaf that was killed or has moved, if the slot has moved, and clears or
    /// swings it, unless another client has done so.
    pub(super) async fn repair_slot(&mut self, key: &[u8]) -> Result<()> {
        for _ in 0..TURNS_MAX {
            let mut descent = Descent::below(key, Purpose::Write, 0);
            let (end, done) = self.run(&mut descent).await?;
            self.client.recycle(done);
            match end {
                SmartEnd::Sealed => self.help(key, descent.node).await?,
                SmartEnd::Leaf { leaf, is_key: true, .. } if leaf.addr != leaf.at.slot.addr() => {
                    self.link_moved(&descent, leaf).await?;
                }
                SmartEnd::Vacant { taken: Some((index, slot)) } if slot.is_live() => {
                    self.bury(&descent, index, slot).await?;
                }
                _ => return Ok(()),
            }
        }
        Err(no_progress(self.shared.words.root))
    }

    /// Swings a slot from a leaf that has moved to the new leaf.
    pub(super) async fn link_moved(&mut self, descent: &Descent<'_>, leaf: LeafAt) -> Result<()> {
        let slot = Slot::leaf(leaf.at.slot.edge().unwrap_or(0), leaf.len, leaf.addr);
        self.exchange(descent, leaf.index, leaf.at, slot).await
    }

    /// Clears a slot with a dead leaf.
    pub(super) async fn bury(&mut self, descent: &Descent<'_>, index: usize, slot: Slot) -> Result<()> {
        let at = SlotAt { addr: super::node::slot_addr(descent.node, index), slot };
        self.exchange(descent, index, at, Slot::tomb(edge_of(descent.key, descent.depth))).await
    }

    /// Swings a slot from an outdated leaf; sets the leaf aside if this client swung the slot.
    async fn exchange(&mut self, descent: &Descent<'_>, index: usize, at: SlotAt, new: Slot) -> Result<()> {
        if self.publish(&[], at, new, None).await?
            && let super::slot::Content::Leaf { addr, len } = at.slot.content()
        {
            self.note_child(descent, index, new);
            self.set_aside(addr, leaf::bytes_of(len), AllocKind::Leaf);
        }
        Ok(())
    }

    /// Returns why a condition prevents killing a locked leaf, if it does. A value whose writer
    /// died is marked as lost.
    async fn refusal(&mut self, locked: &mut Locked, condition: Condition<'_>) -> Result<Option<Deletion>> {
        let addr = locked.leaf.addr;
        Ok(match (self.shared.format.parse(addr, &locked.words)?, condition) {
            (Read::Dead | Read::Moved(..), _) => Some(Deletion::Again),
            (_, Condition::Absent) => Some(Deletion::Refused),
            (Read::Pair(pair), Condition::Equals(wanted)) => match pair.value {
                Some(value) => (value != wanted).then_some(Deletion::Refused),
                None => return Err(IndexError::LostInWrite { addr }),
            },
            (Read::Torn, Condition::Equals(_)) => {
                self.mark_if_lost(locked).await?;
                Some(Deletion::Again)
            }
            _ => None,
        })
    }

    /// Kills a key's leaf if the condition holds, then clears its slot. The lock is taken over from
    /// `over` as in [`Operation::lock_leaf`].
    pub(super) async fn kill_leaf(
        &mut self,
        descent: &Descent<'_>,
        leaf: LeafAt,
        (condition, over): (Condition<'_>, u64),
    ) -> Result<Deletion> {
        let mut locked = match self.lock_leaf(leaf, over).await? {
            Ok(locked) => locked,
            Err(holder) => return Ok(Deletion::Busy(holder)),
        };
        let refusal = self.refusal(&mut locked, condition).await;
        if !matches!(refusal, Ok(None)) {
            self.unlock(locked).await?;
            return refusal.map(|refusal| refusal.unwrap_or(Deletion::Again));
        }
        let tomb = Slot::tomb(edge_of(descent.key, descent.depth));
        let mut batch = self.client.batch();
        batch.faa(leaf.addr, leaf::change_of(locked.words[0], leaf::dead_word(locked.words[0])));
        if leaf.addr.node() != leaf.at.addr.node() {
            self.client.send(&mut batch).await?;
        }
        let cas = batch.cas(leaf.at.addr, leaf.at.slot.word(), tomb.word());
        self.unlock_in(&mut batch, &locked);
        let read = batch.read(descent.node, HEADER_WORDS + descent.known_type().slots());
        let done = self.client.submit(batch).await?;
        let swapped = done.swapped(cas);
        let left = super::node::live_count(&done.words(read)[HEADER_WORDS..]);
        self.client.recycle(done);
        locked.token.release();
        if !swapped {
            return Ok(Deletion::Killed);
        }
        self.note_child(descent, leaf.index, tomb);
        self.set_aside(leaf.addr, leaf::bytes_of(leaf.len), AllocKind::Leaf);
        Ok(Deletion::Gone { was_here: true, left })
    }
}
