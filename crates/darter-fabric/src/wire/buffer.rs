//! Buffers for a socket that never blocks, used at both ends of a connection.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::ops::Range;

/// Minimum number of bytes requested from the socket in one call: few enough that both ends work
/// concurrently, many enough that the call is cheap compared with their copying.
pub(super) const READ_BYTES: usize = 64 << 10;
/// Maximum number of bytes that one call takes, regardless of the free space.
const RECEIVED_AT_ONCE: usize = 256 << 10;
/// Larger buffers are freed when they are empty.
const KEPT_BYTES: usize = 1 << 20;
/// Size at which a piece of the outbox is sealed if the socket does not accept all of it.
const PIECE_BYTES: usize = 64 << 10;

/// Received bytes that were not taken.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Grows, and is cleared only once: bytes outside `from..to` are left over from earlier use.
    bytes: Vec<u8>,
    from: usize,
    to: usize,
    /// The last call filled all the space that it had.
    is_filled: bool,
}

impl Inbox {
    /// Receives available bytes, up to a limit per call. Returns whether there were any.
    ///
    /// # Errors
    /// Fails if the socket does, including at the end of the connection.
    pub fn receive(&mut self, socket: &mut impl Read) -> io::Result<bool> {
        self.make_room();
        let end = self.bytes.len().min(self.to + RECEIVED_AT_ONCE);
        loop {
            match socket.read(&mut self.bytes[self.to..end]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.to += count;
                    self.is_filled = self.to == end;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_filled = false;
                    return Ok(false);
                }
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
            // Moves no more bytes than were taken since the last time.
            if self.from >= self.to - self.from {
                self.bytes.copy_within(self.from..self.to, 0);
                (self.from, self.to) = (0, self.to - self.from);
                if self.bytes.len() > KEPT_BYTES && self.to < self.bytes.len() / 4 {
                    self.bytes.truncate(self.to);
                    self.bytes.shrink_to_fit();
                }
            }
            if self.bytes.len() - self.to < READ_BYTES {
                self.bytes.resize(self.to + READ_BYTES, 0);
            }
        }
    }

    /// Returns the received bytes that were not taken.
    pub fn arrived(&self) -> &[u8] {
        &self.bytes[self.from..self.to]
    }

    /// Takes `count` bytes. Returns their range, for [`Inbox::taken`], valid until the next
    /// [`Inbox::receive`].
    pub fn take(&mut self, count: usize) -> Range<usize> {
        let taken = self.from..(self.from + count).min(self.to);
        self.from = taken.end;
        taken
    }

    /// Returns bytes that were taken.
    pub fn taken(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    /// Returns whether the last call filled all the space that it had, so that the socket may have
    /// more.
    pub fn is_filled(&self) -> bool {
        self.is_filled
    }

    /// Returns the size of its memory in bytes.
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

/// Bytes to be sent.
///
/// Bytes are appended to the last piece. A piece that has become long is sealed, and freed after it
/// is sent. So the memory is limited to the waiting bytes plus one piece, even if the outbox is
/// never empty, and no waiting byte is moved.
#[derive(Debug, Default)]
pub struct Outbox {
    /// The last piece, to append to.
    pub bytes: Vec<u8>,
    /// The sealed pieces before it.
    sealed: VecDeque<Vec<u8>>,
    /// Number of bytes in the sealed pieces, and size of their memory.
    sealed_bytes: usize,
    sealed_memory: usize,
    /// Number of bytes of the first piece that are sent.
    sent: usize,
    /// The channel has accepted everything, but not sent all of it.
    is_held: bool,
}

impl Outbox {
    /// Returns the number of waiting bytes; those that a channel has accepted and holds count as
    /// one.
    pub fn waiting(&self) -> usize {
        self.sealed_bytes + self.bytes.len() - self.sent + usize::from(self.is_held)
    }

    /// Returns the number of bytes put in, including the sent bytes of the first piece: a position
    /// for [`Outbox::truncate`] and [`Outbox::insert`], valid until bytes are sent.
    pub fn len(&self) -> usize {
        self.sealed_bytes + self.bytes.len()
    }

    /// Returns whether it holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Starts a new piece.
    pub fn seal(&mut self) {
        if !self.bytes.is_empty() {
            let mut piece = std::mem::take(&mut self.bytes);
            if piece.capacity() > piece.len() / 2 * 3 {
                piece.shrink_to_fit();
            }
            self.sealed_bytes += piece.len();
            self.sealed_memory += piece.capacity();
            self.sealed.push_back(piece);
        }
    }

    /// Returns the bytes put in, of which none were sent, in one piece.
    pub fn into_bytes(mut self) -> Vec<u8> {
        if self.sealed.is_empty() {
            return self.bytes;
        }
        self.seal();
        self.sealed.make_contiguous().concat()
    }

    /// Starts a new piece if the last one is long.
    #[inline]
    pub fn seal_if_long(&mut self) {
        if self.bytes.len() >= PIECE_BYTES {
            self.seal();
        }
    }

    /// Removes everything after a position.
    pub fn truncate(&mut self, len: usize) {
        while self.sealed_bytes > len
            && let Some(piece) = self.sealed.pop_back()
        {
            self.sealed_bytes -= piece.len();
            self.sealed_memory -= piece.capacity();
            self.bytes = piece;
        }
        self.bytes.truncate(len - self.sealed_bytes);
    }

    /// Inserts a few bytes at a position after all bytes that are sent. Moves at most the rest of
    /// one piece.
    pub fn insert(&mut self, at: usize, inserted: &[u8]) {
        let (mut number, mut start) = (0, 0);
        while let Some(piece) = self.sealed.get(number)
            && start + piece.len() <= at
        {
            start += piece.len();
            number += 1;
        }
        let Some(piece) = self.sealed.get_mut(number) else {
            self.bytes.splice(at - start..at - start, inserted.iter().copied());
            return;
        };
        let before = piece.capacity();
        piece.splice(at - start..at - start, inserted.iter().copied());
        self.sealed_memory += piece.capacity() - before;
        self.sealed_bytes += inserted.len();
    }

    /// Sends as much as the socket accepts.
    ///
    /// # Errors
    /// Fails if the socket does.
    pub fn send(&mut self, socket: &mut impl Write) -> io::Result<()> {
        self.send_up_to(usize::MAX, socket).map(drop)
    }

    /// Sends as much as the socket accepts, but at most `most` bytes. Returns whether the socket
    /// would accept more.
    ///
    /// # Errors
    /// Fails if the socket does.
    pub fn send_up_to(&mut self, most: usize, socket: &mut impl Write) -> io::Result<bool> {
        let mut left = most;
        while self.sent < self.len() {
            let piece = self.sealed.front().unwrap_or(&self.bytes);
            let end = piece.len().min(self.sent.saturating_add(left));
            match socket.write(&piece[self.sent..end]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.sent += count;
                    left -= count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.seal_if_long();
                    return Ok(false);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            self.free_if_sent();
            if left == 0 && self.sent < self.len() {
                self.seal_if_long();
                return Ok(true);
            }
        }
        self.is_held = match socket.flush() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            flushed => flushed.map(|()| false)?,
        };
        Ok(!self.is_held)
    }

    /// Frees the first piece, or clears the last one, if all of it is sent.
    fn free_if_sent(&mut self) {
        match self.sealed.front() {
            Some(piece) if self.sent == piece.len() => {
                self.sealed_bytes -= piece.len();
                self.sealed_memory -= piece.capacity();
                self.sealed.pop_front();
            }
            None if self.sent == self.bytes.len() => {
                self.bytes.clear();
                if self.bytes.capacity() > KEPT_BYTES {
                    self.bytes = Vec::new();
                }
            }
            _ => return,
        }
        self.sent = 0;
    }

    /// Returns the size of the pieces' memory in bytes.
    pub fn buffer_bytes(&self) -> usize {
        self.sealed_memory + self.bytes.capacity()
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

    /// Transfers a few bytes per call, and sometimes none.
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

    /// Accepts as many bytes as it is opened for, and compares them with their expected values.
    #[derive(Default)]
    struct Valve {
        open: usize,
        taken: usize,
    }

    impl Write for Valve {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.open);
            if count == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            assert!(bytes[..count].iter().enumerate().all(|(at, &byte)| byte == (self.taken + at) as u8));
            self.open -= count;
            self.taken += count;
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

    #[test]
    fn an_outbox_that_is_never_empty_holds_no_more_than_waits() {
        // The reader takes bytes as fast as they are put in, and 300 replies are outstanding all
        // the time.
        const REPLY: usize = 10_000;
        let (mut outbox, mut socket) = (Outbox::default(), Valve::default());
        let mut put = 0;
        for round in 0..20_000 {
            outbox.bytes.extend((0..REPLY).map(|at| (put + at) as u8));
            put += REPLY;
            socket.open = if round < 300 { 0 } else { REPLY };
            outbox.send(&mut socket).unwrap();
            assert_eq!(outbox.waiting(), put - socket.taken);
            let held = outbox.buffer_bytes();
            assert!(held <= 2 * outbox.waiting() + 4 * PIECE_BYTES, "{held} bytes for {}", outbox.waiting());
        }
        socket.open = usize::MAX;
        outbox.send(&mut socket).unwrap();
        assert_eq!((outbox.waiting(), socket.taken), (0, put));
    }

    #[test]
    fn send_ends_at_its_limit_even_if_the_socket_accepts_more() {
        let (mut outbox, mut socket) = (Outbox::default(), Valve { open: usize::MAX, taken: 0 });
        outbox.bytes.extend((0..3 * PIECE_BYTES).map(|at| at as u8));
        assert!(outbox.send_up_to(100, &mut socket).unwrap());
        assert_eq!((socket.taken, outbox.waiting()), (100, 3 * PIECE_BYTES - 100));
        assert!(outbox.send_up_to(usize::MAX, &mut socket).unwrap());
        assert_eq!((socket.taken, outbox.waiting()), (3 * PIECE_BYTES, 0));
    }

    #[test]
    fn positions_hold_across_pieces() {
        for seals in 0..8_usize {
            let (mut outbox, mut socket) = (Outbox::default(), Slow::default());
            for (number, text) in ["one ", "two ", "three"].iter().enumerate() {
                outbox.bytes.extend_from_slice(text.as_bytes());
                if seals >> number & 1 == 1 {
                    outbox.seal();
                }
            }
            outbox.insert(4, b"and ");
            outbox.insert(6, b"..");
            outbox.insert(outbox.len(), b"!");
            outbox.truncate(outbox.len() - 3);
            outbox.insert(0, b"> ");
            assert_eq!(outbox.len(), b"> one an..d two thr".len());
            while outbox.waiting() > 0 {
                outbox.send(&mut socket).unwrap();
            }
            assert_eq!(socket.got.escape_ascii().to_string(), "> one an..d two thr", "seals {seals:b}");
            assert_eq!(outbox.len(), 0);
        }
    }

    #[test]
    fn an_inbox_that_is_never_empty_gives_back_what_a_burst_took() {
        let (mut inbox, mut socket) = (Inbox::default(), Slow::default());
        while inbox.arrived().len() < 16 << 20 {
            inbox.receive(&mut socket).unwrap();
        }
        let mut taken = 0;
        for _ in 0..1000 {
            let range = inbox.take(inbox.arrived().len().saturating_sub(10).min(1 << 20));
            for &byte in inbox.taken(range) {
                assert_eq!(byte, taken as u8);
                taken += 1;
            }
            inbox.receive(&mut socket).unwrap();
        }
        assert!(inbox.buffer_bytes() <= 2 * KEPT_BYTES, "{} bytes", inbox.buffer_bytes());
    }
}
