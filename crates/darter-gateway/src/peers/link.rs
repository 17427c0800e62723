//! A connection to another gateway, on which this one sends its messages.

use super::{OpenLink, PeerId, put_request};
use crate::socket::Socket;
use crate::state::GatewayState;
use crate::turns::TURN_BYTES;
use crate::worker::Worker;
use darter_fabric::turns;
use darter_fabric::wire::{Channel, Inbox, Outbox};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tracing::{info, warn};

/// The first pause before the connection is tried again.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause before the connection is tried again.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// How long it may take to connect and to be accepted.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of messages that are taken from the mailbox together.
const TAKEN_BYTES: usize = 256 << 10;
/// Most bytes sent by one call.
const SENT_AT_A_TIME: usize = 64 << 10;
/// Most bytes of a reply.
const REPLY_BYTES_MAX: usize = 4096;

/// Connects to a gateway, and again each time the connection ends.
pub(super) async fn keep(worker: Rc<Worker>, id: PeerId, address: String) {
    let shared = &worker.shared;
    let (mut pause, mut fails) = (PAUSE_MIN, false);
    loop {
        let began = Instant::now();
        let error = match tokio::time::timeout(PATIENCE, Link::connect(shared, id, &address)).await {
            Ok(Ok(mut link)) => {
                info!(gateway = %id, address, "connected to a gateway");
                fails = false;
                let open = shared.peers.open(id);
                shared.tracking.request(&shared.peers);
                poll_fn(|context| link.poll(&open, context)).await
            }
            Ok(Err(error)) => error,
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
        // Once for a series of failures: a gateway that was killed stays in the directory for a while.
        if !std::mem::replace(&mut fails, true) {
            warn!(gateway = %id, address, %error, "not connected to a gateway; trying again");
        }
        pause = if began.elapsed() > PAUSE_MAX { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
        tokio::time::sleep(pause).await;
    }
}

/// A connection.
struct Link {
    stream: Rc<TcpStream>,
    /// The same socket, with or without TLS.
    channel: Channel<Socket>,
    inbox: Inbox,
    outbox: Outbox,
}

impl Link {
    /// Connects to a gateway, which accepts messages of this one then.
    async fn connect(shared: &GatewayState, id: PeerId, address: &str) -> io::Result<Self> {
        let options = &shared.options;
        let stream = Rc::new(TcpStream::connect(address).await?);
        let tls = options.peer_tls.as_ref();
        let channel = Channel::connected(Socket(Rc::clone(&stream)), tls, address)?;
        let mut link = Self { stream, channel, inbox: Inbox::default(), outbox: Outbox::default() };
        let (own, other) = (shared.peers.id.to_string(), id.to_string());
        let mut replies = 1;
        let passwords = options.password.current();
        if !passwords.is_empty() {
            put_request(&mut link.outbox.bytes, &[b"auth", passwords.first()]);
            replies += 1;
        }
        put_request(&mut link.outbox.bytes, &[b"darter.meet", own.as_bytes(), other.as_bytes()]);
        for _ in 0..replies {
            link.accepted().await?;
        }
        link.inbox.rest();
        Ok(link)
    }

    /// Waits for a reply, which must be `OK`.
    async fn accepted(&mut self) -> io::Result<()> {
        loop {
            let arrived = self.inbox.arrived();
            if let Some(end) = arrived.windows(2).position(|bytes| bytes == b"\r\n") {
                let line = String::from_utf8_lossy(&arrived[..end]).into_owned();
                self.inbox.take(end + 2);
                return if line == "+OK" { Ok(()) } else { Err(io::Error::other(line)) };
            }
            if arrived.len() > REPLY_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            poll_fn(|context| {
                if let Poll::Ready(Err(error)) = self.poll_send(context) {
                    return Poll::Ready(Err(error));
                }
                self.poll_receive(context)
            })
            .await?;
        }
    }

    /// Sends messages until the connection fails, and returns the error.
    fn poll(&mut self, open: &OpenLink<'_>, context: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            match self.poll_send(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(error),
                Poll::Pending => break,
            }
            let outbox = &mut self.outbox;
            let taken = open.mailbox.poll_take(context, |message| {
                outbox.bytes.extend_from_slice(&message.bytes);
                outbox.seal_if_long();
                outbox.waiting() < TAKEN_BYTES
            });
            if taken != Poll::Ready(Ok(())) {
                break;
            }
        }
        if open.mailbox.poll_cut_off(context).is_err() {
            return Poll::Ready(io::Error::other("it does not read its messages"));
        }
        // The other gateway replies to no message.
        match self.poll_receive(context) {
            Poll::Ready(Ok(())) => {
                let arrived = self.inbox.arrived();
                let reply = String::from_utf8_lossy(&arrived[..arrived.len().min(REPLY_BYTES_MAX)]);
                Poll::Ready(io::Error::other(reply.trim_end().to_owned()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(error),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Sends all waiting bytes, and ends the task's turn after many.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.outbox.waiting() > 0 {
            if self.channel.is_handshaking() {
                // What is received continues it.
                let _ = self.outbox.send_up_to(SENT_AT_A_TIME, &mut self.channel)?;
                return Poll::Pending;
            }
            if turns::work() >= TURN_BYTES {
                return turns::poll_end(context);
            }
            ready!(self.stream.poll_write_ready(context))?;
            let (outbox, channel, mut sent) = (&mut self.outbox, &mut self.channel, Ok(true));
            let before = outbox.waiting();
            let tried = self.stream.try_io(Interest::WRITABLE, || {
                sent = outbox.send_up_to(SENT_AT_A_TIME, channel);
                if matches!(sent, Ok(false)) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            drop(tried);
            turns::count(before.saturating_sub(self.outbox.waiting()));
            sent?;
        }
        Poll::Ready(Ok(()))
    }

    /// Waits until bytes are received.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            let (inbox, channel, mut received) = (&mut self.inbox, &mut self.channel, Ok(false));
            let tried = self.stream.try_io(Interest::READABLE, || {
                received = inbox.receive(channel);
                if matches!(received, Ok(false)) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            drop(tried);
            if received? {
                return Poll::Ready(Ok(()));
            }
            // TLS may need to send its own records.
            let _ = self.outbox.send_up_to(SENT_AT_A_TIME, &mut self.channel)?;
        }
    }
}
