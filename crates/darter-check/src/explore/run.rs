//! One run: a plan, a schedule, and what came of them.
//!
//! Clients run as tasks of the simulation until all have ended or stopped; faults strike when their moment has come. Then
//! time stands still for the verdict: processes that live settle and close, the others are fenced, their blocks adopted, and a
//! fresh process reads every hot key, checks the index and audits the pool. Whatever does not fit is a [`Violation`].

use super::clients::{Cast, Recorder, client};
use super::plan::{Fault, Op, Plan};
use super::schedule::{Decision, Schedule, Scheduler};
use super::stage::{Stage, lease_ms};
use super::subject::{OptionsOf, Subject};
use super::verdict;
use crate::history::Operation;
use darter_fabric::sim::{Event, EventKind, Executor, Sim, SimCounts, WordOrder};
use darter_index::checker::trail_len;
use darter_index::{IndexError, OrderedIndex};
use darter_pool::{Client, Pool};
use std::cell::RefCell;
use std::rc::Rc;

/// Steps after which a run is held to hang. Sealing and splitting a segment takes some 10,000.
const STEPS_MAX: u64 = 200_000;
/// The same of batches where time stands still for the verdict.
const BATCHES_MAX: u64 = 200_000;
/// Steps of others after which a client that is held goes on, should they wait for it.
const HELD_STEPS_MAX: u64 = 20_000;
/// Events that a lost connection stays lost.
const CUT_EVENTS: u64 = 60;
/// Rounds of upkeep after which whatever was unlinked must be free when nobody is in the way.
const SETTLE_ROUNDS: usize = 24;
/// Of runs that nothing struck, one in so many closes its processes and has others look, and one in so many of those sweeps.
const CLOSED_ONE_IN: u64 = 8;
const SWEPT_ONE_IN: u64 = 4;

/// Something that must not happen, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What kind: one word or two, the same for the same error.
    pub kind: &'static str,
    /// What happened, for a person.
    pub text: String,
}

impl Violation {
    pub(super) fn new(kind: &'static str, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What must not have happened.
    pub violation: Option<Violation>,
    /// Every decision that was made.
    pub schedule: Schedule,
    /// What clients did and were told.
    pub history: Vec<Operation>,
    /// Decisions made before each situation was first met, while clients ran.
    pub met_at: Vec<usize>,
    /// Events performed.
    pub steps: u64,
    /// Verbs and the like.
    pub counts: SimCounts,
    /// Verbs of each process.
    pub verbs: Vec<u64>,
    /// Awaits of each client.
    pub awaits: Vec<u64>,
    /// Events of each client.
    pub events: Vec<u64>,
    /// Allocation requests of each process.
    pub allocations: Vec<u64>,
    /// Faults that struck.
    pub struck: Vec<Fault>,
    /// A process left while others held back what it had unlinked: a sweep finds it.
    pub was_visited: bool,
    /// The most round trips, and the verbs in them, that one operation of each client took; upkeep left out.
    pub longest_op: Vec<(u64, u64)>,
    /// Words that a power failure took back.
    pub words_lost: u64,
    /// States that the checker looked at.
    pub states: u64,
    /// Operations that were told that a value was lost.
    pub lost: u64,
    /// Batches posted, those of the verdict among them.
    pub effort: u64,
    /// The scheduler gave the run up: nothing was judged.
    pub gave_up: bool,
    /// What happened step by step, where the scheduler asked for it.
    pub trace: Vec<String>,
}

impl Outcome {
    /// The most round trips of one operation, and its verbs, of all clients but one.
    pub(super) fn longest_op_but(&self, client: Option<u32>) -> (u64, u64) {
        let others = (0_u32..).zip(&self.longest_op).filter(|(other, _)| Some(*other) != client);
        others.map(|(_, &took)| took).max().unwrap_or_default()
    }

    /// Whether nothing struck that leaves anything behind. An operation that finds no memory changes nothing, and who is held
    /// goes on.
    fn is_clean(&self) -> bool {
        !self.was_visited
            && self.struck.iter().all(|fault| matches!(fault, Fault::Refuse(..) | Fault::Hold(..)))
    }

    /// The same beside a client that has stopped for ever, if one has.
    pub(super) fn longest_op_beside_stopped(&self) -> Option<(u64, u64)> {
        let stopped = |fault: &Fault| if let Fault::Stop(who, _) = *fault { Some(who) } else { None };
        self.struck.iter().filter_map(stopped).map(|who| self.longest_op_but(Some(who))).max()
    }
}

struct Process<S: Subject> {
    pool: Pool<Sim>,
    index: S::Index,
}

/// Runs a plan on its stage.
pub(super) fn run<S: Subject>(stage: &Stage, plan: &Plan, scheduler: &mut dyn Scheduler) -> Outcome {
    let mut outcome = Outcome::default();
    if let Err(violation) = perform::<S>(stage, plan, scheduler, &mut outcome) {
        outcome.violation = Some(violation);
    }
    outcome.effort = stage.sim.counts().batches;
    outcome
}

fn broken(what: &'static str) -> impl FnOnce(IndexError) -> Violation {
    move |error| Violation::new("error", format!("{what}: {error}"))
}

/// Does something while everything else stands still.
fn alone<T>(
    stage: &Stage,
    what: &'static str,
    future: impl Future<Output = Result<T, IndexError>>,
) -> Result<T, Violation> {
    match stage.sim.run_alone(BATCHES_MAX, future) {
        Some(result) => result.map_err(|error| Violation::new("error", format!("{what}: {error}"))),
        None => Err(Violation::new("endless", format!("{what}: it never ends, though nobody else moves"))),
    }
}

fn perform<S: Subject>(
    stage: &Stage,
    plan: &Plan,
    scheduler: &mut dyn Scheduler,
    outcome: &mut Outcome,
) -> Result<(), Violation> {
    let sim = &stage.sim;
    sim.schedule(false);
    sim.restore(&stage.snapshot);
    outcome.was_visited = plan.clients.iter().flatten().any(|op| matches!(op, Op::Visit(_)));
    let recorder = Rc::new(RefCell::new(Recorder::new(plan.clients.len())));
    let options = S::options(plan.holes);
    let mut processes: Vec<Option<Process<S>>> = Vec::new();
    let mut executor = Executor::new(sim);
    sim.schedule(false);
    for process in 0..plan.processes() {
        let opened = alone(stage, "a process cannot open the pool", async {
            let pool = Pool::open(sim.process(process)).await?;
            // What is freed is allocated next.
            pool.set_magazine_objects_max(1);
            let mut client = pool.client()?;
            let index = S::Index::open(&mut client, options.clone()).await?;
            Ok(Process { pool, index })
        })?;
        processes.push(Some(opened));
    }
    for (at, ops) in plan.clients.iter().enumerate() {
        let process = plan.process_of(at);
        let Some(Process { pool, index }) = &processes[process as usize] else { continue };
        let mut own = pool.client().map_err(|error| broken("no client")(error.into()))?;
        if plan.warm {
            alone(stage, "no memory", warm::<S>(&mut own, plan.nodes))?;
        }
        let cast = Cast {
            number: at as u32,
            process,
            scenario: &stage.scenario,
            holes: plan.holes,
            cancel_at: plan.faults.iter().find_map(|fault| match fault {
                Fault::Cancel(who, when) if *who as usize == at => Some((*when, false)),
                Fault::Drop(who, when) if *who as usize == at => Some((*when, true)),
                _ => None,
            }),
        };
        executor.spawn(
            process,
            client::<S>(cast, Rc::clone(&recorder), pool.clone(), index.clone(), own, ops.clone()),
        );
    }
    for process in 0..plan.processes() {
        let refused = plan.faults.iter().find_map(|fault| match fault {
            Fault::Refuse(who, when) if *who == process => Some(*when),
            _ => None,
        });
        sim.process(process).refuse_allocation(refused);
    }
    if plan.faults.iter().any(|fault| matches!(fault, Fault::Power(..))) {
        sim.watch_flushes();
    }
    sim.schedule(true);
    let mut act = Act {
        stage,
        plan,
        scheduler,
        outcome,
        recorder: &recorder,
        current: None,
        pending: plan.faults.clone(),
        held: Vec::new(),
        healing: Vec::new(),
        power_lost: false,
    };
    let ended = act.play(&mut executor, &mut processes);
    let power_lost = act.power_lost;
    if act.outcome.gave_up {
        drop(executor);
        sim.schedule(false);
        for process in processes.into_iter().flatten() {
            process.pool.abandon();
        }
        return Ok(());
    }
    let finished = finish_paused(stage, plan, &mut act, ended, &mut executor, &mut processes);
    if finished.is_err() {
        // Closing in order would wait for verbs that nobody executes any more.
        sim.schedule(false);
        processes.iter().flatten().for_each(|process| process.pool.abandon());
        return finished;
    }
    let act_pending = std::mem::take(&mut act.pending);
    {
        let awaits = recorder.borrow().awaits.clone();
        outcome.struck.extend(act_pending.into_iter().filter(|fault| match *fault {
            Fault::Cancel(who, when) | Fault::Drop(who, when) => {
                awaits.get(who as usize).is_some_and(|&awaits| awaits > when)
            }
            Fault::Refuse(who, when) => sim.process(who).allocations() > when,
            _ => false,
        }));
    }
    outcome.allocations = (0..plan.processes()).map(|process| sim.process(process).allocations()).collect();
    drop(executor);
    sim.schedule(false);
    if power_lost {
        return after_power_failure::<S>(stage, options);
    }
    let faultless = plan.faults.iter().all(|fault| matches!(fault, Fault::Hold(..)));
    outcome.counts = sim.counts();
    {
        let recorder = recorder.borrow();
        outcome.history.clone_from(&recorder.history);
        outcome.awaits.clone_from(&recorder.awaits);
        outcome.longest_op.clone_from(&recorder.longest_op);
        outcome.lost = recorder.lost;
        let failed = recorder.violation.clone();
        let errors = || recorder.errors.first().map(|error| Violation::new("error", error.clone()));
        if let Some(violation) = failed.or_else(|| errors().filter(|_| faultless)) {
            processes.iter().flatten().for_each(|process| process.pool.abandon());
            return Err(violation);
        }
    }
    let is_exact = S::PROMISES.exact_memory;
    if is_exact && outcome.is_clean() && !outcome.steps.is_multiple_of(CLOSED_ONE_IN) {
        look_around::<S>(stage, plan, &options, outcome, &mut processes)?;
    } else {
        match settle_and_close(stage, &mut processes)? {
            Ok(0) => {}
            Ok(frees) => {
                return Err(Violation::new("audit", format!("{frees} frees named no object in use")));
            }
            Err(error) if faultless => return Err(broken("a process cannot settle and close")(error)),
            Err(_) => {}
        }
        last_look::<S>(stage, plan, &options, outcome)?;
    }
    if let Some(violation) = outcome.violation.take() {
        return Err(violation);
    }
    if let (true, Some(misuse)) = (is_exact, sim.misuse()) {
        return Err(Violation::new("misuse", misuse.to_string()));
    }
    let longest = outcome.longest_op_beside_stopped();
    if let (Some((trips, _)), Some(promised)) = (longest, S::PROMISES.trips_beside_stopped)
        && trips > promised
    {
        let text = format!(
            "{trips} round trips of one operation beside a client that stopped for ever, of {promised}"
        );
        return Err(Violation::new("waits", text));
    }
    let initial = |key: u32| stage.scenario.initial(key as usize);
    verdict::judge(&outcome.history, &initial, &mut outcome.states)
}

/// Lets a client take some memory of each kind that small runs need, so that they are not about block grants.
async fn warm<S: Subject>(client: &mut Client<Sim>, nodes: u8) -> Result<(), IndexError> {
    for node in 0..nodes {
        for &(bytes, kind) in S::WARM {
            let addr = client.alloc(node, bytes, kind).await?;
            client.free_unpublished(addr, bytes, kind);
        }
    }
    Ok(())
}

/// The scheduled part of a run.
struct Act<'r> {
    stage: &'r Stage,
    plan: &'r Plan,
    scheduler: &'r mut dyn Scheduler,
    outcome: &'r mut Outcome,
    recorder: &'r RefCell<Recorder>,
    /// Who moved last.
    current: Option<u32>,
    /// Faults that have not struck.
    pending: Vec<Fault>,
    /// Clients that are held, and the step at which they go on at the latest.
    held: Vec<(u32, u64)>,
    /// Processes cut off, and the step at which they are connected again.
    healing: Vec<(u32, u64)>,
    power_lost: bool,
}

impl Act<'_> {
    /// Lets events happen until nobody who may move has anything left to do.
    fn play<S: Subject>(
        &mut self,
        executor: &mut Executor<'_>,
        processes: &mut [Option<Process<S>>],
    ) -> Result<(), Violation> {
        let mut events: Vec<Event> = Vec::new();
        self.outcome.verbs.resize(processes.len(), 0);
        self.outcome.events.resize(self.plan.clients.len(), 0);
        self.strike(executor, processes);
        loop {
            if self.power_lost {
                return Ok(());
            }
            executor.events(&mut events);
            let runs = |event: &Event| !matches!(event.kind, EventKind::Execute { .. });
            if executor.all_ended() && !events.iter().any(runs) && !self.has_living_verbs(&events) {
                return Ok(());
            }
            self.hold_back(&mut events);
            if events.is_empty() {
                if self.recorder.borrow_mut().end_rests() {
                    continue;
                }
                return Err(Violation::new("stuck", "nothing can happen, but a client has not ended"));
            }
            // Who waits for others or for the clock lets the others go first: else it would spin for ever.
            let goes_on = |event: &Event| Some(event.task) == self.current && event.kind != EventKind::Run;
            let next = self.current.map_or(0, |at| if events.iter().any(goes_on) { at } else { at + 1 });
            let at = events.iter().position(|event| event.task >= next).unwrap_or(0);
            events.rotate_left(at);
            if self.scheduler.is_eager()
                && let Some(event) = events.iter().find(|event| runs(event)).copied()
            {
                self.current = Some(event.task);
                executor.perform(event, 0, WordOrder::Ascending);
                continue;
            }
            let decision = self.scheduler.decide(&events);
            if self.scheduler.gives_up() {
                self.outcome.gave_up = true;
                return Ok(());
            }
            let event = events[usize::from(decision.event).min(events.len() - 1)];
            self.outcome.schedule.0.push(decision);
            self.current = Some(event.task);
            let (words, order) = decision.piece();
            if self.scheduler.traces() {
                self.outcome.trace.push(describe(&event, decision));
            }
            {
                let mut recorder = self.recorder.borrow_mut();
                recorder.tick();
                if let EventKind::Execute { access, .. } = event.kind {
                    let whole = !access.is_long || words >= access.words;
                    let process = self.plan.process_of(event.task as usize) as usize;
                    self.outcome.verbs[process] += u64::from(whole);
                    recorder.verbs[event.task as usize] += u64::from(whole);
                    if self.scheduler.is_eager() {
                        recorder.begin_now(event.task);
                    }
                }
            }
            executor.perform(event, words, order);
            self.outcome.steps += 1;
            self.outcome.events[event.task as usize] += 1;
            self.outcome.met_at.resize(trail_len(), self.outcome.schedule.0.len());
            if let (true, Some(misuse)) = (S::PROMISES.exact_memory, self.stage.sim.misuse()) {
                return Err(Violation::new("misuse", misuse.to_string()));
            }
            self.strike(executor, processes);
            if self.outcome.steps > STEPS_MAX {
                return Err(Violation::new(
                    "endless",
                    format!("clients have not ended after {STEPS_MAX} steps"),
                ));
            }
        }
    }

    /// Takes out the events of clients that are held, unless nobody else can move: then those go on.
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

    fn has_living_verbs(&self, events: &[Event]) -> bool {
        events.iter().any(|event| {
            let process = self.plan.process_of(event.task as usize);
            !self.outcome.struck.iter().any(|fault| matches!(fault, Fault::Kill(who, _) if *who == process))
        })
    }

    /// Lets the faults strike whose moment has come.
    fn strike<S: Subject>(&mut self, executor: &mut Executor<'_>, processes: &mut [Option<Process<S>>]) {
        let step = self.outcome.steps;
        let sim = &self.stage.sim;
        self.healing.retain(|&(process, at)| {
            let healed = at <= step;
            if healed {
                sim.process(process).heal(0);
            }
            !healed
        });
        for fault in std::mem::take(&mut self.pending) {
            let (_, who, when) = fault.parts();
            let count = match fault {
                Fault::Power(..) => self.outcome.verbs.iter().sum(),
                Fault::Hold(..) => self.outcome.events.get(who as usize).copied().unwrap_or(0),
                _ => self.outcome.verbs.get(who as usize).copied().unwrap_or(0),
            };
            if matches!(fault, Fault::Cancel(..) | Fault::Drop(..) | Fault::Refuse(..)) || count < when {
                self.pending.push(fault);
                continue;
            }
            self.outcome.struck.push(fault);
            match fault {
                Fault::Kill(..) => kill(executor, processes, who),
                Fault::Pause(..) | Fault::Stop(..) => {
                    for process in self.recorder.borrow().processes_of(who) {
                        sim.process(process).pause_process(true);
                    }
                    sim.advance_ms(2 * lease_ms(&S::PROMISES));
                }
                Fault::Hold(..) => self.held.push((who, step + HELD_STEPS_MAX)),
                Fault::Cut(..) => {
                    sim.process(who).cut(0);
                    self.healing.push((who, step + CUT_EVENTS));
                }
                Fault::Power(..) => {
                    (0..self.plan.processes()).for_each(|who| kill(executor, processes, who));
                    for node in 0..self.plan.nodes {
                        let scheduler = &mut *self.scheduler;
                        let mut choose = |possibilities| scheduler.pick(possibilities);
                        self.outcome.words_lost += sim.lose_power(node, &mut choose);
                    }
                    self.power_lost = true;
                }
                Fault::Cancel(..) | Fault::Drop(..) | Fault::Refuse(..) => {}
            }
        }
    }
}

/// Ends a process as a crash would, wherever its tasks are.
fn kill<S: Subject>(executor: &mut Executor<'_>, processes: &mut [Option<Process<S>>], who: u32) {
    executor.kill(who);
    if let Some(process) = processes.get_mut(who as usize).and_then(Option::take) {
        process.pool.abandon();
    }
}

/// One step, for a person.
fn describe(event: &Event, decision: Decision) -> String {
    match event.kind {
        EventKind::Run => format!("client {} begins or goes on", event.task),
        EventKind::Complete => format!("client {} gets its answers and goes on", event.task),
        EventKind::Execute { batch, node, verb, access } => {
            let what = if access.writes { "writes" } else { "reads" };
            let piece = match decision.words {
                0 => String::new(),
                words => format!(
                    ", only {words} words of it{}",
                    if decision.descending { ", last first" } else { "" }
                ),
            };
            let addr = access.start * 8;
            let words = access.words;
            format!(
                "client {}: batch {batch} verb {verb} {what} {words} words at mn{node}+{addr:#x}{piece}",
                event.task
            )
        }
    }
}

/// Paused processes go on only when everybody else has ended, and a janitor has had time to take their place.
fn finish_paused<S: Subject>(
    stage: &Stage,
    plan: &Plan,
    act: &mut Act<'_>,
    ended: Result<(), Violation>,
    executor: &mut Executor<'_>,
    processes: &mut [Option<Process<S>>],
) -> Result<(), Violation> {
    ended?;
    let sim = &stage.sim;
    let has = |kind: fn(&Fault) -> bool| -> Vec<u32> {
        act.outcome.struck.iter().filter(|fault| kind(fault)).map(|fault| fault.parts().1).collect()
    };
    let paused = has(|fault| matches!(fault, Fault::Pause(..)));
    let stopped = has(|fault| matches!(fault, Fault::Stop(..)));
    for process in stopped {
        kill(executor, processes, process);
    }
    if paused.is_empty() {
        return Ok(());
    }
    sim.schedule(false);
    let mut others: Vec<Option<Process<S>>> = Vec::new();
    for (at, process) in processes.iter_mut().enumerate() {
        if !paused.contains(&(at as u32)) {
            others.push(process.take());
        }
    }
    // Errors here show again in the last look.
    let _ = settle_and_close(stage, &mut others)?;
    repair::<S>(stage, &sim.process(1000), S::options(plan.holes))?;
    sim.schedule(true);
    for &process in &paused {
        for process in act.recorder.borrow().processes_of(process) {
            sim.process(process).pause_process(false);
        }
    }
    act.play(executor, processes)?;
    for process in paused {
        kill(executor, processes, process);
    }
    Ok(())
}

/// Rounds of upkeep until nothing that the processes unlinked waits to be freed; answers whether they got there.
async fn settle<S: Subject>(living: &[Process<S>], clients: &mut [Client<Sim>]) -> Result<bool, IndexError> {
    // What upkeep of the index retires shows only after the next round.
    let mut quiet = 0;
    for _ in 0..SETTLE_ROUNDS {
        for (process, client) in living.iter().zip(&mut *clients) {
            process.pool.maintain(client).await?;
            process.index.maintain(client).await?;
        }
        let is_quiet = living.iter().all(|process| process.pool.garbage() == 0);
        quiet = if is_quiet { quiet + 1 } else { 0 };
        if quiet == 2 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Frees what can be freed and ends the memberships of those that live; answers how many frees named nothing in use.
fn settle_and_close<S: Subject>(
    stage: &Stage,
    processes: &mut Vec<Option<Process<S>>>,
) -> Result<Result<u64, IndexError>, Violation> {
    let living: Vec<Process<S>> = std::mem::take(processes).into_iter().flatten().collect();
    let settled = stage.sim.run_alone(BATCHES_MAX, async {
        let mut clients =
            living.iter().map(|process| process.pool.client()).collect::<Result<Vec<_>, _>>()?;
        settle(&living, &mut clients).await?;
        let mut bad_frees = 0;
        for (process, client) in living.iter().zip(&mut clients) {
            process.pool.settle(client).await?;
            bad_frees += process.pool.bad_frees();
        }
        drop(clients);
        for Process { pool, index } in living {
            drop(index);
            pool.close().await?;
        }
        Ok(bad_frees)
    });
    settled.ok_or_else(|| Violation::new("endless", "upkeep never ends, though nobody else moves"))
}

/// The judgement of a run in which nobody was struck, by the processes themselves: what they unlinked is free, the hot keys
/// hold what the history says, and not a byte belongs to nobody.
fn look_around<S: Subject>(
    stage: &Stage,
    plan: &Plan,
    options: &OptionsOf<S>,
    outcome: &mut Outcome,
    processes: &mut Vec<Option<Process<S>>>,
) -> Result<(), Violation> {
    let living: Vec<Process<S>> = std::mem::take(processes).into_iter().flatten().collect();
    let looked = alone(stage, "the last look", async {
        let mut clients =
            living.iter().map(|process| process.pool.client()).collect::<Result<Vec<_>, _>>()?;
        if !settle(&living, &mut clients).await? {
            return Ok(Some(Violation::new(
                "limbo",
                "what was unlinked is never freed, though nobody is pinned",
            )));
        }
        // What others freed in a process's blocks waits there until it is fetched.
        for (process, client) in living.iter().zip(&mut clients) {
            process.pool.settle(client).await?;
        }
        // Nothing remembered.
        let first = &living[0];
        let index = S::Index::open(&mut clients[0], options.clone()).await?;
        read_hot_keys::<S>(stage, plan, outcome, first.pool.clone(), index).await?;
        let report = first.index.check(&mut clients[0]).await?;
        if let Some(what) = report.violations.first() {
            return Ok(Some(Violation::new("audit", what.clone())));
        }
        if let Some(violation) = verdict::stale(&report) {
            return Ok(Some(violation));
        }
        for (process, client) in living.iter().zip(&mut clients) {
            if let Some(violation) = verdict::audit(&process.pool, client, &report.reachable).await? {
                return Ok(Some(violation));
            }
        }
        Ok(None)
    });
    for process in &living {
        process.pool.abandon();
    }
    looked?.map_or(Ok(()), Err)
}

/// A fresh process reads every hot key into the history and checks everything. What the dead left is swept first; without
/// them, nothing may be left over.
fn last_look<S: Subject>(
    stage: &Stage,
    plan: &Plan,
    options: &OptionsOf<S>,
    outcome: &mut Outcome,
) -> Result<(), Violation> {
    let sim = stage.sim.process(2000);
    let last = alone(stage, "nobody can open the pool any more", async {
        let pool = Pool::open(sim.clone()).await?;
        let mut own = pool.client()?;
        let index = S::Index::open(&mut own, options.clone()).await?;
        read_hot_keys::<S>(stage, plan, outcome, pool.clone(), index.clone()).await?;
        Ok(Process::<S> { pool, index })
    })?;
    last.pool.abandon();
    if let Some(violation) = outcome.violation.take() {
        return Err(violation);
    }
    let is_clean = S::PROMISES.exact_memory && outcome.is_clean();
    if is_clean {
        let checked = stage.sim.run_alone(BATCHES_MAX, verdict::check::<S>(&last.pool, &last.index));
        checked.unwrap_or_else(|| {
            Err(Violation::new("endless", "a check never ends, though nobody else moves"))
        })?;
    }
    drop(last);
    if is_clean && !outcome.steps.is_multiple_of(SWEPT_ONE_IN) {
        return Ok(());
    }
    repair::<S>(stage, &stage.sim.process(3000), options.clone())
}

/// Reads every hot key into the history, after all that is in it.
async fn read_hot_keys<S: Subject>(
    stage: &Stage,
    plan: &Plan,
    outcome: &mut Outcome,
    pool: Pool<Sim>,
    index: S::Index,
) -> Result<(), IndexError> {
    let recorder = Rc::new(RefCell::new(Recorder::new(plan.clients.len() + 1)));
    recorder.borrow_mut().begin_after(std::mem::take(&mut outcome.history));
    let number = plan.clients.len() as u32;
    let cast =
        Cast { number, process: number, scenario: &stage.scenario, holes: plan.holes, cancel_at: None };
    let mut ops: Vec<Op> = (0..stage.scenario.hot.len()).map(|key| Op::Get(key as u8)).collect();
    ops.push(Op::Scan(false));
    let own = pool.client()?;
    client::<S>(cast, Rc::clone(&recorder), pool, index, own, ops).await;
    let mut recorder = recorder.borrow_mut();
    outcome.history = std::mem::take(&mut recorder.history);
    outcome.lost += recorder.lost;
    let failed =
        recorder.errors.first().map(|error| Violation::new("error", format!("after the run: {error}")));
    outcome.violation = recorder.violation.take().or(failed);
    Ok(())
}

fn repair<S: Subject>(stage: &Stage, sim: &Sim, options: OptionsOf<S>) -> Result<(), Violation> {
    let repaired = stage.sim.run_alone(BATCHES_MAX, verdict::repair::<S>(sim, options));
    repaired.unwrap_or_else(|| {
        Err(Violation::new("endless", "a sweep and a check never end, though nobody else moves"))
    })
}

/// Nothing is promised about what was not flushed, but nobody may panic or hang over it.
fn after_power_failure<S: Subject>(stage: &Stage, options: OptionsOf<S>) -> Result<(), Violation> {
    let sim = stage.sim.process(2000);
    let looked = stage.sim.run_alone(BATCHES_MAX, async {
        let Ok(pool) = Pool::open(sim).await else { return };
        let Ok(mut client) = pool.client() else { return };
        if let Ok(index) = S::Index::open(&mut client, options).await {
            for key in &stage.scenario.hot {
                let _ = index.get(&mut client, key).await;
            }
            let _ = index.check(&mut client).await;
        }
    });
    looked.ok_or_else(|| Violation::new("endless", "after a power failure: a search or a check never ends"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stopped_client_took_itself_is_not_what_others_took_beside_it() {
        let outcome = Outcome {
            longest_op: vec![(5, 9), (2000, 2000), (7, 8)],
            struck: vec![Fault::Cancel(2, 0), Fault::Stop(1, 3)],
            ..Outcome::default()
        };
        assert_eq!(outcome.longest_op_but(None), (2000, 2000));
        assert_eq!(outcome.longest_op_beside_stopped(), Some((7, 8)));
        assert_eq!(Outcome::default().longest_op_beside_stopped(), None);
    }
}
