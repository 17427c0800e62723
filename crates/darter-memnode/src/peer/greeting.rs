//! The handshake of a connection: hello, challenge, proof, welcome.

use super::Peer;
use crate::limits::{Shown, TenantId};
use crate::metrics::RefusedFor;
use crate::service::Service;
use crate::sessions::Access;
use darter_fabric::Fabric;
use darter_fabric::wire::proof::{Nonce, Proof, Side, Transcript, nonce};
use darter_fabric::wire::{self, Challenge, Hello, Opening, Refusal, Versions, Welcome};

impl Peer {
    pub(super) fn take_hello(&mut self, bytes: &[u8], service: &mut Service<'_>) -> Option<usize> {
        let opening: Opening = wire::head(bytes)?;
        if opening.magic != wire::MAGIC {
            // The client speaks another protocol and would not understand a reply.
            self.is_closing = true;
            service.refused(self.address, RefusedFor::Protocol);
            return None;
        }
        let challenged = if Versions::SPOKEN.include(opening.version) {
            let Hello { nonce: client, session, channel, attempt, .. } = wire::head(bytes)?;
            (self.group.channel, self.group.attempt) = (channel, attempt);
            self.knows_read_only = opening.code & wire::KNOWS_READ_ONLY != 0;
            // Without random numbers no client can be accepted.
            nonce().map(|node| Transcript { client, node, session }).map_err(|_| Refusal::Failed)
        } else {
            Err(Refusal::Version)
        };
        let challenge = match challenged {
            Ok(transcript) => {
                self.transcript = Some(transcript);
                let mut challenge = Challenge::new(Refusal::None, transcript.node);
                challenge.opening.version = opening.version;
                challenge
            }
            Err(refusal) => {
                self.is_closing = true;
                service.refused(self.address, refusal.into());
                Challenge::new(refusal, Nonce::default())
            }
        };
        self.output.bytes.extend_from_slice(wire::as_bytes(&challenge));
        Some(size_of::<Hello>())
    }

    pub(super) fn take_proof(
        &mut self,
        transcript: &Transcript,
        bytes: &[u8],
        service: &mut Service<'_>,
    ) -> Option<usize> {
        let proof: Proof = wire::head(bytes)?;
        let tokens = service.options.token.current();
        let is_shown = |token: &[u8]| transcript.is_proven(token, Side::Client, &proof);
        let own = tokens.iter().find(|token| is_shown(token)).map(<[u8]>::to_vec);
        let own = if tokens.is_empty() { Some(Vec::new()) } else { own };
        service.gate.renew(service.now);
        let readers = service.options.read_only_token.current();
        let shown = |token, reads_only| Shown { tenant: TenantId::default(), token, reads_only };
        // A token that is also among those of another kind may only read.
        let reads = readers.iter().find(|token| is_shown(token)).map(|token| shown(token.to_vec(), true));
        let known = reads.or_else(|| service.gate.shown(is_shown)).or(own.map(|token| shown(token, false)));
        let access =
            if known.as_ref().is_some_and(|shown| shown.reads_only) { Access::Read } else { Access::Write };
        let failure = service.log_failure();
        let (refusal, text) = if known.is_none() {
            (Refusal::Credentials, "missing or wrong token")
        } else if let Some(why) = self.needs_to_write(access, transcript.session, service) {
            (Refusal::Credentials, why)
        } else if let Some(ended) = service.refusal(transcript.session) {
            ended
        } else if let Some(why) = &failure {
            (Refusal::NotDurable, &**why)
        } else if service.is_draining {
            (Refusal::Closing, "the node is stopping")
        } else if service.greeted >= service.connections_max {
            (Refusal::Busy, "too many connections")
        } else {
            (Refusal::None, "")
        };
        let mut welcome = Welcome {
            refusal: refusal as u32,
            text_bytes: text.len() as u32,
            region_bytes: 0,
            boot_id: 0,
            frame_bytes: service.options.frame_bytes_max,
            flags: if service.queues.are_served() { wire::SERVES_RDMA } else { 0 }
                | if service.is_durable() { wire::IS_DURABLE } else { 0 }
                | if access == Access::Read { wire::READS_ONLY } else { 0 },
            view: 0,
            replica: 0,
            patience_ms: 0,
            reserved: 0,
            proof: Proof::default(),
        };
        if let Some(Shown { tenant, token, .. }) = known {
            (self.tenant, self.access) = (tenant, access);
            welcome.proof = transcript.prove(&token, Side::Node);
            (welcome.region_bytes, welcome.boot_id) = (service.region.node_bytes(0), service.boot_id);
            if let Some(group) = &service.group {
                group.introduce(&mut welcome);
            }
        }
        self.output.bytes.extend_from_slice(wire::as_bytes(&welcome));
        self.output.bytes.extend_from_slice(text.as_bytes());
        if refusal == Refusal::None {
            self.is_greeted = true;
            self.session = transcript.session;
            self.prompt = service.now;
            service.sessions.enter(self.session, self.access);
            service.gate.enter(self.session, self.tenant, service.now);
            self.need = service.note_facts();
            service.accepted(self.address, self.session);
        } else {
            self.is_closing = true;
            service.refused(self.address, refusal.into());
        }
        Some(size_of::<Proof>())
    }

    /// Returns why a read-only token does not suffice for a connection, if that is what it has shown.
    fn needs_to_write(&self, access: Access, session: u64, service: &Service<'_>) -> Option<&'static str> {
        if access == Access::Write {
            None
        } else if !self.knows_read_only {
            Some(
                "the token is a read-only one, which this version of the program does not know; upgrade the program, or \
                 use a token that may write (docs/compatibility.md)",
            )
        } else if self.group.is_replica() {
            Some("the token is a read-only one; another replica of the group needs a token that may write")
        } else if service.sessions.may_write(session) {
            Some(
                "the token is a read-only one, and this session has shown a token that may write; open the pool again",
            )
        } else {
            None
        }
    }
}
