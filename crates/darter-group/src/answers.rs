//! Replies that leave in the turn in which they were made: those of frames that have only read.

use std::ops::Range;

/// Replies of frames that were executed, with their words in one buffer.
#[derive(Debug, Default)]
pub struct Answers {
    replies: Vec<(u64, u64, Range<usize>)>,
    words: Vec<u8>,
}

impl Answers {
    /// Returns the replies: the connection that a request came by, its id, and the words.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, &[u8])> {
        self.replies.iter().map(|(connection, id, at)| (*connection, *id, &self.words[at.clone()]))
    }

    pub(super) fn push(&mut self, connection: u64, id: u64, words: &[u8]) {
        let start = self.words.len();
        self.words.extend_from_slice(words);
        self.replies.push((connection, id, start..self.words.len()));
    }

    pub(super) fn clear(&mut self) {
        self.replies.clear();
        self.words.clear();
    }
}
