//! Removes all references to memory nodes that have left the pool although they were not empty
//! ([`crate::OrderedIndex::cut_off`]; `docs/pool.md`, "Lost nodes").
//!
//! - A slot that leads to a lost page or node becomes NONE, by one CAS.
//! - A page with lost leaves is replaced by one without their keys, like any page that is rebuilt. The
//!   plan counts the lost pairs too, so that a client that died, or one that helps, cuts the page in the
//!   same places.
//! - A node that is being replaced is copied, whatever remains in it: its replacement by a page or by a
//!   child may need what is lost.
//! - An intent whose transaction's status word is lost is replaced by the value from before it.
//! - The skip table is replaced by one without entries, and the cache is emptied, before anything else
//!   ([`crate::OrderedIndex::drop_hints`]): what is below a lost node stays unsealed, so that a hint to it
//!   would prove its life (L2). What can be read of a subtree that is cut off is sealed before.
//!
//! Each change is one of the usual ones, or one CAS of an unsealed word, so that other clients need no
//! rules for it. A client that dies leaves less to do. What was below a lost node, and can be reached from
//! nowhere else, is freed by a sweep.

use super::Quiver;
use super::lost::{Place, gaps_of, range_of};
use super::nibble::{LAST, first_after};
use super::node::{self, Content, NODE_BYTES, NodeAt, Slot};
use super::operation::Operation;
use super::page::{FIXED_WORDS, PageRef, Shape};
use super::pair::Maker;
use super::parent_slot::ParentSlot;
use super::word::Word;
use crate::Result;
use crate::ordered::{CutOff, LostNodes};
use crate::radix::intent::Intent;
use crate::radix::{TURNS_MAX, leaf, no_progress};
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_pool::size_class::class_bytes;
use darter_pool::{AllocKind, Client};

/// The result of one turn of a step.
enum Turn {
    /// Something was changed: another turn is needed.
    Again,
    /// Nothing is left up to this key.
    Next(Option<Vec<u8>>),
}

impl<F: Fabric> Quiver<F> {
    /// One step: [`crate::OrderedIndex::cut_off`].
    pub(super) async fn cut_off_from(
        &self,
        client: &mut Client<F>,
        lost: LostNodes,
        from: &[u8],
    ) -> Result<CutOff> {
        let mut cut = CutOff::default();
        let mut operation = Operation::begin(&self.shared, client, OpKind::Maintain).await?;
        for _ in 0..TURNS_MAX {
            match operation.cut_path(lost, from, &mut cut).await? {
                Turn::Again => operation.client.retried(),
                Turn::Next(next) => return Ok(CutOff { next, ..cut }),
            }
        }
        Err(no_progress(self.shared.words.root))
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Looks at the nodes on the path to a key, and cuts off what is lost below the first of them that
    /// refers to it.
    async fn cut_path(&mut self, lost: LostNodes, from: &[u8], cut: &mut CutOff) -> Result<Turn> {
        let (mut node, mut parent, mut words) = self.read_root().await?;
        let mut prefix = Vec::new();
        loop {
            if node::is_sealed(&words) {
                self.copy_node(node, parent, words).await?;
                return Ok(Turn::Again);
            }
            let around = self.look_around(lost, from, (node, &words), &prefix).await?;
            let mut has_changed = false;
            for (edges, place) in around.places {
                let slot = ParentSlot::of(node, &words, edges.lo);
                match place {
                    Place::Lost(bytes) => {
                        has_changed = true;
                        if let Content::Node { skip, addr } = slot.at.slot.content()
                            && bytes.is_none()
                        {
                            self.seal_below(NodeAt { addr, depth: node.depth + 1 + skip }, lost).await?;
                        }
                        let (old, none) = (slot.stored(slot.at.slot), slot.stored(Slot::none(edges.hi)));
                        if self.client.cas(slot.at.addr, old, none).await?.swapped {
                            cut.gaps.push(range_of(&prefix, node.depth, edges, None));
                            cut.objects += u64::from(bytes.is_some());
                            cut.bytes += bytes.unwrap_or(0);
                        }
                    }
                    Place::Page(page, shape, words) => {
                        has_changed |= self.cut_page(lost, slot, page, (shape, words), &prefix, cut).await?;
                    }
                }
            }
            if has_changed {
                return Ok(Turn::Again);
            }
            let Some((child, lo, own)) = around.below else {
                return Ok(Turn::Next(first_after(&prefix, node.depth, LAST)));
            };
            parent = ParentSlot::of(node, &words, lo);
            words = self.read_node(child).await?;
            (node, prefix) = (child, own);
        }
    }

    /// Cuts lost leaves off a page; if it has none, reverts intents whose status words are lost. Returns
    /// whether the page was replaced or changed.
    async fn cut_page(
        &mut self,
        lost: LostNodes,
        slot: ParentSlot,
        page: PageRef,
        (shape, words): (Shape, Vec<u64>),
        prefix: &[u8],
        cut: &mut CutOff,
    ) -> Result<bool> {
        let leaves = leaves_of(&shape, &words, slot);
        if leaves.iter().any(|(_, leaf, _)| lost.contains(leaf.node())) {
            let gone = self.rebuild_around(slot, page, (shape, words), lost).await?;
            cut.gaps.extend(gaps_of(prefix, shape.depth, &gone));
            cut.objects += gone.len() as u64;
            cut.bytes += gone.iter().map(|leaf| class_bytes(leaf.class)).sum::<u64>();
            return Ok(true);
        }
        let intents: Vec<_> = leaves.into_iter().filter(|(word, ..)| word.is_intent()).collect();
        if intents.is_empty() {
            return Ok(false);
        }
        let mut batch = self.client.batch();
        let read =
            |&(_, leaf, class): &(Word, GlobalAddr, u8)| (leaf, batch.read(leaf, leaf::class_words(class)));
        let reads: Vec<_> = intents.iter().map(read).collect();
        let done = self.client.submit(batch).await?;
        let mut keys = Vec::new();
        for (addr, read) in reads {
            let words = done.words(read);
            if Intent::of(words)?.is_some_and(|intent| lost.contains(intent.status.node())) {
                keys.push(leaf::parse(addr, words)?.key.to_vec());
            }
        }
        self.client.recycle(done);
        for key in &keys {
            self.settle_key(key, lost).await?;
        }
        let has_changed = !keys.is_empty();
        cut.reverted.extend(keys);
        Ok(has_changed)
    }

    /// Seals a node, and all nodes and pages below it that can be read.
    async fn seal_below(&mut self, node: NodeAt, lost: LostNodes) -> Result<()> {
        let mut nodes = vec![node];
        while let Some(at) = nodes.pop() {
            if at.depth > crate::KEY_BYTES_MAX * 2 {
                return Err(node::too_deep(at.addr));
            }
            let mut words = self.read_node(at).await?;
            self.seal_node(at, &mut words).await?;
            let slots = node::slots(&words);
            for (_, page) in node::pages(&slots).filter(|(_, page)| !lost.contains(page.addr.node())) {
                self.seal_page(page).await?;
            }
            let below = node::children(&slots).filter(|(.., addr)| !lost.contains(addr.node()));
            nodes.extend(below.map(|(_, skip, addr)| NodeAt { addr, depth: at.depth + 1 + skip }));
        }
        Ok(())
    }

    /// Seals a node, and replaces it by a copy.
    async fn copy_node(&mut self, node: NodeAt, parent: ParentSlot, mut words: Vec<u64>) -> Result<()> {
        let mut copy = Maker::new(self.shared, self.client.epoch());
        let (home, born) = (self.home_instead(node.addr.node(), words[0]), copy.born);
        let image =
            |addr, words: &[u64]| node::image(addr, words[0], born, node.depth, &node::slots(words), &[]);
        let made = copy.node(&mut self.client, home, |addr| image(addr, &words)).await;
        let addr = self.made(&mut copy, made)?;
        self.seal_node(node, &mut words).await?;
        copy.rewrite(addr, &image(addr, &words));
        let expected = parent.stored(parent.at.slot);
        let skip = match parent.at.slot.content() {
            Content::Node { skip, .. } => skip,
            _ => 0,
        };
        let desired = parent.stored(Slot::node(skip, addr));
        if copy.link(&mut self.client, parent.at.addr, expected, desired).await? == expected {
            self.retire(node.addr, NODE_BYTES, AllocKind::Inner);
        }
        Ok(())
    }
}

/// The words of a page that name leaves, under the edges that a slot is responsible for, with these.
fn leaves_of(shape: &Shape, words: &[u64], slot: ParentSlot) -> Vec<(Word, GlobalAddr, u8)> {
    let edges = shape.edges.up_to(slot.edges.hi);
    let delta = FIXED_WORDS..FIXED_WORDS + shape.delta;
    let leaf_at = |at: usize| {
        let word = Word(words[at]);
        let (addr, class, _) = word.leaf_object()?;
        edges.contains(shape.edge_of(word, None)).then_some((word, addr, class))
    };
    delta.chain((0..shape.records).map(|rank| shape.record_at(rank))).filter_map(leaf_at).collect()
}
