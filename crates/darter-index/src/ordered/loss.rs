//! What an index has lost with memory nodes that do not come back: the keys that cannot be read, and
//! the references that must be cut off.

use super::KeyValue;

/// A set of memory nodes that cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostNodes([u64; 4]);

impl LostNodes {
    /// No node.
    pub const NONE: Self = Self([0; 4]);

    /// Adds a node.
    pub fn add(&mut self, node: u8) {
        self.0[usize::from(node / 64)] |= 1 << (node % 64);
    }

    /// Whether a node is one of them.
    #[inline]
    pub fn contains(self, node: u8) -> bool {
        self.0[usize::from(node / 64)] >> (node % 64) & 1 != 0
    }
}

impl FromIterator<u8> for LostNodes {
    fn from_iter<I: IntoIterator<Item = u8>>(nodes: I) -> Self {
        let mut lost = Self::NONE;
        nodes.into_iter().for_each(|node| lost.add(node));
        lost
    }
}

/// Keys that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first key that may be one of them.
    pub from: Vec<u8>,
    /// The first greater key that cannot be one of them; `None` if there is none.
    pub until: Option<Vec<u8>>,
    /// The number of keys from `from` to `until` that cannot be read, whose names are unknown unless
    /// there is only one key in this range. The others can be read. If `None`, no key in the range can be
    /// read, and it is unknown how many there are.
    pub keys: Option<u64>,
}

impl Gap {
    /// One key.
    pub(crate) fn of_key(key: &[u8]) -> Self {
        let until = [key, &[0]].concat();
        Self { from: key.to_vec(), until: Some(until), keys: Some(1) }
    }

    /// Returns the key, if the gap is one key whose name is known.
    pub fn key(&self) -> Option<&[u8]> {
        let is_next = |until: &Vec<u8>| until.strip_prefix(&self.from[..]) == Some(&[0][..]);
        let is_one = self.keys.is_some() && self.until.as_ref().is_some_and(is_next);
        is_one.then_some(&self.from)
    }
}

/// The result of one step of [`super::OrderedIndex::salvage`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Pairs, in key order.
    pub pairs: Vec<KeyValue>,
    /// Keys that cannot be read, those of known names in key order within a page. They belong to the part
    /// of the index that this step has completed; a gap may begin before the key that the step began at.
    pub gaps: Vec<Gap>,
    /// The key from which the next step continues; `None` after the last step.
    pub next: Option<Vec<u8>>,
}

/// The result of one step of [`super::OrderedIndex::cut_off`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CutOff {
    /// The keys that are gone.
    pub gaps: Vec<Gap>,
    /// Keys that a transaction had announced to change, and whose values from before it they have again:
    /// it is unknown whether the transaction was decided.
    pub reverted: Vec<Vec<u8>>,
    /// The number of objects on the lost nodes that the index referred to.
    pub objects: u64,
    /// Their bytes. What they referred to in turn is not counted.
    pub bytes: u64,
    /// The key from which the next step continues; `None` after the last step.
    pub next: Option<Vec<u8>>,
}

/// Why an index refuses.
pub(crate) const CANNOT_SALVAGE: &str =
    "this index cannot be read around a lost memory node; create the pool anew, and restore the last backup";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_in_the_set_once_added() {
        let nodes = [0, 63, 64, 200, 255];
        let lost: LostNodes = nodes.into_iter().collect();
        for node in 0..=255 {
            assert_eq!(lost.contains(node), nodes.contains(&node), "{node}");
        }
    }

    #[test]
    fn a_gap_of_one_known_key_names_it() {
        let gap = Gap::of_key(b"pear");
        assert_eq!(gap.key(), Some(&b"pear"[..]));
        assert_eq!(Gap { keys: None, ..gap.clone() }.key(), None);
        assert_eq!(Gap { until: Some(b"pear\0\0".to_vec()), ..gap.clone() }.key(), None);
        assert_eq!(Gap { until: None, ..gap }.key(), None);
    }
}
