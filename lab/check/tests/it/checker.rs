//! The linearizability checker compared with other checkers (histories known by construction, brute
//! force, a published checker), and its effort on long histories.
//!
//! All histories are drawn from fixed seeds.

use std::cell::Cell;

use super::histories::{Mix, disturb, executed, perturbed, sketches, stretched};
use super::judges::{assert_respects, longest_by_brute_force, published_checker_accepts};
use darter_check::history::{Action, Operation, Outcome};
use darter_check::linear::{Checker, Verdict, explain};
use proptest::test_runner::{Config, RngSeed, TestRunner};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Enough for every small history.
const BUDGET: u64 = 1_000_000;

fn runner(cases: u32, seed: u64) -> TestRunner {
    let rng_seed = RngSeed::Fixed(seed);
    TestRunner::new(Config { cases, rng_seed, failure_persistence: None, ..Config::default() })
}

fn judged(checker: &mut Checker, operations: &[Operation], initial: Option<u64>) -> bool {
    let verdict = checker.check(operations, initial, BUDGET);
    assert_respects(operations, initial, &verdict);
    match verdict {
        Verdict::Linearizable { .. } => true,
        Verdict::Violation { .. } => false,
        Verdict::Unknown { .. } => panic!("{}", explain(operations, initial, &verdict)),
    }
}

#[test]
fn a_stretched_sequential_execution_is_linearizable() {
    runner(5_000, 1)
        .run(&sketches(1..=30), |(initial, sketches)| {
            let operations = stretched(initial, &sketches);
            assert!(judged(&mut Checker::new(), &operations, initial));
            Ok(())
        })
        .unwrap();
}

#[test]
fn brute_force_agrees_and_finds_no_longer_partial_order() {
    let (right, wrong) = (Cell::new(0), Cell::new(0));
    runner(20_000, 2)
        .run(&perturbed(1..=6), |(initial, operations)| {
            let longest = longest_by_brute_force(&operations, initial);
            let answered = operations.iter().filter(|operation| operation.returned.is_some()).count();
            let mut checker = Checker::new();
            assert_eq!(judged(&mut checker, &operations, initial), longest == answered);
            if let Verdict::Violation { longest: found, blocked } =
                checker.check(&operations, initial, BUDGET)
            {
                let placed = found.iter().filter(|&&index| operations[index].returned.is_some()).count();
                assert_eq!(placed, longest);
                assert!(!blocked.is_empty());
                wrong.set(wrong.get() + 1);
            } else {
                right.set(right.get() + 1);
            }
            Ok(())
        })
        .unwrap();
    println!("{} linearizable, {} not", right.get(), wrong.get());
    assert!(right.get() > 5_000 && wrong.get() > 5_000);
}

#[test]
fn a_published_checker_agrees() {
    let mut checker = Checker::new();
    let (mut right, mut wrong, mut with_pending) = (0, 0, [0, 0]);
    for seed in 0..12_000 {
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let count = 2 + dice.random_range(0..6_usize);
        let mix = Mix {
            clients: 1 + dice.random_range(0..5_usize),
            values: Some(1 + dice.random_range(0..3_u64)),
            pending: 12,
        };
        let initial = (dice.random_bool(0.5)).then_some(0);
        let mut operations = executed(&mut dice, mix, initial, count);
        for _ in 0..dice.random_range(0..3) {
            disturb(&mut dice, &mut operations);
        }
        let verdict = judged(&mut checker, &operations, initial);
        assert_eq!(verdict, published_checker_accepts(&operations, initial), "seed {seed}: {operations:?}");
        *(if verdict { &mut right } else { &mut wrong }) += 1;
        if operations.iter().any(|operation| operation.returned.is_none()) {
            with_pending[usize::from(verdict)] += 1;
        }
    }
    println!(
        "{right} linearizable, {wrong} not; with pending operations, of those that are not and are: {with_pending:?}"
    );
    assert!(right > 3_000 && wrong > 3_000);
    assert!(with_pending[0] > 1_000 && with_pending[1] > 1_000);
}

/// Operations of a long history.
const LONG: usize = 20_000;

/// Returns a long history of 16 clients that are always busy.
fn long(seed: u64, values: Option<u64>, pending: u64) -> Vec<Operation> {
    executed(&mut Pcg64Mcg::seed_from_u64(seed), Mix { clients: 16, values, pending }, None, LONG)
}

#[test]
fn long_histories_take_few_steps() {
    let mut checker = Checker::new();
    for (values, steps_per_operation) in [(None, 2), (Some(4), 4), (Some(1000), 10)] {
        for seed in 0..4 {
            let mut operations = long(seed, values, 0);
            // And two that overlap all others.
            let end = operations.iter().filter_map(|operation| Some(operation.returned?.0)).max().unwrap();
            let endless = |action, outcome| Operation {
                client: 99,
                key: 7,
                action,
                invoked: 0,
                returned: Some((end, outcome)),
            };
            operations.push(endless(Action::Get, Outcome::Found(None)));
            operations.push(endless(Action::Update(1), Outcome::Refused));
            let verdict = checker.check(&operations, None, steps_per_operation * LONG as u64);
            println!("{values:?} values, seed {seed}: {} steps", checker.steps());
            assert!(matches!(verdict, Verdict::Linearizable { .. }));
            assert_respects(&operations, None, &verdict);
        }
    }
}

#[test]
fn long_histories_with_pending_operations_take_bounded_steps() {
    let mut checker = Checker::new();
    for (values, rarity, steps) in [(None, 200, 1_000_000), (None, 40, 2_000_000), (Some(4), 200, 1_000_000)]
    {
        for seed in 0..3 {
            let operations = long(seed, values, rarity);
            let pending = operations.iter().filter(|operation| operation.returned.is_none()).count();
            assert!(pending > 50);
            let verdict = checker.check(&operations, None, steps);
            println!("{values:?} values, {pending} pending, seed {seed}: {} steps", checker.steps());
            assert!(matches!(verdict, Verdict::Linearizable { .. }));
            assert_respects(&operations, None, &verdict);
        }
    }
}

#[test]
fn one_wrong_result_in_a_long_history_is_found() {
    let mut checker = Checker::new();
    for seed in 0..3 {
        for (values, rarity) in [(None, 0), (Some(4), 0), (None, 200)] {
            let mut operations = long(seed, values, rarity);
            let middle = |fits: fn(Outcome) -> bool| {
                let fits =
                    |operation: &Operation| operation.returned.is_some_and(|(_, outcome)| fits(outcome));
                LONG / 2 + operations[LONG / 2..].iter().position(fits).unwrap()
            };
            if rarity == 0 {
                // A removal is reported to another client as well.
                let removal = middle(|outcome| outcome == Outcome::Deleted(true));
                operations.insert(removal, Operation { client: 99, ..operations[removal] });
            } else {
                // A value is read that was overwritten long before.
                let read = middle(|outcome| matches!(outcome, Outcome::Found(Some(_))));
                let (returned, _) = operations[read].returned.unwrap();
                let put = |operation: &Operation| match operation.action {
                    Action::Put(value) if operation.returned.is_some() => Some(Outcome::Found(Some(value))),
                    _ => None,
                };
                let stale = operations[LONG / 4..].iter().find_map(put).unwrap();
                operations[read].returned = Some((returned, stale));
            }
            let verdict = checker.check(&operations, None, 10_000_000);
            println!("{values:?} values, seed {seed}: {} steps", checker.steps());
            assert_respects(&operations, None, &verdict);
            let Verdict::Violation { longest, blocked } = verdict else { panic!("{verdict:?}") };
            assert!(longest.len() > LONG / 4 && !blocked.is_empty());
        }
    }
}
