//! Delete: also one word, for every new state of the node.
//!
//! | children left | the word |
//! |---|---|
//! | none: the leaf is the tree | the root word |
//! | one | the slot that points to the node: it gets the child, which takes over the node's path |
//! | few | the same: it gets a smaller node, or, if there is no room for one, as below |
//! | others | the word in the node that makes the slot count |
//!
//! So every node has at least two children, and nothing has to be tidied up later except the header
//! of a child that has moved up.

use super::Wort;
use super::descent::{Descent, Here, Purpose, SlotAt, WortEnd};
use super::header::Header;
use super::node::{self, Content, Node, Slot};
use super::publish::Change;
use super::shared::Operation;
use super::situations::COLLAPSED;
use super::write::Attempt;
use crate::hocl::Locked;
use darter_fabric::{Fabric, OpKind};
use darter_index::checker::note;
use darter_index::radix::drafts::Drafts;
use darter_index::radix::{TURNS_MAX, leaf, no_progress};
use darter_index::{Condition, IndexError, Result, check_key};
use darter_pool::Client;

impl<F: Fabric> Wort<F> {
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
            let mut lock = operation.lock().await?;
            let mut drafts = Drafts::new();
            let turn = operation.delete_turn(key, &mut drafts, condition, &mut lock).await;
            match operation.end_turn(turn, &mut drafts, lock).await? {
                Attempt::Done(was_there) => return Ok(was_there),
                Attempt::Again => operation.client.retried(),
            }
        }
        Err(no_progress(self.shared.words.root))
    }
}

impl<F: Fabric> Operation<'_, F> {
    async fn delete_turn(
        &mut self,
        key: &[u8],
        drafts: &mut Drafts,
        condition: Condition<'_>,
        lock: &mut Locked,
    ) -> Result<Attempt<bool>> {
        let (descent, end, done) = self.descend(key, Purpose::Write).await?;
        let found = match end {
            WortEnd::Leaf { at, read, is_key: true } => {
                let leaf = leaf::parse_again(at.slot.addr(), done.words(read))?;
                condition.holds_for(Some(leaf.value)).then_some(at)
            }
            _ => None,
        };
        self.client.recycle(done);
        if matches!(end, WortEnd::Stale) {
            self.rebuild_header(&descent).await?;
            return Ok(Attempt::Again);
        }
        let Some(at) = found else { return Ok(Attempt::Done(false)) };
        let won = match descent.path.last() {
            None => self.publish(&Change::swing(at, Slot::EMPTY), lock).await?,
            Some(here) => self.remove(drafts, (&descent, here, at), lock).await?,
        };
        if !won {
            return Ok(Attempt::Again);
        }
        self.retire(at.slot);
        Ok(Attempt::Done(true))
    }

    /// Removes a child from a node, or the node from the tree.
    async fn remove(
        &mut self,
        drafts: &mut Drafts,
        (descent, here, at): (&Descent<'_>, &Here, SlotAt),
        lock: &mut Locked,
    ) -> Result<bool> {
        let node = Node::new(here.ty, &descent.words);
        self.shared.touched.read(here.addr, || node.words_for_all());
        let rest: Vec<Slot> =
            node.children().iter().filter(|child| child.0 != at.at).map(|&(_, slot)| slot).collect();
        let types = self.shared.format.types;
        match rest[..] {
            [] => return Err(IndexError::corrupt(here.addr, "node with one child")),
            [only] => return self.collapse(drafts, (descent, here, only), lock).await,
            _ if here.ty.is_sparse(types, node::beside_end(&rest)) => {
                match self.replace(drafts, (here, node.header(), &rest), None, lock).await {
                    // It keeps its size.
                    Err(error) if error.is_out_of_space() => {}
                    replaced => return replaced,
                }
            }
            _ => {}
        }
        let edge = at.slot.edge().unwrap_or(0);
        self.publish(&Change::edit(here.addr, &node.removal(edge, at.at)), lock).await
    }

    /// Replaces the node by its last child other than the one to be removed.
    async fn collapse(
        &mut self,
        drafts: &mut Drafts,
        (descent, here, only): (&Descent<'_>, &Here, Slot),
        lock: &mut Locked,
    ) -> Result<bool> {
        let incoming = here.incoming;
        let (mut copied, mut after) = (None, None);
        if let Content::Node { addr, ty, .. } = only.content() {
            let start = here.header.branch() + 1;
            let incoming = SlotAt { slot: only, ..incoming };
            let mut child = Here { addr, ty, header: Header::default(), start, incoming };
            let header = self.joined_header(descent, here, &mut child).await?;
            if self.shared.format.copies {
                copied = match self.copied(drafts, &child, header).await {
                    Ok(copy) => Some((ty, copy)),
                    Err(error) if error.is_out_of_space() => None,
                    Err(error) => return Err(error),
                };
            }
            after = copied.is_none().then_some((addr, 0, header.word()));
        }
        let mut change = Change::swing(incoming, only.moved(incoming.edge(), 0));
        change.after = after;
        if let Some((ty, (addr, words))) = &copied {
            change.commit.3 = Slot::node(incoming.edge(), *ty, 0, *addr).word();
            change.fresh.push((*addr, words));
        }
        let won = self.publish(&change, lock).await?;
        if won {
            note(COLLAPSED);
            drafts.keep();
            self.retire(incoming.slot);
            if copied.is_some() {
                self.retire(only);
            }
        }
        Ok(won)
    }

    /// Returns the header of a node that replaces the one above it: the upper path, the digit
    /// between, and the node's own path.
    async fn joined_header(
        &mut self,
        descent: &Descent<'_>,
        here: &Here,
        child: &mut Here,
    ) -> Result<Header> {
        let (digits, between) = (self.shared.format.digits, here.header.branch());
        let [word] = self.client.read_words(child.addr).await?;
        self.shared.touched.read(child.addr, || 0..1);
        child.header = Header::from_word(word);
        let (own, branch) = (child.header, child.header.branch());
        if branch < child.start {
            return Err(IndexError::corrupt(child.addr, "node is not as deep as the edge that leads to it"));
        }
        if own.is_stale(child.start) {
            let key = self.key_below(child).await?;
            return Ok(Header::of_key(digits, here.start, branch, &key));
        }
        Ok(Header::new(digits, here.start, branch, |at| match at {
            _ if at < between => digits.edge(descent.key, at),
            _ if at == between => child.incoming.edge(),
            _ => own.digit(digits, at).unwrap_or(0),
        }))
    }
}
