//! Handwritten histories, known to be right or wrong, and their rendering.

use std::collections::BTreeMap;

use super::{Checker, Verdict, explain};
use crate::history::{Action, Operation, Outcome};
use Action::{Delete, Get, Insert, Put, Replace, Update};
use Outcome::{Deleted, Found, Inserted, Refused, Replaced};

const BUDGET: u64 = 10_000;

/// A completed operation.
fn done(client: u32, invoked: u64, returned: u64, action: Action, outcome: Outcome) -> Operation {
    Operation { client, key: 7, action, invoked, returned: Some((returned, outcome)) }
}

/// A pending operation.
fn cut(client: u32, invoked: u64, action: Action) -> Operation {
    Operation { client, key: 7, action, invoked, returned: None }
}

fn right(initial: Option<u64>, operations: &[Operation]) -> Vec<usize> {
    match Checker::new().check(operations, initial, BUDGET) {
        Verdict::Linearizable { order } => order,
        other => panic!("{}", explain(operations, initial, &other)),
    }
}

fn wrong(initial: Option<u64>, operations: &[Operation]) -> (Vec<usize>, Vec<usize>) {
    match Checker::new().check(operations, initial, BUDGET) {
        Verdict::Violation { longest, blocked } => (longest, blocked),
        other => panic!("{}", explain(operations, initial, &other)),
    }
}

#[test]
fn nothing_is_linearizable() {
    assert!(right(None, &[]).is_empty());
    assert!(right(None, &[cut(0, 1, Put(1)), cut(1, 2, Get), cut(2, 2, Delete)]).is_empty());
}

#[test]
fn a_read_after_a_write_returned_must_see_it() {
    let put = done(0, 1, 2, Put(5), Replaced);
    let order = right(Some(4), &[put, done(1, 3, 4, Get, Found(Some(5)))]);
    assert_eq!(order, [0, 1]);
    let (longest, blocked) = wrong(Some(4), &[put, done(1, 3, 4, Get, Found(Some(4)))]);
    assert_eq!((longest, blocked), (vec![0], vec![1]), "a stale read");
}

#[test]
fn an_overlapping_read_may_see_either_value() {
    let put = done(0, 1, 4, Put(5), Replaced);
    assert_eq!(right(Some(4), &[put, done(1, 2, 3, Get, Found(Some(4)))]), [1, 0]);
    assert_eq!(right(Some(4), &[put, done(1, 2, 3, Get, Found(Some(5)))]), [0, 1]);
}

#[test]
fn a_value_once_seen_stays_seen() {
    let put = done(0, 1, 9, Put(5), Replaced);
    let new_then_old = [put, done(1, 2, 3, Get, Found(Some(5))), done(2, 4, 5, Get, Found(Some(4)))];
    wrong(Some(4), &new_then_old);
    let old_then_new = [put, done(1, 2, 3, Get, Found(Some(4))), done(2, 4, 5, Get, Found(Some(5)))];
    assert_eq!(right(Some(4), &old_then_new), [1, 0, 2]);
}

#[test]
fn an_update_must_not_be_lost() {
    // Both replaced 1, each by its own value: a compare-and-swap that both won.
    let first = done(0, 1, 4, Replace { expected: 1, value: 2 }, Replaced);
    let second = done(1, 2, 3, Replace { expected: 1, value: 3 }, Replaced);
    let (longest, blocked) = wrong(Some(1), &[first, second]);
    assert_eq!((longest.len(), blocked.len()), (1, 1));
    right(Some(1), &[first, done(1, 2, 3, Replace { expected: 1, value: 3 }, Refused)]);

    // Two plain writes, the later of which is lost.
    let writes = [done(0, 1, 2, Put(8), Replaced), done(1, 3, 4, Update(9), Replaced)];
    wrong(Some(1), &[writes[0], writes[1], done(0, 5, 6, Get, Found(Some(8)))]);
    right(Some(1), &[writes[0], writes[1], done(0, 5, 6, Get, Found(Some(9)))]);
}

#[test]
fn one_of_two_inserts_finds_the_other() {
    let one = done(0, 1, 4, Insert(1), Inserted);
    wrong(None, &[one, done(1, 2, 3, Insert(2), Inserted)]);
    assert_eq!(right(None, &[one, done(1, 2, 3, Insert(2), Refused)]), [0, 1]);
    // A removal between them, even a pending one, makes both possible.
    right(None, &[one, done(1, 2, 3, Insert(2), Inserted), cut(2, 1, Delete)]);
    wrong(None, &[one, done(1, 2, 3, Insert(2), Inserted), cut(2, 5, Delete)]);
}

#[test]
fn what_is_removed_once_is_not_removed_twice() {
    let one = done(0, 1, 4, Delete, Deleted(true));
    wrong(Some(3), &[one, done(1, 2, 3, Delete, Deleted(true))]);
    right(Some(3), &[one, done(1, 2, 3, Delete, Deleted(false))]);
    right(Some(3), &[one, done(1, 2, 3, Delete, Deleted(true)), cut(2, 3, Put(1))]);
    wrong(None, &[one]);
}

#[test]
fn a_pending_write_may_be_seen_or_not_but_not_unseen_again() {
    let write = cut(0, 1, Put(5));
    let old = |at| done(1, at, at + 1, Get, Found(Some(4)));
    let new = |at| done(2, at, at + 1, Get, Found(Some(5)));
    assert_eq!(right(Some(4), &[write, old(2), old(4)]), [1, 2]);
    assert_eq!(right(Some(4), &[write, new(2), new(4)]), [0, 1, 2]);
    assert_eq!(right(Some(4), &[write, old(2), new(4)]), [1, 0, 2]);
    wrong(Some(4), &[write, new(2), old(4)]);
    // It cannot take effect before it was invoked.
    wrong(Some(4), &[cut(0, 6, Put(5)), new(2)]);
}

#[test]
fn pending_operations_may_need_each_other() {
    let chain = [cut(0, 1, Put(1)), cut(1, 1, Replace { expected: 1, value: 2 }), cut(2, 1, Update(3))];
    assert_eq!(right(None, &[chain[0], chain[1], done(3, 5, 6, Get, Found(Some(2)))]), [0, 1, 2]);
    assert_eq!(right(None, &[chain[0], chain[2], done(3, 5, 6, Get, Found(Some(3)))]), [0, 1, 2]);
    wrong(None, &[chain[1], chain[2], done(3, 5, 6, Get, Found(Some(3)))]);
    // Twins: each takes effect at most once.
    let inserts = |count| {
        let insert = |i| done(9, 10 * i, 10 * i + 1, Insert(i), Inserted);
        (1..=count).map(insert).collect::<Vec<_>>()
    };
    let deletes = [cut(0, 1, Delete), cut(1, 2, Delete), cut(2, 2, Delete)];
    right(None, &[&inserts(4)[..], &deletes].concat());
    wrong(None, &[&inserts(5)[..], &deletes].concat());
}

#[test]
fn a_value_never_written_is_never_read() {
    let read = done(1, 2, 3, Get, Found(Some(6)));
    let (longest, blocked) = wrong(None, &[done(0, 1, 4, Put(5), Inserted), read]);
    assert_eq!((longest, blocked), (vec![0], vec![1]));
}

#[test]
fn condition_is_judged_by_the_value_of_the_key() {
    let replace = |outcome| done(0, 3, 4, Replace { expected: 1, value: 2 }, outcome);
    let put = |outcome| done(1, 1, 2, Put(1), outcome);
    right(None, &[put(Inserted), replace(Replaced)]);
    wrong(None, &[put(Inserted), replace(Refused)]);
    right(Some(2), &[replace(Refused)]);
    right(None, &[replace(Refused)]);
    wrong(None, &[replace(Replaced)]);
    wrong(None, &[put(Replaced)]);
    wrong(None, &[done(0, 1, 2, Update(1), Replaced)]);
    right(None, &[done(0, 1, 2, Update(1), Refused)]);
    wrong(Some(1), &[done(0, 1, 2, Get, Deleted(true))]);
}

#[test]
fn equal_timestamps_overlap() {
    let read = done(1, 2, 3, Get, Found(Some(4)));
    right(Some(4), &[done(0, 1, 2, Put(5), Replaced), read]);
    wrong(Some(4), &[done(0, 0, 1, Put(5), Replaced), read]);
    let at_once = |client, value, found| {
        [done(client, 5, 5, Put(value), Replaced), done(client, 5, 5, Get, Found(Some(found)))]
    };
    right(Some(0), &[at_once(0, 1, 2), at_once(1, 2, 1)].concat());
}

#[test]
fn a_budget_of_one_step_leaves_it_unknown() {
    let mut checker = Checker::new();
    let operations = [done(0, 1, 2, Put(5), Inserted), done(1, 3, 4, Get, Found(Some(5)))];
    assert_eq!(checker.check(&operations, None, 1), Verdict::Unknown { steps: 1 });
    assert_eq!(checker.is_linearizable(&operations, None, 1), None);
    assert_eq!(checker.check(&operations, None, 2), Verdict::Linearizable { order: vec![0, 1] });
    assert_eq!(checker.steps(), 2);
}

#[test]
fn more_clients_than_a_word_has_bits() {
    // All operations overlap: each replaces the value of the one before it, and one is slower than
    // all others.
    for count in [63, 64, 65, 200] {
        let link = |i: u64| done(i as u32, i % 5, 1000, Replace { expected: i, value: i + 1 }, Replaced);
        let mut operations: Vec<Operation> = (0..count).rev().map(link).collect();
        right(Some(0), &operations);
        operations.push(done(0, 0, 2000, Get, Found(Some(count / 2))));
        operations.push(done(0, 1500, 2000, Get, Found(Some(count))));
        right(Some(0), &operations);
        operations.push(done(0, 1500, 2000, Get, Found(Some(count / 2))));
        let (longest, blocked) = wrong(Some(0), &operations);
        assert_eq!((longest.len(), blocked), (operations.len() - 1, vec![operations.len() - 1]));
    }
}

#[test]
fn a_whole_history_is_judged_by_key() {
    let of = |key, operation: Operation| Operation { key, ..operation };
    let mut history = vec![
        of(2, done(0, 1, 2, Get, Found(Some(20)))),
        of(1, done(0, 3, 4, Get, Found(None))),
        of(2, done(0, 5, 6, Put(21), Replaced)),
    ];
    let initial = BTreeMap::from([(2, 20)]);
    let mut checker = Checker::new();
    let report = checker.check_all(&history, &initial, BUDGET);
    assert!(report.is_linearizable());
    assert_eq!((report.keys, report.steps, report.longest_history), (2, 3, 2));

    let failure = checker.check_all(&history, &initial, 1).failure.expect("one step is not enough");
    assert_eq!((failure.key, failure.verdict), (2, Verdict::Unknown { steps: 1 }));

    history.push(of(3, done(0, 7, 8, Delete, Deleted(true))));
    history.push(of(4, done(0, 7, 8, Delete, Deleted(true))));
    let report = checker.check_all(&history, &initial, 1);
    let failure = report.failure.expect("the history has a violation");
    assert_eq!(
        (failure.key, failure.operations.len(), report.keys),
        (3, 1, 3),
        "a violation takes precedence over an unknown verdict"
    );
    assert_eq!(failure.verdict, Verdict::Violation { longest: vec![], blocked: vec![0] });
    assert!(failure.explain().contains("would be nothing to delete"));
}

#[test]
fn a_violation_is_drawn() {
    let operations = [
        done(0, 10, 40, Put(5), Replaced),
        done(1, 20, 30, Get, Found(Some(5))),
        done(2, 50, 60, Get, Found(Some(4))),
        cut(3, 55, Put(6)),
        done(1, 70, 70, Delete, Deleted(true)),
    ];
    let verdict = Checker::new().check(&operations, Some(4), BUDGET);
    let text = explain(&operations, Some(4), &verdict);
    let expected = "\
key 7, at first 4, 5 operations, 4 of them completed: NOT linearizable
at most 2 of the completed ones fit one order, as ranked; the key then holds 5, and none marked ! can come next
  rank  index  client  interval             what
     1      0       0  10..40               [==]       put 5 -> replaced
     2      1       1  20..30                []        get -> found 5
     !      2       2  50..60                   [=]    get -> found 4 (would be found 5)
     -      3       3  55..                      [==>  put 6 -> pending
     -      4       1  70..70                      |   delete -> deleted
";
    assert_eq!(text, expected, "\n{text}");
}
