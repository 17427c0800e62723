//! Steps of clients and of replicas that serve: requests, records, acknowledgements, leases,
//! replies.

use crate::judge::Judge;
use crate::state::{CLIENTS, Client, Flaw, Held, Log, Op, REPLICAS, Record, Replica, State};

/// The result of a frame whose session is fenced.
const REFUSED: u8 = u8::MAX;

/// A possible step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GroupStep {
    Begin { client: usize },
    Switch { client: usize, to: usize },
    Execute { primary: usize, client: usize, index: u8 },
    Reply { primary: usize, client: usize },
    Apply { primary: usize, backup: usize },
    Skip { primary: usize, backup: usize },
    Acknowledge { primary: usize, backup: usize },
    Grant { primary: usize },
    Expire { primary: usize },
    Join { primary: usize, learner: usize },
    Copied { primary: usize, learner: usize },
    Include { primary: usize, learner: usize },
    Add { primary: usize, learner: usize },
    Remove { primary: usize, backup: usize },
    HandOff { primary: usize, to: usize },
    Suspect { backup: usize },
    Trust { backup: usize },
    Survey { candidate: usize, backup: usize },
    Promote { candidate: usize },
    Land { replica: usize },
    Adopt { replica: usize, view: u8 },
    Die { replica: usize },
    Back { replica: usize },
    Resume { replica: usize },
    Sync { replica: usize },
}

/// A state after a step, and the violation, if any.
pub(crate) type Next = (GroupStep, State, Option<&'static str>);

/// A start and its bounds.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // each is an independent switch
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) replicas: usize,
    pub(crate) programs: [&'static [Op]; CLIENTS],
    /// How often each client may switch to another replica.
    pub(crate) switches: u8,
    pub(crate) deaths: u8,
    /// Whether the third replica is a learner from the start.
    pub(crate) learns: bool,
    /// Whether dead replicas return, if the third replica's name is free for them.
    pub(crate) returns: bool,
    /// Whether replicas have logs, of which a death takes records that were not synced.
    pub(crate) is_durable: bool,
    /// The number of the last view.
    pub(crate) views_max: u8,
    /// Whether primaries remove backups and bring up learners.
    pub(crate) changes: bool,
    /// Whether the primary may hand over.
    pub(crate) hands_over: bool,
}

/// Takes all steps from one state.
pub(crate) struct Turn<'t> {
    pub(crate) scenario: &'t Scenario,
    pub(crate) flaw: Option<Flaw>,
    pub(crate) judge: &'t mut Judge,
    pub(crate) state: State,
    pub(crate) out: &'t mut Vec<Next>,
}

impl Turn<'_> {
    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    pub(crate) fn push(&mut self, step: GroupStep, state: State) {
        self.push_judged(step, state, None);
    }

    fn push_judged(&mut self, step: GroupStep, mut state: State, wrong: Option<&'static str>) {
        for primary in 0..REPLICAS {
            for backup in (0..REPLICAS).filter(|&backup| backup != primary) {
                self.attach(&mut state, primary, backup);
            }
        }
        self.out.push((step, state, wrong));
    }

    /// A primary and a backup with the same view determine whether the backup's log is a prefix of
    /// the primary's. This is not a separate step: anything that happens before it could also
    /// happen after it.
    fn attach(&self, state: &mut State, primary: usize, backup: usize) {
        let (from, to) = (&state.replicas[primary], &state.replicas[backup]);
        let are_same = from.view.number == to.view.number && from.view.backups >> backup & 1 != 0;
        let is_missing = from.is_primary(primary) && to.is_alive && from.attached >> backup & 1 == 0;
        let fits = to.is_sound && from.log.is_begun_by(&to.log) || self.has(Flaw::SuffixKept);
        if are_same && is_missing && fits && !to.suspects {
            state.replicas[primary].attached |= 1 << backup;
        }
    }

    pub(crate) fn take_all(&mut self) {
        for client in 0..CLIENTS {
            self.client(client);
        }
        for replica in 0..REPLICAS {
            for client in 0..CLIENTS {
                self.execute(replica, client);
                self.reply(replica, client);
            }
            self.lease(replica);
            self.sync(replica);
            for other in (0..REPLICAS).filter(|&other| other != replica) {
                self.ship(replica, other);
            }
        }
        self.change();
    }

    fn program(&self, client: usize) -> &'static [Op] {
        self.scenario.programs[client]
    }

    fn send(state: &mut State, to: usize, client: usize) {
        if state.replicas[to].is_alive {
            state.requests |= State::request(to, client, state.clients[client].index);
        }
    }

    fn client(&mut self, client: usize) {
        let Client { index, waits, target, switches } = self.state.clients[client];
        if !waits && usize::from(index) < self.program(client).len() {
            let mut state = self.state;
            state.clients[client].waits = true;
            let op = self.program(client)[usize::from(index)];
            state.judgement = self.judge.begin(state.judgement, client, op);
            Self::send(&mut state, usize::from(target), client);
            self.push(GroupStep::Begin { client }, state);
        }
        if waits && switches > 0 {
            for to in (0..REPLICAS).filter(|&to| to != usize::from(target)) {
                if !self.state.replicas[to].is_alive {
                    continue;
                }
                let mut state = self.state;
                state.clients[client] = Client { target: to as u8, switches: switches - 1, index, waits };
                Self::send(&mut state, to, client);
                self.push(GroupStep::Switch { client, to }, state);
            }
        }
    }

    fn execute(&mut self, primary: usize, client: usize) {
        let replica = self.state.replicas[primary];
        if !replica.is_primary(primary) || replica.is_stopped {
            return;
        }
        for index in 0..2 {
            let request = State::request(primary, client, index);
            if self.state.requests & request == 0 {
                continue;
            }
            let mut state = self.state;
            state.requests &= !request;
            let op = self.program(client)[usize::from(index)];
            let is_stale = index < state.clients[client].index;
            let known = replica.log.find(client as u8, index).filter(|_| !self.has(Flaw::NoDuplicates));
            let log = &mut state.replicas[primary].log;
            let (result, need) = if let Some(at) = known {
                (log.value(at), at + 1)
            } else if self.is_fenced(&replica.log, replica.view.number, client) {
                (REFUSED, log.len())
            } else if op == Op::Read {
                (log.value(log.len()), log.len())
            } else {
                let (view, client) = (replica.view.number, client as u8);
                log.push(Record { view, client, index, op, is_hole: false });
                (log.value(log.len() - 1), log.len())
            };
            let result = if op == Op::Fence && result != REFUSED { 0 } else { result };
            let is_free = op != Op::Read || replica.has_lease || replica.awaited() == 0;
            if !is_stale {
                let held = Held { index, result, need: self.need(primary, op, need), is_free };
                state.replicas[primary].held[client] = Some(held);
            }
            self.push(GroupStep::Execute { primary, client, index }, state);
        }
    }

    /// Whether a primary knows that a client is fenced.
    fn is_fenced(&self, log: &Log, view: u8, client: usize) -> bool {
        let fences = |record: Record| {
            record.op == Op::Fence && usize::from(record.client) != client && !record.is_hole
        };
        log.iter().any(|record| fences(record) && (record.view == view || !self.has(Flaw::FencesForgotten)))
    }

    fn need(&self, primary: usize, op: Op, need: u8) -> u8 {
        let replica = &self.state.replicas[primary];
        let is_own = need
            .checked_sub(1)
            .and_then(|at| replica.log.get(at))
            .is_none_or(|record| record.view == replica.view.number);
        let is_shown_early = self.has(Flaw::ReadBeforeAcks) && op == Op::Read
            || self.has(Flaw::ReplyBeforeAcks) && op != Op::Read
            || self.has(Flaw::FloorForgotten) && !is_own;
        if is_shown_early { 0 } else { need }
    }

    fn reply(&mut self, primary: usize, client: usize) {
        let replica = self.state.replicas[primary];
        let Some(held) = replica.held[client].filter(|_| replica.is_primary(primary)) else { return };
        // A current lease covers all earlier executions.
        let is_leased =
            held.is_free || replica.has_lease || replica.awaited() == 0 || self.has(Flaw::NoLease);
        if held.need > self.everywhere(&replica) || !is_leased {
            return;
        }
        let mut state = self.state;
        let replica = &mut state.replicas[primary];
        replica.held[client] = None;
        replica.told = replica.told.max(held.need);
        let known = &mut state.clients[client];
        let (is_awaited, is_here) =
            (known.waits && known.index == held.index, usize::from(known.target) == primary);
        let mut wrong = None;
        if is_awaited && is_here {
            known.waits = false;
            known.index += 1;
            let answered = if held.result == REFUSED {
                known.index = self.scenario.programs[client].len() as u8;
                self.judge.refuse(state.judgement, client)
            } else {
                self.judge.answer(state.judgement, client, held.result)
            };
            match answered {
                Some(number) => state.judgement = number,
                None => wrong = Some("a result that no configuration explains"),
            }
        }
        self.push_judged(GroupStep::Reply { primary, client }, state, wrong);
    }

    fn lease(&mut self, primary: usize) {
        let replica = self.state.replicas[primary];
        if !replica.is_primary(primary) || replica.awaited() == 0 {
            return;
        }
        let mut state = self.state;
        state.replicas[primary].has_lease = !replica.has_lease;
        if replica.has_lease {
            self.push(GroupStep::Expire { primary }, state);
            return;
        }
        let grants = |&other: &usize| {
            let backup = &self.state.replicas[other];
            backup.is_alive
                && backup.is_sound
                && backup.view.number == replica.view.number
                && !backup.suspects
        };
        let mut awaited = (0..REPLICAS).filter(|&other| replica.awaited() >> other & 1 != 0);
        if awaited.all(|other| grants(&other)) {
            self.push(GroupStep::Grant { primary }, state);
        }
    }

    fn sync(&mut self, me: usize) {
        let replica = &self.state.replicas[me];
        if self.scenario.is_durable && replica.is_alive && replica.synced < replica.log.len() {
            let mut state = self.state;
            state.replicas[me].synced = replica.log.len();
            self.push(GroupStep::Sync { replica: me }, state);
        }
    }

    /// Records that a replica may acknowledge.
    fn acknowledged(&self, replica: &Replica, flaw: Flaw) -> u8 {
        if self.scenario.is_durable && !self.has(flaw) { replica.synced } else { replica.log.len() }
    }

    /// Records that all awaited replicas have, and a durable primary's own log.
    fn everywhere(&self, replica: &Replica) -> u8 {
        replica.everywhere().min(self.acknowledged(replica, Flaw::OwnSyncForgotten))
    }

    /// Records and acknowledgements between a primary and another replica.
    fn ship(&mut self, primary: usize, backup: usize) {
        let (from, to) = (self.state.replicas[primary], self.state.replicas[backup]);
        let is_same = from.view.number == to.view.number
            || self.has(Flaw::NoViewCheck) && to.is_sound && from.view.number < to.view.number;
        let is_attached = from.attached >> backup & 1 != 0;
        if !from.is_primary(primary) || !to.is_alive || !is_same || to.suspects {
            return;
        }
        if !is_attached || !to.is_sound {
            return;
        }
        if let Some(record) = from.log.get(to.log.len()) {
            let mut state = self.state;
            state.replicas[backup].log.push(record);
            self.push(GroupStep::Apply { primary, backup }, state);
            if self.has(Flaw::Gap) && to.log.iter().all(|record| !record.is_hole) {
                let mut state = self.state;
                state.replicas[backup].log.push(Record { is_hole: true, ..record });
                self.push(GroupStep::Skip { primary, backup }, state);
            }
        }
        let has = self.acknowledged(&to, Flaw::AckBeforeSync);
        if has > from.acked[backup] {
            let mut state = self.state;
            state.replicas[primary].acked[backup] = has;
            self.push(GroupStep::Acknowledge { primary, backup }, state);
        }
    }
}
