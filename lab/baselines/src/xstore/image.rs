//! The image of the server's inner nodes in the pool, for clients that find leaves by the tree
//! instead of by models: the rivals that cache some of its levels, or all.
//!
//! ```text
//! node     words 0..16    the least model key of each child, ascending
//!          words 16..32   children: above the lowest level the number of a node (its offset
//!                         divided by 64), in the lowest an entry as in a table; 0 for none
//! word of the image       levels 8 | 0 24 | number of the root 32; 0 for no image
//! ```
//!
//! The server writes it during a full training, in the slabs of the models' tables, and it never
//! changes within the generation. So it is a hint like the models: if leaves have split since, it
//! leads to a leaf left of the key's. A way through it ends whatever its words are, since each step
//! goes down one level.

use super::model::Entry;

/// Maximum number of children of a node.
pub(super) const FANOUT: usize = 16;
/// Words of a node: those of a table with this many entries.
pub(super) const NODE_WORDS: usize = 2 * FANOUT;
/// Bytes of a node that a client caches.
pub(super) const NODE_BYTES: u64 = NODE_WORDS as u64 * 8;
/// Maximum number of levels of an image.
pub(super) const LEVELS_MAX: u8 = 16;

/// The root of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ImageWord {
    /// Levels above the leaves, at least 1.
    pub(super) levels: u8,
    /// The number of the root.
    pub(super) root: u32,
}

impl ImageWord {
    /// Reads the word of an image; `None` if there is none.
    pub(super) fn from_word(word: u64) -> Option<Self> {
        let (levels, root) = ((word >> 56) as u8, word as u32);
        let is_one = root != 0 && (1..=LEVELS_MAX).contains(&levels) && word << 8 >> 40 == 0;
        is_one.then_some(Self { levels, root })
    }

    pub(super) fn word(self) -> u64 {
        u64::from(self.levels) << 56 | u64::from(self.root)
    }
}

/// An inner node. Any words are valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InnerNode([u64; NODE_WORDS]);

impl InnerNode {
    /// Creates a node of children with their least model keys; those after the sixteenth are
    /// ignored.
    pub(super) fn new(children: &[(u64, u64)]) -> Self {
        let mut words = [0; NODE_WORDS];
        for (at, &(least, child)) in children.iter().take(FANOUT).enumerate() {
            (words[at], words[FANOUT + at]) = (least, child);
        }
        Self(words)
    }

    pub(super) fn from_words(words: &[u64]) -> Option<Self> {
        words.try_into().ok().map(Self)
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.0
    }

    /// Returns the children with their least model keys.
    pub(super) fn children(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        let used = self.0[FANOUT..].iter().take_while(|&&child| child != 0);
        let used = used.count();
        (0..used).map(|at| (self.0[at], self.0[FANOUT + at]))
    }

    /// Returns the position of the child for a model key: the last whose least key is not above it.
    /// `None` if the node has no children.
    pub(super) fn place_of(&self, key: u64) -> Option<usize> {
        let used = self.children().count();
        let behind = self.children().take_while(|&(least, _)| least <= key).count();
        (used > 0).then(|| behind.saturating_sub(1))
    }

    /// Returns the number of the node at a position.
    pub(super) fn node_at(&self, place: usize) -> Option<u32> {
        let child = self.0.get(FANOUT + place)?;
        u32::try_from(*child).ok().filter(|&number| number != 0)
    }

    /// Returns the entries of leaves around a position: at most this many before and after it.
    pub(super) fn entries(&self, place: usize, more: (u32, u32)) -> Vec<(u32, Entry)> {
        let first = place.saturating_sub(more.0 as usize);
        let count = place - first + 1 + more.1 as usize;
        let entries = (0..).zip(self.children().map(|(_, child)| Entry::from_word(child)));
        entries.skip(first).take(count).filter(|(_, entry)| entry.is_valid()).collect()
    }

    /// Replaces an entry by another entry of the same leaf.
    pub(super) fn renew(&mut self, place: usize, entry: Entry) {
        if let Some(word) = self.0.get_mut(FANOUT + place)
            && Entry::from_word(*word).number() == entry.number()
        {
            *word = entry.word();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(number: u32) -> u64 {
        Entry::new(number, 2, 3).word()
    }

    #[test]
    fn a_key_goes_to_the_last_child_that_begins_before_it() {
        let node = InnerNode::new(&[(0, entry(1)), (10, entry(2)), (20, entry(3))]);
        for (key, place) in [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (u64::MAX, 2)] {
            assert_eq!(node.place_of(key), Some(place), "{key}");
        }
        let numbers = |place, more| -> Vec<u32> {
            node.entries(place, more).iter().map(|(_, entry)| entry.number()).collect()
        };
        assert_eq!(numbers(1, (0, 0)), [2]);
        assert_eq!(numbers(1, (4, 1)), [1, 2, 3]);
        assert_eq!(numbers(2, (1, 9)), [2, 3]);
        assert_eq!(InnerNode::new(&[]).place_of(7), None);
        assert_eq!(InnerNode::from_words(node.words()), Some(node));
        assert_eq!(InnerNode::from_words(&[1, 2]), None);
    }

    #[test]
    fn words_of_images_round_trip() {
        let word = ImageWord { levels: 3, root: 77 };
        assert_eq!(ImageWord::from_word(word.word()), Some(word));
        for none in [0, 0x4d, 3 << 56, 0x11 << 56 | 0x4d, word.word() | 1 << 40, u64::MAX] {
            assert_eq!(ImageWord::from_word(none), None, "{none:#x}");
        }
    }

    proptest! {
        #[test]
        fn any_words_lead_somewhere_or_nowhere(
            words in proptest::collection::vec(any::<u64>(), NODE_WORDS),
            key: u64,
            more: (u32, u32),
        ) {
            let mut node = InnerNode::from_words(&words).unwrap();
            if let Some(place) = node.place_of(key) {
                prop_assert!(place < FANOUT);
                let _ = node.node_at(place);
                prop_assert!(node.entries(place, more).len() <= FANOUT);
                node.renew(place, Entry::new(1, 2, 3));
            }
        }
    }
}
