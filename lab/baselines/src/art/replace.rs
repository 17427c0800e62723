//! Replacing a node by a better one: a larger type, a smaller one, its only child, or nothing.
//!
//! 1. *Lock* the node and the node that points to it (ROWEX); read both again.
//! 2. *Seal* the header and the pointers to leaves, which are the only words that can change
//!    without the lock.
//! 3. *Link* the successor by one CAS on the slot that pointed to the node, and unlock.
//! 4. *Retire* the old node. A client that still has its address finds the seal.
//!
//! A writer that dies between the second and the third step leaves a sealed node in the tree.
//! Readers are not affected; the next writer that reaches it takes over the locks, which are
//! leases, and repeats the steps. Memory for the successor is allocated before the first seal, so
//! that running out of space leaves the node unchanged.

use super::descent::{Here, SlotAt};
use super::locks::Locks;
use super::node::{self, Content, Header, NodeType, Part, Slot};
use super::publish::Change;
use super::shared::Operation;
use super::situations::{self, HELPED, REPLACE_LATE};
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::checker::note;
use darter_index::radix::build::Built;
use darter_index::radix::drafts::Drafts;
use darter_index::radix::seal::seal_all;
use darter_index::radix::slot::END;
use darter_index::{IndexError, Result};
use darter_pool::AllocKind;

/// The wanted replacement of a node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted<'a> {
    /// The same children, in the node type that fits them.
    AsItIs,
    /// One more child: its slot, and the words of its leaf, which are not written yet.
    With { slot: Slot, leaf: &'a [u64] },
    /// This node, if the old one has no children.
    Instead(Built<NodeType>),
}

/// The result of a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replaced {
    /// The successor is linked; it includes the new child, if one was given and its edge was free.
    Done { added: bool },
    /// The node cannot be improved.
    Unneeded,
    /// Another client changed the slot that points to the node.
    Lost,
    /// [`Wanted::Instead`]: the node has children.
    NotEmpty,
}

/// The successor of a node.
enum Successor {
    /// This slot in the parent.
    Slot(Slot),
    /// A node of this type with these children.
    Node(NodeType, Vec<Slot>),
}

impl<F: Fabric> Operation<'_, F> {
    /// Replaces the node `here`, whose header need not be known.
    pub(super) async fn replace(&mut self, here: &Here, wanted: Wanted<'_>) -> Result<Replaced> {
        let above = here.above.map_or(here.incoming.addr, |(addr, _)| addr);
        let locks = self.lock_both(above, here.addr).await?;
        let mut drafts = Drafts::new();
        match self.replace_locked(here, wanted, &mut drafts).await {
            Ok(Ok((slot, image, added))) => {
                self.link(here, wanted, (slot, image, added), (drafts, locks)).await
            }
            Ok(Err(outcome)) => {
                drafts.discard(&mut self.client);
                locks.end(&mut self.client).await?;
                Ok(outcome)
            }
            Err(error) => {
                if let IndexError::Pool(_) = error {
                    // Nothing has been written; after any other error the locks are left to be
                    // taken over.
                    drafts.discard(&mut self.client);
                    locks.end(&mut self.client).await?;
                }
                Err(error)
            }
        }
    }

    /// Reads again, allocates, and seals. Returns the slot to link, the node to write before, and
    /// whether it includes the new child; or the reason why not.
    #[allow(clippy::type_complexity)] // one caller, which takes it apart
    async fn replace_locked(
        &mut self,
        here: &Here,
        wanted: Wanted<'_>,
        drafts: &mut Drafts,
    ) -> Result<Result<(Slot, Option<(GlobalAddr, Vec<u64>)>, bool), Replaced>> {
        let (ty, incoming) = (here.ty, here.incoming);
        let mut batch = self.client.batch();
        let holder = here.above.map(|(addr, _)| batch.read(addr, 1));
        let pointer = batch.read(incoming.addr, 1);
        let node = batch.read(here.addr, ty.words());
        let done = self.client.submit(batch).await?;
        let holder_is_sealed =
            holder.is_some_and(|read| done.words(read)[0] & darter_index::radix::seal::SEAL != 0);
        let is_linked = done.words(pointer)[0] == incoming.slot.word();
        let mut words = done.words(node).to_vec();
        self.client.recycle(done);
        if here.above.is_none() && !is_linked {
            // The cached root word is outdated.
            self.shared.read_root(&mut self.client).await?;
        }
        if holder_is_sealed || !is_linked {
            note(REPLACE_LATE);
            return Ok(Err(Replaced::Lost));
        }
        node::verify_edges(here.addr, ty, &words)?;
        let is_sealed = Header::new(&words).is_sealed();
        if is_sealed {
            note(HELPED);
        }
        let (planned, _) = self.successor(here, &words, wanted);
        match (&planned, wanted) {
            (_, Wanted::Instead(_)) if Part::whole(ty, &words).live().next().is_some() => {
                return Ok(Err(Replaced::NotEmpty));
            }
            (Successor::Node(best, _), Wanted::AsItIs) if *best >= ty && !is_sealed => {
                return Ok(Err(Replaced::Unneeded));
            }
            _ => {}
        }
        let room = match planned {
            Successor::Node(ty, _) => Some((ty, self.alloc_node(here, ty, drafts).await?)),
            Successor::Slot(_) => None,
        };
        seal_all(&mut self.client, here.addr, &mut words, node::seals(ty)).await?;
        let identity = Header::new(&words).identity();
        let (successor, added) = self.successor(here, &words, wanted);
        Ok(Ok(match (successor, room) {
            (Successor::Slot(slot), _) => (slot, None, added),
            (Successor::Node(ty, children), Some((planned, addr))) if planned == ty => {
                let slot = Slot::node(incoming.slot.edge().unwrap_or(0), ty, 0, addr);
                (slot, Some((addr, node::image(ty, identity, &children))), added)
            }
            // The edges cannot change under the lock; without locks a client changed them.
            _ => return Ok(Err(Replaced::Lost)),
        }))
    }

    /// Writes the successor, links it, unlocks, and retires the old node.
    async fn link(
        &mut self,
        here: &Here,
        wanted: Wanted<'_>,
        (slot, image, added): (Slot, Option<(GlobalAddr, Vec<u64>)>, bool),
        (mut drafts, locks): (Drafts, Locks),
    ) -> Result<Replaced> {
        let mut writes: Vec<(GlobalAddr, &[u64])> = Vec::with_capacity(2);
        if let Some((addr, image)) = &image {
            writes.push((*addr, image));
        }
        if let (Wanted::With { slot, leaf }, true) = (wanted, added) {
            writes.push((slot.addr(), leaf));
        }
        let change = Change { writes: &writes, key: None, at: here.incoming, new: slot };
        if !self.publish(change, locks).await? {
            drafts.discard(&mut self.client);
            return Ok(Replaced::Lost);
        }
        drafts.keep();
        note(situations::replaced(here.ty, slot, image.is_some()));
        if here.above.is_none() {
            self.shared.remember_root(slot, self.client.epoch());
        }
        self.client.retire(here.addr, here.ty.bytes(), AllocKind::Inner);
        Ok(Replaced::Done { added })
    }

    /// Allocates a successor. Large nodes, which are near the root, are spread over the memory
    /// nodes by their address; small ones stay with the slot that points to them, so that they are
    /// linked in one round trip.
    async fn alloc_node(&mut self, here: &Here, ty: NodeType, drafts: &mut Drafts) -> Result<GlobalAddr> {
        let parent = here.incoming.addr.node();
        let nodes = u64::from(self.client.pool().nodes());
        let home = if ty.capacity() > 16 { ((here.addr.offset() >> 6) % nodes) as u8 } else { parent };
        drafts.alloc(&mut self.client, home, ty.bytes(), AllocKind::Inner).await
    }

    /// Returns the successor for the node's content, and whether it includes the new child.
    fn successor(&self, here: &Here, words: &[u64], wanted: Wanted<'_>) -> (Successor, bool) {
        let edge = here.incoming.slot.edge().unwrap_or(0);
        let whole = Part::whole(here.ty, words);
        let mut children = whole.children().into_vec();
        let mut added = false;
        match wanted {
            Wanted::AsItIs => {}
            Wanted::With { slot, .. } => {
                added = children.iter().all(|child| child.edge() != slot.edge());
                if added {
                    children.push(slot);
                }
            }
            Wanted::Instead(built) => {
                return (Successor::Slot(Slot::node(edge, built.ty, 0, built.addr)), false);
            }
        }
        let is_root = here.above.is_none();
        let successor = match children[..] {
            [] if !is_root => Successor::Slot(Slot::tomb(edge)),
            [only] if !is_root => Successor::Slot(only.moved(edge, 0)),
            _ => {
                let edges = children.iter().map(|child| child.edge().unwrap_or(END));
                Successor::Node(NodeType::fit(self.shared.layout, edges), children)
            }
        };
        (successor, added)
    }

    /// Removes the lowest node of a subtree without keys. One step: to remove the whole subtree the
    /// caller descends again.
    pub(super) async fn remove_empty(&mut self, here: &Here) -> Result<()> {
        let mut here = *here;
        loop {
            let words = self.client.read(here.addr, here.ty.words()).await?;
            let whole = Part::whole(here.ty, &words);
            let depth = whole.header.depth();
            if here.above.is_some_and(|(_, above)| depth <= above) {
                return Err(IndexError::corrupt(
                    here.addr,
                    "node is not deeper than the node that points to it",
                ));
            }
            let child = whole.live().next();
            match child.map(|(at, slot)| (at, slot, slot.content())) {
                Some((at, slot, Content::Node { addr, ty, .. })) if !whole.header.is_sealed() => {
                    let incoming = SlotAt { addr: here.addr.plus(at as u64 * 8), slot };
                    let above = Some((here.addr, depth));
                    here = Here { addr, ty, header: Header::default(), incoming, above };
                }
                // A key was inserted again, and with it the prefix.
                Some((_, _, Content::Leaf { .. })) => return Ok(()),
                _ => {
                    self.replace(&here, Wanted::AsItIs).await?;
                    return Ok(());
                }
            }
        }
    }
}
