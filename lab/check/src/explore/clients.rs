//! A simulated client. It performs its operations one after another and records each in the history
//! before it begins and when it ends.

use super::drain::drain_last;
use super::level::level_to_last;
use super::op::Op;
use super::recorder::{Identity, Recorder};
use super::scans::{lie, range, scan_in_windows, verify_scan};
use super::snapshot::{begin_change, take_snapshot};
use super::subject::Subject;
use super::transaction::transact;
use crate::history::{Action, Operation, Outcome as Told};
use darter_fabric::{CallFault, FabricError, ProcedureError};
use darter_index::{Condition, IndexError, KeyValue, OrderedIndex, PutOutcome};
use darter_pool::{Client, Pool, PoolError};
use darter_sim::Sim;
use std::cell::RefCell;
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// The first process that joins while clients run.
const FIRST_VISITOR: u32 = 100;

/// A process that dies when this is dropped, unless it has left.
struct Visitor {
    sim: Sim,
    pool: Option<Pool<Sim>>,
}

impl Drop for Visitor {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.abandon();
        }
        self.sim.kill();
    }
}

/// A process joins, puts a key and leaves.
async fn visit<S: Subject>(
    sim: Sim,
    key: &[u8],
    value: &[u8],
    preserves: bool,
) -> Result<PutOutcome, IndexError> {
    let mut visitor = Visitor { sim: sim.clone(), pool: None };
    let pool = visitor.pool.insert(Pool::open(sim).await?).clone();
    pool.set_magazine_objects_max(1);
    let outcome = {
        let mut own = pool.client()?;
        let index = S::Index::open(&mut own, S::options()).await?;
        let outcome = if preserves {
            let mut pinned = begin_change::<S>(&pool, &index, &mut own, &[key]).await?;
            S::put(&index, &mut pinned, key, value, Condition::Always).await?
        } else {
            S::put(&index, &mut own, key, value, Condition::Always).await?
        };
        pool.maintain(&mut own).await?;
        index.maintain(&mut own).await?;
        outcome
    };
    drop(pool);
    if let Some(pool) = visitor.pool.take() {
        pool.close().await?;
    }
    Ok(outcome)
}

/// Rounds of upkeep during which a process requests room.
const ROUNDS_OF_A_REQUEST: usize = 8;
/// Rounds of upkeep that a client with no operations left does while others sweep.
const ROUNDS_BESIDE_SWEEPS: usize = 500;

/// Sweeps that a client has still to do, which end when the client does. [`Recorder::sweeps`]
/// counts them from the start.
struct Sweeps {
    recorder: Rc<RefCell<Recorder>>,
    left: usize,
}

impl Sweeps {
    fn end(&mut self, count: usize) {
        self.left -= count;
        self.recorder.borrow_mut().sweeps -= count;
    }
}

impl Drop for Sweeps {
    fn drop(&mut self) {
        self.end(self.left);
    }
}

/// Returns when no other client can move.
async fn rest(recorder: &RefCell<Recorder>) {
    let mut waits = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut waits, true) {
            return Poll::Ready(());
        }
        recorder.borrow_mut().resting.push(context.waker().clone());
        Poll::Pending
    })
    .await;
}

/// The result of an operation on the index.
enum Answer {
    Key(Told),
    All(Vec<Option<u64>>),
    Done,
}

/// How a step of a client ended.
enum Ended {
    Answered(Result<Answer, IndexError>),
    Cancelled,
}

/// Drops a future at the `cancel_at`-th await of its client.
async fn unless_cancelled(
    future: impl Future<Output = Result<Answer, IndexError>>,
    recorder: &RefCell<Recorder>,
    client: usize,
    cancel_at: Option<(u64, bool)>,
) -> Ended {
    let mut future = pin!(future);
    let mut waits = false;
    std::future::poll_fn(move |context| {
        let awaits = recorder.borrow().awaits[client];
        if waits && cancel_at == Some((awaits - 1, true)) {
            return Poll::Ready(Ended::Cancelled);
        }
        match future.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Ended::Answered(answer)),
            Poll::Pending => {
                recorder.borrow_mut().awaits[client] = awaits + 1;
                waits = true;
                if cancel_at == Some((awaits, false)) {
                    return Poll::Ready(Ended::Cancelled);
                }
                Poll::Pending
            }
        }
    })
    .await
}

fn told(outcome: PutOutcome) -> Answer {
    Answer::Key(match outcome {
        PutOutcome::Inserted => Told::Inserted,
        PutOutcome::Replaced => Told::Replaced,
        PutOutcome::Refused => Told::Refused,
    })
}

/// Performs a client's operations.
pub(super) async fn client<S: Subject>(
    identity: Identity<'_>,
    recorder: Rc<RefCell<Recorder>>,
    pool: Pool<Sim>,
    index: S::Index,
    mut own: Client<Sim>,
    ops: Vec<Op>,
) {
    let me = identity.number as usize;
    let left = ops.iter().filter(|op| op.waits_for_members()).count();
    let mut sweeps = Sweeps { recorder: Rc::clone(&recorder), left };
    for (at, op) in ops.into_iter().enumerate() {
        let value = 1000 * (u64::from(identity.number) + 1) + at as u64;
        let asked = asked(&identity, op, value);
        let (begun, mine) = {
            let mut recorder = recorder.borrow_mut();
            let invoked = recorder.tick();
            // Other clients append to the history while the operation runs.
            let mine = recorder.history.len()..recorder.history.len() + asked.len();
            recorder.fresh[me] = !asked.is_empty();
            recorder.operations[me] = Some(op);
            recorder.history.extend(asked.into_iter().map(|(key, action)| Operation {
                client: identity.number,
                key,
                action,
                invoked,
                returned: None,
            }));
            ((recorder.verbs[me], recorder.awaits[me]), mine)
        };
        let answer = operate::<S>(&identity, &recorder, &pool, &index, &mut own, op, value);
        let ended = unless_cancelled(answer, &recorder, me, identity.cancel_at).await;
        sweeps.end(usize::from(op.waits_for_members()));
        let mut recorder = recorder.borrow_mut();
        let returned = recorder.tick();
        recorder.operations[me] = None;
        if op.is_bounded() && !identity.preserves {
            let took = (recorder.awaits[me] - begun.1, recorder.verbs[me] - begun.0);
            recorder.longest_op[me] = recorder.longest_op[me].max(took);
        }
        match ended {
            Ended::Answered(Ok(Answer::Key(told))) => {
                for operation in &mut recorder.history[mine] {
                    operation.returned = Some((returned, told));
                }
            }
            Ended::Answered(Ok(Answer::All(values))) => {
                for (operation, value) in recorder.history[mine].iter_mut().zip(values) {
                    operation.returned = Some((returned, Told::Found(value)));
                }
            }
            Ended::Answered(Ok(Answer::Done)) | Ended::Cancelled => {}
            Ended::Answered(Err(error)) => {
                let fatal = judge_error::<S>(&mut recorder, op, &error, mine);
                let is_answer = matches!(
                    error,
                    IndexError::LostInWrite { .. } | IndexError::NotEmpty | IndexError::NotSorted { .. }
                );
                if !is_answer {
                    recorder.errors.push(format!("client {}: {op}: {error}", identity.number));
                }
                if fatal {
                    return;
                }
            }
        }
    }
    // A sweep waits until all members have moved on, so live members have to.
    for _ in 0..ROUNDS_BESIDE_SWEEPS {
        if recorder.borrow().sweeps == 0 || pool.maintain(&mut own).await.is_err() {
            return;
        }
        own.pause().await;
    }
}

/// Whether a client has to end after an error. An error that no fault explains is a violation.
fn judge_error<S: Subject>(recorder: &mut Recorder, op: Op, error: &IndexError, mine: Range<usize>) -> bool {
    match error {
        IndexError::NotEmpty if matches!(op, Op::Load(_)) => {
            for operation in &mut recorder.history[mine] {
                operation.action = Action::Get;
            }
            false
        }
        IndexError::NotSorted { .. } if op == Op::Load(true) => false,
        IndexError::Pool(PoolError::OutOfSpace { .. } | PoolError::ChangesHeld) => {
            // The error says that nothing was changed, so the operation counts as a search.
            for operation in &mut recorder.history[mine] {
                operation.action = Action::Get;
            }
            false
        }
        IndexError::Fabric(FabricError::Disconnected { .. })
        | IndexError::Pool(PoolError::Fabric(FabricError::Disconnected { .. })) => false,
        IndexError::Fabric(FabricError::Unreachable { .. }) if S::HAS_SERVER => false,
        IndexError::Fabric(FabricError::Unreachable { node })
        | IndexError::Pool(PoolError::Fabric(FabricError::Unreachable { node }))
            if recorder.lost_nodes.contains(node) =>
        {
            false
        }
        // The call may or may not have taken effect.
        IndexError::Fabric(FabricError::Call(call))
            if match &call.fault {
                CallFault::ServerGone => true,
                CallFault::Failed(failed) => failed.code == ProcedureError::FABRIC,
                _ => false,
            } =>
        {
            false
        }
        IndexError::Fabric(FabricError::Fenced)
        | IndexError::Pool(PoolError::Fabric(FabricError::Fenced) | PoolError::Evicted) => true,
        IndexError::LostInWrite { .. } if S::PROMISES.may_lose_values && recorder.may_be_lost(&mine) => {
            // The operation changed nothing and read nothing.
            for operation in &mut recorder.history[mine] {
                operation.action = Action::Get;
            }
            recorder.lost += 1;
            false
        }
        _ => {
            recorder.violate("error", format!("{op}: {error}"));
            true
        }
    }
}

/// Returns the keys of an operation, each with its action.
fn asked(identity: &Identity<'_>, op: Op, value: u64) -> Vec<(u32, Action)> {
    let one = |key: u8, action| vec![(u32::from(key), action)];
    match op {
        Op::Get(key) => one(key, Action::Get),
        Op::Put(key) | Op::Visit(key) => one(key, Action::Put(value)),
        Op::Insert(key) => one(key, Action::Insert(value)),
        Op::Update(key) => one(key, Action::Update(value)),
        Op::Replace(key) => one(key, Action::Replace { expected: expected(identity, key), value }),
        Op::Delete(key) => one(key, Action::Delete),
        Op::DeleteIf(key) => one(key, Action::DeleteIf(expected(identity, key))),
        Op::Load(false) => {
            (0..identity.scenario.hot.len() as u32).map(|key| (key, Action::Insert(value))).collect()
        }
        Op::MultiGet | Op::Scan(_) | Op::Windows(_) => {
            (0..identity.scenario.hot.len() as u32).map(|key| (key, Action::Get)).collect()
        }
        Op::Load(true)
        | Op::Transact(_)
        | Op::Maintain
        | Op::Room
        | Op::Sweep
        | Op::Snapshot
        | Op::Drain
        | Op::Level
        | Op::Adjust
        | Op::Restructure
        | Op::Rest => Vec::new(),
    }
}

/// Returns the value that a conditional operation expects: the scenario's initial value, or one
/// that no client wrote.
fn expected(identity: &Identity<'_>, key: u8) -> u64 {
    identity.scenario.initial(usize::from(key)).unwrap_or(999)
}

/// Performs an operation.
///
/// The futures of rare operations are boxed: the others are moved often, and have at least the size of the
/// largest.
async fn operate<S: Subject>(
    identity: &Identity<'_>,
    recorder: &RefCell<Recorder>,
    pool: &Pool<Sim>,
    index: &S::Index,
    own: &mut Client<Sim>,
    op: Op,
    value: u64,
) -> Result<Answer, IndexError> {
    let bytes = identity.scenario.value(value);
    let key = |key: u8| &identity.scenario.hot[usize::from(key)][..];
    let mut pinned;
    let own = match op {
        Op::Put(at)
        | Op::Insert(at)
        | Op::Update(at)
        | Op::Replace(at)
        | Op::Delete(at)
        | Op::DeleteIf(at)
            if identity.preserves =>
        {
            pinned = begin_change::<S>(pool, index, own, &[key(at)]).await?;
            &mut *pinned
        }
        _ => own,
    };
    Ok(match op {
        Op::Get(at) => Answer::Key(Told::Found(
            index.get(own, key(at)).await?.map(|bytes| identity.scenario.number(&bytes)),
        )),
        Op::Put(at) => told(S::put(index, own, key(at), &bytes, Condition::Always).await?),
        Op::Visit(at) => {
            let visitor = {
                let mut recorder = recorder.borrow_mut();
                let visitor = FIRST_VISITOR + recorder.visitors.len() as u32;
                recorder.visitors.push((identity.process, visitor));
                visitor
            };
            let sim = pool.fabric().process(visitor);
            told(Box::pin(visit::<S>(sim, key(at), &bytes, identity.preserves)).await?)
        }
        Op::Insert(at) => told(S::put(index, own, key(at), &bytes, Condition::Absent).await?),
        Op::Update(at) => told(S::put(index, own, key(at), &bytes, Condition::Present).await?),
        Op::Replace(at) => {
            let expected = identity.scenario.value(expected(identity, at));
            told(S::put(index, own, key(at), &bytes, Condition::Equals(&expected)).await?)
        }
        Op::Delete(at) => Answer::Key(Told::Deleted(index.delete(own, key(at)).await?)),
        Op::DeleteIf(at) => {
            let expected = identity.scenario.value(expected(identity, at));
            let is_gone = S::delete_if(index, own, key(at), &expected).await?;
            Answer::Key(if is_gone { Told::Deleted(true) } else { Told::Refused })
        }
        Op::Transact(roles) => {
            Box::pin(transact::<S>(identity, recorder, (pool, index), own, roles, value)).await?;
            Answer::Done
        }
        Op::MultiGet => {
            let keys: Vec<&[u8]> = identity.scenario.hot.iter().map(|key| &key[..]).collect();
            let values = index.multi_get(own, &keys).await?;
            Answer::All(
                values.into_iter().map(|value| value.map(|bytes| identity.scenario.number(&bytes))).collect(),
            )
        }
        Op::Scan(reverse) => {
            let range = range(identity, reverse);
            let pairs = index.scan(own, &range, usize::MAX).await?;
            Answer::All(verify_scan(identity, &range, pairs)?)
        }
        Op::Windows(reverse) => {
            let range = range(identity, reverse);
            let pairs = Box::pin(scan_in_windows::<S>(identity, index, own, &range)).await?;
            Answer::All(verify_scan(identity, &range, pairs)?)
        }
        Op::Load(is_unsorted) => {
            let mut keys = identity.scenario.hot.clone();
            keys.sort();
            // A repeated key comes last, after all but the root is built.
            keys.extend(keys.first().cloned().filter(|_| is_unsorted));
            let pairs: Vec<KeyValue> = keys.into_iter().map(|key| (key, bytes.clone())).collect();
            let count = pairs.len();
            match Box::pin(index.bulk_load(own, pairs.into_iter())).await? {
                loaded if loaded == count as u64 && !is_unsorted => Answer::Key(Told::Inserted),
                _ => return Err(lie("a bulk load that loaded unsorted pairs, or not all pairs")),
            }
        }
        Op::Maintain => {
            pool.maintain(own).await?;
            index.maintain(own).await?;
            Answer::Done
        }
        Op::Room => {
            let request = pool.ask_for_room();
            for _ in 0..ROUNDS_OF_A_REQUEST {
                pool.maintain(own).await?;
                index.maintain(own).await?;
            }
            drop(request);
            Answer::Done
        }
        Op::Sweep => {
            // A sweep that finds the index in the middle of a change refuses, and may be retried.
            Box::pin(index.sweep_dead(own)).await?;
            Answer::Done
        }
        Op::Snapshot => {
            Box::pin(take_snapshot::<S>(identity, recorder, pool, index, own)).await?;
            Answer::Done
        }
        Op::Drain => {
            Box::pin(drain_last(index, own)).await?;
            Answer::Done
        }
        Op::Level => {
            Box::pin(level_to_last(index, own)).await?;
            Answer::Done
        }
        Op::Adjust => {
            Box::pin(S::adjust(index, own, false)).await?;
            Answer::Done
        }
        Op::Restructure => {
            Box::pin(S::adjust(index, own, true)).await?;
            Answer::Done
        }
        Op::Rest => {
            rest(recorder).await;
            Answer::Done
        }
    })
}
