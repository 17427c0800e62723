//! One run of an index on simulated groups, which differs from other runs only in how verbs are
//! executed.

use super::super::execution::Process;
use super::super::fault::Fault;
use super::super::fixture::Fixture;
use super::super::group_faults::GroupFaults;
use super::super::last_look::abandon;
use super::super::outcome::{Outcome, Violation};
use super::super::plan::Plan;
use super::super::run::{begin, end, note_struck, spawn_clients};
use super::super::subject::Subject;
use super::driver::Driver;
use super::nodes::Nodes;
use darter_sim::Executor;
use darter_sim::groups::{MS, Random};
use std::collections::BTreeMap;

/// Runs a plan on groups that these faults strike.
pub(in super::super) fn run<S: Subject>(
    fixture: &Fixture,
    plan: &Plan,
    faults: GroupFaults,
    is_traced: bool,
) -> Outcome {
    let mut outcome = Outcome::default();
    if let Err(violation) = perform::<S>(fixture, plan, (faults, is_traced), &mut outcome) {
        outcome.violation = Some(violation);
    }
    outcome.effort = fixture.sim.counts().batches;
    outcome
}

fn perform<S: Subject>(
    fixture: &Fixture,
    plan: &Plan,
    (faults, is_traced): (GroupFaults, bool),
    outcome: &mut Outcome,
) -> Result<(), Violation> {
    let sim = &fixture.sim;
    let (recorder, servers, mut processes) = begin::<S>(fixture, plan, is_traced, outcome)?;
    let mut executor = Executor::new(sim);
    sim.schedule(false);
    spawn_clients::<S>(fixture, plan, &recorder, (&processes, &servers), &mut executor)?;
    let mut nodes = Nodes::found(sim, plan.nodes, faults.seed, is_traced);
    nodes.begin_faults();
    sim.divert(true);
    sim.schedule(true);
    let mut random = Random::new(!faults.seed);
    let of_processes = |fault: &Fault| matches!(fault, Fault::Kill(..) | Fault::Pause(..));
    let (pending, by_count) = plan.faults.iter().copied().partition(|fault| of_processes(fault));
    let mut driver = Driver {
        sim: sim.clone(),
        nodes,
        slowness: (50 + random.below(400), (200 + random.below(1800)) * MS),
        random,
        recorder: &recorder,
        pending,
        struck: Vec::new(),
        until: faults.until_ms * MS,
        moved: BTreeMap::new(),
        dead: Vec::new(),
        is_calm: false,
    };
    let played = driver.play::<S>(&mut executor, &mut processes);
    let Driver { nodes, struck, dead, .. } = driver;
    outcome.met = nodes.counts();
    outcome.steps = nodes.steps;
    outcome.struck = struck;
    outcome.trace = nodes.trace();
    drop(executor);
    sim.divert(false);
    sim.schedule(false);
    if played.is_err() {
        abandon(&processes);
        return played;
    }
    nodes.hand_back(sim);
    forget_the_dead(&dead, &mut processes);
    let recorder = recorder.borrow();
    note_struck(sim, plan, by_count, &recorder, outcome);
    end::<S>(fixture, plan, &recorder, outcome, (processes, servers))
}

/// Abandons processes that were shut out, without closing anything.
fn forget_the_dead<S: Subject>(dead: &[u32], processes: &mut [Option<Process<S>>]) {
    for process in dead {
        if let Some(process) = processes.get_mut(*process as usize).and_then(Option::take) {
            process.pool.abandon();
        }
    }
}
