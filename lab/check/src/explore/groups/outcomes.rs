//! The users of a simulated group's clients: processes of the explorer's simulation, each with its
//! own session.

use darter_fabric::FabricError;
use darter_sim::groups::{Frame, Payload, Random, Users};
use std::collections::BTreeSet;

/// The group's replies that have not been delivered yet.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    /// Results of batches.
    pub(super) answers: Vec<(u64, Result<Vec<u64>, FabricError>)>,
    /// Clients that were shut out.
    pub(super) fenced: BTreeSet<usize>,
    /// The shut-out clients that have not been reported yet.
    pub(super) news: Vec<usize>,
    /// Frames that received a reply.
    pub(super) frames: u64,
}

impl Users for Outcomes {
    /// Returns nothing: the driver posts the processes' batches.
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
