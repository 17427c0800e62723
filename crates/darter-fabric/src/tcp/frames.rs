//! The frames of a batch: one or more for each node.

use super::batches::{Pending, Ticket};
use super::calls::post_call;
use super::connection::{Connection, Sent};
use crate::rdma::Posted;
use crate::wire::{self, FramedHead};
use crate::{FabricError, Verb};

/// Bytes of frames that are sent before the next turn, so that the node works while this thread
/// polls its other tasks.
const SENT_AT_ONCE: usize = 16 << 10;

/// Puts a batch's verbs for one node, starting with the given one, on its connection, in as many
/// frames as necessary; or on its device, with which the batch's words are registered.
pub(super) fn post_to(
    connection: &mut Connection,
    node: u8,
    ticket: Ticket,
    first: usize,
    pending: &mut Pending,
) {
    if pending.called.is_some() {
        return post_call(connection, ticket, pending);
    }
    if let Some(lane) = &mut connection.lane {
        match lane.post(ticket, &mut pending.batch) {
            Ok(Posted::Pending) => pending.parts += 1,
            Ok(Posted::Done) => {}
            Err(error) => drop(pending.error.get_or_insert(error)),
        }
        return;
    }
    // One verb may be as long as a frame; a group's frame has an additional head.
    let head = if connection.view.is_some() { size_of::<FramedHead>() } else { 0 };
    let limit = connection.frame_bytes as usize - head;
    let (verbs, data) = pending.batch.parts_mut();
    let mut whole = Frame::default();
    let mut longest = 0;
    for verb in verbs[first..].iter().filter(|verb| verb.addr.node() == node) {
        let (there, back) = bytes_of(verb);
        longest = longest.max(there).max(back);
        whole.add(there, back);
    }
    if longest > limit {
        pending.error.get_or_insert(too_long(node, verbs, limit));
        return;
    }
    let mut from = first;
    while from < verbs.len() {
        let end = if whole.fits(limit) { verbs.len() } else { frame_end(node, verbs, from, limit) };
        let id = connection.put_verbs(None, node, &verbs[from..end], data);
        connection.sent.push_back(Sent { id, batch: ticket, first: from, end });
        pending.parts += 1;
        from = end;
    }
    if connection.out.waiting() >= SENT_AT_ONCE {
        // An error occurs again at the next turn, which handles it.
        let _ = connection.flush();
    }
}

/// The size of a frame.
#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    /// Payload bytes of the request and of its reply.
    there: usize,
    back: usize,
    verbs: usize,
}

impl Frame {
    #[inline]
    fn add(&mut self, there: usize, back: usize) {
        self.there += there;
        self.back += back;
        self.verbs += 1;
    }

    #[inline]
    fn fits(&self, limit: usize) -> bool {
        self.there <= limit && self.back <= limit && self.verbs <= wire::VERBS_MAX
    }
}

/// Returns the payload bytes of a verb in the request and in its reply.
#[inline]
fn bytes_of(verb: &Verb) -> (usize, usize) {
    (wire::HEADER_BYTES + verb.request_words() * 8, verb.reply_words() * 8)
}

/// Returns the end of the verbs from `from` on whose frame for a node is within the limits.
#[cold]
fn frame_end(node: u8, verbs: &[Verb], from: usize, limit: usize) -> usize {
    let mut frame = Frame::default();
    let exceeds = |verb: &Verb| {
        if verb.addr.node() == node {
            let (there, back) = bytes_of(verb);
            frame.add(there, back);
        }
        !frame.fits(limit)
    };
    verbs[from..].iter().position(exceeds).map_or(verbs.len(), |count| from + count)
}

/// Returns the error of a batch for a node with a verb that is longer than a frame.
#[cold]
fn too_long(node: u8, verbs: &[Verb], limit: usize) -> FabricError {
    let is_too_long = |verb: &&Verb| {
        let (there, back) = bytes_of(verb);
        verb.addr.node() == node && there.max(back) > limit
    };
    let Some(verb) = verbs.iter().find(is_too_long) else { return FabricError::Unreachable { node } };
    FabricError::geometry(format!(
        "a verb of {} bytes at {}; memory node {node} accepts at most {limit} in one",
        u64::from(verb.words) * 8,
        verb.addr
    ))
}

#[cfg(test)]
mod tests {
    use super::super::batches::Batches;
    use super::super::connection::tests::connected;
    use super::*;
    use crate::{Batch, GlobalAddr};

    /// Posts a batch for node 1 with a limit of 256 bytes. Returns the ranges of its frames.
    fn frames(batch: Batch) -> Result<Vec<(usize, usize)>, FabricError> {
        let (mut connection, _node) = connected();
        connection.frame_bytes = 256;
        let mut batches = Batches::default();
        let first = batch.verbs().iter().position(|verb| verb.addr.node() == 1).unwrap();
        let (ticket, pending) = batches.put(batch, None, std::task::Waker::noop());
        post_to(&mut connection, 1, ticket, first, pending);
        let sent: Vec<_> = connection.sent.iter().map(|sent| (sent.first, sent.end)).collect();
        assert_eq!(pending.parts, sent.len());
        pending.error.take().map_or(Ok(sent), Err)
    }

    #[test]
    fn a_batch_larger_than_a_frame_is_split_in_both_directions() {
        let at = |node| GlobalAddr::new(node, 64);
        let mut reads = Batch::new();
        reads.read(at(0), 1000);
        for _ in 0..5 {
            reads.read(at(1), 15);
        }
        reads.write(at(0), &[0; 1000]);
        assert_eq!(frames(reads).unwrap(), [(1, 3), (3, 5), (5, 7)]);
        let mut writes = Batch::new();
        for _ in 0..5 {
            writes.write(at(1), &[0; 14]);
        }
        assert_eq!(frames(writes).unwrap(), [(0, 2), (2, 4), (4, 5)]);
        let mut whole = Batch::new();
        whole.write(at(1), &[0; 30]);
        assert_eq!(frames(whole).unwrap(), [(0, 1)]);
    }

    #[test]
    fn a_verb_longer_than_a_frame_is_refused_and_nothing_is_sent() {
        let mut batch = Batch::new();
        batch.read(GlobalAddr::new(1, 64), 1);
        batch.write(GlobalAddr::new(1, 128), &[0; 31]);
        let error = frames(batch).unwrap_err().to_string();
        assert!(error.contains("a verb of 248 bytes") && error.contains("at most 256"), "{error}");
    }

    #[test]
    fn a_frame_has_at_most_the_maximum_of_verbs() {
        let mut batch = Batch::new();
        for _ in 0..=wire::VERBS_MAX {
            batch.read(GlobalAddr::new(1, 64), 0);
        }
        let all = batch.verbs();
        assert_eq!(frame_end(1, all, 0, 1 << 20), wire::VERBS_MAX);
        assert_eq!(frame_end(1, all, wire::VERBS_MAX, 1 << 20), wire::VERBS_MAX + 1);
    }
}
