//! A key that leaves a compressed path: a node is inserted where the key leaves, and another key is
//! searched for to find that place.

use super::descent::NodeAt;
use super::nibble::{EDGES, END, EdgeRange, LAST, common, edge, identity_of, nibbles};
use super::node::{self, Content, Slot};
use super::operation::Operation;
use super::page::{FIXED_WORDS, PageRef, standing_whole};
use super::pair::{Maker, Pair, Place};
use super::parent_slot::ParentSlot;
use super::situations;
use super::word::Word;
use super::write::Attempt;
use crate::checker::note;
use crate::ordered::LostNodes;
use crate::radix::leaf;
use crate::{IndexError, PutOutcome, Result};
use darter_fabric::{Fabric, GlobalAddr};
use std::collections::HashSet;

impl<F: Fabric> Operation<'_, F> {
    /// Puts a pair whose key leaves the path before `child`, which `parent` points to. The attempt
    /// fails if another client was faster.
    pub(super) async fn part_path(
        &mut self,
        pair: Pair,
        parent: ParentSlot,
        child: NodeAt,
    ) -> Result<Attempt> {
        let Some(other) = self.key_below(child).await? else {
            self.remove_empty(child, parent).await?;
            return Ok(Attempt::Again);
        };
        let depth = common(&pair.key, &other);
        if depth <= parent.node.depth || depth >= child.depth {
            // Identities and the keys below nodes never change.
            return Err(IndexError::corrupt(child.addr, "node whose keys do not have its prefix"));
        }
        let mut maker = Maker::new(self.shared, self.client.epoch());
        let made = self.fork(&mut maker, pair, (depth, &other), child).await;
        let addr = self.made(&mut maker, made)?;
        let slot = Slot::node(depth - parent.node.depth - 1, addr);
        let expected = parent.stored(parent.at.slot);
        let found = maker.link(&mut self.client, parent.at.addr, expected, parent.stored(slot)).await?;
        if found != expected {
            return Ok(Attempt::Again);
        }
        note(situations::DIVERGED);
        Ok(Attempt::Done(PutOutcome::Inserted))
    }

    /// Makes a node with the child and a page of one pair.
    async fn fork(
        &mut self,
        maker: &mut Maker,
        pair: Pair,
        (depth, other): (usize, &[u8]),
        child: NodeAt,
    ) -> Result<GlobalAddr> {
        let identity = identity_of(self.shared.keys, other, depth);
        // Searches for keys below the child then depend on no other memory node.
        let home = child.addr.node();
        let (theirs, ours) = (edge(other, depth), edge(&pair.key, depth));
        let mut slots = [Slot::EMPTY; EDGES];
        slots[usize::from(theirs)] = Slot::node(child.depth - depth - 1, child.addr);
        let mut pages = Vec::new();
        let sides = [(END, theirs.checked_sub(1)), (theirs + 1, Some(LAST))];
        for (lo, hi) in sides {
            let Some(hi) = hi.filter(|&hi| hi >= lo) else { continue };
            let edges = EdgeRange { lo, hi };
            slots[usize::from(lo)] = if edges.contains(ours) {
                let place = Place { identity, depth, edges, home };
                let page = maker.page(&mut self.client, place, std::slice::from_ref(&pair)).await?;
                pages.push(page.clone());
                Slot::of(&page)
            } else {
                Slot::none(hi)
            };
        }
        let born = maker.born;
        let image = |addr| node::image(addr, identity, born, depth, &slots, &pages);
        maker.node(&mut self.client, home, image).await
    }

    /// A key that is or was below a node that was found by a slot.
    pub(super) async fn key_below(&mut self, node: NodeAt) -> Result<Option<Vec<u8>>> {
        Ok(self.key_below_around(node, LostNodes::NONE).await?.0)
    }

    /// As [`Self::key_below`], but passes over what is on lost memory nodes. Also returns whether there
    /// was any before the key.
    pub(super) async fn key_below_around(
        &mut self,
        node: NodeAt,
        lost: LostNodes,
    ) -> Result<(Option<Vec<u8>>, bool)> {
        let mut nodes = vec![node];
        let (mut seen, mut identity, mut has_lost) = (HashSet::new(), None, false);
        while let Some(at) = nodes.pop() {
            // Damage can lead in circles.
            if !seen.insert(at.addr) || at.depth > crate::KEY_BYTES_MAX * 2 {
                return Err(node::too_deep(at.addr));
            }
            let words = self.read_node(at).await?;
            let identity = *identity.get_or_insert(words[0]);
            let slots = node::slots(&words);
            for (slot, edge) in slots.iter().zip(0..) {
                let Content::Page { class, addr, .. } = slot.content() else { continue };
                if lost.contains(addr.node()) {
                    has_lost = true;
                    continue;
                }
                let edges = node::edges_of(&slots, edge);
                let key = self.key_in(PageRef { addr, class }, edges, lost, &mut has_lost).await?;
                if let Some(key) = key {
                    let is_below = nibbles(&key) >= node.depth
                        && identity_of(self.shared.keys, &key, node.depth) == identity;
                    if !is_below {
                        return Err(IndexError::corrupt(addr, "page has a key with another prefix"));
                    }
                    return Ok((Some(key), has_lost));
                }
            }
            for (_, skip, addr) in node::children(&slots) {
                if lost.contains(addr.node()) {
                    has_lost = true;
                } else {
                    nodes.push(NodeAt { addr, depth: at.depth + 1 + skip });
                }
            }
        }
        Ok((None, has_lost))
    }

    /// Any key of a page under the edges that the page is still responsible for, or a key stored in
    /// one of its records. Passes over leaves on lost memory nodes, and notes that there are some.
    async fn key_in(
        &mut self,
        page: PageRef,
        edges: EdgeRange,
        lost: LostNodes,
        has_lost: &mut bool,
    ) -> Result<Option<Vec<u8>>> {
        let (shape, words) = self.read_page(page).await?;
        let records = (0..shape.records).map(|rank| shape.record_at(rank));
        for at in records.clone() {
            if let Some(leaf) = standing_whole(page.addr, &words[at..at + shape.record_words])? {
                return Ok(Some(leaf.key.to_vec()));
            }
        }
        for at in records.chain(FIXED_WORDS..FIXED_WORDS + shape.delta) {
            if let Some((addr, class, _)) = Word(words[at]).leaf_object()
                && edges.contains(shape.edge_of(Word(words[at]), None))
            {
                if lost.contains(addr.node()) {
                    *has_lost = true;
                    continue;
                }
                let words = self.client.read(addr, leaf::class_words(class)).await?;
                return Ok(Some(leaf::parse(addr, &words)?.key.to_vec()));
            }
        }
        Ok(None)
    }
}
