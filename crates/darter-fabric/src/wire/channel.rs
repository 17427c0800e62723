//! A connection's socket, plain or under TLS, for use that never blocks.

use super::buffer::Inbox;
use super::tls::{ClientTls, NodeTls, TlsSession};
use crate::fork::{self, NotInherited};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// A connected socket, plain or under TLS, that never blocks.
#[derive(Debug)]
pub struct Channel<S: Read + Write + AsFd = TcpStream> {
    /// A client's TLS session; dropped first.
    guard: Option<NotInherited>,
    socket: S,
    tls: Option<Box<TlsSession>>,
}

impl<S: Read + Write + AsFd> Channel<S> {
    /// Returns the client's end of a connection to `host:port`. Each read and flush advances the
    /// TLS handshake, if any.
    ///
    /// # Errors
    /// Fails if the socket does, or if no certificate can be valid for the host.
    pub fn connected(socket: S, tls: Option<&ClientTls>, address: &str) -> io::Result<Self> {
        let kept = fork::keep(|| Ok::<_, io::Error>(socket.as_fd()));
        let guard = kept.map(|(_, guard)| guard)?;
        let mut channel = Self::new(socket, tls.map(|tls| tls.connect(address)).transpose()?)?;
        channel.guard = Some(guard);
        Ok(channel)
    }

    /// Returns a server's end.
    ///
    /// # Errors
    /// Fails if the socket does.
    pub fn accepted(socket: S, tls: Option<&NodeTls>) -> io::Result<Self> {
        Self::new(socket, tls.map(NodeTls::accept).transpose()?)
    }

    fn new(socket: S, tls: Option<TlsSession>) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
        limit_silence(&socket)?;
        Ok(Self { guard: None, socket, tls: tls.map(Box::new) })
    }

    /// Returns whether it uses TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns whether a read into this buffer that returned bytes has drained the socket, which
    /// reports further arrivals. TLS may hold more that it has already read.
    pub fn has_drained_into(&self, inbox: &Inbox) -> bool {
        !self.is_tls() && !inbox.is_filled()
    }

    /// Returns the maximum memory of the TLS buffers in bytes; 0 without TLS.
    pub fn buffer_bytes(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.buffer_bytes())
    }

    /// Frees the memory of empty buffers.
    pub fn rest(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.rest();
        }
    }

    /// Returns whether the TLS handshake is still in progress.
    pub fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }
}

/// Makes the system end a connection whose peer acknowledges neither data nor probes for ten
/// seconds: the system does not report a cut link otherwise.
fn limit_silence(socket: &impl AsFd) -> io::Result<()> {
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
    /// Reads received bytes. An error of kind `InvalidData` comes from TLS: the peer failed to
    /// authenticate, or does not use TLS.
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.read(buffer),
            Some(tls) => tls.read(&mut self.socket, buffer),
        }
    }
}

impl<S: Read + Write + AsFd> Write for Channel<S> {
    /// Accepts bytes after all earlier ones are sent.
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.write(bytes),
            Some(tls) => tls.write(&mut self.socket, bytes),
        }
    }

    /// Sends the accepted bytes; fails with `WouldBlock` if the socket does not accept all of them.
    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            None => Ok(()),
            Some(tls) => tls.flush(&mut self.socket),
        }
    }
}

impl<S: Read + Write + AsFd> Drop for Channel<S> {
    /// Sends TLS's closing alert, as far as the socket accepts it.
    fn drop(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.close(&mut self.socket);
        }
    }
}
