//! The schedulers of runs: at random, with a client held or slow, by priorities, or from a recorded
//! schedule.

use super::fault::Fault;
use super::op::Op;
use super::plan::Plan;
use super::schedule::{Decision, Schedule, Scheduler};
use crate::dice::Dice;
use darter_pool::HEAD_BYTES;
use darter_sim::{Event, EventKind, Medium, TaskId};

/// Events of an average operation, for spreading a schedule's few changes over the whole run.
pub(super) const EVENTS_OF_AN_OPERATION: u64 = 10;
/// Writing verbs of an average operation.
const WRITES_OF_AN_OPERATION: u64 = 3;
/// Verbs in the pool's head of an average operation.
const HEADS_OF_AN_OPERATION: u64 = 3;
/// A client is held before one of its first 2ⁿ long READs, with n up to this.
const READS_DOUBLINGS: u64 = 5;
/// One write in this many lets a waiting READ first execute up to the words that are about to be
/// written.
const READ_BEFORE_ONE_IN: u64 = 2;
/// One hold in this many is before a READ, in scenarios that tear READs.
const TEARS_ONE_IN: u64 = 2;
/// The last kind of hold: before a READ, of a scan if there is one.
const BEFORE_SCAN_READ: u64 = 9;
/// Steps of a hold that lasts until no other client can move.
const STEPS_WITHOUT_END: u64 = 1 << 40;
/// One long verb in this many executes in pieces.
const TORN_ONE_IN: u64 = 8;
/// The same for verbs that reach the medium.
const REACHING_TORN_ONE_IN: u64 = 2;

fn piece(dice: &mut Dice, event: &Event) -> (u16, bool) {
    match event.kind {
        EventKind::Execute { access, .. } if access.is_long && dice.one_in(TORN_ONE_IN) => {
            let words = 1 + dice.below(u64::from(access.words.min(1024)));
            (words as u16, dice.one_in(2))
        }
        EventKind::Reach { pieces, .. } if pieces > 1 && dice.one_in(REACHING_TORN_ONE_IN) => {
            (1 + dice.below(pieces.min(1024).into()) as u16, dice.one_in(2))
        }
        _ => (0, false),
    }
}

/// If another verb is about to write words of a READ on offer, the part of the READ up to and
/// including those words: the number of words, and whether the last come first.
fn part_before(read: &Event, write: &Event) -> Option<(u16, bool)> {
    let EventKind::Execute { node: written, access: write_access, .. } = write.kind else { return None };
    let EventKind::Execute { batch, node, access, .. } = read.kind else { return None };
    let (start, end) = (access.start, access.start + u64::from(access.words));
    let (first, last) = (write_access.start, write_access.start + u64::from(write_access.words) - 1);
    let meets = node == written && first < end && start <= last;
    if !(meets && write_access.writes && is_long_read(read) && read.task != write.task) {
        return None;
    }
    // All parts of a READ execute in one order.
    let descending = batch.is_multiple_of(2);
    let words = if descending { end - last.min(end - 1) } else { first.max(start) - start + 1 };
    Some((words.try_into().unwrap_or(u16::MAX), descending))
}

/// Chooses uniformly among tasks with an event, and then among the task's events.
pub struct Random {
    dice: Dice,
    tasks: Vec<TaskId>,
}

impl Random {
    /// The schedule of a seed.
    pub fn new(seed: u64) -> Self {
        Self { dice: Dice::new(seed), tasks: Vec::new() }
    }

    /// Chooses among the events that are not held back, or among all if none is left. Also returns
    /// the chosen event.
    fn decide_among(&mut self, events: &[Event], free: &[Event]) -> (Decision, Event) {
        let choice = if free.is_empty() { events } else { free };
        let mut decision = self.decide(choice);
        let event = choice[usize::from(decision.event)];
        decision.event = events.iter().position(|other| *other == event).unwrap_or(0) as u16;
        (decision, event)
    }
}

impl Scheduler for Random {
    fn decide(&mut self, events: &[Event]) -> Decision {
        self.tasks.clear();
        for event in events {
            if !self.tasks.contains(&event.task) {
                self.tasks.push(event.task);
            }
        }
        let task = self.tasks[self.dice.below(self.tasks.len() as u64) as usize];
        let of_task = events.iter().filter(|event| event.task == task).count() as u64;
        let nth = self.dice.below(of_task) as usize;
        let of_task = events.iter().enumerate().filter(|(_, event)| event.task == task);
        let (at, event) = of_task.into_iter().nth(nth).unwrap_or((0, &events[0]));
        let (words, descending) = piece(&mut self.dice, event);
        Decision { event: at as u16, words, descending }
    }

    fn pick(&mut self) -> u16 {
        self.dice.below(1 << 16) as u16
    }
}

/// Uniform, except that one or two tasks are each held at one of their events while the others
/// continue for long, to find bugs that need one client to be late compared with everything that
/// others do. Or one task is slow throughout, so that one of its operations overlaps many of the
/// others' and several epochs. Most holds are just before or just after a verb that writes, since
/// only there others can see the difference. READs, above all those of late clients, are torn by
/// others' writes.
pub struct Late {
    random: Random,
    /// The progress of each task.
    performed: Vec<Performed>,
    /// Whether each task is scanning.
    scanning: Vec<bool>,
    /// The batches of each task that have been on offer, in order.
    batches: Vec<Vec<u64>>,
    holds: Vec<HeldTask>,
    /// A task that moves only at steps that are multiples of a number.
    slow: Option<(TaskId, u64)>,
    step: u64,
    /// Steps since the last verb or reply.
    idle: u64,
    offered: Vec<Event>,
}

/// Steps of waiting tasks after which held tasks move: the others wait for them.
const IDLE_MAX: u64 = 200;

/// The events a task has performed so far.
#[derive(Clone, Copy, Debug, Default)]
struct Performed {
    events: u64,
    /// Verbs that write.
    writes: u64,
    /// Verbs that read or write words of the pool's head, through which processes coordinate.
    heads: u64,
    /// Parts of READs of several words.
    reads: u64,
    /// The same within scans.
    scan_reads: u64,
}

/// The point at which a task is held.
#[derive(Clone, Copy, Debug)]
enum HoldAt {
    /// After this many of its events.
    Event(u64),
    /// Before it executes one more verb that writes than this many.
    BeforeWrite(u64),
    /// After it has executed one more verb that writes than this many.
    AfterWrite(u64),
    /// Before it executes one more verb in the pool's head than this many.
    BeforeHead(u64),
    /// After it has executed one more verb in the pool's head than this many.
    AfterHead(u64),
    /// Before it executes one more READ of several words than this many.
    BeforeRead(u64),
    /// The same for READs within scans.
    BeforeScanRead(u64),
    /// Holds not the task but the verbs of one of its batches, counted from 0: those of a cancelled
    /// operation take effect late.
    Batch(u64),
}

/// A task that is held at one of its events.
struct HeldTask {
    task: TaskId,
    at: HoldAt,
    /// Steps for which it is held, and the step at which it may go on.
    steps: u64,
    until: Option<u64>,
}

/// Whether an event is a verb that reads or writes words of the pool's head.
fn is_in_head(event: &Event) -> bool {
    matches!(event.kind, EventKind::Execute { node: 0, access, .. } if access.start * 8 < HEAD_BYTES)
}

/// Whether an event is a READ, or the rest of one, that can execute in part.
fn is_long_read(event: &Event) -> bool {
    matches!(event.kind, EventKind::Execute { access, .. } if !access.writes && access.is_long)
}

impl HeldTask {
    /// Whether the task may not perform this event, which is its own, now.
    fn holds(
        &mut self,
        (event, is_scan_read): (&Event, bool),
        performed: Performed,
        batches: &[u64],
        step: u64,
    ) -> bool {
        let Performed { events, writes, heads, reads, scan_reads } = performed;
        if let HoldAt::Batch(nth) = self.at {
            let EventKind::Execute { batch, .. } = event.kind else { return false };
            let is_it = batches.iter().position(|&it| it == batch) == Some(nth as usize);
            return is_it && step < *self.until.get_or_insert(step + self.steps);
        }
        let is_write = matches!(event.kind, EventKind::Execute { access, .. } if access.writes);
        let is_present = match self.at {
            HoldAt::Event(after) => events >= after,
            HoldAt::BeforeWrite(after) => writes > after || writes == after && is_write,
            HoldAt::AfterWrite(after) => writes > after,
            HoldAt::BeforeHead(after) => heads > after || heads == after && is_in_head(event),
            HoldAt::AfterHead(after) => heads > after,
            HoldAt::BeforeRead(after) => reads > after || reads == after && is_long_read(event),
            HoldAt::BeforeScanRead(after) => scan_reads > after || scan_reads == after && is_scan_read,
            HoldAt::Batch(_) => false,
        };
        self.until.is_some_and(|until| step < until)
            || self.until.is_none() && is_present && {
                self.until = Some(step + self.steps);
                true
            }
    }
}

impl Late {
    /// A schedule in which some of a plan's clients are held within their first `operations`
    /// operations.
    pub fn new(seed: u64, plan: &Plan, operations: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x1a7e);
        // The medium is late like other tasks, if clients wait for it.
        let tasks = plan.clients.len() as u64 + u64::from(plan.medium != Medium::Never);
        let holds = 1 + dice.below(2);
        let late_verbs = plan.faults.iter().find_map(|fault| match *fault {
            Fault::Cancel(task, at) | Fault::Drop(task, at) => {
                Some(HeldTask { task, at: HoldAt::Batch(at), steps: 2048, until: None })
            }
            _ => None,
        });
        // A client that waits for one held that long does no upkeep and is eventually shut out.
        let waits = plan.subject.promises.trips_while_stopped.is_none();
        let is_slow = !waits && dice.one_in(3);
        let slow = is_slow.then(|| (dice.below(tasks.max(1)) as TaskId, 2 << dice.below(4)));
        let scans = |at: &TaskId| plan.clients[*at as usize].iter().any(|op| op.scans().is_some());
        let scanning: Vec<TaskId> = (0..plan.clients.len() as TaskId).filter(scans).collect();
        let holds = (u64::from(slow.is_some())..holds)
            .map(|_| {
                let within = 1 + dice.below(operations.max(1));
                let mut task = dice.below(tasks.max(1)) as TaskId;
                let tears = plan.scenario.tears && dice.one_in(TEARS_ONE_IN);
                let kind = if tears { BEFORE_SCAN_READ } else { dice.below(1 + BEFORE_SCAN_READ) };
                let at = match kind {
                    0 => HoldAt::Event(dice.below(within * EVENTS_OF_AN_OPERATION)),
                    1..3 => HoldAt::BeforeWrite(dice.below(within * WRITES_OF_AN_OPERATION)),
                    3..5 => HoldAt::AfterWrite(dice.below(within * WRITES_OF_AN_OPERATION)),
                    5 => HoldAt::BeforeHead(dice.below(within * HEADS_OF_AN_OPERATION)),
                    6..8 => HoldAt::AfterHead(dice.below(within * HEADS_OF_AN_OPERATION)),
                    _ => {
                        let within = 1 << dice.below(1 + READS_DOUBLINGS);
                        let read = dice.below(within);
                        if kind < BEFORE_SCAN_READ || scanning.is_empty() {
                            HoldAt::BeforeRead(read)
                        } else {
                            task = scanning[dice.below(scanning.len() as u64) as usize];
                            HoldAt::BeforeScanRead(read)
                        }
                    }
                };
                // Some are held until no other client can move: their knowledge is as old as
                // possible.
                let steps = if !waits && dice.one_in(3) { STEPS_WITHOUT_END } else { 32 << dice.below(7) };
                HeldTask { task, at, steps, until: None }
            })
            .chain(late_verbs)
            .collect();
        Self {
            random: Random::new(seed),
            performed: Vec::new(),
            scanning: Vec::new(),
            batches: Vec::new(),
            holds,
            slow,
            step: 0,
            idle: 0,
            offered: Vec::new(),
        }
    }

    /// Whether a task is scanning.
    fn is_scanning(&self, task: TaskId) -> bool {
        self.scanning.get(task as usize).copied().unwrap_or(false)
    }

    /// If an event writes words that another task is about to read, sometimes returns the part of
    /// the READ before the write, and the READ.
    fn read_before(&mut self, events: &[Event], write: &Event) -> Option<(Decision, Event)> {
        let read = |(at, read)| part_before(read, write).map(|part| (at, part, *read));
        let (at, (words, descending), read) = events.iter().enumerate().find_map(read)?;
        let is_first = self.random.dice.one_in(READ_BEFORE_ONE_IN);
        is_first.then_some((Decision { event: at as u16, words, descending }, read))
    }

    fn is_held(&mut self, event: &Event) -> bool {
        let performed = self.performed.get(event.task as usize).copied().unwrap_or_default();
        let step = self.step;
        let task = event.task as usize;
        if self.batches.len() <= task {
            self.batches.resize_with(task + 1, Vec::new);
        }
        if let EventKind::Execute { batch, .. } = event.kind
            && self.batches[task].last().is_none_or(|&last| last < batch)
        {
            self.batches[task].push(batch);
        }
        let is_scan_read = is_long_read(event) && self.is_scanning(event.task);
        let batches = &self.batches[task][..];
        let mut is_held =
            self.slow.is_some_and(|(slow, every)| slow == event.task && !step.is_multiple_of(every));
        for hold in self.holds.iter_mut().filter(|hold| hold.task == event.task) {
            // Checks every hold, since each has its own start.
            is_held |= hold.holds((event, is_scan_read), performed, batches, step);
        }
        is_held
    }
}

impl Scheduler for Late {
    fn decide(&mut self, events: &[Event]) -> Decision {
        self.step += 1;
        let mut offered = std::mem::take(&mut self.offered);
        offered.clear();
        for event in events {
            if !self.is_held(event) || self.idle > IDLE_MAX {
                offered.push(*event);
            }
        }
        let chosen = self.random.decide_among(events, &offered);
        let (decision, event) = self.read_before(events, &chosen.1).unwrap_or(chosen);
        self.idle = if event.kind == EventKind::Run { self.idle + 1 } else { 0 };
        let task = event.task as usize;
        if self.performed.len() <= task {
            self.performed.resize(task + 1, Performed::default());
        }
        let is_write = matches!(event.kind, EventKind::Execute { access, .. } if access.writes);
        let is_scanning = self.is_scanning(event.task);
        let performed = &mut self.performed[task];
        performed.events += 1;
        performed.writes += u64::from(is_write);
        performed.heads += u64::from(is_in_head(&event));
        performed.reads += u64::from(is_long_read(&event));
        performed.scan_reads += u64::from(is_long_read(&event) && is_scanning);
        self.offered = offered;
        decision
    }

    fn observe(&mut self, operations: &[Option<Op>]) {
        let is_scan = |operation: &Option<Op>| operation.and_then(Op::scans).is_some();
        self.scanning.clear();
        self.scanning.extend(operations.iter().map(is_scan));
    }

    fn pick(&mut self) -> u16 {
        self.random.pick()
    }
}

/// Uniform, except that the first task runs alone at first and then moves at few steps only: all
/// that others do happens within a few of its events.
pub(super) struct Paced {
    random: Random,
    /// Events for which the first task runs alone.
    alone: u64,
    /// After those the first task moves only at steps that are multiples of this.
    every: u64,
    step: u64,
    offered: Vec<Event>,
}

impl Paced {
    /// The first task runs alone for `alone` events, and then moves at every `every`-th step.
    pub(super) fn new(seed: u64, alone: u64, every: u64) -> Self {
        Self { random: Random::new(seed), alone, every, step: 0, offered: Vec::new() }
    }
}

impl Scheduler for Paced {
    fn decide(&mut self, events: &[Event]) -> Decision {
        self.step += 1;
        let is_alone = self.alone > 0;
        let is_turn = self.step.is_multiple_of(self.every);
        let may_move = |event: &Event| {
            let is_first = event.task == 0;
            if is_alone { is_first } else { !is_first || is_turn }
        };
        self.offered.clear();
        self.offered.extend(events.iter().copied().filter(may_move));
        self.alone = self.alone.saturating_sub(1);
        self.random.decide_among(events, &self.offered).0
    }

    fn pick(&mut self) -> u16 {
        self.random.pick()
    }
}

/// Another scheduler, with given choices at power failures; the newest after they
/// run out.
pub(super) struct Choosing<'s> {
    rest: Box<dyn Scheduler>,
    choices: std::slice::Iter<'s, u16>,
}

impl<'s> Choosing<'s> {
    /// Each call to `pick` takes the next of the choices.
    pub(super) fn new(rest: Box<dyn Scheduler>, choices: &'s [u16]) -> Self {
        Self { rest, choices: choices.iter() }
    }
}

impl Scheduler for Choosing<'_> {
    fn decide(&mut self, events: &[Event]) -> Decision {
        self.rest.decide(events)
    }

    fn pick(&mut self) -> u16 {
        self.choices.next().copied().unwrap_or(0)
    }

    fn observe(&mut self, operations: &[Option<Op>]) {
        self.rest.observe(operations);
    }
}

/// The decisions of a schedule, then those of another scheduler. A decision that is not on offer
/// counts as zero.
pub(super) struct After<'s> {
    prefix: std::slice::Iter<'s, Decision>,
    rest: Box<dyn Scheduler>,
}

impl<'s> After<'s> {
    /// Makes the decisions of `prefix`, then those of `rest`.
    pub(super) fn new(prefix: &'s [Decision], rest: Box<dyn Scheduler>) -> Self {
        Self { prefix: prefix.iter(), rest }
    }
}

impl Scheduler for After<'_> {
    fn decide(&mut self, events: &[Event]) -> Decision {
        match self.prefix.next() {
            Some(&decision) if usize::from(decision.event) < events.len() => decision,
            Some(_) => Decision::default(),
            None => self.rest.decide(events),
        }
    }

    fn pick(&mut self) -> u16 {
        self.rest.pick()
    }

    fn observe(&mut self, operations: &[Option<Op>]) {
        self.rest.observe(operations);
    }
}

/// Probabilistic concurrency testing (Burckhardt et al., ASPLOS 2010): the task of highest priority
/// always moves, and at a few random steps the moving task drops to the lowest priority. So does a
/// task that waits; otherwise a client would spin for ever on a lock whose holder it keeps from
/// running. Finds a bug that needs `d` orderings with probability at least 1/(n k^(d-1)).
pub struct Pct {
    dice: Dice,
    /// The rank of each task; the lowest moves first.
    ranks: Vec<u64>,
    /// Whether each task has begun.
    begun: Vec<bool>,
    changes: Vec<u64>,
    step: u64,
    last_rank: u64,
}

impl Pct {
    /// A schedule with `depth - 1` changes of rank within the first `steps` steps.
    pub fn new(seed: u64, depth: u32, steps: u64) -> Self {
        let mut dice = Dice::new(seed);
        let changes = (1..depth).map(|_| dice.below(steps.max(1))).collect();
        Self { dice, ranks: Vec::new(), begun: Vec::new(), changes, step: 0, last_rank: 1 << 32 }
    }

    fn rank(&mut self, task: TaskId) -> u64 {
        while self.ranks.len() <= task as usize {
            let rank = self.dice.below(1 << 32);
            self.ranks.push(rank);
            self.begun.push(false);
        }
        self.ranks[task as usize]
    }

    /// The task with the lowest rank.
    fn first(&mut self, events: &[Event]) -> TaskId {
        events.iter().map(|event| event.task).min_by_key(|&task| self.rank(task)).unwrap_or(0)
    }

    fn fall(&mut self, task: TaskId) {
        self.last_rank += 1;
        self.ranks[task as usize] = self.last_rank;
    }
}

impl Scheduler for Pct {
    fn decide(&mut self, events: &[Event]) -> Decision {
        let first = self.first(events);
        if self.changes.contains(&self.step) {
            self.fall(first);
        }
        self.step += 1;
        let waits = |begun: &[bool], task: TaskId| {
            let runs = |event: &Event| event.task == task && event.kind == EventKind::Run;
            begun[task as usize] && events.iter().any(runs)
        };
        let active = events.iter().map(|event| event.task).filter(|&task| !waits(&self.begun, task));
        let active = active.min_by_key(|&task| self.ranks[task as usize]);
        let task = active.unwrap_or_else(|| self.first(events));
        if active.is_none() {
            self.fall(task);
        }
        self.begun[task as usize] = true;
        let of_task = events.iter().filter(|event| event.task == task).count() as u64;
        let nth = self.dice.below(of_task) as usize;
        let at = events.iter().enumerate().filter(|(_, event)| event.task == task).nth(nth);
        let (at, event) = at.unwrap_or((0, &events[0]));
        let (words, descending) = piece(&mut self.dice, event);
        Decision { event: at as u16, words, descending }
    }

    fn pick(&mut self) -> u16 {
        self.dice.below(1 << 16) as u16
    }
}

/// Repeats a schedule, then continues with zeros. A decision that is not on offer counts as zero.
pub struct Replay<'s> {
    rest: std::slice::Iter<'s, Decision>,
    traces: bool,
}

impl<'s> Replay<'s> {
    /// Replays a schedule from the beginning.
    pub fn new(schedule: &'s Schedule) -> Self {
        Self { rest: schedule.0.iter(), traces: false }
    }

    /// Replays a schedule and describes each step.
    pub fn traced(schedule: &'s Schedule) -> Self {
        Self { rest: schedule.0.iter(), traces: true }
    }
}

impl Scheduler for Replay<'_> {
    fn decide(&mut self, events: &[Event]) -> Decision {
        let decision = self.rest.next().copied().unwrap_or_default();
        if usize::from(decision.event) < events.len() { decision } else { Decision::default() }
    }

    fn pick(&mut self) -> u16 {
        // The `words` of a decision, so that a shrunk schedule keeps the newest value, 0.
        self.rest.next().copied().unwrap_or_default().words
    }

    fn traces(&self) -> bool {
        self.traces
    }
}
