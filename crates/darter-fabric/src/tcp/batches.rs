//! The batches that a thread's tasks have under way: a slab, whose places are used again under another generation.

use super::connection::Sent;
use crate::{Batch, FabricError};
use std::task::Waker;

/// A batch under way.
#[derive(Debug)]
pub(super) struct Pending {
    pub batch: Batch,
    /// Frames that have not been answered.
    pub frames: usize,
    pub error: Option<FabricError>,
    waker: Option<Waker>,
    endpoint: u64,
    /// Nobody waits for it any more.
    orphan: bool,
}

impl Pending {
    pub(super) fn new(batch: Batch, endpoint: u64) -> Self {
        Self { batch, frames: 0, error: None, waker: None, endpoint, orphan: false }
    }
}

/// Names a batch under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ticket {
    pub at: usize,
    pub generation: u64,
}

#[derive(Debug, Default)]
struct Place {
    generation: u64,
    pending: Option<Pending>,
}

/// All of a thread's batches under way.
#[derive(Debug, Default)]
pub(super) struct Batches {
    places: Vec<Place>,
    free: Vec<usize>,
}

impl Batches {
    /// A place for a batch that is about to be posted.
    pub(super) fn reserve(&mut self) -> Ticket {
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() - 1
        });
        self.places[at].generation += 1;
        Ticket { at, generation: self.places[at].generation }
    }

    /// Puts a posted batch into its place.
    pub(super) fn put(&mut self, ticket: Ticket, pending: Pending) {
        self.places[ticket.at].pending = Some(pending);
    }

    /// The batch that a frame is a part of, if it is still under way.
    pub(super) fn of(&mut self, sent: Sent) -> Option<&mut Pending> {
        let place = &mut self.places[sent.batch.at];
        place.pending.as_mut().filter(|_| place.generation == sent.batch.generation)
    }

    /// One of a batch's frames is answered, or never will be. The last one wakes whoever waits.
    pub(super) fn frame_ended(&mut self, sent: Sent) {
        let Some(pending) = self.of(sent) else { return };
        pending.frames -= 1;
        if pending.frames > 0 {
            return;
        }
        if pending.orphan {
            self.clear(sent.batch.at);
        } else if let Some(waker) = pending.waker.take() {
            waker.wake();
        }
    }

    /// A batch's result, when all its frames are answered.
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<Result<Batch, FabricError>> {
        let pending = self.places[ticket.at].pending.take_if(|pending| pending.frames == 0)?;
        self.free.push(ticket.at);
        Some(pending.error.map_or(Ok(pending.batch), Err))
    }

    /// Whom to wake when a batch is answered.
    pub(super) fn wait(&mut self, ticket: Ticket, waker: &Waker) {
        if let Some(pending) = &mut self.places[ticket.at].pending {
            match &mut pending.waker {
                Some(known) => known.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
    }

    /// Nobody waits for a batch any more; answers whether some of it is still on its way.
    pub(super) fn give_up(&mut self, ticket: Ticket) -> bool {
        let Some(pending) = &mut self.places[ticket.at].pending else { return false };
        if pending.frames == 0 {
            self.clear(ticket.at);
            return false;
        }
        pending.orphan = true;
        pending.waker = None;
        true
    }

    /// Batches of an endpoint that are on their way and that nobody waits for.
    pub(super) fn orphans_of(&self, endpoint: u64) -> usize {
        let pending = self.places.iter().filter_map(|place| place.pending.as_ref());
        pending.filter(|pending| pending.orphan && pending.endpoint == endpoint).count()
    }

    fn clear(&mut self, at: usize) {
        self.places[at].pending = None;
        self.free.push(at);
    }
}
