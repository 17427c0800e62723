//! One connection of a client, on the node's side.

mod greeting;
mod grouped;
mod reading;
mod requests;

use crate::held::HeldReplies;
use crate::limits::{Cost, Gate, TenantId};
use crate::metrics::{DroppedFor, RefusedFor};
use crate::options::MemNodeOptions;
use crate::queues::QueueId;
use crate::service::Service;
use crate::sessions::Access;
use darter_fabric::Endpoint;
use darter_fabric::local::LocalEndpoint;
use darter_fabric::wire::proof::Transcript;
use darter_fabric::wire::{self, Channel, Inbox, Outbox, RequestHead};
use grouped::Grouped;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Maximum number of reads from one connection before other connections are served.
const READS_PER_TURN: usize = 4;
/// Bytes of replies produced for one connection before other connections are served.
const ANSWER_BYTES_AT_A_TIME: usize = 256 << 10;

/// The result of serving a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    GoesOn,
    Ended,
}

#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // separate facts, in almost any combination
pub(crate) struct Peer {
    channel: Channel,
    pub(crate) address: SocketAddr,
    input: Inbox,
    output: Outbox,
    /// Replies that wait for the log.
    held: HeldReplies,
    /// The position up to which the log must be durable before the current reply may be sent.
    need: u64,
    session: u64,
    /// The queue pair for its verbs, if it requested one.
    queue: Option<QueueId>,
    /// Its key in the event loop.
    key: u64,
    /// Number of its calls that have no outcome yet.
    calls: usize,
    /// Its state in a memory group.
    group: Grouped,
    /// The transcript that the client's proof must cover, after the challenge.
    transcript: Option<Transcript>,
    is_greeted: bool,
    /// Whether the client knows what it may do with a read-only token.
    knows_read_only: bool,
    /// What its token lets the client do.
    access: Access,
    /// The tenant whose token the client has shown.
    tenant: TenantId,
    /// Its place among the connections that wait because of a limit, until a request is served.
    turn: Option<u64>,
    /// It waits because of a limit: no request is taken until it is due.
    is_throttled: bool,
    /// No further requests are read; the contents of `output` are still sent.
    is_closing: bool,
    /// Whether complete frames may have arrived that were not executed, because there was no room
    /// for their replies.
    has_frames: bool,
    /// Why the node ends the connection, if it does.
    fault: Option<DroppedFor>,
    /// When the client last made progress (read replies, sent more of a request), or had no unread
    /// replies and no incomplete request. Before the handshake: when it connected.
    prompt: Instant,
    /// When the connection was last served.
    served: Instant,
    /// The bytes that the node counts for it: of buffers, of unread replies, and of replies that
    /// wait for the log.
    counted: (usize, usize, usize),
    /// The events that the socket is watched for: readable, writable.
    pub(crate) watched: (bool, bool),
}

impl Peer {
    pub(crate) fn new(
        stream: TcpStream,
        address: SocketAddr,
        key: u64,
        service: &Service<'_>,
    ) -> io::Result<Self> {
        Ok(Self {
            channel: Channel::accepted(stream, service.options.tls.as_ref())?,
            address,
            input: Inbox::default(),
            output: Outbox::default(),
            held: HeldReplies::default(),
            need: 0,
            session: 0,
            queue: None,
            key,
            calls: 0,
            group: Grouped::default(),
            transcript: None,
            is_greeted: false,
            knows_read_only: false,
            access: Access::default(),
            tenant: TenantId::default(),
            turn: None,
            is_throttled: false,
            is_closing: false,
            has_frames: false,
            fault: None,
            prompt: service.now,
            served: service.now,
            counted: (0, 0, 0),
            watched: (true, false),
        })
    }

    pub(crate) fn socket(&self) -> &Channel {
        &self.channel
    }

    pub(crate) fn is_greeted(&self) -> bool {
        self.is_greeted
    }

    /// Returns whether it waits because of a limit.
    pub(crate) fn is_throttled(&self) -> bool {
        self.is_throttled
    }

    /// Ends its wait.
    pub(crate) fn resume(&mut self, now: Instant) {
        self.is_throttled = false;
        self.prompt = now;
    }

    /// Returns the bytes of its buffers.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.counted.0
    }

    /// Ends the connection for a reason. The first reason counts; a refusal takes precedence over
    /// all.
    pub(crate) fn drop_for(&mut self, fault: DroppedFor) {
        let is_refused = self.is_closing && !self.is_greeted;
        self.is_closing = true;
        if !is_refused {
            self.fault.get_or_insert(fault);
        }
    }

    /// Returns the reason to drop it now, if there is one.
    pub(crate) fn lateness(&self, service: &Service<'_>) -> Option<DroppedFor> {
        if self.is_greeted && service.is_fenced(self.session) {
            return Some(DroppedFor::Fenced);
        }
        let fault = if self.output.waiting() > 0 {
            DroppedFor::Unread
        } else if self.is_throttled {
            return None;
        } else if !self.is_greeted || !self.input.arrived().is_empty() {
            DroppedFor::Silent
        } else {
            return None;
        };
        (service.now.saturating_duration_since(self.prompt) > service.options.patience).then_some(fault)
    }

    /// Returns whether it was not served for this time.
    pub(crate) fn is_idle(&self, now: Instant, time: Duration) -> bool {
        now.saturating_duration_since(self.served) >= time
    }

    /// Shrinks buffers that are empty.
    pub(crate) fn rest(&mut self, service: &Service<'_>) {
        self.channel.rest();
        self.input.rest();
        self.output.rest();
        self.held.rest();
        self.count(service);
    }

    /// Updates the counts of the node for it.
    fn count(&mut self, service: &Service<'_>) {
        let buffers = [
            self.channel.buffer_bytes(),
            self.input.buffer_bytes(),
            self.output.buffer_bytes(),
            self.held.buffer_bytes(),
            self.group.buffer_bytes(),
        ];
        self.set_counted(service, (buffers.iter().sum(), self.output.waiting(), self.held.waiting()));
    }

    fn set_counted(&mut self, service: &Service<'_>, counted: (usize, usize, usize)) {
        service.metrics.buffer_bytes.change(self.counted.0, counted.0);
        service.metrics.waiting_bytes.change(self.counted.1, counted.1);
        if let Some(log) = &service.metrics.log {
            log.held_bytes.change(self.counted.2, counted.2);
        }
        self.counted = counted;
    }

    /// Keeps the reply that begins at `at` of the output until the log is durable as far as it
    /// needs and the replies kept earlier have been sent.
    fn hold_back(&mut self, at: usize, is_welcome: bool, service: &mut Service<'_>) {
        let Some(journal) = &mut service.journal else { return };
        let waits = self.need > journal.durable() || !self.held.is_empty();
        if waits && self.output.bytes.len() > at {
            if self.held.is_empty() {
                journal.waiting.push(self.key);
            }
            self.held.hold(&mut self.output.bytes, at, self.need, is_welcome);
        }
    }

    /// Moves the replies that no longer wait to the output. Returns whether others still wait.
    pub(crate) fn release(&mut self, service: &Service<'_>) -> bool {
        if let (Some(journal), Some(log)) = (&service.journal, &service.metrics.log) {
            log.released.add(self.held.release(journal.durable(), &mut self.output.bytes));
        }
        !self.held.is_empty()
    }

    /// Refuses the replies that wait for the log, which has failed.
    pub(crate) fn refuse_held(&mut self, why: &str) {
        if !self.held.refuse(why, &mut self.output.bytes) {
            self.drop_for(DroppedFor::System);
        }
    }

    /// Ends the connection.
    pub(crate) fn part(mut self, service: &mut Service<'_>) {
        self.set_counted(service, (0, 0, 0));
        // Before its session can count as gone.
        if let Some(queue) = self.queue {
            service.end_queue(queue);
        }
        if self.is_greeted {
            service.sessions.leave(self.session);
            service.gate.leave(self.session, self.tenant);
            service.greeted -= 1;
        }
        if let Some(group) = &mut service.group {
            group.disconnected(self.key);
        }
        service.parted(self.address, self.session, self.fault);
    }

    /// Sends the contents of the output, without reading from the socket.
    pub(crate) fn push(&mut self, service: &Service<'_>) -> Progress {
        let is_sent = self.send(service).is_ok();
        self.count(service);
        let has_ended = self.is_closing && self.output.waiting() == 0 && self.held.is_empty();
        if is_sent && !has_ended { Progress::GoesOn } else { Progress::Ended }
    }

    /// Reads the bytes that have arrived, executes their frames and sends the replies.
    pub(crate) fn serve(&mut self, service: &mut Service<'_>, endpoint: &mut LocalEndpoint) -> Progress {
        let progress = self.take_turn(service, endpoint);
        self.served = service.now;
        self.count(service);
        progress
    }

    fn take_turn(&mut self, service: &mut Service<'_>, endpoint: &mut LocalEndpoint) -> Progress {
        for _ in 0..READS_PER_TURN {
            if self.send(service).is_err() {
                return Progress::Ended;
            }
            if self.is_closing || self.is_full(service.options) || self.defers(service) || self.is_throttled {
                // Reading resumes when the client has read its replies, or the disk or the other
                // replicas have caught up, or its limit allows it; if the connection is closing,
                // never.
                break;
            }
            if self.has_frames {
                self.take_frames(service, endpoint);
                continue;
            }
            let had = self.input.arrived().len();
            match self.input.receive(&mut self.channel) {
                Ok(true) => {
                    service.metrics.received_bytes.add((self.input.arrived().len() - had) as u64);
                    if self.is_greeted && self.output.waiting() == 0 {
                        self.prompt = service.now;
                    }
                    let has_all = self.channel.has_drained_into(&self.input);
                    self.take_frames(service, endpoint);
                    if has_all && !self.has_frames && !service.is_draining {
                        break;
                    }
                }
                Ok(false) => {
                    // A request or handshake that has begun may be completed.
                    let is_amid = !self.input.arrived().is_empty();
                    let is_done = self.is_greeted && !is_amid && !self.owes_answers();
                    self.is_closing = service.is_draining && is_done;
                    break;
                }
                Err(error) => {
                    if error.kind() == io::ErrorKind::InvalidData {
                        self.break_tls(service);
                    }
                    return Progress::Ended;
                }
            }
        }
        // More frames may be waiting, which the next turn handles. When the node drains, a client
        // with nothing in progress is disconnected without a message.
        let owes_nothing = self.is_greeted && !self.owes_answers();
        self.has_frames |= service.is_draining && owes_nothing && self.input.arrived().is_empty();
        // The bytes read may have been TLS records that need a response.
        let is_sent = self.send(service).is_ok();
        let has_ended = self.is_closing && self.output.waiting() == 0 && self.held.is_empty();
        if is_sent && !has_ended { Progress::GoesOn } else { Progress::Ended }
    }

    /// Handles bytes that are not TLS, or TLS of a client that is not accepted.
    fn break_tls(&mut self, service: &mut Service<'_>) {
        if self.is_greeted {
            self.drop_for(DroppedFor::Malformed);
        } else {
            self.is_closing = true;
            service.refused(self.address, RefusedFor::Tls);
        }
    }

    /// Returns whether there are requests without a reply in the output yet.
    fn owes_answers(&self) -> bool {
        self.calls > 0 || self.group.requests > 0 || !self.held.is_empty()
    }

    /// Returns whether its requests must wait. Messages of other replicas never do, since other
    /// requests may wait for them.
    fn defers(&self, service: &Service<'_>) -> bool {
        !self.group.is_replica() && service.defers_requests()
    }

    /// Returns the bytes of replies that the client has not read, or that wait for the log.
    fn waiting(&self) -> usize {
        self.output.waiting() + self.held.waiting()
    }

    fn is_full(&self, options: &MemNodeOptions) -> bool {
        self.waiting() > options.waiting_bytes_max
    }

    /// Returns the events to wait for: readable unless too many replies are unread, writable if
    /// replies are waiting or still to be produced.
    pub(crate) fn interest(&self, options: &MemNodeOptions) -> (bool, bool) {
        let is_full = self.is_full(options);
        let hears = !self.is_closing && !is_full && !self.is_throttled;
        // Replies that wait for the log are sent when the log's bell rings.
        let sends = self.output.waiting() > 0
            || self.is_closing && self.held.is_empty()
            || self.has_frames && !self.is_throttled && (!is_full || self.held.is_empty());
        (hears, sends)
    }

    fn send(&mut self, service: &Service<'_>) -> io::Result<()> {
        let waited = self.output.waiting();
        self.output.send(&mut self.channel)?;
        let waits = self.output.waiting();
        service.metrics.sent_bytes.add(waited.saturating_sub(waits) as u64);
        if self.is_greeted && waits < waited {
            self.prompt = service.now;
        }
        Ok(())
    }

    /// Executes the complete frames that have arrived, as long as there is room for replies, and up
    /// to a fair share.
    fn take_frames(&mut self, service: &mut Service<'_>, endpoint: &mut LocalEndpoint) {
        let mut input = std::mem::take(&mut self.input);
        self.has_frames = false;
        let enough = self.waiting() + ANSWER_BYTES_AT_A_TIME;
        while !self.is_closing {
            if self.is_full(service.options) || self.waiting() >= enough || self.defers(service) {
                self.has_frames = true;
                break;
            }
            let arrived = input.arrived();
            if !arrived.is_empty() && self.must_wait(service) {
                (self.has_frames, self.is_throttled) = (true, true);
                break;
            }
            let (at, was_greeted) = (self.output.bytes.len(), self.is_greeted);
            self.need = 0;
            let taken = if self.is_greeted {
                prefetch_behind(arrived, endpoint);
                self.take_request(arrived, service, endpoint)
            } else if let Some(transcript) = self.transcript {
                self.take_proof(&transcript, arrived, service)
            } else {
                self.take_hello(arrived, service)
            };
            if was_greeted && let Some(count) = taken {
                self.pay(arrived, count + self.output.bytes.len() - at, service);
            }
            self.hold_back(at, !was_greeted, service);
            let Some(count) = taken else { break };
            input.take(count);
        }
        self.input = input;
    }
}

/// Limits on the load of its session and tenant.
impl Peer {
    /// Returns whether its next request must wait, and then notes that it does. Other replicas and
    /// a node that stops never wait.
    fn must_wait(&mut self, service: &mut Service<'_>) -> bool {
        if !self.is_greeted || service.is_draining || self.group.is_replica() {
            return false;
        }
        let (key, session, now) = (self.key, self.session, service.now);
        service.gate.must_wait(key, session, self.tenant, &mut self.turn, now)
    }

    /// Takes the cost of a reply that came later than its request was taken.
    pub(crate) fn pay_for_reply(&self, bytes: usize, gate: &mut Gate) {
        gate.take(self.session, self.tenant, Cost { verbs: 0, bytes: bytes as u64 });
    }

    /// Takes the cost of the request at the beginning of some bytes from its accounts.
    fn pay(&mut self, request: &[u8], bytes: usize, service: &mut Service<'_>) {
        if service.gate.is_open() || self.group.is_replica() {
            return;
        }
        let verbs = wire::head::<RequestHead>(request).map_or(1, |head| u64::from(head.verbs.max(1)));
        service.gate.take(self.session, self.tenant, Cost { verbs, bytes: bytes as u64 });
        self.turn = None;
    }
}

/// Prefetches the first memory that the second of these requests accesses, while the node executes
/// the first.
fn prefetch_behind(requests: &[u8], endpoint: &LocalEndpoint) {
    let end = |first: RequestHead| wire::HEADER_BYTES + first.bytes as usize;
    let behind = wire::head(requests).and_then(|first| requests.get(end(first)..));
    if let Some(verb) = behind.and_then(wire::first_verb) {
        endpoint.prefetch(verb.addr, verb.words as usize);
    }
}
