//! The scheduled part of a run: events happen one at a time until all clients have ended, and
//! faults strike between events.

use super::fault::Fault;
use super::fixture::{Fixture, lease_ms};
use super::outcome::{Outcome, Violation};
use super::plan::Plan;
use super::recorder::Recorder;
use super::schedule::{Decision, Scheduler};
use super::servers::{LATE_SERVER, SERVER, Servers};
use super::subject::{Subject, misuse_of};
use super::torn::TornReads;
use darter_fabric::counted;
use darter_index::checker::trail_len;
use darter_pool::Pool;
use darter_sim::{Event, EventKind, Executor, Sim, TaskId, WordOrder};
use std::cell::RefCell;

/// Steps after which a run counts as hanging. Sealing and splitting a segment takes about 10,000.
const STEPS_MAX: u64 = 200_000;
/// Maximum number of steps of a run with drains, each part of which reads the whole index.
const DRAIN_STEPS_MAX: u64 = 1_000_000;
/// Steps of others after which a held client continues, in case they wait for it.
const HELD_STEPS_MAX: u64 = 20_000;
/// Events for which a lost connection stays lost.
const CUT_EVENTS: u64 = 60;
/// Events after a pause until the clock moves again: a process is not shut out at the first check.
const LAPSE_EVENTS: u64 = 30;

/// A process of the run.
pub(super) struct Process<S: Subject> {
    pub(super) pool: Pool<Sim>,
    pub(super) index: S::Index,
}
/// The scheduled part of a run.
pub(super) struct Execution<'r> {
    pub(super) fixture: &'r Fixture,
    pub(super) plan: &'r Plan,
    pub(super) scheduler: &'r mut dyn Scheduler,
    pub(super) outcome: &'r mut Outcome,
    pub(super) recorder: &'r RefCell<Recorder>,
    /// The index's server, if it has one.
    pub(super) servers: &'r mut Servers,
    /// The task that moved last.
    pub(super) current: Option<u32>,
    /// Faults that have not struck.
    pub(super) pending: Vec<Fault>,
    /// Held clients, and the step at which they continue at the latest.
    pub(super) held: Vec<(u32, u64)>,
    /// Disconnected processes, and the step at which they are reconnected.
    pub(super) healing: Vec<(u32, u64)>,
    /// Steps at which the clock moves again, so that paused processes' leases expire.
    pub(super) lapsing: Vec<u64>,
    pub(super) power_lost: bool,
    /// READs that have executed in part.
    pub(super) torn: TornReads,
    /// The task to which events of the medium belong.
    pub(super) medium: TaskId,
}

impl Execution<'_> {
    /// Performs events until no task that may move has any left.
    pub(super) fn play<S: Subject>(
        &mut self,
        executor: &mut Executor<'_>,
        processes: &mut [Option<Process<S>>],
    ) -> Result<(), Violation> {
        let mut events: Vec<Event> = Vec::new();
        self.outcome.verbs.resize(processes.len(), 0);
        self.outcome.events.resize(self.plan.clients.len(), 0);
        self.strike(executor, processes);
        let most = if self.plan.has_drains() { DRAIN_STEPS_MAX } else { STEPS_MAX };
        loop {
            if self.power_lost {
                return Ok(());
            }
            executor.events(&mut events);
            let runs = |event: &Event| matches!(event.kind, EventKind::Run | EventKind::Complete);
            if executor.all_ended() && !events.iter().any(runs) && !self.has_living_verbs(executor, &events) {
                return Ok(());
            }
            self.hold_back(&mut events);
            if events.is_empty() {
                if self.recorder.borrow_mut().end_rests() {
                    continue;
                }
                return Err(Violation::new("stuck", "no event is possible, but a client has not ended"));
            }
            self.begin_with_current(&mut events);
            if self.scheduler.is_eager()
                && let Some(event) = events.iter().find(|event| runs(event)).copied()
            {
                self.current = Some(event.task);
                executor.perform(event, 0, WordOrder::Ascending);
                continue;
            }
            self.scheduler.observe(&self.recorder.borrow().operations);
            let decision = self.scheduler.decide(&events);
            if self.scheduler.gives_up() {
                self.outcome.gave_up = true;
                return Ok(());
            }
            let event = events[usize::from(decision.event).min(events.len() - 1)];
            self.outcome.schedule.0.push(decision);
            if event.task != self.medium {
                self.current = Some(event.task);
            }
            let (words, order) = decision.piece();
            if self.scheduler.traces() {
                self.outcome.trace.push(describe(&event, decision));
            }
            {
                let mut recorder = self.recorder.borrow_mut();
                recorder.tick();
                self.torn.perform(&event, decision, &recorder.operations);
                if let EventKind::Execute { access, .. } = event.kind {
                    let whole = !access.is_long || words >= access.words;
                    // A task that does not belong to a client is a server's, and runs a procedure.
                    let process = executor.process_of(event.task) as usize;
                    count_at(&mut self.outcome.verbs, process, u64::from(whole));
                    self.outcome.server_pieces += u64::from(process == SERVER as usize);
                    if let Some(verbs) = recorder.verbs.get_mut(event.task as usize) {
                        *verbs += u64::from(whole);
                        if self.scheduler.is_eager() {
                            recorder.begin_now(event.task);
                        }
                    }
                }
            }
            executor.perform(event, words, order);
            self.outcome.steps += 1;
            self.outcome.reached += u64::from(event.task == self.medium);
            count_at(&mut self.outcome.events, event.task as usize, 1);
            self.outcome.met_at.resize(trail_len(), self.outcome.schedule.0.len());
            if let Some(misuse) = misuse_of(&S::PROMISES, &self.fixture.sim) {
                return Err(misuse);
            }
            self.strike(executor, processes);
            if self.servers.is_shut_out() {
                self.servers.replace(Some(executor), false);
            }
            if self.outcome.steps > most {
                return Err(Violation::new("endless", format!("clients have not ended after {most} steps")));
            }
        }
    }

    /// Moves the events of the task that moved last to the front. If it waits for others or for the
    /// clock, the others go first, or it would spin for ever; if it waits for the medium, the
    /// medium goes first.
    fn begin_with_current(&self, events: &mut [Event]) {
        let goes_on = |event: &Event| Some(event.task) == self.current && event.kind != EventKind::Run;
        let is_medium = |event: &Event| event.task == self.medium;
        let at = if events.iter().any(goes_on) {
            events.iter().position(|event| Some(event.task) == self.current)
        } else {
            let next = self.current.map_or(0, |at| at + 1);
            let follows = |event: &Event| event.task >= next;
            events.iter().position(is_medium).or_else(|| events.iter().position(follows))
        };
        events.rotate_left(at.unwrap_or(0));
    }

    /// Removes the events of held clients, unless no other client can move: then those continue.
    fn hold_back(&mut self, events: &mut Vec<Event>) {
        let step = self.outcome.steps;
        self.held.retain(|&(_, until)| step < until);
        if self.held.is_empty() {
            return;
        }
        let is_held = |event: &Event| self.held.iter().any(|&(task, _)| task == event.task);
        if events.iter().all(is_held) {
            self.held.clear();
        } else {
            events.retain(|event| !is_held(event));
        }
    }

    fn has_living_verbs(&self, executor: &Executor<'_>, events: &[Event]) -> bool {
        events.iter().any(|event| {
            let process = executor.process_of(event.task);
            !self.outcome.struck.iter().any(|fault| matches!(fault, Fault::Kill(who, _) if *who == process))
        })
    }

    /// Moves the clock by more than a lease, while only the server renews its own.
    fn let_lapse<S: Subject>(&self) {
        self.fixture.sim.advance_ms(2 * lease_ms(&S::PROMISES));
        self.servers.renew();
    }

    /// Makes the faults strike that are due.
    fn strike<S: Subject>(&mut self, executor: &mut Executor<'_>, processes: &mut [Option<Process<S>>]) {
        let step = self.outcome.steps;
        let sim = &self.fixture.sim;
        self.healing.retain(|&(process, at)| {
            let healed = at <= step;
            if healed {
                sim.process(process).heal(0);
            }
            !healed
        });
        let due = self.lapsing.extract_if(.., |at| *at <= step).count();
        (0..due).for_each(|_| self.let_lapse::<S>());
        for fault in std::mem::take(&mut self.pending) {
            let (_, who, when) = fault.parts();
            let count = match fault {
                Fault::Power(..) => self.outcome.power_points(),
                Fault::Lose(..) => self.outcome.verbs.iter().sum(),
                Fault::Hold(..) => self.outcome.events.get(who as usize).copied().unwrap_or(0),
                _ if who == SERVER => self.outcome.server_pieces,
                _ if who == LATE_SERVER => self.outcome.verbs.get(SERVER as usize).copied().unwrap_or(0),
                _ => self.outcome.verbs.get(who as usize).copied().unwrap_or(0),
            };
            if matches!(fault, Fault::Cancel(..) | Fault::Drop(..) | Fault::Refuse(..)) || count < when {
                self.pending.push(fault);
                continue;
            }
            self.outcome.struck.push(fault);
            match fault {
                Fault::Kill(..) if matches!(who, SERVER | LATE_SERVER) => {
                    self.servers.replace(Some(executor), who == LATE_SERVER);
                }
                Fault::Kill(..) => kill(executor, processes, who),
                Fault::Pause(..) | Fault::Stop(..) => {
                    for process in self.recorder.borrow().processes_of(who) {
                        sim.process(process).pause_process(true);
                    }
                    self.let_lapse::<S>();
                    self.lapsing.push(step + LAPSE_EVENTS);
                }
                Fault::Hold(..) => self.held.push((who, step + HELD_STEPS_MAX)),
                Fault::Lose(..) => {
                    sim.lose_node(who as u8);
                    self.recorder.borrow_mut().lost_nodes.push(who as u8);
                }
                Fault::Cut(..) => {
                    sim.process(who).cut(0);
                    self.healing.push((who, step + CUT_EVENTS));
                }
                Fault::Power(..) => {
                    for who in 0..self.plan.processes() {
                        kill(executor, processes, who);
                        // Verbs it has posted are lost with the nodes.
                        sim.process(who).kill();
                    }
                    self.servers.replace(Some(executor), false);
                    let script = (0..sim.choices_max()).map(|_| self.scheduler.pick()).collect();
                    sim.lose_power(script);
                    self.power_lost = true;
                }
                Fault::Cancel(..) | Fault::Drop(..) | Fault::Refuse(..) => {}
            }
        }
    }
}

/// Adds to a count in a list, which grows with the processes and tasks of servers.
fn count_at(counts: &mut Vec<u64>, at: usize, more: u64) {
    if counts.len() <= at {
        counts.resize(at + 1, 0);
    }
    counts[at] += more;
}

/// Ends a process as a crash would, wherever its tasks are.
pub(super) fn kill<S: Subject>(executor: &mut Executor<'_>, processes: &mut [Option<Process<S>>], who: u32) {
    executor.kill(who);
    if let Some(process) = processes.get_mut(who as usize).and_then(Option::take) {
        process.pool.abandon();
    }
}

/// Describes one step for a reader.
fn describe(event: &Event, decision: Decision) -> String {
    match event.kind {
        EventKind::Run => format!("client {} begins or continues", event.task),
        EventKind::Complete => format!("client {} receives its replies and continues", event.task),
        EventKind::Reach { node, word, pieces } => {
            let pieces = if decision.words == 0 { pieces } else { pieces.min(decision.words.into()) };
            let last = if decision.descending { ", last first" } else { "" };
            format!(
                "medium: {} from mn{node}+{:#x} on{last}",
                counted(pieces.into(), "piece"),
                u64::from(word) * 8
            )
        }
        EventKind::Execute { batch, node, verb, access } => {
            let what = if access.writes { "writes" } else { "reads" };
            let piece = match decision.words {
                0 => String::new(),
                words => format!(
                    ", only {} of it{}",
                    counted(words.into(), "word"),
                    if decision.descending { ", last first" } else { "" }
                ),
            };
            let addr = access.start * 8;
            let words = access.words;
            format!(
                "client {}: batch {batch} verb {verb} {what} {} at mn{node}+{addr:#x}{piece}",
                event.task,
                counted(words.into(), "word")
            )
        }
    }
}
