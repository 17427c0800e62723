//! The requests of an admitted connection, by kind, and their replies.

use super::Peer;
use crate::error::MemNodeError;
use crate::metrics::DroppedFor;
use crate::service::Service;
use crate::sessions::Access;
use crate::workers::Call;
use darter_fabric::local::LocalEndpoint;
use darter_fabric::wire::{self, Control, Pairing, Refusal, ReplyHead, RequestHead, RequestKind};
use darter_fabric::{CallFault, Fabric, FabricError};

impl Peer {
    pub(super) fn take_request(
        &mut self,
        bytes: &[u8],
        service: &mut Service<'_>,
        endpoint: &mut LocalEndpoint,
    ) -> Option<usize> {
        let head: RequestHead = wire::head(bytes)?;
        if service.is_fenced(self.session) {
            self.refuse(&head, Refusal::Fenced, "this session was shut out");
            self.drop_for(DroppedFor::Fenced);
            return None;
        }
        let kind = RequestKind::from_code(head.kind);
        let (Some(kind), true) = (kind, head.bytes <= service.options.frame_bytes_max) else {
            self.refuse(&head, Refusal::Malformed, "a frame of no known kind, or too long");
            self.drop_for(DroppedFor::Malformed);
            return None;
        };
        let end = wire::HEADER_BYTES + head.bytes as usize;
        let payload = bytes.get(wire::HEADER_BYTES..end)?;
        service.metrics.frames.add(1);
        if let Some(why) = service.log_failure() {
            self.refuse(&head, Refusal::NotDurable, &why);
            return Some(end);
        }
        if let Some(why) = self.beyond_reading(kind, &head, payload, service, endpoint) {
            service.metrics.read_only_refusals.add(1);
            self.refuse(&head, Refusal::ReadOnly, why);
            return Some(end);
        }
        if service.group.is_some() {
            return self.take_grouped(kind, &head, payload, service).then_some(end);
        }
        match kind {
            RequestKind::Framed
            | RequestKind::Relay
            | RequestKind::Status
            | RequestKind::HandOver
            | RequestKind::Digest => {
                self.refuse(&head, Refusal::Failed, "this memory node is not a replica of a memory group");
                return Some(end);
            }
            RequestKind::Batch if service.queues.are_served() => {
                self.refuse(
                    &head,
                    Refusal::Failed,
                    "this memory node serves verbs over RDMA; use rdma:// in the pool's URL",
                );
                return Some(end);
            }
            RequestKind::Batch => {
                self.run_batch(&head, payload, service, endpoint);
                return Some(end);
            }
            RequestKind::Call => {
                self.call(&head, payload, service);
                return Some(end);
            }
            RequestKind::Pair => {
                self.pair(&head, payload, service);
                return Some(end);
            }
            _ => {}
        }
        let about = self.take_control(kind, &head, payload)?;
        let done = self.control(kind, about, service);
        service.end_fenced();
        // A persist waits for everything done before.
        self.need = service.note_facts();
        match done {
            Ok(refusal) => self.refuse(&head, refusal, ""),
            Err(error) => self.refuse(&head, Refusal::Failed, &error.to_string()),
        }
        Some(end)
    }

    /// Returns the arguments of a request; `None` if they are invalid, which ends the connection.
    pub(super) fn take_control(
        &mut self,
        kind: RequestKind,
        head: &RequestHead,
        payload: &[u8],
    ) -> Option<Control> {
        let about = wire::head::<Control>(payload).filter(|about| about.flag <= 1);
        let about = about.filter(|about| kind != RequestKind::Claim || about.number < wire::SLOTS_MAX);
        let about = about.filter(|_| payload.len() == size_of::<Control>());
        if about.is_none() {
            self.refuse(head, Refusal::Malformed, "a request with invalid arguments");
            self.drop_for(DroppedFor::Malformed);
        }
        about
    }

    /// Carries out a request about slots, sessions or the region.
    pub(super) fn control(
        &mut self,
        kind: RequestKind,
        about: Control,
        service: &mut Service<'_>,
    ) -> Result<Refusal, MemNodeError> {
        match kind {
            RequestKind::Claim if self.access == Access::Read => {
                Ok(service.sessions.claim_to_read(about.number, self.session, service.now))
            }
            RequestKind::Claim => service.sessions.claim(about.number, self.session),
            RequestKind::Fence => service.sessions.fence(about.number, about.flag == 1),
            RequestKind::Release => {
                service.sessions.release(about.number, self.session);
                Ok(Refusal::None)
            }
            RequestKind::Persist => {
                service.region.persist().map(|()| Refusal::None).map_err(MemNodeError::from)
            }
            _ => Ok(Refusal::Malformed),
        }
    }

    /// Pairs a queue of the client with one of the node. A connection has one at most.
    fn pair(&mut self, head: &RequestHead, payload: &[u8], service: &mut Service<'_>) {
        let theirs = wire::head::<Pairing>(payload).filter(|_| payload.len() == size_of::<Pairing>());
        let Some(theirs) = theirs else {
            self.refuse(head, Refusal::Malformed, "an invalid pairing request");
            self.drop_for(DroppedFor::Malformed);
            return;
        };
        if self.queue.is_some() {
            return self.refuse(head, Refusal::Busy, "this connection already has a queue pair");
        }
        match service.pair(self.session, &theirs) {
            Ok((queue, ours)) => {
                self.queue = Some(queue);
                self.reply(head.id, Refusal::None, wire::as_bytes(&ours));
            }
            Err((refusal, text)) => self.refuse(head, refusal, &text),
        }
    }

    /// Passes a call to the workers, or refuses it.
    fn call(&mut self, head: &RequestHead, payload: &[u8], service: &mut Service<'_>) {
        let Some((procedure, words)) = wire::take_call(payload) else {
            self.refuse(head, Refusal::Malformed, "a call whose length is not a multiple of a word");
            self.drop_for(DroppedFor::Malformed);
            return;
        };
        let (peer, id, session) = (self.key, head.id, self.session);
        match service.workers.submit(Call { peer, id, session, procedure, words }) {
            Ok(()) => self.calls += 1,
            Err(fault) => self.answer(id, Err(fault)),
        }
    }

    /// Replies to a call that has an outcome.
    pub(crate) fn finish_call(
        &mut self,
        id: u64,
        result: Result<Vec<u64>, CallFault>,
        service: &mut Service<'_>,
    ) {
        self.calls -= 1;
        let at = self.output.bytes.len();
        self.answer(id, result);
        self.need = 0;
        self.hold_back(at, false, service);
    }

    fn answer(&mut self, id: u64, result: Result<Vec<u64>, CallFault>) {
        match result {
            Ok(words) => self.reply(id, Refusal::None, bytemuck::cast_slice(&words)),
            Err(fault) => {
                let (refusal, payload) = wire::put_fault(&fault);
                self.reply(id, refusal, &payload);
            }
        }
    }

    fn run_batch(
        &mut self,
        head: &RequestHead,
        payload: &[u8],
        service: &mut Service<'_>,
        endpoint: &mut LocalEndpoint,
    ) {
        let verbs = wire::FrameVerbs::new(payload, head.verbs, service.options.frame_bytes_max);
        let Some(verbs) = verbs else {
            self.refuse(head, Refusal::Malformed, "a batch that does not match its head");
            self.drop_for(DroppedFor::Malformed);
            return;
        };
        let at = self.output.bytes.len();
        self.output.bytes.extend_from_slice(&[0; wire::HEADER_BYTES]);
        let out = &mut self.output.bytes;
        let counts = verbs.counts();
        let executed = match &mut service.journal {
            Some(journal) => journal.execute(endpoint, verbs, out),
            None => endpoint.execute_frame(verbs, out).map(|()| 0),
        };
        match executed {
            Ok(need) => {
                self.need = need;
                let bytes = (self.output.bytes.len() - at - wire::HEADER_BYTES) as u32;
                let reply = ReplyHead {
                    refusal: Refusal::None as u8,
                    reserved: 0,
                    verbs: head.verbs,
                    bytes,
                    id: head.id,
                };
                self.output.bytes[at..at + wire::HEADER_BYTES].copy_from_slice(wire::as_bytes(&reply));
                service.metrics.executed(counts);
            }
            Err(error) => {
                let refusal = match error {
                    FabricError::OutOfBounds(_) => Refusal::OutOfBounds,
                    FabricError::Misaligned { .. } => Refusal::Misaligned,
                    _ => Refusal::Failed,
                };
                self.output.bytes.truncate(at);
                self.refuse(head, refusal, &error.to_string());
            }
        }
    }

    /// Replies without words: with a refusal and its text, or with success.
    pub(super) fn refuse(&mut self, head: &RequestHead, refusal: Refusal, text: &str) {
        self.reply(head.id, refusal, &text.as_bytes()[..text.len().min(wire::TEXT_BYTES_MAX)]);
    }

    /// Replies with a payload that is not results of verbs.
    pub(super) fn reply(&mut self, id: u64, refusal: Refusal, payload: &[u8]) {
        let reply =
            ReplyHead { refusal: refusal as u8, reserved: 0, verbs: 0, bytes: payload.len() as u32, id };
        self.output.bytes.extend_from_slice(wire::as_bytes(&reply));
        self.output.bytes.extend_from_slice(payload);
    }
}
