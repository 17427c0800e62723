//! Snapshots of a plan's clients: how they are taken and recorded, and how changes preserve values for
//! them.

use super::op::Op;
use super::plan::Plan;
use super::recorder::{Identity, Recorder};
use super::scans::{WINDOW_MIN, range, verify_scan};
use super::subject::Subject;
use crate::dice::Dice;
use crate::history::{Access, Transaction};
use darter_index::snapshot::{self, SnapshotPart, remove_old_values, scan_at};
use darter_index::{IndexError, ScanRange};
use darter_pool::{Client, Pinned, Pool, PoolError};
use darter_sim::Sim;
use std::cell::RefCell;

/// One run in this many has a snapshot, of the scenarios whose index has transactions.
const RUNS_ONE_IN: u64 = 6;

/// Adds a snapshot to some of the runs of a scenario with transactions. All other plans stay as they
/// are.
pub(super) fn mix_in(plan: &mut Plan, dice: &mut Dice) {
    if !plan.scenario.transacts || plan.has_loads() || !dice.one_in(RUNS_ONE_IN) {
        return;
    }
    plan.insert(Op::Snapshot, dice);
}

/// Begins a change of keys, as soon as no snapshot holds changes.
pub(super) async fn begin_change<'c, S: Subject>(
    pool: &Pool<Sim>,
    index: &S::Index,
    own: &'c mut Client<Sim>,
    keys: &[&[u8]],
) -> Result<Pinned<'c, Sim>, IndexError> {
    while pool.holds_changes() {
        pool.maintain(own).await?;
        own.pause().await;
    }
    snapshot::begin_change(index, own, keys).await
}

/// Takes a snapshot, reads everything hot from it in windows, and records that as a transaction that
/// has read all keys between the beginning of the call and the moment at which the snapshot was open.
pub(super) async fn take_snapshot<S: Subject>(
    identity: &Identity<'_>,
    recorder: &RefCell<Recorder>,
    pool: &Pool<Sim>,
    index: &S::Index,
    own: &mut Client<Sim>,
) -> Result<(), IndexError> {
    let invoked = recorder.borrow_mut().tick();
    let taken = match pool.begin_snapshot(own).await {
        Err(PoolError::SnapshotTaken { .. } | PoolError::SnapshotHeldBack(_)) => return Ok(()),
        taken => taken?,
    };
    let returned = recorder.borrow_mut().tick();
    let whole = range(identity, false);
    let (mut rest, mut pairs) = (whole.clone(), Vec::new());
    loop {
        let part = scan_at(index, own, taken, &rest, WINDOW_MIN).await?;
        let SnapshotPart { pairs: next, rest: behind } = part;
        pairs.extend(next);
        let Some(from) = behind else { break };
        rest = ScanRange { from, ..rest };
    }
    if pool.read_open_snapshot(own).await? == Some(taken) {
        let values = verify_scan(identity, &whole, pairs)?;
        let access = |(key, value)| Access { key, read: Some(value), write: None };
        let accesses = (0..).zip(values).map(access).collect();
        let (client, returned) = (identity.number, Some((returned, true)));
        let read = Transaction { client, accesses, begun: invoked, invoked, returned };
        recorder.borrow_mut().transactions.push(read);
    }
    pool.end_snapshot(own, taken).await?;
    pool.outlive_snapshot(own).await?;
    while remove_old_values(index, own).await? {}
    Ok(())
}
