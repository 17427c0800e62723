//! Prefetching for operations on several keys.
//!
//! If the pool is in this machine's memory, a search waits for three cache misses, one after the
//! other: the express bucket (or the cached node in its place), the node's bucket, and the leaf.
//! Operations that are known in advance but must be done in order can still overlap their misses:
//! prefetching performs the first steps of all of them and discards the results. Since no result is
//! used, none has to be correct.

use super::Dart;
use super::est::BUCKET_SLOTS;
use super::leaf;
use super::node::{Content, Slot};
use super::prefix_hash::HashedKey;
use crate::radix::slot::edge_of;
use darter_fabric::{Endpoint, Fabric, GlobalAddr};
use darter_pool::Client;
use smallvec::SmallVec;

/// A bucket on the path, and the edge that continues from it.
struct PrefetchStep {
    bucket: GlobalAddr,
    /// Its words that may hold the edge's slot.
    words: std::ops::Range<u64>,
    edge: u16,
}

impl<F: Fabric> Dart<F> {
    /// Prefetches the data that operations on these keys will read into this processor's cache, if
    /// the pool is in this machine's memory and this process has cached the keys' nodes. Uses no
    /// verbs.
    pub fn prefetch<'k>(&self, client: &Client<F>, keys: impl Iterator<Item = &'k [u8]>) {
        let endpoint = client.endpoint();
        if endpoint.peek(self.shared.words.root).is_none() {
            return;
        }
        let (table, era) = (self.shared.table(), self.shared.log.era());
        let mut steps: SmallVec<[PrefetchStep; 16]> = SmallVec::new();
        for key in keys {
            let Some(longest) = table.list.longest_below(key.len()) else { continue };
            let mut hashed = HashedKey::new(self.shared.keys, key);
            let Some(node) = self.shared.hints.deepest(&mut hashed, era) else {
                endpoint.prefetch(table.bucket_addr(hashed.express(longest)), BUCKET_SLOTS);
                continue;
            };
            let edge = edge_of(key, node.depth);
            let bucket = node.bucket_addr(edge);
            let words = node.ty.direct_word(edge).unwrap_or(1)..node.ty.search_words(edge);
            endpoint.prefetch(bucket, words.end);
            steps.push(PrefetchStep { bucket, words: words.start as u64..words.end as u64, edge });
        }
        for PrefetchStep { bucket, mut words, edge } in steps {
            let slot = words.find_map(|word| {
                let slot = Slot::from_word(endpoint.peek(bucket.plus(word * 8))?);
                slot.is_of(edge).then_some(slot)
            });
            if let Some(Content::Leaf { addr, class }) = slot.map(Slot::content) {
                endpoint.prefetch(addr, leaf::class_words(class));
            }
        }
    }
}
