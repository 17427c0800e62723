//! The commands of a client between `MULTI` and `EXEC`, and the keys that it watches.

use super::keyspace::Scoped;
use super::request::{Arguments, Span};
use super::table::Command;
use std::collections::BTreeMap;
use std::ops::Range;

/// Most commands that wait for `EXEC`.
const COMMANDS_MAX: usize = 100_000;
/// Most bytes of commands that wait for `EXEC`.
const BYTES_MAX: usize = 256 << 20;

/// The state of a transaction that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Commands wait for `EXEC`.
    Queuing,
    /// A command was refused: `EXEC` fails.
    Aborted,
    /// `MULTI` was refused: all commands are refused, and `EXEC` fails.
    Refused,
}

/// The commands that wait for `EXEC`.
#[derive(Debug)]
pub(super) struct Queue {
    /// The state of the transaction.
    pub mode: Mode,
    requests: Vec<Request>,
    spans: Vec<Span>,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Request {
    command: &'static Command,
    spans: Range<usize>,
    bytes: Range<usize>,
}

/// The watched keys, and the digests of their values when `WATCH` read them; `None` if the key was
/// absent.
pub(super) type Watched = BTreeMap<Scoped, Option<u64>>;

impl Queue {
    /// Begins a transaction.
    pub(super) fn new(mode: Mode) -> Self {
        Self { mode, requests: Vec::new(), spans: Vec::new(), bytes: Vec::new() }
    }

    /// Adds a command. Returns false if there is no room for it.
    pub(super) fn add(&mut self, command: &'static Command, args: &Arguments<'_>) -> bool {
        let bytes: usize = args.from(0).map(<[u8]>::len).sum();
        if self.requests.len() == COMMANDS_MAX || self.bytes.len() + bytes > BYTES_MAX {
            return false;
        }
        let (start, first) = (self.bytes.len(), self.spans.len());
        for argument in args.from(0) {
            let from = (self.bytes.len() - start) as u32;
            self.bytes.extend_from_slice(argument);
            self.spans.push(Span { from, to: (self.bytes.len() - start) as u32 });
        }
        let (spans, bytes) = (first..self.spans.len(), start..self.bytes.len());
        self.requests.push(Request { command, spans, bytes });
        true
    }

    /// Returns the number of commands.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns the commands and their arguments, in their order.
    pub(super) fn requests(&self) -> impl Iterator<Item = (&'static Command, Arguments<'_>)> {
        self.requests.iter().map(|Request { command, spans, bytes }| {
            (*command, Arguments::new(&self.spans[spans.clone()], &self.bytes[bytes.clone()]))
        })
    }

    /// Returns the size of its buffers.
    pub(super) fn buffer_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.spans.capacity() * size_of::<Span>()
            + self.requests.capacity() * size_of::<Request>()
    }
}
