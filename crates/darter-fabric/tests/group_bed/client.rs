//! A client of the group: it sends frames, a few at a time, and sends again what was not answered,
//! under the same numbers, to whom it holds to be the primary.

use crate::linear::Kind;
use crate::random::Random;
use darter_fabric::group::View;
use darter_fabric::wire::{self, FrameVerbs};
use darter_fabric::{Batch, GlobalAddr};
use std::collections::VecDeque;
use std::sync::Arc;

/// Words that clients use, each in a line of its own.
pub(crate) const WORDS: usize = 6;
/// Most verbs of a frame.
const VERBS_MAX: u64 = 3;

/// The offset of a word.
pub(crate) fn offset(word: usize) -> u64 {
    // Some in one part of the memory that is copied at a time, some in others.
    word as u64 * 704
}

/// A frame that was not answered.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) id: u64,
    pub(crate) begin: u64,
    pub(crate) verbs: Vec<(usize, Kind)>,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    pub(crate) fn verbs(&self) -> FrameVerbs<'_> {
        FrameVerbs::new(&self.payload, self.verbs.len() as u16, wire::FRAME_BYTES_MAX).unwrap()
    }
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) session: u64,
    pub(crate) view: Option<Arc<View>>,
    pub(crate) connection: u64,
    pub(crate) attempt: u64,
    pub(crate) address: usize,
    pub(crate) unanswered: VecDeque<Frame>,
    pub(crate) next_id: u64,
    pub(crate) left: u64,
    /// How long its connection takes, each way.
    pub(crate) latency: u64,
    /// When it heard of its connection last, or made it.
    pub(crate) heard: u64,
    pub(crate) is_fenced: bool,
    /// What it has seen in each word last.
    seen: [u64; WORDS],
}

impl Client {
    pub(crate) fn new(session: u64, frames: u64, address: usize, view: Arc<View>) -> Self {
        Self {
            session,
            view: Some(view),
            connection: 0,
            attempt: 0,
            address,
            unanswered: VecDeque::new(),
            next_id: 1,
            left: frames,
            latency: 0,
            heard: 0,
            is_fenced: false,
            seen: [0; WORDS],
        }
    }

    /// Returns the number of the last frame of which, and of all before, it has the replies.
    pub(crate) fn answered(&self) -> u64 {
        self.unanswered.front().map_or(self.next_id, |frame| frame.id) - 1
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.is_fenced || self.left == 0 && self.unanswered.is_empty()
    }

    /// Makes the next frame.
    pub(crate) fn make(&mut self, now: u64, random: &mut Random) -> &Frame {
        let unique = self.session << 40 | self.next_id << 8;
        let verbs: Vec<_> =
            (0..=random.below(VERBS_MAX)).map(|at| self.verb(unique | at << 4, random)).collect();
        let mut batch = Batch::new();
        for &(word, kind) in &verbs {
            let at = GlobalAddr::new(0, offset(word));
            match kind {
                Kind::Read => _ = batch.read(at, 1),
                Kind::Write(new) => batch.write(at, &[new]),
                Kind::Swap(expected, new) => _ = batch.cas(at, expected, new),
                Kind::Add(amount) => _ = batch.faa(at, amount),
            }
        }
        let mut payload = Vec::new();
        let (all, data) = batch.parts_mut();
        for verb in all {
            wire::put_verb(&mut payload, verb, data);
        }
        self.unanswered.push_back(Frame { id: self.next_id, begin: now, verbs, payload });
        self.next_id += 1;
        self.left -= 1;
        &self.unanswered[self.unanswered.len() - 1]
    }

    fn verb(&self, unique: u64, random: &mut Random) -> (usize, Kind) {
        let word = random.below(WORDS as u64) as usize;
        // Values that come again, as words of an index do, and ones that never do.
        let small = 1 + random.below(3);
        let new = if random.happens(500) { small } else { unique | 1 };
        let expected = if random.happens(300) { 1 + random.below(3) } else { self.seen[word] };
        let kind = match random.below(10) {
            0..=3 => Kind::Read,
            4..=5 => Kind::Write(new),
            6..=8 => Kind::Swap(expected, new),
            _ => Kind::Add(unique | 2),
        };
        (word, kind)
    }

    /// Takes the words of a reply. Returns the frame, and what each of its verbs has found; `None` if
    /// the frame was answered before.
    pub(crate) fn take(&mut self, id: u64, words: &[u8]) -> Option<(Frame, Vec<u64>)> {
        let at = self.unanswered.iter().position(|frame| frame.id == id)?;
        let frame = self.unanswered.remove(at)?;
        let mut words = words.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        let mut found = Vec::new();
        for &(word, kind) in &frame.verbs {
            let value = if matches!(kind, Kind::Write(_)) { 0 } else { words.next().unwrap() };
            if !matches!(kind, Kind::Write(_)) {
                self.seen[word] = value;
            }
            found.push(value);
        }
        assert!(words.next().is_none(), "a reply of another frame");
        Some((frame, found))
    }
}
