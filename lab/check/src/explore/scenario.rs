//! Where runs begin: trees built so that the few operations of a run meet the situations worth meeting.
//!
//! A scenario names the keys that are in the tree and are not touched (*filler*), the few that clients fight over (*hot*),
//! and which of those are there at the beginning. Those here fit radix trees and B-link trees alike; how many keys fill a node
//! is the index's to say.

use super::op::Op;

/// A beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // switches that have nothing to do with each other
pub struct Scenario {
    /// Its name in commands and replay lines, without slashes.
    pub name: String,
    /// The keys that clients fight over.
    pub hot: Vec<Vec<u8>>,
    /// Which hot keys are there at the beginning.
    pub present: &'static [usize],
    /// Keys that are there and stay.
    pub filler: Vec<Vec<u8>>,
    /// Keys that were there before and are deleted again, after the filler was put in: what makes a node large before it is
    /// nearly empty.
    pub former: Vec<Vec<u8>>,
    /// Bytes of values, at least 8: the number that a value stands for picks one. Filler has the first.
    pub value_bytes: [usize; 3],
    /// Whether clients use the operations `A`, `L` and `e`.
    pub adjusts: bool,
    /// Whether clients use the operations `B` and `U`.
    pub loads: bool,
    /// What clients do; everything, where there is nothing.
    pub ops: &'static [Op],
    /// Whether clients are threads of one process, or all but one are.
    pub shares: bool,
    /// Whether clients do little but what unlinks, restructures and frees, and much of it.
    pub churns: bool,
    /// Whether half of the holds are before a READ, so that other clients write what it reads.
    pub tears: bool,
    /// Runs that begin here for each one that begins at a usual scenario.
    pub turns: u64,
}

/// The prefix of the node that grows or shrinks: deep enough for a hint to lead there.
const STEM: &[u8] = b"stem1234";

/// A key below the stem.
fn stem(edge: u8) -> Vec<u8> {
    [STEM, &[edge]].concat()
}

fn numbered(keys: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..keys).map(|at| stem(at as u8 + 1))
}

impl Scenario {
    /// With these hot keys, of which some are present.
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
            value_bytes: [8, 48, 88],
            adjusts: false,
            loads: false,
            ops: &[],
            shares: false,
            churns: false,
            tears: false,
            turns: 1,
        }
    }

    /// With keys that are there and stay, put in this order.
    #[must_use]
    pub fn with_filler(mut self, keys: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Self {
        self.filler = keys.into_iter().map(Into::into).collect();
        self
    }

    /// With keys that were there before.
    #[must_use]
    pub fn with_former(mut self, keys: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Self {
        self.former = keys.into_iter().map(Into::into).collect();
        self
    }

    /// With values of these sizes.
    #[must_use]
    pub fn with_values(mut self, bytes: [usize; 3]) -> Self {
        self.value_bytes = bytes.map(|bytes| bytes.max(8));
        self
    }

    /// Under another name, with clients that unlink, restructure and free much: the same memory takes on one role after another
    /// within a run.
    #[must_use]
    pub fn churning(mut self) -> Self {
        self.name = format!("churn-{}", self.name);
        self.churns = true;
        self
    }

    /// Under another name, with clients that do only this.
    #[must_use]
    pub fn doing(mut self, what: &str, ops: &'static [Op]) -> Self {
        self.name = format!("{what}-{}", self.name);
        self.ops = ops;
        self
    }

    /// With clients that are threads of one process, or all but one are.
    #[must_use]
    pub fn sharing(mut self) -> Self {
        self.shares = true;
        self
    }

    /// With clients that use the operations `B` and `U`.
    #[must_use]
    pub fn loading(mut self) -> Self {
        self.loads = true;
        self
    }

    /// With clients that use the operations `A`, `L` and `e`.
    #[must_use]
    pub fn adjusting(mut self) -> Self {
        self.adjusts = true;
        self
    }

    /// With half of the holds before a READ, and this many runs for each of a usual scenario.
    #[must_use]
    pub fn tearing(mut self, turns: u64) -> Self {
        self.tears = true;
        self.turns = turns;
        self
    }

    /// The value a hot key begins with.
    pub fn initial(&self, key: usize) -> Option<u64> {
        self.present.contains(&key).then_some(1 + key as u64)
    }

    /// The bytes that stand for a value.
    pub fn value(&self, number: u64) -> Vec<u8> {
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.resize(self.value_bytes[(number % 3) as usize], number as u8);
        bytes
    }

    /// The value that bytes stand for; a number nobody wrote when they are not such bytes.
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

/// Two keys that share a long path, and one that leaves it in the middle.
pub fn split() -> Scenario {
    Scenario::new("split", [&b"path-to-one"[..], b"path-to-two", b"path-off"], &[0, 1])
}

/// A node with just two children, to be emptied.
pub fn pair() -> Scenario {
    // The last is a neighbour, so that the stem is a node's compressed path and not the root's only way.
    let filler = [&b"stand"[..], b"stem-other"];
    Scenario::new("pair", [1, 2, 9].map(stem), &[0, 1]).with_filler(filler)
}

/// Keys of several hundred equal bytes.
pub fn chain() -> Scenario {
    let long = |len: usize, end: u8| [&vec![b'c'; len][..], &[end]].concat();
    Scenario::new("chain", [long(300, 1), long(300, 2), long(150, 3)], &[0, 1])
}

/// Values too long to stand in a node, and beside them one that is not.
pub fn long() -> Scenario {
    Scenario::new("long", [b"long-1", b"long-2", b"long-3"], &[0, 1]).with_values([1100, 24, 5000])
}

/// So many keys of 8 bytes in a row, put in ascending order: in a B-link tree some leaves beside each other, with hot keys in
/// the first, in the middle and behind the last.
pub fn row(keys: u16) -> Scenario {
    let key = |at: u16| [&b"row-00"[..], &at.to_be_bytes()].concat();
    let hot = [key(5), key(keys / 2 * 8 + 5), key(keys * 8 + 5)];
    Scenario::new(format!("row-{keys}"), hot, &[0, 1]).with_filler((0..keys).map(|at| key(at * 8)))
}

/// A node that is full with so many keys, up to 249, so that an insert makes it grow or split.
pub fn grow(what: &str, keys: usize) -> Scenario {
    let mut filler: Vec<Vec<u8>> = numbered(keys).chain([b"stand".to_vec()]).collect();
    filler.sort();
    filler.dedup();
    Scenario::new(format!("grow-{what}"), [0, 251, 250].map(stem), &[]).with_filler(filler)
}

/// A node that held more keys than the next smaller holds, this many, and which a delete or two make sparse, so that it shrinks
/// or joins another.
pub fn shrink(what: &str, below: usize) -> Scenario {
    // With the two hot keys one more than half of what the smaller holds.
    let kept = (below / 2).saturating_sub(1);
    let mut filler: Vec<Vec<u8>> = numbered(kept).chain([b"stand".to_vec()]).collect();
    filler.sort();
    Scenario::new(format!("shrink-{what}"), [0, 251, 250].map(stem), &[0, 1])
        .with_filler(filler)
        .with_former(numbered(below + 1))
}

/// An empty index, to be loaded.
pub fn empty() -> Scenario {
    Scenario::new("empty", [&b"load-1"[..], b"load-2", b"lo"], &[]).loading()
}

/// A key that ends where others have a byte 0 or 1, under a node that stays.
pub fn ends() -> Scenario {
    Scenario::new("ends", [&b"end"[..], b"end\0", b"end\x01"], &[0, 1]).with_filler([b"end\x02", b"end\x03"])
}

/// A node, and the key that is the next prefix of its length.
pub fn next_prefix() -> Scenario {
    let hot = [&b"stem1234\x01"[..], b"stem1234\x09", b"stem1235"];
    Scenario::new("next-prefix", hot, &[0, 2]).with_filler((2..7).map(stem))
}

/// An index with so many keys of one byte, so that a few more or less make its root grow or shrink.
pub fn root(what: &str, keys: usize) -> Scenario {
    let filler = (0..keys).map(|at| vec![at as u8 + 1]);
    Scenario::new(format!("root-{what}"), [vec![0], vec![251], vec![250]], &[]).with_filler(filler)
}

/// A node that is full with so many keys, two of them hot, so that an insert makes it grow unless a delete comes before.
pub fn full(what: &str, keys: usize) -> Scenario {
    let mut filler: Vec<Vec<u8>> = numbered(keys.saturating_sub(2)).chain([b"stand".to_vec()]).collect();
    filler.sort();
    Scenario::new(format!("full-{what}"), [0, 251, 250].map(stem), &[0, 1]).with_filler(filler)
}

/// A full node of so many children, of which one has a path of its own: a key that leaves the path, and keys that make the node
/// grow.
pub fn above(what: &str, children: usize) -> Scenario {
    let hot = [stem(250), [&stem(251)[..], b"path-off"].concat(), stem(249)];
    let below = [1, 2].map(|end| [&stem(251)[..], b"path-to-", &[end]].concat());
    let filler = numbered(children.saturating_sub(1)).chain(below).chain([b"stand".to_vec()]);
    Scenario::new(format!("above-{what}"), hot, &[]).with_filler(filler)
}

/// Writers of one key beside each other, threads of one process most of them.
pub fn contest() -> Scenario {
    const OPS: &[Op] = &[Op::Put(0), Op::Update(0), Op::Update(0), Op::Insert(0), Op::Delete(0), Op::Get(0)];
    plain().doing("contest", OPS).sharing()
}

/// Two keys beside each other: writers that lose the word to another put, after a removal that depends on the value.
pub fn bowing() -> Scenario {
    const OPS: &[Op] = &[Op::Put(0), Op::Put(0), Op::DeleteIf(0), Op::Put(1), Op::Put(1), Op::DeleteIf(1)];
    Scenario::new("keys", [b"ab", b"ac"], &[0]).doing("bowing", OPS)
}

/// Beginnings that make sense for every index. Add [`grow`] and [`shrink`] with what the index's own nodes hold.
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

#[cfg(test)]
mod tests {
    use crate::explore::subjects;

    #[test]
    fn hot_keys_are_not_filler_and_names_are_told_apart() {
        for subject in subjects() {
            for scenario in subject.scenarios().iter().chain(&super::common()) {
                let name = &scenario.name;
                assert!(!name.contains('/') && scenario.present.len() <= scenario.hot.len());
                for key in &scenario.hot {
                    assert!(!scenario.filler.contains(key), "{name}: {key:?}");
                }
            }
            for scenario in subject.scenarios() {
                assert_eq!(subject.scenario(&scenario.name), Ok(scenario));
            }
        }
    }

    #[test]
    fn values_read_back_as_written() {
        for scenario in super::common() {
            for number in 0..9 {
                assert_eq!(scenario.number(&scenario.value(number)), number);
            }
            assert_eq!(scenario.number(&[0; 7]), u64::MAX);
        }
    }
}
