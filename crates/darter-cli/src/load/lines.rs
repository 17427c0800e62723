//! The lines of a file with their numbers, whatever bytes they contain.
//!
//! Lines end with LF or CR LF. A byte-order mark before the first line is dropped. A line longer
//! than [`LINE_BYTES_MAX`] is skipped without being stored. Lines can be put back, to be read
//! again. The first and last lines of exports are checked and left out.

use super::unreadable;
use crate::envelope::{EnvelopeReader, Extent};
use crate::failure::Failure;
use std::collections::VecDeque;
use std::error::Error;
use std::io::{self, BufRead, ErrorKind};

/// Maximum bytes of a line: enough for a 16 MiB value with every byte written as `\xNN`.
pub(super) const LINE_BYTES_MAX: usize = 72 << 20;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Number of the line, from 1.
    pub(super) number: u64,
    /// Bytes of the line, without the line end; `None` if there are too many.
    pub(super) bytes: Option<Vec<u8>>,
    /// Whether the line has a line end; only the last line of a file can lack it.
    pub(super) is_ended: bool,
}

/// Reads a file line by line.
pub(super) struct Lines<R> {
    input: R,
    read: u64,
    envelope: EnvelopeReader,
    back: VecDeque<Line>,
    bytes_max: usize,
    is_cut: bool,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            read: 0,
            envelope: EnvelopeReader::default(),
            back: VecDeque::new(),
            bytes_max: LINE_BYTES_MAX,
            is_cut: false,
        }
    }

    /// Returns the next line, except the first and last lines of an export; `None` at the end.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or is an export that was cut or changed.
    pub(super) fn next(&mut self) -> Result<Option<Line>, Failure> {
        if let Some(line) = self.back.pop_front() {
            return Ok(Some(line));
        }
        loop {
            let line = self.read_line().map_err(|error| {
                self.is_cut = is_early_end(&error);
                unreadable(error)
            })?;
            let Some(line) = line else { break };
            let bytes = line.bytes.as_deref().unwrap_or_default();
            let is_content = self.envelope.take(bytes, line.is_ended).map_err(|why| {
                self.is_cut = !line.is_ended;
                Failure::failed(format_args!("line {}: {why}", line.number))
            })?;
            if is_content {
                return Ok(Some(line));
            }
        }
        self.envelope.end().map_err(|why| {
            self.is_cut = true;
            Failure::failed(why)
        })?;
        Ok(None)
    }

    /// Returns whether the input ended too early. Unless the file was also changed, the lines
    /// returned before are as they were written.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Reads the first line if no line was read. Returns the kind of keys in the export; `None` if
    /// the file does not begin as an export does.
    ///
    /// # Errors
    /// The same as of [`Self::next`].
    pub(super) fn extent(&mut self) -> Result<Option<Extent>, Failure> {
        if self.read == 0
            && let Some(line) = self.next()?
        {
            self.back.push_front(line);
        }
        Ok(self.envelope.extent())
    }

    fn read_line(&mut self) -> io::Result<Option<Line>> {
        let mut bytes = Vec::new();
        let mut too_many = false;
        let mut any = false;
        let is_ended = loop {
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let end = chunk.iter().position(|&byte| byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            any |= !chunk.is_empty();
            too_many |= bytes.len() + part.len() > self.bytes_max;
            if too_many {
                bytes = Vec::new();
            } else {
                bytes.extend_from_slice(part);
            }
            let is_last = end.is_some() || chunk.is_empty();
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            if is_last {
                break end.is_some();
            }
        };
        if !any {
            return Ok(None);
        }
        self.read += 1;
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
        if self.read == 1 && bytes.starts_with(b"\xef\xbb\xbf") {
            bytes.drain(..3);
        }
        Ok(Some(Line { number: self.read, bytes: (!too_many).then_some(bytes), is_ended }))
    }

    /// Puts lines back, in order, before the lines not yet read.
    pub(super) fn put_back(&mut self, lines: Vec<Line>) {
        for line in lines.into_iter().rev() {
            self.back.push_front(line);
        }
    }
}

/// Returns whether compressed input ended before its own end.
fn is_early_end(error: &io::Error) -> bool {
    let mut cause = Some(error as &(dyn Error + 'static));
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::UnexpectedEof) {
            return true;
        }
        cause = match error.downcast_ref::<io::Error>() {
            // Its own `source` is the source of the error that it wraps.
            Some(error) => error.get_ref().map(|held| held as &(dyn Error + 'static)),
            None => error.source(),
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Cursor};

    fn read(text: &[u8], capacity: usize, bytes_max: usize) -> Vec<(u64, Option<Vec<u8>>)> {
        let mut lines = Lines::new(BufReader::with_capacity(capacity, Cursor::new(text)));
        lines.bytes_max = bytes_max;
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            found.push((line.number, line.bytes));
        }
        found
    }

    #[test]
    fn lines_are_the_same_whatever_the_buffer() {
        let text = b"\xef\xbb\xbfone\r\n\ntoo long for it\nf\xffur\nlast";
        let expected = vec![
            (1, Some(b"one".to_vec())),
            (2, Some(Vec::new())),
            (3, None),
            (4, Some(b"f\xffur".to_vec())),
            (5, Some(b"last".to_vec())),
        ];
        for capacity in 1..50 {
            assert_eq!(read(text, capacity, 10), expected);
        }
        assert_eq!(read(b"", 8, 10), Vec::new());
        assert_eq!(read(b"a\n", 8, 10).len(), 1);
    }
}
