//! One connection to a memory node: sends and receives frames without blocking.
//!
//! On a connection to a memory group each frame contains the number of the client's view, replies
//! come in any order, and frames that have no reply when the connection ends are sent again on the
//! next (`group_channel.rs`).

use super::batches::Ticket;
use crate::Verb;
use crate::rdma::Lane;
use crate::wire::{self, Channel, FramedHead, Inbox, Outbox, Refusal, RequestHead, RequestKind};
use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

/// How long to wait for a node that does not reply.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A request without a reply yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub id: u64,
    /// The batch that it is a part of. The batch is not found if it was given up.
    pub batch: Ticket,
    /// The range of the batch's verbs: those of this node from `first` up to `end`.
    pub first: usize,
    pub end: usize,
}

/// The request that a reply belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Replied {
    /// The oldest request that is not a call; for a group, any request that is not a call.
    Next(Sent),
    /// A call.
    Call(Ticket),
}

/// A connection in use.
#[derive(Debug)]
pub(super) struct Connection {
    /// Where verbs go instead, if they use an RDMA device.
    pub lane: Option<Lane<Ticket>>,
    pub channel: Channel,
    pub out: Outbox,
    input: Inbox,
    pub sent: VecDeque<Sent>,
    /// Calls without a reply, by the ids of their requests.
    pub calls: BTreeMap<u64, Ticket>,
    pub last_id: u64,
    pub frame_bytes: u32,
    /// The view in its frames, if it leads to a memory group.
    pub view: Option<u64>,
    /// The events of the socket that the hub watches.
    pub watched: EventFlags,
    /// The last send of the hub has sent something.
    pub has_sent: bool,
    /// The last turn did not receive.
    has_skipped: bool,
    /// When the hub first noticed that the node owes a reply and sends nothing.
    pub silent_since: Option<Instant>,
}

impl Connection {
    pub(super) fn new(channel: Channel) -> Self {
        Self {
            lane: None,
            channel,
            out: Outbox::default(),
            input: Inbox::default(),
            sent: VecDeque::new(),
            calls: BTreeMap::new(),
            last_id: 0,
            frame_bytes: wire::FRAME_BYTES_MAX,
            view: None,
            watched: EventFlags::empty(),
            has_sent: false,
            has_skipped: false,
            silent_since: None,
        }
    }

    /// Returns whether this turn need not receive: it has just sent, and the reply hardly came so
    /// fast. At most every second turn, so that a thread that always posts also receives.
    pub(super) fn waits_for_reply(&mut self) -> bool {
        self.has_skipped = self.has_sent && !self.has_skipped;
        self.has_skipped
    }

    /// Starts a frame. Returns the position of its head, for [`Connection::end_frame`].
    pub(super) fn begin_frame(&mut self) -> usize {
        let at = self.out.bytes.len();
        self.out.bytes.extend_from_slice(&[0; wire::HEADER_BYTES]);
        at
    }

    /// Completes a frame and returns its id.
    pub(super) fn end_frame(&mut self, at: usize, kind: RequestKind, verbs: u16) -> u64 {
        self.last_id += 1;
        self.end_frame_as(self.last_id, at, kind, verbs)
    }

    #[inline]
    fn end_frame_as(&mut self, id: u64, at: usize, kind: RequestKind, verbs: u16) -> u64 {
        let bytes = (self.out.bytes.len() - at - wire::HEADER_BYTES) as u32;
        let head = RequestHead { kind: kind as u8, reserved: 0, verbs, bytes, id };
        self.out.bytes[at..at + wire::HEADER_BYTES].copy_from_slice(wire::as_bytes(&head));
        id
    }

    /// Puts those of the verbs that belong to `node` into a frame. The frame is a repetition if
    /// `id` is given. Returns the id.
    pub(super) fn put_verbs(&mut self, id: Option<u64>, node: u8, verbs: &[Verb], data: &[u64]) -> u64 {
        let id = id.unwrap_or(self.last_id + 1);
        self.last_id = self.last_id.max(id);
        let at = self.begin_frame();
        let mut kind = RequestKind::Batch;
        if let Some(view) = self.view {
            kind = RequestKind::Framed;
            let answered = self.sent.front().map_or(id, |oldest| oldest.id) - 1;
            self.out.bytes.extend_from_slice(wire::as_bytes(&FramedHead { view, answered }));
        }
        let mut count = 0;
        for verb in verbs.iter().filter(|verb| verb.addr.node() == node) {
            wire::put_verb(&mut self.out.bytes, verb, data);
            count += 1;
        }
        self.end_frame_as(id, at, kind, count)
    }

    /// Sends an empty batch, to which a live node replies at once.
    pub(super) fn ask_for_a_sign(&mut self) {
        let at = self.begin_frame();
        let id = self.end_frame(at, RequestKind::Batch, 0);
        self.sent.push_back(Sent { id, batch: Ticket::default(), first: 0, end: 0 });
        self.silent_since = None;
    }

    /// Sends as much as the socket accepts. Returns whether that was everything.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        self.out.send(&mut self.channel)?;
        Ok(self.out.waiting() == 0)
    }

    /// Receives the data that has arrived. Returns whether there was any.
    pub(super) fn receive(&mut self) -> io::Result<bool> {
        self.input.receive(&mut self.channel)
    }

    /// Returns the next complete reply; its payload is read with [`Connection::payload`].
    ///
    /// # Errors
    /// Fails if the reply belongs neither to the oldest request nor to a call, or to no request of
    /// a group; also if a group has not executed a request, since its client must then switch to
    /// the replica that serves. The requests stay listed.
    pub(super) fn next_reply(&mut self) -> io::Result<Option<(Replied, Refusal, Range<usize>)>> {
        let arrived = self.input.arrived();
        let Some(head) = wire::head::<wire::ReplyHead>(arrived) else { return Ok(None) };
        let is_next = self.sent.front().is_some_and(|sent| sent.id == head.id);
        let at = if is_next {
            Some(0)
        } else if self.view.is_some() {
            self.sent.binary_search_by_key(&head.id, |sent| sent.id).ok()
        } else {
            None
        };
        let refusal = Refusal::from_code(head.refusal)
            .filter(|_| {
                (at.is_some() || self.calls.contains_key(&head.id)) && head.bytes <= wire::FRAME_BYTES_MAX
            })
            .ok_or(io::ErrorKind::InvalidData)?;
        if self.view.is_some() && matches!(refusal, Refusal::View | Refusal::Later) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let bytes = head.bytes as usize;
        if arrived.len() < wire::HEADER_BYTES + bytes {
            return Ok(None);
        }
        self.input.take(wire::HEADER_BYTES);
        let range = self.input.take(bytes);
        let replied = match at {
            Some(0) => self.sent.pop_front().map(Replied::Next),
            Some(at) => self.sent.remove(at).map(Replied::Next),
            None => self.calls.remove(&head.id).map(Replied::Call),
        };
        Ok(replied.map(|replied| (replied, refusal, range)))
    }

    /// Returns a reply's payload.
    pub(super) fn payload(&self, range: Range<usize>) -> &[u8] {
        self.input.taken(range)
    }

    /// Returns a refusal's text, which is its payload.
    pub(super) fn text(&self, range: Range<usize>) -> String {
        let payload = self.payload(range);
        String::from_utf8_lossy(&payload[..payload.len().min(wire::TEXT_BYTES_MAX)]).into_owned()
    }

    /// Takes `count` bytes of the received data, if there are as many.
    pub(super) fn take(&mut self, count: usize) -> Option<Range<usize>> {
        (self.input.arrived().len() >= count).then(|| self.input.take(count))
    }

    /// Returns the received data that was not taken.
    pub(super) fn heard(&self) -> &[u8] {
        self.input.arrived()
    }

    /// Sends and receives until `take` returns a value, but no longer than until `deadline`.
    pub(super) fn wait_for<T>(
        &mut self,
        deadline: Instant,
        mut take: impl FnMut(&mut Self) -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        loop {
            // Data that arrived before the end of a connection still counts.
            if let Some(found) = take(self)? {
                return Ok(found);
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if !self.receive()? {
                // The received data may belong to TLS and require a reply.
                let flags = if self.flush()? { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
                let wait = deadline - now;
                let seconds = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX);
                let wait = Timespec { tv_sec: seconds, tv_nsec: i64::from(wait.subsec_nanos()) };
                // Woken early or not at all: the socket is checked again.
                let _ = poll(&mut [PollFd::new(&self.channel, flags)], Some(&wait));
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::GlobalAddr;
    use crate::wire::ReplyHead;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    /// Returns a connection and the node's end of it.
    pub(in crate::tcp) fn connected() -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ours = TcpStream::connect(address).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        (Connection::new(Channel::connected(ours, None, &address.to_string()).unwrap()), theirs)
    }

    fn reply(id: u64, words: &[u64]) -> Vec<u8> {
        let head = ReplyHead { refusal: 0, reserved: 0, verbs: 1, bytes: words.len() as u32 * 8, id };
        [wire::as_bytes(&head), bytemuck::cast_slice(words)].concat()
    }

    /// Posts a READ of a word, in its own frame.
    fn post(connection: &mut Connection) -> u64 {
        let mut batch = crate::Batch::new();
        batch.read(GlobalAddr::new(0, 8), 1);
        let (verbs, data) = batch.parts_mut();
        let id = connection.put_verbs(None, 0, verbs, data);
        connection.sent.push_back(Sent { id, batch: Ticket::default(), first: 0, end: 1 });
        id
    }

    /// Receives until `bytes` bytes have arrived.
    fn receive(connection: &mut Connection, bytes: usize) {
        while connection.heard().len() < bytes {
            connection.receive().unwrap();
        }
    }

    #[test]
    fn a_reply_split_over_reads_is_taken_when_it_is_complete() {
        let (mut connection, mut node) = connected();
        let ids = [post(&mut connection), post(&mut connection)];
        let replies = [reply(ids[0], &[7]), reply(ids[1], &[9])].concat();
        let (mut at, mut found) = (0, Vec::new());
        for byte in replies {
            node.write_all(&[byte]).unwrap();
            at += 1;
            receive(&mut connection, at);
            while let Some((replied, refusal, range)) = connection.next_reply().unwrap() {
                let Replied::Next(sent) = replied else { panic!("no call was made") };
                assert_eq!((at, refusal), (wire::HEADER_BYTES + 8, Refusal::None));
                found.push((sent.id, connection.payload(range)[0]));
                at = 0;
            }
        }
        assert_eq!(found, [(ids[0], 7), (ids[1], 9)]);
        assert!(connection.sent.is_empty());
    }

    #[test]
    fn only_replies_to_calls_come_out_of_order() {
        let (mut connection, mut node) = connected();
        let [first, second] = [post(&mut connection), post(&mut connection)];
        let ticket = Ticket { at: 5, generation: 6 };
        connection.calls.insert(77, ticket);
        let replies = [reply(first, &[1]), reply(77, &[2]), reply(99, &[3])].concat();
        node.write_all(&replies).unwrap();
        receive(&mut connection, replies.len());
        let (replied, ..) = connection.next_reply().unwrap().unwrap();
        assert!(matches!(replied, Replied::Next(sent) if sent.id == first), "{replied:?}");
        let (replied, ..) = connection.next_reply().unwrap().unwrap();
        assert!(matches!(replied, Replied::Call(called) if called == ticket), "{replied:?}");
        assert!(connection.calls.is_empty());
        assert_eq!(connection.next_reply().unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(connection.sent.front().map(|sent| sent.id), Some(second), "it stays listed");
    }

    #[test]
    fn a_connection_that_always_sends_receives_every_second_turn() {
        let (mut connection, _node) = connected();
        let turns: Vec<bool> = (0..4)
            .map(|_| {
                connection.has_sent = true;
                connection.waits_for_reply()
            })
            .collect();
        assert_eq!(turns, [true, false, true, false]);
        connection.has_sent = false;
        assert!(!connection.waits_for_reply());
    }

    #[test]
    fn frames_leave_before_the_turn_when_many_wait() {
        let (mut connection, mut node) = connected();
        let mut batches = super::super::batches::Batches::default();
        let mut before = 0;
        while connection.out.waiting() >= before {
            before = connection.out.waiting();
            let mut batch = crate::Batch::new();
            batch.write(GlobalAddr::new(0, 8), &[3; 100]);
            let (ticket, pending) = batches.put(batch, None, std::task::Waker::noop());
            super::super::frames::post_to(&mut connection, 0, ticket, 0, pending);
            assert_eq!(pending.parts, 1);
        }
        assert!(before > 4096, "{before} bytes");
        let mut bytes = vec![0; before];
        node.read_exact(&mut bytes).unwrap();
        assert_eq!(wire::head::<RequestHead>(&bytes).unwrap().id, 1);
    }
}
