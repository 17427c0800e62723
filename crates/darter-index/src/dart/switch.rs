//! Type switch and collapse: replacing a node by a better one (paper, section 4.2, repaired).
//!
//! 1. *Seal* every slot of every bucket. A write that comes later fails its CAS and finds the seal.
//! 2. *Build* the successor from the sealed slots: the smallest type that fits, a lone child itself
//!    (collapse), or nothing.
//! 3. *Link* it by one CAS on the slot that pointed to the old node.
//! 4. *Retire* the old node in two stages and bring the express entries up to date.
//!
//! Sealed content is immutable, so any client that meets a seal can do the rest ([`Dart::help`] in
//! [`super::access`]), and no clock or grace period is involved. Only one CAS on the parent's slot
//! can win; the losers' copies were never visible. New memory is allocated before the first seal,
//! so that running out of space leaves the node as it was.

use super::Dart;
use super::access::Target;
use super::descent::SlotAt;
use super::drafts::Drafts;
use super::est::install::{KnownBucket, install, pending_for};
use super::est::table::Table;
use super::holes::Hole;
use super::node::{self, Held, NodeRef, NodeType, Slot};
use super::prefix_hash::HashedKey;
use super::retirement::{nameless_note, node_note};
use super::seal::seal_all;
use super::situations;
use crate::IndexError;
use crate::checker::{Situation, note};
use crate::radix::slot::{END, SKIP_MAX};
use darter_fabric::{Fabric, GlobalAddr, mutant};
use darter_pool::{AllocKind, Pinned};

/// A child to be put into the successor: its slot, and the words of its leaf, which nobody has
/// written yet.
pub(super) struct NewChild<'a> {
    pub(super) slot: Slot,
    pub(super) words: &'a [u64],
}

/// What became of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switched {
    /// The successor is linked; it holds the new child, if one was given and its edge was free.
    Done { added: bool },
    /// Another client changed the parent's slot.
    Lost,
}

/// What takes a sealed node's place.
enum Successor {
    /// This slot in the parent.
    Slot(Slot),
    /// A node of this type.
    Node(NodeType),
}

impl<F: Fabric> Dart<F> {
    /// Replaces a node. `key` shares the node's whole prefix.
    pub(super) async fn switch(
        &self,
        client: &mut Pinned<'_, F>,
        table: &Table,
        key: &mut HashedKey<'_>,
        target: &Target<'_>,
        add: Option<NewChild<'_>>,
        known: &[KnownBucket],
    ) -> Result<Switched, IndexError> {
        let node = target.node;
        let mut incoming = target.incoming;
        let mut words = match target.words {
            Some(words) if words.len() == node.ty.words() => words.to_vec(),
            _ => self.read_node(client, node).await?,
        };
        node::verify_edges(node, &words)?;
        let identity = words[0];
        let mut drafts = Drafts::new();
        // Before anything is sealed: memory for the successor as it looks now.
        let expected = self.successor(target, &words, add.as_ref());
        let mut room = None;
        if let Successor::Node(ty) = expected {
            let home = home(client, key, ty, node.depth, target.incoming.addr.node());
            room = Some((ty, drafts.alloc(client, home, ty.bytes(), AllocKind::Inner).await?));
        }
        if self.shared.holes.has(Hole::FreezeParent) {
            let frozen = incoming.slot.sealed();
            if !self.publish(client, &[], incoming, frozen).await? {
                drafts.discard(client);
                return Ok(Switched::Lost);
            }
            incoming.slot = frozen;
            words = self.read_node(client, node).await?;
        } else {
            let before = mutant!("switch-copies-what-it-read-before-sealing").then(|| words.clone());
            seal_all(client, node.addr, &mut words, node.ty.seals()).await?;
            words = before.unwrap_or(words);
        }
        let (successor, added) = self.final_successor(target, &words, add.as_ref());
        let (slot, image) = match successor {
            Successor::Slot(slot) => (slot, None),
            Successor::Node(ty) => {
                let addr = match room {
                    Some((planned, addr)) if planned == ty => addr,
                    _ => {
                        if !mutant!("switch-keeps-room-of-the-wrong-type") {
                            drafts.discard(client);
                        }
                        let home = home(client, key, ty, node.depth, target.incoming.addr.node());
                        drafts.alloc(client, home, ty.bytes(), AllocKind::Inner).await?
                    }
                };
                let children = live_children(&words, node.ty, add.as_ref().filter(|_| added));
                let skip = skip_of(target.incoming.slot);
                let edge = target.incoming.slot.edge().unwrap_or(0);
                (Slot::node(edge, ty, skip, addr), Some((addr, node::image(ty, identity, &children))))
            }
        };
        if image.is_none() {
            drafts.discard(client);
        }
        let mut writes: Vec<(GlobalAddr, &[u64])> = Vec::with_capacity(2);
        if let Some((addr, image)) = &image {
            writes.push((*addr, image));
        }
        if let (Some(child), true) = (&add, added) {
            writes.push((child.slot.addr(), child.words));
        }
        if !self.publish(client, &writes, incoming, slot).await? {
            note(situations::SWITCH_LOST);
            drafts.discard(client);
            if target.incoming.addr == self.shared.words.root && !mutant!("lost-root-stays-remembered") {
                // What was remembered of the root word is out of date: the next descent reads it.
                let lost = mutant!("lost-root-copy-remembered");
                self.shared.remember_root(if lost { slot } else { Slot::EMPTY });
            }
            return Ok(Switched::Lost);
        }
        drafts.keep();
        if target.incoming.addr == self.shared.words.root {
            self.shared.remember_root(slot);
        }
        note_switch(node.ty, slot, image.is_some());
        if self.shared.holes.has(Hole::FreezeParent) {
            // Hints must not believe the old node for ever, or the error would be another one.
            seal_all(client, node.addr, &mut words, node.ty.seals()).await?;
        }
        if self.shared.holes.has(Hole::ReuseAtOnce) {
            client.free_unpublished(node.addr, node.ty.bytes(), AllocKind::Inner);
        } else {
            let note = node_note(&key.bytes()[..node.depth]);
            client.unlink(node.addr, node.ty.bytes(), AllocKind::Inner, note);
        }
        self.update_express(client, table, key, target, slot, known).await?;
        Ok(Switched::Done { added })
    }

    /// Takes the lowest node out of a subtree without keys, whose prefix nobody can tell any more.
    /// One step: anyone who wants the subtree gone looks again.
    ///
    /// From the bottom, because a node above cannot go while it has a child. A sealed node on the
    /// way is replaced first: its slots, and with them the children, can change no more.
    pub(super) async fn remove_empty(
        &self,
        client: &mut Pinned<'_, F>,
        target: &Target<'_>,
    ) -> Result<(), IndexError> {
        let Target { mut node, mut incoming, mut above, .. } = *target;
        loop {
            let words = self.read_node(client, node).await?;
            node::verify_depth(node, &words)?;
            let child = node::slots(node.ty, &words).find(|(_, slot)| slot.is_live());
            if let Some((at, slot)) = child {
                let Held::Node { addr, ty, skip } = slot.held() else {
                    // A key came back, and with it the prefix.
                    return Ok(());
                };
                let is_sealed = node::slots(node.ty, &words).any(|(_, slot)| slot.is_sealed());
                if !is_sealed || mutant!("empty-subtree-sought-through-a-seal") {
                    incoming = SlotAt { addr: node.addr.plus(at as u64 * 8), slot };
                    above = node.depth;
                    node = NodeRef { addr, ty, depth: above + 1 + usize::from(skip) };
                    continue;
                }
            }
            let target = Target { node, incoming, above, words: None };
            return self.replace_nameless(client, &target, words).await;
        }
    }

    /// Replaces a node by what is left in it, without its prefix: hints to the successor are lost.
    async fn replace_nameless(
        &self,
        client: &mut Pinned<'_, F>,
        target: &Target<'_>,
        mut words: Vec<u64>,
    ) -> Result<(), IndexError> {
        let (node, at) = (target.node, target.incoming);
        node::verify_edges(node, &words)?;
        let mut drafts = Drafts::new();
        seal_all(client, node.addr, &mut words, node.ty.seals()).await?;
        let (slot, image) = match self.final_successor(target, &words, None).0 {
            Successor::Slot(slot) => (slot, None),
            Successor::Node(ty) => {
                let addr = drafts.alloc(client, at.addr.node(), ty.bytes(), AllocKind::Inner).await?;
                let image = node::image(ty, words[0], &live_children(&words, node.ty, None));
                (Slot::node(at.slot.edge().unwrap_or(0), ty, skip_of(at.slot), addr), Some((addr, image)))
            }
        };
        let writes: Vec<(GlobalAddr, &[u64])> =
            image.iter().map(|(addr, words)| (*addr, &words[..])).collect();
        if self.publish(client, &writes, at, slot).await? {
            drafts.keep();
            note_switch(node.ty, slot, image.is_some());
            if !mutant!("nameless-node-not-unlinked") {
                client.unlink(node.addr, node.ty.bytes(), AllocKind::Inner, nameless_note());
            }
        } else {
            drafts.discard(client);
        }
        Ok(())
    }

    fn successor(&self, target: &Target<'_>, words: &[u64], add: Option<&NewChild<'_>>) -> Successor {
        self.final_successor(target, words, add).0
    }

    /// What the node's content calls for, and whether the new child is in it.
    fn final_successor(
        &self,
        target: &Target<'_>,
        words: &[u64],
        add: Option<&NewChild<'_>>,
    ) -> (Successor, bool) {
        let ty = target.node.ty;
        let wanted = add.and_then(|child| child.slot.edge());
        let free = |edge: u16| !node::slots(ty, words).any(|(_, s)| s.is_live() && s.edge() == Some(edge));
        let added = wanted.is_some_and(|edge| free(edge) || mutant!("switch-adds-beside-a-child-that-came"));
        let children = live_children(words, ty, add.filter(|_| added));
        let is_root = target.incoming.addr == self.shared.words.root;
        let edge = target.incoming.slot.edge().unwrap_or(0);
        let successor = match children[..] {
            [] if !is_root => Successor::Slot(Slot::tomb(edge)),
            [only] if !is_root => match only.held() {
                Held::Node { skip, .. } => {
                    let merged = usize::from(skip_of(target.incoming.slot)) + 1 + usize::from(skip);
                    if merged <= SKIP_MAX + usize::from(mutant!("collapse-skips-one-byte-too-many")) {
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
                // A client sealed the node for want of room. A copy without any would be sealed
                // again, and anyone who replaces a node below would always find it so, and copy it
                // once more.
                let needs_room = !added && fitting == ty && !mutant!("copy-as-full-as-it-was");
                Successor::Node(if needs_room { NodeType::fit_with_room(edges) } else { fitting })
            }
        };
        (successor, added)
    }

    /// Enters what took a node's place under the prefix lengths the node covered.
    async fn update_express(
        &self,
        client: &mut Pinned<'_, F>,
        table: &Table,
        key: &mut HashedKey<'_>,
        target: &Target<'_>,
        slot: Slot,
        known: &[KnownBucket],
    ) -> Result<(), IndexError> {
        let Held::Node { addr, ty, skip } = slot.held() else { return Ok(()) };
        let depth = if target.incoming.addr == self.shared.words.root {
            0
        } else {
            target.above + 1 + usize::from(skip)
        };
        let successor = NodeRef { addr, ty, depth };
        let cover = (target.above, target.node.depth);
        let pending = pending_for(table.list, key, cover, successor, Some(target.node.addr));
        install(client, self.express(table), &pending, known).await
    }
}

/// Where a node of this type goes: large nodes, which sit near the root, are spread over the memory
/// nodes by their prefix; small ones stay with the slot that points to them, so that they are
/// linked in one round trip.
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
    match slot.held() {
        Held::Node { skip, .. } => skip,
        _ => 0,
    }
}

fn note_switch(from: NodeType, successor: Slot, is_copy: bool) {
    note(match successor.held() {
        Held::Node { ty, .. } if is_copy => Situation::Switch(from.name(), ty.name()),
        Held::Node { .. } => situations::COLLAPSE_TO_NODE,
        Held::Leaf { .. } => situations::COLLAPSE_TO_LEAF,
        _ => situations::COLLAPSE_TO_NOTHING,
    });
}

fn live_children(words: &[u64], ty: NodeType, add: Option<&NewChild<'_>>) -> Vec<Slot> {
    node::slots(ty, words)
        .map(|(_, slot)| slot.unsealed())
        .filter(|slot| slot.is_live())
        .chain(add.map(|child| child.slot))
        .collect()
}
