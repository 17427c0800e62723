//! Clients' connections in the simulated world, and the fencer of clients.

use super::client::{Client, Frame, Payload, Users};
use super::event::{Event, FENCER, MS, address};
use super::world::World;
use darter_group::{FrameId, Outcome, Request};
use std::sync::Arc;

/// A client sends a new frame on its own initiative only while it has at most this number in
/// flight.
const FRAMES_MAX: usize = 3;
/// How long a client with frames in flight waits without a reply before it makes another
/// connection.
const SILENCE_MAX: u64 = 400 * MS;

impl<U: Users> World<U> {
    /// Adds a client, with its own session, connected to the first of the replicas. Its periodic
    /// work starts with [`World::watch`].
    pub fn join(&mut self, session: u64) -> usize {
        let client = self.clients.len();
        self.clients.push(Client::new(session, 0, Arc::clone(&self.store)));
        self.reconnect(client, 0);
        client
    }

    /// Starts a client's periodic work on its connection after `pause` nanoseconds.
    pub fn watch(&mut self, client: usize, pause: u64) {
        self.after(pause, Event::Client { client });
    }

    /// Makes a client send a payload after `pause` nanoseconds.
    pub fn post_after(&mut self, pause: u64, client: usize, payload: Payload) {
        self.after(pause, Event::Post { client, payload });
    }

    /// Kills a client. Frames on its connection may still arrive.
    pub fn leave(&mut self, client: usize) {
        self.note(|| format!("client {client} dies"));
        self.clients[client].is_gone = true;
    }

    /// Returns whether a client will do nothing more.
    pub fn has_ended(&self, client: usize) -> bool {
        let known = &self.clients[client];
        let is_idle = || self.users.has_ended(client) && known.unanswered.is_empty();
        known.is_fenced || known.is_gone || is_idle()
    }

    /// Returns the clients that have not ended.
    pub fn waiting(&self) -> usize {
        (0..self.clients.len()).filter(|&client| !self.has_ended(client)).count()
    }

    /// Returns the frames of a client that have no reply.
    pub fn unanswered(&self, client: usize) -> impl Iterator<Item = &Frame> {
        self.clients[client].unanswered.iter()
    }

    /// Returns the number of clients.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Makes a client open another connection and resend its unanswered frames. Frames on the old
    /// connection may still arrive.
    pub(super) fn reconnect(&mut self, client: usize, to: usize) {
        self.connection += 1;
        let connection = self.connection;
        let known = &mut self.clients[client];
        let old = std::mem::replace(&mut known.connection, connection);
        let node = std::mem::replace(&mut known.address, to);
        known.attempt += 1;
        known.heard = self.now;
        self.connections.remove(&old);
        self.connections.insert(connection, (client, to));
        let pause = self.random.below(2000 * MS);
        self.after(pause, Event::Disconnected { node, connection: old });
        // Frames sent on a slow connection arrive long after the client has opened another.
        let is_slow = !self.is_calm && self.random.happens(150);
        self.clients[client].latency = self.random.below(if is_slow { 5000 * MS } else { 6 * MS });
        for frame in self.clients[client].unanswered.clone() {
            self.count("frames sent again");
            self.send_frame(client, frame);
        }
    }

    /// Makes a client send a new frame, unless it has ended.
    pub(super) fn post(&mut self, client: usize, payload: Payload) {
        let (now, known) = (self.now, &mut self.clients[client]);
        if known.is_fenced || known.is_gone {
            return;
        }
        if known.unanswered.is_empty() {
            known.heard = now;
        }
        let frame = known.make(payload, now);
        self.send_frame(client, frame);
    }

    fn send_frame(&mut self, client: usize, frame: Frame) {
        let known = &self.clients[client];
        let (id, answered) = (frame.id, known.answered());
        let frame_id = FrameId { session: known.session, channel: 0, id, answered };
        let view = known.view.as_ref().map_or(0, |view| view.number);
        let request = Request { connection: known.connection, attempt: known.attempt, view, frame: frame_id };
        let (node, pause) = (known.address, known.latency);
        // A connection to a node that is down delivers nothing.
        if self.nodes[node].life.is_some() {
            self.after(pause, Event::Request { node, request, frame });
        }
    }

    pub(super) fn client(&mut self, client: usize) {
        if self.has_ended(client) {
            return;
        }
        let known = &self.clients[client];
        let (silent, under_way) = (self.now - known.heard, known.unanswered.len());
        if under_way > 0 && silent > SILENCE_MAX {
            let to = self.random.below(self.nodes.len() as u64) as usize;
            let primary = self.clients[client].view.as_ref().map_or(to, |view| address(view.primary));
            let to = if self.random.happens(500) { primary } else { to };
            self.reconnect(client, to);
        } else if under_way < FRAMES_MAX
            && let Some(payload) = self.users.next(client, &mut self.random)
        {
            self.post(client, payload);
        }
        let milliseconds = if self.random.happens(200) { 2000 } else { 100 };
        let pause = 5 * MS + self.random.below(milliseconds * MS);
        self.after(pause, Event::Client { client });
    }

    pub(super) fn answered(&mut self, client: usize, connection: u64, id: u64, outcome: Outcome) {
        if client == FENCER {
            return self.fence_answered(connection, &outcome);
        }
        let (now, known) = (self.now, &mut self.clients[client]);
        if known.connection != connection || known.is_gone {
            return;
        }
        known.heard = now;
        match outcome {
            Outcome::Done(words) => {
                if let Some(frame) = known.take(id) {
                    self.users.answered(client, &frame, &words, now);
                }
            }
            Outcome::Fenced => known.is_fenced = true,
            Outcome::View(view) => {
                let newest = known.view.clone().into_iter().chain(view).max_by_key(|view| view.number);
                let is_newer =
                    newest.as_ref().map(|view| view.number) > known.view.as_ref().map(|view| view.number);
                known.view = newest;
                if is_newer {
                    let to = known.view.as_ref().map_or(0, |view| address(view.primary));
                    self.reconnect(client, to);
                }
            }
            Outcome::Later => {}
            Outcome::OutOfBounds => {
                if let Some(frame) = known.take(id) {
                    self.users.refused(client, &frame);
                }
            }
        }
    }

    /// Fences a client after `pause` nanoseconds, or after the clients that are already queued for
    /// it.
    pub fn shut_out_after(&mut self, pause: u64, client: usize) {
        if self.fencing.is_none() {
            self.fencing = Some((client, 0));
            self.after(pause, Event::Fencer);
        } else {
            self.to_fence.push_back(client);
        }
    }

    /// Requests the fence of a client, and repeats the request until it is done.
    pub(super) fn fence(&mut self) {
        let Some((victim, asked)) = self.fencing else { return };
        self.fencing = Some((victim, asked + 1));
        let view = Arc::clone(&self.store);
        self.connection += 1;
        let (connection, node) = (self.connection, address(view.primary));
        self.connections.insert(connection, (FENCER, node));
        self.fencers.insert(connection, victim);
        let frame = FrameId { session: 0, channel: 0, id: asked + 1, answered: asked };
        let request = Request { connection, attempt: asked, view: view.number, frame };
        let session = self.clients[victim].session;
        if self.nodes[node].life.is_some() {
            let pause = self.delay();
            self.after(pause, Event::Fence { node, request, session });
        }
        self.after(700 * MS, Event::Fencer);
    }

    fn fence_answered(&mut self, connection: u64, outcome: &Outcome) {
        if let (Some((victim, _)), Outcome::Done(_)) = (self.fencing, outcome)
            && self.fencers.get(&connection) == Some(&victim)
        {
            self.fencing = self.to_fence.pop_front().map(|next| (next, 0));
            self.count("fences");
            self.users.fenced(victim, self.now);
            self.note(|| format!("client {victim} is fenced"));
        }
        self.connections.remove(&connection);
    }

    /// Returns whether a client is waiting to be fenced.
    pub fn has_fencer(&self) -> bool {
        self.fencing.is_some()
    }
}
