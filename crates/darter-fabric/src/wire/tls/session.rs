//! TLS on a socket that never blocks: one connection's state and its ciphertext.
//!
//! Bytes can wait in two places without a sign from the socket. Bytes that were written but not
//! accepted by the socket make [`TlsSession::flush`] fail with `WouldBlock`. Received bytes are
//! fully decrypted by every read with enough space, so that only the beginning of a record waits
//! here, and the rest of that record makes the socket readable.

use crate::wire::buffer::READ_BYTES;
use std::io::{self, Read, Write};

/// Bytes of ciphertext requested from the socket in one call.
const SEALED_BYTES: usize = 32 << 10;
/// More than the size of a TLS record with its header and trailer.
const RECORD_BYTES: usize = 20 << 10;

/// Maximum bytes, plain or encrypted, that are accepted and not sent.
const UNSENT_BYTES: usize = 256 << 10;

// The bytes of one call, and the record that they complete, fit into the space that an inbox
// offers.
const _: () = assert!(SEALED_BYTES + RECORD_BYTES <= READ_BYTES);

/// The TLS state of one connection.
#[derive(Debug)]
pub(in crate::wire) struct TlsSession {
    state: rustls::Connection,
    /// Received ciphertext, from `from` up to `to`; empty until first used.
    sealed: Vec<u8>,
    from: usize,
    to: usize,
}

impl TlsSession {
    pub(super) fn new(mut state: rustls::Connection) -> Self {
        // A large batch waits for the socket, not for buffer space.
        state.set_buffer_limit(Some(UNSENT_BYTES));
        Self { state, sealed: Vec::new(), from: 0, to: 0 }
    }

    /// Returns the maximum size of the buffers in bytes.
    pub(in crate::wire) fn buffer_bytes(&self) -> usize {
        self.sealed.capacity() + if self.state.wants_write() { UNSENT_BYTES } else { 0 }
    }

    /// Frees the memory of an empty buffer.
    pub(in crate::wire) fn rest(&mut self) {
        if self.from == self.to {
            self.sealed = Vec::new();
        }
    }

    /// Returns whether the handshake is still in progress.
    pub(in crate::wire) fn is_handshaking(&self) -> bool {
        self.state.is_handshaking()
    }

    /// Sends the closing alert, as far as the socket accepts it.
    pub(in crate::wire) fn close(&mut self, socket: &mut (impl Read + Write)) {
        self.state.send_close_notify();
        let _ = self.flush(socket);
    }

    pub(in crate::wire) fn read(
        &mut self,
        socket: &mut (impl Read + Write),
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        let mut count = 0;
        loop {
            match self.state.reader().read(&mut buffer[count..]) {
                // The socket is full, or the connection has ended.
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

    pub(in crate::wire) fn write(
        &mut self,
        socket: &mut (impl Read + Write),
        bytes: &[u8],
    ) -> io::Result<usize> {
        self.flush(socket)?;
        match self.state.writer().write(bytes)? {
            // Not before the handshake has ended.
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    pub(in crate::wire) fn flush(&mut self, socket: &mut (impl Read + Write)) -> io::Result<()> {
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
