//! Finished batches, which an endpoint keeps for their buffers.

use crate::Batch;
#[cfg(feature = "tcp")]
use crate::words::Lender;
#[cfg(feature = "tcp")]
use std::sync::Arc;

/// Maximum number of batches kept.
const BATCHES_MAX: usize = 8;
/// Larger buffers go back to the allocator.
const BATCH_BYTES_MAX: usize = 256 << 10;

/// The batches that an endpoint keeps for reuse. For providers.
#[derive(Debug, Default)]
pub struct Spares {
    batches: Vec<Batch>,
    /// Lends the memory of new batches.
    #[cfg(feature = "tcp")]
    lender: Option<Arc<dyn Lender>>,
}

impl Spares {
    /// Creates a store of batches whose words are in memory registered with a device.
    #[cfg(feature = "tcp")]
    pub(crate) fn borrowing(lender: Arc<dyn Lender>) -> Self {
        Self { batches: Vec::new(), lender: Some(lender) }
    }

    /// Returns an empty batch.
    #[inline]
    pub fn batch(&mut self) -> Batch {
        if let Some(batch) = self.batches.pop() {
            return batch;
        }
        #[cfg(feature = "tcp")]
        if let Some(lender) = &self.lender {
            return Batch::borrowing(Arc::clone(lender));
        }
        Batch::new()
    }

    /// Keeps a batch's buffers, if there is room and they are not too large.
    #[inline]
    pub fn recycle(&mut self, mut batch: Batch) {
        if self.batches.len() < BATCHES_MAX && batch.buffer_bytes() <= BATCH_BYTES_MAX {
            batch.clear();
            self.batches.push(batch);
        }
    }
}
