//! Sherman under exploration, as well as FG+ and Sherman with values of three words in its leaves:
//! writers lock, so they wait until the lease of a lock's holder expires; a value in a leaf is lost
//! if its writer dies during the write.
//!
//! Nodes are small, so that a few keys split them, and there are few enough locks that nodes share
//! them.

use super::super::fault::Fault;
use super::super::op::Op;
use super::super::scenario::{self, Scenario};
use super::super::subject::{Promises, Subject};
use darter_baselines::{Records, Sherman, ShermanOptions, sherman_situations};
use darter_index::checker::Situation;
use darter_pool::AllocKind;
use darter_sim::Sim;
use std::marker::PhantomData;

/// The subject, with these techniques.
pub(super) struct OfSherman<T>(PhantomData<T>);

/// The techniques in use, and the kind of records.
pub(super) trait Techniques: 'static {
    const NAME: &'static str;
    /// Bytes of keys and values in leaves, if they are stored there.
    const INLINE: Option<(u16, u16)> = None;

    fn options() -> ShermanOptions;
}

/// All of Sherman's.
pub(super) struct All;

/// None except the cache: every write is one of a whole node.
pub(super) struct Plain;

/// All, with values in leaves.
pub(super) struct Inline;

impl Techniques for All {
    const NAME: &'static str = "sherman";

    fn options() -> ShermanOptions {
        ShermanOptions::sherman()
    }
}

impl Techniques for Plain {
    const NAME: &'static str = "fg-plus";

    fn options() -> ShermanOptions {
        ShermanOptions::fg_plus()
    }
}

impl Techniques for Inline {
    const NAME: &'static str = "sherman-inline";

    const INLINE: Option<(u16, u16)> = Some((8, 24));

    fn options() -> ShermanOptions {
        ShermanOptions::sherman()
    }
}

const NODE_BYTES: u32 = 512;
/// Slots of a leaf without fences, and of one with a fence: for pointers with digests, and for
/// inline pairs.
const SLOTS: (usize, usize) = (29, 28);
const SLOTS_INLINE: (usize, usize) = (11, 11);
const LOCK_WORDS: u32 = 4;

impl<T: Techniques> Subject for OfSherman<T> {
    type Index = Sherman<Sim>;

    const NAME: &'static str = T::NAME;

    const PROMISES: Promises = Promises {
        survives: &Fault::BESIDE_LOCKS,
        trips_while_stopped: None,
        may_lose_values: T::INLINE.is_some(),
        exact_uses: false,
        exact_memory: false,
    };

    const WARM: &'static [(u64, AllocKind)] = &[
        (NODE_BYTES as u64, AllocKind::Inner),
        (48, AllocKind::Leaf),
        (80, AllocKind::Leaf),
        (128, AllocKind::Leaf),
    ];

    fn options() -> ShermanOptions {
        let records = match T::INLINE {
            Some((key_bytes, value_bytes)) => Records::Inline { key_bytes, value_bytes },
            None => Records::Any,
        };
        let options = T::options().records(records);
        ShermanOptions { node_bytes: NODE_BYTES, lock_words: LOCK_WORDS, ..options }
    }

    fn scenarios() -> Vec<Scenario> {
        let (slots, fenced) = if T::INLINE.is_some() { SLOTS_INLINE } else { SLOTS };
        let mut all = vec![
            scenario::row(3),
            scenario::row(slots as u16 * 3),
            root_full(slots),
            leaf_full(slots, fenced),
            parent_full(slots),
            merge("lower", slots, 0),
            merge("merge", slots, slots),
            merge("merge", slots, slots).churning(),
            leaf_full(slots, fenced).churning(),
            fixed_empty(),
            shifting(slots),
        ];
        if let Some((_, bytes)) = T::INLINE {
            return all.into_iter().map(|scenario| scenario.with_values([bytes.into(); 3])).collect();
        }
        all.extend(scenario::common());
        all.push(scenario::contest());
        all.push(fences());
        all.push(tall());
        all.push(tall().churning());
        all
    }

    fn situations() -> Vec<Situation> {
        sherman_situations(T::INLINE.is_some())
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

/// A leaf in whose order keys come and go, so that all after them shift.
fn shifting(slots: usize) -> Scenario {
    const OPS: &[Op] = &[
        Op::Insert(0),
        Op::Delete(0),
        Op::Insert(2),
        Op::Delete(2),
        Op::Get(1),
        Op::Scan(false),
        Op::Scan(true),
        Op::MultiGet,
    ];
    let hot = [key(b'a', 0), key(b'c', 0), key(b'b', slots / 3)];
    let filler = (0..slots * 3 / 5).map(|at| key(b'b', at * 2));
    Scenario::new(
        "leaf",
        hot.map(|mut key| {
            key[7] = 1;
            key
        }),
        &[1],
    )
    .with_filler(filler)
    .doing("shifting", OPS)
}

/// Groups of which one key is left.
const HOT_GROUPS: [u8; 3] = [1, 3, 5];

/// Separators long enough that a node has few children: a tree of several levels, with leaves of
/// one hot key between full ones.
fn tall() -> Scenario {
    let key = |group: u8, at: u8| [&[b't'; 60][..], &[group, at]].concat();
    // Every other key first, then the others between them, which makes leaves nearly full.
    let every_other =
        |odd: u8| (0..5).flat_map(move |group| (0..18).map(move |at| key(group * 2, at * 2 + odd)));
    let former = HOT_GROUPS.into_iter().flat_map(|group| (0..40).map(move |at| key(group, at)));
    let hot = HOT_GROUPS.map(|group| key(group, 20));
    let former = former.filter(|key| !hot.contains(key)).collect::<Vec<_>>();
    let filler = every_other(0).chain(every_other(1));
    Scenario::new("tall", hot.clone(), &[0, 1, 2]).with_filler(filler).with_former(former)
}

/// A root that is a full leaf.
fn root_full(slots: usize) -> Scenario {
    let hot = [key(b'a', 0), key(b'b', 3), key(b'c', 0)];
    Scenario::new("root-full", hot, &[0]).with_filler((0..slots - 1).map(|at| key(b'b', at * 2)))
}

/// Two leaves of which the right one is full and holds one hot key: two other hot keys split it.
fn leaf_full(slots: usize, fenced: usize) -> Scenario {
    let hot = [key(b'c', 0), key(b'b', slots * 3), key(b'b', 1)];
    // In order, so that the root's split leaves half of its keys in the left one.
    let keys = slots.div_ceil(2) + fenced - 1;
    Scenario::new("leaf-full", hot, &[0]).with_filler((0..keys).map(|at| key(b'b', at * 2)))
}

/// A root about to split, above leaves of which one is about to split.
fn parent_full(slots: usize) -> Scenario {
    let hot = [key(b'd', 0), key(b'd', 1), key(b'd', 2)];
    let keys = slots.div_ceil(2) * CHILDREN;
    Scenario::new("parent-full", hot, &[]).with_filler((0..keys).map(|at| key(b'b', at)))
}

/// Approximate number of children of an inner node.
const CHILDREN: usize = 30;

/// A leaf of two hot keys to the right of a nearly full one, with `beyond` keys to the right of
/// both.
fn merge(name: &str, slots: usize, beyond: usize) -> Scenario {
    let hot = [key(b'm', 1), key(b'm', 2), key(b'm', 3)];
    let half = slots / 2 + 1;
    let right = (0..half).map(|at| key(b'm', at + 4));
    let left = (0..slots * 4 / 5).map(|at| key(b'b', at)).chain((0..beyond).map(|at| key(b'z', at)));
    Scenario::new(name, hot, &[0, 1]).with_filler(left).with_former(right)
}

/// Nodes full of keys of several hundred equal bytes, so that fences are too long for a node.
fn fences() -> Scenario {
    let key = |at: usize| [&[b'f'; 300][..], &[at as u8]].concat();
    Scenario::new("fences", [key(1), key(3), key(99)], &[0]).with_filler((1..SLOTS.0).map(|at| key(at * 2)))
}
