//! Insert, update, conditional put and delete.
//!
//! An update swaps the pointer to an immutable leaf by one CAS and takes no lock: it changes no key
//! byte (SMART, section 5.2). A client that replaces the node at the same time seals that pointer
//! before it copies it, so the CAS fails. All other changes lock the node, read it again, write,
//! and unlock in the batch that publishes. A change becomes visible by one word, written last, so a
//! writer that dies with the lock leaves nothing to repair.

use super::Art;
use super::descend_any::keys_below;
use super::descent::{ArtEnd, Descent, Here, Purpose, SlotAt};
use super::locks::Locks;
use super::node::{self, HEADER_WORDS, Header, Part, Slot, Vacancy};
use super::publish::Change;
use super::replace::{Replaced, Wanted};
use super::shared::Operation;
use super::situations::{ROOM_GONE, SEALED_SLOT, SPLIT_ABOVE, SPLIT_LEAF};
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_index::check_key;
use darter_index::checker::note;
use darter_index::radix::drafts::{Draft, Drafts};
use darter_index::radix::slot::edge_of;
use darter_index::radix::{TURNS_MAX, common_prefix, leaf, no_progress};
use darter_index::{Condition, IndexError, PutOutcome, Result};
use darter_pool::size_class::class_bytes;
use darter_pool::{AllocKind, Client, Pinned};

/// Number of concurrent deletes from one node, other than a client's own, for which it checks
/// whether they made the node sparse together. The next delete cleans up after further ones.
const CONCURRENT_DELETES: usize = 4;

/// The result of one descent.
enum Attempt {
    Done(PutOutcome),
    Again,
}

impl<F: Fabric> Art<F> {
    /// Stores a value under a key if the condition holds.
    pub(super) async fn put_value(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> Result<PutOutcome> {
        let mut draft = Draft::new(client, key, value)?;
        let kind = condition.op_kind();
        let mut operation = Operation::pin(&*self.shared, client, kind).await?;
        for _ in 0..TURNS_MAX {
            match operation.put_turn(&mut draft, condition).await {
                Ok(Attempt::Done(outcome)) => {
                    draft.discard(&mut operation.client);
                    return Ok(outcome);
                }
                Ok(Attempt::Again) => operation.client.retried(),
                Err(error) => {
                    if error.is_out_of_space() {
                        draft.discard(&mut operation.client);
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
        let mut operation = Operation::pin(&*self.shared, client, OpKind::Delete).await?;
        for _ in 0..TURNS_MAX {
            let (descent, end, done) = operation.descend(key, Purpose::Write).await?;
            let is_refused = match end {
                ArtEnd::Leaf { at, read, is_key: true } => {
                    let leaf = leaf::parse_again(at.slot.addr(), done.words(read))?;
                    !condition.holds_for(Some(leaf.value))
                }
                _ => false,
            };
            operation.client.recycle(done);
            match end {
                _ if is_refused => return Ok(false),
                ArtEnd::Leaf { at, is_key: true, .. } => {
                    if let Some(is_thin) = operation.clear_slot(&descent, at).await? {
                        if is_thin {
                            operation.tidy(key).await?;
                        }
                        return Ok(true);
                    }
                }
                ArtEnd::Sealed => {
                    operation.replace(&descent.here, Wanted::AsItIs).await?;
                }
                _ => {
                    // An interrupted delete may have left this to do.
                    if matches!(end, ArtEnd::Vacant) && operation.is_thin(&descent, &descent.part(), 0) {
                        operation.tidy(key).await?;
                    }
                    return Ok(false);
                }
            }
            operation.client.retried();
        }
        Err(no_progress(self.shared.words.root))
    }
}

impl<F: Fabric> Operation<'_, F> {
    async fn put_turn(&mut self, draft: &mut Draft<'_>, condition: Condition<'_>) -> Result<Attempt> {
        let key = draft.key;
        let (mut descent, end, done) = self.descend(key, Purpose::Write).await?;
        if let ArtEnd::Leaf { at, read, is_key } = end {
            let leaf = leaf::parse_again(at.slot.addr(), done.words(read))?;
            let refused = !condition.holds_for(is_key.then_some(leaf.value));
            let other = (!is_key && !refused).then(|| leaf.key.to_vec());
            self.client.recycle(done);
            return match other {
                _ if refused => Ok(Attempt::Done(PutOutcome::Refused)),
                Some(other) => self.split_leaf(draft, &mut descent, at, &other).await,
                None if self.shared.options.locked_updates && !at.slot.is_sealed() => {
                    self.replace_leaf_locked(draft, (&descent.here, at), condition).await
                }
                None => self.replace_leaf(draft, &descent.here, at).await,
            };
        }
        self.client.recycle(done);
        match end {
            ArtEnd::Sealed => {
                self.replace(&descent.here, Wanted::AsItIs).await?;
                Ok(Attempt::Again)
            }
            _ if condition.wants_key() => Ok(Attempt::Done(PutOutcome::Refused)),
            ArtEnd::Diverged => self.split_above(draft, &mut descent).await,
            _ => self.fill_vacancy(draft, &descent).await,
        }
    }

    /// Swings the slot of a present key to a new leaf.
    async fn replace_leaf(&mut self, draft: &mut Draft<'_>, here: &Here, at: SlotAt) -> Result<Attempt> {
        let addr = draft.place(&mut self.client, at.addr.node()).await?;
        let Some(locks) = self.lock_if_sealed(here, at).await? else { return Ok(Attempt::Again) };
        let new = Slot::leaf(at.slot.edge().unwrap_or(0), draft.class, addr);
        let change = Change { writes: &[(addr, &draft.words)], key: None, at, new };
        if self.publish(change, locks).await? {
            draft.linked();
            retire_leaf(&mut self.client, at.slot);
        } else if !self.shared.options.without_locks {
            return Ok(Attempt::Again);
        }
        Ok(Attempt::Done(PutOutcome::Replaced))
    }

    /// Locks the node if the slot is sealed and the node is not: a client died early in a
    /// replacement. Under the node's lock the slot can be changed. Takes no lock for any other
    /// slot; returns `None` if the node is sealed by now.
    async fn lock_if_sealed(&mut self, here: &Here, at: SlotAt) -> Result<Option<Locks>> {
        if at.slot.is_sealed() { self.lock_repair(here).await } else { Ok(Some(Locks::default())) }
    }

    /// The same with the node locked from beginning to end: a client that waited for the lock finds
    /// that the slot has changed and continues from its current content.
    async fn replace_leaf_locked(
        &mut self,
        draft: &mut Draft<'_>,
        (here, mut at): (&Here, SlotAt),
        condition: Condition<'_>,
    ) -> Result<Attempt> {
        let addr = draft.place(&mut self.client, at.addr.node()).await?;
        let locks = self.lock(here.addr).await?;
        let new = Slot::leaf(at.slot.edge().unwrap_or(0), draft.class, addr);
        let mut first: &[(GlobalAddr, &[u64])] = &[(addr, &draft.words)];
        let won = loop {
            let change = Change { writes: first, key: None, at, new };
            let Some(found) = self.post(change, &mut Locks::default()).await? else { break true };
            (first, at.slot) = (&[], found);
            if !self.holds_key(found, draft.key, condition).await? {
                break false;
            }
        };
        locks.end(&mut self.client).await?;
        if !won {
            return Ok(Attempt::Again);
        }
        draft.linked();
        retire_leaf(&mut self.client, at.slot);
        Ok(Attempt::Done(PutOutcome::Replaced))
    }

    /// Returns whether an unsealed slot leads to the leaf of a key for which the condition holds.
    async fn holds_key(&mut self, slot: Slot, key: &[u8], condition: Condition<'_>) -> Result<bool> {
        let node::Content::Leaf { addr, class } = slot.content() else { return Ok(false) };
        if slot.is_sealed() {
            return Ok(false);
        }
        let words = self.client.read(addr, class_bytes(class) as usize / 8).await?;
        let leaf = leaf::parse(addr, &words)?;
        let holds = leaf.key == key && condition.holds_for(Some(leaf.value));
        Ok(holds)
    }

    /// Locks a node to change a sealed slot.
    async fn lock_repair(&mut self, here: &Here) -> Result<Option<Locks>> {
        let locks = self.lock_open(here.addr).await?;
        if locks.is_some() {
            note(SEALED_SLOT);
        }
        Ok(locks)
    }

    /// Locks a node; `None` if it is sealed.
    async fn lock_open(&mut self, page: GlobalAddr) -> Result<Option<Locks>> {
        let locks = self.lock(page).await?;
        let words = self.client.read(page, HEADER_WORDS).await?;
        if Header::new(&words).is_sealed() {
            locks.end(&mut self.client).await?;
            return Ok(None);
        }
        Ok(Some(locks))
    }

    /// The key's edge has no child: takes a slot, or replaces the node by a larger one if no slot
    /// is free.
    async fn fill_vacancy(&mut self, draft: &mut Draft<'_>, descent: &Descent<'_>) -> Result<Attempt> {
        let (here, edge) = (descent.here, descent.edge());
        let addr = draft.place(&mut self.client, here.addr.node()).await?;
        let new = Slot::leaf(edge, draft.class, addr);
        if descent.part().vacancy(edge).is_none() {
            let wanted = Wanted::With { slot: new, leaf: &draft.words };
            let replaced = self.replace(&here, wanted).await?;
            if replaced == (Replaced::Done { added: true }) {
                draft.linked();
                return Ok(Attempt::Done(PutOutcome::Inserted));
            }
            return Ok(Attempt::Again);
        }
        let locks = self.lock(here.addr).await?;
        let vacancy = if self.shared.options.without_locks {
            descent.part().vacancy(edge)
        } else {
            self.read_again(descent, edge).await?
        };
        let Some(Vacancy { at, slot, key }) = vacancy else {
            note(ROOM_GONE);
            locks.end(&mut self.client).await?;
            return Ok(Attempt::Again);
        };
        let change = Change {
            writes: &[(addr, &draft.words)],
            key: key.map(|(at, word)| (here.addr.plus(at as u64 * 8), word)),
            at: SlotAt { addr: here.addr.plus(at as u64 * 8), slot },
            new,
        };
        if !self.publish(change, locks).await? {
            return Ok(Attempt::Again);
        }
        draft.linked();
        Ok(Attempt::Done(PutOutcome::Inserted))
    }

    /// Reads again, under the lock, the words that a descent read of the node where it ended.
    /// Returns room for the edge, if the edge is not taken and the node is not being replaced.
    async fn read_again(&mut self, descent: &Descent<'_>, edge: u16) -> Result<Option<Vacancy>> {
        let (here, at, len) = (descent.here, descent.words_at, descent.words.len());
        let mut batch = self.client.batch();
        let reads = if at == HEADER_WORDS {
            (batch.read(here.addr, HEADER_WORDS + len), None)
        } else {
            (batch.read(here.addr, HEADER_WORDS), Some(batch.read(here.addr.plus(at as u64 * 8), len)))
        };
        let done = self.client.submit(batch).await?;
        let words = done.words(reads.0);
        let header = Header::new(words);
        let words = reads.1.map_or(&words[HEADER_WORDS..], |read| done.words(read));
        let part = Part { ty: here.ty, header, at, words };
        let is_taken = part.find(edge).is_some_and(|(_, slot)| slot.is_live());
        let vacancy = if is_taken || header.is_sealed() { None } else { part.vacancy(edge) };
        self.client.recycle(done);
        Ok(vacancy)
    }

    /// Separates two keys if the slot `at`, in the node where the descent ended, holds the leaf of
    /// `other`.
    async fn split_leaf(
        &mut self,
        draft: &mut Draft<'_>,
        descent: &mut Descent<'_>,
        at: SlotAt,
        other: &[u8],
    ) -> Result<Attempt> {
        let here = descent.here;
        let depth = common_prefix(draft.key, other);
        if depth <= here.header.depth() {
            return Err(IndexError::corrupt(
                at.slot.addr(),
                "leaf under a prefix that its key does not have",
            ));
        }
        let child = at.slot.unsealed().moved(edge_of(other, depth), 0);
        note(SPLIT_LEAF);
        // If the slot is not sealed, the CAS proves that the node is not.
        let needs_look = at.slot.is_sealed();
        self.insert_node(draft, descent, (at, here.addr, needs_look), (depth, child)).await
    }

    /// Handles a key that leaves the path in the bytes skipped before the node where the descent
    /// ended.
    async fn split_above(&mut self, draft: &mut Draft<'_>, descent: &mut Descent<'_>) -> Result<Attempt> {
        let here = descent.here;
        let Some((holder, above)) = here.above else {
            return Err(IndexError::corrupt(here.addr, "root with a prefix"));
        };
        let Some(other) = keys_below(&mut self.client, &[(here.addr, here.ty)]).await?.pop().flatten() else {
            // All keys below are gone; the put can proceed once the node is removed.
            self.remove_empty(&here).await?;
            return Ok(Attempt::Again);
        };
        let depth = common_prefix(draft.key, &other);
        if depth <= above || depth >= here.header.depth() {
            // The leaf was found on another path: the tree has changed during the descent.
            return Ok(Attempt::Again);
        }
        note(SPLIT_ABOVE);
        let at = here.incoming;
        let child = at.slot.moved(edge_of(&other, depth), 0);
        self.insert_node(draft, descent, (at, holder, true), (depth, child)).await
    }

    /// Puts a node of depth `depth` into the slot `at` of the node `page`, with `child` and the new
    /// leaf as its children.
    async fn insert_node(
        &mut self,
        draft: &mut Draft<'_>,
        descent: &mut Descent<'_>,
        (at, page, needs_look): (SlotAt, GlobalAddr, bool),
        (depth, child): (usize, Slot),
    ) -> Result<Attempt> {
        let home = at.addr.node();
        let leaf = draft.place(&mut self.client, home).await?;
        let new_leaf = Slot::leaf(edge_of(draft.key, depth), draft.class, leaf);
        let mut drafts = Drafts::new();
        let ty = self.shared.layout[0];
        let addr = drafts.alloc(&mut self.client, home, ty.bytes(), AllocKind::Inner).await?;
        let image = node::image(ty, node::identity_of(&mut descent.key, depth), &[child, new_leaf]);
        let locks = if needs_look { self.lock_open(page).await? } else { Some(self.lock(page).await?) };
        let won = match locks {
            Some(locks) => {
                let new = Slot::node(at.slot.edge().unwrap_or(0), ty, 0, addr);
                let writes = [(addr, &image[..]), (leaf, &draft.words[..])];
                self.publish(Change { writes: &writes, key: None, at, new }, locks).await?
            }
            None => false,
        };
        if !won {
            drafts.discard(&mut self.client);
            return Ok(Attempt::Again);
        }
        drafts.keep();
        draft.linked();
        Ok(Attempt::Done(PutOutcome::Inserted))
    }

    /// Replaces a leaf by a tombstone. Returns whether the node may be sparse now; `None` if
    /// another client changed the slot.
    async fn clear_slot(&mut self, descent: &Descent<'_>, at: SlotAt) -> Result<Option<bool>> {
        let here = &descent.here;
        let mut locks = if at.slot.is_sealed() {
            match self.lock_repair(here).await? {
                Some(locks) => locks,
                None => return Ok(None),
            }
        } else {
            self.lock(here.addr).await?
        };
        let was_thin = self.is_thin(descent, &descent.part(), 1);
        let may_be_thin = self.is_thin(descent, &descent.part(), 1 + CONCURRENT_DELETES);
        let mut batch = self.client.batch();
        let tomb = Slot::tomb(at.slot.edge().unwrap_or(0));
        let cas = batch.cas(at.addr, at.slot.word(), tomb.word());
        // After the CAS: of concurrent deletes, the last one sees the result of all.
        let looks = may_be_thin && !was_thin;
        let part_addr = here.addr.plus(descent.words_at as u64 * 8);
        let look = looks.then(|| batch.read(part_addr, descent.words.len()));
        locks.unlock_in(self.client.pool().fabric(), &mut batch);
        let done = self.client.submit(batch).await?;
        let won = done.swapped(cas);
        let is_thin = look.map_or(was_thin, |read| {
            self.is_thin(descent, &Part { words: done.words(read), ..descent.part() }, 0)
        });
        self.client.recycle(done);
        locks.end(&mut self.client).await?;
        if won {
            retire_leaf(&mut self.client, at.slot);
        }
        Ok(won.then_some(is_thin))
    }

    /// Returns whether the node where a descent ended may be sparse, with `fewer` children than the
    /// part that was read shows.
    fn is_thin(&self, descent: &Descent<'_>, part: &Part<'_>, fewer: usize) -> bool {
        let ty = descent.here.ty;
        if descent.here.above.is_none() && ty == self.shared.layout[0] {
            return false;
        }
        let live = part.live().count().saturating_sub(fewer);
        if ty.bucket(0).is_none() {
            return ty.is_sparse(live);
        }
        // Only one bucket was read: an estimate, which costs a READ of the node if it is positive.
        ty.is_sparse(live * ty.capacity() / descent.words.len().max(1))
    }

    /// Rebuilds the node where a key ends as a smaller one, or removes it, then the node above, as
    /// long as they are sparse.
    async fn tidy(&mut self, key: &[u8]) -> Result<()> {
        for _ in 0..TURNS_MAX {
            let (descent, end, done) = self.descend(key, Purpose::Write).await?;
            self.client.recycle(done);
            let is_due = match end {
                ArtEnd::Sealed => true,
                ArtEnd::Vacant | ArtEnd::Leaf { is_key: false, .. } => {
                    self.is_thin(&descent, &descent.part(), 0)
                }
                ArtEnd::Diverged | ArtEnd::Leaf { .. } => false,
            };
            if !is_due {
                return Ok(());
            }
            match self.replace(&descent.here, Wanted::AsItIs).await {
                Ok(Replaced::Unneeded) => return Ok(()),
                Ok(_) => {}
                // The key is gone even if tidying fails: another delete tidies.
                Err(error) if error.is_out_of_space() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Err(no_progress(self.shared.words.root))
    }
}

fn retire_leaf<F: Fabric>(client: &mut Pinned<'_, F>, slot: Slot) {
    if let node::Content::Leaf { addr, class } = slot.content() {
        client.retire(addr, class_bytes(class), AllocKind::Leaf);
    }
}
