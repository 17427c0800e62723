//! Insert, update, conditional put and delete (SMART, sections 4.1.2 and 4.4).
//!
//! Every change of the tree is one CAS on one slot, or on one header. What it links is written
//! before, in the same doorbell batch when both are on one memory node. A CAS that fails changes
//! nothing: the operation looks again and counts a retry.
//!
//! *Slots* are taken in order and keep their edge for the life of their node, so two inserters of
//! one edge meet at one slot.
//!
//! *Type switch.* Beyond the last visible slot an inserter takes the next ones in order, without
//! having read them, and then raises the type in the header: from then on what it inserted is
//! there. Anyone who meets another's slot there raises the type first, before it answers or goes
//! on; else what is acknowledged below that slot would not be found, for ever if the other died.

use super::Smart;
use super::descent::{Descent, End, LeafAt, Purpose};
use super::leaf;
use super::node::{self, HEADER_WORDS, Header, NodeType, SLOTS_MAX, live_count};
use super::rdwc::Lead;
use super::slot::{Held, Slot, SlotAt};
use darter_fabric::{Fabric, GlobalAddr, OpKind, mutant};
use darter_index::check_key;
use darter_index::radix::drafts::Drafts;
use darter_index::radix::slot::edge_of;
use darter_index::radix::{TURNS_MAX, no_progress};
use darter_index::{Condition, IndexError, PutOutcome};
use darter_pool::{AllocKind, Client, Pinned};

/// Words of one batch of WRITEs.
const BATCH_WORDS: usize = 64 << 10;

/// The pair being put, and its leaf once allocated.
pub(super) struct Draft<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) len: u8,
    /// A holder of the leaf's lock that was just found to be over, or 0.
    over: u64,
    leaf: Option<GlobalAddr>,
    drafts: Drafts,
}

impl<'a> Draft<'a> {
    fn new<F: Fabric>(
        smart: &Smart<F>,
        client: &Client<F>,
        key: &'a [u8],
        value: &'a [u8],
    ) -> Result<Self, IndexError> {
        check_key(key)?;
        let (format, max) = (smart.shared.format, client.pool().object_bytes_max());
        let len = format.len_for(key.len(), value.len()).filter(|&len| leaf::bytes_of(len) <= max);
        let Some(len) = len else {
            let max = format.value_max(key.len(), max);
            return Err(IndexError::ValueTooLong { bytes: value.len(), max });
        };
        Ok(Self { key, value, len, over: 0, leaf: None, drafts: Drafts::new() })
    }

    /// The leaf's address: on the memory node of the node that will point to it, if there is room.
    pub(super) async fn place<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        node: u8,
    ) -> Result<GlobalAddr, IndexError> {
        if let Some(addr) = self.leaf {
            return Ok(addr);
        }
        let addr = self.drafts.alloc(client, node, leaf::bytes_of(self.len), AllocKind::Leaf).await?;
        self.leaf = Some(addr);
        Ok(addr)
    }

    /// Whom to take the lock over from, or 0. Good for one try: the word may name another later.
    pub(super) fn take_over(&mut self) -> u64 {
        std::mem::take(&mut self.over)
    }

    /// The leaf was published.
    pub(super) fn linked(&mut self) {
        self.drafts.keep();
    }
}

/// What one look at the tree led to.
pub(super) enum Turn {
    Done(PutOutcome),
    Again,
    /// A leaf is locked by this holder.
    Busy(u64),
}

impl<F: Fabric> Smart<F> {
    /// Stores a value under a key when the condition holds, by this client alone. `lead` stands for
    /// others' puts that this one overwrites at once.
    pub(super) async fn put_value(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
        lead: Option<&Lead<'_>>,
    ) -> Result<PutOutcome, IndexError> {
        let mut draft = Draft::new(self, client, key, value)?;
        let kind = condition.op_kind();
        for _ in 0..TURNS_MAX {
            let mut pinned = client.pin(kind).await?;
            let turn = self.put_pinned(&mut pinned, &mut draft, condition, lead).await;
            match turn {
                Ok(Turn::Done(outcome)) => {
                    draft.drafts.discard(&mut pinned);
                    return Ok(outcome);
                }
                Ok(Turn::Busy(holder)) => {
                    pinned.retried();
                    drop(pinned);
                    draft.over = self.await_holder(client, holder).await?;
                }
                Ok(Turn::Again) => {}
                Err(error) => {
                    if error.is_out_of_space() {
                        draft.drafts.discard(&mut pinned);
                        self.shared.quarantine.hurry();
                    }
                    return Err(error);
                }
            }
        }
        Err(no_progress(self.shared.words.root))
    }

    /// Turns under one pin, until something is to be waited for.
    async fn put_pinned(
        &self,
        client: &mut Pinned<'_, F>,
        draft: &mut Draft<'_>,
        condition: Condition<'_>,
        lead: Option<&Lead<'_>>,
    ) -> Result<Turn, IndexError> {
        self.shared.view(client).await?;
        for _ in 0..TURNS_MAX {
            match self.put_turn(client, draft, condition, lead).await? {
                Turn::Again => client.retried(),
                turn => return Ok(turn),
            }
        }
        Err(no_progress(self.shared.words.root))
    }

    async fn put_turn(
        &self,
        client: &mut Pinned<'_, F>,
        draft: &mut Draft<'_>,
        condition: Condition<'_>,
        lead: Option<&Lead<'_>>,
    ) -> Result<Turn, IndexError> {
        let mut descent = Descent::new(draft.key, Purpose::Write);
        let (end, done) = self.run(client, &mut descent).await?;
        match end {
            End::Leaf { leaf, is_key: true, .. } if leaf.addr != leaf.at.slot.addr() => {
                client.recycle(done);
                self.link_moved(client, &descent, leaf).await?;
                Ok(Turn::Again)
            }
            End::Leaf { leaf, read, is_key: true } => {
                let parsed = self.shared.format.parse(leaf.addr, done.words(read))?;
                let is_refused = match condition {
                    Condition::Absent => true,
                    Condition::Equals(wanted) => {
                        let leaf::Read::Pair(pair) = parsed else { return Ok(Turn::Again) };
                        pair.value.ok_or(IndexError::LostInWrite { addr: leaf.addr })? != wanted
                    }
                    Condition::Always | Condition::Present => false,
                };
                client.recycle(done);
                if is_refused {
                    return Ok(Turn::Done(PutOutcome::Refused));
                }
                if self.shared.format.in_place {
                    return self.update_leaf(client, draft, &descent, leaf, (condition, lead)).await;
                }
                if let Some(lead) = lead {
                    lead.close();
                }
                self.replace_leaf(client, draft, &descent, leaf).await
            }
            End::Leaf { leaf, read, is_key: false } => {
                let other = self.key_at(end, read, &done)?;
                client.recycle(done);
                if condition.wants_key() {
                    return Ok(Turn::Done(PutOutcome::Refused));
                }
                if leaf.addr != leaf.at.slot.addr() {
                    self.link_moved(client, &descent, leaf).await?;
                    return Ok(Turn::Again);
                }
                if let Some(lead) = lead {
                    lead.close();
                }
                self.split_leaf(client, draft, &descent, leaf, other).await
            }
            End::Vacant { .. } | End::Diverged { .. } if condition.wants_key() => {
                client.recycle(done);
                Ok(Turn::Done(PutOutcome::Refused))
            }
            End::Vacant { taken } => {
                client.recycle(done);
                if let Some(lead) = lead {
                    lead.close();
                }
                match taken {
                    Some((index, old)) => self.take_again(client, draft, &descent, index, old).await,
                    None => self.append(client, draft, &mut descent).await,
                }
            }
            End::Diverged { matched } => {
                client.recycle(done);
                if let Some(lead) = lead {
                    lead.close();
                }
                self.split_above(client, draft, &descent, matched).await
            }
            End::Sealed => {
                client.recycle(done);
                self.help(client, draft.key, descent.node).await?;
                Ok(Turn::Again)
            }
            End::Torn { leaf } => {
                client.recycle(done);
                self.settle(client, leaf, draft.take_over()).await.map(Into::into)
            }
        }
    }

    /// The key is there, out of place: swings its slot to a new leaf.
    async fn replace_leaf(
        &self,
        client: &mut Pinned<'_, F>,
        draft: &mut Draft<'_>,
        descent: &Descent<'_>,
        old: LeafAt,
    ) -> Result<Turn, IndexError> {
        let addr = draft.place(client, old.at.addr.node()).await?;
        let image = self.shared.format.image(descent.node, draft.len, draft.key, draft.value);
        let slot = Slot::leaf(old.at.slot.edge().unwrap_or(0), draft.len, addr);
        if !self.publish(client, &[(addr, &image)], old.at, slot, None).await? {
            self.forget_slot(descent, old.index);
            return Ok(Turn::Again);
        }
        draft.linked();
        self.note_child(descent, old.index, slot);
        client.retire(old.addr, leaf::bytes_of(old.len), AllocKind::Leaf);
        Ok(Turn::Done(PutOutcome::Replaced))
    }

    /// The key's edge has a slot without a child: takes it.
    async fn take_again(
        &self,
        client: &mut Pinned<'_, F>,
        draft: &mut Draft<'_>,
        descent: &Descent<'_>,
        index: usize,
        old: Slot,
    ) -> Result<Turn, IndexError> {
        let at = SlotAt { addr: node::slot_addr(descent.node, index), slot: old };
        let addr = draft.place(client, at.addr.node()).await?;
        let image = self.shared.format.image(descent.node, draft.len, draft.key, draft.value);
        let slot = Slot::leaf(edge_of(draft.key, descent.depth), draft.len, addr);
        if !self.publish(client, &[(addr, &image)], at, slot, None).await? {
            return Ok(Turn::Again);
        }
        draft.linked();
        self.note_child(descent, index, slot);
        if let Held::Leaf { addr, len } = old.held() {
            // It was dead.
            self.shared.set_aside(client, addr, leaf::bytes_of(len), AllocKind::Leaf);
        }
        Ok(Turn::Done(PutOutcome::Inserted))
    }

    /// The key's edge has no slot: takes the next one, with a type switch when it lies beyond the
    /// visible ones.
    async fn append(
        &self,
        client: &mut Pinned<'_, F>,
        draft: &mut Draft<'_>,
        descent: &mut Descent<'_>,
    ) -> Result<Turn, IndexError> {
        let node = descent.node;
        let edge = edge_of(draft.key, descent.depth);
        let addr = draft.place(client, node.node()).await?;
        let image = self.shared.format.image(node, draft.len, draft.key, draft.value);
        let slot = Slot::leaf(edge, draft.len, addr);
        let first = descent.slots.iter().position(|&word| Slot::from_word(word).is_empty());
        let mut is_written = false;
        for index in first.unwrap_or(descent.slots.len())..SLOTS_MAX {
            let needed = NodeType::fit(index + 1);
            let mut batch = client.batch();
            if !is_written {
                batch.write(addr, &image);
                if addr.node() != node.node() {
                    let done = client.submit(batch).await?;
                    client.recycle(done);
                    batch = client.batch();
                }
                is_written = true;
            }
            let cas = batch.cas(node::slot_addr(node, index), 0, slot.word());
            // Whether the slot is taken by this put or has been by another, it has to be visible.
            let raise = descent.header.ty().is_some_and(|ty| ty < needed).then(|| {
                let raised = descent.header.with_type(needed);
                if let Some(at) = descent.incoming.filter(|at| !at.slot.is_sealed()) {
                    let grown = Slot::node(at.slot.edge().unwrap_or(0), needed, node);
                    batch.cas(at.addr, at.slot.word(), grown.word());
                }
                (batch.cas(node::header_addr(node), descent.header.word(), raised.word()), raised)
            });
            let done = client.submit(batch).await?;
            let (taken, found) = (done.swapped(cas), Slot::from_word(done.found(cas)));
            if let Some((cas, raised)) = raise {
                descent.header = if done.swapped(cas) { raised } else { Header::from_word(done.found(cas)) };
            }
            client.recycle(done);
            if taken || !mutant!("smart-type-left-to-who-took-the-slot") {
                self.raise_type(client, descent, needed).await?;
            }
            if taken {
                draft.linked();
                self.note_child(descent, index, slot);
                return Ok(Turn::Done(PutOutcome::Inserted));
            }
            if found.is_sealed() {
                self.help(client, draft.key, node).await?;
                return Ok(Turn::Again);
            }
            if found.is_of(edge) {
                return Ok(Turn::Again);
            }
            client.retried();
        }
        Err(IndexError::Corrupt { addr: node, what: "an inner node with more edges than there are" })
    }

    /// Raises a node's type until all slots of `needed` are visible.
    async fn raise_type(
        &self,
        client: &mut Pinned<'_, F>,
        descent: &mut Descent<'_>,
        needed: NodeType,
    ) -> Result<(), IndexError> {
        loop {
            match descent.header.ty() {
                Some(ty) if ty >= needed => return Ok(()),
                Some(_) => {}
                None => {
                    let (addr, what) = (descent.node, "inner node of no known type");
                    return Err(IndexError::Corrupt { addr, what });
                }
            }
            let raised = descent.header.with_type(needed);
            let mut batch = client.batch();
            let cas = batch.cas(node::header_addr(descent.node), descent.header.word(), raised.word());
            let done = client.submit(batch).await?;
            descent.header = if done.swapped(cas) { raised } else { Header::from_word(done.found(cas)) };
            client.recycle(done);
        }
    }

    /// Removes a key. Returns whether it was there.
    pub(super) async fn delete_key(&self, client: &mut Client<F>, key: &[u8]) -> Result<bool, IndexError> {
        check_key(key)?;
        let mut over = 0;
        for _ in 0..TURNS_MAX {
            let mut pinned = client.pin(OpKind::Delete).await?;
            self.shared.view(&mut pinned).await?;
            match self.delete_turn(&mut pinned, key, std::mem::take(&mut over)).await? {
                Deletion::Gone { was_here, left } => {
                    // A delete that was cut short may have left the node to the next.
                    if left <= 1 {
                        self.unless_full(self.tidy(&mut pinned, key).await)?;
                    }
                    return Ok(was_here);
                }
                Deletion::Killed => {
                    // Anyone who puts the key again from now on puts another one.
                    self.unless_full(self.mend_slot(&mut pinned, key).await)?;
                    self.unless_full(self.tidy(&mut pinned, key).await)?;
                    return Ok(true);
                }
                Deletion::Again => pinned.retried(),
                Deletion::Busy(holder) => {
                    pinned.retried();
                    drop(pinned);
                    over = self.await_holder(client, holder).await?;
                }
            }
        }
        Err(no_progress(self.shared.words.root))
    }

    /// What an operation does for those to come, after it took effect: without memory for that it
    /// is left to them, since the error would say that nothing was changed.
    pub(super) fn unless_full(&self, done: Result<(), IndexError>) -> Result<(), IndexError> {
        match done {
            Err(error) if error.is_out_of_space() => {
                self.shared.quarantine.hurry();
                Ok(())
            }
            done => done,
        }
    }

    async fn delete_turn(
        &self,
        client: &mut Pinned<'_, F>,
        key: &[u8],
        over: u64,
    ) -> Result<Deletion, IndexError> {
        let mut descent = Descent::new(key, Purpose::Write);
        let (end, done) = self.run(client, &mut descent).await?;
        client.recycle(done);
        match end {
            End::Leaf { leaf, is_key: true, .. } if leaf.addr != leaf.at.slot.addr() => {
                self.link_moved(client, &descent, leaf).await?;
                Ok(Deletion::Again)
            }
            End::Leaf { leaf, is_key: true, .. } if self.shared.format.in_place => {
                self.kill_leaf(client, &descent, leaf, over).await
            }
            End::Leaf { leaf, is_key: true, .. } => {
                let tomb = Slot::tomb(edge_of(key, descent.depth));
                let mut batch = client.batch();
                let cas = batch.cas(leaf.at.addr, leaf.at.slot.word(), tomb.word());
                let read = batch.read(descent.node, HEADER_WORDS + descent.known_type().slots());
                let done = client.submit(batch).await?;
                let swapped = done.swapped(cas);
                let left = live_count(&done.words(read)[HEADER_WORDS..]);
                client.recycle(done);
                if !swapped {
                    self.forget_slot(&descent, leaf.index);
                    return Ok(Deletion::Again);
                }
                self.note_child(&descent, leaf.index, tomb);
                client.retire(leaf.addr, leaf::bytes_of(leaf.len), AllocKind::Leaf);
                Ok(Deletion::Gone { was_here: true, left })
            }
            // Its deleter has not cleared the slot yet, or died.
            End::Vacant { taken: Some((index, slot)) } if slot.is_live() => {
                self.bury(client, &descent, index, slot).await?;
                Ok(Deletion::Gone { was_here: false, left: live_count(&descent.slots).saturating_sub(1) })
            }
            End::Sealed => {
                self.help(client, key, descent.node).await?;
                Ok(Deletion::Again)
            }
            End::Torn { leaf } => self.settle(client, leaf, over).await.map(Into::into),
            _ => Ok(Deletion::Gone { was_here: false, left: descent.left() }),
        }
    }

    /// Writes what is new and links it by one CAS: one round trip when all of it is on one memory
    /// node. `aside` is the turn of a reverse pointer, which may be lost.
    pub(super) async fn publish(
        &self,
        client: &mut Pinned<'_, F>,
        writes: &[(GlobalAddr, &[u64])],
        at: SlotAt,
        new: Slot,
        aside: Option<(GlobalAddr, u64, u64)>,
    ) -> Result<bool, IndexError> {
        let mut batch = client.batch();
        let mut words = 0;
        for (addr, image) in writes {
            batch.write(*addr, image);
            words += image.len();
            if words >= BATCH_WORDS {
                let done = client.submit(batch).await?;
                client.recycle(done);
                (batch, words) = (client.batch(), 0);
            }
        }
        if !batch.is_empty() && writes.iter().any(|(addr, _)| addr.node() != at.addr.node()) {
            let done = client.submit(batch).await?;
            client.recycle(done);
            batch = client.batch();
        }
        let cas = batch.cas(at.addr, at.slot.word(), new.word());
        if let Some((addr, old, new)) = aside.filter(|_| self.shared.options.reverse_check) {
            batch.cas(addr, old, new);
        }
        let done = client.submit(batch).await?;
        let swapped = done.swapped(cas);
        client.recycle(done);
        Ok(swapped)
    }

    /// Brings the cache's copy of the node where a descent ended up to date.
    pub(super) fn note_child(&self, descent: &Descent<'_>, index: usize, slot: Slot) {
        self.shared.cache.set_slot(&descent.key[..descent.depth], descent.node, index, slot);
    }

    /// A remembered slot turned out to hold something else.
    pub(super) fn forget_slot(&self, descent: &Descent<'_>, index: usize) {
        let tomb = Slot::tomb(edge_of(descent.key, descent.depth));
        self.note_child(descent, index, tomb);
    }
}

/// What one look at the tree did to a key.
pub(super) enum Deletion {
    /// Its slot is clear, by this look or not; its node has so many children left, or more.
    Gone {
        was_here: bool,
        left: usize,
    },
    /// It was there, and its slot is left to be cleared.
    Killed,
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
            // The name of nobody.
            draft.over = 1 << 32;
            let mut pinned = client.pin(OpKind::Update).await.unwrap();
            let turn = smart.put_pinned(&mut pinned, &mut draft, Condition::Always, None).await;
            assert!(matches!(turn, Ok(Turn::Done(PutOutcome::Replaced))));
            assert_eq!(draft.over, 0);
        });
    }
}
