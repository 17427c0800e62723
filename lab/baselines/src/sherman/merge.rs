//! Merges: a node with few keys left takes in its right neighbour, whose memory is freed.
//!
//! 1. The parent drops the right node. From here on the left node's sibling link leads to it, as
//!    after a split.
//! 2. The right node is marked dead, by one word; its contents stay.
//! 3. The left node is rewritten with both contents.
//!
//! A death after step 2 leaves a left node whose right neighbour is dead: the next walk that
//! reaches it does step 3. A node is freed only after it is dead, so a client with an old link to
//! it can detect that; this is why step 2 comes before step 3.
//!
//! The root takes in its only child in the same two steps.
//!
//! A merge tries the second and third lock without waiting, so merges never block; a failed merge
//! is left to a later delete. Neighbours need not be small: it is enough that both fit in three
//! quarters of a node.

use super::bound::Bound;
use super::nodes::{Change, Seen, is_harmless, write_dead};
use super::page::{Aim, Body, Draft, Link, Page};
use super::split::leaf_body;
use super::walk::fetch_bounds;
use super::{Operation, Shared, Sherman, situations};
use crate::hocl::Locked;
use darter_fabric::{Fabric, OpKind};
use darter_index::checker::note;
use darter_index::{IndexError, Result};
use darter_pool::{Client, Pinned, PoolError};

/// Locks that an operation holds, in locking order; one can cover several nodes.
#[derive(Default)]
struct Holding {
    locks: Vec<Locked>,
}

impl Holding {
    /// Releases the locks unless verbs posted under them failed: then they are left to be taken
    /// over.
    async fn end<F: Fabric, R>(self, client: &mut Pinned<'_, F>, outcome: Result<R>) -> Result<R> {
        if outcome.as_ref().is_ok() || outcome.as_ref().is_err_and(is_harmless) {
            for locked in self.locks {
                locked.end(client).await?;
            }
        }
        outcome
    }
}

/// The result of an attempt to merge at a level.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Merged {
    /// The parent has lost a child.
    Yes,
    No,
}

impl<F: Fabric> Sherman<F> {
    /// Retries merges of empty leaves that failed because a client held a lock or the pool was
    /// full.
    ///
    /// # Errors
    /// Errors of [`Sherman::merge_upwards`].
    pub(crate) async fn merge_left_over(&self, client: &mut Client<F>) -> Result<()> {
        let keys = std::mem::take(&mut *self.shared.unmerged());
        for key in keys {
            let mut operation = Operation::pin(&*self.shared, client, OpKind::Maintain).await?;
            let leaf = operation.page_at(Aim::At(&key), 0, false).await?;
            let Shared { format, root, .. } = &*self.shared;
            if leaf.is_some_and(|leaf| leaf.addr != root.addr() && leaf.is_empty(format))
                && !operation.merge_upwards(&key).await?
            {
                self.shared.note_unmerged(&key);
            }
        }
        Ok(())
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Merges the leaf of a key with a neighbour, then its parent, and so on while possible.
    /// Returns whether the leaf was merged.
    ///
    /// # Errors
    /// Errors of [`Sherman::walk`] and [`Sherman::read_locked`]; a full pool is not an error.
    pub(crate) async fn merge_upwards(&mut self, key: &[u8]) -> Result<bool> {
        let mut level = 0;
        loop {
            match self.merge_at(key, level).await {
                Ok(Merged::Yes) => level += 1,
                Ok(Merged::No) | Err(IndexError::Pool(PoolError::OutOfSpace { .. })) => return Ok(level > 0),
                Err(error) => return Err(error),
            }
        }
    }

    async fn merge_at(&mut self, key: &[u8], level: u8) -> Result<Merged> {
        let Some(mut parent) = self.page_at(Aim::At(key), level + 1, true).await? else {
            if level > 0 {
                self.take_in_only_child().await?;
            }
            return Ok(Merged::No);
        };
        if parent.children() < 2 && parent.addr != self.shared.root.addr() {
            // Its neighbour's children would be this one's neighbours: merge the parents first.
            Box::pin(self.merge_at(key, level + 1)).await?;
            match self.page_at(Aim::At(key), level + 1, true).await? {
                Some(page) => parent = page,
                None => return Ok(Merged::No),
            }
        }
        fetch_bounds(&mut self.client, &mut parent).await?;
        let at = parent.last_child(|low| low <= key);
        let left = if at + 1 < parent.children() || at == 0 { at } else { at - 1 };
        let mut holding = Holding::default();
        let outcome = self.merge_under_locks(&mut holding, &parent, left).await;
        let outcome = holding.end(&mut self.client, outcome).await;
        if matches!(outcome, Ok(Merged::No)) && parent.children() < 2 {
            self.take_in_only_child().await?;
        }
        outcome
    }

    /// Locks another node and reads it, unless its lock is taken.
    async fn take(&mut self, holding: &mut Holding, link: Link) -> Result<Option<Box<Page>>> {
        let mut covered = false;
        for locked in &holding.locks {
            covered |= locked.covers(&self.shared.locks, &mut self.client, link.addr()).await?;
        }
        if !covered {
            match self.shared.locks.try_lock(&mut self.client, link.addr()).await? {
                Some(locked) => holding.locks.push(locked),
                None => return Ok(None),
            }
        }
        self.read_taken(link).await
    }

    async fn read_taken(&mut self, link: Link) -> Result<Option<Box<Page>>> {
        match self.read_locked(link, true).await? {
            Seen::Alive(mut page) => {
                fetch_bounds(&mut self.client, &mut page).await?;
                Ok(Some(page))
            }
            _ => Ok(None),
        }
    }

    async fn merge_under_locks(&mut self, holding: &mut Holding, parent: &Page, at: usize) -> Result<Merged> {
        let left_link = parent.child(at);
        holding.locks.push(self.shared.locks.lock(&mut self.client, left_link.addr()).await?);
        let Some(left) = self.read_taken(left_link).await? else { return Ok(Merged::No) };
        if left.sibling.is_none() {
            return Ok(Merged::No);
        }
        let Some(right) = self.take(holding, left.sibling).await? else { return Ok(Merged::No) };
        let Some(parent) = self.take(holding, parent.link()).await? else { return Ok(Merged::No) };
        if left.level + 1 != parent.level || right.level != left.level {
            return Ok(Merged::No);
        }
        let Some(at) = (0..parent.children()).find(|&at| parent.child(at) == left_link) else {
            return Ok(Merged::No);
        };
        let next = (at + 1 < parent.children()).then(|| parent.child(at + 1));
        let ends = if next.is_some() {
            Some(parent.child_low(at + 1))
        } else {
            parent.high.as_ref().map(Bound::bytes)
        };
        let is_listed = next == Some(right.link());
        // A node that the parent never listed is right before the next child.
        let is_another_s = ends.is_some_and(|ends| right.low.bytes() >= ends);
        if !is_listed && is_another_s {
            return Ok(Merged::No);
        }
        let Some(draft) = self.joined(&left, &right).await? else { return Ok(Merged::No) };
        if is_listed {
            let mut without = parent.draft(&self.shared.format);
            let mut gone = None;
            if let Body::Inner(children) = &mut without.body {
                gone = Some(children.remove(at + 1).0);
            }
            self.rewrite(&mut Change::default(), &parent, &without, Vec::new()).await?;
            if let Some(bound) = gone {
                bound.retire(&mut self.client);
            }
        }
        let mut change = Change::default();
        write_dead(&self.shared.format, &mut change.batch, &right);
        let locks = holding.locks.iter_mut().collect();
        if self.rewrite(&mut change, &left, &draft, locks).await? {
            note(situations::MERGED);
            self.retire_joined(&left, &right);
        }
        Ok(if is_listed { Merged::Yes } else { Merged::No })
    }

    /// Returns the contents of two neighbours as one node's, if both fit in three quarters of it,
    /// or if one is nearly empty.
    async fn joined(&mut self, left: &Page, right: &Page) -> Result<Option<Draft>> {
        let format = &self.shared.format;
        let (low, high, sibling) = (left.low.clone(), right.high.clone(), right.sibling);
        let (body, sizes) = if left.is_leaf() {
            let mut items = self.items(left).await?;
            let sizes = (items.len(), self.items(right).await?);
            let (of_left, of_right) = (sizes.0, sizes.1.len());
            items.extend(sizes.1);
            (leaf_body(format, &low, high.as_ref(), &items), (of_left, of_right, left.slots(format)))
        } else {
            let (Body::Inner(mut children), Body::Inner(more)) =
                (left.draft(format).body, right.draft(format).body)
            else {
                return Ok(None);
            };
            let sizes = (children.len(), more.len(), (children.len() + more.len()) * 4 / 3 + 1);
            children.extend(more);
            (Body::Inner(children), sizes)
        };
        let draft = Draft { level: left.level, low, high, sibling, body };
        let roomy =
            (sizes.0 + sizes.1) * 4 <= sizes.2 * 3 || sizes.0.min(sizes.1) <= usize::from(!left.is_leaf());
        let fits = draft.image(format, left.addr, left.tag, left.stamp).is_some();
        Ok((roomy && fits).then_some(draft))
    }

    /// Retires the objects that a left node no longer needs after it took in its right neighbour.
    fn retire_joined(&mut self, left: &Page, right: &Page) {
        if let Some(high) = &left.high {
            high.retire(&mut self.client);
        }
        if right.is_leaf() {
            right.low.retire(&mut self.client);
        }
        self.retire_node(right);
    }

    /// Finishes a merge if the right neighbour of a locked node is dead and still linked. Unlocks.
    pub(crate) async fn absorb_dead_sibling(
        &mut self,
        mut locked: Locked,
        mut left: Box<Page>,
    ) -> Result<()> {
        let done = async {
            if left.sibling.is_none() {
                return Ok(());
            }
            let Some(mut right) = self.read_dead(left.sibling).await? else { return Ok(()) };
            note(situations::MERGE_FINISHED);
            fetch_bounds(&mut self.client, &mut left).await?;
            fetch_bounds(&mut self.client, &mut right).await?;
            let mut change = Change::default();
            if right.is_leaf() && self.shared.format.span.is_some() {
                write_dead(&self.shared.format, &mut change.batch, &right);
            }
            if let Some(draft) = self.joined(&left, &right).await? {
                if self.rewrite(&mut change, &left, &draft, vec![&mut locked]).await? {
                    self.retire_joined(&left, &right);
                }
                return Ok(());
            }
            // The left node has grown since: the right node's contents move to a new node.
            let link = self.shared.new_node(&mut self.client, &mut change.fresh, right.level).await?;
            let written = self.shared.write_new(&mut change, link, &right.draft(&self.shared.format));
            let draft = Draft { sibling: link, ..left.draft(&self.shared.format) };
            let moved = match written {
                Some(()) => self.rewrite(&mut change, &left, &draft, vec![&mut locked]).await,
                None => Ok(false),
            };
            match moved {
                Ok(true) => self.retire_node(&right),
                Ok(false) => change.fresh.discard(&mut self.client),
                Err(error) => {
                    if is_harmless(&error) {
                        change.fresh.discard(&mut self.client);
                    }
                    return Err(error);
                }
            }
            Ok(())
        };
        match done.await {
            Ok(()) => locked.end(&mut self.client).await,
            Err(error) => self.give_up(locked, error).await,
        }
    }

    /// Reads a node that a link of the tree leads to. Returns it if it is dead.
    async fn read_dead(&mut self, link: Link) -> Result<Option<Box<Page>>> {
        let format = &self.shared.format;
        let words = self.client.read(link.addr(), format.words_of(link)).await?;
        let page = Page::parse(format, link.addr(), &words);
        Ok(page.filter(|page| page.is_dead() && page.tag == link.tag()).map(Box::new))
    }

    /// Merges the root with its only child, then with that child's only child, and so on.
    async fn take_in_only_child(&mut self) -> Result<()> {
        loop {
            let mut holding = Holding::default();
            holding.locks.push(self.lock_root().await?);
            let outcome = self.lower_root(&mut holding).await;
            if !holding.end(&mut self.client, outcome).await? {
                return Ok(());
            }
        }
    }

    async fn lower_root(&mut self, holding: &mut Holding) -> Result<bool> {
        let Some(root) = self.read_taken(self.shared.root).await? else { return Ok(false) };
        if root.children() != 1 {
            return Ok(false);
        }
        let Some(child) = self.take(holding, root.child(0)).await? else { return Ok(false) };
        if child.high.is_some() {
            return Ok(false);
        }
        let mut change = Change::default();
        write_dead(&self.shared.format, &mut change.batch, &child);
        self.become_child(&mut change, &root, &child, holding).await
    }

    /// Rewrites the root with its only child's contents, and unlocks.
    async fn become_child(
        &mut self,
        change: &mut Change,
        root: &Page,
        child: &Page,
        holding: &mut Holding,
    ) -> Result<bool> {
        let draft = child.draft(&self.shared.format);
        let locks = holding.locks.iter_mut().collect();
        let lowered = self.rewrite(change, root, &draft, locks).await?;
        if lowered {
            note(situations::ROOT_LOWERED);
            self.retire_node(child);
        }
        Ok(lowered)
    }

    /// Finishes the root's merge with its only child, which may be dead and still linked.
    pub(crate) async fn absorb_dead_child(&mut self) -> Result<()> {
        let mut holding = Holding::default();
        holding.locks.push(self.lock_root().await?);
        let done = async {
            let Some(root) = self.read_taken(self.shared.root).await? else { return Ok(()) };
            if root.children() != 1 {
                return Ok(());
            }
            let Some(mut child) = self.read_dead(root.child(0)).await? else { return Ok(()) };
            fetch_bounds(&mut self.client, &mut child).await?;
            let mut change = Change::default();
            if child.is_leaf() && self.shared.format.span.is_some() {
                write_dead(&self.shared.format, &mut change.batch, &child);
            }
            self.become_child(&mut change, &root, &child, &mut holding).await.map(drop)
        };
        let outcome = done.await;
        holding.end(&mut self.client, outcome).await
    }
}
