//! Bringing near what operations on several keys are going to read.
//!
//! In memory of this machine a search waits for three cache misses, one after the other: the
//! express bucket or what is remembered in its place, the node's bucket, the leaf. Operations that
//! are known ahead but must be done in order can still have their misses together: a look at the
//! first steps of all, which reads nothing that counts, starts them. Nothing is believed that is
//! seen here, so nothing has to be right.

use super::Dart;
use super::est::BUCKET_SLOTS;
use super::leaf;
use super::node::{Content, Slot};
use super::prefix_hash::HashedKey;
use crate::radix::slot::edge_of;
use darter_fabric::{Endpoint, Fabric, GlobalAddr};
use darter_pool::Client;
use smallvec::SmallVec;

/// A bucket on the way, and the edge that goes on from there.
struct Step {
    bucket: GlobalAddr,
    /// Words of it that may hold the edge's slot.
    words: std::ops::Range<u64>,
    edge: u16,
}

impl<F: Fabric> Dart<F> {
    /// Starts to bring what operations on these keys are going to read into this processor's cache,
    /// as far as the pool is memory of this machine and this process remembers the keys' nodes.
    /// Costs no verb.
    pub fn prefetch<'k>(&self, client: &Client<F>, keys: impl Iterator<Item = &'k [u8]>) {
        let endpoint = client.endpoint();
        if endpoint.peek(self.shared.words.root).is_none() {
            return;
        }
        let (table, era) = (self.shared.table(), self.shared.log.era());
        let mut steps: SmallVec<[Step; 16]> = SmallVec::new();
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
            steps.push(Step { bucket, words: words.start as u64..words.end as u64, edge });
        }
        for Step { bucket, mut words, edge } in steps {
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
