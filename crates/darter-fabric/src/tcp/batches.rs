//! The batches and calls in flight on a hub: a slab, whose slots are reused with a new generation.
use crate::{Batch, CallFault, FabricError};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

/// A call, in addition to an empty batch.
#[derive(Debug)]
pub(super) struct Called {
    pub node: u8,
    pub procedure: u64,
    /// The request's words; after the reply, the result's.
    pub words: Vec<u64>,
}

/// A batch or a call in flight.
#[derive(Debug)]
pub(super) struct Pending {
    pub batch: Batch,
    pub called: Option<Box<Called>>,
    /// Number of frames without a reply, plus nodes that are still to be connected.
    pub parts: usize,
    pub error: Option<FabricError>,
    waker: Option<Waker>,
    /// Its future was dropped.
    orphan: Option<Orphan>,
}

impl Pending {
    /// Records that a node may have executed a part of it. This takes precedence over another node
    /// that executed none of it.
    pub(super) fn lost(&mut self, node: u8) {
        let outweighs = |error: &FabricError| matches!(error, FabricError::Unreachable { .. });
        if self.error.as_ref().is_none_or(outweighs) {
            self.error = Some(match &self.called {
                Some(called) => CallFault::ServerGone.of(node, called.procedure),
                None => FabricError::Disconnected { node },
            });
        }
    }

    fn new(batch: Batch, called: Option<Box<Called>>, waker: &Waker) -> Self {
        Self { batch, called, parts: 0, error: None, waker: Some(waker.clone()), orphan: None }
    }
}

/// An endpoint's batch whose future was dropped; counted until its verbs have completed.
#[derive(Debug)]
pub(super) struct Orphan(Arc<AtomicUsize>);

impl Orphan {
    pub(super) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Result of a batch or a call.
#[derive(Debug)]
pub(super) struct Done {
    pub batch: Batch,
    /// The call, with the words that it returned.
    pub called: Option<Box<Called>>,
}

/// Identifies a batch or a call in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ticket {
    pub at: usize,
    pub generation: u64,
}

#[derive(Debug, Default)]
struct BatchSlot {
    generation: u64,
    pending: Option<Pending>,
}

/// All of a hub's batches in flight.
#[derive(Debug, Default)]
pub(super) struct Batches {
    slots: Vec<BatchSlot>,
    free: Vec<usize>,
}

impl Batches {
    /// Puts a batch or a call that is about to be posted into a slot.
    #[inline]
    pub(super) fn put(
        &mut self,
        batch: Batch,
        called: Option<Box<Called>>,
        waker: &Waker,
    ) -> (Ticket, &mut Pending) {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(BatchSlot::default());
            self.slots.len() - 1
        });
        let slot = &mut self.slots[at];
        slot.generation += 1;
        let ticket = Ticket { at, generation: slot.generation };
        (ticket, slot.pending.insert(Pending::new(batch, called, waker)))
    }

    /// Returns a batch, if it is still in flight.
    #[inline]
    pub(super) fn get(&mut self, ticket: Ticket) -> Option<&mut Pending> {
        let slot = &mut self.slots[ticket.at];
        slot.pending.as_mut().filter(|_| slot.generation == ticket.generation)
    }

    /// Records that one of a batch's parts is done or lost. Returns the waker to call if it was the
    /// last part.
    #[inline]
    pub(super) fn part_ended(&mut self, ticket: Ticket) -> Option<Waker> {
        let pending = self.get(ticket)?;
        pending.parts -= 1;
        if pending.parts > 0 {
            return None;
        }
        if pending.orphan.is_some() {
            self.clear(ticket.at);
            return None;
        }
        pending.waker.take()
    }

    /// Takes a batch's or a call's result, after all of its parts have ended.
    #[inline]
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<Result<Done, FabricError>> {
        let pending = self.slots[ticket.at].pending.take_if(|pending| pending.parts == 0)?;
        self.free.push(ticket.at);
        let Pending { batch, called, error, .. } = pending;
        Some(error.map_or(Ok(Done { batch, called }), Err))
    }

    /// Sets the waker to call when a batch is done. Returns the waker that it replaces, which must
    /// be dropped without a lock.
    pub(super) fn wait(&mut self, ticket: Ticket, waker: &Waker) -> Option<Waker> {
        let pending = self.get(ticket)?;
        match &pending.waker {
            Some(known) if known.will_wake(waker) => None,
            _ => pending.waker.replace(waker.clone()),
        }
    }

    /// Records that a batch's future was dropped. Returns its waker.
    pub(super) fn give_up(&mut self, ticket: Ticket, count: &Arc<AtomicUsize>) -> Option<Waker> {
        let pending = self.get(ticket)?;
        let waker = pending.waker.take();
        if pending.parts == 0 {
            self.clear(ticket.at);
        } else {
            pending.orphan = Some(Orphan::new(count));
        }
        waker
    }

    fn clear(&mut self, at: usize) {
        self.slots[at].pending = None;
        self.free.push(at);
    }
}
