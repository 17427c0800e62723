//! Requests that have arrived together. They are parsed before the first of them runs, so that the
//! keys they name can be prefetched.

use super::request::{Arguments, Malformed, Parser, SPANS_KEPT, Span, Step};
use std::ops::Range;

/// Requests that are parsed but not executed yet.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    spans: Vec<Span>,
    requests: Vec<Request>,
    /// Whether the last request is an inline command, whose words the parser holds.
    ends_with_line: bool,
}

/// The range of a request in the received bytes, and of its arguments in the spans.
#[derive(Clone, Debug)]
struct Request {
    bytes: Range<usize>,
    spans: Range<usize>,
    /// The announced length of an argument for which the request is rejected. Such a request has no
    /// arguments, nor do the parts of it that were dropped before.
    too_long: Option<usize>,
}

impl Pipeline {
    /// Parses up to `most` requests from the received bytes, replacing the requests held so far.
    ///
    /// # Errors
    /// As for [`Parser::advance`], for the bytes after the parsed requests.
    pub(super) fn fill(
        &mut self,
        parser: &mut Parser,
        arrived: &[u8],
        is_trusted: bool,
        most: usize,
    ) -> Result<(), Malformed> {
        self.spans.clear();
        self.requests.clear();
        self.ends_with_line = false;
        let mut from = 0;
        while self.requests.len() < most && !self.ends_with_line {
            let first = self.spans.len();
            let (bytes, too_long) = match parser.advance(&arrived[from..], is_trusted)? {
                Step::Incomplete => break,
                Step::Dropped { bytes, too_long } => (bytes, too_long),
                Step::Request(bytes) => {
                    match parser.spans() {
                        Some(spans) => self.spans.extend_from_slice(spans),
                        None => self.ends_with_line = true,
                    }
                    (bytes, None)
                }
            };
            let spans = first..self.spans.len();
            self.requests.push(Request { bytes: from..from + bytes, spans, too_long });
            from += bytes;
        }
        Ok(())
    }

    /// Returns the number of requests.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns the end of a request in the received bytes.
    pub(super) fn end(&self, number: usize) -> usize {
        self.requests[number].bytes.end
    }

    /// Returns the announced length of an argument for which a request is rejected.
    pub(super) fn too_long(&self, number: usize) -> Option<usize> {
        self.requests[number].too_long
    }

    /// Returns the arguments of a request, given the same parser and bytes.
    #[inline]
    pub(super) fn arguments<'b>(
        &'b self,
        number: usize,
        parser: &'b Parser,
        arrived: &'b [u8],
    ) -> Arguments<'b> {
        let is_last = number + 1 == self.requests.len();
        if self.ends_with_line && is_last {
            return parser.arguments(arrived);
        }
        self.of(&self.requests[number], arrived)
    }

    /// Returns the argument after each command's name, which is a key in most cases.
    pub(super) fn first_arguments<'b>(&'b self, arrived: &'b [u8]) -> impl Iterator<Item = &'b [u8]> {
        let with_arguments = self.requests.iter().filter(|request| request.spans.len() > 1);
        with_arguments.map(|request| self.of(request, arrived).get(1))
    }

    #[inline]
    fn of<'b>(&'b self, request: &Request, arrived: &'b [u8]) -> Arguments<'b> {
        Arguments::new(&self.spans[request.spans.clone()], &arrived[request.bytes.clone()])
    }

    /// Frees the memory that an unusually large request used.
    pub(super) fn rest(&mut self) {
        if self.spans.capacity() > SPANS_KEPT {
            self.spans = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses bytes that arrive in pieces, at most `most` requests at a time. Returns all requests,
    /// and the error at their end.
    fn requests(pieces: &[&[u8]], most: usize) -> (Vec<Vec<Vec<u8>>>, Option<Malformed>) {
        let (mut pipeline, mut parser) = (Pipeline::default(), Parser::default());
        let (mut arrived, mut found) = (Vec::new(), Vec::new());
        for piece in pieces {
            arrived.extend_from_slice(piece);
            loop {
                let parsed = pipeline.fill(&mut parser, &arrived, true, most);
                let arguments = |number| pipeline.arguments(number, &parser, &arrived);
                found.extend(
                    (0..pipeline.len()).map(|number| arguments(number).from(0).map(<[u8]>::to_vec).collect()),
                );
                if let Err(malformed) = parsed {
                    return (found, Some(malformed));
                }
                match pipeline.len() {
                    0 => break,
                    all => arrived.drain(..pipeline.end(all - 1)),
                };
            }
        }
        (found, None)
    }

    #[test]
    fn however_many_are_parsed_at_once_they_are_the_same_requests() {
        let bytes = b"*1\r\n$4\r\nPING\r\nset \"a b\" c\r\n\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*0\r\nget k\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n*1\r\n!x\r\n";
        let singly = requests(&[bytes], 1);
        assert_eq!((singly.0.len(), singly.1.is_some()), (7, true), "{singly:?}");
        for most in 2..10 {
            assert_eq!(requests(&[bytes], most), singly);
            for at in 0..bytes.len() {
                let (first, second) = bytes.split_at(at);
                assert_eq!(requests(&[first, second], most), singly, "cut at {at}, {most} at once");
            }
        }
    }

    #[test]
    fn what_follows_names_is_foreseen() {
        let arrived = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$4\r\nPING\r\n*3\r\n$4\r\nHGET\r\n$1\r\nb\r\n$1\r\nf\r\nget c\r\n";
        let (mut pipeline, mut parser) = (Pipeline::default(), Parser::default());
        pipeline.fill(&mut parser, arrived, true, 16).unwrap();
        assert_eq!(pipeline.len(), 4);
        assert_eq!(pipeline.first_arguments(arrived).collect::<Vec<_>>(), [b"a", b"b"]);
    }
}
