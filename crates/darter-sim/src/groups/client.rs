//! A client's side of the group: its connection, what was not answered, and whom it sends for.

use super::random::Random;
use darter_fabric::Verb;
use darter_fabric::wire::{self, FrameVerbs};
use darter_group::View;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;

/// What a client wants sent as one frame.
#[derive(Clone, Debug)]
pub struct Payload {
    /// The user's own number for it.
    pub tag: u64,
    /// How many verbs.
    pub verbs: u16,
    /// The verbs ([`wire::put_verb`]).
    pub bytes: Vec<u8>,
}

impl Payload {
    /// Returns the payload of verbs whose words are in `data`, where each of them says.
    ///
    /// # Panics
    /// If there are more verbs than a frame takes.
    pub fn new(tag: u64, verbs: &[Verb], data: &[u64]) -> Self {
        let mut bytes = Vec::new();
        for verb in verbs {
            wire::put_verb(&mut bytes, verb, data);
        }
        Self { tag, verbs: u16::try_from(verbs.len()).expect("a frame's verbs"), bytes }
    }
}

/// A frame that was not answered.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Its number.
    pub id: u64,
    /// When it was sent first.
    pub begin: u64,
    /// What is in it.
    pub payload: Payload,
}

impl Frame {
    pub(super) fn verbs(&self) -> FrameVerbs<'_> {
        FrameVerbs::new(&self.payload.bytes, self.payload.verbs, wire::FRAME_BYTES_MAX).expect("whole verbs")
    }
}

/// What clients send, and what becomes of it.
pub trait Users: Debug {
    /// Returns what a client sends now, if it sends anything by itself.
    fn next(&mut self, client: usize, random: &mut Random) -> Option<Payload>;

    /// Returns whether a client sends nothing more by itself.
    fn has_ended(&self, client: usize) -> bool;

    /// A frame was answered, with the words of its reply.
    fn answered(&mut self, client: usize, frame: &Frame, words: &[u8], now: u64);

    /// A frame was refused: a verb of it lies outside the region.
    fn refused(&mut self, client: usize, frame: &Frame);

    /// The group says that a client is shut out.
    fn fenced(&mut self, client: usize, now: u64);
}

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) session: u64,
    pub(super) view: Option<Arc<View>>,
    pub(super) connection: u64,
    pub(super) attempt: u64,
    pub(super) address: usize,
    pub(super) unanswered: VecDeque<Frame>,
    pub(super) next_id: u64,
    /// How long its connection takes, each way.
    pub(super) latency: u64,
    /// When it heard of its connection last, or made it.
    pub(super) heard: u64,
    pub(super) is_fenced: bool,
    /// It is dead: what is on its connection may still arrive.
    pub(super) is_gone: bool,
}

impl Client {
    pub(super) fn new(session: u64, address: usize, view: Arc<View>) -> Self {
        Self {
            session,
            view: Some(view),
            connection: 0,
            attempt: 0,
            address,
            unanswered: VecDeque::new(),
            next_id: 1,
            latency: 0,
            heard: 0,
            is_fenced: false,
            is_gone: false,
        }
    }

    /// Returns the number of the last frame of which, and of all before, it has the replies.
    pub(super) fn answered(&self) -> u64 {
        self.unanswered.front().map_or(self.next_id, |frame| frame.id) - 1
    }

    /// Makes the next frame.
    pub(super) fn make(&mut self, payload: Payload, now: u64) -> Frame {
        let frame = Frame { id: self.next_id, begin: now, payload };
        self.next_id += 1;
        self.unanswered.push_back(frame.clone());
        frame
    }

    /// Takes a frame that was answered; `None` if it was before.
    pub(super) fn take(&mut self, id: u64) -> Option<Frame> {
        let at = self.unanswered.iter().position(|frame| frame.id == id)?;
        self.unanswered.remove(at)
    }
}
