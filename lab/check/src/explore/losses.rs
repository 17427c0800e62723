//! Memory nodes that are lost for good: in which runs they are, and the end of such a run.
//!
//! Clients go on without the node; operations that need it end with a typed error, and count as
//! pending. When all clients have ended, their processes leave the pool, as far as they can, or die.
//! Then a process reads everything that can be read, and what it has read must fit the history;
//! which keys cannot be read, it must report as gaps. Then the lost nodes are given up, by a new
//! process or by one of the clients'. It may die anywhere, and another process goes on. Afterwards
//! the index has the pairs that could be read, all other keys are gone that were in a gap, the pool
//! is whole, and takes all keys again (`docs/pool.md`, "Lost nodes").

use super::execution::Process;
use super::fault::{Fault, GIVER};
use super::fixture::Fixture;
use super::last_look::{BATCHES_MAX, EVENTS_MAX, abandon, alone, judge, repair, take_record};
use super::outcome::{Left, Outcome, Violation};
use super::plan::Plan;
use super::recorder::Recorder;
use super::scans::lie;
use super::scenario::Scenario;
use super::schedulers::EVENTS_OF_AN_OPERATION;
use super::subject::{Subject, misuse_of};
use crate::dice::Dice;
use crate::history::{Action, Operation, Outcome as Told};
use darter_index::give_up::{GivenUp, give_up};
use darter_index::{Condition, CutOff, Gap, IndexError, LostNodes, OrderedIndex, ScanRange};
use darter_pool::{Client, Pool};
use darter_sim::{EventKind, Executor, Medium, Sim, WordOrder};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

/// One run in this many loses a memory node; more, if no other fault is wanted.
const RUNS_ONE_IN: u64 = 8;
const RUNS_ONE_IN_ALONE: u64 = 2;
/// Verbs within which a process that gives nodes up dies, if it does.
const GIVER_VERBS: u64 = 1200;
/// The simulated process that reads what is left, and the first that gives nodes up without having
/// worked before.
const READER: u32 = 3900;
const FIRST_GIVER: u32 = 4000;
/// Of the runs that lose a node, one in this many has processes that leave in order, and one in the
/// second number a process that goes on and gives the node up.
const ORDERLY_ONE_IN: u64 = 2;
const HEIR_ONE_IN: u64 = 3;
/// Encodes the values that are put at the end.
const LAST_VALUE: u64 = 7;

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Lets some of the runs lose a memory node, or two, if the index can be read around lost nodes. All
/// other plans stay as they are.
pub(super) fn mix_in(plan: &mut Plan, is_alone: bool, dice: &mut Dice) {
    let survives = plan.subject.promises.survives.contains(&"lose");
    let one_in = if is_alone { RUNS_ONE_IN_ALONE } else { RUNS_ONE_IN };
    if !survives || plan.groups.is_some() || plan.medium != Medium::Never || !dice.one_in(one_in) {
        return;
    }
    // Nodes are given up by a process that reaches all others, when no other process has the pool open.
    // A refusal that has not come yet would meet the puts after that.
    plan.faults.retain(|fault| {
        matches!(fault, Fault::Kill(..) | Fault::Cancel(..) | Fault::Drop(..) | Fault::Hold(..))
    });
    for ops in &mut plan.clients {
        ops.retain(|op| !op.waits_for_members());
    }
    plan.nodes = 2 + dice.below(2) as u8;
    let operations = plan.clients.iter().map(Vec::len).sum::<usize>() as u64;
    let node = 1 + dice.below(u64::from(plan.nodes) - 1) as u32;
    let most = (EVENTS_OF_AN_OPERATION * operations / 2).max(12);
    plan.faults.push(Fault::Lose(node, early(dice, most)));
    if plan.nodes == 3 && dice.one_in(4) {
        plan.faults.push(Fault::Lose(3 - node, early(dice, most)));
    }
    if dice.one_in(2) {
        for _ in 0..=dice.below(2) {
            plan.faults.push(Fault::Kill(GIVER, early(dice, GIVER_VERBS)));
        }
    }
}

/// Returns a moment, mostly an early one, of `most`.
fn early(dice: &mut Dice, most: u64) -> u64 {
    let most = 1 + dice.below(most);
    dice.below(most)
}

/// The faults that strike while clients work.
pub(super) fn without_givers(faults: &[Fault]) -> Vec<Fault> {
    faults.iter().filter(|fault| fault.parts().1 != GIVER).copied().collect()
}

/// A pool handle of a process that dies when this is dropped, unless it is taken out.
struct Mortal(Option<Pool<Sim>>);

impl Drop for Mortal {
    fn drop(&mut self) {
        if let Some(pool) = &self.0 {
            pool.abandon();
        }
    }
}

/// A process that has the pool open.
struct Member<S: Subject> {
    mortal: Mortal,
    pool: Pool<Sim>,
    index: S::Index,
}

impl<S: Subject> Member<S> {
    fn of(Process { pool, index }: Process<S>) -> Self {
        Self { mortal: Mortal(Some(pool.clone())), pool, index }
    }

    async fn open(sim: Sim) -> Result<Self, IndexError> {
        let pool = Pool::open(sim).await?;
        let mortal = Mortal(Some(pool.clone()));
        let mut client = pool.client()?;
        let index = S::Index::open(&mut client, S::options()).await?;
        drop(client);
        Ok(Self { mortal, pool, index })
    }
}

/// A process that gives nodes up.
struct Giver<S: Subject> {
    number: u32,
    /// The process, if it has worked before.
    heir: Option<Member<S>>,
}

impl<S: Subject> Giver<S> {
    async fn begin(self, sim: &Sim) -> Result<Member<S>, IndexError> {
        match self.heir {
            Some(heir) => Ok(heir),
            None => Member::open(sim.process(self.number)).await,
        }
    }
}

/// What can be read without the lost nodes.
#[derive(Default)]
struct Salvaged {
    pairs: Pairs,
    gaps: Vec<Gap>,
}

/// What processes that give nodes up have reported.
#[derive(Default)]
struct Reported {
    gaps: Vec<Gap>,
    reverted: Vec<Vec<u8>>,
}

fn covers(gap: &Gap, key: &[u8]) -> bool {
    *gap.from <= *key && gap.until.as_ref().is_none_or(|until| key < &until[..])
}

fn is_covered(gaps: &[Gap], key: &[u8]) -> bool {
    gaps.iter().any(|gap| covers(gap, key))
}

/// The end of a run in which memory nodes were lost, whose clients have ended.
pub(super) fn end<S: Subject>(
    fixture: &Fixture,
    plan: &Plan,
    recorder: &Recorder,
    outcome: &mut Outcome,
    mut processes: Vec<Option<Process<S>>>,
) -> Result<(), Violation> {
    let sim = &fixture.sim;
    outcome.counts = sim.counts();
    if let Some(violation) = take_record(recorder, false, outcome) {
        abandon(&processes);
        return Err(violation);
    }
    let nodes = outcome.lost_nodes();
    let lost: LostNodes = nodes.iter().copied().collect();
    let mut giver = Giver::<S> { number: FIRST_GIVER, heir: None };
    if outcome.steps.is_multiple_of(HEIR_ONE_IN) {
        let mut living = (0..).zip(&mut processes);
        if let Some((number, heir)) = living.find_map(|(number, process)| Some((number, process.take()?))) {
            giver = Giver { number, heir: Some(Member::of(heir)) };
        }
    }
    leave(fixture, outcome.steps.is_multiple_of(ORDERLY_ONE_IN), processes)?;
    for process in (0..plan.processes()).filter(|process| *process != giver.number) {
        sim.process(process).kill();
    }
    let salvaged = alone(fixture, "what is left cannot be read", async {
        let reader = Member::<S>::open(sim.process(READER)).await?;
        salvage::<S>(&reader.index, &mut reader.pool.client()?, lost).await
    });
    sim.process(READER).kill();
    let salvaged = salvaged?;
    judge_salvaged(&fixture.scenario, plan, &salvaged, outcome)?;
    judge::<S>(fixture, plan, outcome)?;
    let reported = Mutex::new(Reported::default());
    let mut deaths = 0;
    let kills = plan.faults.iter().filter(|fault| matches!(fault, Fault::Kill(GIVER, _)));
    for (next, &fault) in (FIRST_GIVER + 1..).zip(kills) {
        if die_giving_up(fixture, giver, &nodes, fault.parts().2, &reported)? {
            outcome.struck.push(fault);
            deaths += 1;
        }
        giver = Giver { number: next, heir: None };
    }
    let wrong = alone(fixture, "lost memory nodes cannot be given up", async {
        let Member { mut mortal, pool, index } = giver.begin(sim).await?;
        let mut client = pool.client()?;
        let given_up = give_all_up::<S>(&index, &mut client, &nodes, &reported).await?;
        let reported = reported.into_inner().unwrap_or_else(PoisonError::into_inner);
        let checks = Checks { scenario: &fixture.scenario, salvaged: &salvaged, reported: &reported, deaths };
        let mut wrong =
            (!given_up.is_complete).then(|| "it ends without an error, and is not complete".to_owned());
        if wrong.is_none() {
            let checked = checks.contents::<S>(&index, &mut client, outcome).await;
            wrong = checked.unwrap_or_else(|error| Some(format!("the keys cannot be read: {error}")));
        }
        if wrong.is_none() {
            wrong = is_whole::<S>(&fixture.scenario, &index, &mut client, &nodes).await?;
        }
        drop((client, index, pool));
        if let (None, Some(pool)) = (&wrong, mortal.0.take()) {
            pool.close().await?;
        }
        Ok(wrong)
    })?;
    if let Some(text) = wrong {
        return Err(Violation::new("give up", text));
    }
    repair::<S>(fixture, &sim.process(3000), S::options())?;
    if sim.counts().to_retired > 0 {
        return Err(Violation::new("give up", "a memory node that was given up is contacted"));
    }
    misuse_of(&S::PROMISES, sim).map_or(Ok(()), Err)
}

/// Ends processes: in order, as far as that is possible without the lost nodes, or not.
fn leave<S: Subject>(
    fixture: &Fixture,
    is_orderly: bool,
    processes: Vec<Option<Process<S>>>,
) -> Result<(), Violation> {
    if !is_orderly {
        abandon(&processes);
        return Ok(());
    }
    let left = fixture.sim.run_alone(BATCHES_MAX, async {
        for process in processes.into_iter().flatten() {
            let Member { mut mortal, pool, index } = Member::of(process);
            // All of this fails if it needs a lost node.
            if let Ok(mut client) = pool.client() {
                let _ = pool.maintain(&mut client).await;
                let _ = index.maintain(&mut client).await;
            }
            drop((index, pool));
            if let Some(pool) = mortal.0.take() {
                let _ = pool.close().await;
            }
        }
    });
    left.ok_or_else(|| Violation::new("endless", "a process does not leave, although nothing else runs"))
}

/// Reads everything that can be read.
async fn salvage<S: Subject>(
    index: &S::Index,
    client: &mut Client<Sim>,
    lost: LostNodes,
) -> Result<Salvaged, IndexError> {
    let (mut all, mut next) = (Salvaged::default(), Some(Vec::new()));
    while let Some(from) = next {
        let step = index.salvage(client, lost, &from).await?;
        if step.next.as_ref().is_some_and(|next| *next <= from) {
            return Err(lie("a step of a salvage that made no progress"));
        }
        for (key, value) in step.pairs {
            if key < from || all.pairs.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(lie("a salvage that is out of order or returned a key twice"));
            }
            all.pairs.insert(key, value);
        }
        all.gaps.extend(step.gaps);
        next = step.next;
    }
    Ok(all)
}

/// Checks that the filler is there or in a gap, and that no gap contains a key that can be read. Adds a
/// search of each hot key that is in no gap to the history.
fn judge_salvaged(
    scenario: &Scenario,
    plan: &Plan,
    Salvaged { pairs, gaps }: &Salvaged,
    outcome: &mut Outcome,
) -> Result<(), Violation> {
    let wrong = |key: &[u8], what: &str| {
        Err(Violation::new("salvage", format!("{} {what}; the gaps are {gaps:?}", key.escape_ascii())))
    };
    for (key, value) in pairs {
        let is_filler = scenario.filler.binary_search(key).is_ok();
        if !is_filler && !scenario.hot.contains(key) || is_filler && *value != scenario.value(0) {
            return wrong(key, "was never put with this value");
        }
        if gaps.iter().any(|gap| gap.key() == Some(&key[..]) || gap.keys.is_none() && covers(gap, key)) {
            return wrong(key, "can be read, and is in a gap");
        }
    }
    if let Some(key) = scenario.filler.iter().find(|key| !pairs.contains_key(*key) && !is_covered(gaps, key))
    {
        return wrong(key, "was present throughout, and is neither read nor in a gap");
    }
    let client = plan.clients.len() as u32;
    let mut recorder = Recorder::new(plan.clients.len() + 1);
    recorder.begin_after(std::mem::take(&mut outcome.history), std::mem::take(&mut outcome.transactions));
    for (key, bytes) in (0..).zip(&scenario.hot) {
        let found = pairs.get(bytes).map(|value| scenario.number(value));
        if found.is_some() || !is_covered(gaps, bytes) {
            let (invoked, returned) = (recorder.tick(), recorder.tick());
            let returned = Some((returned, Told::Found(found)));
            recorder.history.push(Operation { client, key, action: Action::Get, invoked, returned });
        }
    }
    outcome.history = recorder.history;
    outcome.transactions = recorder.transactions;
    Ok(())
}

/// Gives nodes up in a process that dies after some of its verbs. Returns whether it died before it had
/// given them up.
fn die_giving_up<S: Subject>(
    fixture: &Fixture,
    giver: Giver<S>,
    nodes: &[u8],
    dies_after: u64,
    reported: &Mutex<Reported>,
) -> Result<bool, Violation> {
    let (sim, process) = (&fixture.sim, giver.number);
    let ended = Cell::new(None);
    let mut executor = Executor::new(sim);
    let task = executor.spawn(process, async {
        let given_up = async {
            let member = giver.begin(sim).await?;
            give_all_up::<S>(&member.index, &mut member.pool.client()?, nodes, reported).await
        };
        ended.set(Some(given_up.await));
    });
    let (mut events, mut verbs, mut left) = (Vec::new(), 0, EVENTS_MAX);
    while !executor.has_ended(task) && verbs < dies_after && left > 0 {
        executor.events(&mut events);
        // There is one task, so a client that does not see a reply yet gains nothing.
        let Some(&event) = events.first() else { break };
        verbs += u64::from(matches!(event.kind, EventKind::Execute { .. }));
        executor.perform(event, u32::MAX, WordOrder::Ascending);
        left -= 1;
    }
    let is_stuck = !executor.has_ended(task) && verbs < dies_after;
    executor.kill(process);
    drop(executor);
    sim.schedule(false);
    sim.process(process).kill();
    match ended.into_inner() {
        None if is_stuck => Err(Violation::new("endless", "the lost memory nodes are never given up")),
        None => Ok(true),
        Some(Ok(_)) => Ok(false),
        Some(Err(error)) => {
            Err(Violation::new("error", format!("lost memory nodes cannot be given up: {error}")))
        }
    }
}

/// Gives nodes up, and adds what is cut off to a report.
async fn give_all_up<S: Subject>(
    index: &S::Index,
    client: &mut Client<Sim>,
    nodes: &[u8],
    reported: &Mutex<Reported>,
) -> Result<GivenUp, IndexError> {
    let mut watch = |cut: &CutOff| {
        let mut reported = reported.lock().unwrap_or_else(PoisonError::into_inner);
        reported.gaps.extend(cut.gaps.iter().cloned());
        reported.reverted.extend(cut.reverted.iter().cloned());
        ControlFlow::Continue(())
    };
    give_up(index, client, nodes, &mut watch).await
}

/// The checks of the contents after nodes were given up.
struct Checks<'r> {
    scenario: &'r Scenario,
    salvaged: &'r Salvaged,
    reported: &'r Reported,
    /// Number of processes that died while they gave the nodes up. What they had cut off last, they have
    /// not reported.
    deaths: u32,
}

impl Checks<'_> {
    /// Checks that the index has exactly the pairs that could be read, except keys of which the outcome of
    /// a transaction is unknown. Returns what is wrong.
    async fn contents<S: Subject>(
        &self,
        index: &S::Index,
        client: &mut Client<Sim>,
        outcome: &mut Outcome,
    ) -> Result<Option<String>, IndexError> {
        let Self { scenario, salvaged, reported, deaths } = *self;
        let pairs: Pairs = index.scan(client, &ScanRange::all(), usize::MAX).await?.into_iter().collect();
        let wrong = |key: &[u8], what: &str| Ok(Some(format!("{} {what}", key.escape_ascii())));
        let named: BTreeSet<&[u8]> = salvaged.gaps.iter().filter_map(Gap::key).collect();
        if let Some(key) = reported.reverted.iter().find(|key| !named.contains(&key[..])) {
            return wrong(key, "has a value from before a transaction, although it could be read before");
        }
        if let Some((key, _)) = salvaged.pairs.iter().find(|(key, value)| pairs.get(*key) != Some(*value)) {
            return wrong(key, "could be read, and has not the same value after its node was given up");
        }
        for (key, value) in pairs.iter().filter(|(key, _)| !salvaged.pairs.contains_key(*key)) {
            let hot = scenario.hot.iter().position(|hot| hot == key).filter(|_| named.contains(&key[..]));
            if !hot.is_some_and(|at| was_written(scenario, outcome, at, scenario.number(value))) {
                return wrong(key, "could not be read, and is there after its node was given up");
            }
            if deaths == 0 && !reported.reverted.contains(key) {
                return wrong(key, "has a value from before a transaction, and was not reported");
            }
        }
        for key in &scenario.hot {
            if index.get(client, key).await?.as_ref() != pairs.get(key) {
                return wrong(key, "has another value by a search than in a scan");
            }
        }
        let all = || scenario.filler.iter().chain(&scenario.hot);
        let gone: Vec<_> =
            all().filter(|key| !pairs.contains_key(*key) && is_covered(&salvaged.gaps, key)).collect();
        let is_told = |key: &Vec<u8>| is_covered(&reported.gaps, key) || reported.reverted.contains(key);
        if let (0, Some(key)) = (deaths, gone.iter().find(|key| !is_told(key))) {
            return wrong(key, "is gone, and was not reported");
        }
        let (kept, gone, reverted) = (pairs.len() as u64, gone.len() as u64, reported.reverted.len() as u64);
        outcome.left = Left { kept, gone, reverted };
        Ok(None)
    }
}

/// Whether a hot key has ever had a value.
fn was_written(scenario: &Scenario, outcome: &Outcome, at: usize, value: u64) -> bool {
    let is_its = |operation: &&Operation| operation.key as usize == at;
    let puts = outcome.history.iter().filter(is_its).any(|operation| match operation.action {
        Action::Put(put) | Action::Insert(put) | Action::Update(put) | Action::Replace { value: put, .. } => {
            put == value
        }
        Action::Get | Action::Delete | Action::DeleteIf(_) => false,
    });
    let commits = || {
        let accesses = outcome.transactions.iter().flat_map(|one| &one.accesses);
        accesses.filter(|access| access.key as usize == at).any(|access| access.write == Some(Some(value)))
    };
    puts || commits() || scenario.initial(at) == Some(value)
}

/// Checks that nothing is left of lost nodes, and that the index takes all keys again. Returns what is
/// wrong.
async fn is_whole<S: Subject>(
    scenario: &Scenario,
    index: &S::Index,
    client: &mut Client<Sim>,
    nodes: &[u8],
) -> Result<Option<String>, IndexError> {
    let more = Mutex::new(Reported::default());
    let again = give_all_up::<S>(index, client, nodes, &more).await?;
    let more = more.into_inner().unwrap_or_else(PoisonError::into_inner);
    if again.objects > 0 || !more.gaps.is_empty() || !more.reverted.is_empty() {
        return Ok(Some(format!("something was left to cut off: {:?}", more.gaps)));
    }
    let report = index.check(client).await?;
    if let Some(what) = report.violations.first() {
        return Ok(Some(what.clone()));
    }
    if let Some((addr, _)) = report.reachable.iter().find(|(addr, _)| nodes.contains(&addr.node())) {
        return Ok(Some(format!("the index refers to {addr} on a node that was given up")));
    }
    let value = scenario.value(LAST_VALUE);
    for key in scenario.filler.iter().chain(&scenario.hot) {
        if let Err(error) = index.put(client, key, &value, Condition::Always).await {
            return Ok(Some(format!("{} cannot be put: {error}", key.escape_ascii())));
        }
    }
    for key in scenario.filler.iter().chain(&scenario.hot) {
        if index.get(client, key).await?.as_ref() != Some(&value) {
            return Ok(Some(format!("{} was put, and is not found", key.escape_ascii())));
        }
    }
    Ok(None)
}
