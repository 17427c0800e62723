//! The simulated world: nodes with their own clocks, a network that delays and loses messages, a
//! store of views. One queue of events is ordered by a time that no node can read.

use super::client::{Client, Frame, Users};
use super::disk::Disk;
use super::event::{ADDRESSES, Event, MS, address};
use super::executed::Executed;
use super::node::{Life, Node};
use super::random::Random;
use darter_group::{
    Answers, Message, Options, Outcome, Output, Position, Region, Replica, ReplicaId, Request, Start,
    StoreReply, StoreRequest, View,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

/// Period of a node's ticks.
const TICK: u64 = 80 * MS;

/// Counts of the events of a run.
pub type Counts = BTreeMap<&'static str, u64>;

/// Configuration of a group.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Options of each replica.
    pub options: Options,
    /// Bytes of each region.
    pub bytes: usize,
    /// Initial content of the region; zeros if `None`.
    pub content: Option<Vec<u8>>,
    /// Whether replicas keep logs on disks.
    pub is_durable: bool,
}

/// A run.
#[derive(Debug)]
pub struct World<U> {
    /// The users of the clients.
    pub users: U,
    /// Source of all randomness.
    pub random: Random,
    pub(super) now: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    pub(super) setup: Setup,
    pub(super) nodes: Vec<Node>,
    pub(super) store: Arc<View>,
    /// Requested views, which may still arrive at the store.
    pub(super) asked: Vec<Arc<View>>,
    pub(super) clients: Vec<Client>,
    pub(super) connections: BTreeMap<u64, (usize, usize)>,
    /// The number of the newest connection.
    pub(super) connection: u64,
    /// Per direction: when its last message arrives, and the number of its connection.
    links: BTreeMap<(usize, usize), (u64, u64)>,
    /// Links that are cut, with the end of the cut.
    pub(super) cuts: BTreeMap<(usize, usize), u64>,
    /// Directions that are slow, with the end of the slowness and the maximum delay.
    pub(super) slow: BTreeMap<(usize, usize), (u64, u64)>,
    /// End of the time in which requests to the store are slow or lost.
    pub(super) store_ails_until: u64,
    pub(super) executed: Executed,
    /// The client that is being fenced, and the number of requests that the fencer has sent.
    pub(super) fencing: Option<(usize, u64)>,
    /// The clients to be fenced after it.
    pub(super) to_fence: VecDeque<usize>,
    /// The client that each of the fencer's connections is about.
    pub(super) fencers: BTreeMap<u64, usize>,
    /// Faults have ended.
    pub(super) is_calm: bool,
    /// Counts of events, to verify that a campaign exercised them.
    pub counts: Counts,
    log: Option<Vec<String>>,
}

impl<U: Users> World<U> {
    /// Returns the world of a seed, with a new group and no clients.
    pub fn new(seed: u64, users: U, setup: Setup, is_traced: bool) -> Self {
        let mut random = Random::new(seed);
        let replicas = 2 + random.below(2);
        let view = Arc::new(View::bootstrap(0, 1..replicas));
        let mut world = Self {
            users,
            random,
            now: 0,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            sequence: 0,
            setup,
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
            executed: Executed::default(),
            fencing: None,
            to_fence: VecDeque::new(),
            fencers: BTreeMap::new(),
            is_calm: false,
            counts: BTreeMap::new(),
            log: is_traced.then(Vec::new),
        };
        // Some runs have one node more than replicas: a spare.
        let spares = world.random.below(2);
        let content =
            if world.setup.is_durable { world.setup.content.clone() } else { world.setup.content.take() };
        for node in 0..replicas + spares {
            let clock = (world.random.below(1 << 40), 950 + world.random.below(101));
            world.nodes.push(Node::new(clock));
            if world.setup.is_durable {
                world.nodes[node as usize].disk = Some(world.new_disk(node < replicas));
            }
            let (start, content) = if node < replicas {
                (Start::Bootstrap(Arc::clone(&view)), content.as_deref())
            } else {
                (Start::Empty, None)
            };
            world.begin(node as usize, start, content);
            world.after(TICK, Event::Tick { node: node as usize });
        }
        world
    }

    /// Returns the time in nanoseconds since the start.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Returns the time of the next event.
    pub fn next_event(&self) -> Option<u64> {
        self.queue.peek().map(|Reverse((at, _))| *at)
    }

    /// Advances the time to `time`, or to the next event if that is earlier.
    pub fn wait_until(&mut self, time: u64) {
        let time = self.next_event().map_or(time, |next| next.min(time));
        self.now = self.now.max(time);
    }

    /// From now on faults occur at random times.
    pub fn begin_faults(&mut self) {
        let pause = self.random.below(3000 * MS);
        self.after(pause, Event::Fault);
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        let now = self.now / MS;
        if let Some(log) = &mut self.log {
            log.push(format!("{now:>6} ms  {}", line()));
        }
    }

    /// Returns the trace of the run, if tracing is on.
    pub fn trace(&self) -> String {
        self.log.as_ref().map(|lines| lines.join("\n")).unwrap_or_default()
    }

    pub(super) fn after(&mut self, pause: u64, event: Event) {
        self.sequence += 1;
        let at = (self.now + pause, self.sequence);
        self.queue.push(Reverse(at));
        self.events.insert(at, event);
    }

    pub(super) fn strike_after(&mut self, pause: u64, node: usize) {
        self.after(pause, Event::Strike { node });
    }

    /// Returns a disk with nothing on it. A founder's memory is the one with which the group begins.
    pub(super) fn new_disk(&self, is_founder: bool) -> Disk {
        let content = self.setup.content.as_deref();
        let image = content.filter(|_| is_founder);
        Disk::new(image, self.setup.bytes, content.is_some() && !is_founder)
    }

    /// Starts a life of a node. With a disk, the start is that of its log.
    pub(super) fn begin(&mut self, node: usize, start: Start, content: Option<&[u8]>) {
        let life = self.nodes[node].lives * ADDRESSES + node as u64;
        self.nodes[node].lives += 1;
        let restored = self.nodes[node].disk.as_mut().map(|disk| disk.begin(life));
        let (start, content) = match &restored {
            Some((logged, content)) => (Start::Logged(Box::new(logged.clone())), Some(content.as_slice())),
            None => (start, content),
        };
        let clock = self.nodes[node].clock(self.now);
        let life = Life::new(life, (self.setup.options.clone(), self.setup.bytes), start, content, clock);
        self.nodes[node].life = Some(life);
        self.note(|| format!("node {node} starts"));
        self.end_turn(node);
    }

    /// Kills a node. Other nodes notice after some time.
    pub(super) fn die(&mut self, node: usize) {
        self.note(|| format!("node {node} dies"));
        self.nodes[node].life = None;
        for other in (0..self.nodes.len()).filter(|&other| other != node) {
            self.break_link(node, other);
        }
        let lost: Vec<_> =
            self.connections.iter().filter(|(_, (_, at))| *at == node).map(|(id, _)| *id).collect();
        for connection in lost {
            self.connections.remove(&connection);
        }
    }

    /// Ends the connection between two nodes; messages in flight are lost.
    pub(super) fn break_link(&mut self, left: usize, right: usize) {
        for (node, other) in [(left, right), (right, left)] {
            self.links.entry((node, other)).or_default().1 += 1;
            let pause = self.random.below(300 * MS);
            self.after(pause, Event::Parted { node, other });
        }
    }

    fn is_cut(&self, left: usize, right: usize) -> bool {
        self.cuts.get(&(left.min(right), left.max(right))).is_some_and(|until| *until > self.now)
    }

    pub(super) fn delay(&mut self) -> u64 {
        let milliseconds = if !self.is_calm && self.random.happens(20) { 400 } else { 8 };
        50_000 + self.random.below(milliseconds * MS)
    }

    /// Sends a message, in order within its direction.
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

    /// Reads the clock, ends the replica's turn and performs its outputs.
    fn end_turn(&mut self, node: usize) {
        let clock = self.nodes[node].clock(self.now);
        let Some(life) = &mut self.nodes[node].life else { return };
        life.replica.end_turn(clock);
        let (id, outputs) = (life.id, life.replica.take_outputs());
        let mut answers = Answers::default();
        life.replica.take_answers(&mut answers);
        for (connection, id, words) in answers.iter() {
            self.reply(connection, id, Outcome::Done(words.into()));
        }
        for output in outputs {
            match output {
                Output::Send { to, message } => self.send(id, to, message),
                Output::SendAll(message) => {
                    let lives = self.nodes.iter().filter_map(|node| Some(node.life.as_ref()?.id));
                    for to in lives.filter(|to| *to != id).collect::<Vec<_>>() {
                        self.send(id, to, message.clone());
                    }
                }
                Output::Log(entry) => self.nodes[node].disk.as_mut().expect("a disk").push(entry),
                Output::Reply { connection, id, outcome } => self.reply(connection, id, outcome),
                Output::Store(request) => {
                    if let StoreRequest::Set(view) = &request {
                        self.asked.push(Arc::clone(view));
                        self.note(|| format!("replica {id} requests {view:?}"));
                    }
                    if let Some(pause) = self.store_delay() {
                        self.after(pause, Event::StoreRequest { from: id, request });
                    }
                }
            }
        }
        self.sync(node);
    }

    /// Begins to sync what a node has written.
    fn sync(&mut self, node: usize) {
        let Some(life) = self.nodes[node].life.as_ref().map(|life| life.id) else { return };
        let Some(entries) = self.nodes[node].disk.as_mut().and_then(Disk::begin_sync) else { return };
        let stalls = !self.is_calm && self.random.happens(10);
        let pause = self.random.below(if stalls { 3000 * MS } else { 10 * MS });
        self.after(pause, Event::Synced { node, life, entries });
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

    /// Performs the next event. Returns `false` if there is none.
    pub fn step(&mut self) -> bool {
        let Some(Reverse(at)) = self.queue.pop() else { return false };
        let Some(event) = self.events.remove(&at) else { return true };
        self.now = at.0;
        // Events for a paused node wait, in order.
        let node = event.node();
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
            Event::Synced { node, life, entries } => {
                if self.alive(life).is_some()
                    && let Some(disk) = &mut self.nodes[node].disk
                {
                    let entries = disk.end_sync(entries);
                    self.nodes[node].replica(|replica| replica.logged(entries));
                    self.end_turn(node);
                }
            }
            Event::Request { node, request, frame } => self.request(node, &request, &frame),
            Event::Fence { node, request, session } => self.fence_request(node, &request, session),
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
            Event::Post { client, payload } => self.post(client, payload),
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

    /// Counts the kind of a view change.
    fn count_change(&mut self, before: &View) {
        let store = Arc::clone(&self.store);
        if store.primary != before.primary && !store.backups.contains(&before.primary) {
            self.count("failovers");
        }
        if store.backups.iter().any(|&id| id != before.primary && !before.backups.contains(&id)) {
            self.count("joins");
        }
    }

    fn store_request(&mut self, from: ReplicaId, request: &StoreRequest) {
        if let StoreRequest::Set(view) = request {
            if view.number == self.store.number + 1 {
                let before = std::mem::replace(&mut self.store, Arc::clone(view));
                self.count("views");
                self.count_change(&before);
                self.note(|| format!("the store has {view:?}"));
                if !self.is_calm && self.random.happens(250) {
                    // The nodes concerned by the change are likely to fail soon.
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

    /// Lets a node handle a request, and returns the record that it made.
    fn recorded(&mut self, node: usize, act: impl FnOnce(&mut Replica<Region>)) -> Option<Position> {
        let life = self.nodes[node].life.as_mut()?;
        let before = life.replica.lsn();
        act(&mut life.replica);
        let position = Position { view: life.replica.view()?.number, lsn: life.replica.lsn() };
        (position.lsn > before).then_some(position)
    }

    /// A request to fence a session arrives.
    fn fence_request(&mut self, node: usize, request: &Request, session: u64) {
        if self.connections.contains_key(&request.connection) {
            if let Some(position) = self.recorded(node, |replica| replica.fence(request, session)) {
                self.executed.fence(position, session);
            }
            self.end_turn(node);
        }
    }

    /// A frame arrives. The node may pause between executing it and reading the clock.
    fn request(&mut self, node: usize, request: &Request, frame: &Frame) {
        match self.recorded(node, |replica| replica.request(request, frame.verbs())) {
            Some(position) => self.executed.frame(position, request.frame),
            None if self.executed.knows(request.frame) => self.count("frames known to have been executed"),
            None => {}
        }
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
