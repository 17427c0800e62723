//! The queue pairs of clients whose verbs go through this node's RDMA device.
//!
//! A queue pair belongs to the connection that requested it and ends with it. When a session is
//! fenced, all of its queue pairs end before any client can learn that it is fenced: from then on
//! none of its verbs can take effect.
use darter_fabric::rdma::{Export, ServedQueue};
use darter_fabric::wire::{Pairing, Refusal};
use std::collections::HashMap;

/// Identifies a queue pair of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QueueId(u64);

/// The node's device, and the queue pairs on it.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// The queue pairs with their sessions. Dropped before the device.
    served: HashMap<QueueId, (u64, ServedQueue)>,
    export: Option<Export>,
    made: u64,
}

impl Queues {
    pub(crate) fn new(export: Option<Export>) -> Self {
        Self { export, ..Self::default() }
    }

    /// Returns whether verbs go through a device. The processor's atomics and the device's are not
    /// atomic to each other, so the node then executes no verbs itself.
    pub(crate) fn are_served(&self) -> bool {
        self.export.is_some()
    }

    /// Describes the device for an operator.
    pub(crate) fn describe(&self) -> Option<String> {
        self.export.as_ref().map(Export::describe)
    }

    /// Returns the number of queue pairs.
    pub(crate) fn len(&self) -> usize {
        self.served.len()
    }

    /// Creates a queue pair for a session.
    pub(crate) fn pair(
        &mut self,
        session: u64,
        theirs: &Pairing,
    ) -> Result<(QueueId, Pairing), (Refusal, String)> {
        let Some(export) = &self.export else {
            return Err((Refusal::Failed, "this memory node has no RDMA device; use tcp://".to_owned()));
        };
        let (queue, ours) = export.pair(theirs).map_err(|error| (Refusal::Failed, error.to_string()))?;
        self.made += 1;
        let id = QueueId(self.made);
        self.served.insert(id, (session, queue));
        Ok((id, ours))
    }

    /// Ends a queue pair, if it has not ended yet.
    pub(crate) fn end(&mut self, id: QueueId) {
        self.served.remove(&id);
    }

    /// Ends the queue pairs of all sessions that are fenced.
    pub(crate) fn end_fenced(&mut self, is_fenced: impl Fn(u64) -> bool) {
        self.served.retain(|_, (session, _)| !is_fenced(*session));
    }
}
