//! A client's side of the group: its connection, its unanswered frames, and its user.

use super::random::Random;
use darter_fabric::Verb;
use darter_fabric::wire::{self, FrameVerbs};
use darter_group::View;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;

/// Verbs that a client wants to send as one frame.
#[derive(Clone, Debug)]
pub struct Payload {
    /// A number chosen by the user.
    pub tag: u64,
    /// The number of verbs.
    pub verbs: u16,
    /// The verbs ([`wire::put_verb`]).
    pub bytes: Vec<u8>,
}

impl Payload {
    /// Returns the payload of verbs whose words are in `data`, at the indices that the verbs name.
    ///
    /// # Panics
    /// Panics if there are more verbs than fit into a frame.
    pub fn new(tag: u64, verbs: &[Verb], data: &[u64]) -> Self {
        let mut bytes = Vec::new();
        for verb in verbs {
            wire::put_verb(&mut bytes, verb, data);
        }
        Self { tag, verbs: u16::try_from(verbs.len()).expect("more verbs than fit into a frame"), bytes }
    }
}

/// A frame without a reply so far.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Its number.
    pub id: u64,
    /// When it was first sent.
    pub begin: u64,
    /// Its verbs.
    pub payload: Payload,
}

impl Frame {
    pub(super) fn verbs(&self) -> FrameVerbs<'_> {
        FrameVerbs::new(&self.payload.bytes, self.payload.verbs, wire::FRAME_BYTES_MAX).expect("whole verbs")
    }
}

/// Supplies the clients' frames and receives their replies.
pub trait Users: Debug {
    /// Returns a payload that a client sends now on its own initiative, if any.
    fn next(&mut self, client: usize, random: &mut Random) -> Option<Payload>;

    /// Returns whether a client will send nothing more on its own initiative.
    fn has_ended(&self, client: usize) -> bool;

    /// Receives the words of the reply to a frame.
    fn answered(&mut self, client: usize, frame: &Frame, words: &[u8], now: u64);

    /// Handles the refusal of a frame: one of its verbs lies outside the region.
    fn refused(&mut self, client: usize, frame: &Frame);

    /// Handles the group's report that a client is fenced.
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
    /// The delay of its connection, each way.
    pub(super) latency: u64,
    /// When it last received something on its connection, or made the connection.
    pub(super) heard: u64,
    pub(super) is_fenced: bool,
    /// It is dead: frames on its connection may still arrive.
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

    /// Returns the number of the last frame such that it has the replies to that frame and to all
    /// before it.
    pub(super) fn answered(&self) -> u64 {
        self.unanswered.front().map_or(self.next_id, |frame| frame.id) - 1
    }

    /// Creates the next frame.
    pub(super) fn make(&mut self, payload: Payload, now: u64) -> Frame {
        let frame = Frame { id: self.next_id, begin: now, payload };
        self.next_id += 1;
        self.unanswered.push_back(frame.clone());
        frame
    }

    /// Removes and returns a frame that has its reply; `None` if it was removed before.
    pub(super) fn take(&mut self, id: u64) -> Option<Frame> {
        let at = self.unanswered.iter().position(|frame| frame.id == id)?;
        self.unanswered.remove(at)
    }
}
