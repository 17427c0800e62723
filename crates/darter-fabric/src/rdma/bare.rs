//! A loop of nothing but verbs on one queue pair: what the provider is measured against.

use super::lane::Target;
use super::queue::{CompletionQueue, POLL_MAX, Queue};
use super::verbs::{self, IbvSendWr, IbvSge, IbvWc, IbvWrTarget};
use crate::words::{Lender, Loan};
use crate::{FabricError, VerbKind};
use std::ptr;
use std::sync::Arc;

/// A queue pair to a memory node, and a word of registered memory for each verb in flight.
#[derive(Debug)]
pub struct BareLoop {
    /// Dropped before its memory goes back.
    queue: Queue,
    completions: Arc<CompletionQueue>,
    target: Target,
    buffers: Arc<dyn Lender>,
    words: Option<Loan>,
}

// SAFETY: the lent words are this value's alone.
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

    /// Executes `count` verbs of a kind on words of the region from its second page on, `in_flight`
    /// of them at a time, each posted and signalled by itself.
    ///
    /// # Errors
    /// Fails if one of them does.
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
        let key = self.target.key;
        let (opcode, wr) = match kind {
            VerbKind::Read | VerbKind::Write => {
                let wr = IbvWrTarget { remote_addr, rkey_or_compare: key.into(), ..IbvWrTarget::default() };
                (if kind == VerbKind::Read { verbs::WR_RDMA_READ } else { verbs::WR_RDMA_WRITE }, wr)
            }
            VerbKind::Cas | VerbKind::Faa => {
                let opcode = if kind == VerbKind::Cas {
                    verbs::WR_ATOMIC_CMP_AND_SWP
                } else {
                    verbs::WR_ATOMIC_FETCH_AND_ADD
                };
                (opcode, IbvWrTarget { remote_addr, rkey_or_compare: 0, swap: 0, atomic_rkey: key })
            }
        };
        let is_inline = kind == VerbKind::Write && self.queue.inline_bytes >= 8;
        let mut place = IbvSge { addr: base + 8 * at as u64, length: 8, lkey: words.key };
        let mut request = IbvSendWr {
            wr_id: 0,
            next: ptr::null_mut(),
            sg_list: &raw mut place,
            num_sge: 1,
            opcode,
            send_flags: verbs::SEND_SIGNALED | if is_inline { verbs::SEND_INLINE } else { 0 },
            imm_data: 0,
            wr,
            qp_type: 0,
            bind_mw: [0; 6],
        };
        // SAFETY: the words are lent until the queue is gone, and nothing else touches them.
        unsafe { self.queue.post(&raw mut request) }.is_ok()
    }
}

impl Drop for BareLoop {
    fn drop(&mut self) {
        // All that was posted has completed, or the queue has failed; neither touches the words any
        // more.
        if let Some(words) = self.words.take() {
            self.buffers.take_back(words);
        }
    }
}
