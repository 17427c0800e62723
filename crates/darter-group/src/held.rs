//! Replies that wait for a lease, or for backups to acknowledge the records that they depend on.
//! Each leaves as soon as it may, regardless of older replies: a read of an old value need not wait
//! for a write's acknowledgement.
//!
//! Most replies are to frames that have only read, and leave at the end of the turn that executed
//! them. So their words are stored consecutively in a buffer until then; replies that have to wait
//! longer get their own memory.

use super::answers::Answers;
use super::interface::{Outcome, Output};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// When a reply may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// When its record is at all backups: it depends on no other record.
    WithItsRecord,
    /// When this turn has ended and the clock was read.
    Executed,
    /// When a lease covers this moment, which was after the frame's execution.
    Leased(Duration),
}

/// A reply.
#[derive(Debug)]
struct Held {
    id: u64,
    /// The last record that it depends on.
    need: u64,
    leave: Leave,
    outcome: Outcome,
}

/// The reply to a frame of this turn that has only read.
#[derive(Debug)]
struct Fresh {
    connection: u64,
    id: u64,
    /// The last record that it depends on.
    need: u64,
    /// Its words.
    at: Range<usize>,
}

/// The replies of all connections.
#[derive(Debug, Default)]
pub(super) struct HeldReplies {
    connections: BTreeMap<u64, VecDeque<Held>>,
    count: usize,
    fresh: Vec<Fresh>,
    /// The words of the fresh replies.
    words: Vec<u8>,
}

impl HeldReplies {
    pub(super) fn len(&self) -> usize {
        self.count + self.fresh.len()
    }

    /// Returns the buffer to which a frame's results are appended.
    pub(super) fn words(&mut self) -> &mut Vec<u8> {
        &mut self.words
    }

    /// Removes and returns the words appended since `start`.
    pub(super) fn take_words(&mut self, start: usize) -> Arc<[u8]> {
        let words = self.words[start..].into();
        self.words.truncate(start);
        words
    }

    /// Holds the words appended since `start` as the reply to a frame that has only read.
    pub(super) fn hold_words(&mut self, connection: u64, id: u64, need: u64, start: usize) {
        let at = start..self.words.len();
        self.fresh.push(Fresh { connection, id, need, at });
    }

    pub(super) fn hold(&mut self, connection: u64, id: u64, need: u64, leave: Leave, outcome: Outcome) {
        let reply = Held { id, need, leave, outcome };
        self.connections.entry(connection).or_default().push_back(reply);
        self.count += 1;
    }

    /// Notes the clock's reading after the execution of all frames so far. Sends the replies that
    /// need nothing else; `covers` says whether a lease covers the moment.
    pub(super) fn executed(
        &mut self,
        clock: Duration,
        everywhere: u64,
        covers: impl Fn(Duration) -> bool,
        answers: &mut Answers,
    ) {
        let is_covered = covers(clock);
        let mut fresh = std::mem::take(&mut self.fresh);
        for Fresh { connection, id, need, at } in fresh.drain(..) {
            if need <= everywhere && is_covered {
                answers.push(connection, id, &self.words[at]);
            } else {
                let outcome = Outcome::Done(self.words[at].into());
                self.hold(connection, id, need, Leave::Leased(clock), outcome);
            }
        }
        self.fresh = fresh;
        self.words.clear();
        let new = self.connections.values_mut().flat_map(|replies| replies.iter_mut().rev());
        for reply in new.filter(|reply| reply.leave == Leave::Executed) {
            reply.leave = Leave::Leased(clock);
        }
    }

    /// Sends the replies that no longer wait. `covers` says whether a lease covers a moment.
    pub(super) fn release(
        &mut self,
        everywhere: u64,
        covers: impl Fn(Duration) -> bool,
        out: &mut Vec<Output>,
    ) {
        let may_leave = |reply: &Held| {
            reply.need <= everywhere
                && match reply.leave {
                    Leave::WithItsRecord => true,
                    Leave::Executed => false,
                    Leave::Leased(clock) => covers(clock),
                }
        };
        self.connections.retain(|&connection, replies| {
            for _ in 0..replies.len() {
                let Some(reply) = replies.pop_front() else { break };
                if may_leave(&reply) {
                    self.count -= 1;
                    out.push(Output::Reply { connection, id: reply.id, outcome: reply.outcome });
                } else {
                    replies.push_back(reply);
                }
            }
            !replies.is_empty()
        });
    }

    /// Replaces the outcome of all held replies.
    pub(super) fn refuse(&mut self, outcome: &Outcome, out: &mut Vec<Output>) {
        for (connection, replies) in std::mem::take(&mut self.connections) {
            for Held { id, .. } in replies {
                out.push(Output::Reply { connection, id, outcome: outcome.clone() });
            }
        }
        for Fresh { connection, id, .. } in self.fresh.drain(..) {
            out.push(Output::Reply { connection, id, outcome: outcome.clone() });
        }
        self.words.clear();
        self.count = 0;
    }

    /// Drops the replies to a connection that has ended.
    pub(super) fn end(&mut self, connection: u64) {
        self.count -= self.connections.remove(&connection).map_or(0, |replies| replies.len());
        self.fresh.retain(|reply| reply.connection != connection);
    }
}
