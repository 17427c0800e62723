//! The frames of a batch: one or more for each node.

use super::batches::{Pending, Ticket};
use super::calls::post_call;
use super::connection::{Connection, Sent};
use crate::rdma::Posted;
use crate::wire::{self, FramedHead};
use crate::{FabricError, Verb};

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
    let size = |verb: &Verb| {
        let there = wire::HEADER_BYTES + verb.request_words() * 8;
        (there, verb.reply_words() * 8)
    };
    let is_too_long = |verb: &&Verb| verb.addr.node() == node && size(verb).0.max(size(verb).1) > limit;
    if let Some(verb) = verbs.iter().find(is_too_long) {
        pending.error.get_or_insert(FabricError::geometry(format!(
            "a verb of {} bytes at {}; memory node {node} accepts at most {limit} in one",
            u64::from(verb.words) * 8,
            verb.addr
        )));
        return;
    }
    let mut from = first;
    while from < verbs.len() {
        let (mut there, mut back, mut count, mut end) = (0, 0, 0, from);
        while end < verbs.len() {
            let verb = &verbs[end];
            if verb.addr.node() == node {
                let (more, answer) = size(verb);
                let is_answer_too_long = back + answer > limit;
                if there + more > limit || is_answer_too_long || count == wire::VERBS_MAX {
                    break;
                }
                (there, back, count) = (there + more, back + answer, count + 1);
            }
            end += 1;
        }
        let id = connection.put_verbs(None, node, &verbs[from..end], data);
        connection.sent.push_back(Sent { id, batch: ticket, first: from, end });
        pending.parts += 1;
        from = end;
    }
}
