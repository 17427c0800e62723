//! One run of an index on a simulated group: as any other run, but for who executes the verbs.

use super::super::execution::Process;
use super::super::fault::Fault;
use super::super::fixture::Fixture;
use super::super::outcome::{Outcome, Violation};
use super::super::plan::Plan;
use super::super::run::{abandon, begin, end, note_struck, spawn_clients};
use super::super::subject::Subject;
use super::driver::{Blow, Driver};
use super::outcomes::Outcomes;
use darter_fabric::Fabric;
use darter_fabric::group::Options;
use darter_fabric::group::bed::{MS, Random, Setup, World};
use darter_fabric::sim::{Executor, Sim};
use std::collections::BTreeMap;

/// Parts in which a region is copied to a learner.
const COPIES: u64 = 16;
/// Of a thousand runs, in so many a process dies; in as many others one that lives is shut out.
const BLOWS: u64 = 250;

/// Runs a plan in the world of a seed.
pub(in super::super) fn run<S: Subject>(
    fixture: &Fixture,
    plan: &Plan,
    seed: u64,
    is_traced: bool,
) -> Outcome {
    let mut outcome = Outcome::default();
    if let Err(violation) = perform::<S>(fixture, plan, (seed, is_traced), &mut outcome) {
        outcome.violation = Some(violation);
    }
    outcome
}

fn perform<S: Subject>(
    fixture: &Fixture,
    plan: &Plan,
    (seed, is_traced): (u64, bool),
    outcome: &mut Outcome,
) -> Result<(), Violation> {
    let sim = &fixture.sim;
    let (recorder, servers, mut processes) = begin::<S>(fixture, plan, outcome)?;
    let mut executor = Executor::new(sim);
    sim.schedule(false);
    spawn_clients::<S>(fixture, plan, &recorder, (&processes, &servers), &mut executor)?;
    let world = found(sim, seed, is_traced);
    sim.divert(true);
    sim.schedule(true);
    let mut driver = Driver {
        sim: sim.clone(),
        world,
        recorder: &recorder,
        sessions: BTreeMap::new(),
        blow: None,
        slowness: (0, 0),
        moved: BTreeMap::new(),
        dead: Vec::new(),
        is_calm: false,
    };
    draw(&mut driver, plan, outcome);
    let played = driver.play::<S>(&mut executor, &mut processes);
    outcome.met = std::mem::take(&mut driver.world.counts);
    *outcome.met.entry("frames").or_default() += driver.world.users.frames;
    if is_traced {
        outcome.trace = driver.world.trace().lines().map(str::to_owned).collect();
    }
    let content = driver.world.content();
    drop(executor);
    sim.divert(false);
    sim.schedule(false);
    if played.is_err() {
        abandon(&processes);
        return played;
    }
    sim.set_content(0, &content);
    forget_the_dead(&driver.dead, &mut processes);
    let recorder = recorder.borrow();
    note_struck(sim, plan, plan.faults.clone(), &recorder, outcome);
    end::<S>(fixture, plan, &recorder, outcome, (processes, servers))
}

/// A group whose region is what the simulation's node has.
fn found(sim: &Sim, seed: u64, is_traced: bool) -> World<Outcomes> {
    let bytes = sim.node_bytes(0);
    let options = Options {
        copy_bytes: (bytes / COPIES) as usize,
        copies_under_way: 2,
        channel_frames_max: 64,
        ..Options::default()
    };
    let setup = Setup { options, bytes: bytes as usize, content: Some(sim.content(0)) };
    World::new(seed, Outcomes::default(), setup, is_traced)
}

/// Draws what happens to the clients, and begins with the faults.
fn draw(driver: &mut Driver<'_>, plan: &Plan, outcome: &mut Outcome) {
    let random: &mut Random = &mut driver.world.random;
    driver.slowness = (50 + random.below(400), (200 + random.below(1800)) * MS);
    let survives = |name| plan.subject.promises.survives.contains(&name);
    let (kind, who) = (random.below(1000), random.below(plan.processes().into()) as u32);
    let when = random.below(8000) * MS;
    if kind < BLOWS && survives("kill") {
        driver.blow = Some((Blow::Death, who, when));
        outcome.struck.push(Fault::Kill(who, 0));
    } else if (BLOWS..2 * BLOWS).contains(&kind) && survives("pause") {
        driver.blow = Some((Blow::ShutOut, who, when));
        outcome.struck.push(Fault::Pause(who, 0));
    }
    // Which look is taken at the end depends on it.
    outcome.steps = random.below(1 << 20);
    driver.world.begin_faults();
}

/// Processes that were shut out end nothing in order.
fn forget_the_dead<S: Subject>(dead: &[u32], processes: &mut [Option<Process<S>>]) {
    for process in dead {
        if let Some(process) = processes.get_mut(*process as usize).and_then(Option::take) {
            process.pool.abandon();
        }
    }
}
