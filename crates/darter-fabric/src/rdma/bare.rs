//! A loop of only verbs on one queue pair: the baseline for measurements of the provider.

use super::lane::Target;
use super::queue::{CompletionQueue, POLL_MAX, Queue};
use super::verbs::{self, IbvSge, IbvWc};
use crate::words::{Lender, Loan};
use crate::{FabricError, VerbKind};
use std::sync::Arc;

/// A queue pair to a memory node, and a word of registered memory for each verb in flight.
#[derive(Debug)]
pub struct BareLoop {
    /// Dropped before its memory is returned.
    queue: Queue,
    completions: Arc<CompletionQueue>,
    target: Target,
    buffers: Arc<dyn Lender>,
    words: Option<Loan>,
}

// SAFETY: the lent words belong to this value only.
unsafe impl Send for BareLoop {}

impl BareLoop {
    /// Takes a connected queue pair.
    pub(crate) fn new(
        queue: Queue,
        completions: Arc<CompletionQueue>,
        target: Target,
        buffers: Arc<dyn Lender>,
    ) -> Result<Self, FabricError> {
        let words = buffers.lend(queue.depth as usize);
        if words.is_none() {
            return Err(FabricError::geometry("no memory can be registered"));
        }
        Ok(Self { queue, completions, target, buffers, words })
    }

    /// Executes `count` verbs of a kind on words of the region, starting at its second page, with
    /// `in_flight` of them at a time. Each is posted and signalled individually.
    ///
    /// # Errors
    /// Fails if one of the verbs fails.
    pub fn run(&mut self, kind: VerbKind, count: usize, in_flight: usize) -> Result<(), FabricError> {
        let lost = FabricError::Disconnected { node: self.target.node };
        let (mut posted, mut completed) = (0, 0);
        let mut completions = [IbvWc::default(); POLL_MAX as usize];
        let in_flight = in_flight.clamp(1, self.queue.depth as usize);
        while completed < count {
            while posted < count && posted - completed < in_flight {
                if !self.post(kind, posted % in_flight) {
                    return Err(lost);
                }
                posted += 1;
            }
            let Ok(found) = self.completions.poll(&mut completions) else { return Err(lost) };
            if completions[..found].iter().any(|completion| completion.status != verbs::WC_SUCCESS) {
                return Err(lost);
            }
            completed += found;
        }
        Ok(())
    }

    fn post(&mut self, kind: VerbKind, at: usize) -> bool {
        let Some(words) = &self.words else { return false };
        let base = words.base.as_ptr().expose_provenance() as u64;
        let remote_addr = self.target.base + 4096 + 8 * at as u64;
        let mut place = IbvSge { addr: base + 8 * at as u64, length: 8, lkey: words.key };
        let mut request = self.queue.request(kind, remote_addr, self.target.key, [0; 2], 8);
        request.sg_list = &raw mut place;
        request.send_flags |= verbs::SEND_SIGNALED;
        // SAFETY: the words are lent until the queue is gone, and nothing else touches them.
        unsafe { self.queue.post(&raw mut request) }.is_ok()
    }
}

impl Drop for BareLoop {
    fn drop(&mut self) {
        // Everything posted has completed, or the queue has failed; in both cases the words are no
        // longer accessed.
        if let Some(words) = self.words.take() {
            self.buffers.take_back(words);
        }
    }
}
