//! Moves what the index reaches off one memory node, which is leaving the pool (`docs/pool.md`,
//! "Shrinking").
//!
//! Each object is replaced by the means that exist for it, so that readers and writers need no new
//! rules: a node is copied as by a collapse, a page is rebuilt, and the skip table is built again.
//! Only leaves are new here: a leaf is copied, and one CAS puts the copy in its word. New objects are
//! placed on the nodes that stay.
//!
//! A step handles the nodes on the path to a key, and the pages of the last of them from that key
//! on. It returns the key to continue at. So a key is all that a caller keeps between two steps, and
//! a caller that begins again at the first key finds less to do.
//!
//! Intents are left to their transactions, and to the sweep if those are dead.

use super::Quiver;
use super::nibble::{EDGES, END, LAST, common, edge, first_after, first_below, nibble};
use super::node::{self, Content, NodeAt};
use super::operation::Operation;
use super::page::{FIXED_WORDS, PageRef, Shape};
use super::parent_slot::ParentSlot;
use super::situations;
use super::word::{State, Word};
use crate::Result;
use crate::checker::note;
use crate::ordered::Evacuated;
use crate::radix::{TURNS_MAX, leaf, no_progress};
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_pool::size_class::class_bytes;
use darter_pool::{AllocKind, Client};

/// Most bytes of leaves that are copied at once.
const LEAF_BYTES: u64 = 4 << 20;

/// A leaf to move.
struct Leaving {
    /// The address of its word.
    at: GlobalAddr,
    word: Word,
    leaf: GlobalAddr,
    class: u8,
}

/// The result of one turn of a step.
enum Turn {
    /// Something was replaced: another turn is needed.
    Again,
    /// Nothing is left up to this key.
    Next(Option<Vec<u8>>),
}

impl<F: Fabric> Quiver<F> {
    /// One step: [`crate::OrderedIndex::evacuate`].
    pub(super) async fn evacuate_from(
        &self,
        client: &mut Client<F>,
        leaving: u8,
        from: &[u8],
    ) -> Result<Evacuated> {
        let mut moved = Evacuated::default();
        if from.is_empty() {
            self.move_table_off(client, leaving).await?;
        }
        let mut operation = Operation::begin(&self.shared, client, OpKind::Maintain).await?;
        for _ in 0..TURNS_MAX {
            match operation.evacuate_path(leaving, from, &mut moved).await? {
                Turn::Again => operation.client.retried(),
                Turn::Next(next) => return Ok(Evacuated { next, ..moved }),
            }
        }
        Err(no_progress(self.shared.words.root))
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// The memory node for an object that replaces one on `node`: the same one, unless that is
    /// leaving. Objects of the prefix with this identity then go to one of the others.
    pub(super) fn home_instead(&self, node: u8, identity: u64) -> u8 {
        if self.client.pool().accepts(node) {
            return node;
        }
        let homes = self.client.pool().homes();
        homes[(identity >> 32) as usize % homes.len()]
    }

    /// Looks at the nodes on the path to a key, and replaces the first of them that is on the
    /// leaving node; otherwise moves the pages of the last one.
    async fn evacuate_path(&mut self, leaving: u8, from: &[u8], moved: &mut Evacuated) -> Result<Turn> {
        let (mut node, mut parent, mut words) = self.read_root().await?;
        let mut key = Vec::new();
        loop {
            if node::is_sealed(&words) {
                self.replace_node(node, parent).await?;
                return Ok(Turn::Again);
            }
            if node.addr.node() == leaving {
                self.replace_node(node, parent).await?;
                note(situations::NODE_MOVED);
                moved.objects += 1;
                moved.bytes += node::NODE_BYTES;
                return Ok(Turn::Again);
            }
            let first = if common(from, &key) >= node.depth { edge(from, node.depth) } else { END };
            let slots = node::slots(&words);
            let (mut pages, mut below) = (Vec::new(), None);
            for lo in (0..EDGES as u8).filter(|&lo| node::edges_of(&slots, lo).hi >= first) {
                match slots[usize::from(lo)].content() {
                    Content::Page { class, addr, .. } => pages.push((lo, PageRef { addr, class })),
                    Content::Node { skip, addr } => {
                        let at = NodeAt { addr, depth: node.depth + 1 + skip };
                        let Some(own) = self.key_of_child(&key, node, lo, at, skip).await? else {
                            self.remove_empty(at, ParentSlot::of(node, &words, lo)).await?;
                            return Ok(Turn::Again);
                        };
                        if !is_behind(from, &own, at.depth) {
                            below = Some((at, lo, own));
                            break;
                        }
                    }
                    _ => {}
                }
            }
            if self.evacuate_pages(leaving, (node, &words), pages, moved).await? {
                return Ok(Turn::Again);
            }
            let Some((child, lo, own)) = below else {
                return Ok(Turn::Next(first_after(&key, node.depth, LAST)));
            };
            parent = ParentSlot::of(node, &words, lo);
            words = self.read_node(child).await?;
            (node, key) = (child, own);
        }
    }

    /// The beginning of the keys below a child node, as long as its prefix.
    async fn key_of_child(
        &mut self,
        key: &[u8],
        node: NodeAt,
        lo: u8,
        child: NodeAt,
        skip: usize,
    ) -> Result<Option<Vec<u8>>> {
        if skip == 0 {
            return Ok(Some(first_below(key, node.depth, lo)));
        }
        let below = self.key_below(child).await?;
        Ok(below.map(|below| below[..child.depth.div_ceil(2).min(below.len())].to_vec()))
    }

    /// Moves pages of a node, and leaves of such pages. Returns whether any was replaced.
    async fn evacuate_pages(
        &mut self,
        leaving: u8,
        (node, words): (NodeAt, &[u64]),
        pages: Vec<(u8, PageRef)>,
        moved: &mut Evacuated,
    ) -> Result<bool> {
        if pages.is_empty() {
            return Ok(false);
        }
        let mut batch = self.client.batch();
        let reads: Vec<_> = pages.iter().map(|(_, page)| batch.read(page.addr, page.words())).collect();
        let done = self.client.submit(batch).await?;
        let mut read = Vec::with_capacity(pages.len());
        for ((lo, page), words) in pages.into_iter().zip(reads) {
            read.push((lo, page, page.parse(done.words(words).to_vec())?));
        }
        self.client.recycle(done);
        let mut has_changed = false;
        for (lo, page, (shape, page_words)) in read {
            let is_leaving = page.addr.node() == leaving;
            if is_leaving || shape.has_seal(&page_words) {
                self.rebuild_read(ParentSlot::of(node, words, lo), page, (shape, page_words)).await?;
                if is_leaving {
                    note(situations::PAGE_MOVED);
                    moved.objects += 1;
                    moved.bytes += page.bytes();
                }
                has_changed = true;
                continue;
            }
            let leaves = leaves_on(leaving, page, &shape, &page_words);
            if !leaves.is_empty() {
                self.move_leaves(page, leaves, moved).await?;
                has_changed = true;
            }
        }
        Ok(has_changed)
    }

    /// Moves leaves of a page. Leaves of words that have changed are left out.
    async fn move_leaves(
        &mut self,
        page: PageRef,
        leaves: Vec<Leaving>,
        moved: &mut Evacuated,
    ) -> Result<()> {
        let mut rest = &leaves[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|leaf| {
                bytes += class_bytes(leaf.class);
                bytes <= LEAF_BYTES
            });
            let (now, later) = rest.split_at(fits.count().max(1));
            self.move_some_leaves(page, now, moved).await?;
            rest = later;
        }
        Ok(())
    }

    async fn move_some_leaves(
        &mut self,
        page: PageRef,
        leaves: &[Leaving],
        moved: &mut Evacuated,
    ) -> Result<()> {
        let mut batch = self.client.batch();
        let reads: Vec<_> =
            leaves.iter().map(|one| batch.read(one.leaf, leaf::class_words(one.class))).collect();
        let done = self.client.submit(batch).await?;
        let mut images = Vec::with_capacity(leaves.len());
        for (one, read) in leaves.iter().zip(reads) {
            let words = done.words(read);
            let pair = leaf::parse(one.leaf, words)?;
            let mut image = leaf::image_of(words, pair.key.len(), pair.value.len()).to_vec();
            // The copy is not a put: a put that finds it must not count as overwritten.
            leaf::mark_replacement(&mut image, false);
            images.push(image);
        }
        self.client.recycle(done);
        let mut copies: Vec<(GlobalAddr, u8)> = Vec::with_capacity(leaves.len());
        for one in leaves {
            match self.client.alloc(page.addr.node(), class_bytes(one.class), AllocKind::Leaf).await {
                Ok(copy) => copies.push((copy, one.class)),
                Err(error) => {
                    for copy in copies {
                        self.give_leaf_back(copy);
                    }
                    return Err(error.into());
                }
            }
        }
        let mut batch = self.client.batch();
        for (image, (copy, _)) in images.iter().zip(&copies) {
            batch.write(*copy, image);
        }
        // A word must not name a leaf before the leaf is written, which another node may do later.
        if copies.iter().any(|(copy, _)| copy.node() != page.addr.node()) {
            self.client.send(&mut batch).await?;
        }
        let swaps: Vec<_> = leaves
            .iter()
            .zip(&copies)
            .map(|(one, (copy, _))| batch.cas(one.at, one.word.0, one.word.with_leaf_at(*copy).0))
            .collect();
        let done = self.client.submit(batch).await?;
        let are_swapped: Vec<bool> = swaps.into_iter().map(|swap| done.swapped(swap)).collect();
        self.client.recycle(done);
        for ((one, copy), is_swapped) in leaves.iter().zip(copies).zip(are_swapped) {
            if is_swapped {
                moved.objects += 1;
                moved.bytes += class_bytes(one.class);
                self.retire_leaf((one.leaf, one.class));
            } else {
                self.give_leaf_back(copy);
            }
        }
        Ok(())
    }

    fn give_leaf_back(&mut self, (leaf, class): (GlobalAddr, u8)) {
        self.client.free_unpublished(leaf, class_bytes(class), AllocKind::Leaf);
    }
}

/// The leaves on a memory node that an unsealed page names.
fn leaves_on(node: u8, page: PageRef, shape: &Shape, words: &[u64]) -> Vec<Leaving> {
    let delta = FIXED_WORDS..FIXED_WORDS + shape.delta;
    let slots = delta.chain((0..shape.records).map(|rank| shape.record_at(rank)));
    let leaf_at = |at: usize| {
        let word = Word(words[at]);
        match word.state() {
            State::Leaf { addr, class } if addr.node() == node && !word.is_intent() => {
                Some(Leaving { at: page.addr.plus(at as u64 * 8), word, leaf: addr, class })
            }
            _ => None,
        }
    };
    slots.filter_map(leaf_at).collect()
}

/// Whether all keys that begin with the first `depth` nibbles of `key` are before a key.
pub(super) fn is_behind(from: &[u8], key: &[u8], depth: usize) -> bool {
    let shared = common(from, key);
    shared < depth && nibble(from, shared) > nibble(key, shared)
}
