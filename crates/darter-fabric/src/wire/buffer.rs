//! Buffers for a socket that never blocks, the same at both ends of a connection.

use std::io::{self, Read, Write};
use std::ops::Range;

/// Bytes requested from the socket in one call, at least: few enough that both ends work while
/// others are under way, many enough that the call costs little against their copying.
pub(super) const READ_BYTES: usize = 64 << 10;
/// Buffers beyond this size are given up when they are empty.
const KEPT_BYTES: usize = 1 << 20;

/// What has arrived and was not taken.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Grows, and is cleared once: what lies outside `from..to` is left from earlier use.
    bytes: Vec<u8>,
    from: usize,
    to: usize,
}

impl Inbox {
    /// Receives what the socket has, up to a limit a call; returns whether it had anything.
    ///
    /// # Errors
    /// The socket's, the end of the connection among them.
    pub fn receive(&mut self, socket: &mut impl Read) -> io::Result<bool> {
        self.make_room();
        loop {
            match socket.read(&mut self.bytes[self.to..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.to += count;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn make_room(&mut self) {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
            if self.bytes.len() > KEPT_BYTES {
                self.bytes = Vec::new();
            }
        }
        if self.bytes.len() - self.to < READ_BYTES {
            if self.from > 0 {
                self.bytes.copy_within(self.from..self.to, 0);
                (self.from, self.to) = (0, self.to - self.from);
            }
            if self.bytes.len() - self.to < READ_BYTES {
                self.bytes.resize(self.to + READ_BYTES, 0);
            }
        }
    }

    /// Returns what has arrived and was not taken.
    pub fn arrived(&self) -> &[u8] {
        &self.bytes[self.from..self.to]
    }

    /// Takes so many bytes; returns their range, for [`Inbox::taken`], valid until the next
    /// [`Inbox::receive`].
    pub fn take(&mut self, count: usize) -> Range<usize> {
        let taken = self.from..(self.from + count).min(self.to);
        self.from = taken.end;
        taken
    }

    /// Bytes that were taken.
    pub fn taken(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    /// Returns whether the last call took all that it had room for, so that the socket may have
    /// more.
    pub fn is_filled(&self) -> bool {
        self.to == self.bytes.len()
    }

    /// Memory behind it, in bytes.
    pub fn buffer_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Frees the memory if the buffer is empty.
    pub fn rest(&mut self) {
        if self.from == self.to {
            *self = Self::default();
        }
    }
}

/// What is to be sent.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Everything put in since it was last empty, to append to.
    pub bytes: Vec<u8>,
    sent: usize,
    /// The channel has taken everything, and not sent all of it.
    is_held: bool,
}

impl Outbox {
    /// Bytes that wait, those that a channel took and holds counted as one.
    pub fn waiting(&self) -> usize {
        self.bytes.len() - self.sent + usize::from(self.is_held)
    }

    /// Sends as much as the socket takes.
    ///
    /// # Errors
    /// The socket's.
    pub fn send(&mut self, socket: &mut impl Write) -> io::Result<()> {
        while self.sent < self.bytes.len() {
            match socket.write(&self.bytes[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.sent = 0;
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
        self.is_held = match socket.flush() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            flushed => flushed.map(|()| false)?,
        };
        Ok(())
    }

    /// Memory behind it, in bytes.
    pub fn buffer_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Frees the memory if the buffer is empty.
    pub fn rest(&mut self) {
        if self.waiting() == 0 {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives and takes a few bytes a call, and now and then none.
    #[derive(Default)]
    struct Slow {
        given: usize,
        got: Vec<u8>,
        calls: usize,
    }

    impl Slow {
        fn balks(&mut self) -> bool {
            self.calls += 1;
            self.calls.is_multiple_of(3)
        }
    }

    impl Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.balks() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let count = buffer.len().min(100_003);
            for (at, byte) in buffer[..count].iter_mut().enumerate() {
                *byte = (self.given + at) as u8;
            }
            self.given += count;
            Ok(count)
        }
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.balks() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(7);
            self.got.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn bytes_come_out_as_they_went_in() {
        let (mut inbox, mut socket) = (Inbox::default(), Slow::default());
        let mut taken = 0;
        for round in 0..200 {
            inbox.receive(&mut socket).unwrap();
            let range = inbox.take(inbox.arrived().len() * (round % 4) / 3);
            for &byte in inbox.taken(range) {
                assert_eq!(byte, taken as u8);
                taken += 1;
            }
        }
        assert_eq!(socket.given - taken, inbox.arrived().len());
        let (mut outbox, mut socket) = (Outbox::default(), Slow::default());
        let mut put = Vec::new();
        for round in 0..100_u8 {
            outbox.bytes.extend_from_slice(&[round; 20]);
            put.extend_from_slice(&[round; 20]);
            outbox.send(&mut socket).unwrap();
        }
        while outbox.waiting() > 0 {
            outbox.send(&mut socket).unwrap();
        }
        assert_eq!(socket.got, put);
    }
}
