//! Counts and sizes, gathered in a walk that can be done in steps.

use super::Dart;
use super::est::Entry;
use super::est::scrub::segments;
use super::est::table::DESCRIPTOR_BYTES;
use super::node::{Content, NodeType};
use super::operation::Operation;
use crate::radix::tally::Tally;
use crate::{EstStats, IndexStats, Result};
use darter_fabric::{Fabric, OpKind};
use darter_pool::Client;
use darter_pool::size_class::class_bytes;

/// A tally with no counts.
pub(super) fn tally() -> Tally {
    Tally::new(NodeType::ALL.map(NodeType::name))
}

/// The totals of a walk, with those of the express skip table.
pub(super) fn finish(tally: Tally, est: EstStats) -> IndexStats {
    let mut stats = tally.finish();
    stats.index_bytes += est.bytes;
    stats.est = Some(est);
    stats
}

/// A count of the index in several steps, each under its own pin.
#[derive(Debug)]
pub(crate) struct IncrementalStats {
    tally: Tally,
    from: Option<Vec<u8>>,
    nodes: u64,
}

impl Default for IncrementalStats {
    fn default() -> Self {
        Self { tally: tally(), from: None, nodes: 0 }
    }
}

impl IncrementalStats {
    /// Inner nodes counted so far.
    pub(crate) fn nodes(&self) -> u64 {
        self.nodes
    }
}

impl<F: Fabric> Dart<F> {
    /// Counts everything without reading a leaf, releasing its pin from time to time.
    ///
    /// While others write, keys near the chunk borders may be counted twice or not at all. On a
    /// path, nodes deeper than 255 bytes are counted as one level.
    pub(super) async fn collect_stats(&self, client: &mut Client<F>) -> Result<IndexStats> {
        let mut progress = IncrementalStats::default();
        loop {
            if let Some(stats) = self.count_some(client, &mut progress).await? {
                return Ok(stats);
            }
        }
    }

    /// Counts about 4,000 further inner nodes. After the last of them, returns the totals and
    /// starts over. Early parts of a count may have changed by then.
    ///
    /// # Errors
    /// Those of the fabric, and [`IndexError::Corrupt`](crate::IndexError::Corrupt); the next call
    /// then repeats the step.
    pub(crate) async fn count_some(
        &self,
        client: &mut Client<F>,
        progress: &mut IncrementalStats,
    ) -> Result<Option<IndexStats>> {
        let mut operation = Operation::pin(&self.shared, client, OpKind::Maintain).await?;
        let (visited, next) = operation.walk_chunk(progress.from.as_deref(), self.shared.walk_nodes).await?;
        let est = if next.is_none() { Some(operation.est_stats().await?) } else { None };
        for visit in visited.iter().filter(|visit| !visit.again) {
            progress.nodes += 1;
            progress.tally.note_node(visit.node.ty.name(), visit.node.ty.bytes(), visit.live);
            let levels: u32 = visit.path.iter().map(|word| word.count_ones()).sum();
            for slot in &visit.leaves {
                if let Content::Leaf { class, .. } = slot.content() {
                    progress.tally.note_leaf(class_bytes(class), levels as usize);
                }
            }
        }
        progress.from = next;
        Ok(est.map(|est| finish(std::mem::take(progress).tally, est)))
    }
}

impl<F: Fabric> Operation<'_, F> {
    async fn est_stats(&mut self) -> Result<EstStats> {
        self.shared.refresh(&mut self.client).await?;
        let table = arc_swap::Guard::into_inner(self.shared.table());
        let segments = segments(&mut self.client, &table).await?;
        let mut entries = 0;
        for segment in &segments {
            let mut batch = self.client.batch();
            let read = batch.read(segment.segment(), table.segment.words());
            let done = self.client.submit(batch).await?;
            entries +=
                done.words(read).iter().filter(|&&word| !Entry::from_word(word).is_empty()).count() as u64;
            self.client.recycle(done);
        }
        Ok(EstStats {
            prefix_list: table.list.bytes(),
            directory_entries: table.directory_len() as u64,
            segments: segments.len() as u64,
            entries,
            slots: segments.len() as u64 * table.segment.words() as u64,
            bytes: DESCRIPTOR_BYTES + (8 << table.bits) + segments.len() as u64 * table.segment.bytes(),
        })
    }
}
