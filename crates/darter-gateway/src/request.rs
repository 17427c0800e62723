//! The parser of requests: arrays of bulk strings, and inline commands, with Redis's limits and
//! error messages.
//!
//! The parser keeps its position, reads no byte twice, and returns ranges of the buffer, so that it
//! copies only the words of inline commands. It does not recurse, since an array contains only bulk
//! strings. It allocates nothing for announced lengths.
//!
//! A request that announces an argument longer than the limit is rejected from the announcement on.
//! The parser reports its bytes as they arrive, so that they can be dropped, and with the last of
//! them that the request is too long. So the request never takes more memory than one read, and the
//! connection stays usable. A reset while the client is still writing would rarely let it see the
//! error.

use darter_fabric::turns;
use std::borrow::Cow;

/// Most bytes of a bulk string.
pub(super) const BULK_BYTES_MAX: usize = 512 << 20;
/// Most bulk strings of an array.
pub(super) const ARGUMENTS_MAX: i64 = 1 << 20;
/// Most bytes of a line: an inline command, or the header of an array or a bulk string.
pub(super) const LINE_BYTES_MAX: usize = 64 << 10;
/// Most bulk strings of an array before authentication.
const STRANGERS_ARGUMENTS_MAX: i64 = 10;
/// Most bytes of a bulk string before authentication.
const STRANGERS_BULK_BYTES_MAX: usize = 16 << 10;
/// The work of parsing an argument, in bytes.
const ARGUMENT_BYTES: usize = 64;
/// Spans whose memory is kept from one request to the next.
pub(super) const SPANS_KEPT: usize = 256;

/// The reason why a client's bytes are not a request: an error text in Redis's words, for the
/// client.
pub type Malformed = Cow<'static, str>;

/// The result of parsing the received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A complete request, with its length in bytes. [`Parser::arguments`] returns its arguments;
    /// an empty request has none.
    Request(usize),
    /// Bytes of a rejected request, to be dropped: it has announced an argument that is longer than
    /// the limit.
    Dropped {
        /// The number of bytes.
        bytes: usize,
        /// The announced length, if these are the last bytes of the request.
        too_long: Option<usize>,
    },
    /// More bytes must arrive.
    Incomplete,
}

/// The range of an argument.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub from: u32,
    pub to: u32,
}

/// The position of the parser in the received bytes.
#[derive(Debug)]
pub struct Parser {
    /// The longest accepted argument, in bytes.
    argument_bytes_max: usize,
    /// The announced length of an argument that exceeds it.
    too_long: Option<usize>,
    /// Bytes of the request that are parsed and were not reported as dropped.
    parsed: usize,
    /// Bytes after the parsed ones that contain no end of a line.
    searched: usize,
    /// Arguments of an array that have not arrived yet.
    missing: usize,
    /// Missing bytes of the bulk string whose header is parsed, including the end of the line after
    /// it.
    bulk: Option<usize>,
    spans: Vec<Span>,
    /// The words of an inline command; the spans refer to them.
    words: Vec<u8>,
    is_line: bool,
    is_done: bool,
}

impl Default for Parser {
    fn default() -> Self {
        Self::with_argument_bytes_max(BULK_BYTES_MAX)
    }
}

/// The arguments of a request, beginning with the command's name.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'b> {
    spans: &'b [Span],
    bytes: &'b [u8],
}

impl<'b> Arguments<'b> {
    /// Creates arguments from their ranges in a request's bytes.
    pub(super) fn new(spans: &'b [Span], bytes: &'b [u8]) -> Self {
        Self { spans, bytes }
    }

    /// Returns the number of arguments.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns whether there are no arguments.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns an argument.
    ///
    /// # Panics
    /// Panics if there is no such argument.
    #[inline]
    pub fn get(&self, number: usize) -> &'b [u8] {
        let Span { from, to } = self.spans[number];
        &self.bytes[from as usize..to as usize]
    }

    /// Returns the arguments from a position on.
    pub fn from(&self, number: usize) -> impl ExactSizeIterator<Item = &'b [u8]> + Clone + use<'b> {
        let bytes = self.bytes;
        let spans = self.spans.get(number..).unwrap_or_default();
        spans.iter().map(move |span| &bytes[span.from as usize..span.to as usize])
    }
}

impl Parser {
    /// Creates a parser that rejects requests with longer arguments.
    pub fn with_argument_bytes_max(argument_bytes_max: usize) -> Self {
        Self {
            argument_bytes_max,
            too_long: None,
            parsed: 0,
            searched: 0,
            missing: 0,
            bulk: None,
            spans: Vec::new(),
            words: Vec::new(),
            is_line: false,
            is_done: false,
        }
    }

    /// Continues parsing. `arrived` begins where the last request ended; since the last call, bytes
    /// may only have been appended to it.
    ///
    /// # Errors
    /// Fails if the bytes can never become a request; the connection is then unusable.
    pub fn advance(&mut self, arrived: &[u8], is_trusted: bool) -> Result<Step, Malformed> {
        if self.is_done {
            self.begin();
        }
        if self.parsed == 0 && self.missing == 0 {
            match arrived.first() {
                None => return Ok(Step::Incomplete),
                Some(b'*') => {
                    if !self.array_head(arrived, is_trusted)? {
                        return Ok(Step::Incomplete);
                    }
                }
                Some(_) => return self.line_of_words(arrived),
            }
        }
        while self.missing > 0 {
            let bytes = match self.bulk {
                Some(bytes) => bytes,
                None => match self.bulk_head(arrived, is_trusted)? {
                    Some(bytes) => *self.bulk.insert(bytes + 2),
                    None => return Ok(self.incomplete()),
                },
            };
            let here = bytes.min(arrived.len() - self.parsed);
            if self.too_long.is_some() {
                self.parsed += here;
                self.bulk = Some(bytes - here);
            }
            if here < bytes {
                return Ok(self.incomplete());
            }
            if self.too_long.is_none() {
                let end = self.parsed + bytes;
                turns::count(ARGUMENT_BYTES);
                self.spans.push(Span { from: self.parsed as u32, to: (end - 2) as u32 });
                self.parsed = end;
            }
            self.bulk = None;
            self.missing -= 1;
        }
        Ok(self.done())
    }

    /// Returns the arguments of the request that [`Parser::advance`] returned last, given the same
    /// bytes.
    pub fn arguments<'b>(&'b self, arrived: &'b [u8]) -> Arguments<'b> {
        Arguments { spans: &self.spans, bytes: if self.is_line { &self.words } else { arrived } }
    }

    /// Returns the ranges of that request's arguments, or `None` for an inline command, whose words
    /// the parser holds.
    pub(super) fn spans(&self) -> Option<&[Span]> {
        (!self.is_line).then_some(&self.spans)
    }

    /// Returns whether a request has begun and is incomplete.
    pub fn is_within(&self) -> bool {
        !self.is_done && (self.parsed > 0 || self.searched > 0 || self.missing > 0)
    }

    /// Returns the bytes of memory that the parser holds.
    pub fn buffer_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>() + self.words.capacity()
    }

    fn begin(&mut self) {
        let (mut spans, mut words) = (std::mem::take(&mut self.spans), std::mem::take(&mut self.words));
        if spans.capacity() > SPANS_KEPT {
            spans = Vec::new();
        }
        if words.capacity() > SPANS_KEPT {
            words = Vec::new();
        }
        spans.clear();
        words.clear();
        *self = Self { spans, words, ..Self::with_argument_bytes_max(self.argument_bytes_max) };
    }

    fn done(&mut self) -> Step {
        self.is_done = true;
        match self.too_long {
            None => Step::Request(self.parsed),
            too_long => Step::Dropped { bytes: self.parsed, too_long },
        }
    }

    /// Ends a call without a complete request.
    fn incomplete(&mut self) -> Step {
        if self.too_long.is_none() || self.parsed == 0 {
            return Step::Incomplete;
        }
        Step::Dropped { bytes: std::mem::take(&mut self.parsed), too_long: None }
    }

    /// Returns the line after the parsed bytes, up to the byte that ends it.
    fn line<'b>(
        &mut self,
        arrived: &'b [u8],
        end: u8,
        too_long: &'static str,
    ) -> Result<Option<&'b [u8]>, Malformed> {
        let rest = &arrived[self.parsed..];
        let found = rest[self.searched..].iter().position(|&byte| byte == end);
        if found.is_none() {
            self.searched = rest.len();
            if rest.len() > LINE_BYTES_MAX {
                return Err(too_long.into());
            }
        }
        Ok(found.map(|at| &rest[..self.searched + at]))
    }

    /// Returns the header line of an array or a bulk string if its line end has arrived.
    fn head<'b>(&mut self, arrived: &'b [u8], too_long: &'static str) -> Result<Option<&'b [u8]>, Malformed> {
        let Some(line) = self.line(arrived, b'\r', too_long)? else { return Ok(None) };
        if arrived.len() < self.parsed + line.len() + 2 {
            // The next call finds the end at once.
            self.searched = line.len();
            return Ok(None);
        }
        Ok(Some(line))
    }

    fn array_head(&mut self, arrived: &[u8], is_trusted: bool) -> Result<bool, Malformed> {
        let Some(line) = self.head(arrived, "Protocol error: too big mbulk count string")? else {
            return Ok(false);
        };
        let count = super::number::integer(&line[1..]).filter(|&count| count <= ARGUMENTS_MAX);
        let Some(count) = count else { return Err("Protocol error: invalid multibulk length".into()) };
        if !is_trusted && count > STRANGERS_ARGUMENTS_MAX {
            return Err("Protocol error: unauthenticated multibulk length".into());
        }
        self.pass(line.len() + 2);
        self.missing = usize::try_from(count).unwrap_or(0);
        Ok(true)
    }

    fn bulk_head(&mut self, arrived: &[u8], is_trusted: bool) -> Result<Option<usize>, Malformed> {
        let Some(line) = self.head(arrived, "Protocol error: too big bulk count string")? else {
            return Ok(None);
        };
        let (first, digits) = line.split_first().map_or((b'\r', line), |(&first, rest)| (first, rest));
        if first != b'$' {
            let got = if first == b'\r' || first == b'\n' { ' ' } else { char::from(first) };
            return Err(format!("Protocol error: expected '$', got '{got}'").into());
        }
        let bytes = super::number::integer(digits).and_then(|bytes| usize::try_from(bytes).ok());
        let Some(bytes) = bytes.filter(|&bytes| bytes <= BULK_BYTES_MAX) else {
            return Err("Protocol error: invalid bulk length".into());
        };
        if !is_trusted && bytes > STRANGERS_BULK_BYTES_MAX {
            return Err("Protocol error: unauthenticated bulk length".into());
        }
        self.pass(line.len() + 2);
        if bytes > self.argument_bytes_max && self.too_long.is_none() {
            self.too_long = Some(bytes);
            self.spans = Vec::new();
        }
        Ok(Some(bytes))
    }

    fn pass(&mut self, bytes: usize) {
        self.parsed += bytes;
        self.searched = 0;
    }

    fn line_of_words(&mut self, arrived: &[u8]) -> Result<Step, Malformed> {
        let Some(line) = self.line(arrived, b'\n', "Protocol error: too big inline request")? else {
            return Ok(Step::Incomplete);
        };
        self.is_line = true;
        self.pass(line.len() + 1);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // Up to the first zero byte, as Redis reads it.
        let line = line.split(|&byte| byte == 0).next().unwrap_or_default();
        self.split_words(line).ok_or("Protocol error: unbalanced quotes in request")?;
        Ok(self.done())
    }

    /// Splits an inline command into words. Returns `None` if a quote is not closed, or a closing
    /// quote is not followed by a space.
    fn split_words(&mut self, line: &[u8]) -> Option<()> {
        let is_space = |byte: u8| byte.is_ascii_whitespace() || byte == 0x0b;
        let mut rest = line;
        loop {
            rest = &rest[rest.iter().position(|&byte| !is_space(byte)).unwrap_or(rest.len())..];
            if rest.is_empty() {
                return Some(());
            }
            let from = self.words.len() as u32;
            rest = self.word(rest)?;
            self.spans.push(Span { from, to: self.words.len() as u32 });
        }
    }

    /// Parses a word. Returns the rest of the line.
    fn word<'l>(&mut self, mut rest: &'l [u8]) -> Option<&'l [u8]> {
        let mut quote = None;
        loop {
            let Some((&byte, behind)) = rest.split_first() else {
                return quote.is_none().then_some(rest);
            };
            rest = behind;
            match (quote, byte) {
                (Some(b'"'), b'\\') => match rest {
                    [b'x', high, low, behind @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                        self.words.push(hex(*high) << 4 | hex(*low));
                        rest = behind;
                    }
                    [escaped, behind @ ..] => {
                        self.words.push(match escaped {
                            b'n' => b'\n',
                            b'r' => b'\r',
                            b't' => b'\t',
                            b'b' => 0x08,
                            b'a' => 0x07,
                            other => *other,
                        });
                        rest = behind;
                    }
                    [] => self.words.push(b'\\'),
                },
                (Some(b'\''), b'\\') if rest.first() == Some(&b'\'') => {
                    self.words.push(b'\'');
                    rest = &rest[1..];
                }
                (Some(open), byte) if byte == open => {
                    let ends = rest.first().is_none_or(|&next| next.is_ascii_whitespace() || next == 0x0b);
                    return ends.then_some(rest);
                }
                (None, b' ' | b'\n' | b'\r' | b'\t') => return Some(rest),
                (None, b'"' | b'\'') => quote = Some(byte),
                (_, byte) => self.words.push(byte),
            }
        }
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

#[cfg(test)]
mod tests;
