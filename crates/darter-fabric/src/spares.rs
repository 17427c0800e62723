//! Batches that are done with, kept by an endpoint for their buffers.

use crate::Batch;

/// Batches that are kept at a time.
const BATCHES_MAX: usize = 8;
/// Buffers above this size go back to the allocator.
const BATCH_BYTES_MAX: usize = 256 << 10;

/// What an endpoint's batches are made from.
#[derive(Debug, Default)]
pub(crate) struct Spares(Vec<Batch>);

impl Spares {
    /// Returns an empty batch.
    #[inline]
    pub(crate) fn batch(&mut self) -> Batch {
        self.0.pop().unwrap_or_default()
    }

    /// Keeps a batch's buffers, if there is room and they are not too large.
    #[inline]
    pub(crate) fn recycle(&mut self, mut batch: Batch) {
        if self.0.len() < BATCHES_MAX && batch.buffer_bytes() <= BATCH_BYTES_MAX {
            batch.clear();
            self.0.push(batch);
        }
    }
}
