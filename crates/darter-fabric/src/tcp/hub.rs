//! A thread's connections, and the batches that its tasks have under way on them.

use super::batches::{Batches, Pending, Ticket};
use super::connection::{Connection, Sent, connect};
use super::fabric::Shared;
use super::wire::{self, Refusal, RequestKind};
use crate::{Batch, FabricError, Verb};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

/// What the tasks of one thread share.
#[derive(Debug)]
pub(super) struct Hub {
    shared: Arc<Shared>,
    connections: Vec<Option<Connection>>,
    batches: Batches,
    next_endpoint: u64,
    pub(super) spares: Vec<Batch>,
}

impl Hub {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let nodes = shared.nodes.len();
        Self {
            shared,
            connections: (0..nodes).map(|_| None).collect(),
            batches: Batches::default(),
            next_endpoint: 0,
            spares: Vec::new(),
        }
    }

    pub(super) fn new_endpoint(&mut self) -> u64 {
        self.next_endpoint += 1;
        self.next_endpoint
    }

    pub(super) fn in_flight(&self, endpoint: u64) -> usize {
        self.batches.orphans_of(endpoint)
    }

    /// Connects to a node unless that is done; the connection must lead to the memory the fabric knows.
    fn reach(&mut self, node: u8) -> Result<&mut Connection, FabricError> {
        if self.shared.fenced.load(Ordering::Relaxed) {
            return Err(FabricError::Fenced);
        }
        let at = usize::from(node);
        let known = self
            .shared
            .nodes
            .get(at)
            .ok_or_else(|| FabricError::out_of_bounds(crate::GlobalAddr::new(node, 0), 0, 0))?;
        if self.connections[at].is_none() {
            let (stream, welcome) =
                connect(&known.address, node, self.shared.session, &self.shared.options.token).map_err(
                    |error| match error {
                        FabricError::Io(_) => FabricError::Disconnected { node },
                        other => other,
                    },
                )?;
            if (welcome.boot_id, welcome.region_bytes) != (known.boot_id, known.bytes) {
                return Err(FabricError::geometry(format!(
                    "{}: the memory node was restarted with another memory; its part of the pool is gone",
                    known.address
                )));
            }
            self.connections[at] = Some(Connection::new(stream, &welcome));
        }
        match &mut self.connections[at] {
            Some(connection) => Ok(connection),
            None => Err(FabricError::Disconnected { node }),
        }
    }

    /// Puts a batch's frames on their connections; nothing is sent yet.
    pub(super) fn post(&mut self, endpoint: u64, batch: Batch) -> Ticket {
        let ticket = self.batches.reserve();
        let mut pending = Pending::new(batch, endpoint);
        let mut seen: [u64; 4] = [0; 4];
        for first in 0..pending.batch.len() {
            let node = pending.batch.verbs()[first].addr.node();
            let (word, bit) = (usize::from(node) / 64, 1_u64 << (node % 64));
            if seen[word] & bit == 0 {
                seen[word] |= bit;
                match self.post_to(node, ticket, first, &mut pending.batch) {
                    Ok(frames) => pending.frames += frames,
                    Err(error) => pending.error = Some(error),
                }
            }
        }
        self.batches.put(ticket, pending);
        ticket
    }

    /// Puts a batch's verbs for one node on its connection, in as many frames as it takes.
    fn post_to(
        &mut self,
        node: u8,
        ticket: Ticket,
        first: usize,
        batch: &mut Batch,
    ) -> Result<usize, FabricError> {
        let connection = self.reach(node)?;
        let limit = connection.frame_bytes as usize;
        let (verbs, data) = batch.parts_mut();
        let size = |verb: &Verb| {
            let there = wire::HEADER_BYTES + wire::request_words(verb) * 8;
            (there, wire::reply_words(verb) * 8)
        };
        if let Some(verb) =
            verbs.iter().find(|verb| verb.addr.node() == node && size(verb).0.max(size(verb).1) > limit)
        {
            return Err(FabricError::geometry(format!(
                "a verb of {} bytes at {}; memory node {node} takes {limit} at most in one",
                u64::from(verb.words) * 8,
                verb.addr
            )));
        }
        let mut frames = 0;
        let mut from = first;
        while from < verbs.len() {
            let at = connection.begin_frame();
            let (mut there, mut back, mut count, mut end) = (0, 0, 0_u16, from);
            while end < verbs.len() {
                let verb = &verbs[end];
                if verb.addr.node() == node {
                    let (more, answer) = size(verb);
                    if there + more > limit || back + answer > limit || usize::from(count) == wire::VERBS_MAX
                    {
                        break;
                    }
                    (there, back, count) = (there + more, back + answer, count + 1);
                    wire::put_verb(&mut connection.out.bytes, verb, data);
                }
                end += 1;
            }
            let id = connection.end_frame(at, RequestKind::Batch, count);
            connection.sent.push_back(Sent { id, batch: ticket, first: from, end });
            frames += 1;
            from = end;
        }
        Ok(frames)
    }

    /// Sends and receives what can be without waiting; answers whether anything arrived. Wakes whoever got an answer.
    pub(super) fn pump(&mut self) -> bool {
        let mut arrived = false;
        for node in 0..self.connections.len() {
            if let Ok(any) = self.pump_node(node) {
                arrived |= any;
            } else {
                arrived = true;
                self.lose(node as u8);
            }
        }
        arrived
    }

    fn pump_node(&mut self, node: usize) -> io::Result<bool> {
        let Some(connection) = &mut self.connections[node] else { return Ok(false) };
        connection.flush()?;
        if connection.sent.is_empty() || !connection.receive()? {
            return Ok(false);
        }
        while let Some((sent, head, range)) = connection.next_reply()? {
            let refusal = Refusal::from_code(head.refusal).ok_or(io::ErrorKind::InvalidData)?;
            let payload = connection.payload(range);
            let Some(pending) = self.batches.of(sent) else { continue };
            if refusal == Refusal::None {
                if !take_answers(&mut pending.batch, node as u8, sent.first..sent.end, payload) {
                    return Err(io::ErrorKind::InvalidData.into());
                }
            } else {
                if refusal == Refusal::Fenced {
                    self.shared.fenced.store(true, Ordering::Relaxed);
                }
                let text = String::from_utf8_lossy(&payload[..payload.len().min(wire::TEXT_BYTES_MAX)]);
                pending.error.get_or_insert(wire::error_of(refusal, node as u8, &text));
            }
            self.batches.frame_ended(sent);
        }
        Ok(true)
    }

    /// A connection is gone: what was on it may have been done or not.
    fn lose(&mut self, node: u8) {
        let Some(connection) = self.connections[usize::from(node)].take() else { return };
        for sent in connection.sent {
            if let Some(pending) = self.batches.of(sent) {
                pending.error.get_or_insert(FabricError::Disconnected { node });
                self.batches.frame_ended(sent);
            }
        }
    }

    /// A batch's result, when all its frames are answered.
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<Result<Batch, FabricError>> {
        self.batches.take(ticket)
    }

    /// Whom to wake when a batch is answered.
    pub(super) fn wait(&mut self, ticket: Ticket, waker: &Waker) {
        self.batches.wait(ticket, waker);
    }

    /// Nobody waits for a batch any more; what was posted is sent all the same.
    pub(super) fn give_up(&mut self, ticket: Ticket) {
        if self.batches.give_up(ticket) {
            self.pump();
        }
    }

    /// Sockets that have something under way, to sleep on.
    pub(super) fn sockets(&self) -> impl Iterator<Item = &std::net::TcpStream> {
        let busy = |connection: &&Connection| !connection.sent.is_empty();
        self.connections.iter().flatten().filter(busy).map(|connection| &connection.stream)
    }
}

/// Puts a reply's words where the verbs of `node` among `verbs` want them; answers whether they are just as many.
fn take_answers(batch: &mut Batch, node: u8, verbs: std::ops::Range<usize>, payload: &[u8]) -> bool {
    let (all, data) = batch.parts_mut();
    let mut words =
        payload.chunks_exact(8).map(|word| word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)));
    for verb in all[verbs].iter().filter(|verb| verb.addr.node() == node) {
        let at = verb.at as usize;
        for slot in &mut data[at..at + wire::reply_words(verb)] {
            let Some(word) = words.next() else { return false };
            *slot = word;
        }
    }
    words.next().is_none() && payload.len().is_multiple_of(8)
}
