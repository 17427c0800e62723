//! State shared by a simulation's parts: memory, verbs in flight, processes and their identities.

use super::calls::Calls;
use super::clocks::Clocks;
use super::counts::SimCounts;
use super::diverted::Diversion;
use super::journal::Journal;
use super::medium::{Choices, Medium, Need};
use super::memory::{Memory, Misuse, Snapshot};
use super::{Relaxations, Side, WordOrder};
use darter_fabric::{Batch, FabricError, FenceOutcome, Suspect, Verb, VerbKind};

/// Returns the number by which other processes identify a process.
pub(super) fn holder_number(process: u32) -> u64 {
    u64::from(process) + 1
}

/// The verbs of one batch that go to one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    pub node: u8,
    /// The first verb that has not executed; the number of verbs when all have.
    pub at: usize,
    /// The executed verbs after that one: bit `i` is verb `at + 1 + i`.
    ahead: u64,
    /// The verb of which `words_done` words have executed, if any have.
    current: usize,
    pub words_done: u32,
    /// The word that the second half of an atomic stores, after its first half has executed.
    second: u64,
    pub order: WordOrder,
}

impl Lane {
    /// Returns whether a verb of the lane's node has executed.
    pub(super) fn has_executed(&self, verb: usize) -> bool {
        verb < self.at
            || (1..=AHEAD_MAX).contains(&(verb - self.at)) && self.ahead >> (verb - self.at - 1) & 1 != 0
    }
}

/// How far ahead of the first unexecuted verb a verb may execute.
const AHEAD_MAX: usize = 64;

/// A batch in flight.
#[derive(Debug)]
pub(super) struct Posted {
    pub id: u64,
    pub process: u32,
    pub task: u32,
    pub endpoint: u64,
    /// The epoch at which its client was pinned.
    pub pin: Option<u64>,
    /// The future that waited for it is gone.
    pub orphan: bool,
    /// The client may see the results.
    pub completed: bool,
    pub batch: Batch,
    pub lanes: Vec<Lane>,
    /// The stores that must be on the medium before it completes.
    pub needs: Vec<Need>,
    pub error: Option<FabricError>,
}

impl Posted {
    pub(super) fn is_executed(&self) -> bool {
        self.lanes.iter().all(|lane| lane.at >= self.batch.len())
    }

    /// Returns whether its client may see its completion.
    pub(super) fn may_complete(&self) -> bool {
        !self.orphan && self.is_executed() && self.needs.is_empty()
    }

    /// Returns the verbs of a lane, from its first one on, that have not executed.
    fn left<'a>(&'a self, lane: &'a Lane) -> impl Iterator<Item = usize> + 'a {
        let verbs = self.batch.verbs();
        (lane.at..verbs.len()).filter(|&at| verbs[at].addr.node() == lane.node && !lane.has_executed(at))
    }

    /// Returns whether this is the only verb of its batch that has not executed.
    pub(super) fn is_last(&self, lane: &Lane) -> bool {
        let lanes = self.lanes.iter().filter(|lane| lane.at < self.batch.len());
        lanes.count() == 1 && self.left(lane).nth(1).is_none()
    }

    /// Returns the verbs of a lane that may execute next.
    pub(super) fn next<'a>(&'a self, lane: &'a Lane, is_relaxed: bool) -> impl Iterator<Item = usize> + 'a {
        let verbs = self.batch.verbs();
        self.left(lane).filter(move |&at| {
            if lane.words_done > 0 {
                return at == lane.current;
            }
            let follows = |&before: &usize| {
                verbs[before].kind == VerbKind::Write
                    || verbs[at].kind == VerbKind::Read
                    || verbs[at].is_fenced
            };
            let is_near = is_relaxed && at - lane.at <= AHEAD_MAX;
            at == lane.at
                || is_near
                    && !self.left(lane).take_while(|&before| before < at).any(|before| follows(&before))
        })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Life {
    #[default]
    Live,
    Paused,
    /// Killed; its verbs may take effect until it is fenced.
    Dead,
    Fenced,
}

impl Life {
    /// Returns whether a server in this state takes calls.
    pub(super) fn takes_calls(self) -> bool {
        matches!(self, Self::Live | Self::Paused)
    }
}

/// The pin of an endpoint's client.
#[derive(Clone, Copy, Debug)]
struct Pin {
    process: u32,
    endpoint: u64,
    epoch: u64,
    /// Its operation has ended; verbs that the operation posted may be in flight.
    has_ended: bool,
}

#[derive(Debug)]
pub(super) struct World {
    pub nodes: Vec<Memory>,
    /// Verbs execute as they are posted.
    pub direct: bool,
    /// How many more batches and pauses may execute this way.
    pub direct_left: u64,
    pub posted: Vec<Posted>,
    pub calls: Calls,
    next_id: u64,
    next_endpoint: u64,
    pub clocks: Clocks,
    pub processes: Vec<Life>,
    /// The process that holds each member slot.
    identities: Vec<(u32, u32)>,
    /// Some running process was fenced because its lease had lapsed.
    pub has_lapsed: bool,
    /// Processes cut off from nodes.
    cuts: Vec<(u32, u8)>,
    /// Nodes that have left the pool, as far as processes know.
    pub retired: Vec<(u32, u8)>,
    /// Nodes that no process reaches any longer.
    pub lost: Vec<u8>,
    /// Processes whose verbs are executed by the nodes' processors.
    by_processor: Vec<u32>,
    /// Processes limited to the first nodes, with their number.
    limits: Vec<(u32, usize)>,
    /// Number of tasks of all executors.
    pub tasks: u32,
    /// The task being polled.
    pub current: u32,
    /// The task being polled waits for the clock.
    pub slept: bool,
    /// Allocation requests of each process, and the number of the request to refuse.
    pub allocations: Vec<(u64, Option<u64>)>,
    pub counts: SimCounts,
    pins: Vec<Pin>,
    /// The first misuse since the last restore.
    pub misuse: Option<Misuse>,
    /// The first misuse by a process's accounts, without those of verbs.
    pub wrong_free: Option<Misuse>,
    spare_lanes: Vec<Vec<Lane>>,
    pub spare_batches: Vec<Batch>,
    /// The snapshot that the memory's clean pages equal.
    pub base: u64,
    pub snapshots: u64,
    pub relaxations: Relaxations,
    pub medium: Medium,
    /// The state that the last power failure has left.
    pub choices: Choices,
    /// The batches that are executed elsewhere, if batches are diverted.
    pub diversion: Option<Diversion>,
    pub journal: Option<Journal>,
}

impl World {
    pub(super) fn new(nodes: usize, bytes: u64) -> Self {
        Self {
            nodes: (0..nodes).map(|_| Memory::new(bytes)).collect(),
            direct: true,
            direct_left: u64::MAX,
            posted: Vec::new(),
            calls: Calls::default(),
            next_id: 0,
            next_endpoint: 0,
            clocks: Clocks::default(),
            processes: Vec::new(),
            identities: Vec::new(),
            has_lapsed: false,
            cuts: Vec::new(),
            retired: Vec::new(),
            lost: Vec::new(),
            by_processor: Vec::new(),
            limits: Vec::new(),
            tasks: 0,
            current: 0,
            slept: false,
            allocations: Vec::new(),
            counts: SimCounts::default(),
            pins: Vec::new(),
            misuse: None,
            wrong_free: None,
            spare_lanes: Vec::new(),
            spare_batches: Vec::new(),
            base: 0,
            snapshots: 0,
            relaxations: Relaxations::default(),
            medium: Medium::default(),
            choices: Choices::default(),
            diversion: None,
            journal: None,
        }
    }

    /// Returns the forgotten calls, which must be dropped without the lock.
    pub(super) fn restore(&mut self, snapshot: &Snapshot) -> Calls {
        let all = snapshot.id != self.base;
        for (memory, region) in self.nodes.iter_mut().zip(&snapshot.regions) {
            memory.restore(region, all);
        }
        self.base = snapshot.id;
        self.posted.clear();
        let calls = self.calls.take_all();
        self.processes.clear();
        self.identities.clear();
        self.has_lapsed = false;
        self.cuts.clear();
        self.retired.clear();
        self.lost.clear();
        self.by_processor.clear();
        self.limits.clear();
        self.allocations.clear();
        self.clocks.common_ms = 0;
        self.next_id = 0;
        self.next_endpoint = 0;
        self.counts = SimCounts::default();
        self.pins.clear();
        (self.misuse, self.wrong_free) = (None, None);
        self.relaxations = Relaxations::default();
        self.medium = Medium::default();
        self.choices = Choices::default();
        self.diversion = None;
        self.journal = None;
        calls
    }

    /// Returns the side that executes a process's verbs.
    fn side(&self, process: u32) -> Side {
        if self.by_processor.contains(&process) { Side::Processor } else { Side::Device }
    }

    pub(super) fn set_side(&mut self, process: u32, side: Side) {
        self.by_processor.retain(|&it| it != process);
        if side == Side::Processor {
            self.by_processor.push(process);
        }
    }

    /// Returns whether an atomic of a process has to wait: only the first half of another atomic on
    /// this word has executed, by the same side.
    pub(super) fn awaits_second_half(&self, process: u32, verb: &Verb) -> bool {
        let Relaxations { order: _, cas_writes_back, split_atomics } = self.relaxations;
        let is_near = |other: u32| !split_atomics || self.side(other) == self.side(process);
        (cas_writes_back || split_atomics)
            && verb.is_atomic()
            && self.posted.iter().filter(|posted| is_near(posted.process)).any(|posted| {
                let begun =
                    posted.lanes.iter().filter(|lane| lane.at < posted.batch.len() && lane.words_done > 0);
                begun
                    .map(|lane| &posted.batch.verbs()[lane.current])
                    .any(|it| it.is_atomic() && it.addr == verb.addr)
            })
    }

    /// Notes the epoch at which an endpoint's client is pinned. Verbs that the pin's operation
    /// posted in dropped futures keep the pin until they have taken effect.
    pub(super) fn note_pin(&mut self, process: u32, endpoint: u64, epoch: Option<u64>) {
        let of_endpoint = self.pins.iter_mut().filter(|pin| pin.endpoint == endpoint);
        of_endpoint.for_each(|pin| pin.has_ended = true);
        let (posted, calls) = (&self.posted, &self.calls);
        let lingers = |endpoint: u64| {
            posted.iter().any(|it| it.orphan && it.endpoint == endpoint) || calls.in_flight(endpoint) > 0
        };
        self.pins.retain(|pin| !pin.has_ended || lingers(pin.endpoint));
        self.pins.extend(epoch.map(|epoch| Pin { process, endpoint, epoch, has_ended: false }));
    }

    /// Returns whether a client that may still read or write is pinned at this epoch or earlier.
    pub(super) fn is_pinned_by(&self, epoch: u64) -> bool {
        self.pins.iter().any(|pin| {
            let may_act = self.admit(pin.process).is_ok();
            pin.epoch <= epoch && may_act && (!pin.has_ended || self.in_flight(pin.endpoint) > 0)
        })
    }

    pub(super) fn life(&self, process: u32) -> Life {
        self.processes.get(process as usize).copied().unwrap_or_default()
    }

    pub(super) fn set_life(&mut self, process: u32, life: Life) {
        let at = process as usize;
        if self.processes.len() <= at {
            self.processes.resize(at + 1, Life::Live);
        }
        self.processes[at] = life;
        if !life.takes_calls() {
            self.calls.server_died(process);
        }
    }

    /// Fails if a process may not use the fabric.
    pub(super) fn admit(&self, process: u32) -> Result<(), FabricError> {
        match self.life(process) {
            Life::Live | Life::Paused => Ok(()),
            Life::Dead | Life::Fenced => Err(FabricError::Fenced),
        }
    }

    pub(super) fn new_endpoint(&mut self) -> u64 {
        self.next_endpoint += 1;
        self.next_endpoint
    }

    /// Returns the number of nodes that a process reaches.
    pub(super) fn reach(&self, process: u32) -> usize {
        let limit = self.limits.iter().find(|(limited, _)| *limited == process);
        limit.map_or(self.nodes.len(), |&(_, count)| count.min(self.nodes.len()))
    }

    pub(super) fn limit(&mut self, process: u32, count: usize) {
        self.limits.retain(|(limited, _)| *limited != process);
        self.limits.push((process, count));
    }

    pub(super) fn is_cut(&self, process: u32, node: u8) -> bool {
        self.cuts.contains(&(process, node))
    }

    /// Posts a batch; returns its id.
    pub(super) fn post(&mut self, process: u32, (endpoint, pin): (u64, Option<u64>), batch: Batch) -> u64 {
        self.next_id += 1;
        self.counts.batches += 1;
        let mut lanes = self.spare_lanes.pop().unwrap_or_default();
        lanes.clear();
        let mut error = None;
        for (at, verb) in batch.verbs().iter().enumerate() {
            let node = verb.addr.node();
            if !lanes.iter().any(|lane: &Lane| lane.node == node) {
                let mut lane = Lane {
                    node,
                    at,
                    ahead: 0,
                    current: at,
                    words_done: 0,
                    second: 0,
                    order: WordOrder::default(),
                };
                if usize::from(node) >= self.reach(process) {
                    error = Some(FabricError::out_of_bounds(verb.addr, u64::from(verb.words) * 8, 0));
                    lane.at = batch.len();
                } else if self.retired.contains(&(process, node)) {
                    self.counts.to_retired += 1;
                    error = Some(FabricError::Unreachable { node });
                    lane.at = batch.len();
                } else if self.lost.contains(&node) {
                    error = Some(FabricError::Unreachable { node });
                    lane.at = batch.len();
                } else if self.is_cut(process, node) {
                    error = Some(FabricError::Disconnected { node });
                    lane.at = batch.len();
                }
                lanes.push(lane);
            }
        }
        let (id, task) = (self.next_id, self.current);
        self.posted.push(Posted {
            id,
            process,
            task,
            endpoint,
            pin,
            orphan: false,
            completed: false,
            batch,
            lanes,
            needs: Vec::new(),
            error,
        });
        id
    }

    /// Takes a completed batch out.
    pub(super) fn take(&mut self, id: u64) -> Option<Result<Batch, FabricError>> {
        let at = self.posted.iter().position(|posted| posted.id == id && posted.completed)?;
        let Posted { batch, lanes, error, .. } = self.posted.remove(at);
        self.spare_lanes.push(lanes);
        Some(error.map_or(Ok(batch), Err))
    }

    /// Notes that the future of a batch is gone; its posted verbs may still take effect.
    pub(super) fn orphan(&mut self, id: u64) {
        if let Some(at) = self.posted.iter().position(|posted| posted.id == id) {
            if self.posted[at].is_executed() {
                self.posted.remove(at);
            } else {
                self.posted[at].orphan = true;
            }
        }
    }

    pub(super) fn in_flight(&self, endpoint: u64) -> usize {
        let posted = self.posted.iter().filter(|posted| posted.orphan && posted.endpoint == endpoint);
        posted.count() + self.calls.in_flight(endpoint)
    }

    /// Executes up to `words` words of a verb of a lane, which must be among its next verbs.
    pub(super) fn execute(
        &mut self,
        at: usize,
        lane_at: usize,
        verb_at: usize,
        words: u32,
        order: WordOrder,
    ) {
        let relaxations = self.relaxations;
        let posted = &mut self.posted[at];
        let (count, pin) = (posted.batch.len(), posted.pin);
        let lane = &mut posted.lanes[lane_at];
        let verb = posted.batch.verbs()[verb_at];
        let memory = &mut self.nodes[usize::from(lane.node)];
        match memory.locate(&verb) {
            Ok(start) => {
                if lane.words_done == 0 {
                    (lane.order, lane.current) = (order, verb_at);
                }
                let from = lane.words_done;
                let pieces = relaxations.pieces(&verb);
                let to = pieces.min(from.saturating_add(words.max(1)));
                let mut is_done = to == pieces;
                let end = if verb.is_long() { to } else { verb.words };
                let touched =
                    lane.order.piece(start, verb.words, (if verb.is_long() { from } else { 0 }, end));
                memory.settle(touched.clone(), verb.kind, &mut self.choices);
                // Needs of the words that it stored or, if none, of the words that it read.
                let mut stores = verb.kind == VerbKind::Write;
                let misuse = if !verb.is_atomic() {
                    memory.execute(&mut posted.batch, verb, start, (from, end), lane.order, pin)
                } else if from > 0 {
                    stores = true;
                    memory.end_atomic(verb, start, lane.second, pin)
                } else {
                    let (word, takes_effect, misuse) =
                        memory.begin_atomic(&mut posted.batch, verb, start, pin);
                    lane.second = word;
                    is_done |= !relaxations.has_second_half(takes_effect);
                    stores = is_done && takes_effect;
                    if stores { memory.end_atomic(verb, start, word, pin) } else { misuse }
                };
                let by = if stores { verb.kind } else { VerbKind::Read };
                // The reply waits until the words read or stored are on the medium.
                if !verb.is_volatile {
                    memory.add_needs(lane.node, touched, by, &mut posted.needs);
                }
                self.misuse = self.misuse.or(misuse);
                if !is_done {
                    lane.words_done = to;
                    self.counts.torn += u64::from(from == 0);
                    return;
                }
                if let Some(journal) = self.journal.as_mut().filter(|_| stores) {
                    journal.wrote((posted.task, posted.id), verb.kind, verb.addr, verb.words);
                }
                self.counts.verbs += 1;
                lane.words_done = 0;
                if verb_at == lane.at {
                    let (node, verbs) = (lane.node, posted.batch.verbs());
                    let next = (lane.at + 1..count)
                        .find(|&next| verbs[next].addr.node() == node && !lane.has_executed(next))
                        .unwrap_or(count);
                    lane.ahead = lane.ahead.checked_shr((next - lane.at) as u32).unwrap_or(0);
                    lane.at = next;
                } else {
                    lane.ahead |= 1 << (verb_at - lane.at - 1);
                }
            }
            Err(error) => {
                posted.error.get_or_insert(error);
                lane.at = count;
            }
        }
        if posted.orphan && posted.is_executed() {
            self.posted.remove(at);
        }
    }

    /// Notes that a batch or pause executes at once; returns whether it may.
    pub(super) fn admits_direct(&mut self) -> bool {
        let may = self.direct_left > 0;
        self.direct_left = self.direct_left.saturating_sub(1);
        may
    }

    /// Executes a complete batch at once.
    pub(super) fn execute_all(
        &mut self,
        process: u32,
        endpoint: (u64, Option<u64>),
        batch: Batch,
    ) -> Result<Batch, FabricError> {
        let id = self.post(process, endpoint, batch);
        let at = self.posted.len() - 1;
        for lane in 0..self.posted[at].lanes.len() {
            while self.posted[at].lanes[lane].at < self.posted[at].batch.len() {
                let verb = self.posted[at].lanes[lane].at;
                self.execute(at, lane, verb, u32::MAX, WordOrder::Ascending);
            }
        }
        self.posted[at].completed = true;
        if self.medium != Medium::Never {
            self.reach_all();
        }
        self.take(id).unwrap_or(Err(FabricError::Fenced))
    }

    /// Revokes all verbs of a process that have not executed.
    pub(super) fn discard_verbs(&mut self, process: u32) {
        for posted in self.posted.iter_mut().filter(|posted| posted.process == process) {
            let count = posted.batch.len();
            if !posted.is_executed() {
                posted.lanes.iter_mut().for_each(|lane| lane.at = count);
                posted.error.get_or_insert(FabricError::Fenced);
            }
        }
        self.posted.retain(|posted| posted.process != process || !posted.orphan);
        self.calls.take_back(process);
    }

    pub(super) fn cut(&mut self, process: u32, node: u8) {
        if !self.is_cut(process, node) {
            self.cuts.push((process, node));
        }
        self.disconnect(node, |posted| posted.process == process);
        self.calls.cut(process, node);
    }

    /// Notes a misuse that is not a verb's, if it is one.
    pub(super) fn note_wrong_free(&mut self, misuse: Option<Misuse>) {
        self.wrong_free = self.wrong_free.or(misuse);
        self.misuse = self.misuse.or(misuse);
    }

    /// From now on no process reaches a node. Posted verbs there are lost, as are the replies to
    /// executed ones.
    pub(super) fn lose(&mut self, node: u8) {
        self.lost.push(node);
        self.disconnect(node, |_| true);
    }

    /// Ends the verbs of some batches at a node.
    fn disconnect(&mut self, node: u8, is_affected: impl Fn(&Posted) -> bool) {
        for posted in self.posted.iter_mut().filter(|posted| is_affected(posted)) {
            let count = posted.batch.len();
            // An executed batch loses its reply.
            for lane in posted.lanes.iter_mut().filter(|lane| lane.node == node) {
                lane.at = count;
                posted.error = Some(FabricError::Disconnected { node });
                posted.needs.retain(|need| need.node != node);
            }
        }
        self.posted.retain(|posted| !(is_affected(posted) && posted.orphan && posted.is_executed()));
    }

    pub(super) fn heal(&mut self, process: u32, node: u8) {
        self.cuts.retain(|cut| *cut != (process, node));
    }

    pub(super) fn claim(&mut self, slot: u32, process: u32) -> Result<(), FabricError> {
        if let Some(&(_, holder)) = self.identities.iter().find(|(held, _)| *held == slot) {
            let suspect = Suspect { slot, holder: holder_number(holder), lapsed: false };
            if self.fence(suspect) != FenceOutcome::Fenced {
                return Err(FabricError::IdentityTaken { slot });
            }
        }
        self.identities.push((slot, process));
        Ok(())
    }

    pub(super) fn release(&mut self, slot: u32, process: u32) {
        self.identities.retain(|held| *held != (slot, process));
    }

    /// Fences a process unless it runs within its lease. A paused process counts as disconnected.
    pub(super) fn fence(&mut self, suspect: Suspect) -> FenceOutcome {
        let Suspect { slot, holder, lapsed } = suspect;
        let held = self.identities.iter().find(|&&(held, by)| held == slot && holder_number(by) == holder);
        if let Some(&(_, process)) = held {
            if self.life(process) == Life::Live && !lapsed {
                return FenceOutcome::Alive;
            }
            if let Some(diversion) = &mut self.diversion {
                diversion.suspect(process);
                return FenceOutcome::Unknown;
            }
            self.has_lapsed |= self.life(process) == Life::Live;
            self.shut_out(process);
        }
        FenceOutcome::Fenced
    }

    /// Fences a process: its posted verbs fail, and others may take its place.
    pub(super) fn shut_out(&mut self, process: u32) {
        self.discard_verbs(process);
        self.set_life(process, Life::Fenced);
        self.identities.retain(|(_, holder)| *holder != process);
    }

    /// Returns the number of allocation requests of a process, and the number of the request to
    /// refuse.
    pub(super) fn allocations_of(&mut self, process: u32) -> &mut (u64, Option<u64>) {
        let at = process as usize;
        if self.allocations.len() <= at {
            self.allocations.resize(at + 1, (0, None));
        }
        &mut self.allocations[at]
    }

    /// Counts an allocation request; returns whether it must be refused.
    pub(super) fn refuses_allocation(&mut self, process: u32) -> bool {
        let (count, refused) = self.allocations_of(process);
        *count += 1;
        *refused == Some(*count - 1)
    }
}
