//! Scenarios from which runs begin: trees built so that the few operations of a run meet
//! interesting situations.
//!
//! A scenario names the keys that are in the tree and are not touched (*filler*), the few that
//! clients contend for (*hot*), and which of the hot keys are present at the beginning. The
//! scenarios here fit radix trees and B-link trees alike; the index determines how many keys fill a
//! node.

use super::op::Op;

/// The state from which runs begin.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // independent switches
pub struct Scenario {
    /// Its name in commands and replay lines, without slashes.
    pub name: String,
    /// The keys that clients contend for.
    pub hot: Vec<Vec<u8>>,
    /// The hot keys that are present at the beginning.
    pub present: &'static [usize],
    /// Keys that are present and never touched.
    pub filler: Vec<Vec<u8>>,
    /// Keys that are deleted again after the filler was put, which makes a node large before it is
    /// nearly empty.
    pub former: Vec<Vec<u8>>,
    /// The records of a page, and its delta slots, if they are not the index's usual ones.
    pub page: Option<(u32, u32)>,
    /// Sizes of values in bytes, at least 8: the number that a value encodes picks one. Filler has
    /// the first.
    pub value_bytes: [usize; 3],
    /// Whether clients use the operations `A`, `L` and `e`.
    pub adjusts: bool,
    /// Whether clients use the operations `B` and `U`.
    pub loads: bool,
    /// Whether clients use the operation `t`.
    pub transacts: bool,
    /// The operations of clients; all, if empty.
    pub ops: &'static [Op],
    /// Whether clients are threads of one process, or all but one are.
    pub shares: bool,
    /// Whether clients mostly unlink, restructure and free, and do so often.
    pub churns: bool,
    /// Whether half of the holds are before a READ, so that other clients write what it reads.
    pub tears: bool,
    /// Runs that begin here for each run that begins at a usual scenario.
    pub turns: u64,
}

/// The prefix of the node that grows or shrinks, deep enough for a hint to lead there.
const STEM: &[u8] = b"stem1234";

/// Returns a key below the stem.
fn stem(edge: u8) -> Vec<u8> {
    [STEM, &[edge]].concat()
}

fn numbered(keys: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..keys).map(|at| stem(at as u8 + 1))
}

impl Scenario {
    /// A scenario with these hot keys, of which some are present.
    pub fn new(
        name: impl Into<String>,
        hot: impl IntoIterator<Item = impl Into<Vec<u8>>>,
        present: &'static [usize],
    ) -> Self {
        Self {
            name: name.into(),
            hot: hot.into_iter().map(Into::into).collect(),
            present,
            filler: Vec::new(),
            former: Vec::new(),
            page: None,
            value_bytes: [8, 48, 88],
            adjusts: false,
            loads: false,
            transacts: false,
            ops: &[],
            shares: false,
            churns: false,
            tears: false,
            turns: 1,
        }
    }

    /// Adds filler, put in this order.
    #[must_use]
    pub fn with_filler(mut self, keys: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Self {
        self.filler = keys.into_iter().map(Into::into).collect();
        self
    }

    /// Adds keys that are put and deleted again.
    #[must_use]
    pub fn with_former(mut self, keys: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Self {
        self.former = keys.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the records of a page, and its delta slots.
    #[must_use]
    pub fn with_pages(mut self, records: u32, delta: u32) -> Self {
        self.page = Some((records, delta));
        self
    }

    /// Sets the sizes of values.
    #[must_use]
    pub fn with_values(mut self, bytes: [usize; 3]) -> Self {
        self.value_bytes = bytes.map(|bytes| bytes.max(8));
        self
    }

    /// Sets another name, and clients that unlink, restructure and free often: the same memory
    /// takes on several roles within a run.
    #[must_use]
    pub fn churning(mut self) -> Self {
        self.name = format!("churn-{}", self.name);
        self.churns = true;
        self
    }

    /// Sets another name, and clients that perform only these operations.
    #[must_use]
    pub fn doing(mut self, what: &str, ops: &'static [Op]) -> Self {
        self.name = format!("{what}-{}", self.name);
        self.ops = ops;
        self
    }

    /// Makes clients threads of one process, or all but one.
    #[must_use]
    pub fn sharing(mut self) -> Self {
        self.shares = true;
        self
    }

    /// Lets clients use the operations `B` and `U`.
    #[must_use]
    pub fn loading(mut self) -> Self {
        self.loads = true;
        self
    }

    /// Lets clients use the operation `t`.
    #[must_use]
    pub fn transacting(mut self) -> Self {
        self.transacts = true;
        self
    }

    /// Lets clients use the operations `A`, `L` and `e`.
    #[must_use]
    pub fn adjusting(mut self) -> Self {
        self.adjusts = true;
        self
    }

    /// Places half of the holds before a READ, with this many runs for each of a usual scenario.
    #[must_use]
    pub fn tearing(mut self, turns: u64) -> Self {
        self.tears = true;
        self.turns = turns;
        self
    }

    /// Returns the initial value of a hot key.
    pub fn initial(&self, key: usize) -> Option<u64> {
        self.present.contains(&key).then_some(1 + key as u64)
    }

    /// Returns the bytes that encode a value.
    pub fn value(&self, number: u64) -> Vec<u8> {
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.resize(self.value_bytes[(number % 3) as usize], number as u8);
        bytes
    }

    /// Returns the value that bytes encode; if they encode none, a number that no client writes.
    pub fn number(&self, bytes: &[u8]) -> u64 {
        match bytes.first_chunk() {
            Some(first) if self.value(u64::from_le_bytes(*first)) == bytes => u64::from_le_bytes(*first),
            _ => u64::MAX,
        }
    }
}

/// An empty tree; three keys under the root.
pub fn plain() -> Scenario {
    Scenario::new("plain", [b"a", b"b", b"c"], &[0])
}

/// Keys that are prefixes of each other, the empty key among them.
pub fn prefixes() -> Scenario {
    Scenario::new("prefixes", [&b""[..], b"a", b"ab"], &[0])
}

/// Two keys that share a long path, and a key that branches off in the middle.
pub fn split() -> Scenario {
    Scenario::new("split", [&b"path-to-one"[..], b"path-to-two", b"path-off"], &[0, 1])
}

/// A node with just two children, for deletes to empty.
pub fn pair() -> Scenario {
    // The last is a neighbour, so that the stem is a node's compressed path and not the root's only
    // child.
    let filler = [&b"stand"[..], b"stem-other"];
    Scenario::new("pair", [1, 2, 9].map(stem), &[0, 1]).with_filler(filler)
}

/// Keys of several hundred equal bytes.
pub fn chain() -> Scenario {
    let long = |len: usize, end: u8| [&vec![b'c'; len][..], &[end]].concat();
    Scenario::new("chain", [long(300, 1), long(300, 2), long(150, 3)], &[0, 1])
}

/// Values too long to be stored in a node, and a short one.
pub fn long() -> Scenario {
    Scenario::new("long", [b"long-1", b"long-2", b"long-3"], &[0, 1]).with_values([1100, 24, 5000])
}

/// A row of `keys` keys of 8 bytes, put in ascending order: in a B-link tree several adjacent
/// leaves, with hot keys in the first, in the middle and after the last.
pub fn row(keys: u16) -> Scenario {
    let key = |at: u16| [&b"row-00"[..], &at.to_be_bytes()].concat();
    let hot = [key(5), key(keys / 2 * 8 + 5), key(keys * 8 + 5)];
    Scenario::new(format!("row-{keys}"), hot, &[0, 1]).with_filler((0..keys).map(|at| key(at * 8)))
}

/// A node filled with `keys` keys, up to 249, so that an insert makes it grow or split.
pub fn grow(what: &str, keys: usize) -> Scenario {
    let mut filler: Vec<Vec<u8>> = numbered(keys).chain([b"stand".to_vec()]).collect();
    filler.sort();
    filler.dedup();
    Scenario::new(format!("grow-{what}"), [0, 251, 250].map(stem), &[]).with_filler(filler)
}

/// A node that held more than the `below` keys of the next smaller size and that one or two deletes
/// make sparse, so that it shrinks or merges with another.
pub fn shrink(what: &str, below: usize) -> Scenario {
    // With the two hot keys, one more than half of the capacity of the smaller node.
    let kept = (below / 2).saturating_sub(1);
    let mut filler: Vec<Vec<u8>> = numbered(kept).chain([b"stand".to_vec()]).collect();
    filler.sort();
    Scenario::new(format!("shrink-{what}"), [0, 251, 250].map(stem), &[0, 1])
        .with_filler(filler)
        .with_former(numbered(below + 1))
}

/// An empty index for bulk loads.
pub fn empty() -> Scenario {
    Scenario::new("empty", [&b"load-1"[..], b"load-2", b"lo"], &[]).loading()
}

/// A key that ends where others continue with a byte 0 or 1, under a node that stays.
pub fn ends() -> Scenario {
    Scenario::new("ends", [&b"end"[..], b"end\0", b"end\x01"], &[0, 1]).with_filler([b"end\x02", b"end\x03"])
}

/// A node, and the key that is the next prefix of its length.
pub fn next_prefix() -> Scenario {
    let hot = [&b"stem1234\x01"[..], b"stem1234\x09", b"stem1235"];
    Scenario::new("next-prefix", hot, &[0, 2]).with_filler((2..7).map(stem))
}

/// An index with `keys` keys of one byte, so that a few more or fewer make its root grow or shrink.
pub fn root(what: &str, keys: usize) -> Scenario {
    let filler = (0..keys).map(|at| vec![at as u8 + 1]);
    Scenario::new(format!("root-{what}"), [vec![0], vec![251], vec![250]], &[]).with_filler(filler)
}

/// A node filled with `keys` keys, two of them hot, so that an insert makes it grow unless a delete
/// comes first.
pub fn full(what: &str, keys: usize) -> Scenario {
    let mut filler: Vec<Vec<u8>> = numbered(keys.saturating_sub(2)).chain([b"stand".to_vec()]).collect();
    filler.sort();
    Scenario::new(format!("full-{what}"), [0, 251, 250].map(stem), &[0, 1]).with_filler(filler)
}

/// A full node of `children` children, one of which has its own path: a key that leaves the path,
/// and keys that make the node grow.
pub fn above(what: &str, children: usize) -> Scenario {
    let hot = [stem(250), [&stem(251)[..], b"path-off"].concat(), stem(249)];
    let below = [1, 2].map(|end| [&stem(251)[..], b"path-to-", &[end]].concat());
    let filler = numbered(children.saturating_sub(1)).chain(below).chain([b"stand".to_vec()]);
    Scenario::new(format!("above-{what}"), hot, &[]).with_filler(filler)
}

/// Concurrent writers of one key, most of them threads of one process.
pub fn contest() -> Scenario {
    const OPS: &[Op] = &[Op::Put(0), Op::Update(0), Op::Update(0), Op::Insert(0), Op::Delete(0), Op::Get(0)];
    plain().doing("contest", OPS).sharing()
}

/// Writers of two neighbouring keys that lose the race for a word to another put, after a removal
/// that depends on the value.
pub fn superseded() -> Scenario {
    const OPS: &[Op] = &[Op::Put(0), Op::Put(0), Op::DeleteIf(0), Op::Put(1), Op::Put(1), Op::DeleteIf(1)];
    Scenario::new("keys", [b"ab", b"ac"], &[0]).doing("superseded", OPS)
}

/// Scenarios that suit every index. Add [`grow`] and [`shrink`] with the capacities of the index's
/// own nodes.
pub fn common() -> Vec<Scenario> {
    vec![
        plain(),
        prefixes(),
        split(),
        pair(),
        chain(),
        long(),
        row(40),
        row(200),
        empty(),
        ends(),
        next_prefix(),
    ]
}
