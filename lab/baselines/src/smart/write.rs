//! Insert, update, conditional put and delete (SMART, sections 4.1.2 and 4.4).
//!
//! Every change of the tree is one CAS on one slot or on one header. The objects that it links are
//! written before, in the same doorbell batch if both are on one memory node. A CAS that fails
//! changes nothing: the operation reads again and counts a retry.
//!
//! *Slots* are taken in order and keep their edge for the life of their node, so two inserts of one
//! edge compete for one slot.
//!
//! *Type switch.* After the last visible slot an insert takes the next ones in order, without
//! reading them, and then raises the type in the header, which makes the inserted child visible. A
//! client that finds another's slot there raises the type before it returns or continues; otherwise
//! acknowledged keys below that slot would not be found, or never if the other client died.

use super::Smart;
use super::descent::{Descent, LeafAt, Purpose, SmartEnd};
use super::leaf;
use super::node::{self, HEADER_WORDS, Header, NodeType, SLOTS_MAX, live_count};
use super::rdwc::Lead;
use super::shared::Operation;
use super::slot::{Content, Slot, SlotAt};
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_index::check_key;
use darter_index::radix::drafts::Drafts;
use darter_index::radix::slot::edge_of;
use darter_index::radix::{TURNS_MAX, no_progress};
use darter_index::{Condition, IndexError, PutOutcome, Result};
use darter_pool::{AllocKind, Client};

/// Words of one batch of WRITEs.
const BATCH_WORDS: usize = 64 << 10;

/// The pair being put, and its leaf once allocated.
pub(super) struct Draft<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) len: u8,
    /// A former holder of the leaf's lock that is over, or 0.
    over: u64,
    leaf: Option<GlobalAddr>,
    drafts: Drafts,
}

impl<'a> Draft<'a> {
    fn new<F: Fabric>(smart: &Smart<F>, client: &Client<F>, key: &'a [u8], value: &'a [u8]) -> Result<Self> {
        check_key(key)?;
        let (format, max) = (smart.shared.format, client.pool().object_bytes_max());
        let len = format.len_within(max, key.len(), value.len())?;
        Ok(Self { key, value, len, over: 0, leaf: None, drafts: Drafts::new() })
    }

    /// Returns the leaf's address: on the memory node of the node that will point to it, if there
    /// is room.
    pub(super) async fn place<F: Fabric>(&mut self, client: &mut Client<F>, node: u8) -> Result<GlobalAddr> {
        if let Some(addr) = self.leaf {
            return Ok(addr);
        }
        let addr = self.drafts.alloc(client, node, leaf::bytes_of(self.len), AllocKind::Leaf).await?;
        self.leaf = Some(addr);
        Ok(addr)
    }

    /// Returns the holder to take the lock over from, or 0. Valid for one attempt: the word may
    /// name another holder later.
    pub(super) fn take_over(&mut self) -> u64 {
        std::mem::take(&mut self.over)
    }

    /// Marks the leaf as published.
    pub(super) fn linked(&mut self) {
        self.drafts.keep();
    }
}

/// The result of one descent.
pub(super) enum Attempt {
    Done(PutOutcome),
    Again,
    /// A leaf is locked by this holder.
    Busy(u64),
}

impl<F: Fabric> Smart<F> {
    /// Stores a value under a key if the condition holds, without combining. `lead` stands for puts
    /// of other clients that this one overwrites immediately.
    pub(super) async fn put_value(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
        lead: Option<&Lead<'_>>,
    ) -> Result<PutOutcome> {
        let mut draft = Draft::new(self, client, key, value)?;
        let kind = condition.op_kind();
        for _ in 0..TURNS_MAX {
            let mut operation = self.begin(client, kind).await?;
            let turn = operation.put_pinned(&mut draft, condition, lead).await;
            match turn {
                Ok(Attempt::Done(outcome)) => {
                    draft.drafts.discard(&mut operation.client);
                    return Ok(outcome);
                }
                Ok(Attempt::Busy(holder)) => {
                    operation.client.retried();
                    drop(operation);
                    draft.over = self.await_holder(client, holder).await?;
                }
                Ok(Attempt::Again) => {}
                Err(error) => {
                    if error.is_out_of_space() {
                        draft.drafts.discard(&mut operation.client);
                        self.shared.quarantine.hurry();
                    }
                    return Err(error);
                }
            }
        }
        Err(no_progress(self.shared.words.root))
    }

    /// Removes a key if the condition holds. Returns whether it removed it.
    pub(super) async fn delete_key(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        condition: Condition<'_>,
    ) -> Result<bool> {
        check_key(key)?;
        let mut over = 0;
        for _ in 0..TURNS_MAX {
            let mut operation = self.begin(client, OpKind::Delete).await?;
            match operation.delete_turn(key, condition, std::mem::take(&mut over)).await? {
                Deletion::Refused => return Ok(false),
                Deletion::Gone { was_here, left } => {
                    // An interrupted delete may have left the node to the next delete.
                    if left <= 1 {
                        self.shared.unless_full(operation.tidy(key).await)?;
                    }
                    return Ok(was_here);
                }
                Deletion::Killed => {
                    // A client that puts the key again from now on creates another leaf.
                    self.shared.unless_full(operation.repair_slot(key).await)?;
                    self.shared.unless_full(operation.tidy(key).await)?;
                    return Ok(true);
                }
                Deletion::Again => operation.client.retried(),
                Deletion::Busy(holder) => {
                    operation.client.retried();
                    drop(operation);
                    over = self.await_holder(client, holder).await?;
                }
            }
        }
        Err(no_progress(self.shared.words.root))
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Runs turns under one pin, until the operation has to wait.
    async fn put_pinned(
        &mut self,
        draft: &mut Draft<'_>,
        condition: Condition<'_>,
        lead: Option<&Lead<'_>>,
    ) -> Result<Attempt> {
        for _ in 0..TURNS_MAX {
            match self.put_turn(draft, condition, lead).await? {
                Attempt::Again => self.client.retried(),
                turn => return Ok(turn),
            }
        }
        Err(no_progress(self.shared.words.root))
    }

    async fn put_turn(
        &mut self,
        draft: &mut Draft<'_>,
        condition: Condition<'_>,
        lead: Option<&Lead<'_>>,
    ) -> Result<Attempt> {
        let mut descent = Descent::new(draft.key, Purpose::Write);
        let (end, done) = self.run(&mut descent).await?;
        let mut other = None;
        let is_refused = match end {
            SmartEnd::Leaf { leaf, read, is_key: true } if leaf.addr == leaf.at.slot.addr() => {
                let parsed = self.shared.format.parse(leaf.addr, done.words(read))?;
                match (condition, parsed) {
                    (Condition::Absent, _) => true,
                    (Condition::Equals(wanted), leaf::Read::Pair(pair)) => {
                        pair.value.ok_or(IndexError::LostInWrite { addr: leaf.addr })? != wanted
                    }
                    (Condition::Equals(_), _) => return Ok(Attempt::Again),
                    (Condition::Always | Condition::Present, _) => false,
                }
            }
            SmartEnd::Leaf { read, is_key: false, .. } => {
                other = Some(self.key_at(end, read, &done)?);
                condition.wants_key()
            }
            SmartEnd::Vacant { .. } | SmartEnd::Diverged { .. } => condition.wants_key(),
            _ => false,
        };
        self.client.recycle(done);
        if is_refused {
            return Ok(Attempt::Done(PutOutcome::Refused));
        }
        let close = || lead.iter().for_each(|lead| lead.close());
        match (end, other) {
            (SmartEnd::Leaf { leaf, .. }, _) if leaf.addr != leaf.at.slot.addr() => {
                self.link_moved(&descent, leaf).await?;
                Ok(Attempt::Again)
            }
            (SmartEnd::Leaf { leaf, .. }, None) if self.shared.format.in_place => {
                self.update_leaf(draft, &descent, leaf, (condition, lead)).await
            }
            (SmartEnd::Leaf { leaf, .. }, None) => {
                close();
                self.replace_leaf(draft, &descent, leaf).await
            }
            (SmartEnd::Leaf { leaf, .. }, Some(other)) => {
                close();
                self.split_leaf(draft, &descent, leaf, other).await
            }
            (SmartEnd::Vacant { taken }, _) => {
                close();
                match taken {
                    Some((index, old)) => self.take_again(draft, &descent, index, old).await,
                    None => self.append(draft, &mut descent).await,
                }
            }
            (SmartEnd::Diverged { matched }, _) => {
                close();
                self.split_above(draft, &descent, matched).await
            }
            (SmartEnd::Sealed, _) => {
                self.help(draft.key, descent.node).await?;
                Ok(Attempt::Again)
            }
            (SmartEnd::Torn { leaf }, _) => self.settle(leaf, draft.take_over()).await.map(Into::into),
        }
    }

    /// Swings the slot of a present key to a new leaf, out of place.
    async fn replace_leaf(
        &mut self,
        draft: &mut Draft<'_>,
        descent: &Descent<'_>,
        old: LeafAt,
    ) -> Result<Attempt> {
        let addr = draft.place(&mut self.client, old.at.addr.node()).await?;
        let image = self.shared.format.image(descent.node, draft.len, draft.key, draft.value);
        let slot = Slot::leaf(old.at.slot.edge().unwrap_or(0), draft.len, addr);
        if !self.publish(&[(addr, &image)], old.at, slot, None).await? {
            self.forget_slot(descent, old.index);
            return Ok(Attempt::Again);
        }
        draft.linked();
        self.note_child(descent, old.index, slot);
        self.client.retire(old.addr, leaf::bytes_of(old.len), AllocKind::Leaf);
        Ok(Attempt::Done(PutOutcome::Replaced))
    }

    /// Takes the slot of the key's edge, which has no child.
    async fn take_again(
        &mut self,
        draft: &mut Draft<'_>,
        descent: &Descent<'_>,
        index: usize,
        old: Slot,
    ) -> Result<Attempt> {
        let at = SlotAt { addr: node::slot_addr(descent.node, index), slot: old };
        let addr = draft.place(&mut self.client, at.addr.node()).await?;
        let image = self.shared.format.image(descent.node, draft.len, draft.key, draft.value);
        let slot = Slot::leaf(edge_of(draft.key, descent.depth), draft.len, addr);
        if !self.publish(&[(addr, &image)], at, slot, None).await? {
            return Ok(Attempt::Again);
        }
        draft.linked();
        self.note_child(descent, index, slot);
        if let Content::Leaf { addr, len } = old.content() {
            // It was dead.
            self.set_aside(addr, leaf::bytes_of(len), AllocKind::Leaf);
        }
        Ok(Attempt::Done(PutOutcome::Inserted))
    }

    /// Takes the next slot for the key's edge, which has none, with a type switch if it is after
    /// the visible ones.
    async fn append(&mut self, draft: &mut Draft<'_>, descent: &mut Descent<'_>) -> Result<Attempt> {
        let node = descent.node;
        let edge = edge_of(draft.key, descent.depth);
        let addr = draft.place(&mut self.client, node.node()).await?;
        let image = self.shared.format.image(node, draft.len, draft.key, draft.value);
        let slot = Slot::leaf(edge, draft.len, addr);
        let first = descent.slots.iter().position(|&word| Slot::from_word(word).is_empty());
        let mut is_written = false;
        for index in first.unwrap_or(descent.slots.len())..SLOTS_MAX {
            let needed = NodeType::fit(index + 1);
            let mut batch = self.client.batch();
            if !is_written {
                batch.write(addr, &image);
                if addr.node() != node.node() {
                    self.client.send(&mut batch).await?;
                }
                is_written = true;
            }
            let cas = batch.cas(node::slot_addr(node, index), 0, slot.word());
            // Whether this put or another client took the slot, it has to become visible.
            let raise = descent.header.ty().is_some_and(|ty| ty < needed).then(|| {
                let raised = descent.header.with_type(needed);
                if let Some(at) = descent.incoming.filter(|at| !at.slot.is_sealed()) {
                    let grown = Slot::node(at.slot.edge().unwrap_or(0), needed, node);
                    batch.cas(at.addr, at.slot.word(), grown.word());
                }
                (batch.cas(node::header_addr(node), descent.header.word(), raised.word()), raised)
            });
            let done = self.client.submit(batch).await?;
            let (taken, found) = (done.swapped(cas), Slot::from_word(done.found(cas)));
            if let Some((cas, raised)) = raise {
                descent.header = if done.swapped(cas) { raised } else { Header::from_word(done.found(cas)) };
            }
            self.client.recycle(done);
            self.raise_type(descent, needed).await?;
            if taken {
                draft.linked();
                self.note_child(descent, index, slot);
                return Ok(Attempt::Done(PutOutcome::Inserted));
            }
            if found.is_sealed() {
                self.help(draft.key, node).await?;
                return Ok(Attempt::Again);
            }
            if found.is_of(edge) {
                return Ok(Attempt::Again);
            }
            self.client.retried();
        }
        Err(IndexError::corrupt(node, "an inner node with too many edges"))
    }

    /// Raises a node's type until all slots of `needed` are visible.
    async fn raise_type(&mut self, descent: &mut Descent<'_>, needed: NodeType) -> Result<()> {
        loop {
            match descent.header.ty() {
                Some(ty) if ty >= needed => return Ok(()),
                Some(_) => {}
                None => {
                    let (addr, what) = (descent.node, "inner node of an unknown type");
                    return Err(IndexError::corrupt(addr, what));
                }
            }
            let raised = descent.header.with_type(needed);
            let mut batch = self.client.batch();
            let cas = batch.cas(node::header_addr(descent.node), descent.header.word(), raised.word());
            let done = self.client.submit(batch).await?;
            descent.header = if done.swapped(cas) { raised } else { Header::from_word(done.found(cas)) };
            self.client.recycle(done);
        }
    }

    async fn delete_turn(&mut self, key: &[u8], condition: Condition<'_>, over: u64) -> Result<Deletion> {
        let mut descent = Descent::new(key, Purpose::Write);
        let (end, done) = self.run(&mut descent).await?;
        let is_refused = match end {
            SmartEnd::Leaf { leaf, read, is_key: true } if !self.shared.format.in_place => {
                matches!(self.shared.format.parse(leaf.addr, done.words(read))?,
                    leaf::Read::Pair(pair) if !condition.holds_for(pair.value))
            }
            _ => false,
        };
        self.client.recycle(done);
        match end {
            _ if is_refused => Ok(Deletion::Refused),
            SmartEnd::Leaf { leaf, is_key: true, .. } if leaf.addr != leaf.at.slot.addr() => {
                self.link_moved(&descent, leaf).await?;
                Ok(Deletion::Again)
            }
            SmartEnd::Leaf { leaf, is_key: true, .. } if self.shared.format.in_place => {
                self.kill_leaf(&descent, leaf, (condition, over)).await
            }
            SmartEnd::Leaf { leaf, is_key: true, .. } => {
                let tomb = Slot::tomb(edge_of(key, descent.depth));
                let mut batch = self.client.batch();
                let cas = batch.cas(leaf.at.addr, leaf.at.slot.word(), tomb.word());
                let read = batch.read(descent.node, HEADER_WORDS + descent.known_type().slots());
                let done = self.client.submit(batch).await?;
                let swapped = done.swapped(cas);
                let left = live_count(&done.words(read)[HEADER_WORDS..]);
                self.client.recycle(done);
                if !swapped {
                    self.forget_slot(&descent, leaf.index);
                    return Ok(Deletion::Again);
                }
                self.note_child(&descent, leaf.index, tomb);
                self.client.retire(leaf.addr, leaf::bytes_of(leaf.len), AllocKind::Leaf);
                Ok(Deletion::Gone { was_here: true, left })
            }
            // The client that deleted it has not cleared the slot yet, or died.
            SmartEnd::Vacant { taken: Some((index, slot)) } if slot.is_live() => {
                self.bury(&descent, index, slot).await?;
                Ok(Deletion::Gone { was_here: false, left: live_count(&descent.slots).saturating_sub(1) })
            }
            SmartEnd::Sealed => {
                self.help(key, descent.node).await?;
                Ok(Deletion::Again)
            }
            SmartEnd::Torn { leaf } => self.settle(leaf, over).await.map(Into::into),
            _ => Ok(Deletion::Gone { was_here: false, left: descent.left() }),
        }
    }

    /// Writes new objects and links them by one CAS: one round trip if everything is on one memory
    /// node. `aside` is the update of a reverse pointer, which may be lost.
    pub(super) async fn publish(
        &mut self,
        writes: &[(GlobalAddr, &[u64])],
        at: SlotAt,
        new: Slot,
        aside: Option<(GlobalAddr, u64, u64)>,
    ) -> Result<bool> {
        let mut batch = self.client.batch();
        let mut words = 0;
        for (addr, image) in writes {
            batch.write(*addr, image);
            words += image.len();
            if words >= BATCH_WORDS {
                self.client.complete(batch).await?;
                (batch, words) = (self.client.batch(), 0);
            }
        }
        if !batch.is_empty() && writes.iter().any(|(addr, _)| addr.node() != at.addr.node()) {
            self.client.send(&mut batch).await?;
        }
        let cas = batch.cas(at.addr, at.slot.word(), new.word());
        if let Some((addr, old, new)) = aside.filter(|_| self.shared.options.reverse_check) {
            batch.cas(addr, old, new);
        }
        let done = self.client.submit(batch).await?;
        let swapped = done.swapped(cas);
        self.client.recycle(done);
        Ok(swapped)
    }

    /// Updates a slot in the cached copy of the node where a descent ended.
    pub(super) fn note_child(&self, descent: &Descent<'_>, index: usize, slot: Slot) {
        self.shared.cache.set_slot(&descent.key[..descent.depth], descent.node, index, slot);
    }

    /// Drops a cached slot that turned out to be outdated.
    pub(super) fn forget_slot(&self, descent: &Descent<'_>, index: usize) {
        let tomb = Slot::tomb(edge_of(descent.key, descent.depth));
        self.note_child(descent, index, tomb);
    }
}

/// The result of one attempt to delete a key.
pub(super) enum Deletion {
    /// Its slot is clear, by this attempt or not; its node has at least `left` children.
    Gone {
        was_here: bool,
        left: usize,
    },
    /// The leaf was killed, and its slot remains to be cleared.
    Killed,
    /// The condition did not hold.
    Refused,
    Again,
    Busy(u64),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SmartOptions;
    use darter_fabric::{Local, block_on};
    use darter_index::OrderedIndex;
    use darter_pool::{Pool, PoolOptions};

    /// Much later, the word of a holder that was over may name another one.
    #[test]
    fn a_lock_is_taken_over_from_a_holder_once() {
        let pool =
            block_on(Pool::create(Local::memory(64 << 20, 1).unwrap(), &PoolOptions::default())).unwrap();
        let mut client = pool.client().unwrap();
        block_on(async {
            let smart = Smart::open_or_create(&mut client, SmartOptions::default()).await.unwrap();
            smart.put(&mut client, b"key", b"a value!", Condition::Always).await.unwrap();
            let mut draft = Draft::new(&smart, &client, b"key", b"another!").unwrap();
            // Names no holder.
            draft.over = 1 << 32;
            let mut operation = smart.begin(&mut client, OpKind::Update).await.unwrap();
            let turn = operation.put_pinned(&mut draft, Condition::Always, None).await;
            assert!(matches!(turn, Ok(Attempt::Done(PutOutcome::Replaced))));
            assert_eq!(draft.over, 0);
        });
    }
}
