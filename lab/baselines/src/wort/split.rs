//! Splits: a new node where a key differs from existing ones, at a leaf's slot or above a node.
//!
//! Above a node the new node takes over the beginning of its path, and the node's header is
//! shortened first, as published (Algorithm 1): depth, length and digits in one word. A reader in
//! between, or after the writer died, sees by the depth that digits are missing. In ART+CoW a copy
//! of the node has the new header, and the node stays the same.

use super::descent::{Here, SlotAt};
use super::header::Header;
use super::node::{self, Node, Slot};
use super::publish::Change;
use super::shared::Operation;
use super::situations::{SPLIT_ABOVE, SPLIT_LEAF};
use crate::hocl::Locked;
use darter_fabric::Fabric;
use darter_index::checker::note;
use darter_index::radix::drafts::{Draft, Drafts};
use darter_index::{IndexError, Result};

impl<F: Fabric> Operation<'_, F> {
    /// Puts a node for both keys into a slot that holds another key's leaf. `start` is the place of
    /// the first digit after the slot.
    pub(super) async fn split_leaf(
        &mut self,
        draft: &mut Draft<'_>,
        drafts: &mut Drafts,
        (at, start, parting, other): (SlotAt, usize, usize, &[u8]),
        lock: &mut Locked,
    ) -> Result<bool> {
        let (digits, home) = (self.shared.format.digits, at.base.node());
        if parting < start {
            return Err(IndexError::corrupt(at.slot.addr(), "leaf whose key does not match its path"));
        }
        note(SPLIT_LEAF);
        let leaf = draft.place(&mut self.client, home).await?;
        let new_leaf = Slot::leaf(digits.edge(draft.key, parting), draft.class, leaf);
        let child = at.slot.moved(digits.edge(other, parting), 0);
        let ty = self.shared.format.types[0];
        let addr = self.alloc_node(drafts, ty, home).await?;
        let header = Header::of_key(digits, start, parting, draft.key);
        let image = node::image(ty, header, &[child, new_leaf]);
        let change = Change::swing(at, Slot::node(at.edge(), ty, 0, addr));
        let won = self.publish(&change.with(addr, &image).with(leaf, &draft.words), lock).await?;
        if won {
            drafts.keep();
            draft.linked();
        }
        Ok(won)
    }

    /// Puts a node above the node `here`, because the key leaves the path at the place `parting`;
    /// `digit` returns the path's digits from there on.
    pub(super) async fn split_above(
        &mut self,
        draft: &mut Draft<'_>,
        drafts: &mut Drafts,
        (here, parting): (&Here, usize),
        digit: impl Fn(usize) -> u16 + Send,
        lock: &mut Locked,
    ) -> Result<bool> {
        let (format, incoming) = (self.shared.format, here.incoming);
        let (digits, home, branch) = (format.digits, incoming.base.node(), here.header.branch());
        let mine = digits.edge(draft.key, parting);
        if parting < here.start || parting >= branch || digit(parting) == mine {
            return Err(IndexError::corrupt(here.addr, "node whose keys do not match its path"));
        }
        note(SPLIT_ABOVE);
        let leaf = draft.place(&mut self.client, home).await?;
        let new_leaf = Slot::leaf(mine, draft.class, leaf);
        let ty = format.types[0];
        let addr = self.alloc_node(drafts, ty, home).await?;
        let lower = Header::new(digits, parting + 1, branch, &digit);
        let copied = if format.copies { Some(self.copied(drafts, here, lower).await?) } else { None };
        let below = copied.as_ref().map_or(here.addr, |&(addr, _)| addr);
        let child = Slot::node(digit(parting), here.ty, 0, below);
        let upper = Header::of_key(digits, here.start, parting, draft.key);
        let image = node::image(ty, upper, &[child, new_leaf]);
        let mut change = Change::swing(incoming, Slot::node(incoming.edge(), ty, 0, addr))
            .with(addr, &image)
            .with(leaf, &draft.words);
        match &copied {
            Some((addr, words)) => change.fresh.push((*addr, words)),
            None => change.before.push((here.addr, 0, lower.word())),
        }
        let won = self.publish(&change, lock).await?;
        drop(change);
        if won {
            drafts.keep();
            draft.linked();
            if copied.is_some() {
                self.retire(incoming.slot);
            }
        }
        Ok(won)
    }

    /// Returns memory for a copy of a node, and its words with another header.
    pub(super) async fn copied(
        &mut self,
        drafts: &mut Drafts,
        here: &Here,
        header: Header,
    ) -> Result<(darter_fabric::GlobalAddr, Vec<u64>)> {
        let addr = self.alloc_node(drafts, here.ty, here.incoming.base.node()).await?;
        let words = self.client.read(here.addr, here.ty.words()).await?;
        self.shared.touched.read(here.addr, || 0..here.ty.words());
        let node = Node::new(here.ty, &words);
        let children: Vec<Slot> = node.children().iter().map(|&(_, slot)| slot).collect();
        Ok((addr, node::image(here.ty, header, &children)))
    }
}
