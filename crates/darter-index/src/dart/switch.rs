//! Type switch and collapse: replacing a node by a better one (paper, section 4.2, repaired).
//!
//! 1. *Seal* every slot of every bucket. A later write fails its CAS and finds the seal.
//! 2. *Build* the successor from the sealed slots: the smallest type that fits, a lone child itself
//!    (collapse), or nothing.
//! 3. *Link* it by one CAS on the slot that pointed to the old node.
//! 4. *Retire* the old node in two stages and update the express entries.
//!
//! Sealed content is immutable, so any client that meets a seal can do the rest ([`Dart::help`] in
//! [`super::access`]), and no clock or grace period is involved. Only one CAS on the parent's slot
//! can win; the losers' copies were never visible. New memory is allocated before the first seal,
//! so that running out of space leaves the node unchanged.

use super::access::Target;
use super::descent::SlotAt;
use super::drafts::Drafts;
use super::est::install::{KnownBucket, install, pending_for};
use super::hints::HintHash;
use super::node::{self, Content, NodeRef, NodeType, Slot};
use super::operation::Operation;
use super::prefix_hash::HashedKey;
use super::retirement::{nameless_note, node_note};
use super::seal::seal_all;
use super::situations;
use crate::Result;
use crate::checker::{Situation, note};
use crate::radix::slot::{END, SKIP_MAX};
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::{AllocKind, Pinned};
use smallvec::SmallVec;

/// A child to be added to the successor: its slot, and the words of its leaf, which are not written
/// yet.
pub(super) struct NewChild<'a> {
    pub(super) slot: Slot,
    pub(super) words: &'a [u64],
}

/// The result of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switched {
    /// The successor is linked; it holds the new child, if one was given and its edge was free.
    Done { added: bool },
    /// Another client changed the parent's slot.
    Lost,
}

/// The replacement of a sealed node.
enum Successor {
    /// This slot in the parent.
    Slot(Slot),
    /// A node of this type.
    Node(NodeType),
}

impl<F: Fabric> Operation<'_, F> {
    /// Replaces a node. `key` shares the node's whole prefix.
    pub(super) async fn switch(
        &mut self,
        key: &mut HashedKey<'_>,
        target: &Target<'_>,
        add: Option<NewChild<'_>>,
        known: &[KnownBucket],
    ) -> Result<Switched> {
        let node = target.node;
        let mut words = match target.words {
            Some(words) if words.len() == node.ty.words() => words.to_vec(),
            _ => self.read_node(node).await?,
        };
        node::verify_edges(node, &words)?;
        let mut drafts = Drafts::new();
        // Before anything is sealed, allocates memory for the successor as it would be now.
        let room = match self.successor(target, &words, add.as_ref()).0 {
            Successor::Node(ty) => Some((ty, self.alloc_successor(key, target, ty, &mut drafts).await?)),
            Successor::Slot(_) => None,
        };
        // Sealed slots are final: afterwards `words` holds the node's content.
        seal_all(&mut self.client, node.addr, &mut words, node.ty.seals()).await?;
        let (successor, added) = self.successor(target, &words, add.as_ref());
        let child = add.as_ref().filter(|_| added);
        let (slot, image) = match successor {
            Successor::Slot(slot) => {
                drafts.discard(&mut self.client);
                (slot, None)
            }
            Successor::Node(ty) => {
                let addr = match room {
                    Some((planned, addr)) if planned == ty => addr,
                    _ => {
                        drafts.discard(&mut self.client);
                        self.alloc_successor(key, target, ty, &mut drafts).await?
                    }
                };
                let (slot, image) = copy_of(target, &words, child, ty, addr);
                (slot, Some((addr, image)))
            }
        };
        let image = image.as_ref().map(|(addr, image)| (*addr, &image[..]));
        let leaf = child.map(|child| (child.slot.addr(), child.words));
        let writes: SmallVec<[(GlobalAddr, &[u64]); 2]> = image.into_iter().chain(leaf).collect();
        if !self.publish(&writes, target.incoming, slot).await? {
            drafts.discard(&mut self.client);
            self.note_lost(target);
            return Ok(Switched::Lost);
        }
        drafts.keep();
        if target.incoming.addr == self.shared.words.root {
            self.shared.remember_root(slot);
        }
        note_switch(node.ty, slot, image.is_some());
        self.unlink_replaced(key, node);
        self.update_express(key, target, slot, known).await?;
        Ok(Switched::Done { added })
    }

    /// Memory for a successor of this type.
    async fn alloc_successor(
        &mut self,
        key: &mut HashedKey<'_>,
        target: &Target<'_>,
        ty: NodeType,
        drafts: &mut Drafts,
    ) -> Result<GlobalAddr> {
        let home = home(&self.client, key, ty, target.node.depth, target.incoming.addr.node());
        drafts.alloc(&mut self.client, home, ty.bytes(), AllocKind::Inner).await
    }

    /// Records that another client changed the parent's slot.
    fn note_lost(&self, target: &Target<'_>) {
        note(situations::SWITCH_LOST);
        if target.incoming.addr == self.shared.words.root {
            // The cached root slot is out of date: the next descent reads the root word.
            self.shared.remember_root(Slot::EMPTY);
        }
    }

    /// Retires a node that was replaced, whose prefix is a prefix of `key`.
    fn unlink_replaced(&mut self, key: &HashedKey<'_>, node: NodeRef) {
        let note = node_note(&key.bytes()[..node.depth]);
        self.client.unlink(node.addr, node.ty.bytes(), AllocKind::Inner, note);
    }

    /// Removes the lowest node from a subtree without keys, whose prefix can no longer be
    /// determined. This is one step: a client that wants the whole subtree removed must search
    /// again.
    ///
    /// Nodes are removed from the bottom, because a node cannot be removed while it has a child. A
    /// sealed node on the way is replaced first: its slots, and so its children, can no longer
    /// change.
    pub(super) async fn remove_empty(&mut self, target: &Target<'_>) -> Result<()> {
        let Target { mut node, mut incoming, mut above, .. } = *target;
        loop {
            let words = self.read_node(node).await?;
            node::verify_depth(node, &words)?;
            let child = node::slots(node.ty, &words).find(|(_, slot)| slot.is_live());
            if let Some((at, slot)) = child {
                let Content::Node { addr, ty, skip } = slot.content() else {
                    // A key was added again, and with it the prefix is known.
                    return Ok(());
                };
                let is_sealed = node::slots(node.ty, &words).any(|(_, slot)| slot.is_sealed());
                if !is_sealed {
                    incoming = SlotAt { addr: node.addr.plus(at as u64 * 8), slot };
                    above = node.depth;
                    node = NodeRef { addr, ty, depth: above + 1 + usize::from(skip) };
                    continue;
                }
            }
            let target = Target { node, incoming, above, words: None };
            return self.replace_nameless(&target, words).await;
        }
    }

    /// Replaces a node by its remaining content, without its prefix: hints to the successor are
    /// lost.
    async fn replace_nameless(&mut self, target: &Target<'_>, mut words: Vec<u64>) -> Result<()> {
        let (node, at) = (target.node, target.incoming);
        node::verify_edges(node, &words)?;
        let mut drafts = Drafts::new();
        seal_all(&mut self.client, node.addr, &mut words, node.ty.seals()).await?;
        let (slot, image) = match self.successor(target, &words, None).0 {
            Successor::Slot(slot) => (slot, None),
            Successor::Node(ty) => {
                let addr =
                    drafts.alloc(&mut self.client, at.addr.node(), ty.bytes(), AllocKind::Inner).await?;
                let (slot, image) = copy_of(target, &words, None, ty, addr);
                (slot, Some((addr, image)))
            }
        };
        let writes: Vec<(GlobalAddr, &[u64])> =
            image.iter().map(|(addr, words)| (*addr, &words[..])).collect();
        if self.publish(&writes, at, slot).await? {
            drafts.keep();
            note_switch(node.ty, slot, image.is_some());
            self.client.unlink(node.addr, node.ty.bytes(), AllocKind::Inner, nameless_note(words[0]));
        } else {
            drafts.discard(&mut self.client);
        }
        Ok(())
    }

    /// The successor that the node's content requires, and whether it includes the new child.
    fn successor(&self, target: &Target<'_>, words: &[u64], add: Option<&NewChild<'_>>) -> (Successor, bool) {
        let ty = target.node.ty;
        let wanted = add.and_then(|child| child.slot.edge());
        let free = |edge: u16| !node::slots(ty, words).any(|(_, s)| s.is_live() && s.edge() == Some(edge));
        let added = wanted.is_some_and(free);
        let children = live_children(words, ty, add.filter(|_| added));
        let is_root = target.incoming.addr == self.shared.words.root;
        let edge = target.incoming.slot.edge().unwrap_or(0);
        let successor = match children[..] {
            [] if !is_root => Successor::Slot(Slot::tomb(edge)),
            [only] if !is_root => match only.content() {
                Content::Node { skip, .. } => {
                    let merged = usize::from(skip_of(target.incoming.slot)) + 1 + usize::from(skip);
                    if merged <= SKIP_MAX {
                        Successor::Slot(only.moved(edge, merged as u8))
                    } else {
                        Successor::Node(NodeType::N4)
                    }
                }
                _ => Successor::Slot(only.moved(edge, 0)),
            },
            _ => {
                let edges = children.iter().map(|child| child.edge().unwrap_or(END));
                let fitting = NodeType::fit(edges.clone());
                // A client sealed the node because it was full. An equally full copy would be
                // sealed again, and a client that replaces a node below would find it sealed each
                // time and copy it once more.
                let needs_room = !added && fitting == ty;
                Successor::Node(if needs_room { NodeType::fit_with_room(edges) } else { fitting })
            }
        };
        (successor, added)
    }

    /// Installs entries for a node's replacement under the prefix lengths that the node covered.
    async fn update_express(
        &mut self,
        key: &mut HashedKey<'_>,
        target: &Target<'_>,
        slot: Slot,
        known: &[KnownBucket],
    ) -> Result<()> {
        let Content::Node { addr, ty, skip } = slot.content() else { return Ok(()) };
        let depth = if target.incoming.addr == self.shared.words.root {
            0
        } else {
            target.above + 1 + usize::from(skip)
        };
        let successor = NodeRef { addr, ty, depth };
        if depth == target.node.depth && depth > 0 {
            self.shared.hints.put(HintHash::new(key.express(depth)), self.era, successor);
        }
        let cover = (target.above, target.node.depth);
        let pending = pending_for(self.table.list, key, cover, successor, Some(target.node.addr));
        install(&mut self.client, self.shared.express(&self.table), &pending, known).await
    }
}

/// The memory node for a node of this type. Large nodes, which sit near the root, are spread over
/// the memory nodes by their prefix; small ones are placed with the slot that points to them, so
/// that they are linked in one round trip.
fn home<F: Fabric>(
    client: &Pinned<'_, F>,
    key: &mut HashedKey<'_>,
    ty: NodeType,
    depth: usize,
    parent: u8,
) -> u8 {
    if ty < NodeType::N32 {
        return parent;
    }
    ((key.express(depth) >> 16) % u64::from(client.pool().nodes())) as u8
}

fn skip_of(slot: Slot) -> u8 {
    match slot.content() {
        Content::Node { skip, .. } => skip,
        _ => 0,
    }
}

fn note_switch(from: NodeType, successor: Slot, is_copy: bool) {
    note(match successor.content() {
        Content::Node { ty, .. } if is_copy => Situation::Switch(from.name(), ty.name()),
        Content::Node { .. } => situations::COLLAPSE_TO_NODE,
        Content::Leaf { .. } => situations::COLLAPSE_TO_LEAF,
        _ => situations::COLLAPSE_TO_NOTHING,
    });
}

/// A copy of a node, with a new child if one is added, as a node of another type at `addr`: the
/// slot that will point to it, and its words.
fn copy_of(
    target: &Target<'_>,
    words: &[u64],
    add: Option<&NewChild<'_>>,
    ty: NodeType,
    addr: GlobalAddr,
) -> (Slot, Vec<u64>) {
    let image = node::image(ty, words[0], &live_children(words, target.node.ty, add));
    let from = target.incoming.slot;
    (Slot::node(from.edge().unwrap_or(0), ty, skip_of(from), addr), image)
}

fn live_children(words: &[u64], ty: NodeType, add: Option<&NewChild<'_>>) -> Vec<Slot> {
    node::slots(ty, words)
        .map(|(_, slot)| slot.unsealed())
        .filter(|slot| slot.is_live())
        .chain(add.map(|child| child.slot))
        .collect()
}
