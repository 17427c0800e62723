//! Replies of one connection that wait for the log.

use darter_fabric::wire::{self, Refusal, ReplyHead};
use std::collections::VecDeque;

/// Replies in the order in which they are sent. Replies that are ready queue after those that wait.
#[derive(Debug, Default)]
pub(crate) struct HeldReplies {
    bytes: VecDeque<u8>,
    replies: VecDeque<Held>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    bytes: usize,
    /// The position up to which the log must be durable.
    need: u64,
    /// The message is not a reply to a request, but admits the client.
    is_welcome: bool,
}

impl HeldReplies {
    pub(crate) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// Returns the bytes of replies that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the memory in use, in bytes.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.bytes.capacity() + self.replies.capacity() * size_of::<Held>()
    }

    /// Frees the memory if no replies wait.
    pub(crate) fn rest(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }

    /// Moves one reply, from `at` of the output to its end, to the end of those that wait.
    pub(crate) fn hold(&mut self, output: &mut Vec<u8>, at: usize, need: u64, is_welcome: bool) {
        self.replies.push_back(Held { bytes: output.len() - at, need, is_welcome });
        self.bytes.extend(&output[at..]);
        output.truncate(at);
    }

    /// Moves the replies that no longer wait to the end of the output. Returns their number.
    pub(crate) fn release(&mut self, durable: u64, output: &mut Vec<u8>) -> u64 {
        let count = self.replies.iter().take_while(|reply| reply.need <= durable).count();
        let bytes = self.replies.drain(..count).map(|reply| reply.bytes).sum();
        let (front, back) = self.bytes.as_slices();
        let of_front = front.len().min(bytes);
        output.extend_from_slice(&front[..of_front]);
        output.extend_from_slice(&back[..bytes - of_front]);
        self.bytes.drain(..bytes);
        count as u64
    }

    /// Replaces all replies by refusals, at the end of the output: the log has failed, so the
    /// results in them may never be durable. Returns whether the client has been admitted.
    pub(crate) fn refuse(&mut self, text: &str, output: &mut Vec<u8>) -> bool {
        let text = &text.as_bytes()[..text.len().min(wire::TEXT_BYTES_MAX)];
        if self.replies.iter().any(|reply| reply.is_welcome) {
            *self = Self::default();
            return false;
        }
        for reply in self.replies.drain(..) {
            let bytes: Vec<u8> = self.bytes.drain(..reply.bytes).collect();
            if let Some(head) = wire::head::<ReplyHead>(&bytes) {
                let refusal = Refusal::NotDurable as u8;
                let head = ReplyHead { refusal, verbs: 0, bytes: text.len() as u32, ..head };
                output.extend_from_slice(wire::as_bytes(&head));
                output.extend_from_slice(text);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(id: u64) -> Vec<u8> {
        let head = ReplyHead { refusal: 0, reserved: 0, verbs: 1, bytes: 8, id };
        [wire::as_bytes(&head), &id.to_le_bytes()].concat()
    }

    #[test]
    fn replies_leave_in_their_order() {
        let (mut held, mut output) = (HeldReplies::default(), vec![9]);
        for (id, need) in [(1, 20), (2, 0), (3, 50), (4, 30)] {
            let at = output.len();
            output.extend(reply(id));
            held.hold(&mut output, at, need, false);
        }
        assert_eq!((output.len(), held.waiting()), (1, 4 * 24));
        assert_eq!(held.release(19, &mut output), 0);
        assert_eq!(held.release(30, &mut output), 2, "the fourth waits for the third");
        assert_eq!(output, [vec![9], reply(1), reply(2)].concat());
        assert_eq!(held.release(50, &mut output), 2);
        assert_eq!(output[1 + 48..], [reply(3), reply(4)].concat());
        assert!(held.is_empty() && held.waiting() == 0);
    }

    #[test]
    fn refusals_reply_to_the_same_requests() {
        let (mut held, mut output) = (HeldReplies::default(), Vec::new());
        for id in [7, 8] {
            output.extend(reply(id));
            held.hold(&mut output, 0, 1, false);
        }
        assert!(held.refuse("no", &mut output));
        assert!(held.is_empty() && output.len() == 2 * 18);
        for (at, id) in [(0, 7), (18, 8)] {
            let head: ReplyHead = wire::head(&output[at..]).unwrap();
            assert_eq!((head.refusal, head.bytes, head.id), (Refusal::NotDurable as u8, 2, id));
        }
        held.hold(&mut output, 0, 1, true);
        assert!(!held.refuse("no", &mut output) && held.is_empty() && output.is_empty());
    }
}
