//! One connection of a client, as the node sees it.

use super::{MemNodeError, MemNodeOptions, Service, execute};
use darter_fabric::tcp::buffer::{Inbox, Outbox};
use darter_fabric::tcp::wire::{self, Control, Hello, Refusal, ReplyHead, RequestHead, RequestKind, Welcome};
use darter_fabric::{Endpoint, Fabric, FabricError};
use std::io;
use std::net::TcpStream;
use std::time::Instant;

/// Calls for one peer before others get a turn.
const READS_PER_TURN: usize = 4;

/// What became of a peer's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    GoesOn,
    Ended,
}

#[derive(Debug)]
pub(super) struct Peer {
    stream: TcpStream,
    input: Inbox,
    output: Outbox,
    session: u64,
    is_greeted: bool,
    /// Nothing more is heard; what is in `output` still goes.
    is_closing: bool,
    is_room: bool,
    /// When it last took an answer, or owed none.
    prompt: Instant,
    /// What the socket is watched for.
    pub(super) watched: (bool, bool),
}

impl Peer {
    pub(super) fn new(stream: TcpStream, is_room: bool) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            input: Inbox::default(),
            output: Outbox::default(),
            session: 0,
            is_greeted: false,
            is_closing: false,
            is_room,
            prompt: Instant::now(),
            watched: (true, false),
        })
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) fn session(&self) -> u64 {
        self.session
    }

    /// Whether it has not greeted, or not read its answers, for too long.
    pub(super) fn is_late(&self, now: Instant, options: &MemNodeOptions) -> bool {
        let owes = !self.is_greeted || self.output.waiting() > 0;
        owes && now.saturating_duration_since(self.prompt) > options.patience
    }

    /// It is gone.
    pub(super) fn part(self, service: &mut Service<'_>) {
        if self.is_greeted {
            service.sessions.leave(self.session);
        }
    }

    /// Takes in what there is, does it, and sends the answers.
    pub(super) fn serve(&mut self, service: &mut Service<'_>, endpoint: &mut impl Endpoint) -> Progress {
        for _ in 0..READS_PER_TURN {
            if self.send().is_err() {
                return Progress::Ended;
            }
            if self.is_closing {
                return if self.output.waiting() == 0 { Progress::Ended } else { Progress::GoesOn };
            }
            if self.output.waiting() > service.options.waiting_bytes_max {
                // Heard no further until it reads.
                return Progress::GoesOn;
            }
            match self.input.receive(&mut self.stream) {
                Ok(true) => self.take_frames(service, endpoint),
                Ok(false) => return Progress::GoesOn,
                Err(_) => return Progress::Ended,
            }
        }
        // More may be there: the next turn tells.
        if self.send().is_err() { Progress::Ended } else { Progress::GoesOn }
    }

    /// What the peer is waited for: requests, unless it leaves too many answers unread; room for answers, when some wait.
    pub(super) fn interest(&self, options: &MemNodeOptions) -> (bool, bool) {
        let waiting = self.output.waiting();
        (!self.is_closing && waiting <= options.waiting_bytes_max, waiting > 0)
    }

    fn send(&mut self) -> io::Result<()> {
        let waited = self.output.waiting();
        self.output.send(&mut self.stream)?;
        let waits = self.output.waiting();
        if waits == 0 || waits < waited {
            self.prompt = Instant::now();
        }
        Ok(())
    }

    /// Does every whole frame that has arrived.
    fn take_frames(&mut self, service: &mut Service<'_>, endpoint: &mut impl Endpoint) {
        let mut input = std::mem::take(&mut self.input);
        while !self.is_closing {
            let arrived = input.arrived();
            let taken = if self.is_greeted {
                self.take_request(arrived, service, endpoint)
            } else {
                self.take_hello(arrived, service)
            };
            let Some(count) = taken else { break };
            input.take(count);
        }
        self.input = input;
    }

    fn take_hello(&mut self, bytes: &[u8], service: &mut Service<'_>) -> Option<usize> {
        let hello: Hello = wire::head(bytes)?;
        let is_ours = hello.magic == wire::MAGIC && hello.token_bytes as usize <= wire::TOKEN_BYTES_MAX;
        if !is_ours {
            // Whoever it is does not speak our language: no answer would be understood.
            service.counts.refused += 1;
            self.is_closing = true;
            return None;
        }
        let end = size_of::<Hello>() + hello.token_bytes as usize;
        let token = bytes.get(size_of::<Hello>()..end)?;
        let (refusal, text) = if hello.version != wire::VERSION {
            (Refusal::Version, "this node speaks another version of the protocol")
        } else if !same(token, &service.options.token) {
            (Refusal::Credentials, "no token, or a wrong one")
        } else if service.sessions.is_fenced(hello.session) {
            (Refusal::Fenced, "this session was shut out")
        } else if !self.is_room {
            (Refusal::Busy, "no room for another connection")
        } else {
            (Refusal::None, "")
        };
        let welcome = Welcome {
            magic: wire::MAGIC,
            version: wire::VERSION,
            refusal: refusal as u32,
            region_bytes: service.region.node_bytes(0),
            boot_id: service.boot_id,
            frame_bytes: service.options.frame_bytes_max,
            text_bytes: text.len() as u32,
            reserved: 0,
        };
        self.output.bytes.extend_from_slice(wire::as_bytes(&welcome));
        self.output.bytes.extend_from_slice(text.as_bytes());
        if refusal == Refusal::None {
            self.is_greeted = true;
            self.session = hello.session;
            service.sessions.enter(hello.session);
            service.counts.accepted += 1;
        } else {
            self.is_closing = true;
            service.counts.refused += 1;
        }
        Some(end)
    }

    fn take_request(
        &mut self,
        bytes: &[u8],
        service: &mut Service<'_>,
        endpoint: &mut impl Endpoint,
    ) -> Option<usize> {
        let head: RequestHead = wire::head(bytes)?;
        if service.sessions.is_fenced(self.session) {
            self.refuse(&head, Refusal::Fenced, "this session was shut out");
            self.is_closing = true;
            return None;
        }
        let kind = RequestKind::from_code(head.kind);
        let (Some(kind), true) = (kind, head.bytes <= service.options.frame_bytes_max) else {
            self.refuse(&head, Refusal::Malformed, "a frame of no known kind, or too long");
            self.is_closing = true;
            service.counts.dropped += 1;
            return None;
        };
        let end = wire::HEADER_BYTES + head.bytes as usize;
        let payload = bytes.get(wire::HEADER_BYTES..end)?;
        service.counts.frames += 1;
        if kind == RequestKind::Batch {
            self.run_batch(&head, payload, service, endpoint);
            return Some(end);
        }
        let about = wire::head::<Control>(payload).filter(|about| about.flag <= 1);
        let (Some(about), true) = (about, payload.len() == size_of::<Control>()) else {
            self.refuse(&head, Refusal::Malformed, "a request that is not about anything");
            self.is_closing = true;
            service.counts.dropped += 1;
            return None;
        };
        let done = match kind {
            RequestKind::Claim => service.sessions.claim(about.number, self.session),
            RequestKind::Fence => service.sessions.fence(about.number, about.flag == 1),
            RequestKind::Release => {
                service.sessions.release(about.number, self.session);
                Ok(Refusal::None)
            }
            RequestKind::Persist | RequestKind::Batch => {
                service.region.persist().map(|()| Refusal::None).map_err(MemNodeError::from)
            }
        };
        match done {
            Ok(refusal) => self.refuse(&head, refusal, ""),
            Err(error) => self.refuse(&head, Refusal::Failed, &error.to_string()),
        }
        Some(end)
    }

    fn run_batch(
        &mut self,
        head: &RequestHead,
        payload: &[u8],
        service: &mut Service<'_>,
        endpoint: &mut impl Endpoint,
    ) {
        let mut batch = endpoint.batch();
        let is_whole = usize::from(head.verbs) <= wire::VERBS_MAX
            && wire::parse_verbs(payload, head.verbs, service.options.frame_bytes_max, &mut batch).is_some();
        if !is_whole {
            endpoint.recycle(batch);
            self.refuse(head, Refusal::Malformed, "a batch that is not what its head says");
            self.is_closing = true;
            service.counts.dropped += 1;
            return;
        }
        let verbs = batch.len();
        match execute(endpoint, batch) {
            Ok(mut done) => {
                let at = self.output.bytes.len();
                self.output.bytes.extend_from_slice(&[0; wire::HEADER_BYTES]);
                wire::put_answers(&mut self.output.bytes, &mut done, verbs);
                let bytes = (self.output.bytes.len() - at - wire::HEADER_BYTES) as u32;
                let reply = ReplyHead {
                    refusal: Refusal::None as u8,
                    reserved: 0,
                    verbs: head.verbs,
                    bytes,
                    id: head.id,
                };
                self.output.bytes[at..at + wire::HEADER_BYTES].copy_from_slice(wire::as_bytes(&reply));
                service.counts.verbs += verbs as u64;
                endpoint.recycle(done);
            }
            Err(error) => {
                let refusal = match error {
                    FabricError::OutOfBounds(_) => Refusal::OutOfBounds,
                    FabricError::Misaligned { .. } => Refusal::Misaligned,
                    _ => Refusal::Failed,
                };
                self.refuse(head, refusal, &error.to_string());
            }
        }
    }

    /// Answers without words, or says why not.
    fn refuse(&mut self, head: &RequestHead, refusal: Refusal, text: &str) {
        let text = &text.as_bytes()[..text.len().min(wire::TEXT_BYTES_MAX)];
        let reply = ReplyHead {
            refusal: refusal as u8,
            reserved: 0,
            verbs: 0,
            bytes: text.len() as u32,
            id: head.id,
        };
        self.output.bytes.extend_from_slice(wire::as_bytes(&reply));
        self.output.bytes.extend_from_slice(text);
    }
}

/// Compares secrets in a time that does not tell where they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}
