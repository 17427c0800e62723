//! The steps of clients. Each is one verb, except that the first intent of an attempt is written
//! together with its status, where no other client can see it.
//!
//! An owner that meets another's undecided intent may wait before it aborts. That is a delay of its
//! next step, so it is not modelled. The CAS that aborts also returns the status if that is decided,
//! as a READ would.

use crate::judge::narrow;
use crate::scenario::{Flaw, Op, Order, Scenario};
use crate::state::{ABSENT, ATTEMPTS, Client, KEYS, Phase, Sight, Stage, State, Status, Value, Values, Word};

/// A step for a trace.
#[derive(Clone, Copy)]
pub(crate) struct TraceStep {
    pub(crate) client: usize,
    pub(crate) key: usize,
    pub(crate) verb: &'static str,
    pub(crate) result: Returned,
}

/// The result of a step's operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Returned {
    /// The operation has not returned.
    Not,
    WithoutEffect,
    Values(Values),
}

/// Takes the next step of a client at a key, if it has one.
pub(crate) fn step(
    scenario: &Scenario,
    before: &State,
    client: usize,
    key: usize,
) -> Option<(TraceStep, State)> {
    let op = before.op(scenario, client)?;
    let mut stage = before.clients[client].stage;
    if stage == Stage::Read && matches!(op, Op::Transaction { reads: [], .. }) {
        stage = Stage::Install;
    }
    let keys = stage_keys(scenario, op, stage);
    let place = keys.iter().position(|&one| one == key)?;
    let is_done = |key: &usize| before.clients[client].phases[*key] == Phase::Done;
    let comes_later = scenario.order == Order::Listed && !keys[..place].iter().all(is_done);
    if stage != Stage::GiveUp && (is_done(&key) || comes_later) {
        return None;
    }
    let step = TraceStep { client, key, verb: "", result: Returned::Not };
    let mut turn = Turn { scenario, op, state: before.clone(), step };
    turn.me().running = true;
    turn.me().stage = stage;
    turn.take();
    turn.state.tidy(scenario);
    Some((turn.step, turn.state))
}

/// Replaces the intent in a key's word, if its owner has noticed that the attempt is decided.
pub(crate) fn clean(scenario: &Scenario, before: &State, key: usize) -> Option<(TraceStep, State)> {
    let Word::Intent(attempt) = before.words[key] else { return None };
    let owner = scenario.owner(attempt).filter(|owner| owner.has_left(before, attempt))?;
    let takes_new = scenario.has(Flaw::CleanupOfAbortedNew) || scenario.has(Flaw::CommitAfterAbort);
    let record = before.records[usize::from(attempt)];
    let value = if takes_new { record.new[key] } else { record.effective(key) };
    let mut state = before.clone();
    state.words[key] = Word::Plain(value);
    state.tidy(scenario);
    Some((TraceStep { client: owner.client, key, verb: "cleanup", result: Returned::Not }, state))
}

/// The keys that an operation goes through in a stage.
fn stage_keys(scenario: &Scenario, op: Op, stage: Stage) -> Vec<usize> {
    let mut keys = op.keys();
    match stage {
        Stage::Read | Stage::Again if op.has_intents() => keys = op.reads(),
        Stage::Install if scenario.has(Flaw::ReadsValidated) => keys = op.writes(),
        Stage::Validate => keys.retain(|key| !op.writes().contains(key)),
        Stage::Commit | Stage::GiveUp => keys.truncate(1),
        Stage::Read | Stage::Again | Stage::Install => {}
    }
    keys
}

struct Turn<'a> {
    scenario: &'a Scenario,
    op: Op,
    state: State,
    step: TraceStep,
}

impl Turn<'_> {
    fn me(&mut self) -> &mut Client {
        &mut self.state.clients[self.step.client]
    }

    fn phase(&mut self) -> &mut Phase {
        let key = self.step.key;
        &mut self.me().phases[key]
    }

    fn take(&mut self) {
        match (self.op, self.me().stage) {
            (Op::Get(_), _) => {
                if let Some((value, _)) = self.read() {
                    self.finish_with(value);
                }
            }
            (Op::Put(_) | Op::Modify(_) | Op::Insert(_) | Op::Delete(_), _) => self.write(),
            (Op::Transaction { .. } | Op::Snapshot(_), Stage::Read | Stage::Again) => self.collect(),
            (_, Stage::Install) => self.install(),
            (_, Stage::Validate) => self.validate(),
            (_, Stage::Commit) => self.commit(),
            (_, Stage::GiveUp) => self.give_up(),
        }
    }

    /// READ of the word, then of the status that it leads to. Returns the value when it is known.
    fn read(&mut self) -> Option<(Value, Sight)> {
        let key = self.step.key;
        let Phase::Met(attempt) = *self.phase() else {
            self.step.verb = "READ word";
            match self.state.words[key] {
                Word::Plain(value) => return Some((value, self.state.sight(key))),
                Word::Intent(attempt) => *self.phase() = Phase::Met(attempt),
            }
            return None;
        };
        self.step.verb = "READ status";
        let record = self.state.records[usize::from(attempt)];
        let value = if self.scenario.has(Flaw::ReaderTakesUndecided) && record.status == Status::Undecided {
            record.new[key]
        } else if self.scenario.has(Flaw::ReaderIgnoresCommit) {
            record.old[key]
        } else {
            record.effective(key)
        };
        Some((value, (Word::Intent(attempt), record.status)))
    }

    /// READ of the word, then an abort of the attempt that it leads to. The phase after that is
    /// `Ready`.
    fn prepare(&mut self) {
        let key = self.step.key;
        let Phase::Met(attempt) = *self.phase() else {
            self.step.verb = "READ word";
            let (from, held) = (self.state.words[key], self.state.effective(key));
            let overwrites = self.scenario.has(Flaw::PutWithoutAbort) && !self.op.has_intents();
            *self.phase() = match from {
                Word::Intent(attempt) if !overwrites => Phase::Met(attempt),
                from => Phase::Ready { from, held },
            };
            return;
        };
        if self.op.has_intents() && self.scenario.has(Flaw::InstallWithoutAbort) {
            self.step.verb = "READ status";
        } else {
            self.step.verb = "CAS status to aborted";
            self.state.decide(attempt, Status::Aborted);
        }
        let record = self.state.records[usize::from(attempt)];
        let assumed = self.scenario.has(Flaw::AbortAssumed);
        let held = if assumed { record.old[key] } else { record.effective(key) };
        *self.phase() = Phase::Ready { from: Word::Intent(attempt), held };
    }

    /// A step of an operation that writes one key.
    fn write(&mut self) {
        let key = self.step.key;
        let number = self.scenario.number(self.step.client, self.me().place);
        if let Phase::Ready { from, held } = *self.phase() {
            self.step.verb = "CAS word";
            let value = self.op.written(number, key, held);
            *self.phase() = Phase::Idle;
            if self.state.cas(key, from, Word::Plain(value)) {
                self.finish_with(held);
            }
            return;
        }
        self.prepare();
        if let Phase::Ready { held, .. } = *self.phase()
            && self.op.written(number, key, held) == held
        {
            self.finish_with(held);
        }
    }

    /// A step of the first reads of a transaction, or of a snapshot.
    fn collect(&mut self) {
        let key = self.step.key;
        let Some((value, sight)) = self.read() else { return };
        let again = usize::from(self.me().stage == Stage::Again);
        self.me().seen[key] = value;
        if matches!(self.op, Op::Snapshot(_)) {
            self.me().sights[again][key] = sight;
        }
        if !self.completes_stage() {
            return;
        }
        match (self.op, self.me().stage) {
            (Op::Snapshot(_), Stage::Read) if self.scenario.has(Flaw::SingleCollect) => {
                self.finish_with_seen();
            }
            (Op::Snapshot(_), Stage::Read) => self.me().stage = Stage::Again,
            (Op::Snapshot(_), _) => self.compare(),
            _ => self.me().stage = Stage::Install,
        }
    }

    /// Compares two collects of a snapshot.
    fn compare(&mut self) {
        let ignores_status = self.scenario.has(Flaw::StatusNotCompared);
        let accepts_absent = self.scenario.has(Flaw::AbsentAccepted);
        let [first, second] = self.me().sights;
        let mut keys = self.op.keys().into_iter();
        let same =
            |key: usize| first[key].0 == second[key].0 && (ignores_status || first[key].1 == second[key].1);
        if !keys.clone().all(same) {
            self.me().sights[0] = second;
            return;
        }
        if keys.any(|key| second[key].0 == Word::Plain(ABSENT)) && !accepts_absent {
            self.me().sights = Client::at(0).sights;
            self.me().stage = Stage::Install;
        } else {
            self.finish_with_seen();
        }
    }

    /// A step of the installation of an intent.
    fn install(&mut self) {
        let key = self.step.key;
        let attempt = self.scenario.attempt(&self.state, self.step.client);
        if let Phase::Ready { from, held } = *self.phase() {
            self.step.verb = "CAS word to intent";
            *self.phase() = Phase::Idle;
            if self.state.cas(key, from, Word::Intent(attempt)) {
                let number = self.scenario.number(self.step.client, self.me().place);
                let record = &mut self.state.records[usize::from(attempt)];
                record.old[key] = held;
                record.new[key] = self.op.written(number, key, held);
                if self.completes_stage() {
                    let validates = self.scenario.has(Flaw::ReadsValidated)
                        && !stage_keys(self.scenario, self.op, Stage::Validate).is_empty();
                    self.me().stage = if validates { Stage::Validate } else { Stage::Commit };
                }
            }
            return;
        }
        self.prepare();
        let compares = self.op.reads().contains(&key) && !self.scenario.has(Flaw::ReadsNotCompared);
        let seen = self.me().seen[key];
        if let Phase::Ready { held, .. } = *self.phase()
            && compares
            && held != seen
        {
            self.me().stage = Stage::GiveUp;
        }
    }

    /// Only with a planted error: compares a key that is not written.
    fn validate(&mut self) {
        let key = self.step.key;
        self.step.verb = "READ word";
        let seen = self.me().seen[key];
        if self.state.words[key] != Word::Plain(seen) {
            self.me().stage = Stage::GiveUp;
        } else if self.completes_stage() {
            self.me().stage = Stage::Commit;
        }
    }

    fn commit(&mut self) {
        let attempt = self.scenario.attempt(&self.state, self.step.client);
        self.step.verb = "CAS status to committed";
        let mut commits = self.state.decide(attempt, Status::Committed);
        if self.scenario.has(Flaw::CommitByWrite) {
            self.step.verb = "WRITE status committed";
            self.state.records[usize::from(attempt)].status = Status::Committed;
            commits = true;
        }
        if commits || self.scenario.has(Flaw::CommitAfterAbort) {
            self.finish_with_seen();
        } else {
            self.begin_again();
        }
    }

    fn give_up(&mut self) {
        let attempt = self.scenario.attempt(&self.state, self.step.client);
        self.step.verb = "CAS own status to aborted";
        self.state.decide(attempt, Status::Aborted);
        if self.scenario.has(Flaw::CommitAfterAbort) {
            self.me().stage = Stage::Install;
        } else {
            self.begin_again();
        }
    }

    /// Marks the key as done. Returns whether all keys of the stage are, and prepares the next one.
    fn completes_stage(&mut self) -> bool {
        *self.phase() = Phase::Done;
        let me = *self.me();
        let keys = stage_keys(self.scenario, self.op, me.stage);
        let completes = keys.iter().all(|&key| me.phases[key] == Phase::Done);
        if completes {
            self.me().phases = [Phase::Idle; KEYS];
        }
        completes
    }

    fn begin_again(&mut self) {
        let Client { place, attempt, .. } = *self.me();
        if attempt + 1 == ATTEMPTS {
            self.finish(None);
        } else {
            *self.me() = Client { running: true, attempt: attempt + 1, ..Client::at(place) };
        }
    }

    fn finish_with_seen(&mut self) {
        let seen = self.me().seen;
        self.finish(Some(seen));
    }

    /// Returns the value that the operation read at its only key.
    fn finish_with(&mut self, value: Value) {
        let mut result = [ABSENT; KEYS];
        if !self.op.reads().is_empty() {
            result[self.step.key] = value;
        }
        self.finish(Some(result));
    }

    fn finish(&mut self, result: Option<Values>) {
        narrow(self.scenario, &mut self.state, self.step.client, result);
        let place = self.me().place + 1;
        *self.me() = Client::at(place);
        self.step.result = result.map_or(Returned::WithoutEffect, Returned::Values);
    }
}
