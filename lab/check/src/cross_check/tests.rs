//! What the second judge accepts, what it finds, and what it gives up. Agreement with the first on
//! random histories is in `tests/it/checker.rs`.

use super::*;
use crate::history::Outcome;

fn operation(invoked: u64, returned: Option<(u64, Outcome)>, action: Action) -> Operation {
    Operation { client: 0, key: 0, action, invoked, returned }
}

fn put(value: u64, invoked: u64, returned: u64, outcome: Outcome) -> Operation {
    operation(invoked, Some((returned, outcome)), Action::Put(value))
}

fn get(found: Option<u64>, invoked: u64, returned: u64) -> Operation {
    operation(invoked, Some((returned, Outcome::Found(found))), Action::Get)
}

fn judged(operations: &[Operation]) -> (Opinion, Counts) {
    let mut counts = Counts::default();
    let opinion = judge(operations, None, &mut counts);
    (opinion, counts)
}

/// A thousand puts and searches, one after another.
fn sequential() -> Vec<Operation> {
    let mut operations = vec![put(0, 0, 5, Outcome::Inserted)];
    for n in 1..500 {
        operations.push(put(n, 20 * n, 20 * n + 5, Outcome::Replaced));
        operations.push(get(Some(n), 20 * n + 10, 20 * n + 15));
    }
    operations
}

#[test]
fn a_long_history_is_judged_in_short_segments() {
    let operations = sequential();
    let (opinion, counts) = judged(&operations);
    assert_eq!(opinion, Opinion::Linearizable);
    assert_eq!((counts.histories, counts.operations), (1, operations.len() as u64));
    assert!(counts.segments > 20 && counts.longest_segment < 64, "{counts:?}");
}

#[test]
fn wrong_answers_are_found_and_shown() {
    for (at, lie) in [
        (600, Outcome::Found(Some(12))),
        (600, Outcome::Found(None)),
        (600, Outcome::Found(Some(u64::MAX - 1))),
        (601, Outcome::Inserted),
        (998, Outcome::Found(Some(3))),
    ] {
        let mut operations = sequential();
        let (returned, _) = operations[at].returned.unwrap();
        operations[at].returned = Some((returned, lie));
        let (opinion, counts) = judged(&operations);
        let Opinion::Violation(text) = opinion else { panic!("{at} {lie:?}: {opinion:?}") };
        assert!(text.contains(&format!("{lie:?}")), "{text}");
        assert_eq!((counts.violations, counts.histories), (1, 0));
    }
}

/// Two clients are told that they removed the same key, at the same time.
#[test]
fn a_key_removed_twice_is_a_violation() {
    let delete =
        |invoked, returned| operation(invoked, Some((returned, Outcome::Deleted(true))), Action::Delete);
    let twice = [put(1, 0, 5, Outcome::Inserted), delete(10, 30), delete(12, 28), get(None, 40, 45)];
    assert!(matches!(judged(&twice).0, Opinion::Violation(_)));
    let mut once = twice;
    once[2].returned = Some((28, Outcome::Deleted(false)));
    assert_eq!(judged(&once).0, Opinion::Linearizable);
}

#[test]
fn a_pending_operation_takes_effect_once_or_never() {
    let mut operations = sequential();
    let middle = 5_008;
    let pending = |action| operation(middle, None, action);
    operations.push(pending(Action::Delete));
    operations.push(pending(Action::Get));
    operations.push(pending(Action::Put(7_777)));
    assert_eq!(judged(&operations).0, Opinion::Linearizable);
    let inserted = |operations: &mut Vec<Operation>, at: usize| {
        let (returned, _) = operations[at].returned.unwrap();
        operations[at].returned = Some((returned, Outcome::Inserted));
    };
    // The deletion took effect long after, before a put that found nothing.
    inserted(&mut operations, 801);
    let (opinion, counts) = judged(&operations);
    assert_eq!((opinion, counts.pending_used), (Opinion::Linearizable, 1));
    // But only once.
    inserted(&mut operations, 901);
    let (opinion, counts) = judged(&operations);
    assert_eq!((opinion, counts.segments_given_up), (Opinion::Undecided, 1));
    // And not before it was invoked.
    inserted(&mut operations, 401);
    assert!(matches!(judged(&operations).0, Opinion::Violation(_)));
}

/// A pending write whose value was found did take effect, and before that.
#[test]
fn a_pending_write_that_was_found_is_no_longer_optional() {
    let pending = operation(10, None, Action::Put(2));
    let history =
        |found| [put(1, 0, 5, Outcome::Inserted), pending, get(Some(2), 20, 25), get(Some(found), 30, 35)];
    assert_eq!(judged(&history(2)).0, Opinion::Linearizable);
    assert!(matches!(judged(&history(1)).0, Opinion::Violation(_)));
    let late = operation(26, None, Action::Put(2));
    let early = [put(1, 0, 5, Outcome::Inserted), get(Some(2), 20, 25), late];
    assert!(matches!(judged(&early).0, Opinion::Violation(_)));
}

/// Of many pending writes of which any would do, few are offered; but not instead of the one that
/// nothing else replaces.
#[test]
fn a_pending_write_that_is_told_apart_is_always_offered() {
    let mut operations = vec![put(1, 0, 5, Outcome::Inserted)];
    operations.extend((0..40).map(|n| operation(10, None, Action::Put(100 + n))));
    operations.push(get(Some(1), 20, 25));
    operations.push(operation(30, None, Action::Replace { expected: 139, value: 2 }));
    operations.push(get(Some(2), 40, 45));
    assert_eq!(judged(&operations).0, Opinion::Linearizable);
    // Nobody has written what it expects.
    operations[40].action = Action::Put(99);
    assert!(matches!(judged(&operations).0, Opinion::Violation(_)));
}

/// More than the outside checker can do is said to be so.
#[test]
fn what_is_too_long_is_given_up_and_counted() {
    let mut operations = sequential();
    // Ten at a time that all overlap the next ten.
    operations.extend((0..6_000).map(|n| get(Some(499), 20_000 + n, 20_010 + n)));
    let (opinion, counts) = judged(&operations);
    assert_eq!(opinion, Opinion::Undecided);
    assert_eq!((counts.segments_given_up, counts.operations_given_up), (1, 6_000));
    assert_eq!((counts.histories_undecided, counts.operations), (1, 999));
}
