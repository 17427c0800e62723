//! Counts and sizes, gathered on a walk that may be taken step by step.

use super::Dart;
use super::est::Entry;
use super::est::scrub::segments;
use super::est::table::DESCRIPTOR_BYTES;
use super::node::{Held, NodeType};
use crate::{EstStats, IndexError, IndexStats, NodeTypeStats};
use darter_fabric::{Fabric, OpKind};
use darter_pool::Client;
use darter_pool::size_class::class_bytes;

/// Running sums of a walk.
#[derive(Debug, Default)]
pub(super) struct Tally {
    keys: u64,
    kv_bytes: u64,
    counts: [u64; NodeType::ALL.len()],
    children: [u64; NodeType::ALL.len()],
    levels: Vec<u64>,
    pub(super) est: Option<EstStats>,
}

impl Tally {
    pub(super) fn note_node(&mut self, ty: NodeType, children: usize) {
        self.counts[ty as usize] += 1;
        self.children[ty as usize] += children as u64;
    }

    /// A leaf with `levels` inner nodes above it.
    pub(super) fn note_leaf(&mut self, bytes: u64, levels: usize) {
        self.keys += 1;
        self.kv_bytes += bytes;
        if self.levels.len() <= levels {
            self.levels.resize(levels + 1, 0);
        }
        self.levels[levels] += 1;
    }

    pub(super) fn finish(self) -> IndexStats {
        let nodes: Vec<NodeTypeStats> = NodeType::ALL
            .into_iter()
            .map(|ty| NodeTypeStats {
                name: ty.name(),
                count: self.counts[ty as usize],
                bytes: self.counts[ty as usize] * ty.bytes(),
                children: self.children[ty as usize],
            })
            .collect();
        let node_bytes: u64 = nodes.iter().map(|node| node.bytes).sum();
        IndexStats {
            keys: self.keys,
            kv_bytes: self.kv_bytes,
            index_bytes: node_bytes + self.est.as_ref().map_or(0, |est| est.bytes),
            nodes,
            depth_max: self.levels.len().saturating_sub(1),
            levels: self.levels,
            est: self.est,
        }
    }
}

/// A count of the index that goes on step by step, each under a pin of its own.
#[derive(Debug, Default)]
pub struct Census {
    tally: Tally,
    from: Option<Vec<u8>>,
    nodes: u64,
}

impl Census {
    /// Inner nodes counted so far.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }
}

impl<F: Fabric> Dart<F> {
    /// Counts everything without reading a leaf, letting go of its pin now and then.
    ///
    /// While others write, keys near the chunk borders may be counted twice or not at all. Paths with nodes deeper than
    /// 255 bytes count those nodes as one level.
    pub(super) async fn collect_stats(&self, client: &mut Client<F>) -> Result<IndexStats, IndexError> {
        let mut census = Census::default();
        loop {
            if let Some(stats) = self.count_some(client, &mut census).await? {
                return Ok(stats);
            }
        }
    }

    /// Counts some 4,000 inner nodes more; answers the sums when those were the last, and begins anew. What was counted long ago may
    /// have changed since.
    ///
    /// # Errors
    /// Those of the fabric, and [`IndexError::Corrupt`]; the same step is then taken again.
    pub async fn count_some(
        &self,
        client: &mut Client<F>,
        census: &mut Census,
    ) -> Result<Option<IndexStats>, IndexError> {
        let mut client = client.pin(OpKind::Maintain).await?;
        let (visited, next) =
            self.walk_chunk(&mut client, census.from.as_deref(), self.shared.walk_nodes).await?;
        let est = if next.is_none() { Some(self.est_stats(&mut client).await?) } else { None };
        for visit in visited.iter().filter(|visit| !visit.again) {
            census.nodes += 1;
            census.tally.note_node(visit.node.ty, visit.live);
            let levels: u32 = visit.path.iter().map(|word| word.count_ones()).sum();
            for slot in &visit.leaves {
                if let Held::Leaf { class, .. } = slot.held() {
                    census.tally.note_leaf(class_bytes(class), levels as usize);
                }
            }
        }
        census.from = next;
        if est.is_none() {
            return Ok(None);
        }
        census.tally.est = est;
        Ok(Some(std::mem::take(census).tally.finish()))
    }

    async fn est_stats(&self, client: &mut Client<F>) -> Result<EstStats, IndexError> {
        self.shared.refresh(client).await?;
        let table = arc_swap::Guard::into_inner(self.shared.table());
        let segments = segments(client, &table).await?;
        let mut entries = 0;
        for segment in &segments {
            let mut batch = client.batch();
            let read = batch.read(segment.segment(), table.segment.words());
            let done = client.submit(batch).await?;
            entries +=
                done.words(read).iter().filter(|&&word| !Entry::from_word(word).is_empty()).count() as u64;
            client.recycle(done);
        }
        Ok(EstStats {
            prefix_list: self.prefix_list(),
            directory_entries: table.directory_len() as u64,
            segments: segments.len() as u64,
            entries,
            slots: segments.len() as u64 * table.segment.words() as u64,
            bytes: DESCRIPTOR_BYTES + (8 << table.bits) + segments.len() as u64 * table.segment.bytes(),
        })
    }
}
