//! A connection's socket, plain or under TLS, for use that never waits.
//!
//! Under TLS bytes rest in two places that no socket tells of. What was written and the socket did not take is told by
//! [`Write::flush`], which then would block. What has arrived is decrypted to the end by every read with enough room, so that
//! only the beginning of a record can rest here, and its end makes the socket speak.

use super::buffer::READ_BYTES;
use super::tls::{ClientTls, NodeTls};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Bytes of ciphertext asked of the socket in one call.
const SEALED_BYTES: usize = 32 << 10;
/// More than a TLS record takes, its beginning and end included.
const RECORD_BYTES: usize = 20 << 10;

/// Bytes, plain or sealed, that are taken and not sent, at most.
const UNSENT_BYTES: usize = 256 << 10;

// What one call brings, and the record it completes, fit into whatever an inbox offers.
const _: () = assert!(SEALED_BYTES + RECORD_BYTES <= READ_BYTES);

/// A connected socket, plain or under TLS; never waits.
#[derive(Debug)]
pub struct Channel<S: Read + Write + AsFd = TcpStream> {
    socket: S,
    tls: Option<Box<Tls>>,
}

#[derive(Debug)]
struct Tls {
    state: rustls::Connection,
    /// Ciphertext that has arrived, from `from` up to `to`; of no size before it is first used.
    sealed: Vec<u8>,
    from: usize,
    to: usize,
}

impl<S: Read + Write + AsFd> Channel<S> {
    /// The client's end, of a connection to `host:port`. The TLS handshake, if any, goes on with each read and flush.
    ///
    /// # Errors
    /// The socket's, or when no certificate can be for such a host.
    pub fn connected(socket: S, tls: Option<&ClientTls>, address: &str) -> io::Result<Self> {
        let state = tls.map(|tls| tls.connect(address)).transpose()?;
        Self::new(socket, state)
    }

    /// A server's end.
    ///
    /// # Errors
    /// The socket's.
    pub fn accepted(socket: S, tls: Option<&NodeTls>) -> io::Result<Self> {
        let state = tls.map(NodeTls::accept).transpose()?;
        Self::new(socket, state)
    }

    fn new(socket: S, state: Option<rustls::Connection>) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
        give_up_the_gone(&socket)?;
        let tls = state.map(|mut state| {
            // A large batch waits for the socket, not for room.
            state.set_buffer_limit(Some(UNSENT_BYTES));
            Box::new(Tls { state, sealed: Vec::new(), from: 0, to: 0 })
        });
        Ok(Self { socket, tls })
    }

    /// Whether it is under TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Memory behind TLS's buffers in bytes, what they may hold for what they do; none without TLS.
    pub fn buffer_bytes(&self) -> usize {
        let unsent = |tls: &Tls| if tls.state.wants_write() { UNSENT_BYTES } else { 0 };
        self.tls.as_ref().map_or(0, |tls| tls.sealed.capacity() + unsent(tls))
    }

    /// Gives the memory back if nothing is in it.
    pub fn rest(&mut self) {
        if let Some(tls) = &mut self.tls
            && tls.from == tls.to
        {
            tls.sealed = Vec::new();
        }
    }

    /// Whether the sides have still to agree on TLS.
    pub fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.state.is_handshaking())
    }
}

/// Has the system end a connection whose other side does not acknowledge what was sent, or to be there, for ten seconds: a
/// link that was cut tells nobody.
fn give_up_the_gone(socket: &impl AsFd) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(4))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(2))?;
    sockopt::set_tcp_keepcnt(socket, 3)?;
    sockopt::set_tcp_user_timeout(socket, 10_000)?;
    Ok(())
}

impl<S: Read + Write + AsFd> AsFd for Channel<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<S: Read + Write + AsFd> Read for Channel<S> {
    /// Reads what there is. An error of kind `InvalidData` is TLS's: the other side is not whom it should be, or does not
    /// speak TLS.
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.read(buffer),
            Some(tls) => tls.read(&mut self.socket, buffer),
        }
    }
}

impl<S: Read + Write + AsFd> Write for Channel<S> {
    /// Takes bytes once all earlier ones are sent.
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.write(bytes),
            Some(tls) => tls.write(&mut self.socket, bytes),
        }
    }

    /// Sends what was taken; would block when the socket does not take all of it.
    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            None => Ok(()),
            Some(tls) => tls.flush(&mut self.socket),
        }
    }
}

impl<S: Read + Write + AsFd> Drop for Channel<S> {
    /// Says goodbye, or why, as far as the socket takes it.
    fn drop(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.state.send_close_notify();
            let _ = tls.flush(&mut self.socket);
        }
    }
}

impl Tls {
    fn read(&mut self, socket: &mut (impl Read + Write), buffer: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        loop {
            match self.state.reader().read(&mut buffer[count..]) {
                // No room, or the end.
                Ok(0) => return Ok(count),
                Ok(more) => {
                    count += more;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if self.from == self.to {
                if count > 0 {
                    return Ok(count);
                }
                if self.sealed.is_empty() {
                    self.sealed = vec![0; SEALED_BYTES];
                }
                (self.from, self.to) = (0, 0);
                self.to = socket.read(&mut self.sealed)?;
            }
            self.from += self.state.read_tls(&mut &self.sealed[self.from..self.to])?;
            let done = self.state.process_new_packets();
            done.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }

    fn write(&mut self, socket: &mut (impl Read + Write), bytes: &[u8]) -> io::Result<usize> {
        self.flush(socket)?;
        match self.state.writer().write(bytes)? {
            // Not before the handshake has ended.
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn flush(&mut self, socket: &mut (impl Read + Write)) -> io::Result<()> {
        while self.state.wants_write() {
            match self.state.write_tls(socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
