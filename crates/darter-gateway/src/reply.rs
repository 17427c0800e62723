//! Replies: RESP2, or RESP3 for clients that have switched to it.

use super::mailbox::{Form, Message};
use darter_fabric::turns;
use darter_fabric::wire::Outbox;

/// The work of a line, in bytes.
const LINE_BYTES: usize = 64;

/// Which messages a client gets, and in which protocol.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hears {
    pub(super) is_resp3: bool,
    pub(super) is_subscribed: bool,
    pub(super) is_monitor: bool,
}

/// Returns the beginning of a message; `None` if the client does not get it. A push is an array in
/// RESP2, in which invalidations only reach subscribers to which they are redirected.
fn beginning(message: &Message, hears: Hears) -> Option<&'static [u8]> {
    match message.form {
        Form::Whole if hears.is_monitor => Some(b""),
        Form::Push if hears.is_subscribed => Some(if hears.is_resp3 { b">" } else { b"*" }),
        Form::Invalidation { .. } if hears.is_resp3 => Some(b">2\r\n$10\r\ninvalidate\r\n"),
        Form::Invalidation { is_redirected: true } if hears.is_subscribed => {
            Some(b"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n")
        }
        Form::BrokenRedirection if hears.is_resp3 => Some(b">2\r\n$21\r\ntracking-redir-broken\r\n:"),
        _ => None,
    }
}

/// Appends a message, if the client gets it.
pub(super) fn put_message(out: &mut Outbox, message: &Message, hears: Hears) {
    let Some(beginning) = beginning(message, hears) else { return };
    out.bytes.extend_from_slice(beginning);
    out.bytes.extend_from_slice(match message.form {
        Form::Invalidation { .. } if !message.bytes.is_empty() => &message.bytes,
        Form::Invalidation { .. } if hears.is_resp3 => b"_\r\n",
        Form::Invalidation { .. } => b"$-1\r\n",
        _ => &message.bytes,
    });
    out.seal_if_long();
    turns::count(LINE_BYTES + message.bytes.len());
}

/// The writer of one reply, which is appended to the waiting replies.
#[derive(Debug)]
pub(super) struct Reply<'o> {
    out: &'o mut Outbox,
    /// The position at which the reply begins.
    start: usize,
    is_resp3: bool,
}

impl<'o> Reply<'o> {
    /// Begins a reply at the end of an outbox.
    pub(super) fn new(out: &'o mut Outbox, is_resp3: bool) -> Self {
        Self { start: out.len(), out, is_resp3 }
    }

    /// Returns a writer for a part of this reply, at its end.
    pub(super) fn again(&mut self) -> Reply<'_> {
        Reply { out: &mut *self.out, start: self.start, is_resp3: self.is_resp3 }
    }

    /// Switches to RESP3, or back to RESP2.
    pub(super) fn speak_resp3(&mut self, yes: bool) {
        self.is_resp3 = yes;
    }

    /// Returns whether replies are written as RESP3.
    pub(super) fn is_resp3(&self) -> bool {
        self.is_resp3
    }

    /// Returns the position at which the next byte is written.
    pub(super) fn position(&self) -> usize {
        self.out.len()
    }

    /// Returns the bytes of this reply so far.
    pub(super) fn written(&self) -> usize {
        self.out.len() - self.start
    }

    /// Removes everything written from a position on.
    pub(super) fn take_back(&mut self, position: usize) {
        self.out.truncate(position);
    }

    /// Writes a line of a type.
    fn line(&mut self, kind: u8, text: &[u8]) {
        let bytes = &mut self.out.bytes;
        bytes.push(kind);
        bytes.extend_from_slice(text);
        bytes.extend_from_slice(b"\r\n");
        self.out.seal_if_long();
        turns::count(LINE_BYTES);
    }

    fn counted(&mut self, kind: u8, count: usize) {
        self.line(kind, itoa::Buffer::new().format(count).as_bytes());
    }

    /// Writes `OK`.
    pub(super) fn ok(&mut self) {
        self.out.bytes.extend_from_slice(b"+OK\r\n");
    }

    /// Writes a simple string, which has one line.
    pub(super) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// Writes an error that begins with its code. Line ends in it become spaces.
    pub(super) fn error(&mut self, text: &str) {
        let text = text.trim_matches(['\r', '\n']);
        self.line(b'-', text.replace(['\r', '\n'], " ").as_bytes());
    }

    /// Writes an integer.
    pub(super) fn integer(&mut self, number: i64) {
        self.line(b':', itoa::Buffer::new().format(number).as_bytes());
    }

    /// Writes a score.
    pub(super) fn double(&mut self, number: f64) {
        self.decimal(&super::score::text(number));
    }

    /// Writes a decimal number.
    pub(super) fn decimal(&mut self, text: &str) {
        if self.is_resp3 { self.line(b',', text.as_bytes()) } else { self.bulk(text.as_bytes()) }
    }

    /// Writes a score, or null.
    pub(super) fn double_or_null(&mut self, number: Option<f64>) {
        match number {
            Some(number) => self.double(number),
            None => self.null(),
        }
    }

    /// Writes a count.
    pub(super) fn count(&mut self, number: usize) {
        self.integer(super::number::signed(number));
    }

    /// Writes 1 or 0.
    pub(super) fn flag(&mut self, yes: bool) {
        self.out.bytes.extend_from_slice(if yes { b":1\r\n" } else { b":0\r\n" });
    }

    /// Begins a push of `count` replies, which is an array in RESP2.
    pub(super) fn push(&mut self, count: usize) {
        self.counted(if self.is_resp3 { b'>' } else { b'*' }, count);
    }

    /// Writes a message, if the client gets it.
    pub(super) fn message(&mut self, message: &Message, hears: Hears) {
        put_message(self.out, message, hears);
    }

    /// Writes a complete reply.
    #[cfg(feature = "scripts")]
    pub(super) fn whole(&mut self, reply: &[u8]) {
        self.out.bytes.extend_from_slice(reply);
        self.out.seal_if_long();
        turns::count(reply.len());
    }

    /// Writes true or false, which are 1 and 0 in RESP2.
    #[cfg(feature = "scripts")]
    pub(super) fn boolean(&mut self, yes: bool) {
        if self.is_resp3 { self.line(b'#', if yes { b"t" } else { b"f" }) } else { self.flag(yes) }
    }

    /// Writes a number of any length.
    #[cfg(feature = "scripts")]
    pub(super) fn big_number(&mut self, digits: &str) {
        if self.is_resp3 { self.line(b'(', digits.as_bytes()) } else { self.bulk(digits.as_bytes()) }
    }

    /// Writes a bulk string.
    #[inline]
    pub(super) fn bulk(&mut self, text: &[u8]) {
        self.counted(b'$', text.len());
        let bytes = &mut self.out.bytes;
        bytes.reserve(text.len() + 2);
        bytes.extend_from_slice(text);
        bytes.extend_from_slice(b"\r\n");
        self.out.seal_if_long();
        turns::count(text.len());
    }

    /// Writes a bulk string, or null.
    pub(super) fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Writes text for users.
    pub(super) fn text(&mut self, text: &str) {
        self.verbatim("txt", text.as_bytes());
    }

    /// Writes text in a format, which three letters name.
    pub(super) fn verbatim(&mut self, format: &str, text: &[u8]) {
        if self.is_resp3 {
            self.counted(b'=', text.len() + 4);
            let format = format.bytes().chain(*b"   ").take(3);
            self.out.bytes.extend(format.chain(*b":"));
            self.out.bytes.extend_from_slice(text);
            self.out.bytes.extend_from_slice(b"\r\n");
        } else {
            self.bulk(text);
        }
    }

    /// Writes null.
    pub(super) fn null(&mut self) {
        self.out.bytes.extend_from_slice(if self.is_resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// Writes null, which is a null array in RESP2.
    pub(super) fn null_array(&mut self) {
        self.out.bytes.extend_from_slice(if self.is_resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// Begins an array of `count` replies.
    pub(super) fn array(&mut self, count: usize) {
        self.counted(b'*', count);
    }

    /// Begins a map of `pairs` pairs of replies.
    pub(super) fn map(&mut self, pairs: usize) {
        if self.is_resp3 { self.counted(b'%', pairs) } else { self.counted(b'*', pairs * 2) }
    }

    /// Begins a set of `count` replies.
    pub(super) fn set(&mut self, count: usize) {
        self.counted(if self.is_resp3 { b'~' } else { b'*' }, count);
    }

    /// Turns everything written from a position on into an array, by inserting its header.
    pub(super) fn array_from(&mut self, position: usize, count: usize) {
        self.put_head(position, b'*', count);
    }

    /// Turns everything written from a position on into a set, by inserting its header.
    pub(super) fn set_from(&mut self, position: usize, count: usize) {
        self.put_head(position, if self.is_resp3 { b'~' } else { b'*' }, count);
    }

    /// Turns everything written from a position on into a map, by inserting its header.
    pub(super) fn map_from(&mut self, position: usize, pairs: usize) {
        let (kind, count) = if self.is_resp3 { (b'%', pairs) } else { (b'*', pairs * 2) };
        self.put_head(position, kind, count);
    }

    fn put_head(&mut self, position: usize, kind: u8, count: usize) {
        let mut digits = itoa::Buffer::new();
        let head = [&[kind], digits.format(count).as_bytes(), b"\r\n"].concat();
        self.out.insert(position, &head);
    }
}
