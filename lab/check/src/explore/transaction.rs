//! Transactions of a plan's clients: which keys they read and write, and how they are performed and
//! recorded.

use super::op::Op;
use super::plan::Plan;
use super::recorder::{Identity, Recorder};
use super::roles::{KEYS_MAX, Role, Roles};
use super::snapshot::begin_change;
use super::subject::Subject;
use crate::dice::Dice;
use crate::history::{Access, Action, Operation, Outcome as Told, Transaction};
use darter_index::{Access as Asked, Commit, IndexError, OrderedIndex, Version, Versioned, Write};
use darter_pool::{Client, Pool, PoolError};
use darter_sim::Sim;
use std::cell::RefCell;

/// Times that a transaction is tried.
const ATTEMPTS: u16 = 3;
/// One run in this many has transactions, of the scenarios whose index has any.
const RUNS_ONE_IN: u64 = 4;
/// One operation in this many is then a transaction.
const OPS_ONE_IN: u64 = 3;
/// The distance between the values that the attempts of a transaction write to its keys: no client
/// writes a value twice.
const VALUES_STEP: u64 = 1_000_000;

/// Replaces some operations by transactions, in some of the runs of a scenario that has them. All
/// other plans stay as they are.
pub(super) fn mix_in(plan: &mut Plan, dice: &mut Dice) {
    if plan.scenario.transacts && dice.one_in(RUNS_ONE_IN) {
        let hot = plan.scenario.hot.len();
        plan.clients.iter_mut().for_each(|ops| replace_some(ops, hot, dice));
    }
}

/// Replaces some operations by transactions of `hot` keys.
pub(super) fn replace_some(ops: &mut [Op], hot: usize, dice: &mut Dice) {
    for op in ops.iter_mut().filter(|op| op.is_bounded()) {
        if dice.one_in(OPS_ONE_IN) {
            *op = Op::Transact(Roles::draw(hot, dice));
        }
    }
}

/// Whether a client of a plan commits transactions.
pub(super) fn has_any(plan: &Plan) -> bool {
    plan.clients.iter().flatten().any(|op| matches!(op, Op::Transact(_)))
}

/// The bytes of a value; `None` if the key is absent.
type Bytes = Option<Vec<u8>>;
/// The number of a value; `None` if the key is absent.
type Number = Option<u64>;

/// A key of a transaction, with the value that it read there and the one that it will write.
struct Part {
    key: usize,
    read: Option<Bytes>,
    version: Option<Version>,
    write: Option<Number>,
}

/// Reads a transaction's keys, in their order, each by a separate get: half of the transactions with
/// versions.
async fn read<S: Subject>(
    identity: &Identity<'_>,
    recorder: &RefCell<Recorder>,
    index: &S::Index,
    own: &mut Client<Sim>,
    roles: Roles,
    value: u64,
) -> Result<Vec<Part>, IndexError> {
    let scenario = identity.scenario;
    let mut parts = Vec::with_capacity(KEYS_MAX);
    for (key, role) in roles.keys() {
        let (mut found, mut version) = (None, None);
        if role != Role::Blind {
            let at = {
                let mut recorder = recorder.borrow_mut();
                let (client, invoked) = (identity.number, recorder.tick());
                let (key, action) = (key as u32, Action::Get);
                recorder.history.push(Operation { client, key, action, invoked, returned: None });
                recorder.history.len() - 1
            };
            let (bytes, seen) =
                read_key::<S>(index, own, &scenario.hot[key], value.is_multiple_of(2)).await?;
            let mut recorder = recorder.borrow_mut();
            let returned = recorder.tick();
            let number = bytes.as_ref().map(|bytes| scenario.number(bytes));
            recorder.history[at].returned = Some((returned, Told::Found(number)));
            (found, version) = (Some(bytes), seen);
        }
        let write = match role {
            Role::Get => None,
            Role::Put | Role::Blind => Some(Some(value + VALUES_STEP * key as u64)),
            Role::Delete => Some(None),
        };
        parts.push(Part { key, read: found, version, write });
    }
    parts.sort_by_key(|part| &scenario.hot[part.key]);
    Ok(parts)
}

/// Reads a key, with its version if that is wanted.
async fn read_key<S: Subject>(
    index: &S::Index,
    own: &mut Client<Sim>,
    key: &[u8],
    is_versioned: bool,
) -> Result<Versioned, IndexError> {
    if is_versioned {
        return Ok(index.read_versions(own, &[key]).await?.pop().unwrap_or_default());
    }
    Ok((index.get(own, key).await?, None))
}

/// Commits the values that were read and those to write, and records the commit.
async fn commit<S: Subject>(
    identity: &Identity<'_>,
    recorder: &RefCell<Recorder>,
    (pool, index): (&Pool<Sim>, &S::Index),
    own: &mut Client<Sim>,
    (parts, begun, attempt): (&[Part], u64, u16),
) -> Result<Commit, IndexError> {
    let scenario = identity.scenario;
    let bytes = |part: &Part| part.write.flatten().map(|number| scenario.value(number));
    let written: Vec<Option<Vec<u8>>> = parts.iter().map(bytes).collect();
    let asked: Vec<Asked<'_>> = (parts.iter().zip(&written))
        .map(|(part, value)| Asked {
            key: &scenario.hot[part.key],
            read: part.read.as_ref().map(Option::as_deref),
            version: part.version,
            write: part.write.map(|_| value.as_deref().map_or(Write::Remove, Write::Put)),
        })
        .collect();
    let access = |part: &Part| Access {
        key: part.key as u32,
        read: part.read.as_ref().map(|bytes| bytes.as_ref().map(|bytes| scenario.number(bytes))),
        write: part.write,
    };
    let at = {
        let mut recorder = recorder.borrow_mut();
        let (client, invoked) = (identity.number, recorder.tick());
        let accesses = parts.iter().map(access).collect();
        recorder.transactions.push(Transaction { client, accesses, begun, invoked, returned: None });
        recorder.transactions.len() - 1
    };
    let outcome = if identity.preserves {
        let changed: Vec<&[u8]> =
            asked.iter().filter(|access| access.write.is_some()).map(|access| access.key).collect();
        match begin_change::<S>(pool, index, own, &changed).await {
            Ok(mut pinned) => index.commit(&mut pinned, &asked, attempt).await,
            Err(error) => Err(error),
        }
    } else {
        index.commit(own, &asked, attempt).await
    };
    let took_effect = match &outcome {
        Ok(commit) => Some(*commit == Commit::Done),
        Err(IndexError::Pool(PoolError::ChangesHeld)) => Some(false),
        Err(error) => error.is_out_of_space().then_some(false),
    };
    let mut recorder = recorder.borrow_mut();
    let returned = recorder.tick();
    recorder.transactions[at].returned = took_effect.map(|took_effect| (returned, took_effect));
    outcome
}

/// Reads a transaction's keys and commits it, again after a conflict, a few times.
pub(super) async fn transact<S: Subject>(
    identity: &Identity<'_>,
    recorder: &RefCell<Recorder>,
    (pool, index): (&Pool<Sim>, &S::Index),
    own: &mut Client<Sim>,
    roles: Roles,
    value: u64,
) -> Result<(), IndexError> {
    for attempt in 0..ATTEMPTS {
        let value = value + VALUES_STEP * (1 + KEYS_MAX as u64 * u64::from(attempt));
        let begun = recorder.borrow_mut().tick();
        let parts = read::<S>(identity, recorder, index, own, roles, value).await?;
        let outcome = commit::<S>(identity, recorder, (pool, index), own, (&parts, begun, attempt)).await?;
        if outcome == Commit::Done {
            return Ok(());
        }
    }
    Ok(())
}
