//! What a scan has read of pages: pairs that stand in records, and leaves to be read.

use crate::quiver::nibble::EdgeRange;
use crate::quiver::page::{FIXED_WORDS, PageRef, Shape, standing};
use crate::quiver::pair::INLINE_WORDS_MAX;
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
}

impl<'w> Part<'w> {
    /// The whole page.
    pub(super) fn whole(shape: &Shape, words: &'w [u64]) -> Self {
        Self { head: words, records: &words[shape.head_words()..shape.words()] }
    }

    /// The first record, or the last one.
    pub(super) fn record(&self, shape: &Shape, is_last: bool) -> &'w [u64] {
        let mut records = self.records.chunks_exact(shape.record_words.max(1));
        if is_last { records.next_back() } else { records.next() }.unwrap_or_default()
    }
}

/// Pairs of pages.
#[derive(Default)]
pub(super) struct Rows<'w> {
    pairs: Vec<Leaf<'w>>,
    leaves: Vec<RowLeaf<'w>>,
    /// The last key that counts in the walk's direction; without it, all of them do.
    pub(super) end: Option<&'w [u8]>,
}

/// A leaf to be read.
struct RowLeaf<'w> {
    addr: GlobalAddr,
    class: u8,
    /// The record that has it; none for one of the delta.
    record: Option<&'w [u64]>,
}

impl<'w> Rows<'w> {
    /// Takes the pairs of a page under some of its edges. The leaves under others may be those of parts
    /// that are linked.
    pub(super) fn take(
        &mut self,
        page: PageRef,
        shape: &Shape,
        part: Part<'w>,
        edges: EdgeRange,
    ) -> Result<()> {
        let is_wanted = |word: Word, own: Option<Leaf<'_>>| {
            edges.contains(shape.edge_of(word, own.map(|leaf| leaf.key)))
                || own.is_none() && mutant!("quiver-scan-reads-leaves-of-linked-parts")
        };
        for record in part.records.chunks_exact(shape.record_words.max(1)) {
            let (word, own) = (Word(record[0]), standing(page.addr, record));
            match (word.state(), own) {
                (State::Inline, Some(_)) => {
                    let pair = leaf::parse(page.addr, &record[1..])?;
                    self.pairs.extend(is_wanted(word, own).then_some(pair));
                }
                (State::Leaf { addr, class }, own) => {
                    let row = RowLeaf { addr, class, record: Some(record) };
                    self.leaves.extend(is_wanted(word, own).then_some(row));
                }
                (State::Tomb, _) => {}
                _ => return Err(IndexError::corrupt(page.addr, "record of no known kind")),
            }
        }
        for word in &part.head[FIXED_WORDS..FIXED_WORDS + shape.delta] {
            if let Some((addr, class, _)) = Word(*word).leaf_object()
                && is_wanted(Word(*word), None)
            {
                self.leaves.push(RowLeaf { addr, class, record: None });
            }
        }
        Ok(())
    }

    /// Reads the leaves, and hands on all pairs in the range, in its order. Returns the key of a pair
    /// whose leaf it has read, if the pair could stand in a page.
    pub(super) async fn hand_on<F: Fabric, V: FnMut(&[u8], &[u8]) + Send>(
        self,
        client: &mut Client<F>,
        range: &ScanRange,
        sink: &mut Sink<V>,
    ) -> Result<Option<Vec<u8>>> {
        let Self { pairs, leaves, end } = self;
        if leaves.is_empty() {
            hand_on(pairs, end, range, sink);
            return Ok(None);
        }
        let mut batch = client.batch();
        let reads: Vec<_> =
            leaves.iter().map(|leaf| batch.read(leaf.addr, leaf::class_words(leaf.class))).collect();
        let done = client.submit(batch).await?;
        let (mut pairs, mut moved_out) = (pairs, None);
        for (row, read) in leaves.into_iter().zip(reads) {
            let words = done.words(read);
            let leaf = leaf::parse(row.addr, words)?;
            if words.len() <= INLINE_WORDS_MAX {
                moved_out = Some(leaf.key);
            }
            let own = row.record.filter(|record| {
                standing(row.addr, record).is_some_and(|own| own.key != leaf.key)
                    && !mutant!("quiver-scan-believes-any-leaf")
            });
            // A leaf with another key than the record's: the value still stands in the record.
            pairs.push(match own {
                Some(record) => leaf::parse(row.addr, &record[1..])?,
                None => leaf,
            });
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
