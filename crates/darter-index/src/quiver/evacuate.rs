//! Moves what the index reaches to other memory nodes: everything off a node that is leaving the pool, or
//! what is over on those that hold more than their share (`docs/pool.md`, "Shrinking", "Growing").
//!
//! Each object is replaced by the means that exist for it, so that readers and writers need no new
//! rules: a node is copied as by a collapse, a page is rebuilt, and the skip table is built again.
//! Only leaves are new here: a leaf is copied, and one CAS puts the copy in its word.
//!
//! A step handles the nodes on the path to a key, and the pages of the last of them from that key
//! on. It returns the key to continue at. So a key is all that a caller keeps between two steps, and
//! a caller that begins again at the first key finds less to do.
//!
//! Intents are left to their transactions, and to the sweep if those are dead.
//!
//! *Balance.* A node is moved with its pages, and these with their leaves, as far as they fit. Pages of
//! a node that has to stay are moved one by one. Nodes that all keys share stay on the
//! first memory node, so that no key depends on more memory nodes than necessary; nodes without pages
//! and the skip table are too small to matter.

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
use crate::ordered::{Balance, Evacuated};
use crate::radix::{TURNS_MAX, leaf, no_progress};
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_pool::size_class::class_bytes;
use darter_pool::{AllocKind, Client};

/// Most bytes of leaves that are copied at once.
const LEAF_BYTES: u64 = 4 << 20;
/// Turns of one step after which no more objects are moved to balance the pool. A step takes some turns
/// for each node on its path, unless the nodes with room have become full, so that copies are placed
/// elsewhere.
const LEVEL_TURNS_MAX: u32 = 200;

/// What a walk moves.
enum Errand<'a> {
    /// Everything on this memory node, to the others.
    Leave(u8),
    /// What is over on some memory nodes.
    Level(&'a mut Balance),
}

impl Errand<'_> {
    /// Counts an object that is moved, in `moved` too.
    fn has_moved(&mut self, moved: &mut Evacuated, from: u8, to: u8, bytes: u64) {
        moved.objects += 1;
        moved.bytes += bytes;
        if let Self::Level(balance) = self {
            balance.moved(from, to, bytes);
        }
    }

    /// Counts a page that stays.
    fn stays(&mut self, page: PageRef) {
        if let Self::Level(balance) = self {
            balance.stays(page.addr.node(), page.bytes());
        }
    }

    /// The memory node for a leaf of a page, which is neither an intent nor sealed; `None` if it stays.
    /// Leaves with a goal count as moved.
    fn goal_of_leaf(&mut self, page: PageRef, leaf: GlobalAddr, class: u8) -> Option<u8> {
        let (on, home, bytes) = (leaf.node(), page.addr.node(), class_bytes(class));
        match self {
            Self::Leave(leaving) => (on == *leaving).then_some(home),
            Self::Level(balance) => {
                let goal = if on == home { None } else { balance.goal(on, bytes, home) };
                match goal {
                    Some(to) => balance.moved(on, to, bytes),
                    None => balance.stays(on, bytes),
                }
                goal
            }
        }
    }
}

/// A leaf to move.
struct Leaving {
    /// The address of its word.
    at: GlobalAddr,
    word: Word,
    leaf: GlobalAddr,
    class: u8,
    /// The memory node for the copy.
    to: u8,
}

/// A node on the path of a step.
struct OnPath<'a> {
    node: NodeAt,
    words: &'a [u64],
    /// All keys pass it, so that it stays on its memory node in a rebalance.
    is_shared: bool,
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
        if from.is_empty() {
            self.move_table_off(client, leaving).await?;
        }
        self.run_errand(client, Errand::Leave(leaving), from).await
    }

    /// One step: [`crate::OrderedIndex::level`].
    pub(super) async fn level_from(
        &self,
        client: &mut Client<F>,
        balance: &mut Balance,
        from: &[u8],
    ) -> Result<Evacuated> {
        self.run_errand(client, Errand::Level(balance), from).await
    }

    async fn run_errand(
        &self,
        client: &mut Client<F>,
        mut errand: Errand<'_>,
        from: &[u8],
    ) -> Result<Evacuated> {
        let mut moved = Evacuated::default();
        let mut operation = Operation::begin(&self.shared, client, OpKind::Maintain).await?;
        for turn in 0..TURNS_MAX {
            if let Errand::Level(balance) = &mut errand {
                if turn == LEVEL_TURNS_MAX {
                    balance.stop();
                }
                balance.begin_turn();
            }
            match operation.evacuate_path(&mut errand, from, &mut moved).await? {
                Turn::Again => operation.client.retried(),
                Turn::Next(next) => {
                    if let Errand::Level(balance) = errand {
                        balance.end_step();
                    }
                    return Ok(Evacuated { next, ..moved });
                }
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

    /// The memory node for a node of the tree, in a step that begins at edge `first`; `None` if it stays.
    fn goal_of_node(&self, errand: &mut Errand<'_>, at: &OnPath<'_>, first: u8) -> Option<u8> {
        let on = at.node.addr.node();
        match errand {
            Errand::Leave(leaving) => (on == *leaving).then(|| self.home_instead(on, at.words[0])),
            Errand::Level(_) if at.is_shared => None,
            Errand::Level(balance) => {
                // With all of its pages, or not at all.
                let slots = node::slots(at.words);
                let mut pages = node::pages(&slots).map(|(lo, _)| node::edges_of(&slots, lo).hi).peekable();
                let is_due = pages.peek().is_some() && pages.all(|hi| hi >= first);
                if is_due { balance.goal(on, node::NODE_BYTES, on) } else { None }
            }
        }
    }

    /// The memory node for a page of a node; `None` if it stays.
    fn goal_of_page(&self, errand: &mut Errand<'_>, at: &OnPath<'_>, page: PageRef) -> Option<u8> {
        let (on, home) = (page.addr.node(), at.node.addr.node());
        match errand {
            Errand::Leave(leaving) => (on == *leaving).then(|| self.home_instead(home, at.words[0])),
            // It is moved after its node.
            Errand::Level(_) if on == home && !at.is_shared => None,
            Errand::Level(balance) => balance.goal(on, page.bytes(), home),
        }
    }

    /// Looks at the nodes on the path to a key, and moves the first of them that has a goal;
    /// otherwise moves the pages of the last one.
    async fn evacuate_path(
        &mut self,
        errand: &mut Errand<'_>,
        from: &[u8],
        moved: &mut Evacuated,
    ) -> Result<Turn> {
        let (mut node, mut parent, mut words) = self.read_root().await?;
        let (mut key, mut is_shared) = (Vec::new(), true);
        loop {
            if node::is_sealed(&words) {
                self.replace_node(node, parent).await?;
                return Ok(Turn::Again);
            }
            let first = if common(from, &key) >= node.depth { edge(from, node.depth) } else { END };
            let at = OnPath { node, words: &words, is_shared };
            if let Some(to) = self.goal_of_node(errand, &at, first) {
                self.replace_node_on(node, parent, Some(to)).await?;
                note(situations::NODE_MOVED);
                errand.has_moved(moved, node.addr.node(), to, node::NODE_BYTES);
                return Ok(Turn::Again);
            }
            let slots = node::slots(&words);
            let (mut pages, mut below) = (Vec::new(), None);
            for lo in (0..EDGES as u8).filter(|&lo| node::edges_of(&slots, lo).hi >= first) {
                match slots[usize::from(lo)].content() {
                    Content::Page { class, addr, .. } => pages.push((lo, PageRef { addr, class })),
                    Content::Node { skip, addr } => {
                        let child = NodeAt { addr, depth: node.depth + 1 + skip };
                        let Some(own) = self.key_of_child(&key, node, lo, child, skip).await? else {
                            self.remove_empty(child, ParentSlot::of(node, &words, lo)).await?;
                            return Ok(Turn::Again);
                        };
                        if !is_behind(from, &own, child.depth) {
                            below = Some((child, lo, own));
                            break;
                        }
                    }
                    _ => {}
                }
            }
            if self.evacuate_pages(errand, &at, pages, moved).await? {
                return Ok(Turn::Again);
            }
            is_shared = is_shared && node::live(&slots) == 1;
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
        errand: &mut Errand<'_>,
        at: &OnPath<'_>,
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
            let goal = self.goal_of_page(errand, at, page);
            let parent = ParentSlot::of(at.node, at.words, lo);
            match goal {
                Some(to) => {
                    self.rebuild_on(to, parent, page, (shape, page_words)).await?;
                    note(situations::PAGE_MOVED);
                    errand.has_moved(moved, page.addr.node(), to, page.bytes());
                    has_changed = true;
                }
                None if shape.has_seal(&page_words) => {
                    self.rebuild_read(parent, page, (shape, page_words)).await?;
                    has_changed = true;
                }
                None => {
                    errand.stays(page);
                    let leaves = leaves_to_move(errand, page, &shape, &page_words);
                    if !leaves.is_empty() {
                        self.move_leaves(page, leaves, moved).await?;
                        has_changed = true;
                    }
                }
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
            match self.client.alloc(one.to, class_bytes(one.class), AllocKind::Leaf).await {
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

/// The leaves to move, of those that an unsealed page names.
fn leaves_to_move(errand: &mut Errand<'_>, page: PageRef, shape: &Shape, words: &[u64]) -> Vec<Leaving> {
    let delta = FIXED_WORDS..FIXED_WORDS + shape.delta;
    let slots = delta.chain((0..shape.records).map(|rank| shape.record_at(rank)));
    let leaf_at = |at: usize| {
        let word = Word(words[at]);
        match word.state() {
            State::Leaf { addr, class } if !word.is_intent() => {
                let to = errand.goal_of_leaf(page, addr, class)?;
                Some(Leaving { at: page.addr.plus(at as u64 * 8), word, leaf: addr, class, to })
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
