//! Runs every schedule of a small plan, except that of schedules that differ only in the order of
//! independent steps it runs one.
//!
//! This is a depth-first search over choice sequences, each run from the beginning. *Sleep sets*
//! (Godefroid, 1996) prune it: after an event has been explored at some point, it sleeps in the
//! branches that begin there with another event, until a dependent event happens. Two verbs depend
//! on each other if they touch a common word and one writes it.
//!
//! Here batches complete, and operations begin, as early as they can: a later completion only
//! lengthens an operation's interval, which makes histories easier to explain. An operation counts
//! as begun with its first verb, so the real-time order of two operations can depend on a verb that
//! may end one and a verb that begins the other: those verbs depend on each other too.

use super::finding::Finding;
use super::fixtures::Fixtures;
use super::plan::Plan;
use super::schedule::{Decision, Scheduler};
use darter_sim::{Event, EventKind};

/// What identifies an event along a branch, and the words it touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EventStep {
    task: u32,
    batch: u64,
    verb: u32,
    node: u8,
    start: u64,
    words: u64,
    writes: bool,
    /// The event may end or begin an operation.
    is_border: bool,
    /// The event reaches the medium, for which any operation may have to wait.
    reaches: bool,
}

impl EventStep {
    fn of(event: &Event, tears: bool) -> Self {
        match event.kind {
            EventKind::Execute { batch, node, verb, access } => Self {
                task: event.task,
                batch,
                verb,
                node,
                start: access.start,
                words: if tears && access.is_long { 1 } else { access.words.into() },
                writes: access.writes,
                is_border: access.is_border,
                reaches: false,
            },
            EventKind::Reach { node, word, .. } => Self {
                task: event.task,
                batch: 0,
                verb: 0,
                node,
                start: word.into(),
                words: 0,
                writes: false,
                is_border: false,
                reaches: true,
            },
            EventKind::Run | EventKind::Complete => Self {
                task: event.task,
                batch: 0,
                verb: 0,
                node: 0,
                start: 0,
                words: 0,
                writes: false,
                is_border: true,
                reaches: false,
            },
        }
    }

    fn depends_on(&self, other: &Self) -> bool {
        let touch = self.node == other.node
            && self.start < other.start + other.words
            && other.start < self.start + self.words;
        self.reaches
            || other.reaches
            || self.task == other.task
            || touch && (self.writes || other.writes)
            || self.is_border && other.is_border
    }
}

#[derive(Debug)]
struct Frame {
    /// Events on offer that do not sleep, with their positions.
    choices: Vec<(u16, EventStep)>,
    /// Index of the choice being explored.
    taken: usize,
    sleeping: Vec<EventStep>,
}

/// The search: a [`Scheduler`] for one run after another, with [`Exhaustive::advance`] in between.
#[derive(Debug)]
pub struct Exhaustive {
    frames: Vec<Frame>,
    depth: usize,
    /// Whether long verbs execute word by word.
    tears: bool,
    asleep: bool,
    /// Runs abandoned because all events on offer slept.
    pub pruned: u64,
}

impl Exhaustive {
    /// The state before the first run. With `tears`, every word of a long verb is a separate step.
    pub fn new(tears: bool) -> Self {
        Self { frames: Vec::new(), depth: 0, tears, asleep: false, pruned: 0 }
    }

    /// Moves to the next schedule. Returns `false` if there is none.
    pub fn advance(&mut self) -> bool {
        self.pruned += u64::from(self.asleep);
        self.asleep = false;
        self.frames.truncate(self.depth);
        self.depth = 0;
        while let Some(frame) = self.frames.last_mut() {
            let (_, explored) = frame.choices[frame.taken];
            frame.sleeping.push(explored);
            frame.taken += 1;
            if frame.taken < frame.choices.len() {
                return true;
            }
            self.frames.pop();
        }
        false
    }
}

impl Scheduler for Exhaustive {
    fn decide(&mut self, events: &[Event]) -> Decision {
        let words = u16::from(self.tears);
        if let Some(frame) = self.frames.get(self.depth) {
            self.depth += 1;
            return Decision { event: frame.choices[frame.taken].0, words, descending: false };
        }
        let sleeping: Vec<EventStep> = self.frames.last().map_or(Vec::new(), |last| {
            let (_, taken) = &last.choices[last.taken];
            last.sleeping.iter().filter(|step| !step.depends_on(taken)).copied().collect()
        });
        let steps = (0..).zip(events.iter().map(|event| EventStep::of(event, self.tears)));
        let choices: Vec<_> = steps.filter(|(_, step)| !sleeping.contains(step)).collect();
        let Some(&(event, _)) = choices.first() else {
            self.asleep = true;
            return Decision::default();
        };
        self.frames.push(Frame { choices, taken: 0, sleeping });
        self.depth += 1;
        Decision { event, words, descending: false }
    }

    fn pick(&mut self) -> u16 {
        0
    }

    fn is_eager(&self) -> bool {
        true
    }

    fn gives_up(&self) -> bool {
        self.asleep
    }
}

/// The result of an exhaustive search.
#[derive(Debug, Default)]
pub struct Exhaustion {
    /// Runs, including those abandoned.
    pub runs: u64,
    /// Runs abandoned because they would have repeated others.
    pub pruned: u64,
    /// Whether every schedule was checked.
    pub complete: bool,
    /// The first violation.
    pub finding: Option<Finding>,
}

/// Checks every schedule of a plan, or the first `runs`. Calls `progress` now and then with the
/// number of runs.
pub fn exhaust(plan: &Plan, tears: bool, runs: u64, progress: &dyn Fn(u64)) -> Exhaustion {
    let (mut search, mut fixtures) = (Exhaustive::new(tears), Fixtures::default());
    let mut result = Exhaustion::default();
    while result.runs < runs {
        let outcome = fixtures.run(plan, &mut search);
        result.runs += 1;
        if let Some(violation) = outcome.violation {
            let schedule = outcome.schedule.trimmed();
            let (run, plan) = (result.runs, plan.clone());
            let (small_plan, small_schedule) = (plan.clone(), schedule.clone());
            result.finding = Some(Finding { run, plan, schedule, small_plan, small_schedule, violation });
            break;
        }
        if result.runs.is_multiple_of(64) {
            progress(result.runs);
        }
        if !search.advance() {
            result.complete = true;
            break;
        }
    }
    result.pruned = search.pruned;
    result
}
