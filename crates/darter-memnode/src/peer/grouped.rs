//! A connection to a replica of a memory group: clients' frames, other replicas' messages, and
//! operators' requests.

use super::Peer;
use crate::group::Group;
use crate::metrics::DroppedFor;
use crate::redo_log::Fact;
use crate::service::Service;
use darter_fabric::wire::{self, FrameVerbs, FramedHead, Refusal, RequestHead, RequestKind};
use darter_group::{FrameId, Message, Outcome};

/// A connection's state in the group.
#[derive(Debug, Default)]
pub(super) struct Grouped {
    /// The number of the channel in its session.
    pub(super) channel: u32,
    /// The number of the channel's connections so far.
    pub(super) attempt: u32,
    /// The number of requests whose outcome is not known yet.
    pub(super) requests: usize,
    /// The parts received so far of a replica's message.
    partial: Vec<u8>,
}

impl Grouped {
    /// Returns whether the peer is another replica.
    pub(super) fn is_replica(&self) -> bool {
        self.channel == wire::RELAY_CHANNEL
    }

    pub(super) fn buffer_bytes(&self) -> usize {
        self.partial.capacity()
    }
}

impl Peer {
    /// Handles a request to a replica. Returns whether the connection goes on.
    pub(super) fn take_grouped(
        &mut self,
        kind: RequestKind,
        head: &RequestHead,
        payload: &[u8],
        service: &mut Service<'_>,
    ) -> bool {
        match kind {
            RequestKind::Framed => return self.take_framed(head, payload, service),
            RequestKind::Relay => return self.take_relayed(head, payload, service),
            RequestKind::Status => {
                let status = service.group.as_ref().map(Group::status).unwrap_or_default();
                self.reply(head.id, Refusal::None, &status);
                return true;
            }
            RequestKind::Batch | RequestKind::Pair => {
                let text = "this is one replica of a memory group; name all replicas as one node, for example `a:7000+b:7000`";
                self.refuse(head, Refusal::Failed, text);
                return true;
            }
            RequestKind::Call => {
                self.refuse(head, Refusal::NoServer, "");
                return true;
            }
            _ => {}
        }
        let Some(about) = self.take_control(kind, head, payload) else { return false };
        if kind == RequestKind::Digest {
            match service.group.as_ref().and_then(|group| group.digest(about.number)) {
                Some(digest) => self.reply(head.id, Refusal::None, wire::as_bytes(&digest)),
                None => {
                    self.refuse(
                        head,
                        Refusal::Failed,
                        "this replica is not a member of the group, or has no such part",
                    );
                }
            }
            return true;
        }
        // A client of a replica that does not serve must turn to the serving replica.
        if service.group.as_ref().is_none_or(|group| !group.serves()) {
            self.reply(head.id, Refusal::View, &[]);
            return true;
        }
        if kind == RequestKind::HandOver {
            if let Some(group) = &mut service.group {
                group.hand_over(about.number);
            }
            self.reply(head.id, Refusal::None, &[]);
            return true;
        }
        match self.control(kind, about, service) {
            Ok(Refusal::None) => self.settle(head, service),
            Ok(refusal) => self.refuse(head, refusal, ""),
            Err(error) => self.refuse(head, Refusal::Failed, &error.to_string()),
        }
        true
    }

    /// Replies to a request about sessions when the other replicas know its result.
    fn settle(&mut self, head: &RequestHead, service: &mut Service<'_>) {
        service.end_fenced();
        let fenced = service.sessions.take_facts().filter_map(|fact| match fact {
            Fact::Fenced(session) => Some(session),
            Fact::Entered(_) => None,
        });
        let frame = FrameId { session: self.session, channel: 0, id: head.id, answered: 0 };
        let outcome = service.group.as_mut().and_then(|group| group.settle(self.key, frame, fenced));
        self.group.requests += 1;
        if let Some(outcome) = outcome {
            self.finish_grouped(head.id, outcome);
        }
    }

    /// Passes a client's frame to the replica.
    fn take_framed(&mut self, head: &RequestHead, payload: &[u8], service: &mut Service<'_>) -> bool {
        let parts = wire::head::<FramedHead>(payload).and_then(|framed| {
            let verbs = &payload[size_of::<FramedHead>()..];
            Some((framed, FrameVerbs::new(verbs, head.verbs, service.options.frame_bytes_max)?))
        });
        let Some((framed, verbs)) = parts else {
            self.refuse(head, Refusal::Malformed, "a batch that does not match its head");
            self.drop_for(DroppedFor::Malformed);
            return false;
        };
        service.metrics.executed(verbs.counts());
        let (session, channel) = (self.session, self.group.channel);
        let frame = FrameId { session, channel, id: head.id, answered: framed.answered };
        let outcome = service
            .group
            .as_mut()
            .and_then(|group| group.request((self.key, self.group.attempt), frame, framed, verbs));
        self.group.requests += 1;
        if let Some(outcome) = outcome {
            self.finish_grouped(head.id, outcome);
        }
        true
    }

    /// Processes a part of another replica's message.
    fn take_relayed(&mut self, head: &RequestHead, payload: &[u8], service: &mut Service<'_>) -> bool {
        let has_more = head.verbs == 1;
        let is_too_long = self.group.partial.len() + payload.len() > wire::MESSAGE_BYTES_MAX;
        if !self.group.is_replica() || is_too_long || head.verbs > 1 {
            self.drop_for(DroppedFor::Malformed);
            return false;
        }
        if has_more || !self.group.partial.is_empty() {
            self.group.partial.extend_from_slice(payload);
            if has_more {
                return true;
            }
        }
        let partial = std::mem::take(&mut self.group.partial);
        let message = Message::take(if partial.is_empty() { payload } else { &partial });
        let (Some(message), Some(group)) = (message, &mut service.group) else {
            self.drop_for(DroppedFor::Malformed);
            return false;
        };
        let is_newest = group.receive(self.session, self.group.attempt, message);
        // Messages still in an older connection are outdated by those of the newer one.
        self.is_closing |= !is_newest;
        is_newest
    }

    /// Replies to an executed frame, with these words.
    pub(crate) fn finish_answered(&mut self, id: u64, words: &[u8]) {
        self.group.requests = self.group.requests.saturating_sub(1);
        self.reply(id, Refusal::None, words);
    }

    /// Replies to a request that has an outcome.
    pub(crate) fn finish_grouped(&mut self, id: u64, outcome: Outcome) {
        let (refusal, text) = match outcome {
            Outcome::Done(words) => return self.finish_answered(id, &words),
            Outcome::Fenced => (Refusal::Fenced, "this session was shut out"),
            Outcome::View(_) => (Refusal::View, ""),
            Outcome::Later => (Refusal::Later, ""),
            Outcome::OutOfBounds => (Refusal::OutOfBounds, "a verb outside the region"),
        };
        self.group.requests = self.group.requests.saturating_sub(1);
        self.reply(id, refusal, text.as_bytes());
        if refusal == Refusal::Fenced {
            self.drop_for(DroppedFor::Fenced);
        }
    }
}
