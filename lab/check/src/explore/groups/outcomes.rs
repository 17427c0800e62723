//! Whom the clients of a simulated group send for: processes of the explorer's simulation. Each has
//! a session of its own.

use darter_fabric::FabricError;
use darter_sim::groups::{Frame, Payload, Random, Users};
use std::collections::BTreeSet;

/// What the group has said, until somebody passes it on.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    /// What became of batches.
    pub(super) answers: Vec<(u64, Result<Vec<u64>, FabricError>)>,
    /// Clients that were shut out.
    pub(super) fenced: BTreeSet<usize>,
    /// Those of them of whom nobody was told.
    pub(super) news: Vec<usize>,
    /// Frames that were answered.
    pub(super) frames: u64,
}

impl Users for Outcomes {
    /// What processes post is posted for them.
    fn next(&mut self, _client: usize, _random: &mut Random) -> Option<Payload> {
        None
    }

    fn has_ended(&self, _client: usize) -> bool {
        false
    }

    fn answered(&mut self, _client: usize, frame: &Frame, words: &[u8], _now: u64) {
        let words = words.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        self.answers.push((frame.payload.tag, Ok(words)));
        self.frames += 1;
    }

    fn refused(&mut self, _client: usize, frame: &Frame) {
        self.answers.push((frame.payload.tag, Err(FabricError::geometry("a verb outside the region"))));
    }

    fn fenced(&mut self, client: usize, _now: u64) {
        if self.fenced.insert(client) {
            self.news.push(client);
        }
    }
}
