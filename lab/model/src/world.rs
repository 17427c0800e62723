//! The state that all parts of a model share: memory, NICs, verbs in flight, future events, and the
//! clock.

use super::call_flight::CallFlight;
use super::memory::Memory;
use super::nic::{Nic, PS, Prices, Ps, Server};
use super::parameters::ModelSpec;
use darter_fabric::{Batch, FabricError, GlobalAddr, Suspect, Verb, VerbKind};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An event.
#[derive(Clone, Copy, Debug)]
pub(super) enum Happening {
    /// The first bit of a verb's request reaches the memory node.
    Arrive { flight: u32, verb: u32 },
    /// A verb takes effect.
    Execute { flight: u32, verb: u32 },
    /// The first bit of its reply reaches the compute node.
    Return { flight: u32, verb: u32 },
    /// The first bit of a call's request reaches the memory node.
    CallArrive { call: u32 },
    /// A core has finished a call: its procedure takes effect.
    CallRun { call: u32 },
    /// The first bit of the reply reaches the compute node.
    CallReturn { call: u32 },
    /// A task runs.
    Run { task: u32, cost: Cost },
}

/// The cost for a thread of switching to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cost {
    Nothing,
    Poll,
    Wake,
}

#[derive(Debug)]
struct Event {
    /// The time, followed by the event's number: of events at one moment, the first known comes
    /// first.
    order: u128,
    what: Happening,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    #[inline]
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order.cmp(&other.order)
    }
}

/// The verbs of one batch that go to one node.
#[derive(Clone, Copy, Debug)]
struct Lane {
    node: u8,
    /// When its latest verb left the compute node.
    sent: Ps,
    /// When its latest verb takes effect.
    effective: Ps,
}

/// A batch in flight.
#[derive(Debug)]
struct Flight {
    task: u32,
    compute_node: u32,
    batch: Batch,
    lanes: Vec<Lane>,
    /// Verbs whose replies have not begun to arrive.
    missing: usize,
    /// When the latest reply that arrived is complete.
    done_at: Ps,
    /// Set after the future that waited is dropped; the counter at the endpoint to decrement.
    orphan: Option<Arc<AtomicUsize>>,
}

/// A processor core.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Thread {
    /// When its current work is done; the time that the running task sees.
    pub free_at: Ps,
    pub busy: Ps,
}

/// The words of a node that are in its NIC's own memory.
#[derive(Debug)]
struct OnChip {
    left: u64,
    ranges: Vec<(u64, u64)>,
}

/// A memory node.
#[derive(Debug)]
pub(super) struct Node {
    memory: Memory,
    pub nic: usize,
    /// The cores that run procedures.
    pub cores: Vec<Server>,
    on_chip: OnChip,
    /// One server for each address that the NIC distinguishes, and the same for its own memory.
    addresses: Vec<Server>,
    chip_addresses: Vec<Server>,
}

#[derive(Debug)]
pub(super) struct World {
    pub prices: Prices,
    pub clock: Ps,
    /// The task being polled, and its thread. Without one, verbs execute as they are posted and
    /// cost nothing.
    pub running: Option<(u32, usize)>,
    events: BinaryHeap<Reverse<Event>>,
    events_known: u64,
    pub nodes: Vec<Node>,
    pub nics: Vec<Nic>,
    flights: Vec<Option<Flight>>,
    spare_flights: Vec<u32>,
    pub calls: Vec<Option<CallFlight>>,
    pub spare_calls: Vec<u32>,
    spare_lanes: Vec<Vec<Lane>>,
    pub threads: Vec<Thread>,
    /// Number of tasks ever spawned.
    pub tasks: u32,
    random: u64,
    /// The compute node of each held member slot.
    identities: Vec<(u32, u32)>,
    /// When the measurement began.
    pub measured_since: Ps,
    /// Tasks that have not ended.
    pub alive: usize,
    /// When the latest one ended.
    pub ended_at: Ps,
}

impl World {
    pub(super) fn new(spec: &ModelSpec) -> Self {
        let (compute, memory) = (spec.compute_nodes as usize, spec.memory_nodes as usize);
        let shared = spec.shared_machines as usize;
        let node = |number: usize| Node {
            memory: Memory::new(spec.memory_bytes),
            nic: if number < shared { number } else { compute + number - shared },
            on_chip: OnChip { left: spec.onchip_bytes, ranges: Vec::new() },
            cores: vec![Server::default(); spec.memory_cores as usize],
            addresses: vec![Server::default(); spec.atomic_buckets as usize],
            chip_addresses: vec![Server::default(); spec.atomic_buckets as usize],
        };
        Self {
            prices: Prices::new(spec),
            clock: 0,
            running: None,
            events: BinaryHeap::new(),
            events_known: 0,
            nodes: (0..memory).map(node).collect(),
            nics: vec![Nic::default(); compute + memory - shared],
            flights: Vec::new(),
            spare_flights: Vec::new(),
            calls: Vec::new(),
            spare_calls: Vec::new(),
            spare_lanes: Vec::new(),
            threads: vec![Thread::default(); spec.threads as usize],
            tasks: 0,
            random: spec.seed,
            identities: Vec::new(),
            measured_since: 0,
            alive: 0,
            ended_at: 0,
        }
    }

    /// Returns the time of the running task's thread, or of the latest event.
    pub(super) fn now(&self) -> Ps {
        self.running.map_or(self.clock, |(_, thread)| self.threads[thread].free_at)
    }

    /// Lets the running task's thread work for this long.
    #[inline]
    pub(super) fn work(&mut self, time: Ps) {
        if let Some((_, thread)) = self.running {
            let thread = &mut self.threads[thread];
            thread.free_at += time;
            thread.busy += time;
        }
    }

    #[inline]
    pub(super) fn push(&mut self, at: Ps, what: Happening) {
        self.events_known += 1;
        let order = u128::from(at) << 64 | u128::from(self.events_known);
        self.events.push(Reverse(Event { order, what }));
    }

    /// Removes the next event up to a moment, and moves the clock there.
    #[inline]
    pub(super) fn next(&mut self, until: Ps) -> Option<Happening> {
        let at = (self.events.peek()?.0.order >> 64) as Ps;
        if at > until {
            return None;
        }
        self.clock = self.clock.max(at);
        self.events.pop().map(|next| next.0.what)
    }

    /// Returns whether there are no more events.
    pub(super) fn is_idle(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns a number below `bound`, or 0 (`SplitMix64`).
    pub(super) fn draw(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.random;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31) % bound
    }

    /// Returns whether all of a batch's verbs name existing words.
    pub(super) fn admit(&self, batch: &Batch) -> Result<(), FabricError> {
        batch.verbs().iter().try_for_each(|verb| match self.nodes.get(usize::from(verb.addr.node())) {
            Some(node) => node.memory.admit(verb),
            None => Err(FabricError::out_of_bounds(verb.addr, u64::from(verb.words) * 8, 0)),
        })
    }

    /// Executes an admitted batch at once, outside of time.
    pub(super) fn execute_all(&mut self, batch: &mut Batch) {
        for at in 0..batch.len() {
            let verb = batch.verbs()[at];
            self.nodes[usize::from(verb.addr.node())].memory.execute(batch, verb);
        }
    }

    /// Posts an admitted batch by the running task; returns the batch's number.
    pub(super) fn post(&mut self, task: u32, compute_node: u32, batch: Batch) -> u32 {
        self.work(self.prices.post + self.prices.verb * batch.len() as u64);
        let (now, posted) = (self.clock, self.now());
        let mut lanes = self.spare_lanes.pop().unwrap_or_default();
        lanes.clear();
        let number = self.spare_flights.pop().unwrap_or_else(|| {
            self.flights.push(None);
            self.flights.len() as u32 - 1
        });
        for (at, verb) in batch.verbs().iter().enumerate() {
            let node = verb.addr.node();
            let lane_at = lanes.iter().position(|lane: &Lane| lane.node == node).unwrap_or_else(|| {
                lanes.push(Lane { node, sent: 0, effective: 0 });
                lanes.len() - 1
            });
            let lane = &mut lanes[lane_at];
            let payload = verb.write_bytes();
            let is_fetched = verb.kind == VerbKind::Write && payload > self.prices.inline;
            let nic = &mut self.nics[compute_node as usize];
            let (_, processed) = nic.posts.serve(now, posted, self.prices.send_verb);
            let ready = processed + if is_fetched { self.prices.fetch } else { 0 };
            let bytes = self.prices.message_bytes(payload);
            (lane.sent, _) = nic.send.serve(now, ready.max(lane.sent), self.prices.bytes(bytes));
            nic.verbs_sent += 1;
            nic.bytes_sent += bytes;
            let arrives = lane.sent + self.prices.half_rtt;
            self.push(arrives, Happening::Arrive { flight: number, verb: at as u32 });
        }
        let missing = batch.len();
        let flight = Flight { task, compute_node, batch, lanes, missing, done_at: 0, orphan: None };
        self.flights[number as usize] = Some(flight);
        number
    }

    /// A verb's request arrives: it passes the link, and the NIC on its way to its host's memory or
    /// its own; an atomic also waits for its address. It takes effect at its turn, after the
    /// earlier verbs of its batch.
    pub(super) fn arrive(&mut self, flight: u32, verb_at: u32) {
        let now = self.clock;
        let Some(posted) = &mut self.flights[flight as usize] else { return };
        let verb = posted.batch.verbs()[verb_at as usize];
        let node = &mut self.nodes[usize::from(verb.addr.node())];
        let nic = &mut self.nics[node.nic];
        let prices = &self.prices;
        let bytes = prices.message_bytes(verb.write_bytes());
        nic.verbs_served += 1;
        nic.bytes_received += bytes;
        let (_, received) = nic.receive.serve(now, now, prices.bytes(bytes));
        let is_atomic = matches!(verb.kind, VerbKind::Cas | VerbKind::Faa);
        let bucket = (verb.addr.offset() / 8) as usize % node.addresses.len();
        let Some(lane) = posted.lanes.iter_mut().find(|lane| lane.node == verb.addr.node()) else { return };
        let mut done;
        if node.on_chip.holds(&verb) {
            (_, done) = nic.chip.serve(now, received, prices.chip_verb);
            done = done.max(lane.effective);
            if is_atomic {
                // Atomics reach their address in order: a late one is served late.
                let address = &mut node.chip_addresses[bucket];
                (_, done) = address.serve(done, done, prices.chip_address_atomic);
            }
        } else {
            (_, done) = nic.serves.serve(now, received, prices.serve_verb);
            done = done.max(lane.effective);
            if is_atomic {
                (_, done) = nic.atomics.serve(now, done, prices.atomic);
                (_, done) = node.addresses[bucket].serve(done, done, prices.address_atomic);
            }
        }
        lane.effective = done;
        self.push(done, Happening::Execute { flight, verb: verb_at });
    }

    /// A verb takes effect, and its reply leaves.
    pub(super) fn execute(&mut self, flight: u32, verb_at: u32) {
        let now = self.clock;
        let Some(posted) = &mut self.flights[flight as usize] else { return };
        let verb = posted.batch.verbs()[verb_at as usize];
        let node = &mut self.nodes[usize::from(verb.addr.node())];
        node.memory.execute(&mut posted.batch, verb);
        let nic = &mut self.nics[node.nic];
        let bytes = self.prices.message_bytes(verb.read_bytes());
        let (left, _) = nic.send.serve(now, now, self.prices.bytes(bytes));
        nic.bytes_sent += bytes;
        let jitter = self.draw(self.prices.jitter + 1);
        self.push(left + self.prices.half_rtt + jitter, Happening::Return { flight, verb: verb_at });
    }

    /// A verb's reply arrives. The last one lets the task continue.
    pub(super) fn answer(&mut self, flight: u32, verb_at: u32) {
        let now = self.clock;
        let Some(posted) = &mut self.flights[flight as usize] else { return };
        let nic = &mut self.nics[posted.compute_node as usize];
        let bytes = self.prices.message_bytes(posted.batch.verbs()[verb_at as usize].read_bytes());
        nic.bytes_received += bytes;
        let (_, received) = nic.receive.serve(now, now, self.prices.bytes(bytes));
        posted.done_at = posted.done_at.max(received);
        posted.missing -= 1;
        if posted.missing > 0 {
            return;
        }
        if let Some(orphans) = &posted.orphan {
            orphans.fetch_sub(1, Ordering::Relaxed);
            self.retire(flight);
        } else {
            let (at, task) = (posted.done_at, posted.task);
            self.push(at, Happening::Run { task, cost: Cost::Poll });
        }
    }

    /// Removes a batch, if the running task can see that it is complete.
    pub(super) fn take(&mut self, flight: u32) -> Option<Batch> {
        let now = self.now();
        let posted = self.flights[flight as usize].as_ref()?;
        if posted.missing > 0 || posted.done_at > now {
            return None;
        }
        self.retire(flight)
    }

    fn retire(&mut self, flight: u32) -> Option<Batch> {
        let Flight { batch, lanes, .. } = self.flights[flight as usize].take()?;
        self.spare_flights.push(flight);
        self.spare_lanes.push(lanes);
        Some(batch)
    }

    /// The future that waited for a batch was dropped: the posted verbs still execute.
    pub(super) fn orphan(&mut self, flight: u32, orphans: &Arc<AtomicUsize>) {
        let Some(posted) = &mut self.flights[flight as usize] else { return };
        if posted.missing == 0 {
            self.retire(flight);
        } else {
            orphans.fetch_add(1, Ordering::Relaxed);
            posted.orphan = Some(Arc::clone(orphans));
        }
    }

    /// Places words of a node on its chip if there is room; returns whether they are there.
    pub(super) fn place_on_chip(&mut self, addr: GlobalAddr, bytes: u64) -> bool {
        let Some(node) = self.nodes.get_mut(usize::from(addr.node())) else { return false };
        let words = Verb {
            kind: VerbKind::Read,
            addr,
            at: 0,
            words: u32::try_from(bytes / 8).unwrap_or(0),
            is_fenced: false,
            is_volatile: false,
        };
        if words.words == 0 || !bytes.is_multiple_of(8) || node.memory.admit(&words).is_err() {
            return false;
        }
        if node.on_chip.holds(&words) {
            return true;
        }
        let range = (addr.offset(), addr.offset() + bytes);
        let overlaps = node.on_chip.ranges.iter().any(|known| known.0 < range.1 && range.0 < known.1);
        if overlaps || bytes > node.on_chip.left {
            return false;
        }
        node.on_chip.left -= bytes;
        node.on_chip.ranges.push(range);
        true
    }

    pub(super) fn claim(&mut self, slot: u32, compute_node: u32) -> Result<(), FabricError> {
        if self.identities.iter().any(|&(held, _)| held == slot) {
            return Err(FabricError::IdentityTaken { slot });
        }
        self.identities.push((slot, compute_node));
        Ok(())
    }

    pub(super) fn release(&mut self, slot: u32, compute_node: u32) {
        self.identities.retain(|held| *held != (slot, compute_node));
    }

    /// Returns whether a suspect still holds its slot. Compute nodes of a model never fail, so a
    /// holder is alive.
    pub(super) fn holds(&self, suspect: Suspect) -> bool {
        let is_it = |&(slot, by): &(u32, u32)| slot == suspect.slot && u64::from(by) + 1 == suspect.holder;
        self.identities.iter().any(is_it)
    }

    /// Begins a measurement: resets the busy times of servers and threads.
    pub(super) fn measure(&mut self) {
        self.measured_since = self.clock;
        let servers = |node: &mut Node| {
            let addresses = node.addresses.iter_mut().chain(&mut node.chip_addresses);
            addresses.chain(&mut node.cores).for_each(|server| server.busy = 0);
        };
        self.nodes.iter_mut().for_each(servers);
        for nic in &mut self.nics {
            let idle = |mut server: Server| {
                server.busy = 0;
                server
            };
            *nic = Nic {
                posts: idle(nic.posts),
                serves: idle(nic.serves),
                send: idle(nic.send),
                receive: idle(nic.receive),
                atomics: idle(nic.atomics),
                chip: idle(nic.chip),
                ..Nic::default()
            };
        }
        self.threads.iter_mut().for_each(|thread| thread.busy = 0);
    }

    /// Returns how long the busiest address of each node was busy, and that NIC's number.
    pub(super) fn busiest_addresses(&self) -> impl Iterator<Item = (usize, Ps)> {
        self.nodes.iter().map(|node| {
            let all = node.addresses.iter().chain(&node.chip_addresses);
            (node.nic, all.map(|server| server.busy).max().unwrap_or(0))
        })
    }

    /// Returns the milliseconds on the clock.
    pub(super) fn now_ms(&self) -> u64 {
        self.now() / (PS * 1_000_000)
    }
}

impl OnChip {
    /// Returns whether all of a verb's words are here.
    #[inline]
    fn holds(&self, verb: &Verb) -> bool {
        let (from, to) = (verb.addr.offset(), verb.addr.offset() + u64::from(verb.words) * 8);
        self.ranges.iter().any(|range| range.0 <= from && to <= range.1)
    }
}
