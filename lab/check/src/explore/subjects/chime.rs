//! CHIME under exploration, with pairs in blocks and with values in its leaves: writers lock, so
//! they wait until the lease of a lock's holder expires.
//!
//! Leaves have few slots, so that a few keys fill neighbourhoods and split them, and there are few
//! enough locks that nodes share them.

use super::super::fault::Fault;
use super::super::op::Op;
use super::super::scenario::{self, Scenario};
use super::super::subject::{Promises, Subject};
use darter_baselines::{Chime, ChimeOptions, Records, chime_situations};
use darter_index::checker::Situation;
use darter_pool::AllocKind;
use darter_sim::Sim;
use std::marker::PhantomData;

/// The subject, with these records.
pub(super) struct OfChime<R>(PhantomData<R>);

/// The contents of the leaves.
pub(super) trait Held: 'static {
    const NAME: &'static str;
    const RECORDS: Records;
}

/// Pointers.
pub(super) struct Pointers;

/// Values of one word.
pub(super) struct Values;

impl Held for Pointers {
    const NAME: &'static str = "chime";
    const RECORDS: Records = Records::Any;
}

impl Held for Values {
    const NAME: &'static str = "chime-inline";
    const RECORDS: Records = Records::Inline { key_bytes: 8, value_bytes: 8 };
}

const NODE_BYTES: u32 = 512;
const SPAN: u8 = 16;
const LOCK_WORDS: u32 = 4;

impl<R: Held> Subject for OfChime<R> {
    type Index = Chime<Sim>;

    const NAME: &'static str = R::NAME;

    const PROMISES: Promises = Promises {
        survives: &Fault::BESIDE_LOCKS,
        trips_while_stopped: None,
        may_lose_values: false,
        exact_uses: false,
        exact_memory: false,
    };

    const WARM: &'static [(u64, AllocKind)] = &[
        (NODE_BYTES as u64, AllocKind::Inner),
        (576, AllocKind::Inner),
        (48, AllocKind::Leaf),
        (80, AllocKind::Leaf),
        (128, AllocKind::Leaf),
    ];

    fn options() -> ChimeOptions {
        ChimeOptions {
            span: SPAN,
            node_bytes: NODE_BYTES,
            lock_words: LOCK_WORDS,
            ..ChimeOptions::default().records(R::RECORDS)
        }
    }

    fn scenarios() -> Vec<Scenario> {
        let span = usize::from(SPAN);
        let mut all = vec![
            scenario::row(3),
            scenario::row(span as u16 * 3),
            root_full(span),
            leaf_full(span),
            parent_full(span),
            merge("lower", span, 0),
            merge("merge", span, span),
            merge("merge", span, span).churning(),
            leaf_full(span).churning(),
            fixed_empty(),
            hopping(span),
        ];
        if let Records::Inline { value_bytes, .. } = R::RECORDS {
            return all.into_iter().map(|scenario| scenario.with_values([value_bytes.into(); 3])).collect();
        }
        all.extend(scenario::common());
        all.push(scenario::contest());
        all.push(fences());
        all
    }

    fn situations() -> Vec<Situation> {
        chime_situations()
    }
}

/// A key of eight bytes.
fn key(group: u8, at: usize) -> Vec<u8> {
    [&[b'k', b'e', b'y', b'-', group], &(at as u16).to_be_bytes()[..], &[0]].concat()
}

/// An empty index for bulk loads, with keys of eight bytes.
fn fixed_empty() -> Scenario {
    Scenario::new("unloaded", [key(b'a', 0), key(b'b', 3), key(b'c', 0)], &[]).loading()
}

/// Two nearly full leaves in which keys come and go, so that others hop.
fn hopping(span: usize) -> Scenario {
    const OPS: &[Op] = &[
        Op::Insert(0),
        Op::Delete(0),
        Op::Insert(2),
        Op::Delete(2),
        Op::Get(1),
        Op::Get(0),
        Op::Scan(false),
        Op::Scan(true),
        Op::MultiGet,
    ];
    let hot = [key(b'b', 1), key(b'b', 5), key(b'b', 9)];
    let filler = (0..span * 3 / 2).map(|at| key(b'b', at * 2));
    Scenario::new("leaf", hot, &[1]).with_filler(filler).doing("hopping", OPS)
}

/// A root that is a full leaf.
fn root_full(span: usize) -> Scenario {
    let hot = [key(b'a', 0), key(b'b', 3), key(b'c', 0)];
    Scenario::new("root-full", hot, &[0]).with_filler((0..span - 3).map(|at| key(b'b', at * 2)))
}

/// Two leaves of which the right one is nearly full: hot keys split it.
fn leaf_full(span: usize) -> Scenario {
    let hot = [key(b'c', 0), key(b'b', span * 3), key(b'b', 1)];
    Scenario::new("leaf-full", hot, &[0]).with_filler((0..span * 3 / 2 - 1).map(|at| key(b'b', at * 2)))
}

/// A root about to split, above leaves of which one is about to split.
fn parent_full(span: usize) -> Scenario {
    let hot = [key(b'd', 0), key(b'd', 1), key(b'd', 2)];
    Scenario::new("parent-full", hot, &[]).with_filler((0..span / 2 * CHILDREN).map(|at| key(b'b', at)))
}

/// Approximate number of children of an inner node.
const CHILDREN: usize = 30;

/// A leaf of two hot keys to the right of a half-full one, with `beyond` keys to the right of both.
fn merge(name: &str, span: usize, beyond: usize) -> Scenario {
    let hot = [key(b'm', 1), key(b'm', 2), key(b'm', 3)];
    let half = span / 2 + 1;
    let right = (0..half).map(|at| key(b'm', at + 4));
    let left = (0..span * 3 / 5).map(|at| key(b'b', at)).chain((0..beyond).map(|at| key(b'z', at)));
    Scenario::new(name, hot, &[0, 1]).with_filler(left).with_former(right)
}

/// Nodes full of keys of several hundred equal bytes, so that fences are too long for a node.
fn fences() -> Scenario {
    let key = |at: usize| [&[b'f'; 300][..], &[at as u8]].concat();
    Scenario::new("fences", [key(1), key(3), key(99)], &[0])
        .with_filler((1..usize::from(SPAN) - 2).map(|at| key(at * 2)))
}
