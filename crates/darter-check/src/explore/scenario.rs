//! Where runs begin: trees built so that the few operations of a run meet the situations worth meeting.
//!
//! A scenario names the keys that are in the tree and are not touched (*filler*), the few that clients fight over (*hot*),
//! and which of those are there at the beginning.

use std::fmt;
use std::str::FromStr;

/// A beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scenario {
    /// An empty tree; three keys under the root.
    Plain,
    /// Keys that are prefixes of each other, the empty key among them.
    Prefixes,
    /// Two keys that share a long compressed path, and one that leaves it in the middle.
    Split,
    /// A node with just two children, to be emptied.
    Pair,
    /// A chain of nodes over more bytes than one edge can skip.
    Chain,
    /// A node of this type (code: N4 = 0) that is full, so that an insert makes it grow.
    Grow(u8),
    /// A node of this type that a delete or two make sparse, so that it shrinks.
    Shrink(u8),
    /// Long keys below express entries of several lengths.
    Express,
    /// A segment of the express skip table about to split.
    Segment,
    /// A tree whose prefix list an adjustment changes.
    Adjust,
}

/// Children that a node of each type holds; consecutive edges fill its buckets evenly.
const CAPACITIES: [usize; 8] = [3, 7, 11, 15, 30, 60, 120, 257];
/// Names of the types.
const TYPES: [&str; 8] = ["n4", "n8", "n12", "n16", "n32", "n64", "n128", "n256"];

/// The prefix of the node that grows or shrinks: deep enough to have express entries.
const STEM: &[u8] = b"stem1234";

impl Scenario {
    /// Every scenario.
    pub fn all() -> Vec<Self> {
        let mut all = vec![
            Self::Plain,
            Self::Prefixes,
            Self::Split,
            Self::Pair,
            Self::Chain,
            Self::Express,
            Self::Segment,
            Self::Adjust,
        ];
        all.extend((0..7).map(Self::Grow));
        all.extend((1..8).map(Self::Shrink));
        all
    }

    /// The keys that clients fight over.
    pub fn hot_keys(self) -> Vec<Vec<u8>> {
        let stem = |edges: &[u8]| edges.iter().map(|&edge| [STEM, &[edge]].concat()).collect();
        match self {
            Self::Plain => vec![b"a".to_vec(), b"b".to_vec(), b"c".to_vec()],
            Self::Prefixes => vec![Vec::new(), b"a".to_vec(), b"ab".to_vec()],
            Self::Split => vec![b"path-to-one".to_vec(), b"path-to-two".to_vec(), b"path-off".to_vec()],
            Self::Pair => stem(&[1, 2, 9]),
            Self::Chain => {
                let long = |len: usize, end: u8| [&vec![b'c'; len][..], &[end]].concat();
                vec![long(300, 1), long(300, 2), long(150, 3)]
            }
            Self::Grow(_) | Self::Shrink(_) => stem(&[0, 251, 250]),
            Self::Express => {
                vec![b"express-way-1".to_vec(), b"express-way-2".to_vec(), b"express-wagon".to_vec()]
            }
            // Chosen when the stage is built.
            Self::Segment => vec![segment_key(65_500, 9), segment_key(65_501, 9), segment_key(65_502, 9)],
            Self::Adjust => {
                vec![b"adjusted-key-1".to_vec(), b"adjusted-key-2".to_vec(), b"adjusted-kex".to_vec()]
            }
        }
    }

    /// Which hot keys are there at the beginning.
    pub fn present(self) -> &'static [usize] {
        match self {
            Self::Plain | Self::Prefixes => &[0],
            Self::Split | Self::Express | Self::Adjust | Self::Pair | Self::Chain | Self::Shrink(_) => {
                &[0, 1]
            }
            Self::Grow(_) | Self::Segment => &[],
        }
    }

    /// Keys that are there and stay.
    pub fn filler(self) -> Vec<Vec<u8>> {
        let stem = |count: usize| (0..count).map(|at| [STEM, &[at as u8 + 1]].concat()).collect();
        let mut keys: Vec<Vec<u8>> = match self {
            Self::Plain | Self::Prefixes | Self::Split | Self::Chain => Vec::new(),
            Self::Pair => vec![b"stem-other".to_vec()],
            // Full; the hot ones come on top.
            Self::Grow(ty) => stem(CAPACITIES[usize::from(ty)]),
            // With the two hot keys one more than half of what the type below holds.
            Self::Shrink(ty) => stem((CAPACITIES[usize::from(ty) - 1] / 2).saturating_sub(1)),
            Self::Express => vec![b"express".to_vec(), b"exp".to_vec(), b"expr-1".to_vec()],
            // Pairs of keys below one node each, which has an entry; in this order, see `Stage::build`.
            Self::Segment => {
                return (0..2 * SEGMENT_NODES).map(|at| segment_key(at / 2, (at % 2) as u8)).collect();
            }
            Self::Adjust => (0..48_u8)
                .map(|at| [&b"adjusted-ke"[..], &[b'a' + at % 24, b'0' + at / 24]].concat())
                .collect(),
        };
        if matches!(self, Self::Grow(_) | Self::Shrink(_) | Self::Pair) {
            // A neighbour, so that the stem is a node's compressed path and not the root's only way.
            keys.push(b"stand".to_vec());
        }
        keys.sort();
        keys.dedup();
        keys
    }

    /// Keys that were there before and are deleted again, after the filler was put in: what makes a node large before it is
    /// nearly empty.
    pub fn former(self) -> Vec<Vec<u8>> {
        match self {
            Self::Shrink(ty) => {
                (0..=CAPACITIES[usize::from(ty) - 1]).map(|at| [STEM, &[at as u8 + 1]].concat()).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Nodes to be entered in the express skip table by [`Scenario::Segment`], at most.
const SEGMENT_NODES: u32 = 2000;

fn segment_key(at: u32, end: u8) -> Vec<u8> {
    let at = at.wrapping_mul(40_503) & 0xffff;
    vec![(at >> 8) as u8, at as u8, 7, end]
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => f.write_str("plain"),
            Self::Prefixes => f.write_str("prefixes"),
            Self::Split => f.write_str("split"),
            Self::Pair => f.write_str("pair"),
            Self::Chain => f.write_str("chain"),
            Self::Grow(ty) => write!(f, "grow-{}", TYPES[usize::from(*ty)]),
            Self::Shrink(ty) => write!(f, "shrink-{}", TYPES[usize::from(*ty)]),
            Self::Express => f.write_str("express"),
            Self::Segment => f.write_str("segment"),
            Self::Adjust => f.write_str("adjust"),
        }
    }
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = Self::all();
        all.iter().copied().find(|scenario| scenario.to_string() == text).ok_or_else(|| {
            let names: Vec<String> = all.iter().map(ToString::to_string).collect();
            format!("'{text}' is no scenario; those are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_keys_are_not_filler() {
        for scenario in Scenario::all() {
            let filler = scenario.filler();
            for key in scenario.hot_keys() {
                assert!(filler.binary_search(&key).is_err(), "{scenario}: {key:?}");
            }
            assert_eq!(scenario.to_string().parse(), Ok(scenario));
        }
    }
}
