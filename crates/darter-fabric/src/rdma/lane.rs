//! A client's connection to one memory node: the verbs of batches become chains of work requests,
//! which end with their completions.
//!
//! A batch's verbs for the node are one chain, posted with one call. Only its last work request is
//! signalled, since a reliable connection completes in order. A chain is cut in three cases: the
//! queue has no room for all of it, the device loses fenced requests and one follows a READ or an
//! atomic, or the device refused to take more. The rest is posted when the part before it has
//! completed.

use super::queue::{CompletionQueue, POLL_MAX, Queue};
use super::verbs::{self, IbvSendWr, IbvSge, IbvWc};
use crate::{Batch, FabricError, Verb, VerbKind};
use std::collections::VecDeque;
use std::io;
use std::ptr;

/// A memory node's region, as its device identifies it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub node: u8,
    /// The node's address of the region's first byte.
    pub base: u64,
    pub bytes: u64,
    /// The node's key of the region.
    pub key: u32,
}

/// Start of the part of a batch that has not been posted yet.
#[derive(Clone, Copy, Debug)]
struct Rest<T> {
    batch: T,
    verb: usize,
    /// Words of that verb that were already posted: a transfer above the longest message is sent in
    /// pieces.
    words: u32,
}

/// Work requests posted together, the last of them signalled.
#[derive(Debug)]
struct Chain<T> {
    batch: T,
    requests: u32,
    /// Posted after these have completed.
    rest: Option<Rest<T>>,
}

/// State of a batch's verbs for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    /// They move no words, so nothing had to be sent.
    Done,
    /// They are posted, or will be when the queue has room.
    Pending,
}

/// The queue pair to a node, with the batches (`T` identifies one) that are in flight on it.
#[derive(Debug)]
pub(crate) struct Lane<T> {
    queue: Queue,
    target: Target,
    /// The id in completions: the lane, and the node's number in the low byte.
    id: u64,
    sent: VecDeque<Chain<T>>,
    waiting: VecDeque<Rest<T>>,
    /// Work requests that still fit into the queue.
    free: u32,
    /// The device has refused to take more.
    is_broken: bool,
    /// Fenced requests wait here until the requests before them have completed.
    holds_fenced: bool,
    piece_words: u32,
    requests: Vec<IbvSendWr>,
    places: Vec<IbvSge>,
    /// Number of posting calls so far.
    pub posts: u64,
}

// SAFETY: the pointers in `requests` point into `places` and are used only while a chain is posted.
unsafe impl<T: Send> Send for Lane<T> {}
// SAFETY: as above; shared access reads none of them.
unsafe impl<T: Sync> Sync for Lane<T> {}

impl<T: Copy> Lane<T> {
    /// Takes a connected queue pair. `number` must differ from that of every other lane with the
    /// same completion queue.
    pub(crate) fn new(queue: Queue, target: Target, number: u64) -> Self {
        let device = queue.device();
        Self {
            free: queue.depth,
            is_broken: false,
            holds_fenced: device.forgets_fences(),
            piece_words: (device.message_bytes_max() / 8) as u32,
            requests: Vec::with_capacity(queue.depth as usize),
            places: Vec::with_capacity(queue.depth as usize),
            queue,
            target,
            id: number << 8 | u64::from(target.node),
            sent: VecDeque::new(),
            waiting: VecDeque::new(),
            posts: 0,
        }
    }

    /// Returns the id in its completions.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Returns whether completions are expected.
    pub(crate) fn is_busy(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Returns whether the device has refused a request, after which only [`Lane::end`] is useful.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Returns the error of the first of a batch's verbs that lies outside the node's region. A
    /// device would end the connection for it.
    fn check(&self, verbs: &[Verb]) -> Result<(), FabricError> {
        for verb in verbs.iter().filter(|verb| verb.addr.node() == self.target.node) {
            let bytes = u64::from(verb.words) * 8;
            if !verb.addr.offset().is_multiple_of(8) {
                return Err(FabricError::Misaligned { addr: verb.addr });
            }
            if verb.addr.offset() + bytes > self.target.bytes {
                return Err(FabricError::out_of_bounds(verb.addr, bytes, self.target.bytes));
            }
        }
        Ok(())
    }

    /// Posts a batch's verbs for the node, or queues them. The batch's words are lent memory, and
    /// stay there until [`Lane::completed`] or [`Lane::end`] returns it.
    ///
    /// # Errors
    /// Fails if a verb's address is wrong; then none is posted.
    #[inline]
    pub(crate) fn post(&mut self, name: T, batch: &mut Batch) -> Result<Posted, FabricError> {
        self.check(batch.verbs())?;
        let whole = Rest { batch: name, verb: 0, words: 0 };
        if !self.waiting.is_empty() || self.free == 0 {
            self.waiting.push_back(whole);
            return Ok(Posted::Pending);
        }
        Ok(self.send(whole, batch))
    }

    /// Builds and posts as much of a batch as there is room for.
    fn send(&mut self, from: Rest<T>, batch: &mut Batch) -> Posted {
        self.requests.clear();
        self.places.clear();
        let key = batch.device_key();
        let (verbs, data) = batch.parts_mut();
        let base = data.as_mut_ptr().expose_provenance() as u64;
        let mut rest = None;
        let mut has_answers = false;
        for (at, verb) in verbs.iter().enumerate().skip(from.verb) {
            if verb.addr.node() != self.target.node || verb.words == 0 {
                continue;
            }
            let mut done = if at == from.verb { from.words } else { 0 };
            if verb.is_fenced && self.holds_fenced && has_answers {
                rest = Some(Rest { batch: from.batch, verb: at, words: 0 });
                break;
            }
            while done < verb.words && self.requests.len() < self.free as usize {
                let words = (verb.words - done).min(self.piece_words);
                self.add(verb, (done, words), base, key, data, verb.is_fenced && !self.holds_fenced);
                done += words;
            }
            if done < verb.words {
                rest = Some(Rest { batch: from.batch, verb: at, words: done });
                break;
            }
            has_answers |= verb.kind != VerbKind::Write;
        }
        let Some(last) = self.requests.last_mut() else { return Posted::Done };
        last.send_flags |= verbs::SEND_SIGNALED;
        let count = self.requests.len();
        for at in 0..count {
            self.requests[at].sg_list = &raw mut self.places[at];
            let next = if at + 1 < count { &raw mut self.requests[at + 1] } else { ptr::null_mut() };
            self.requests[at].next = next;
        }
        self.posts += 1;
        self.free -= count as u32;
        self.sent.push_back(Chain { batch: from.batch, requests: count as u32, rest });
        // If a chain is refused, a part of it may be posted; all of it stays listed.
        // SAFETY: the words stay in place until the chain has completed or the queue is gone, as
        // the caller of `post` guarantees; they are in `batch`, which is not read until then.
        self.is_broken |= unsafe { self.queue.post(self.requests.as_mut_ptr()) }.is_err();
        Posted::Pending
    }

    /// Adds the work request for the words of a verb, starting at `done`.
    #[inline]
    fn add(
        &mut self,
        verb: &Verb,
        (done, words): (u32, u32),
        base: u64,
        key: u32,
        data: &[u64],
        is_fenced: bool,
    ) {
        let at = verb.at as usize + done as usize;
        let bytes = words * 8;
        let remote = self.target.base + verb.addr.offset() + u64::from(done) * 8;
        let operands = match verb.kind {
            VerbKind::Read | VerbKind::Write => [0; 2],
            VerbKind::Cas => [data[at], data[at + 1]],
            VerbKind::Faa => [data[at], 0],
        };
        let mut request = self.queue.request(verb.kind, remote, self.target.key, operands, bytes);
        request.wr_id = self.id;
        if is_fenced {
            request.send_flags |= verbs::SEND_FENCE;
        }
        self.places.push(IbvSge { addr: base + at as u64 * 8, length: bytes, lkey: key });
        self.requests.push(request);
    }

    /// Records that the oldest chain has completed. Returns its batch if that was the last of its
    /// verbs for the node.
    pub(crate) fn completed(&mut self) -> Option<T> {
        let chain = self.sent.pop_front()?;
        self.free += chain.requests;
        let Some(rest) = chain.rest else {
            return Some(chain.batch);
        };
        self.waiting.push_front(rest);
        None
    }

    /// Returns the batch whose verbs must be posted next, if there is room for any.
    pub(crate) fn next_waiting(&self) -> Option<T> {
        self.waiting.front().filter(|_| self.free > 0).map(|rest| rest.batch)
    }

    /// Posts more of the batch that [`Lane::next_waiting`] returned.
    pub(crate) fn post_waiting(&mut self, batch: &mut Batch) -> Posted {
        self.waiting.pop_front().map_or(Posted::Pending, |rest| self.send(rest, batch))
    }

    /// Removes the batch that [`Lane::next_waiting`] returned.
    pub(crate) fn skip_waiting(&mut self) {
        self.waiting.pop_front();
    }

    /// Destroys the queue pair, after which no verb takes effect, and returns the batches that were
    /// in flight on it.
    pub(crate) fn end(self) -> impl Iterator<Item = T> {
        let Self { queue, sent, waiting, .. } = self;
        drop(queue);
        // A batch with an unposted rest is listed once.
        sent.into_iter().map(|chain| chain.batch).chain(waiting.into_iter().map(|rest| rest.batch))
    }
}

impl CompletionQueue {
    /// Passes each completion to `each`: the lane's id, and whether it succeeded. Returns whether
    /// there were any.
    ///
    /// # Errors
    /// Fails if the queue is broken.
    #[inline]
    pub(crate) fn drain(&self, mut each: impl FnMut(u64, bool)) -> io::Result<bool> {
        let mut completions = [IbvWc::default(); POLL_MAX as usize];
        let mut has_moved = false;
        loop {
            let count = self.poll(&mut completions)?;
            has_moved |= count > 0;
            for completion in &completions[..count] {
                each(completion.wr_id, completion.status == verbs::WC_SUCCESS);
            }
            if count < completions.len() {
                return Ok(has_moved);
            }
        }
    }
}
