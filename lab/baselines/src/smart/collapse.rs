//! The opposite of the splits: nodes left with one child or none are removed from the tree (SMART,
//! section 4.4, "Delete").
//!
//! 1. *Seal* the node: every taken slot, and the first empty one. Slots are taken in order, so
//!    nothing can be inserted any longer.
//! 2. *Join*: an only inner child gets the bytes of its new path at the front of its header. This
//!    is harmless whether or not the link follows.
//! 3. *Link* the only child, or a tombstone, by one CAS on the slot that pointed to the node.
//! 4. *Set aside* the node's memory ([`super::quarantine`]).
//!
//! A header gets bytes only while the slot that points to its node is sealed. So a client that
//! swings an unsealed slot has read a header that covers all bytes it will ever have from there,
//! though it read the header before it sealed the node.
//!
//! Sealed slots never change, so any client that encounters a seal can do the rest
//! ([`Smart::help`]). A node that got another child in between, or whose only child's bytes do not
//! fit in a header, is replaced by a copy. In the paper, a deleted node has a header of type zero,
//! set by a CAS after the link; here the seals replace it, earlier.

use super::descent::{Descent, Purpose, SmartEnd, Upper};
use super::node::{self, HEADER_WORDS, Header, NODE_WORDS, NodeType, PARTIAL_MAX};
use super::shared::Operation;
use super::slot::{Content, SEAL, Slot};
use super::split::home;
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::radix::drafts::Drafts;
use darter_index::radix::seal::seal_by;
use darter_index::radix::{TURNS_MAX, no_progress};
use darter_index::{IndexError, Result};
use darter_pool::{AllocKind, PoolError};
use smallvec::SmallVec;

/// The result of removing a node.
enum Taken {
    /// The node has enough children.
    Kept,
    /// The node was removed; `vanished` if its parent lost a child.
    Out { vanished: bool },
    /// Another client interfered; read again.
    Lost,
}

/// The successor of a sealed node.
enum Successor {
    /// This slot in the parent; for a node, with its header and the depth at which it is entered.
    Slot(Slot),
    /// A copy of the remaining children.
    Copy,
}

impl<F: Fabric> Operation<'_, F> {
    /// Removes the node where a key ends, then those above, as long as they have at most one child.
    pub(super) async fn tidy(&mut self, key: &[u8]) -> Result<()> {
        for _ in 0..TURNS_MAX {
            let mut descent = Descent::below(key, Purpose::Write, 0);
            let (end, done) = self.run(&mut descent).await?;
            self.client.recycle(done);
            let mut target = match end {
                SmartEnd::Sealed => {
                    self.help(key, descent.node).await?;
                    continue;
                }
                SmartEnd::Vacant { .. } | SmartEnd::Leaf { is_key: false, .. } => descent.here(),
                // The key leaves the path below a node that may have only that path left.
                SmartEnd::Diverged { .. } => descent.uppers.pop(),
                _ => None,
            };
            let mut is_lost = false;
            while let Some(node) = target.filter(|node| node.live <= 1 && !node.holder.is_null()) {
                match self.take_out(key, node, false).await? {
                    Taken::Kept => return Ok(()),
                    Taken::Out { vanished } => {
                        target = descent.uppers.pop();
                        if let Some(above) = &mut target {
                            above.live = above.live.saturating_sub(usize::from(vanished));
                        }
                    }
                    Taken::Lost => {
                        is_lost = true;
                        break;
                    }
                }
            }
            if !is_lost {
                return Ok(());
            }
            self.client.retried();
        }
        Err(no_progress(self.shared.words.root))
    }

    /// Finishes what the seals in `node`, found on a key's path, began.
    pub(super) async fn help(&mut self, key: &[u8], node: GlobalAddr) -> Result<()> {
        self.client.retried();
        for _ in 0..TURNS_MAX {
            let mut descent = Descent::below(key, Purpose::Write, 0);
            let (end, done) = self.run(&mut descent).await?;
            self.client.recycle(done);
            if !matches!(end, SmartEnd::Sealed) && descent.node != node {
                return Ok(());
            }
            let Some(target) = descent.here() else { return Ok(()) };
            if matches!(end, SmartEnd::Diverged { .. }) {
                return Ok(());
            }
            self.take_out(key, target, true).await?;
            if descent.node == node {
                return Ok(());
            }
            self.client.retried();
        }
        Err(no_progress(node))
    }

    /// Replaces a node by its only child, by nothing or, if it is already sealed, by a copy.
    async fn take_out(&mut self, key: &[u8], target: Upper, is_begun: bool) -> Result<Taken> {
        let mut words = self.read_words(target.node).await?;
        let header = Header::from_word(words[1]);
        let Some(partial) = header.partial_from(target.arrival) else { return Ok(Taken::Lost) };
        let depth = target.arrival + partial.len();
        let has_seal = words[HEADER_WORDS..].iter().any(|&word| word & SEAL != 0);
        if is_begun && !has_seal {
            return Ok(Taken::Lost);
        }
        if !has_seal {
            match self.successor(target, &words, false).await? {
                None => return Ok(Taken::Lost),
                Some(Successor::Copy) => return Ok(Taken::Kept),
                Some(Successor::Slot(_)) => {}
            }
        }
        // Allocate memory for a possible copy before the first seal. A full pool must not keep a
        // node that can be removed, so without memory the node is sealed nevertheless. If it then
        // needs a copy, writers there fail until there is room.
        let mut drafts = Drafts::new();
        let home = home(&self.client, &key[..depth.min(key.len())]);
        let copy = match drafts.alloc(&mut self.client, home, node::NODE_BYTES, AllocKind::Inner).await {
            Ok(addr) => Some(addr),
            Err(IndexError::Pool(PoolError::OutOfSpace { .. })) if !has_seal => None,
            Err(error) => return Err(error),
        };
        self.seal(target.node, &mut words).await?;
        let Some(successor) = self.successor(target, &words, true).await? else {
            drafts.discard(&mut self.client);
            return Ok(Taken::Lost);
        };
        let vanished = matches!(successor, Successor::Slot(slot) if !slot.is_live());
        let linked = match successor {
            Successor::Slot(slot) => {
                drafts.discard(&mut self.client);
                self.link_child(target, slot).await?
            }
            Successor::Copy => {
                let copy = match copy {
                    Some(copy) => copy,
                    None => drafts.alloc(&mut self.client, home, node::NODE_BYTES, AllocKind::Inner).await?,
                };
                let linked = self.link_copy(target, &words, copy).await?;
                if linked.is_some() {
                    drafts.keep();
                } else {
                    drafts.discard(&mut self.client);
                }
                linked
            }
        };
        let Some(new) = linked else { return Ok(Taken::Lost) };
        self.set_aside(target.node, node::NODE_BYTES, AllocKind::Inner);
        self.note_replaced((key, depth), target, new);
        Ok(Taken::Out { vanished })
    }

    /// Links a sealed node's only child, or a tombstone, in its place. Returns the new slot, `None`
    /// if another client changed the old one.
    async fn link_child(&mut self, target: Upper, child: Slot) -> Result<Option<Slot>> {
        let edge = target.incoming.slot.edge().unwrap_or(0);
        let new = if child.is_live() { child.moved(edge) } else { Slot::tomb(edge) };
        let aside = match child.content() {
            Content::Node { addr, .. } => Some((addr, target.node.bits(), target.holder.bits())),
            _ => None,
        };
        Ok(self.publish(&[], target.incoming, new, aside).await?.then_some(new))
    }

    /// The same with a copy of a sealed node's remaining children.
    async fn link_copy(&mut self, target: Upper, words: &[u64], copy: GlobalAddr) -> Result<Option<Slot>> {
        let children = node::children_in_order(&words[HEADER_WORDS..]);
        let ty = NodeType::fit(children.len());
        let header = Header::from_word(words[1]).with_type(ty);
        let image = node::image(target.holder, header, &children);
        let new = Slot::node(target.incoming.slot.edge().unwrap_or(0), ty, copy);
        Ok(self.publish(&[(copy, &image)], target.incoming, new, None).await?.then_some(new))
    }

    /// Updates this compute node's cache: a node that ended at this depth of the key was replaced
    /// by the content of `new`.
    fn note_replaced(&self, (key, depth): (&[u8], usize), target: Upper, new: Slot) {
        if target.holder.is_null() {
            self.shared.remember_root(new);
            return;
        }
        if let Some(prefix) = key.get(..depth) {
            self.shared.cache.remove(prefix, target.node);
        }
        let index = (target.incoming.addr.offset() - target.holder.offset()) as usize / 8 - HEADER_WORDS;
        self.shared.cache.set_slot(&key[..target.arrival - 1], target.holder, index, new);
    }

    /// Returns the successor of a node with these words. An only inner child's header is prepared
    /// if `joins`. `None` if the child has changed: read again.
    async fn successor(&mut self, target: Upper, words: &[u64], joins: bool) -> Result<Option<Successor>> {
        let children = node::children_in_order(&words[HEADER_WORDS..]);
        if target.holder.is_null() {
            // There is always a root.
            return Ok(Some(Successor::Copy));
        }
        let (only, addr) = match children[..] {
            [] => return Ok(Some(Successor::Slot(Slot::EMPTY))),
            [only] => match only.content() {
                Content::Node { addr, .. } => (only, addr),
                _ => return Ok(Some(Successor::Slot(only))),
            },
            _ => return Ok(Some(Successor::Copy)),
        };
        let header = Header::from_word(words[1]);
        let Some(mut path) = header.partial_from(target.arrival) else { return Ok(None) };
        path.push(only.edge().unwrap_or(0) as u8);
        let below = target.arrival + path.len();
        loop {
            let [word] = self.client.read_words(node::header_addr(addr)).await?;
            let child = Header::from_word(word);
            let (Some(ty), Some(partial)) = (child.ty(), child.partial_from(below)) else {
                return Err(IndexError::corrupt(addr, "inner node without the bytes above it"));
            };
            if path.len() + partial.len() > PARTIAL_MAX {
                return Ok(Some(Successor::Copy));
            }
            let slot = Slot::node(only.edge().unwrap_or(0), ty, addr);
            let whole: SmallVec<[u8; PARTIAL_MAX]> = path.iter().chain(&partial).copied().collect();
            if !joins || child.partial_from(target.arrival).is_some_and(|known| known == whole) {
                return Ok(Some(Successor::Slot(slot)));
            }
            let joined = Header::new(target.arrival, ty, &whole);
            let swapped =
                self.client.cas(node::header_addr(addr), child.word(), joined.word()).await?.swapped;
            if swapped {
                return Ok(Some(Successor::Slot(slot)));
            }
            self.client.retried();
        }
    }

    /// Seals every taken slot and the first empty one; afterwards `words` holds their final
    /// content.
    pub(super) async fn seal(&mut self, node: GlobalAddr, words: &mut [u64]) -> Result<()> {
        // Slots are taken in order: the first empty one has none before it.
        let seals = |slots: &[u64], at: usize| {
            let is_taken = |&word: &u64| !Slot::from_word(word).is_empty();
            slots[..at].iter().all(is_taken)
        };
        seal_by(&mut self.client, node::slot_addr(node, 0), &mut words[HEADER_WORDS..], SEAL, seals).await
    }

    /// Returns all words of a node.
    pub(super) async fn read_words(&mut self, node: GlobalAddr) -> Result<Vec<u64>> {
        Ok(self.client.read(node, NODE_WORDS).await?)
    }
}
