//! Calls on a connection: sending them, and handling their replies. A call's frame is like any
//! other; its reply comes when the procedure has ended.

use super::batches::{Pending, Ticket};
use super::connection::Connection;
use crate::wire::{self, Refusal, RequestKind};
use crate::{ANSWER_WORDS_MAX, CALL_WORDS_MAX, verify_request};

/// Puts a call on a connection.
pub(super) fn post_call(connection: &mut Connection, ticket: Ticket, pending: &mut Pending) {
    let Some(called) = &mut pending.called else { return };
    let max = CALL_WORDS_MAX.min(connection.frame_bytes as usize / 8 - 1);
    if let Err(fault) = verify_request(called.words.len(), max) {
        pending.error.get_or_insert(fault.of(called.node, called.procedure));
        return;
    }
    let at = connection.begin_frame();
    wire::put_call(&mut connection.out.bytes, called.procedure, &called.words);
    let id = connection.end_frame(at, RequestKind::Call, 0);
    connection.calls.insert(id, ticket);
    pending.parts += 1;
}

/// Handles a node's reply to a call. Returns whether it is valid.
pub(super) fn take_reply_to_call(pending: &mut Pending, node: u8, refusal: Refusal, payload: &[u8]) -> bool {
    let Some(called) = &mut pending.called else { return false };
    if refusal == Refusal::None {
        let answer = wire::take_words(payload).filter(|words| words.len() <= ANSWER_WORDS_MAX);
        let Some(answer) = answer else {
            pending.lost(node);
            return false;
        };
        called.words = answer;
        return true;
    }
    let error = wire::take_fault(refusal, payload).map_or_else(
        || {
            let text = &payload[..payload.len().min(wire::TEXT_BYTES_MAX)];
            wire::error_of(refusal, node, &String::from_utf8_lossy(text))
        },
        |fault| fault.of(node, called.procedure),
    );
    pending.error.get_or_insert(error);
    true
}
