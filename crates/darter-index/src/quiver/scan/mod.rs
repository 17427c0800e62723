//! Range scan in both directions.
//!
//! The walk goes from page to page in key order by a *bound* ([`Cursor`]): the least key not
//! visited yet, or the least of those visited when it descends. It reads as many pages as the pairs
//! still wanted are likely to need, in one round trip; their leaves follow in the next. Pages that
//! the process remembers are read without their nodes ([`remembered`]). Otherwise the walk reads
//! the node that the bound leads to, and then some of its pages.

mod cursor;
mod loaded;
mod remembered;
mod rows;
#[cfg(test)]
mod torn;

use self::cursor::Cursor;
use self::loaded::Loaded;
use self::remembered::PAGES_MAX;
use self::rows::{Part, Rows, Source};
use super::Quiver;
use super::cache::KnownNode;
use super::descent::NodeAt;
use super::hint::{NodeHint, PageHint};
use super::nibble::{EDGES, END, EdgeRange, LAST, NibbleKey, common, edge, first_below, nibbles};
use super::node::{self, Content, Slot};
use super::operation::Operation;
use super::page::{self, IDENTITY_AT, PageRef};
use super::situations;
use crate::checker::note;
use crate::radix::sink::{Sink, is_void};
use crate::radix::{TURNS_MAX, no_progress};
use crate::{IndexError, Result, ScanRange, Visit};
use darter_fabric::{Fabric, OpKind, turns};
use darter_pool::Client;
use std::pin::pin;

/// The cost of a leaf that a scan loads, in leaves that gets load: a scan loads all leaves of a page,
/// so a page with a quarter of its pairs in leaves is rebuilt at once.
const LEAF_COST: i32 = 4;

/// The result of reading a node: the pages to read next, with the edges that each is responsible
/// for, in the order of the walk.
struct PageRun {
    identity: u64,
    depth: usize,
    /// The node as the process remembers it.
    known: Option<KnownNode>,
    /// A key with the node's prefix.
    key: Vec<u8>,
    pages: Vec<(PageRef, EdgeRange)>,
    /// All edges that the run covers, including those without pages.
    edges: EdgeRange,
}

/// Where the read of a node leads.
enum Look {
    Pages(PageRun),
    /// To another position; `None` at the end.
    Continue(Option<Cursor>),
}

impl<F: Fabric> Quiver<F> {
    /// Hands the first `limit` pairs of a range, in its direction, to `visit`. Returns how many
    /// there were.
    ///
    /// # Errors
    /// Those of the fabric, and [`IndexError::Corrupt`]; pairs visited before the error stay valid.
    pub(super) async fn visit_pairs<'v>(
        &self,
        client: &mut Client<F>,
        range: &ScanRange,
        limit: usize,
        visit: &'v mut Visit<'v>,
    ) -> Result<usize> {
        let mut operation = Operation::begin(&self.shared, client, OpKind::Scan).await?;
        self.shared.cache.enter(operation.client.epoch());
        let mut sink = Sink::new(visit, limit, range.reverse);
        let mut cursor = if is_void(range) { None } else { Cursor::of(range) };
        let (mut turns, mut is_whole) = (0, false);
        let mut loaded = Loaded::default();
        while let Some(at) = cursor.take().filter(|at| sink.left > 0 && at.is_within(range)) {
            if turns > TURNS_MAX {
                return Err(no_progress(self.shared.words.root));
            }
            let memory = operation.memory();
            let seen = memory.map(|memory| loaded.visit((&self.shared, memory), range, &at, &mut sink));
            if let Some(Ok(next)) = seen {
                (cursor, turns) = (next, 0);
                turns::worked(loaded.bytes()).await;
                let leaves = std::mem::take(&mut loaded.moved_out) * LEAF_COST;
                pin!(operation.has_read_leaves(&at.key, leaves)).await?;
                continue;
            }
            let ahead = operation.remembered(range, &at, sink.left, is_whole);
            if !ahead.is_empty() {
                let visited = pin!(operation.visit_remembered(range, ahead, &mut sink)).await?;
                turns = if visited.is_ahead { 0 } else { turns + 1 };
                (cursor, is_whole) = (visited.next, visited.is_whole);
                continue;
            }
            let look = Box::pin(operation.look_at(&at, range.reverse, ahead.node)).await?;
            cursor = match look {
                Look::Continue(next) => {
                    turns += 1;
                    next
                }
                Look::Pages(stretch) => {
                    turns = 0;
                    Box::pin(operation.visit_pages(range, stretch, &mut sink)).await?
                }
            };
        }
        Ok(limit - sink.left)
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Descends to the node that a position leads to, from a remembered node on the way.
    async fn look_at(
        &mut self,
        cursor: &Cursor,
        reverse: bool,
        remembered: Option<NodeHint>,
    ) -> Result<Look> {
        let mut path = NibbleKey::new(self.shared.keys, &cursor.key);
        let usable = remembered.filter(|hint| !cursor.falls_short_of(hint.depth));
        let mut hint = usable.or_else(|| self.shared.root(self.client.epoch()));
        let mut node = match hint {
            Some(hint) => hint.into(),
            None => self.read_root().await?.0,
        };
        let mut above: Option<(usize, u8)> = None;
        let (mut known, mut gap): (Option<KnownNode>, _) = (None, None);
        loop {
            if cursor.falls_short_of(node.depth) {
                return Ok(Look::Continue(Some(Cursor::extended(cursor.key.clone()))));
            }
            let words = self.client.read(node.addr, node::NODE_WORDS).await?;
            let is_own = node.depth <= nibbles(&cursor.key) && words[0] == path.identity(node.depth);
            let remembered = hint.take();
            if let Some(stale) = remembered
                && !(is_own && node::proves(words[node::GUARD_AT], stale.born))
            {
                self.shared.cache.forget_node(&mut path, stale);
                (node, ..) = self.read_root().await?;
                continue;
            }
            node::verify(node, &words)?;
            if !is_own {
                let Some((depth, edge)) = above else {
                    return Err(IndexError::corrupt(node.addr, "root node's identity does not match"));
                };
                return self.around(cursor, reverse, node, (depth, edge)).await;
            }
            let slots = node::slots(&words);
            if let Some(edge) = node::gap(&slots) {
                note(if reverse { situations::TORN_DESCENDING } else { situations::TORN_ASCENDING });
                if gap.replace((node, edge)) == Some((node, edge)) {
                    return Err(node::without_slot(node.addr));
                }
                hint = remembered;
                continue;
            }
            let way = known.zip(above.map(|(_, edge)| edge));
            known = self.shared.learn(remembered, way, node, &words, self.client.epoch());
            let own = edge(&cursor.key, node.depth);
            let (lo, slot) = node::responsible(node.addr, &slots, own)?;
            if let Content::Node { skip, addr } = slot.content() {
                above = Some((node.depth, own));
                node = NodeAt { addr, depth: node.depth + 1 + skip };
                if node.depth > crate::KEY_BYTES_MAX * 2 {
                    return Err(node::too_deep(node.addr));
                }
                continue;
            }
            let stretch = stretch(&cursor.key, (node, words[0]), &slots, lo, reverse)?;
            return Ok(Look::Pages(PageRun { known, ..stretch }));
        }
    }

    /// The position is outside the subtree of `child`: goes into the subtree, or past it.
    async fn around(
        &mut self,
        cursor: &Cursor,
        reverse: bool,
        child: NodeAt,
        (depth, edge): (usize, u8),
    ) -> Result<Look> {
        let past = || Cursor::past(&cursor.key, depth, EdgeRange::one(edge), reverse);
        let Some(other) = self.key_below(child).await? else { return Ok(Look::Continue(past())) };
        if nibbles(&other) < child.depth || common(&other, &cursor.key) >= child.depth {
            // Identities and the keys below nodes never change.
            return Err(IndexError::corrupt(child.addr, "node whose keys do not have its prefix"));
        }
        let is_above = other > cursor.key;
        Ok(Look::Continue(match (is_above, reverse) {
            (true, false) => Some(Cursor { key: first_below(&other, child.depth, END), is_open: false }),
            (false, true) => Cursor::end_of(&other, child.depth),
            _ => past(),
        }))
    }

    /// Reads pages of a run and hands on their pairs. Returns the position where the walk
    /// continues.
    async fn visit_pages(
        &mut self,
        range: &ScanRange,
        stretch: PageRun,
        sink: &mut Sink<'_>,
    ) -> Result<Option<Cursor>> {
        let wanted = (sink.left.saturating_mul(3) / (2 * self.shared.geometry.records) + 1).min(PAGES_MAX);
        let count = stretch.pages.len().min(wanted);
        let EdgeRange { mut lo, mut hi } = stretch.edges;
        if let Some((_, next)) = stretch.pages.get(count) {
            if range.reverse {
                lo = next.hi + 1;
            } else {
                hi = next.lo - 1;
            }
        }
        let pages = &stretch.pages[..count];
        let mut batch = self.client.batch();
        let reads: Vec<_> = pages.iter().map(|(page, ..)| batch.read(page.addr, page.words())).collect();
        let done = if pages.is_empty() { batch } else { self.client.submit(batch).await? };
        let words = reads.into_iter().map(|read| done.words(read));
        let rows = self.take_pages(&stretch, pages.iter().zip(words))?;
        let moved_out = rows.hand_on((self.shared, &mut self.client), range, sink).await?;
        self.client.recycle(done);
        if let Some(key) = moved_out {
            self.has_read_a_leaf(&key).await?;
        }
        Ok(Cursor::past(&stretch.key, stretch.depth, EdgeRange { lo, hi }, range.reverse))
    }

    /// Takes pages that were read, each with the edges that its slot is responsible for, and remembers
    /// them.
    fn take_pages<'w>(
        &self,
        stretch: &'w PageRun,
        pages: impl Iterator<Item = (&'w (PageRef, EdgeRange), &'w [u64])>,
    ) -> Result<Rows<'w>> {
        let mut rows = Rows::default();
        for (&(page, edges), words) in pages {
            let shape = page.verified(words)?;
            if (words[IDENTITY_AT], shape.depth) != (stretch.identity, stretch.depth) {
                return Err(IndexError::corrupt(page.addr, "page's prefix differs from its node's"));
            }
            if shape.edges.lo != edges.lo || shape.edges.hi < edges.hi {
                return Err(IndexError::corrupt(page.addr, "page's edges differ from its slot's"));
            }
            let is_whole = shape.edges == edges;
            let known = stretch.known.filter(|_| is_whole && page::proves(words[0], shape.born));
            let part = Part::whole(&shape, words);
            let identity = known.map(|(identity, _)| identity);
            let from = Source { page, shape, part, identity, path: &stretch.key };
            rows.take(from, edges, &[], self.shared.keys)?;
            if let Some(known) = known {
                let hint = PageHint::new(page, shape, shape.map_in(words)).with_delta(shape.delta_in(words));
                self.shared.cache.learn_page(known, &hint, self.client.epoch());
            }
        }
        Ok(rows)
    }
}

/// The pages from the slot `from` on in the walk's direction, up to the next child node. The slots leave
/// no gap.
///
/// # Errors
/// [`IndexError::Corrupt`] if a slot is of no known kind.
fn stretch(
    key: &[u8],
    (node, identity): (NodeAt, u64),
    slots: &[Slot; EDGES],
    from: u8,
    reverse: bool,
) -> Result<PageRun> {
    let (mut pages, mut edges) = (Vec::new(), EdgeRange::one(from));
    let (mut up, mut down) = (from..=LAST, (0..=from).rev());
    let order: &mut dyn Iterator<Item = u8> = if reverse { &mut down } else { &mut up };
    for lo in order {
        let hi = node::last_edge(slots, lo);
        match slots[usize::from(lo)].content() {
            Content::Empty => continue,
            Content::Node { .. } => break,
            Content::Page { class, addr, .. } => pages.push((PageRef { addr, class }, EdgeRange { lo, hi })),
            Content::None { .. } => {}
            Content::Invalid => return Err(IndexError::corrupt(node.addr, "slot of unknown kind")),
        }
        edges = EdgeRange { lo: edges.lo.min(lo), hi: edges.hi.max(hi) };
    }
    Ok(PageRun { identity, depth: node.depth, known: None, key: key.to_vec(), pages, edges })
}
