//! One run of a plan under a schedule, and its outcome.
//!
//! Clients run as tasks of the simulation until all have ended or stopped; faults strike when they
//! are due. Then the clock stands still for the checks: live processes settle and close, the others
//! are fenced and their blocks adopted, and a fresh process reads every hot key, checks the index
//! and audits the pool. Anything wrong is a [`Violation`].

use super::clients::client;
use super::execution::{Execution, Process, kill};
use super::fault::Fault;
use super::fixture::Fixture;
use super::last_look::{
    abandon, after_power_failure, alone, judge, last_look, look_around, repair, settle_and_close, take_record,
};
use super::losses;
use super::outcome::{Outcome, Violation};
use super::plan::Plan;
use super::recorder::{Identity, Recorder};
use super::schedule::{Decision, Scheduler};
use super::servers::Servers;
use super::subject::{OptionsOf, Subject};
use super::torn::TornReads;
use darter_fabric::counted;
use darter_index::{IndexError, OrderedIndex};
use darter_pool::{Client, Pool};
use darter_sim::{Executor, Medium, Sim};
use std::cell::RefCell;
use std::rc::Rc;

/// Of the runs without faults, one in this many closes its processes and is checked from others.
const CLOSED_ONE_IN: u64 = 8;

/// Runs a plan on its fixture.
pub(super) fn run<S: Subject>(fixture: &Fixture, plan: &Plan, scheduler: &mut dyn Scheduler) -> Outcome {
    let mut outcome = Outcome::default();
    if let Err(violation) = perform::<S>(fixture, plan, scheduler, &mut outcome) {
        outcome.violation = Some(violation);
    }
    outcome.effort = fixture.sim.counts().batches;
    // A replay finds them after the decisions.
    outcome.choices = fixture.sim.choices();
    let decision = |&(back, _): &(usize, usize)| Decision { words: back as u16, ..Decision::default() };
    outcome.schedule.0.extend(outcome.choices.iter().map(decision));
    outcome
}
fn broken(what: &'static str) -> impl FnOnce(IndexError) -> Violation {
    move |error| Violation::new("error", format!("{what}: {error}"))
}
/// Opens the plan's processes on the fixture's pool, while nothing is scheduled.
fn open_processes<S: Subject>(
    fixture: &Fixture,
    plan: &Plan,
    options: &OptionsOf<S>,
) -> Result<Vec<Option<Process<S>>>, Violation> {
    let open = |process| {
        alone(fixture, "a process cannot open the pool", async {
            let pool = Pool::open(fixture.sim.process(process)).await?;
            // Freed memory is allocated next.
            pool.set_magazine_objects_max(1);
            let mut client = pool.client()?;
            let index = S::Index::open(&mut client, options.clone()).await?;
            Ok(Some(Process { pool, index }))
        })
    };
    (0..plan.processes()).map(open).collect()
}

/// Starts the server, and lets it train its models.
fn begin_to_serve<S: Subject>(fixture: &Fixture, processes: &[Option<Process<S>>]) -> Result<(), Violation> {
    let Some(Process { pool, index }) = processes.iter().flatten().next() else { return Ok(()) };
    alone(fixture, "the server fails to start", async {
        let mut client = pool.client()?;
        index.maintain(&mut client).await
    })
}

/// Spawns the plan's clients and registers the faults that strike by count with the simulation.
pub(super) fn spawn_clients<'f, S: Subject>(
    fixture: &'f Fixture,
    plan: &'f Plan,
    recorder: &Rc<RefCell<Recorder>>,
    (processes, servers): (&[Option<Process<S>>], &Servers),
    executor: &mut Executor<'f>,
) -> Result<(), Violation> {
    for (at, ops) in plan.clients.iter().enumerate() {
        let process = plan.process_of(at);
        let Some(Process { pool, index }) = &processes[process as usize] else { continue };
        let mut own = pool.client().map_err(|error| broken("no client")(error.into()))?;
        if plan.warm {
            alone(fixture, "no memory", warm::<S>(&mut own, plan.nodes))?;
        }
        let identity = Identity {
            number: at as u32,
            process,
            scenario: &fixture.scenario,
            cancel_at: plan.faults.iter().find_map(|fault| match fault {
                Fault::Cancel(who, when) if *who as usize == at => Some((*when, false)),
                Fault::Drop(who, when) if *who as usize == at => Some((*when, true)),
                _ => None,
            }),
            preserves: plan.has_snapshots(),
        };
        let (recorder, pool, index) = (Rc::clone(recorder), pool.clone(), index.clone());
        executor.spawn(process, client::<S>(identity, recorder, pool, index, own, ops.clone()));
    }
    for process in (0..plan.processes()).chain(servers.process()) {
        let refused = plan.faults.iter().find_map(|fault| match fault {
            Fault::Refuse(who, when) if *who == process => Some(*when),
            _ => None,
        });
        fixture.sim.process(process).refuse_allocation(refused);
    }
    let loses_power = plan.faults.iter().any(|fault| matches!(fault, Fault::Power(..)));
    if loses_power || plan.medium != Medium::Never {
        fixture.sim.set_medium(plan.medium);
    }
    Ok(())
}

/// The start of a run: the recorder, the servers, and the processes of the clients.
type Beginning<S> = (Rc<RefCell<Recorder>>, Servers, Vec<Option<Process<S>>>);

/// Restores the fixture's memory and opens the plan's processes, while nothing is scheduled. Keeps a journal
/// of the memory if the run is traced.
pub(super) fn begin<S: Subject>(
    fixture: &Fixture,
    plan: &Plan,
    traces: bool,
    outcome: &mut Outcome,
) -> Result<Beginning<S>, Violation> {
    let sim = &fixture.sim;
    sim.schedule(false);
    sim.restore(&fixture.snapshot);
    outcome.has_remains = plan.has_remains();
    if traces {
        sim.keep_journal();
    }
    sim.relax(plan.verbs);
    (0..plan.processes()).for_each(|process| sim.process(process).reach_by(plan.sides.of(process)));
    let recorder = Rc::new(RefCell::new(Recorder::of(plan)));
    let servers = Servers::begin::<S>(sim);
    let processes = open_processes::<S>(fixture, plan, &S::options())?;
    Ok((recorder, servers, processes))
}

fn perform<S: Subject>(
    fixture: &Fixture,
    plan: &Plan,
    scheduler: &mut dyn Scheduler,
    outcome: &mut Outcome,
) -> Result<(), Violation> {
    let sim = &fixture.sim;
    let (recorder, mut servers, mut processes) = begin::<S>(fixture, plan, scheduler.traces(), outcome)?;
    if S::HAS_SERVER {
        begin_to_serve(fixture, &processes)?;
    }
    let mut executor = Executor::new(sim);
    sim.schedule(false);
    spawn_clients::<S>(fixture, plan, &recorder, (&processes, &servers), &mut executor)?;
    let medium = executor.spawn_medium();
    sim.schedule(true);
    let mut execution = Execution {
        fixture,
        plan,
        scheduler,
        outcome,
        recorder: &recorder,
        servers: &mut servers,
        current: None,
        pending: losses::without_givers(&plan.faults),
        held: Vec::new(),
        healing: Vec::new(),
        lapsing: Vec::new(),
        power_lost: false,
        torn: TornReads::default(),
        medium,
    };
    let ended = execution.play(&mut executor, &mut processes);
    execution.servers.heal();
    let power_lost = execution.power_lost;
    if execution.outcome.gave_up {
        drop(executor);
        sim.schedule(false);
        abandon(&processes);
        return Ok(());
    }
    let finished = finish_paused(fixture, &mut execution, ended, &mut executor, &mut processes);
    if finished.is_err() {
        // Closing in order would wait for verbs that are no longer executed.
        sim.schedule(false);
        abandon(&processes);
        return finished;
    }
    let pending = std::mem::take(&mut execution.pending);
    note_struck(sim, plan, pending, &recorder.borrow(), outcome);
    drop(executor);
    sim.schedule(false);
    // A server that holds sweeps back has to end, as clients' processes do.
    if servers.is_shut_out() || servers.holds_sweeps() || power_lost {
        servers.replace(None, false);
    }
    if power_lost && plan.medium == Medium::Never {
        return after_power_failure::<S>(fixture, S::options());
    }
    let recorder = recorder.borrow();
    if !outcome.lost_nodes().is_empty() {
        return losses::end::<S>(fixture, plan, &recorder, outcome, processes);
    }
    end::<S>(fixture, plan, &recorder, outcome, (processes, servers))
}

/// The end of a run whose clients have ended: checks that their record and the contents of the pool
/// agree.
pub(super) fn end<S: Subject>(
    fixture: &Fixture,
    plan: &Plan,
    recorder: &Recorder,
    outcome: &mut Outcome,
    (mut processes, mut servers): (Vec<Option<Process<S>>>, Servers),
) -> Result<(), Violation> {
    let options = S::options();
    // While a sweep, a snapshot or a drain waits for all members, the lease of a process that gets no
    // turn may pass. Other waits must end before.
    let waits = plan.clients.iter().flatten().any(|op| op.waits_for_members());
    let has_lapsed = waits && fixture.sim.has_lapsed();
    let faultless = !has_lapsed
        && plan.faults.iter().chain(&outcome.struck).all(|fault| matches!(fault, Fault::Hold(..)));
    outcome.counts = fixture.sim.counts();
    if let Some(violation) = take_record(recorder, faultless, outcome) {
        abandon(&processes);
        return Err(violation);
    }
    let is_exact = S::PROMISES.exact_memory;
    if is_exact && !has_lapsed && outcome.is_clean() && !outcome.steps.is_multiple_of(CLOSED_ONE_IN) {
        look_around::<S>(fixture, plan, &options, outcome, (&mut processes, &servers))?;
    } else {
        match settle_and_close(fixture, &mut processes)? {
            Ok(0) => {}
            Ok(frees) => {
                return Err(Violation::new(
                    "audit",
                    format!("{} named no object in use", counted(frees, "free")),
                ));
            }
            Err(error) if faultless => return Err(broken("a process cannot settle and close")(error)),
            Err(_) => {}
        }
        last_look::<S>(fixture, plan, &options, outcome, &mut servers)?;
    }
    judge::<S>(fixture, plan, outcome)
}

/// Adds those faults to the outcome that strike by count and have struck.
pub(super) fn note_struck(
    sim: &Sim,
    plan: &Plan,
    pending: Vec<Fault>,
    recorder: &Recorder,
    outcome: &mut Outcome,
) {
    outcome.struck.extend(pending.into_iter().filter(|fault| match *fault {
        Fault::Cancel(who, when) | Fault::Drop(who, when) => {
            recorder.awaits.get(who as usize).is_some_and(|&awaits| awaits > when)
        }
        Fault::Refuse(who, when) => sim.process(who).allocations() > when,
        _ => false,
    }));
    outcome.allocations = (0..plan.processes()).map(|process| sim.process(process).allocations()).collect();
}

/// Lets a client take some memory of each kind that small runs need, so that they do not exercise
/// block grants.
async fn warm<S: Subject>(client: &mut Client<Sim>, nodes: u8) -> Result<(), IndexError> {
    for node in 0..nodes {
        for &(bytes, kind) in S::WARM {
            let addr = client.alloc(node, bytes, kind).await?;
            client.free_unpublished(addr, bytes, kind);
        }
    }
    Ok(())
}

/// Continues paused processes after all others have ended and a janitor has had time to take over
/// from them.
fn finish_paused<S: Subject>(
    fixture: &Fixture,
    execution: &mut Execution<'_>,
    ended: Result<(), Violation>,
    executor: &mut Executor<'_>,
    processes: &mut [Option<Process<S>>],
) -> Result<(), Violation> {
    ended?;
    if execution.power_lost {
        return Ok(());
    }
    let sim = &fixture.sim;
    let has = |kind: fn(&Fault) -> bool| -> Vec<u32> {
        execution.outcome.struck.iter().filter(|fault| kind(fault)).map(|fault| fault.parts().1).collect()
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
    if execution.servers.is_shut_out() {
        execution.servers.replace(Some(executor), false);
    }
    // An error here shows again in the final check.
    let _ = settle_and_close(fixture, &mut others)?;
    repair::<S>(fixture, &sim.process(1000), S::options())?;
    sim.schedule(true);
    for &process in &paused {
        for process in execution.recorder.borrow().processes_of(process) {
            sim.process(process).pause_process(false);
        }
    }
    execution.play(executor, processes)?;
    for process in paused {
        kill(executor, processes, process);
    }
    Ok(())
}
