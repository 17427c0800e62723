//! Histories of transactions, known to be right or wrong, and random ones against brute force.

use super::{Joint, Judgement};
use crate::dice::Dice;
use crate::history::{Access, Action, Operation, Outcome, Transaction};
use crate::linear::{Checker, Verdict};

const BUDGET: u64 = 100_000;

fn single(
    client: u32,
    key: u32,
    (invoked, returned): (u64, u64),
    action: Action,
    outcome: Outcome,
) -> Operation {
    Operation { client, key, action, invoked, returned: Some((returned, outcome)) }
}

fn got(key: u32, during: (u64, u64), value: u64) -> Operation {
    single(9, key, during, Action::Get, Outcome::Found(Some(value)))
}

/// A commit that read and wrote these values of keys 0, 1, …
fn commit(invoked: u64, returned: Option<u64>, values: &[(Option<u64>, Option<u64>)]) -> Transaction {
    let access = |(key, &(read, write)): (u32, &(Option<u64>, Option<u64>))| Access {
        key,
        read: read.map(Some),
        write: write.map(Some),
    };
    let accesses = (0..).zip(values).map(access).collect();
    Transaction { client: 1, accesses, begun: invoked, invoked, returned: returned.map(|at| (at, true)) }
}

/// Keys 0 and 1 begin with the values 1 and 2.
#[allow(clippy::unnecessary_wraps)] // as `Joint::new` takes it
fn first(key: u32) -> Option<u64> {
    Some(u64::from(key) + 1)
}

fn judge(operations: &[Operation], transactions: &[Transaction]) -> Judgement {
    Joint::new(operations, transactions, &first).check(BUDGET)
}

fn is_right(operations: &[Operation], transactions: &[Transaction]) -> bool {
    judge(operations, transactions) == Judgement::Serializable
}

const BOTH: &[(Option<u64>, Option<u64>)] = &[(Some(1), Some(10)), (Some(2), Some(20))];

#[test]
fn a_commit_changes_both_keys_at_one_moment() {
    let commits = [commit(5, Some(20), BOTH)];
    assert!(is_right(&[got(0, (6, 7), 10), got(1, (8, 9), 20)], &commits));
    assert!(is_right(&[got(0, (6, 7), 1), got(1, (8, 9), 2)], &commits));
    assert!(is_right(&[got(0, (6, 7), 1), got(1, (8, 9), 20)], &commits));
    assert!(!is_right(&[got(0, (6, 7), 10), got(1, (8, 9), 2)], &commits));
    assert!(is_right(&[got(0, (6, 9), 10), got(1, (8, 9), 2)], &commits), "the searches overlap");
    assert!(!is_right(&[got(0, (21, 22), 1)], &commits), "the commit had returned");
}

#[test]
fn a_pending_commit_has_all_effects_or_none() {
    let commits = [commit(5, None, BOTH)];
    assert!(is_right(&[got(0, (30, 31), 1), got(1, (32, 33), 20)], &commits));
    assert!(!is_right(&[got(0, (30, 31), 10), got(1, (32, 33), 2)], &commits));
    assert!(!is_right(&[got(0, (3, 4), 10)], &commits), "before it was invoked");
    let void = [Transaction { returned: Some((20, false)), ..commits[0].clone() }];
    assert!(is_right(&[got(0, (30, 31), 10)], &void), "without effect, the key is not checked");
    let put = single(2, 0, (1, 2), Action::Put(7), Outcome::Replaced);
    assert!(!is_right(&[put, got(1, (32, 33), 20)], &commits), "a value that it read was gone");
}

#[test]
fn a_lost_update_and_a_write_skew_are_violations() {
    // Both read the same value of key 0 and replaced it.
    let lost = [commit(1, Some(9), &[(Some(1), Some(10))]), commit(2, Some(8), &[(Some(1), Some(11))])];
    assert!(!is_right(&[], &lost));
    // Each read both keys and changed the one that the other only read.
    let (one, two) = ((Some(1), Some(10)), (Some(2), Some(20)));
    let skew = [commit(1, Some(9), &[one, (Some(2), None)]), commit(2, Some(8), &[(Some(1), None), two])];
    let Judgement::Violation(text) = judge(&[], &skew) else { panic!("a write skew") };
    assert!(text.contains("at most 1 of 2 completed ones fit"), "{text}");
    assert!(text.contains("commit, key 0 read 1 to 10, key 1 read 2 -> done"), "{text}");
    let apart = [skew[0].clone(), commit(2, Some(8), &[(Some(10), None), two])];
    assert!(is_right(&[], &apart));
}

/// Executes random operations and transactions one after another, with random intervals around the
/// moments; then some results are disturbed.
fn history(dice: &mut Dice, keys: u32, count: u64) -> (Vec<Operation>, Vec<Transaction>) {
    let mut values: Vec<Option<u64>> = (0..keys).map(first).collect();
    let (mut operations, mut transactions) = (Vec::new(), Vec::new());
    for client in 0..count as u32 {
        let moment = 30 + 10 * u64::from(client);
        let (invoked, returned) = (moment - dice.below(25), moment + dice.below(25));
        let (is_pending, takes_effect) = (dice.one_in(6), dice.one_in(2));
        let value = |dice: &mut Dice| 1 + dice.below(4);
        if keys > 1 && dice.one_in(2) {
            let mut accesses = Vec::new();
            for (key, held) in (0..).zip(&values) {
                let read = (!dice.one_in(4)).then_some(*held);
                let read = if dice.one_in(12) { Some(Some(value(dice))) } else { read };
                let write = (!dice.one_in(3)).then(|| (!dice.one_in(4)).then(|| value(dice)));
                accesses.push(Access { key, read, write });
            }
            let has_effect = !is_pending || takes_effect;
            for (access, held) in accesses.iter().zip(&mut values).filter(|_| has_effect) {
                *held = access.write.unwrap_or(*held);
            }
            let returned = (!is_pending).then_some((returned, true));
            transactions.push(Transaction { client, accesses, begun: invoked, invoked, returned });
            continue;
        }
        let key = dice.below(keys.into()) as u32;
        let action = match dice.below(6) {
            0 | 1 => Action::Get,
            2 => Action::Put(value(dice)),
            3 => Action::Insert(value(dice)),
            4 => Action::Replace { expected: value(dice), value: value(dice) },
            _ => Action::Delete,
        };
        let (mut outcome, next) = action.apply(values[key as usize]);
        if !is_pending || takes_effect {
            values[key as usize] = next;
        }
        if dice.one_in(12) {
            outcome = action.apply(Some(value(dice))).0;
        }
        let returned = (!is_pending).then_some((returned, outcome));
        operations.push(Operation { client, key, action, invoked, returned });
    }
    (operations, transactions)
}

/// Whether any order of all completed steps, and any of the pending ones, respects time and results.
fn by_force(
    operations: &[Operation],
    transactions: &[Transaction],
    placed: &mut Vec<usize>,
    values: &[Option<u64>],
) -> bool {
    let all = operations.len() + transactions.len();
    let times = |at: usize| {
        if let Some(one) = operations.get(at) {
            return (one.invoked, one.returned.map(|(returned, _)| returned));
        }
        let one = &transactions[at - operations.len()];
        (one.invoked, one.returned.map(|(returned, _)| returned))
    };
    let rest: Vec<usize> = (0..all).filter(|at| !placed.contains(at)).collect();
    if rest.iter().all(|&at| times(at).1.is_none()) {
        return true;
    }
    for &at in &rest {
        if rest.iter().any(|&other| times(other).1.is_some_and(|returned| returned < times(at).0)) {
            continue;
        }
        let mut next = values.to_vec();
        let fits = match operations.get(at) {
            Some(one) => {
                let (outcome, value) = one.action.apply(values[one.key as usize]);
                next[one.key as usize] = value;
                one.returned.is_none_or(|(_, returned)| returned == outcome)
            }
            None => transactions[at - operations.len()].accesses.iter().all(|access| {
                let held = &mut next[access.key as usize];
                let fits = access.read.is_none_or(|read| read == *held);
                *held = access.write.unwrap_or(*held);
                fits
            }),
        };
        placed.push(at);
        let is_possible = fits && by_force(operations, transactions, placed, &next);
        placed.pop();
        if is_possible {
            return true;
        }
    }
    false
}

#[test]
fn the_search_agrees_with_brute_force() {
    let mut dice = Dice::new(1);
    let mut wrong = 0;
    for round in 0..4000 {
        let (operations, transactions) = history(&mut dice, 2, 6);
        if transactions.is_empty() {
            continue;
        }
        let values: Vec<_> = (0..2).map(first).collect();
        let is_possible = by_force(&operations, &transactions, &mut Vec::new(), &values);
        let judgement = judge(&operations, &transactions);
        assert_eq!(
            judgement == Judgement::Serializable,
            is_possible,
            "{round}: {operations:?} {transactions:?}"
        );
        wrong += usize::from(!is_possible);
    }
    assert!((400..3600).contains(&wrong), "{wrong}");
}

#[test]
fn one_key_is_judged_as_by_the_checker_of_one_key() {
    let (mut dice, mut checker) = (Dice::new(2), Checker::new());
    // A commit that neither reads nor writes its key makes the check cover it.
    let covers = Access { key: 0, read: None, write: None };
    let covers = [Transaction { client: 0, accesses: vec![covers], begun: 0, invoked: 0, returned: None }];
    for _ in 0..4000 {
        let (operations, _) = history(&mut dice, 1, 12);
        let verdict = checker.check(&operations, first(0), BUDGET);
        let is_right = is_right(&operations, &covers);
        assert_eq!(is_right, matches!(verdict, Verdict::Linearizable { .. }), "{operations:?}");
    }
}
