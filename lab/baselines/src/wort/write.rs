//! Insert, update and conditional put.
//!
//! A writer locks the tree, reads, and makes one change ([`super::publish`]). Visible changes take
//! effect by one word, so a writer that dies leaves either the old or the new tree. The exception
//! is the header of a node below a split or a collapse, which the next writer that reaches it
//! rebuilds.

use super::Wort;
use super::descent::{Descent, Here, Purpose, SlotAt, WortEnd};
use super::header::Header;
use super::lines::Line;
use super::node::{self, Edit, Node, NodeType, Slot};
use super::publish::Change;
use super::shared::Operation;
use super::situations::REBUILT;
use crate::hocl::Locked;
use darter_fabric::{Batch, Fabric, GlobalAddr};
use darter_index::checker::{Situation, note};
use darter_index::radix::drafts::{Draft, Drafts};
use darter_index::radix::{TURNS_MAX, leaf, no_progress};
use darter_index::{Condition, IndexError, PutOutcome, Result};
use darter_pool::{AllocKind, Client};
use smallvec::SmallVec;

/// The result of one turn.
pub(super) enum Attempt<T> {
    Done(T),
    Again,
}

impl<F: Fabric> Wort<F> {
    /// Stores a value under a key if the condition holds.
    pub(super) async fn put_value(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> Result<PutOutcome> {
        let mut draft = Draft::new(client, key, value)?;
        let mut operation = Operation::pin(&*self.shared, client, condition.op_kind()).await?;
        for _ in 0..TURNS_MAX {
            let mut lock = operation.lock().await?;
            let mut drafts = Drafts::new();
            let turn = operation.put_turn(&mut draft, &mut drafts, condition, &mut lock).await;
            match operation.end_turn(turn, &mut drafts, lock).await {
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
}

impl<F: Fabric> Operation<'_, F> {
    /// Takes the tree's lock.
    pub(super) async fn lock(&mut self) -> Result<Locked> {
        self.shared.hocl.lock(&mut self.client, self.shared.words.root).await
    }

    /// Ends a turn: frees what it allocated and did not publish, and releases the lock, unless a
    /// verb may still be in flight.
    pub(super) async fn end_turn<T>(
        &mut self,
        turn: Result<Attempt<T>>,
        drafts: &mut Drafts,
        lock: Locked,
    ) -> Result<Attempt<T>> {
        let has_ended = turn.as_ref().err().is_none_or(|error| error.is_out_of_space() || error.is_damage());
        if has_ended {
            // Published objects are no longer in the list.
            drafts.discard(&mut self.client);
            lock.end(&mut self.client).await?;
        }
        turn
    }

    /// Allocates an inner node next to the object that will lead to it.
    pub(super) async fn alloc_node(
        &mut self,
        drafts: &mut Drafts,
        ty: NodeType,
        home: u8,
    ) -> Result<GlobalAddr> {
        drafts.alloc(&mut self.client, home, ty.bytes(), AllocKind::Inner).await
    }

    async fn put_turn(
        &mut self,
        draft: &mut Draft<'_>,
        drafts: &mut Drafts,
        condition: Condition<'_>,
        lock: &mut Locked,
    ) -> Result<Attempt<PutOutcome>> {
        let (descent, end, done) = self.descend(draft.key, Purpose::Write).await?;
        let (refused, other) = judge_put(&end, &done, condition)?;
        self.client.recycle(done);
        let inserted = match end {
            WortEnd::Stale => {
                self.rebuild_header(&descent).await?;
                return Ok(Attempt::Again);
            }
            _ if refused => return Ok(Attempt::Done(PutOutcome::Refused)),
            WortEnd::Leaf { at, is_key: true, .. } => {
                let won = self.link_leaf(draft, at, lock).await?;
                if won {
                    self.retire(at.slot);
                }
                return Ok(if won { Attempt::Done(PutOutcome::Replaced) } else { Attempt::Again });
            }
            WortEnd::Empty => {
                let at = SlotAt { base: self.shared.words.root, at: 0, slot: Slot::EMPTY };
                self.link_leaf(draft, at, lock).await?
            }
            WortEnd::Vacant | WortEnd::Diverged(_) | WortEnd::Leaf { .. } => {
                self.insert(draft, drafts, (&descent, end, other), lock).await?
            }
        };
        if !inserted {
            return Ok(Attempt::Again);
        }
        Ok(Attempt::Done(PutOutcome::Inserted))
    }

    /// Rewrites the header of the last node of a descent, because the intended node above it is
    /// missing.
    ///
    /// One leaf is enough: the place that the node branches on is correct in every header that it
    /// ever had.
    pub(super) async fn rebuild_header(&mut self, descent: &Descent<'_>) -> Result<()> {
        let Some(here) = descent.path.last() else { return Ok(()) };
        let key = self.key_below(here).await?;
        let header = Header::of_key(self.shared.format.digits, here.start, here.header.branch(), &key);
        note(REBUILT);
        let line = Line::of(here.addr, 0);
        self.shared.count(&[SmallVec::from_iter([line]), SmallVec::new(), SmallVec::new()]);
        self.client.post(|batch| batch.write(here.addr, &[header.word()])).await?;
        Ok(())
    }

    /// Puts the new leaf directly into a slot.
    async fn link_leaf(&mut self, draft: &mut Draft<'_>, at: SlotAt, lock: &mut Locked) -> Result<bool> {
        let addr = draft.place(&mut self.client, at.base.node()).await?;
        let new = Slot::leaf(at.edge(), draft.class, addr);
        let won = self.publish(&Change::swing(at, new).with(addr, &draft.words), lock).await?;
        if won {
            draft.linked();
        }
        Ok(won)
    }

    /// Inserts an absent key into a tree with keys, after finding where it differs from them.
    async fn insert(
        &mut self,
        draft: &mut Draft<'_>,
        drafts: &mut Drafts,
        (descent, end, other): (&Descent<'_>, WortEnd, Option<Vec<u8>>),
        lock: &mut Locked,
    ) -> Result<bool> {
        let digits = self.shared.format.digits;
        let last = descent.path.last();
        let other = match (other, last) {
            (None, Some(last)) if !descent.is_sure => Some(self.key_below(last).await?),
            (other, _) => other,
        };
        if let Some(other) = &other {
            let parting = digits.common(draft.key, other);
            if let Some(here) = descent.path.iter().find(|here| here.header.branch() > parting) {
                let digit = |at: usize| digits.edge(other, at);
                return self.split_above(draft, drafts, (here, parting), digit, lock).await;
            }
            if let WortEnd::Leaf { at, .. } = end {
                let start = last.map_or(0, |here| here.header.branch() + 1);
                return self.split_leaf(draft, drafts, (at, start, parting, other), lock).await;
            }
        }
        match (end, last) {
            (WortEnd::Vacant, Some(here)) => self.fill(draft, drafts, (here, &descent.words), lock).await,
            (WortEnd::Diverged(at), Some(here)) if other.is_none() => {
                let digit = |at: usize| here.header.digit(digits, at).unwrap_or(0);
                self.split_above(draft, drafts, (here, at), digit, lock).await
            }
            _ => Err(IndexError::corrupt(self.shared.words.root, "a leaf whose key does not match its path")),
        }
    }

    /// Adds a child for the key to a node that has none, in place or in a copy.
    async fn fill(
        &mut self,
        draft: &mut Draft<'_>,
        drafts: &mut Drafts,
        (here, words): (&Here, &[u64]),
        lock: &mut Locked,
    ) -> Result<bool> {
        let format = self.shared.format;
        let node = Node::new(here.ty, words);
        let edge = format.digits.edge(draft.key, here.header.branch());
        let leaf = draft.place(&mut self.client, here.addr.node()).await?;
        let new = Slot::leaf(edge, draft.class, leaf);
        let is_word =
            here.ty.is_direct() || here.ty == NodeType::N48 || edge == darter_index::radix::slot::END;
        let in_place = |_: &Edit| !format.copies || is_word;
        if let Some(edit) = node.addition(edge, new).filter(in_place) {
            if let Some(&(slot, _)) = edit.before.last() {
                // Searched from the first slot until one is unused.
                self.shared.touched.read(here.addr, || here.ty.slots_at()..=slot);
            }
            let won = self.publish(&Change::edit(here.addr, &edit).with(leaf, &draft.words), lock).await?;
            if won {
                draft.linked();
            }
            return Ok(won);
        }
        self.shared.touched.read(here.addr, || node.words_for_all());
        let mut children: Vec<Slot> = node.children().iter().map(|&(_, slot)| slot).collect();
        children.push(new);
        let won =
            self.replace(drafts, (here, node.header(), &children), Some((leaf, &draft.words)), lock).await?;
        if won {
            draft.linked();
        }
        Ok(won)
    }

    /// Replaces a node by another with this header and these children, of the type that fits. A new
    /// leaf among them is written with it.
    pub(super) async fn replace(
        &mut self,
        drafts: &mut Drafts,
        (here, header, children): (&Here, Header, &[Slot]),
        leaf: Option<(GlobalAddr, &[u64])>,
        lock: &mut Locked,
    ) -> Result<bool> {
        let ty = NodeType::fit(self.shared.format.types, node::beside_end(children));
        let addr = self.alloc_node(drafts, ty, here.incoming.base.node()).await?;
        let image = node::image(ty, header, children);
        let new = Slot::node(here.incoming.edge(), ty, 0, addr);
        let mut change = Change::swing(here.incoming, new).with(addr, &image);
        change.fresh.extend(leaf);
        let won = self.publish(&change, lock).await?;
        if won {
            drafts.keep();
            if ty != here.ty {
                note(Situation::Switch(here.ty.name(), ty.name()));
            }
            self.retire(here.incoming.slot);
        }
        Ok(won)
    }
}

/// Returns whether a put is refused where its descent ended, and the key of another's leaf there.
fn judge_put(end: &WortEnd, done: &Batch, condition: Condition<'_>) -> Result<(bool, Option<Vec<u8>>)> {
    let &WortEnd::Leaf { at, read, is_key } = end else { return Ok((!condition.holds_for(None), None)) };
    let leaf = leaf::parse_again(at.slot.addr(), done.words(read))?;
    let refused = !condition.holds_for(is_key.then_some(leaf.value));
    Ok((refused, (!is_key).then(|| leaf.key.to_vec())))
}
