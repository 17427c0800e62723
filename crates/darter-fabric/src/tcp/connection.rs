//! One connection to a memory node: the handshake, and frames out and in without waiting.

use super::batches::Ticket;
use super::buffer::{Inbox, Outbox};
use super::wire::{self, Hello, RequestHead, Welcome};
use crate::FabricError;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long to wait for a node that does not answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A request that has not been answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub id: u64,
    /// The batch that it is a part of. One given up meanwhile is not found any more.
    pub batch: Ticket,
    /// The verbs of the batch that it holds: those of this node from `first` up to `end`.
    pub first: usize,
    pub end: usize,
}

/// A connection in use.
#[derive(Debug)]
pub(super) struct Connection {
    pub stream: TcpStream,
    pub out: Outbox,
    input: Inbox,
    pub sent: VecDeque<Sent>,
    next_id: u64,
    pub frame_bytes: u32,
    /// The socket is watched for room to send.
    pub wants_room: bool,
}

fn io_error(address: &str, action: &'static str, error: io::Error) -> FabricError {
    FabricError::io(std::path::Path::new(address), action, error)
}

/// Connects and exchanges hello and welcome, waiting no longer than [`PATIENCE`] for each.
pub(super) fn connect(
    address: &str,
    node: u8,
    session: u64,
    token: &[u8],
) -> Result<(TcpStream, Welcome), FabricError> {
    let failed = |action| move |error| io_error(address, action, error);
    let candidates = address.to_socket_addrs().map_err(failed("find its address"))?;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let mut found = None;
    for candidate in candidates {
        match TcpStream::connect_timeout(&candidate, PATIENCE) {
            Ok(stream) => {
                found = Some(stream);
                break;
            }
            Err(error) => last = error,
        }
    }
    let Some(mut stream) = found else { return Err(io_error(address, "connect to it", last)) };
    stream.set_nodelay(true).map_err(failed("set up its socket"))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed("set up its socket"))?;
    let hello = Hello {
        magic: wire::MAGIC,
        version: wire::VERSION,
        token_bytes: token.len() as u32,
        session,
        reserved: 0,
    };
    let greeting = [wire::as_bytes(&hello), token].concat();
    stream.write_all(&greeting).map_err(failed("greet it"))?;
    let mut bytes = [0; size_of::<Welcome>()];
    stream.read_exact(&mut bytes).map_err(failed("be greeted by it"))?;
    let welcome: Welcome = bytemuck::pod_read_unaligned(&bytes);
    if welcome.magic != wire::MAGIC || welcome.text_bytes as usize > wire::TEXT_BYTES_MAX {
        return Err(FabricError::geometry(format!(
            "{address}: what answers there is no memory node of darter"
        )));
    }
    let mut text = vec![0; welcome.text_bytes as usize];
    stream.read_exact(&mut text).map_err(failed("be greeted by it"))?;
    let text = String::from_utf8_lossy(&text);
    if welcome.version != wire::VERSION {
        return Err(FabricError::geometry(format!(
            "{address}: it speaks version {} of the protocol, this program version {}; use the same release",
            welcome.version,
            wire::VERSION
        )));
    }
    if welcome.refusal != 0 {
        let refusal = wire::Refusal::from_code(welcome.refusal as u8).unwrap_or(wire::Refusal::Failed);
        return Err(wire::error_of(refusal, node, &text));
    }
    stream.set_nonblocking(true).map_err(failed("set up its socket"))?;
    Ok((stream, welcome))
}

impl Connection {
    pub(super) fn new(stream: TcpStream, welcome: &Welcome) -> Self {
        Self {
            stream,
            out: Outbox::default(),
            input: Inbox::default(),
            sent: VecDeque::new(),
            next_id: 0,
            frame_bytes: welcome.frame_bytes.clamp(4096, wire::FRAME_BYTES_MAX),
            wants_room: false,
        }
    }

    /// Begins a frame; answers where its head stands, to be completed by [`Connection::end_frame`].
    pub(super) fn begin_frame(&mut self) -> usize {
        let at = self.out.bytes.len();
        self.out.bytes.extend_from_slice(&[0; wire::HEADER_BYTES]);
        at
    }

    /// Completes a frame, and answers its id.
    pub(super) fn end_frame(&mut self, at: usize, kind: wire::RequestKind, verbs: u16) -> u64 {
        self.next_id += 1;
        let bytes = (self.out.bytes.len() - at - wire::HEADER_BYTES) as u32;
        let head = RequestHead { kind: kind as u8, reserved: 0, verbs, bytes, id: self.next_id };
        self.out.bytes[at..at + wire::HEADER_BYTES].copy_from_slice(wire::as_bytes(&head));
        self.next_id
    }

    /// Sends as much as the socket takes; answers whether all is gone.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        self.out.send(&mut self.stream)?;
        Ok(self.out.waiting() == 0)
    }

    /// Takes in what has arrived; answers whether anything has.
    pub(super) fn receive(&mut self) -> io::Result<bool> {
        self.input.receive(&mut self.stream)
    }

    /// The next whole reply, its payload to be taken by [`Connection::payload`].
    ///
    /// # Errors
    /// When the peer has lost its place.
    pub(super) fn next_reply(
        &mut self,
    ) -> io::Result<Option<(Sent, wire::ReplyHead, std::ops::Range<usize>)>> {
        let arrived = self.input.arrived();
        let Some(head) = wire::head::<wire::ReplyHead>(arrived) else { return Ok(None) };
        if head.bytes > wire::FRAME_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let bytes = head.bytes as usize;
        if arrived.len() < wire::HEADER_BYTES + bytes {
            return Ok(None);
        }
        self.input.take(wire::HEADER_BYTES);
        let range = self.input.take(bytes);
        match self.sent.pop_front() {
            Some(sent) if sent.id == head.id => Ok(Some((sent, head, range))),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// A reply's payload.
    pub(super) fn payload(&self, range: std::ops::Range<usize>) -> &[u8] {
        self.input.taken(range)
    }
}
