//! A client's connection: receives requests, executes them (`requests.rs`), and sends their replies
//! together.
//!
//! A client that waits for its next request holds no buffers: the connection borrows them from the
//! thread's spares when bytes arrive, and returns them afterwards. If a client does not read its
//! replies and many bytes of them are waiting, its next request waits too. Requests are still
//! received, so that a client may write all of its requests before it reads; the gateway drops the
//! client if too many bytes of requests are waiting. A client that has shut down its side gets all
//! replies.
//!
//! The messages to a client wait in its mailbox, and are sent between the replies to two batches of
//! requests, and while the client waits in a blocking command.

use super::call::Client;
use super::clients::ClientInfo;
use super::mailbox::CutOff;
use super::reply::put_message;
use super::request::Parser;
use super::socket::Socket;
use super::state::LogLine;
use super::worker::Worker;
use darter_fabric::turns;
use darter_fabric::wire::{Channel, Inbox, Outbox};
use rustix::net::sockopt;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tracing::{info, warn};

/// Bytes of replies that are sent even though requests remain, and most bytes sent in a turn that
/// does nothing else.
const SENT_AT_ONCE: usize = 256 << 10;
/// Most bytes sent by one call.
const SENT_AT_A_TIME: usize = 64 << 10;
/// Bytes of unsent replies beyond which the client's next request waits.
const UNSENT_MAX: usize = 16 << 20;
/// The same while the buffers of all clients hold more than half of their limit.
const UNSENT_WHEN_SCARCE: usize = 256 << 10;

/// A client's connection.
pub(super) struct Connection {
    stream: Rc<TcpStream>,
    /// The same socket, with or without TLS.
    channel: Channel<Socket>,
    worker: Rc<Worker>,
    client: Client,
    parser: Parser,
    inbox: Inbox,
    outbox: Outbox,
    /// Whether the client must authenticate or complete a TLS handshake.
    is_stranger: bool,
    /// Whether the client has shut down its side: it sends no more requests.
    has_ended: bool,
    /// The bytes that the gateway counts for this connection.
    held_bytes: usize,
}

impl Connection {
    /// Sets up a connection. Must be called in the thread's executor.
    pub(super) fn new(
        socket: std::net::TcpStream,
        worker: Rc<Worker>,
        info: Arc<ClientInfo>,
    ) -> io::Result<Self> {
        let options = &worker.shared.options;
        socket.set_nonblocking(true)?;
        let stream = Rc::new(TcpStream::from_std(socket)?);
        let channel = Channel::accepted(Socket(Rc::clone(&stream)), options.tls.as_ref())?;
        let patience = u32::try_from(options.patience.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(&stream, patience)?;
        let is_trusted = worker.shared.acl.is_open();
        let is_stranger = worker.shared.has_strangers();
        let parser = Parser::with_argument_bytes_max(worker.shared.argument_bytes_max);
        Ok(Self {
            stream,
            channel,
            worker,
            client: Client::new(info, is_trusted),
            parser,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            is_stranger,
            has_ended: false,
            held_bytes: 0,
        })
    }

    /// Reports to the gateway that the client has become a stranger, or is no longer one.
    fn note_stranger(&mut self) {
        let is_stranger = !self.client.is_trusted || self.channel.is_handshaking();
        if std::mem::replace(&mut self.is_stranger, is_stranger) != is_stranger {
            self.worker.shared.clients.is_stranger(self.client.info.id, is_stranger);
        }
    }

    /// Serves the client until either side ends the connection.
    pub(super) async fn run(mut self) {
        let info = Arc::clone(&self.client.info);
        poll_fn(|context| {
            info.mail.begins(context.waker());
            Poll::Ready(())
        })
        .await;
        while self.turn().await.is_ok() {
            if self.client.is_closing {
                // The last replies, as far as the client reads them.
                let _ = poll_fn(|context| self.poll_send(0, context)).await;
                break;
            }
        }
    }

    async fn turn(&mut self) -> io::Result<()> {
        poll_fn(|context| self.poll_receive(context)).await?;
        let has_more = self.inbox.is_filled();
        self.client.info.is_busy.store(true, Ordering::Release);
        // The futures of all commands together are large: the task has memory for them only while
        // it has requests. The future is made in that memory, and not moved there.
        Box::into_pin(Box::write(Box::new_uninit(), self.do_requests())).await?;
        self.note_stranger();
        self.rest();
        // Replies are sent one after the other after all ready clients have had their turn, so that
        // a thread that they wake sleeps only once.
        tokio::task::yield_now().await;
        self.send()?;
        self.rest();
        // Replies that wait belong to requests in progress.
        self.client.info.is_busy.store(self.outbox.waiting() > 0, Ordering::Release);
        self.client.is_closing |= self.has_ended || self.worker.shared.is_stopping.load(Ordering::Relaxed);
        self.count()?;
        if has_more {
            // Other clients first: a client that sends without a pause gets one turn in each round.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Sends waiting replies and messages as far as the socket accepts them, and waits until bytes
    /// are received or the client has shut down its side.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.send_messages(context)?;
        self.poll_fill(context)
    }

    /// Sends waiting replies and messages as far as the socket accepts them. The task is woken when it
    /// accepts more, or when a message arrives.
    fn send_messages(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        loop {
            if self.outbox.waiting() > 0 {
                let Poll::Ready(sent) = self.poll_send(0, context) else { break };
                sent?;
                self.client.info.is_busy.store(false, Ordering::Release);
                self.rest();
                self.count()?;
            }
            if !self.take_messages(context)? {
                break;
            }
        }
        self.check_cut_off(context)
    }

    /// Takes messages from the client's mailbox, up to a limit. Returns whether there were any; if
    /// not, the task is woken when one arrives.
    fn take_messages(&mut self, context: &Context<'_>) -> io::Result<bool> {
        let Self { client, outbox, worker, .. } = self;
        let Some(mailbox) = client.info.mail.messages() else { return Ok(false) };
        let hears = client.hears();
        let taken = mailbox.poll_take(context, |message| {
            if outbox.bytes.capacity() == 0 {
                outbox.bytes = worker.output();
            }
            put_message(outbox, message, hears);
            outbox.waiting() < SENT_AT_ONCE
        });
        match taken {
            Poll::Ready(Ok(())) => Ok(true),
            Poll::Ready(Err(CutOff)) => Err(self.is_cut_off()),
            Poll::Pending => Ok(false),
        }
    }

    /// Fails if the client is cut off from its messages; if it is later, the task is woken.
    fn check_cut_off(&self, context: &Context<'_>) -> io::Result<()> {
        let Some(mailbox) = self.client.info.mail.messages() else { return Ok(()) };
        mailbox.poll_cut_off(context).map_err(|CutOff| self.is_cut_off())
    }

    fn is_cut_off(&self) -> io::Error {
        self.is_dropped("connection dropped: it does not read its messages");
        io::ErrorKind::OutOfMemory.into()
    }

    /// Counts and logs that the gateway drops the client.
    fn is_dropped(&self, why: &'static str) {
        let shared = &self.worker.shared;
        shared.counts.dropped.fetch_add(1, Ordering::Relaxed);
        if shared.may_log(LogLine::Dropped) {
            let ClientInfo { id, address, .. } = &*self.client.info;
            warn!(client = id, %address, bytes = self.held_bytes, "{why}");
        }
    }

    /// Waits until bytes are received or the client has shut down its side.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            if self.inbox.buffer_bytes() == 0 {
                self.inbox = self.worker.inbox();
            }
            let before = self.inbox.arrived().len();
            let (inbox, channel) = (&mut self.inbox, &mut self.channel);
            let is_tls = channel.is_tls();
            let mut received = Ok(false);
            let tried = self.stream.try_io(Interest::READABLE, || {
                received = inbox.receive(channel);
                let is_drained = matches!(received, Ok(false)) || channel.has_drained_into(inbox);
                if is_drained { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            drop(tried);
            turns::count(self.inbox.arrived().len() - before);
            match received {
                Ok(true) => return Poll::Ready(Ok(())),
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.has_ended = true;
                    return Poll::Ready(Ok(()));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
            if is_tls {
                // TLS may need to send its own records.
                self.send()?;
                self.note_stranger();
            }
            self.rest();
        }
    }

    /// Sends waiting replies until at most `most` bytes wait. Ends the turn after [`SENT_AT_ONCE`] bytes.
    fn poll_send(&mut self, most: usize, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let start = self.outbox.waiting();
        while self.outbox.waiting() > most {
            if start - self.outbox.waiting() >= SENT_AT_ONCE {
                return turns::poll_end(context);
            }
            ready!(self.stream.poll_write_ready(context))?;
            let (outbox, channel) = (&mut self.outbox, &mut self.channel);
            let (before, mut sent) = (outbox.waiting(), Ok(true));
            let tried = self.stream.try_io(Interest::WRITABLE, || {
                sent = outbox.send_up_to(SENT_AT_A_TIME, channel);
                if matches!(sent, Ok(false)) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            drop(tried);
            turns::count(before - self.outbox.waiting().min(before));
            sent?;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends as much as the socket accepts at once, up to a limit.
    fn send(&mut self) -> io::Result<()> {
        self.outbox.send_up_to(SENT_AT_ONCE, &mut self.channel).map(drop)
    }

    /// Returns the bytes of unsent replies beyond which the client's next request waits.
    fn unsent_max(&self) -> usize {
        let shared = &self.worker.shared;
        let is_scarce = shared.held_bytes.load(Ordering::Relaxed) > shared.options.buffer_bytes_max / 2;
        let most = if is_scarce { UNSENT_WHEN_SCARCE } else { UNSENT_MAX };
        most.min(shared.options.output_bytes_max)
    }

    /// Sends waiting replies until there is room for more, and receives further requests during the
    /// wait.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let most = self.unsent_max() / 2;
            if let Poll::Ready(sent) = self.poll_send(most, context) {
                return Poll::Ready(sent);
            }
            if self.has_ended {
                return Poll::Pending;
            }
            ready!(self.poll_fill(context))?;
            self.count()?;
        }
    }

    /// Returns empty buffers to the thread.
    fn rest(&mut self) {
        if self.inbox.arrived().is_empty() {
            self.worker.give_inbox(std::mem::take(&mut self.inbox));
        }
        if self.outbox.waiting() == 0 {
            self.worker.give_output(std::mem::take(&mut self.outbox.bytes));
        }
        self.channel.rest();
    }

    /// Updates the bytes counted for all clients together: the size of the buffers, not only of
    /// their contents.
    fn count(&mut self) -> io::Result<()> {
        let now = self.inbox.buffer_bytes()
            + self.parser.buffer_bytes()
            + self.outbox.buffer_bytes()
            + self.client.held_bytes();
        self.client.info.holds(&self.inbox, &self.outbox, now);
        let options = &self.worker.shared.options;
        let is_too_much = self.inbox.arrived().len() > options.input_bytes_max;
        let held = &self.worker.shared.held_bytes;
        let all = held.fetch_add(now.wrapping_sub(self.held_bytes), Ordering::Relaxed);
        let all = all.wrapping_add(now.wrapping_sub(self.held_bytes));
        let grows = now > self.held_bytes;
        self.held_bytes = now;
        if is_too_much || grows && all > options.buffer_bytes_max {
            self.is_dropped("connection dropped: its buffers hold too much");
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let shared = &self.worker.shared;
        shared.held_bytes.fetch_sub(self.held_bytes, Ordering::Relaxed);
        shared.clients.leave(self.client.info.id);
        if shared.may_log(LogLine::Closed) {
            let ClientInfo { id, address, .. } = &*self.client.info;
            info!(client = id, %address, "connection closed");
        }
    }
}

mod requests;
#[cfg(test)]
mod tests;
mod waiting;
