//! Checks after a run: histories for linearizability, the index for its invariants, the pool for
//! leaks.

use super::outcome::{Outcome, Violation};
use super::subject::{OptionsOf, Subject};
use crate::history::Action;
use crate::linear::{Checker, Joint, Judgement, Verdict};
use darter_fabric::{GlobalAddr, counted};
use darter_index::{CheckReport, IndexError, OrderedIndex, Swept};
use darter_pool::{Client, Pool, ReachableSet};
use darter_sim::Sim;
use std::cell::RefCell;

/// Leaked objects that a replay describes.
const LEAKS_SHOWN: usize = 4;

/// Maximum number of steps of the checker for one key of one run.
const CHECKER_STEPS: u64 = 1_000_000;

/// Part of the remark of a check about transactions that are not settled.
const UNSETTLED: &str = "transactions whose keys are not settled";

thread_local! {
    static CHECKER: RefCell<Checker> = RefCell::new(Checker::new());
}

/// Checks a run's history: the keys of transactions together, and every other key by itself. Adds
/// the number of states that the checkers visited.
pub(super) fn judge(outcome: &mut Outcome, initial: &dyn Fn(u32) -> Option<u64>) -> Result<(), Violation> {
    let (history, transactions) = (&outcome.history, &outcome.transactions);
    let keys = history.iter().map(|operation| operation.key + 1).max().unwrap_or(0);
    let mut joint = Joint::new(history, transactions, initial);
    let judgement = joint.check(CHECKER_STEPS);
    outcome.states += joint.taken();
    match judgement {
        Judgement::Serializable => {}
        Judgement::Violation(text) => {
            return Err(Violation::new("history", format!("transactions are not serializable\n{text}")));
        }
        Judgement::Unknown => outcome.undecided += 1,
    }
    CHECKER.with_borrow_mut(|checker| {
        for key in (0..keys).filter(|&key| !joint.covers(key)) {
            let own: Vec<_> = history.iter().filter(|operation| operation.key == key).copied().collect();
            let verdict = checker.check(&own, initial(key), CHECKER_STEPS);
            outcome.states += checker.steps();
            match verdict {
                Verdict::Linearizable { .. } => {}
                verdict @ Verdict::Violation { .. } => {
                    let text = crate::linear::explain(&own, initial(key), &verdict);
                    return Err(Violation::new("history", format!("key {key} is not linearizable\n{text}")));
                }
                Verdict::Unknown { steps } => {
                    return Err(Violation::new(
                        "unknown",
                        format!("key {key}: undecided after {}", counted(steps, "step")),
                    ));
                }
            }
        }
        Ok(())
    })
}

/// Returns a violation if a transaction ended with a conflict although no other client could have
/// changed one of its keys, or aborted it, since it began.
pub(super) fn conflict_without_cause(outcome: &Outcome) -> Option<Violation> {
    let (history, transactions) = (&outcome.history, &outcome.transactions);
    let conflict = transactions.iter().find(|conflict| {
        let Some((ended, false)) = conflict.returned else { return false };
        let meets = |invoked: u64, returned: Option<u64>| {
            invoked <= ended && returned.is_none_or(|returned| returned >= conflict.begun)
        };
        let writes = history.iter().filter(|operation| operation.action != Action::Get);
        let others = transactions.iter().filter(|other| other != conflict);
        !writes.map(|one| (one.invoked, one.returned.map(|(at, _)| at))).any(|(from, to)| meets(from, to))
            && !others
                .map(|one| (one.invoked, one.returned.map(|(at, _)| at)))
                .any(|(from, to)| meets(from, to))
    })?;
    Some(Violation::new("conflict", format!("nothing else changed anything during the commit: {conflict:?}")))
}

/// Sweeps the remains of dead processes, checks everything, and counts leaks.
pub(super) async fn repair<S: Subject>(sim: &Sim, options: OptionsOf<S>) -> Result<(), Violation> {
    match try_repair::<S>(sim, options).await {
        Ok(None) => Ok(()),
        Ok(Some(violation)) => Err(violation),
        Err(error) => Err(Violation::new("error", format!("the final check: {error}"))),
    }
}

async fn try_repair<S: Subject>(sim: &Sim, options: OptionsOf<S>) -> Result<Option<Violation>, IndexError> {
    let pool = Pool::open(sim.clone()).await?;
    let outcome = repair_in::<S>(&pool, options).await;
    if matches!(outcome, Ok(None)) {
        pool.close().await?;
    } else {
        // Closing in order would wait for verbs that are no longer executed.
        pool.abandon();
    }
    outcome
}

async fn repair_in<S: Subject>(
    pool: &Pool<Sim>,
    options: OptionsOf<S>,
) -> Result<Option<Violation>, IndexError> {
    let mut client = pool.client()?;
    let index = S::Index::open(&mut client, options).await?;
    match index.sweep_dead(&mut client).await? {
        Swept::Refused(violations) => {
            return Ok(Some(Violation::new("check", violations.into_iter().next().unwrap_or_default())));
        }
        Swept::Done(report) => {
            if let Some(what) = report.violations.first() {
                return Ok(Some(Violation::new("sweep", what.clone())));
            }
            if !report.finished {
                let what = "a sweep waits for another member, although there is none";
                return Ok(Some(Violation::new("sweep", what)));
            }
        }
    }
    for _ in 0..2 {
        pool.settle(&mut client).await?;
        index.maintain(&mut client).await?;
    }
    find_fault::<S>(pool, &index, &mut client, true).await
}

/// Checks everything and counts leaks in a run without deaths, in which every byte must have an
/// owner. If `is_settled`, no transaction may have left an intent.
pub(super) async fn check<S: Subject>(
    pool: &Pool<Sim>,
    index: &S::Index,
    is_settled: bool,
) -> Result<(), Violation> {
    let checked = async {
        let mut client = pool.client()?;
        find_fault::<S>(pool, index, &mut client, is_settled).await
    };
    match checked.await {
        Ok(None) => Ok(()),
        Ok(Some(violation)) => Err(violation),
        Err(error) => Err(Violation::new("error", format!("the final check: {error}"))),
    }
}

/// Returns the first violation that a check of the index or an audit of the pool finds.
async fn find_fault<S: Subject>(
    pool: &Pool<Sim>,
    index: &S::Index,
    client: &mut Client<Sim>,
    is_settled: bool,
) -> Result<Option<Violation>, IndexError> {
    let report = index.check(client).await?;
    if let Some(what) = report.violations.first() {
        return Ok(Some(Violation::new("audit", what.clone())));
    }
    if let Some(violation) = stale(&report).or_else(|| unsettled(&report).filter(|_| is_settled)) {
        return Ok(Some(violation));
    }
    audit(pool, client, &report.reachable).await
}

/// Returns a violation if hints name freed nodes, when no unlinked object waits to be freed.
pub(super) fn stale(report: &CheckReport) -> Option<Violation> {
    let what = || format!("{} to freed nodes", counted(report.stale_hints, "hint"));
    (report.stale_hints > 0).then(|| Violation::new("stale", what()))
}

/// Returns a violation if a transaction has left an intent, when all have ended or were swept.
pub(super) fn unsettled(report: &CheckReport) -> Option<Violation> {
    let remark = report.remarks.iter().find(|remark| remark.contains(UNSETTLED))?;
    Some(Violation::new("unsettled", remark.clone()))
}

/// Returns the first violation that an audit of the pool finds, as far as this process can know the
/// pool's accounts.
pub(super) async fn audit(
    pool: &Pool<Sim>,
    client: &mut Client<Sim>,
    reachable: &ReachableSet,
) -> Result<Option<Violation>, IndexError> {
    let audit = pool.audit(client, reachable).await?;
    if let Some(what) = audit.violations.first() {
        return Ok(Some(Violation::new("audit", what.clone())));
    }
    if pool.bad_frees() > 0 {
        return Ok(Some(Violation::new(
            "audit",
            format!("{} named no object in use", counted(pool.bad_frees(), "free")),
        )));
    }
    if audit.leaked_bytes > 0 {
        let (all, own) = (audit.leaked_bytes, audit.own_leaked_bytes);
        let mut what = vec![format!("{all} bytes have no owner, {own} of them in own blocks")];
        // In a replay, also what has happened to them.
        let sim = pool.fabric();
        let is_leaked = |(addr, _): &(GlobalAddr, u64)| !reachable.contains(*addr);
        for (addr, _) in sim.allocated().into_iter().filter(is_leaked).take(LEAKS_SHOWN) {
            what.extend(sim.journal_of(addr));
        }
        return Ok(Some(Violation::new("leak", what.join("\n  "))));
    }
    Ok(None)
}
