//! The scenarios: keys 0, 1 and 2 are called x, y and z.

use crate::scenario::Op::{Delete, Get, Insert, Modify, Put, Snapshot, Transaction};
use crate::scenario::{Keys, Op, Scenario};

const X: usize = 0;
const Y: usize = 1;
const Z: usize = 2;
const BOTH: Keys = &[X, Y];

const fn transaction(reads: Keys, writes: Keys) -> Op {
    Transaction { reads, writes, deletes: &[] }
}

const TRANSFER: Op = transaction(BOTH, BOTH);
const REVERSE: Op = transaction(&[Y, X], &[Y, X]);
const MOVE: Op = Transaction { reads: BOTH, writes: BOTH, deletes: &[Y] };
const COPY: Op = transaction(&[X], &[Y]);
const BLIND: Op = transaction(&[], BOTH);
const READS: Op = transaction(BOTH, &[]);

/// Scenarios that take seconds.
pub(crate) fn small() -> Vec<Scenario> {
    let new = Scenario::new;
    vec![
        new("a transfer, a put and gets", &[], &[&[TRANSFER], &[Put(X)], &[Get(Y), Get(X)]]),
        new("a copy, a put and gets", &[], &[&[COPY], &[Put(X)], &[Get(Y), Get(X)]]),
        new("write skew", &[], &[&[transaction(BOTH, &[X])], &[transaction(BOTH, &[Y])]]),
        new(
            "copies in opposite directions and gets",
            &[],
            &[&[COPY], &[transaction(&[Y], &[X])], &[Get(X), Get(Y)]],
        ),
        new("transfers in opposite orders and a get", &[], &[&[TRANSFER], &[REVERSE], &[Get(X)]]),
        new("a transfer, a put and a snapshot", &[], &[&[TRANSFER], &[Put(X)], &[Snapshot(BOTH)]]),
        new("a copy, a put and a snapshot", &[], &[&[COPY], &[Put(X)], &[Snapshot(BOTH)]]),
        new("a transfer, modifications and gets", &[], &[&[TRANSFER], &[Modify(X), Modify(Y)], &[Get(X)]]),
        new("an absent key in a transfer, and gets", &[X], &[&[TRANSFER], &[Insert(X)], &[Get(X), Get(Y)]]),
        new(
            "a move, and an insert and a delete",
            &[X],
            &[&[MOVE], &[Insert(Y), Delete(X)], &[Get(Y), Get(X)]],
        ),
        new("a transaction that reads, and puts", &[], &[&[READS], &[Put(X), Put(Y)], &[Get(Y)]]),
        new("blind writes and gets", &[], &[&[BLIND], &[Put(X)], &[Get(X), Get(Y)]]),
        new(
            "keys that are absent alternately, and a snapshot",
            &[X],
            &[&[Snapshot(BOTH)], &[Put(X), Delete(Y), Put(Y), Delete(X), Put(X), Delete(Y)]],
        ),
        new(
            "one absent key of three, and a snapshot",
            &[Y],
            &[&[Snapshot(&[X, Y, Z])], &[Put(Y), Put(Z), Put(X), Delete(Y)]],
        ),
    ]
}

/// Scenarios that take minutes.
pub(crate) fn large() -> Vec<Scenario> {
    let new = Scenario::new;
    vec![
        new(
            "a transfer, a put and gets of two clients",
            &[],
            &[&[TRANSFER], &[Put(X)], &[Get(Y)], &[Get(X)]],
        ),
        new("two transfers, a put and a get", &[], &[&[TRANSFER], &[REVERSE], &[Put(X)], &[Get(Y)]]),
        new(
            "write skew and a transaction that reads",
            &[],
            &[&[transaction(BOTH, &[X])], &[transaction(BOTH, &[Y])], &[READS]],
        ),
        new("two moves and a snapshot", &[X], &[&[MOVE], &[TRANSFER], &[Snapshot(BOTH)]]),
        new(
            "a ring of copies over three keys",
            &[],
            &[&[COPY], &[transaction(&[Y], &[Z])], &[transaction(&[Z], &[X])]],
        ),
        new(
            "two transfers of one client, a put and gets",
            &[],
            &[&[TRANSFER, MOVE], &[Put(Y)], &[Get(X), Get(Y)]],
        ),
    ]
}

/// The gets of both keys in either order, for a client that observes.
const GETS: [&[Op]; 2] = [&[Get(X), Get(Y)], &[Get(Y), Get(X)]];

const TRANSACTIONS: [Op; 7] = [TRANSFER, REVERSE, MOVE, READS, COPY, BLIND, transaction(BOTH, &[X])];

/// Every transaction with every program of `length` operations on single keys, and with gets.
pub(crate) fn programs(length: usize) -> Vec<Scenario> {
    let mut programs: Vec<Vec<Op>> = vec![vec![]];
    for _ in 0..length {
        let longer = programs.into_iter().flat_map(|program| {
            let single = |key| [Get(key), Put(key), Modify(key), Insert(key), Delete(key)];
            [X, Y].into_iter().flat_map(single).map(move |op| [program.as_slice(), &[op]].concat())
        });
        programs = longer.collect();
    }
    let mut all = Vec::new();
    for (transaction, program) in
        TRANSACTIONS.iter().flat_map(|op| programs.iter().map(move |more| (*op, more)))
    {
        for (absent, gets) in [(&[] as Keys, GETS[0]), (&[], GETS[1]), (&[X], GETS[0]), (&[X], GETS[1])] {
            all.push(Scenario::new("a program", absent, &[&[transaction], program, gets]));
        }
    }
    all
}

/// Every two transactions with gets.
pub(crate) fn pairs() -> Vec<Scenario> {
    let mut all = Vec::new();
    for first in TRANSACTIONS {
        for second in TRANSACTIONS {
            let both = |absent| Scenario::new("a pair", absent, &[&[first], &[second], GETS[0]]);
            all.extend([both(&[]), both(&[X])]);
        }
    }
    all
}
