//! Counts and sizes, gathered on a walk in steps.
//!
//! A step reads some nodes and all their pages, but no leaves, under its own pin.

use super::Quiver;
use super::nibble::EdgeRange;
use super::node::{self, NODE_BYTES};
use super::operation::Operation;
use super::page::{Head, PageRef, standing};
use super::walk::{Met, Walk};
use super::word::{State, Word};
use crate::radix::leaf;
use crate::radix::tally::Tally;
use crate::{CheckReport, EstStats, IndexStats, Result};
use darter_fabric::{Fabric, OpKind};
use darter_pool::Client;

/// Pages that are read in one round trip.
const PAGES: usize = 64;

/// A count of the index that proceeds in steps.
#[derive(Debug)]
pub(crate) struct IncrementalStats {
    tally: Tally,
    walk: Walk,
    nodes: u64,
}

impl Default for IncrementalStats {
    fn default() -> Self {
        Self { tally: tally(), walk: Walk::new(false), nodes: 0 }
    }
}

impl IncrementalStats {
    /// Nodes counted so far.
    pub(crate) fn nodes(&self) -> u64 {
        self.nodes
    }
}

/// An empty count.
pub(super) fn tally() -> Tally {
    Tally::new(["node", "page"])
}

/// The sums of a walk, including those of the skip table.
pub(super) fn finish(tally: Tally, est: Option<EstStats>) -> IndexStats {
    let mut stats = tally.finish();
    stats.index_bytes += est.as_ref().map_or(0, |est| est.bytes);
    stats.est = est;
    stats
}

/// A page to be counted.
struct Hanging {
    page: PageRef,
    /// The edges that it is still responsible for.
    edges: EdgeRange,
    /// Nodes above it.
    levels: usize,
}

impl<F: Fabric> Quiver<F> {
    /// Counts everything.
    ///
    /// While others write, everything below a node that they replace may be left out.
    pub(super) async fn collect_stats(&self, client: &mut Client<F>) -> Result<IndexStats> {
        let mut progress = IncrementalStats::default();
        loop {
            if let Some(stats) = self.count_some(client, &mut progress).await? {
                return Ok(stats);
            }
        }
    }

    /// Counts some more nodes. After the last ones, returns the sums and starts over.
    ///
    /// # Errors
    /// Those of the fabric, and [`IndexError::Corrupt`](crate::IndexError::Corrupt); the count then
    /// starts over.
    pub(crate) async fn count_some(
        &self,
        client: &mut Client<F>,
        progress: &mut IncrementalStats,
    ) -> Result<Option<IndexStats>> {
        let mut counted = std::mem::take(progress);
        let mut operation = Operation::begin(&self.shared, client, OpKind::Maintain).await?;
        let mut hanging = Vec::new();
        let mut count = |met: &Met, words: &[u64]| {
            let slots = node::slots(words);
            counted.nodes += 1;
            counted.tally.note_node("node", NODE_BYTES, node::live(&slots));
            hanging.extend(node::pages(&slots).map(|(lo, page)| {
                let edges = node::edges_of(&slots, lo);
                Hanging { page, edges, levels: met.levels }
            }));
        };
        let is_last = counted.walk.step(&mut operation, &mut count).await?;
        for some in hanging.chunks(PAGES) {
            operation.count_pages(&mut counted.tally, some).await?;
        }
        if !is_last {
            *progress = counted;
            return Ok(None);
        }
        let est = operation.inspect_table(&mut CheckReport::default()).await?;
        Ok(Some(finish(counted.tally, est)))
    }
}

impl<F: Fabric> Operation<'_, F> {
    async fn count_pages(&mut self, tally: &mut Tally, hanging: &[Hanging]) -> Result<()> {
        let mut batch = self.client.batch();
        let reads: Vec<_> = hanging.iter().map(|one| batch.read(one.page.addr, one.page.words())).collect();
        let done = self.client.submit(batch).await?;
        for (one, read) in hanging.iter().zip(reads) {
            let words = done.words(read);
            if let Ok(head) = Head::parse(one.page, words)? {
                count_page(tally, &head, words, one.edges, one.levels);
            }
        }
        self.client.recycle(done);
        Ok(())
    }
}

/// Counts a page and the pairs that it is responsible for, which are `levels` nodes deep.
pub(super) fn count_page(tally: &mut Tally, head: &Head, words: &[u64], edges: EdgeRange, levels: usize) {
    let (shape, mut live) = (head.shape, 0);
    let mut count = |word: Word, own: Option<&[u8]>| {
        let bytes = match word.state() {
            State::Inline => 0,
            State::Leaf { class, .. } => leaf::class_words(class) as u64 * 8,
            State::Empty | State::Tomb | State::Invalid => return,
        };
        if edges.contains(shape.edge_of(word, own)) {
            live += 1;
            tally.note_leaf(bytes, levels);
        }
    };
    for at in (0..shape.records).map(|rank| shape.record_at(rank)) {
        let record = &words[at..at + shape.record_words];
        let own = standing(head.page.addr, record);
        count(Word(record[0]), own.as_ref().map(|leaf| leaf.key));
    }
    for word in &head.delta {
        count(*word, None);
    }
    tally.note_node("page", head.page.bytes(), live);
}
