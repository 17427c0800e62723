//! What a scan has read of pages: pairs that stand in records, and leaves to be read.

use crate::checker::note;
use crate::quiver::hint::{HotLeaf, HotWord, PageSlot};
use crate::quiver::nibble::EdgeRange;
use crate::quiver::page::{FIXED_WORDS, PageRef, Shape, standing};
use crate::quiver::pair::INLINE_WORDS_MAX;
use crate::quiver::shared::Shared;
use crate::quiver::situations;
use crate::quiver::word::{State, Word};
use crate::radix::leaf::{self, Leaf};
use crate::radix::sink::Sink;
use crate::{IndexError, Result, ScanRange};
use darter_fabric::{Fabric, GlobalAddr, mutant};
use darter_pool::Client;

/// Words of a page.
#[derive(Clone, Copy)]
pub(super) struct Part<'w> {
    /// The first ones: the delta at least.
    pub(super) head: &'w [u64],
    /// Those of some records next to each other.
    pub(super) records: &'w [u64],
    /// The rank of the first of them.
    pub(super) first: usize,
}

impl<'w> Part<'w> {
    /// The whole page.
    pub(super) fn whole(shape: &Shape, words: &'w [u64]) -> Self {
        Self { head: words, records: &words[shape.head_words()..shape.words()], first: 0 }
    }

    /// The first record, or the last one.
    pub(super) fn record(&self, shape: &Shape, is_last: bool) -> &'w [u64] {
        let mut records = self.records.chunks_exact(shape.record_words.max(1));
        if is_last { records.next_back() } else { records.next() }.unwrap_or_default()
    }
}

/// A page whose pairs are taken.
#[derive(Clone, Copy)]
pub(super) struct Source<'w> {
    pub(super) page: PageRef,
    pub(super) shape: Shape,
    pub(super) part: Part<'w>,
    /// What the page's node is remembered under, if the page is remembered.
    pub(super) identity: Option<u64>,
}

/// Pairs of pages.
#[derive(Default)]
pub(super) struct Rows<'w> {
    pairs: Vec<Leaf<'w>>,
    sources: Vec<Source<'w>>,
    leaves: Vec<RowLeaf<'w>>,
    /// The last key that counts in the walk's direction; without it, all of them do.
    pub(super) end: Option<&'w [u8]>,
}

/// A pair that is in a leaf.
struct RowLeaf<'w> {
    addr: GlobalAddr,
    class: u8,
    /// The word that names it, and the number of its page's source.
    word: Word,
    slot: PageSlot,
    source: usize,
    /// The record that has it; none for one of the delta.
    record: Option<&'w [u64]>,
    /// What was read of it.
    image: Option<&'w [u64]>,
}

impl<'w> RowLeaf<'w> {
    /// The pair, by what was read of the leaf, and whether it is the leaf's.
    fn pair<'r>(&self, words: &'r [u64]) -> Result<(Leaf<'r>, bool)>
    where
        'w: 'r,
    {
        let leaf = leaf::parse(self.addr, words)?;
        let own = self.record.filter(|record| {
            standing(self.addr, record).is_some_and(|own| own.key != leaf.key)
                && !mutant!("quiver-scan-believes-any-leaf")
        });
        // A leaf with another key than the record's: the value still stands in the record.
        match own {
            Some(record) => Ok((leaf::parse(self.addr, &record[1..])?, false)),
            None => Ok((leaf, true)),
        }
    }
}

impl<'w> Rows<'w> {
    /// Takes the pairs of a page under some of its edges. The leaves under others may be those of parts
    /// that are linked. Of the hot words count those that the page still has.
    pub(super) fn take(&mut self, from: Source<'w>, edges: EdgeRange, hot: &[HotLeaf<'w>]) -> Result<()> {
        let Source { page, shape, part, .. } = from;
        let is_wanted = |word: Word, own: Option<Leaf<'_>>| {
            edges.contains(shape.edge_of(word, own.map(|leaf| leaf.key)))
                || own.is_none() && mutant!("quiver-scan-reads-leaves-of-linked-parts")
        };
        let source = self.sources.len();
        self.sources.push(from);
        let row = |slot: PageSlot, word: Word, (addr, class): (GlobalAddr, u8), record| {
            let is_it = |hot: &&HotLeaf<'_>| {
                hot.0.slot == slot && (hot.0.word == word || mutant!("quiver-scan-believes-any-hot-word"))
            };
            let image = hot.iter().find(is_it).map(|(_, words)| *words);
            RowLeaf { addr, class, word, slot, source, record, image }
        };
        for (at, record) in part.records.chunks_exact(shape.record_words.max(1)).enumerate() {
            let (word, own) = (Word(record[0]), standing(page.addr, record));
            match (word.state(), own) {
                (State::Inline, Some(_)) => {
                    let pair = leaf::parse(page.addr, &record[1..])?;
                    self.pairs.extend(is_wanted(word, own).then_some(pair));
                }
                (State::Leaf { addr, class }, own) => {
                    let slot = PageSlot::record(part.first + at);
                    let row = is_wanted(word, own).then(|| row(slot, word, (addr, class), Some(record)));
                    self.leaves.extend(row);
                }
                (State::Tomb, _) => {}
                _ => return Err(IndexError::corrupt(page.addr, "record of no known kind")),
            }
        }
        for (at, word) in part.head[FIXED_WORDS..FIXED_WORDS + shape.delta].iter().enumerate() {
            if let Some((addr, class, _)) = Word(*word).leaf_object()
                && is_wanted(Word(*word), None)
            {
                self.leaves.push(row(PageSlot::delta(at), Word(*word), (addr, class), None));
            }
        }
        Ok(())
    }

    /// Reads the leaves that were not, and hands on all pairs in the range, in its order. Returns the
    /// key of a pair whose leaf it has read, if the pair could stand in a page.
    pub(super) async fn hand_on<F: Fabric, V: FnMut(&[u8], &[u8]) + Send>(
        mut self,
        (shared, client): (&Shared, &mut Client<F>),
        range: &ScanRange,
        sink: &mut Sink<V>,
    ) -> Result<Option<Vec<u8>>> {
        let (read, unread): (Vec<_>, Vec<_>) = self.leaves.drain(..).partition(|row| row.image.is_some());
        for row in &read {
            note(situations::HOT_WORD_SCANNED);
            self.pairs.push(row.pair(row.image.unwrap_or_default())?.0);
        }
        if unread.is_empty() {
            hand_on(self.pairs, self.end, range, sink);
            return Ok(None);
        }
        let Self { pairs, sources, end, .. } = self;
        let mut batch = client.batch();
        let reads: Vec<_> =
            unread.iter().map(|row| batch.read(row.addr, leaf::class_words(row.class))).collect();
        let done = client.submit(batch).await?;
        let (mut pairs, mut moved_out) = (pairs, None);
        for (row, read) in unread.into_iter().zip(reads) {
            let words = done.words(read);
            let (pair, is_own) = row.pair(words)?;
            if words.len() <= INLINE_WORDS_MAX {
                moved_out = Some(pair.key);
            }
            let Source { page, shape, identity, .. } = &sources[row.source];
            if let Some(identity) = identity.filter(|_| is_own)
                && let Some(hot) = HotWord::of(*page, row.slot, row.word)
            {
                shared.cache.learn_hot(identity, (page.addr, shape.born), hot);
            }
            pairs.push(pair);
        }
        hand_on(pairs, end, range, sink);
        let moved_out = moved_out.map(<[u8]>::to_vec);
        client.recycle(done);
        Ok(moved_out)
    }
}

fn hand_on<V: FnMut(&[u8], &[u8])>(
    mut pairs: Vec<Leaf<'_>>,
    end: Option<&[u8]>,
    range: &ScanRange,
    sink: &mut Sink<V>,
) {
    // Those of records are in order already.
    pairs.sort_by(|a, b| a.key.cmp(b.key));
    let counts = |key: &[u8]| match end {
        Some(end) if range.reverse => key >= end,
        Some(end) => key <= end,
        None => true,
    };
    let pairs = pairs.iter().filter(|pair| counts(pair.key) && range.contains(pair.key));
    if range.reverse {
        pairs.rev().for_each(|pair| sink.take(pair.key, pair.value));
    } else {
        pairs.for_each(|pair| sink.take(pair.key, pair.value));
    }
}
