//! The checks after a run, while nothing else runs: live processes settle and close, or check the
//! pool themselves; a fresh process reads every hot key, checks the index and audits the pool;
//! remains of dead processes are repaired.

use super::clients::client;
use super::execution::Process;
use super::fixture::Fixture;
use super::op::Op;
use super::outcome::{Outcome, Violation};
use super::plan::Plan;
use super::recorder::{Identity, Recorder};
use super::servers::Servers;
use super::subject::{OptionsOf, Subject, misuse_of};
use super::verdict;
use darter_fabric::counted;
use darter_index::{IndexError, OrderedIndex};
use darter_pool::{Client, Pool};
use darter_sim::{Executor, Sim, WordOrder};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Batches after which a future that runs alone counts as hanging.
pub(super) const BATCHES_MAX: u64 = 200_000;
/// Events after which a future that runs together with a server counts as hanging.
pub(super) const EVENTS_MAX: u64 = 2_000_000;
/// Rounds of upkeep after which everything unlinked must be free if no process stands in the way.
const SETTLE_ROUNDS: usize = 24;
/// Of the runs without faults, one in this many is swept for remains of dead processes.
const SWEPT_ONE_IN: u64 = 4;

/// Runs a future while everything else stands still.
pub(super) fn alone<T>(
    fixture: &Fixture,
    what: &'static str,
    future: impl Future<Output = Result<T, IndexError>>,
) -> Result<T, Violation> {
    match fixture.sim.run_alone(BATCHES_MAX, future) {
        Some(result) => result.map_err(|error| Violation::new("error", format!("{what}: {error}"))),
        None => Err(Violation::new("endless", format!("{what}: does not end, although nothing else runs"))),
    }
}
/// Runs a future of a process together with only the server that it calls, alternating between
/// them: a sweep waits for the server, whose procedures must run during the sweep. Returns `None`
/// if it does not end.
fn in_turns<T>(sim: &Sim, process: &Sim, future: impl Future<Output = T>) -> Option<T> {
    let output = Cell::new(None);
    let mut executor = Executor::new(sim);
    let task = executor.spawn(process.number(), async { output.set(Some(future.await)) });
    executor.spawn_medium();
    let (mut events, mut last) = (Vec::new(), 0);
    for _ in 0..EVENTS_MAX {
        executor.events(&mut events);
        if executor.has_ended(task) || events.is_empty() {
            break;
        }
        let event = *events.iter().find(|event| event.task > last).unwrap_or(&events[0]);
        last = event.task;
        executor.perform(event, u32::MAX, WordOrder::Ascending);
    }
    drop(executor);
    sim.schedule(false);
    output.into_inner()
}

/// Does rounds of upkeep until no object that the processes unlinked waits to be freed. Returns
/// whether that was reached.
async fn settle<S: Subject>(
    living: &[Process<S>],
    clients: &mut [Client<Sim>],
    servers: Option<&Servers>,
) -> Result<bool, IndexError> {
    // Objects that the index's upkeep retires are counted only after the next round.
    let mut quiet = 0;
    for _ in 0..SETTLE_ROUNDS {
        for (process, client) in living.iter().zip(&mut *clients) {
            process.pool.maintain(client).await?;
            process.index.maintain(client).await?;
        }
        let is_quiet = living.iter().all(|process| process.pool.garbage() == 0)
            && servers.is_none_or(|servers| servers.garbage() == 0);
        quiet = if is_quiet { quiet + 1 } else { 0 };
        if quiet == 2 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The same; then fetches the objects that others freed in a process's blocks, which wait there
/// until then.
async fn settle_all<S: Subject>(
    living: &[Process<S>],
    clients: &mut [Client<Sim>],
    servers: &Servers,
) -> Result<bool, IndexError> {
    let is_free = settle(living, clients, Some(servers)).await?;
    for (process, client) in living.iter().zip(clients) {
        process.pool.settle(client).await?;
    }
    Ok(is_free)
}

/// Frees as much as possible and ends the memberships of live processes. Returns the number of
/// frees that named no object in use.
pub(super) fn settle_and_close<S: Subject>(
    fixture: &Fixture,
    processes: &mut Vec<Option<Process<S>>>,
) -> Result<Result<u64, IndexError>, Violation> {
    let living: Vec<Process<S>> = std::mem::take(processes).into_iter().flatten().collect();
    let settled = fixture.sim.run_alone(BATCHES_MAX, async {
        let mut clients =
            living.iter().map(|process| process.pool.client()).collect::<Result<Vec<_>, _>>()?;
        settle(&living, &mut clients, None).await?;
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
    settled.ok_or_else(|| Violation::new("endless", "upkeep does not end, although nothing else runs"))
}

/// Checks a run without faults from its own processes: the objects they unlinked are free, the hot
/// keys match the history, and every byte has an owner.
pub(super) fn look_around<S: Subject>(
    fixture: &Fixture,
    plan: &Plan,
    options: &OptionsOf<S>,
    outcome: &mut Outcome,
    (processes, servers): (&mut Vec<Option<Process<S>>>, &Servers),
) -> Result<(), Violation> {
    let living: Vec<Process<S>> = std::mem::take(processes).into_iter().flatten().collect();
    let looked = alone(fixture, "the final check", async {
        let mut clients =
            living.iter().map(|process| process.pool.client()).collect::<Result<Vec<_>, _>>()?;
        let is_free = settle_all(&living, &mut clients, servers).await?;
        // A fresh index without cached state.
        let first = &living[0];
        let index = S::Index::open(&mut clients[0], options.clone()).await?;
        read_hot_keys::<S>(fixture, plan, outcome, first.pool.clone(), index).await?;
        // Reads may unlink, too.
        if !is_free || !settle_all(&living, &mut clients, servers).await? {
            return Ok(Some(Violation::new(
                "limbo",
                "unlinked objects are never freed, although no client is pinned",
            )));
        }
        let report = first.index.check(&mut clients[0]).await?;
        if let Some(what) = report.violations.first() {
            return Ok(Some(Violation::new("audit", what.clone())));
        }
        let is_settled = outcome.has_room();
        if let Some(violation) =
            verdict::stale(&report).or_else(|| verdict::unsettled(&report).filter(|_| is_settled))
        {
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

/// A fresh process reads every hot key into the history and checks everything. If processes died,
/// their remains are swept first; if not, nothing may be left over.
pub(super) fn last_look<S: Subject>(
    fixture: &Fixture,
    plan: &Plan,
    options: &OptionsOf<S>,
    outcome: &mut Outcome,
    servers: &mut Servers,
) -> Result<(), Violation> {
    let sim = fixture.sim.process(2000);
    let last = alone(fixture, "cannot open the pool after the run", async {
        let pool = Pool::open(sim.clone()).await?;
        let mut own = pool.client()?;
        let index = S::Index::open(&mut own, options.clone()).await?;
        read_hot_keys::<S>(fixture, plan, outcome, pool.clone(), index.clone()).await?;
        let last = Process::<S> { pool, index };
        if S::HAS_SERVER {
            let last = std::slice::from_ref(&last);
            settle(last, std::slice::from_mut(&mut own), Some(&*servers)).await?;
        }
        Ok(last)
    })?;
    last.pool.abandon();
    if let Some(violation) = outcome.violation.take() {
        return Err(violation);
    }
    let is_clean = S::PROMISES.exact_memory && outcome.is_clean();
    if is_clean {
        let checked = verdict::check::<S>(&last.pool, &last.index, outcome.has_room());
        let checked = fixture.sim.run_alone(BATCHES_MAX, checked);
        checked.unwrap_or_else(|| {
            Err(Violation::new("endless", "a check does not end, although nothing else runs"))
        })?;
    }
    drop(last);
    if is_clean && !outcome.steps.is_multiple_of(SWEPT_ONE_IN) {
        return Ok(());
    }
    repair::<S>(fixture, &fixture.sim.process(3000), options.clone())
}

/// Reads every hot key into the history, after the operations in it.
async fn read_hot_keys<S: Subject>(
    fixture: &Fixture,
    plan: &Plan,
    outcome: &mut Outcome,
    pool: Pool<Sim>,
    index: S::Index,
) -> Result<(), IndexError> {
    let recorder = Rc::new(RefCell::new(Recorder::new(plan.clients.len() + 1)));
    let (history, transactions) = (&mut outcome.history, &mut outcome.transactions);
    recorder.borrow_mut().begin_after(std::mem::take(history), std::mem::take(transactions));
    let number = plan.clients.len() as u32;
    let scenario = &fixture.scenario;
    let identity = Identity { number, process: number, scenario, cancel_at: None, preserves: false };
    let keys = 0..fixture.scenario.hot.len() as u8;
    let mut ops: Vec<Op> = keys.clone().map(Op::Get).collect();
    ops.push(Op::Scan(false));
    if outcome.has_lost_power() {
        // No other process has met the remains: locks, and nodes in the middle of a change.
        ops.extend(keys.clone().map(Op::Put));
        ops.extend(keys.clone().map(Op::Delete));
        ops.extend(keys.map(Op::Insert));
        ops.push(Op::MultiGet);
    }
    let own = pool.client()?;
    client::<S>(identity, Rc::clone(&recorder), pool, index, own, ops).await;
    let mut recorder = recorder.borrow_mut();
    outcome.history = std::mem::take(&mut recorder.history);
    outcome.transactions = std::mem::take(&mut recorder.transactions);
    outcome.lost += recorder.lost;
    let failed =
        recorder.errors.first().map(|error| Violation::new("error", format!("after the run: {error}")));
    outcome.violation = recorder.violation.take().or(failed);
    Ok(())
}

pub(super) fn repair<S: Subject>(
    fixture: &Fixture,
    sim: &Sim,
    options: OptionsOf<S>,
) -> Result<(), Violation> {
    let repair = verdict::repair::<S>(sim, options);
    let repaired = if S::HAS_SERVER {
        in_turns(&fixture.sim, sim, repair)
    } else {
        fixture.sim.run_alone(BATCHES_MAX, repair)
    };
    repaired.unwrap_or_else(|| {
        Err(Violation::new("endless", "a sweep and a check do not end, although nothing else runs"))
    })
}

/// Writes that were not flushed may be lost, but the index must not panic or hang.
pub(super) fn after_power_failure<S: Subject>(
    fixture: &Fixture,
    options: OptionsOf<S>,
) -> Result<(), Violation> {
    let sim = fixture.sim.process(2000);
    let looked = fixture.sim.run_alone(BATCHES_MAX, async {
        let Ok(pool) = Pool::open(sim).await else { return };
        let Ok(mut client) = pool.client() else { return };
        if let Ok(index) = S::Index::open(&mut client, options).await {
            for key in &fixture.scenario.hot {
                let _ = index.get(&mut client, key).await;
            }
            let _ = index.check(&mut client).await;
        }
    });
    looked.ok_or_else(|| Violation::new("endless", "a search or a check does not end after a power failure"))
}

/// Ends processes without closing them.
pub(super) fn abandon<S: Subject>(processes: &[Option<Process<S>>]) {
    processes.iter().flatten().for_each(|process| process.pool.abandon());
}

/// Copies the clients' record into the outcome. Returns the violation they found, including errors
/// if no fault struck that explains them.
pub(super) fn take_record(recorder: &Recorder, faultless: bool, outcome: &mut Outcome) -> Option<Violation> {
    outcome.history.clone_from(&recorder.history);
    outcome.transactions.clone_from(&recorder.transactions);
    outcome.awaits.clone_from(&recorder.awaits);
    outcome.longest_op.clone_from(&recorder.longest_op);
    outcome.lost = recorder.lost;
    let errors = || recorder.errors.first().map(|error| Violation::new("error", error.clone()));
    recorder.violation.clone().or_else(|| errors().filter(|_| faultless))
}

/// Checks a finished run: uses of memory, waits, and the history.
pub(super) fn judge<S: Subject>(
    fixture: &Fixture,
    plan: &Plan,
    outcome: &mut Outcome,
) -> Result<(), Violation> {
    if let Some(violation) = outcome.violation.take() {
        return Err(violation);
    }
    if let Some(misuse) = misuse_of(&S::PROMISES, &fixture.sim) {
        return Err(misuse);
    }
    let longest = outcome.longest_op_while_stopped();
    if let (Some((trips, _)), Some(promised)) = (longest, S::PROMISES.trips_while_stopped)
        && trips > promised
    {
        let text = format!(
            "{} of one operation while another client had stopped for ever; at most {promised} are promised",
            counted(trips, "round trip")
        );
        return Err(Violation::new("waits", text));
    }
    let initial = |key: u32| fixture.scenario.initial(key as usize);
    verdict::judge(outcome, &initial)?;
    // Sweeps abort transactions, also those of drains; a bulk load that fails is not in the history,
    // and a commit that finds no room has no effect either.
    let may_abort = |op: &Op| matches!(op, Op::Sweep | Op::Drain | Op::Load(true));
    if plan.clients.iter().flatten().any(may_abort) || !outcome.has_room() {
        return Ok(());
    }
    verdict::conflict_without_cause(outcome).map_or(Ok(()), Err)
}
