//! The simulated world: nodes with clocks of their own, a network that delays and loses, a store of
//! views, clients. One queue of events in the order of a time that nobody reads.

use crate::client::{Client, Frame};
use crate::history::History;
use crate::node::{Life, Node, REGION_BYTES};
use crate::random::Random;
use darter_fabric::group::{
    FrameId, Memory, Message, Options, Outcome, Output, ReplicaId, Request, Role, Start, StoreReply,
    StoreRequest, View,
};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

/// Nanoseconds in a millisecond.
pub(crate) const MS: u64 = 1_000_000;
/// How often a node sees to what is due.
const TICK: u64 = 80 * MS;
/// Nodes' names tell their addresses: the name of a life is so many times its number, and the
/// address.
const ADDRESSES: u64 = 10;
/// The connection of the one that shuts sessions out is no client's.
const FENCER: usize = usize::MAX;

/// The address of a replica.
pub(crate) fn address(id: ReplicaId) -> usize {
    (id % ADDRESSES) as usize
}

/// What happens.
#[derive(Debug)]
enum Event {
    Tick {
        node: usize,
    },
    /// A turn that a pause has interrupted ends.
    TurnEnds {
        node: usize,
        life: ReplicaId,
    },
    Message {
        from: ReplicaId,
        to: ReplicaId,
        link: u64,
        message: Message,
    },
    Parted {
        node: usize,
        other: usize,
    },
    Request {
        node: usize,
        request: Request,
        frame: Frame,
    },
    Fence {
        node: usize,
        request: Request,
        session: u64,
    },
    Reply {
        client: usize,
        connection: u64,
        id: u64,
        outcome: Outcome,
    },
    Disconnected {
        node: usize,
        connection: u64,
    },
    StoreRequest {
        from: ReplicaId,
        request: StoreRequest,
    },
    StoreReply {
        to: ReplicaId,
        reply: StoreReply,
    },
    Client {
        client: usize,
    },
    Fencer,
    Fault,
    /// A node dies, or pauses.
    Strike {
        node: usize,
    },
}

/// A run.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) now: u64,
    queue: BinaryHeap<std::cmp::Reverse<(u64, u64)>>,
    events: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    pub(crate) options: Options,
    pub(crate) nodes: Vec<Node>,
    pub(crate) store: Arc<View>,
    /// Views that were asked for, and may still arrive.
    pub(crate) asked: Vec<Arc<View>>,
    pub(crate) clients: Vec<Client>,
    connections: BTreeMap<u64, (usize, usize)>,
    connection: u64,
    /// When the last message of a direction arrives, and the number of its connection.
    links: BTreeMap<(usize, usize), (u64, u64)>,
    /// Links that are cut, until when.
    pub(crate) cuts: BTreeMap<(usize, usize), u64>,
    /// Directions that are slow, until when and how much at most.
    pub(crate) slow: BTreeMap<(usize, usize), (u64, u64)>,
    /// Requests to the store are slow or lost until then.
    pub(crate) store_ails_until: u64,
    pub(crate) history: History,
    /// The session that is to be shut out, and how often the fencer has asked.
    fencing: Option<(usize, u64)>,
    /// Nothing goes wrong any more.
    pub(crate) is_calm: bool,
    /// What has happened, to see that a campaign means anything.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    log: Option<Vec<String>>,
}

impl World {
    pub(crate) fn new(seed: u64, is_traced: bool) -> Self {
        let mut random = Random(seed);
        let replicas = 2 + random.below(2);
        let view = Arc::new(View::founding(0, 1..replicas));
        let options =
            Options { copy_bytes: 1024, copies_under_way: 2, channel_frames_max: 64, ..Options::default() };
        let mut world = Self {
            random,
            now: 0,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            sequence: 0,
            options,
            nodes: Vec::new(),
            store: Arc::clone(&view),
            asked: Vec::new(),
            clients: Vec::new(),
            connections: BTreeMap::new(),
            connection: 0,
            links: BTreeMap::new(),
            cuts: BTreeMap::new(),
            slow: BTreeMap::new(),
            store_ails_until: 0,
            history: History::default(),
            fencing: None,
            is_calm: false,
            counts: BTreeMap::new(),
            log: is_traced.then(Vec::new),
        };
        // One node more than replicas in some runs: a spare.
        let spares = world.random.below(2);
        for node in 0..replicas + spares {
            let clock = (world.random.below(1 << 40), 950 + world.random.below(101));
            world.nodes.push(Node::new(clock));
            let start = if node < replicas { Start::Founding(Arc::clone(&view)) } else { Start::Empty };
            world.begin(node as usize, start, None);
            world.after(TICK, Event::Tick { node: node as usize });
        }
        for client in 0..2 + world.random.below(2) as usize {
            let frames = 8 + world.random.below(16);
            world.clients.push(Client::new(client as u64 + 1, frames, 0, Arc::clone(&view)));
            world.reconnect(client, 0);
            let pause = world.random.below(500 * MS);
            world.after(pause, Event::Client { client });
        }
        if world.random.happens(300) {
            world.fencing = Some((world.random.below(world.clients.len() as u64) as usize, 0));
            let pause = (500 + world.random.below(5000)) * MS;
            world.after(pause, Event::Fencer);
        }
        let pause = world.random.below(3000 * MS);
        world.after(pause, Event::Fault);
        world
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        let now = self.now / MS;
        if let Some(log) = &mut self.log {
            log.push(format!("{now:>6} ms  {}", line()));
        }
    }

    pub(crate) fn trace(&self) -> String {
        self.log.as_ref().map(|lines| lines.join("\n")).unwrap_or_default()
    }

    fn after(&mut self, pause: u64, event: Event) {
        self.sequence += 1;
        let at = (self.now + pause, self.sequence);
        self.queue.push(std::cmp::Reverse(at));
        self.events.insert(at, event);
    }

    pub(crate) fn strike_after(&mut self, pause: u64, node: usize) {
        self.after(pause, Event::Strike { node });
    }

    /// A node begins a life.
    pub(crate) fn begin(&mut self, node: usize, start: Start, content: Option<&[u8]>) {
        let life = self.nodes[node].lives * ADDRESSES + node as u64;
        self.nodes[node].lives += 1;
        let clock = self.nodes[node].clock(self.now);
        let life = Life::new(life, self.options.clone(), start, content, clock);
        self.nodes[node].life = Some(life);
        self.note(|| format!("node {node} begins life"));
        self.end_turn(node);
    }

    /// A node dies. Others learn of it in their time.
    pub(crate) fn die(&mut self, node: usize) -> Option<Life> {
        self.note(|| format!("node {node} dies"));
        let life = self.nodes[node].life.take();
        for other in (0..self.nodes.len()).filter(|&other| other != node) {
            self.break_link(node, other);
        }
        let lost: Vec<_> =
            self.connections.iter().filter(|(_, (_, at))| *at == node).map(|(id, _)| *id).collect();
        for connection in lost {
            self.connections.remove(&connection);
        }
        life
    }

    /// The connection between two nodes ends, with whatever is on it.
    pub(crate) fn break_link(&mut self, left: usize, right: usize) {
        for (node, other) in [(left, right), (right, left)] {
            self.links.entry((node, other)).or_default().1 += 1;
            let pause = self.random.below(300 * MS);
            self.after(pause, Event::Parted { node, other });
        }
    }

    fn is_cut(&self, left: usize, right: usize) -> bool {
        self.cuts.get(&(left.min(right), left.max(right))).is_some_and(|until| *until > self.now)
    }

    fn delay(&mut self) -> u64 {
        let milliseconds = if !self.is_calm && self.random.happens(20) { 400 } else { 8 };
        50_000 + self.random.below(milliseconds * MS)
    }

    /// Sends in the order of a direction.
    fn send(&mut self, from: ReplicaId, to: ReplicaId, message: Message) {
        let (left, right) = (address(from), address(to));
        if self.is_cut(left, right) || right >= self.nodes.len() || left == right {
            return;
        }
        let slowness = self.slow.get(&(left, right)).filter(|(until, _)| *until > self.now);
        let slowness = slowness.map_or(0, |(_, most)| *most);
        let arrives = self.now + self.delay() + self.random.below(slowness);
        let (last, link) = self.links.entry((left, right)).or_default();
        *last = arrives.max(*last + 1);
        let (pause, link) = (*last - self.now, *link);
        self.after(pause, Event::Message { from, to, link, message });
    }

    /// Reads the clock and does what a node wants.
    fn end_turn(&mut self, node: usize) {
        let clock = self.nodes[node].clock(self.now);
        let Some(life) = &mut self.nodes[node].life else { return };
        life.replica.end_turn(clock);
        let (id, outputs) = (life.id, life.replica.take_outputs());
        for output in outputs {
            match output {
                Output::Send { to, message } => self.send(id, to, message),
                Output::Reply { connection, id, outcome } => self.reply(connection, id, outcome),
                Output::Store(request) => {
                    if let StoreRequest::Set(view) = &request {
                        self.asked.push(Arc::clone(view));
                        self.note(|| format!("replica {id} asks for {view:?}"));
                    }
                    if let Some(pause) = self.store_delay() {
                        self.after(pause, Event::StoreRequest { from: id, request });
                    }
                }
            }
        }
    }

    fn store_delay(&mut self) -> Option<u64> {
        let ails = self.now < self.store_ails_until;
        let is_lost = ails && self.random.happens(500);
        let milliseconds = if ails { 3000 } else { 20 };
        (!is_lost).then(|| self.random.below(milliseconds * MS))
    }

    fn reply(&mut self, connection: u64, id: u64, outcome: Outcome) {
        if let Some(&(client, _)) = self.connections.get(&connection) {
            let pause = self.delay();
            self.after(pause, Event::Reply { client, connection, id, outcome });
        }
    }

    /// Performs the next event. Returns whether there was one.
    pub(crate) fn step(&mut self) -> bool {
        let Some(std::cmp::Reverse(at)) = self.queue.pop() else { return false };
        let Some(event) = self.events.remove(&at) else { return true };
        self.now = at.0;
        // Whatever comes to a node that is paused waits, in its order.
        let node = match &event {
            Event::Tick { node }
            | Event::Parted { node, .. }
            | Event::Request { node, .. }
            | Event::Fence { node, .. }
            | Event::Disconnected { node, .. } => Some(*node),
            Event::Message { to, .. } | Event::StoreReply { to, .. } => Some(address(*to)),
            _ => None,
        };
        if let Some(until) = node.map(|node| self.nodes[node].paused_until).filter(|until| *until > self.now)
        {
            let wait = until - self.now;
            self.after(wait, event);
            return true;
        }
        self.perform(event);
        true
    }

    fn perform(&mut self, event: Event) {
        match event {
            Event::Tick { node } => self.tick(node),
            Event::TurnEnds { node, life } => {
                if self.nodes[node].life.as_ref().is_some_and(|known| known.id == life) {
                    self.end_turn(node);
                }
            }
            Event::Message { from, to, link, message } => {
                let is_whole =
                    self.links.get(&(address(from), address(to))).is_some_and(|(_, known)| *known == link);
                if let Some(node) = self.alive(to).filter(|_| is_whole) {
                    let clock = self.nodes[node].clock(self.now);
                    self.nodes[node].replica(|replica| replica.receive(from, message, clock));
                    self.end_turn(node);
                }
            }
            Event::Parted { node, other } => {
                let lives = self.nodes[other].lives;
                let ids = (0..lives).map(|life| life * ADDRESSES + other as u64);
                self.nodes[node].replica(|replica| ids.for_each(|id| replica.parted(id)));
                self.end_turn(node);
            }
            Event::Request { node, request, frame } => self.request(node, &request, &frame),
            Event::Fence { node, request, session } => {
                if self.connections.contains_key(&request.connection) {
                    self.nodes[node].replica(|replica| replica.fence(&request, session));
                    self.end_turn(node);
                }
            }
            Event::Reply { client, connection, id, outcome } => {
                self.answered(client, connection, id, outcome);
            }
            Event::Disconnected { node, connection } => {
                self.nodes[node].replica(|replica| replica.disconnected(connection));
            }
            Event::StoreRequest { from, request } => self.store_request(from, &request),
            Event::StoreReply { to, reply } => {
                if let Some(node) = self.alive(to) {
                    let clock = self.nodes[node].clock(self.now);
                    self.nodes[node].replica(|replica| replica.store_replied(&reply, clock));
                    self.end_turn(node);
                }
            }
            Event::Client { client } => self.client(client),
            Event::Fencer => self.fence(),
            Event::Strike { node } => {
                if !self.is_calm {
                    self.strike(node);
                }
            }
            Event::Fault => {
                if !self.is_calm {
                    self.fault();
                    let pause = self.random.below(4000 * MS);
                    self.after(pause, Event::Fault);
                }
            }
        }
    }

    fn alive(&self, id: ReplicaId) -> Option<usize> {
        let node = address(id);
        self.nodes[node].life.as_ref().is_some_and(|life| life.id == id).then_some(node)
    }

    fn tick(&mut self, node: usize) {
        let clock = self.nodes[node].clock(self.now);
        self.nodes[node].replica(|replica| replica.tick(clock));
        self.end_turn(node);
        self.after(TICK, Event::Tick { node });
    }

    fn store_request(&mut self, from: ReplicaId, request: &StoreRequest) {
        if let StoreRequest::Set(view) = request {
            if view.number == self.store.number + 1 {
                self.store = Arc::clone(view);
                self.count("views");
                self.note(|| format!("the store has {view:?}"));
                if !self.is_calm && self.random.happens(250) {
                    // Something happens to those whom the change concerns, soon.
                    let node = address(if self.random.happens(500) { from } else { view.primary });
                    let pause = self.random.below(300 * MS);
                    self.after(pause, Event::Strike { node });
                }
            }
            let number = self.store.number;
            self.asked.retain(|asked| asked.number > number);
        }
        if let Some(pause) = self.store_delay() {
            let reply = StoreReply { view: Arc::clone(&self.store) };
            self.after(pause, Event::StoreReply { to: from, reply });
        }
    }

    /// A frame arrives. The node may pause between executing it and reading the clock.
    fn request(&mut self, node: usize, request: &Request, frame: &Frame) {
        self.nodes[node].replica(|replica| replica.request(request, frame.verbs()));
        if !self.is_calm && self.random.happens(5) {
            let pause = self.random.below(4000 * MS);
            self.nodes[node].paused_until = self.now + pause;
            self.note(|| format!("node {node} pauses in a turn for {} ms", pause / MS));
            self.count("pauses in turns");
            if let Some(life) = self.nodes[node].life.as_ref().map(|life| life.id) {
                self.after(pause, Event::TurnEnds { node, life });
            }
        } else {
            self.end_turn(node);
        }
    }
}

/// Clients.
impl World {
    /// A client begins another connection, and sends again what was not answered. What is still on
    /// the old one may arrive.
    fn reconnect(&mut self, client: usize, to: usize) {
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
        // What is sent on a slow connection arrives long after the client has begun another.
        let is_slow = !self.is_calm && self.random.happens(150);
        self.clients[client].latency = self.random.below(if is_slow { 5000 * MS } else { 6 * MS });
        for frame in self.clients[client].unanswered.clone() {
            self.send_frame(client, frame);
        }
    }

    fn send_frame(&mut self, client: usize, frame: Frame) {
        let known = &self.clients[client];
        let (id, answered) = (frame.id, known.answered());
        let frame_id = FrameId { session: known.session, channel: 0, id, answered };
        let view = known.view.as_ref().map_or(0, |view| view.number);
        let request = Request { connection: known.connection, attempt: known.attempt, view, frame: frame_id };
        let (node, pause) = (known.address, known.latency);
        // A connection to a node that is not there brings nothing.
        if self.nodes[node].life.is_some() {
            self.after(pause, Event::Request { node, request, frame });
        }
    }

    fn client(&mut self, client: usize) {
        if self.clients[client].has_ended() {
            return;
        }
        let silent = self.now - self.clients[client].heard;
        let is_waiting = !self.clients[client].unanswered.is_empty();
        if is_waiting && silent > 400 * MS {
            let to = self.random.below(self.nodes.len() as u64) as usize;
            let primary = self.clients[client].view.as_ref().map_or(to, |view| address(view.primary));
            let to = if self.random.happens(500) { primary } else { to };
            self.reconnect(client, to);
        } else if self.clients[client].unanswered.len() < 3 && self.clients[client].left > 0 {
            let was_idle = !is_waiting;
            if was_idle {
                self.clients[client].heard = self.now;
            }
            let (now, mut random) = (self.now, self.random.clone());
            let frame = self.clients[client].make(now, &mut random).clone();
            self.random = random;
            self.send_frame(client, frame);
        }
        let milliseconds = if self.random.happens(200) { 2000 } else { 100 };
        let pause = 5 * MS + self.random.below(milliseconds * MS);
        self.after(pause, Event::Client { client });
    }

    fn answered(&mut self, client: usize, connection: u64, id: u64, outcome: Outcome) {
        if client == FENCER {
            return self.fence_answered(connection, outcome);
        }
        if self.clients[client].connection != connection {
            return;
        }
        self.clients[client].heard = self.now;
        match outcome {
            Outcome::Done(words) => {
                let (now, known) = (self.now, &mut self.clients[client]);
                if let Some((frame, found)) = known.take(id, &words) {
                    self.history.answered(client, &frame, &found, now);
                }
            }
            Outcome::Fenced => self.clients[client].is_fenced = true,
            Outcome::View(view) => {
                let known = &mut self.clients[client];
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
            Outcome::OutOfBounds => panic!("a verb outside the region"),
        }
    }

    /// Somebody shuts a client out, as often as it takes.
    fn fence(&mut self) {
        let Some((victim, asked)) = self.fencing else { return };
        self.fencing = Some((victim, asked + 1));
        let view = Arc::clone(&self.store);
        self.connection += 1;
        let (connection, node) = (self.connection, address(view.primary));
        self.connections.insert(connection, (FENCER, node));
        let frame = FrameId { session: 0, channel: 0, id: asked + 1, answered: asked };
        let request = Request { connection, attempt: asked, view: view.number, frame };
        let session = self.clients[victim].session;
        if self.nodes[node].life.is_some() {
            let pause = self.delay();
            self.after(pause, Event::Fence { node, request, session });
        }
        self.after(700 * MS, Event::Fencer);
    }

    fn fence_answered(&mut self, connection: u64, outcome: Outcome) {
        if let (Some((victim, _)), Outcome::Done(_)) = (self.fencing, outcome) {
            self.fencing = None;
            self.count("fences");
            self.history.fenced(victim, self.now);
            self.note(|| format!("client {victim} is shut out"));
        }
        self.connections.remove(&connection);
    }

    pub(crate) fn has_fencer(&self) -> bool {
        self.fencing.is_some()
    }

    /// Returns what is wrong with the replicas at rest; `None` if they are equal.
    pub(crate) fn unrest(&self) -> Option<String> {
        let members: BTreeSet<_> = self.store.members().collect();
        let alive = self.nodes.iter().filter_map(|node| node.life.as_ref());
        let mut contents = Vec::new();
        for life in alive {
            if !members.contains(&life.id) {
                return Some(format!("replica {} is no member of {:?}", life.id, self.store));
            }
            let is_primary = life.replica.role() == Role::Primary;
            if is_primary != (life.id == self.store.primary) || life.replica.role() == Role::Learner {
                return Some(format!(
                    "replica {} is a {:?} in {:?}",
                    life.id,
                    life.replica.role(),
                    self.store
                ));
            }
            let mut content = vec![0; REGION_BYTES];
            life.replica.memory().copy(0, &mut content);
            contents.push((life.id, life.replica.lsn(), content));
        }
        let differ = contents.windows(2).find(|pair| (pair[0].1, &pair[0].2) != (pair[1].1, &pair[1].2));
        differ.map(|pair| format!("replicas {} and {} differ", pair[0].0, pair[1].0))
    }
}
