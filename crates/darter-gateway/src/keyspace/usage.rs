//! The bytes that a key takes in the index.

use super::{Aggregate, Chunk, Family, Keyspace, Walked, place};
use crate::fault::Fault;

/// Bytes of an index leaf without the key and the value, and of the slot that points to it.
const RECORD_BYTES: usize = 16;

impl Keyspace {
    /// Returns the bytes of a key's head and all its elements, including their keys in the index
    /// but not the index's inner nodes; `None` if the key is absent.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn usage(&mut self, key: &[u8]) -> Result<Option<usize>, Fault> {
        let looked = self.look(key, |head| {
            head.map(|head| {
                (Aggregate::of(key, &head), head.body.len() + usize::from(head.expiry.is_some()) * 8)
            })
        });
        let Some((aggregate, body)) = looked.await? else { return Ok(None) };
        let mut head = Vec::new();
        place(&mut head, Family::Key, key);
        let mut bytes = RECORD_BYTES + head.len() + 1 + body;
        for &family in aggregate.iter().flat_map(|aggregate| aggregate.kind().families()) {
            let Some(aggregate) = &aggregate else { continue };
            let mut range = aggregate.range(family);
            let (mut chunk, mut left) = (Chunk::default(), usize::MAX);
            loop {
                let walked = self.next_chunk(&mut range, &mut chunk, &mut left, |place, record| {
                    bytes += RECORD_BYTES + place.len() + record.len();
                });
                if walked.await? == Walked::Through {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        Ok(Some(bytes))
    }
}
