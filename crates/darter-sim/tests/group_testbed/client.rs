//! Clients that read, write, swap and add to a few words.

use crate::history::History;
use crate::linear::Kind;
use darter_fabric::{Batch, GlobalAddr};
use darter_sim::groups::{Frame, Payload, Random, Users};

/// Number of words that clients use, each in its own line.
pub(crate) const WORDS: usize = 6;
/// Maximum number of verbs in a frame.
const VERBS_MAX: u64 = 3;

/// Returns the offset of a word.
pub(crate) fn offset(word: usize) -> u64 {
    // Some words share a part of the memory copy, others do not.
    word as u64 * 704
}

/// A client.
#[derive(Debug)]
struct Client {
    session: u64,
    /// The verbs of its frames, by their tags.
    sent: Vec<Vec<(usize, Kind)>>,
    left: u64,
    /// The value that it last saw in each word.
    seen: [u64; WORDS],
}

impl Client {
    fn verb(&self, unique: u64, random: &mut Random) -> (usize, Kind) {
        let word = random.below(WORDS as u64) as usize;
        // Some values recur, as words of an index do, and some never do.
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

    /// Consumes the words of a reply. Returns the result of each of the frame's verbs.
    fn take(&mut self, tag: u64, words: &[u8]) -> Vec<u64> {
        let mut words = words.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        let mut found = Vec::new();
        for &(word, kind) in &self.sent[tag as usize] {
            let value = if matches!(kind, Kind::Write(_)) { 0 } else { words.next().unwrap() };
            if !matches!(kind, Kind::Write(_)) {
                self.seen[word] = value;
            }
            found.push(value);
        }
        assert!(words.next().is_none(), "the reply belongs to another frame");
        found
    }
}

/// All clients and their history.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    all: Vec<Client>,
    pub(crate) history: History,
}

impl Clients {
    /// Adds a client that sends `frames` frames.
    pub(crate) fn add(&mut self, session: u64, frames: u64) {
        self.all.push(Client { session, sent: Vec::new(), left: frames, seen: [0; WORDS] });
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the verbs of a frame.
    pub(crate) fn verbs(&self, client: usize, frame: &Frame) -> &[(usize, Kind)] {
        &self.all[client].sent[frame.payload.tag as usize]
    }
}

impl Users for Clients {
    fn next(&mut self, client: usize, random: &mut Random) -> Option<Payload> {
        let client = &mut self.all[client];
        client.left = client.left.checked_sub(1)?;
        let unique = client.session << 40 | (client.sent.len() as u64 + 1) << 8;
        let verbs: Vec<_> =
            (0..=random.below(VERBS_MAX)).map(|at| client.verb(unique | at << 4, random)).collect();
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
        let (all, data) = batch.parts_mut();
        let payload = Payload::new(client.sent.len() as u64, all, data);
        client.sent.push(verbs);
        Some(payload)
    }

    fn has_ended(&self, client: usize) -> bool {
        self.all[client].left == 0
    }

    fn answered(&mut self, client: usize, frame: &Frame, words: &[u8], now: u64) {
        let found = self.all[client].take(frame.payload.tag, words);
        let verbs = &self.all[client].sent[frame.payload.tag as usize];
        self.history.answered((client, frame), verbs, &found, now);
    }

    fn refused(&mut self, _client: usize, _frame: &Frame) {
        panic!("a verb outside the region");
    }

    fn fenced(&mut self, client: usize, now: u64) {
        self.history.fenced(client, now);
    }
}
