//! The words of a command that a script calls.

use crate::request::{Arguments, Span};

/// Words in one buffer.
#[derive(Debug, Default)]
pub(crate) struct Words {
    spans: Vec<Span>,
    bytes: Vec<u8>,
}

impl Words {
    /// Adds a word.
    pub(super) fn push(&mut self, word: &[u8]) {
        let from = self.bytes.len() as u32;
        self.bytes.extend_from_slice(word);
        self.spans.push(Span { from, to: self.bytes.len() as u32 });
    }

    /// Returns the words as the arguments of a request.
    pub(crate) fn arguments(&self) -> Arguments<'_> {
        Arguments::new(&self.spans, &self.bytes)
    }
}
