//! Range scan in both directions.
//!
//! The walk goes from page to page in key order by a *bound*: the least key not visited yet, or the
//! least of those visited when it descends. It reads as many pages as the pairs still wanted are
//! likely to need, in one round trip; their leaves follow in the next. Pages that the process
//! remembers are read without a look at their nodes: an unsealed guard of the remembered life shows
//! that the page's range was still its own (L2). Else a look finds the node that the bound leads to,
//! and some of its pages.

use super::Quiver;
use super::cache::KnownNode;
use super::descent::NodeAt;
use super::hint::{NodeHint, PageHint};
use super::nibble::{
    EDGES, END, EdgeRange, LAST, NibbleKey, common, edge, first_after, first_below, nibbles,
};
use super::node::{self, Content, Slot};
use super::operation::Operation;
use super::page::{self, FIXED_WORDS, PageRef, Shape, standing};
use super::situations;
use super::word::{State, Word};
use crate::checker::note;
use crate::radix::sink::{Sink, is_void};
use crate::radix::{TURNS_MAX, leaf, no_progress};
use crate::{IndexError, KeyValue, Result, ScanRange};
use darter_fabric::{Fabric, GlobalAddr, OpKind, mutant};
use darter_pool::Client;
use std::ops::Bound;

/// Most pages that one round trip reads.
const PAGES_MAX: usize = 16;
/// Nibbles that a bound from above is extended by at a time.
const EXTENSION: usize = 16;

/// A position in key order that the walk goes on from: the pairs from `key` on, or, descending, the
/// pairs up to `key` followed by ones without end if `is_open`.
#[derive(Clone, Debug)]
struct Cursor {
    key: Vec<u8>,
    is_open: bool,
}

impl Cursor {
    /// That of a range.
    fn of(range: &ScanRange) -> Option<Self> {
        if !range.reverse {
            let key = match &range.from {
                Bound::Included(key) | Bound::Excluded(key) => key.clone(),
                Bound::Unbounded => Vec::new(),
            };
            return Some(Self { key, is_open: false });
        }
        match &range.to {
            Bound::Included(key) => Some(Self { key: key.clone(), is_open: false }),
            Bound::Excluded(key) => Self::below(key),
            Bound::Unbounded => Some(Self::extended(Vec::new())),
        }
    }

    /// The position of the greatest key below a bound.
    fn below(bound: &[u8]) -> Option<Self> {
        let (last, head) = bound.split_last()?;
        let mut key = head.to_vec();
        if *last == 0 {
            return Some(Self { key, is_open: false });
        }
        key.push(last - 1);
        Some(Self::extended(key))
    }

    /// The position behind some edges of the node whose prefix is the first `depth` nibbles of `key`;
    /// none at the end.
    fn past(key: &[u8], depth: usize, EdgeRange { lo, hi }: EdgeRange, reverse: bool) -> Option<Self> {
        match (reverse, lo) {
            (false, _) => first_after(key, depth, hi).map(|key| Self { key, is_open: false }),
            (true, ..=LAST) => Self::below(&first_below(key, depth, lo)),
            (true, _) => Self::end_of(key, depth),
        }
    }

    /// The position of the greatest key below the node whose prefix is the first `depth` nibbles of
    /// `key`.
    fn end_of(key: &[u8], depth: usize) -> Option<Self> {
        match first_after(key, depth, LAST) {
            Some(bound) => Self::below(&bound),
            None => Some(Self::extended(Vec::new())),
        }
    }

    fn extended(mut key: Vec<u8>) -> Self {
        key.resize(key.len() + EXTENSION, 0xff);
        Self { key, is_open: true }
    }

    /// Whether it must say more before it leads beyond a depth.
    fn falls_short_of(&self, depth: usize) -> bool {
        self.is_open && depth + 2 > nibbles(&self.key)
    }
}

/// What a look at a node has found: the pages to be read next, with the edges that each is
/// responsible for, in the order of the walk.
struct Stretch {
    identity: u64,
    depth: usize,
    /// The node as the process remembers it.
    known: Option<KnownNode>,
    /// A key with the node's prefix.
    key: Vec<u8>,
    pages: Vec<(PageRef, EdgeRange)>,
    /// The edges from the first looked at to the last.
    edges: EdgeRange,
}

/// A remembered page that the walk goes through.
struct Step {
    hint: PageHint,
    /// What its node is remembered under.
    identity: u64,
    /// The position that led to it.
    at: Cursor,
}

/// What the process remembers from a position on.
struct Ahead {
    /// The pages next to each other.
    steps: Vec<Step>,
    /// The position behind them.
    next: Option<Cursor>,
    /// The node remembered for that position, if there is no page.
    node: Option<NodeHint>,
}

/// Where a look leads.
enum Look {
    Pages(Stretch),
    /// To another position; none at the end.
    On(Option<Cursor>),
}

impl<F: Fabric> Quiver<F> {
    /// Hands the first `limit` pairs of a range, in its direction, to `visit`. Returns how many
    /// there were.
    ///
    /// # Errors
    /// Those of the fabric, and [`IndexError::Corrupt`]; pairs visited before stay valid.
    pub async fn scan_with(
        &self,
        client: &mut Client<F>,
        range: &ScanRange,
        limit: usize,
        visit: impl FnMut(&[u8], &[u8]) + Send,
    ) -> Result<usize> {
        let mut operation = Operation::begin(&self.shared, client, OpKind::Scan).await?;
        self.shared.cache.enter(operation.client.epoch());
        let mut sink = Sink::new(visit, limit, range.reverse);
        let mut cursor = if is_void(range) { None } else { Cursor::of(range) };
        let (mut turns, mut gap) = (0, None);
        while let Some(at) = cursor.take().filter(|at| sink.left > 0 && at.is_within(range)) {
            if turns > TURNS_MAX {
                return Err(no_progress(self.shared.words.root));
            }
            let ahead = operation.remembered(range, &at, sink.left);
            if !ahead.steps.is_empty() {
                let (next, is_ahead) = operation.visit_remembered(range, ahead, &mut sink).await?;
                turns = if is_ahead { 0 } else { turns + 1 };
                cursor = next;
                continue;
            }
            let look = operation.look_at(&at, range.reverse, ahead.node).await?;
            cursor = match look {
                Look::On(next) => {
                    turns += 1;
                    next
                }
                Look::Pages(stretch) => {
                    turns = 0;
                    operation.visit_pages(range, stretch, &mut sink, &mut gap).await?
                }
            };
        }
        Ok(limit - sink.left)
    }

    /// The first `limit` pairs of a range in its direction.
    pub(super) async fn scan_chunk(
        &self,
        client: &mut Client<F>,
        range: &ScanRange,
        limit: usize,
    ) -> Result<Vec<KeyValue>> {
        let mut pairs = Vec::new();
        self.scan_with(client, range, limit, |key, value| pairs.push((key.to_vec(), value.to_vec()))).await?;
        Ok(pairs)
    }
}

impl Cursor {
    /// Whether anything of the range can be from here on.
    fn is_within(&self, range: &ScanRange) -> bool {
        let far = if range.reverse { &range.from } else { &range.to };
        let (Bound::Included(far) | Bound::Excluded(far)) = far else { return true };
        if range.reverse {
            self.is_open && far.starts_with(&self.key) || &self.key >= far
        } else {
            &self.key <= far
        }
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Goes down to the node that a position leads to, from one that is remembered on its way.
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
                return Ok(Look::On(Some(Cursor::extended(cursor.key.clone()))));
            }
            let words = self.read_node(node).await?;
            let is_own = node.depth <= nibbles(&cursor.key) && words[0] == path.identity(node.depth);
            let remembered = hint.take();
            if let Some(stale) = remembered
                && !(is_own && node::proves(words[node::GUARD_AT], stale.born))
            {
                self.shared.cache.forget_node(&mut path, stale);
                (node, ..) = self.read_root().await?;
                continue;
            }
            if !is_own {
                let Some((depth, edge)) = above else {
                    return Err(IndexError::corrupt(node.addr, "root node with another identity"));
                };
                return self.around(cursor, reverse, node, (depth, edge)).await;
            }
            let way = known.zip(above.map(|(_, edge)| edge));
            known = self.shared.learn(remembered, way, node, &words, self.client.epoch());
            let slots = node::slots(&words);
            let own = edge(&cursor.key, node.depth);
            let (lo, slot) = node::responsible(node.addr, &slots, own)?;
            match slot.content() {
                Content::Node { skip, addr } if lo == own => {
                    above = Some((node.depth, own));
                    node = NodeAt { addr, depth: node.depth + 1 + skip };
                    if node.depth > crate::KEY_BYTES_MAX * 2 {
                        return Err(node::too_deep(node.addr));
                    }
                }
                // A slot above was read before it was taken; another READ must bring it.
                Content::Node { .. } | Content::None { .. } if !matches!(slot.content(), Content::None { hi } if hi >= own) => {
                    if gap.replace((node, lo, slot)) == Some((node, lo, slot)) {
                        return Err(IndexError::corrupt(node.addr, "edges that no slot is responsible for"));
                    }
                }
                _ => {
                    let at = (words[0], node.depth);
                    let stretch = Stretch { known, ..stretch(&cursor.key, at, &slots, lo, reverse) };
                    return Ok(Look::Pages(stretch));
                }
            }
        }
    }

    /// The position lies beside the subtree of `child`: goes into it, or past it.
    async fn around(
        &mut self,
        cursor: &Cursor,
        reverse: bool,
        child: NodeAt,
        (depth, edge): (usize, u8),
    ) -> Result<Look> {
        let past = || Cursor::past(&cursor.key, depth, EdgeRange::one(edge), reverse);
        let Some(other) = self.key_below(child).await? else { return Ok(Look::On(past())) };
        if nibbles(&other) < child.depth || common(&other, &cursor.key) >= child.depth {
            // Identities and the keys below nodes never change.
            return Err(IndexError::corrupt(child.addr, "node whose keys do not have its prefix"));
        }
        let is_above = other > cursor.key;
        Ok(Look::On(match (is_above, reverse) {
            (true, false) => Some(Cursor { key: first_below(&other, child.depth, END), is_open: false }),
            (false, true) => Cursor::end_of(&other, child.depth),
            _ => past(),
        }))
    }

    /// Reads pages of a stretch and hands on their pairs. Returns where to go on.
    async fn visit_pages<V: FnMut(&[u8], &[u8]) + Send>(
        &mut self,
        range: &ScanRange,
        stretch: Stretch,
        sink: &mut Sink<V>,
        gap: &mut Option<GlobalAddr>,
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
        let (mut rows, torn) = self.read_pages(&stretch, count).await?;
        let before = std::mem::replace(gap, torn.map(|(page, ..)| page));
        match torn {
            // A slot above was read before it was taken: another READ must bring it.
            Some((page, ..)) if before == Some(page) => {
                return Err(IndexError::corrupt(page, "edges that no page is responsible for"));
            }
            Some((_, shape_hi, _)) if !range.reverse => hi = shape_hi,
            Some((.., to)) => lo = to + 1,
            None => {}
        }
        rows.read_leaves(&mut self.client).await?;
        rows.hand_on(range, sink);
        Ok(Cursor::past(&stretch.key, stretch.depth, EdgeRange { lo, hi }, range.reverse))
    }

    /// Visits pages that the process remembers. Returns where to go on, and whether that is elsewhere.
    async fn visit_remembered<V: FnMut(&[u8], &[u8]) + Send>(
        &mut self,
        range: &ScanRange,
        Ahead { steps, mut next, .. }: Ahead,
        sink: &mut Sink<V>,
    ) -> Result<(Option<Cursor>, bool)> {
        let mut batch = self.client.batch();
        let reads: Vec<_> =
            steps.iter().map(|step| batch.read(step.hint.page.addr, step.hint.shape.words())).collect();
        let done = self.client.submit(batch).await?;
        let (mut rows, mut is_ahead) = (Rows::default(), false);
        for (step, read) in steps.into_iter().zip(reads) {
            let (words, Step { hint, identity, at }) = (done.words(read), step);
            if !hint.is_proved_by(words) && !mutant!("quiver-scan-believes-any-remembered-page") {
                note(situations::PAGE_HINT_STALE);
                self.shared.cache.forget_page(identity, &hint);
                next = Some(at);
                break;
            }
            rows.take(hint.page, &hint.shape, words, hint.shape.edges)?;
            is_ahead = true;
        }
        self.client.recycle(done);
        rows.read_leaves(&mut self.client).await?;
        rows.hand_on(range, sink);
        Ok((next, is_ahead))
    }

    /// What the process remembers from a position on, until the pages have `wanted` pairs, about.
    fn remembered(&self, range: &ScanRange, from: &Cursor, wanted: usize) -> Ahead {
        let (mut steps, mut next, mut node, mut pairs) = (Vec::new(), Some(from.clone()), None, 0);
        while steps.len() < PAGES_MAX && pairs < wanted {
            let Some(at) = next.take_if(|at| at.is_within(range)) else { break };
            let hit = self.shared.cache.find(&mut NibbleKey::new(self.shared.keys, &at.key));
            node = hit.as_ref().map(|hit| hit.node);
            let found = hit.and_then(|hit| Some((hit.identity, hit.page?)));
            let usable = found.filter(|(_, hint)| !at.falls_short_of(hint.shape.depth));
            let Some((identity, hint)) = usable else {
                next = Some(at);
                break;
            };
            let shape = &hint.shape;
            let before = if steps.is_empty() { shape.rank(&hint.map, &at.key).unwrap_or(0) } else { 0 };
            pairs += if range.reverse && steps.is_empty() { before + 1 } else { shape.records - before };
            next = Cursor::past(&at.key, shape.depth, shape.edges, range.reverse);
            steps.push(Step { hint, identity, at });
        }
        Ahead { steps, next, node }
    }

    /// Reads the first pages of a stretch in one round trip, each with the edges that it should be
    /// responsible for. Stops at
    /// one that is responsible for fewer, and returns it, its last edge and the one it should have.
    async fn read_pages(
        &mut self,
        stretch: &Stretch,
        count: usize,
    ) -> Result<(Rows, Option<(GlobalAddr, u8, u8)>)> {
        let mut rows = Rows::default();
        let pages = &stretch.pages[..count];
        if pages.is_empty() {
            return Ok((rows, None));
        }
        let mut batch = self.client.batch();
        let reads: Vec<_> = pages.iter().map(|(page, ..)| batch.read(page.addr, page.words())).collect();
        let done = self.client.submit(batch).await?;
        let mut torn = None;
        for (&(page, edges), read) in pages.iter().zip(reads) {
            let words = done.words(read);
            let shape = Shape::of(page, words)?;
            if shape.edges.hi < edges.hi {
                torn = Some((page.addr, shape.edges.hi, edges.hi));
            }
            rows.take(page, &shape, words, edges.up_to(shape.edges.hi))?;
            let is_whole = (words[1], shape.depth, shape.edges) == (stretch.identity, stretch.depth, edges);
            if let Some(known) = stretch.known
                && is_whole
                && page::proves(words[0], shape.born)
            {
                let hint = PageHint::new(page, shape, shape.map_in(words)).with_delta(shape.delta_in(words));
                self.shared.cache.learn_page(known, &hint, self.client.epoch());
            }
            if torn.is_some() {
                break;
            }
        }
        self.client.recycle(done);
        Ok((rows, torn))
    }
}

/// The pages from the slot `lo` on in the walk's direction, up to the next child node.
fn stretch(
    key: &[u8],
    (identity, depth): (u64, usize),
    slots: &[Slot; EDGES],
    from: u8,
    reverse: bool,
) -> Stretch {
    let mut stretch = Stretch {
        identity,
        depth,
        known: None,
        key: key.to_vec(),
        pages: Vec::new(),
        edges: EdgeRange::one(from),
    };
    let mut visit = |lo: u8| {
        let hi = node::last_edge(slots, lo);
        match slots[usize::from(lo)].content() {
            Content::Node { .. } => return false,
            Content::Empty => return true,
            Content::Page { class, addr, .. } => {
                stretch.pages.push((PageRef { addr, class }, EdgeRange { lo, hi }));
            }
            Content::None { .. } | Content::Invalid => {}
        }
        stretch.edges.lo = stretch.edges.lo.min(lo);
        stretch.edges.hi = stretch.edges.hi.max(hi);
        true
    };
    if reverse {
        (0..=from).rev().all(&mut visit);
    } else {
        (from..=LAST).all(&mut visit);
    }
    stretch
}

/// Pairs of pages: those that stand in records, and leaves to be read.
#[derive(Default)]
struct Rows {
    pairs: Vec<KeyValue>,
    leaves: Vec<RowLeaf>,
}

/// A leaf to be read.
struct RowLeaf {
    addr: GlobalAddr,
    class: u8,
    /// The pair that stands in the record.
    own: Option<KeyValue>,
}

impl Rows {
    /// Takes the pairs of a page under some of its edges. The leaves under others may be those of parts
    /// that are linked.
    fn take(&mut self, page: PageRef, shape: &Shape, words: &[u64], edges: EdgeRange) -> Result<()> {
        let is_wanted = |word: Word, own: Option<&KeyValue>| {
            edges.contains(shape.edge_of(word, own.map(|(key, _)| &key[..])))
                || own.is_none() && mutant!("quiver-scan-reads-leaves-of-linked-parts")
        };
        for rank in 0..shape.records {
            let at = shape.record_at(rank);
            let record = &words[at..at + shape.record_words];
            let own = standing(page.addr, record).map(|leaf| (leaf.key.to_vec(), leaf.value.to_vec()));
            let is_wanted = is_wanted(Word(record[0]), own.as_ref());
            match (Word(record[0]).state(), own) {
                (State::Inline, Some(pair)) => {
                    leaf::parse(page.addr, &record[1..])?;
                    self.pairs.extend(is_wanted.then_some(pair));
                }
                (State::Leaf { addr, class }, own) => {
                    self.leaves.extend(is_wanted.then_some(RowLeaf { addr, class, own }));
                }
                (State::Tomb, _) => {}
                _ => return Err(IndexError::corrupt(page.addr, "record of no known kind")),
            }
        }
        for word in &words[FIXED_WORDS..FIXED_WORDS + shape.delta] {
            if let Some((addr, class, _)) = Word(*word).leaf_object()
                && is_wanted(Word(*word), None)
            {
                self.leaves.push(RowLeaf { addr, class, own: None });
            }
        }
        Ok(())
    }

    /// Reads the leaves.
    async fn read_leaves<F: Fabric>(&mut self, client: &mut Client<F>) -> Result<()> {
        if self.leaves.is_empty() {
            return Ok(());
        }
        let mut batch = client.batch();
        let leaves = std::mem::take(&mut self.leaves);
        let reads: Vec<_> =
            leaves.iter().map(|leaf| batch.read(leaf.addr, leaf::class_words(leaf.class))).collect();
        let done = client.submit(batch).await?;
        for (row, read) in leaves.into_iter().zip(reads) {
            let leaf = leaf::parse(row.addr, done.words(read))?;
            self.pairs.push(match row.own {
                Some(own) if own.0 != leaf.key && !mutant!("quiver-scan-believes-any-leaf") => own,
                _ => (leaf.key.to_vec(), leaf.value.to_vec()),
            });
        }
        client.recycle(done);
        Ok(())
    }

    /// Hands on all pairs in the range, in its order.
    fn hand_on<V: FnMut(&[u8], &[u8])>(mut self, range: &ScanRange, sink: &mut Sink<V>) {
        self.pairs.sort();
        let pairs = self.pairs.iter().filter(|(key, _)| range.contains(key));
        if range.reverse {
            pairs.rev().for_each(|(key, value)| sink.take(key, value));
        } else {
            pairs.for_each(|(key, value)| sink.take(key, value));
        }
    }
}
