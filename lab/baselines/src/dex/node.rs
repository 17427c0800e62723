//! Pages: inner nodes and leaves of 1,024 bytes, the unit of every READ, WRITE and frame.
//!
//! ```text
//! word 0       lock: 0, or the word of a token ([`crate::lock_token`])
//! word 1       front version
//! word 2       own address
//! words 3, 4   bitmap of hot children, parent: only in the published code's frames, 0 here
//! word 5       type, count, level, cache state, obsolete, shared, unused, dirty: 8 bits each
//! words 6, 7   low fence (exclusive), high fence (inclusive)
//!              leaf                                inner node
//! words 8..    58 entries: key, value              59 children, then 59 keys
//!              word 124: link, never read
//!              word 125: back version              word 126: back version
//! word 127     check                               check
//! ```
//!
//! A page holds the keys above its low fence up to its high fence; a low fence of 0 includes key 0.
//! The key of a child is its high fence. The published cache keeps a page's state and dirtiness in
//! its header; here they are in the frame ([`super::cache`]), and their bytes are 0.
//!
//! *Check*: a hash of the address and of all words after word 0. The published code compares the two
//! versions only, which does not detect every mixture of an old and a new image.

use crate::sherman::format::mix;
use darter_fabric::GlobalAddr;

/// Words of a page.
pub(crate) const NODE_WORDS: usize = 128;
/// Bytes of a page.
pub(crate) const NODE_BYTES: u64 = NODE_WORDS as u64 * 8;
/// Entries of a leaf.
pub(crate) const ENTRIES_MAX: usize = 58;
/// Children of an inner node.
pub(crate) const CHILDREN_MAX: usize = 59;

const FRONT: usize = 1;
const ADDR: usize = 2;
const META: usize = 5;
const LOW: usize = 6;
const HIGH: usize = 7;
const BODY: usize = 8;
const KEYS: usize = BODY + CHILDREN_MAX;
const LEAF_BACK: usize = BODY + 2 * ENTRIES_MAX + 1;
const INNER_BACK: usize = KEYS + CHILDREN_MAX;
const CHECK: usize = NODE_WORDS - 1;
const _: () = assert!(LEAF_BACK == 125 && INNER_BACK == 126);

/// The keys above `low` up to `high`, with 0 if `low` is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fences {
    pub(crate) low: u64,
    pub(crate) high: u64,
}

impl Fences {
    /// All keys.
    pub(crate) const ALL: Self = Self { low: 0, high: u64::MAX };

    pub(crate) fn contains(self, key: u64) -> bool {
        (key > self.low || self.low == 0) && key <= self.high
    }

    /// Returns the least key.
    pub(crate) fn first(self) -> u64 {
        if self.low == 0 { 0 } else { self.low + 1 }
    }
}

/// What to do with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Stores a value, or the pointer to it.
    Put(u64),
    Remove,
}

/// When a change takes effect, by the key's present word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    Any,
    Absent,
    Present,
    Equals(u64),
}

/// The outcome of a change, with the key's word before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    Done(Option<u64>),
    Refused(Option<u64>),
    /// The leaf has no room for another key.
    Full,
}

impl Guard {
    pub(crate) fn holds_for(self, word: Option<u64>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => word.is_none(),
            Self::Present => word.is_some(),
            Self::Equals(wanted) => word == Some(wanted),
        }
    }
}

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node(Box<[u64; NODE_WORDS]>);

impl Node {
    /// Creates an empty page.
    pub(crate) fn new(addr: GlobalAddr, level: u8, fences: Fences, is_shared: bool) -> Self {
        let mut node = Self(Box::new([0; NODE_WORDS]));
        node.0[ADDR] = addr.bits();
        (node.0[LOW], node.0[HIGH]) = (fences.low, fences.high);
        node.set_meta(level, 0, is_shared);
        node
    }

    /// Reads a page; `None` if the words are not an image of the page at this address.
    pub(crate) fn from_words(addr: GlobalAddr, words: &[u64]) -> Option<Self> {
        let words: [u64; NODE_WORDS] = words.try_into().ok()?;
        let node = Self(Box::new(words));
        let max = if node.level() == 0 { ENTRIES_MAX } else { CHILDREN_MAX };
        let [kind, _, level, _, obsolete, ..] = node.0[META].to_le_bytes();
        let is_one = node.0[ADDR] == addr.bits()
            && node.0[FRONT] == node.0[node.back()]
            && node.0[CHECK] == node.check()
            && node.count() <= max
            && (kind == 0) == (level == 0)
            && obsolete == 0
            && (level == 0 || node.count() > 0 && node.key_of(node.count() - 1) == node.0[HIGH]);
        is_one.then_some(node)
    }

    /// Gives the image the next version, and returns its words, with a lock word of 0.
    pub(crate) fn sealed(&mut self) -> &[u64; NODE_WORDS] {
        let back = self.back();
        self.0[0] = 0;
        self.0[FRONT] += 1;
        self.0[back] = self.0[FRONT];
        self.0[CHECK] = self.check();
        &self.0
    }

    fn check(&self) -> u64 {
        self.0[1..CHECK].iter().fold(self.0[ADDR], |hash, &word| mix(hash, word)) | 1
    }

    fn back(&self) -> usize {
        if self.level() == 0 { LEAF_BACK } else { INNER_BACK }
    }

    fn set_meta(&mut self, level: u8, count: usize, is_shared: bool) {
        let kind = u8::from(level > 0);
        self.0[META] = u64::from_le_bytes([kind, count as u8, level, 0, 0, u8::from(is_shared), 0, 0]);
    }

    fn set_count(&mut self, count: usize) {
        self.set_meta(self.level(), count, self.is_shared());
    }

    pub(crate) fn addr(&self) -> GlobalAddr {
        GlobalAddr::from_bits(self.0[ADDR])
    }

    pub(crate) fn level(&self) -> u8 {
        self.0[META].to_le_bytes()[2]
    }

    /// Returns the number of entries or children.
    pub(crate) fn count(&self) -> usize {
        self.0[META].to_le_bytes()[1].into()
    }

    /// Returns whether several owners use the page.
    pub(crate) fn is_shared(&self) -> bool {
        self.0[META].to_le_bytes()[5] != 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count() == if self.level() == 0 { ENTRIES_MAX } else { CHILDREN_MAX }
    }

    pub(crate) fn version(&self) -> u64 {
        self.0[FRONT]
    }

    pub(crate) fn set_version(&mut self, version: u64) {
        self.0[FRONT] = version;
    }

    /// Returns whether two images differ in their versions at most.
    pub(crate) fn has_body_of(&self, other: &Self) -> bool {
        let back = self.back();
        self.0[ADDR..back] == other.0[ADDR..back]
    }

    pub(crate) fn fences(&self) -> Fences {
        Fences { low: self.0[LOW], high: self.0[HIGH] }
    }

    /// Returns the keys and values of a leaf.
    pub(crate) fn entries(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        (0..self.count()).map(|at| (self.0[BODY + 2 * at], self.0[BODY + 2 * at + 1]))
    }

    /// Returns the place of a key in a leaf, or the place where it belongs.
    fn find(&self, key: u64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.0[BODY + 2 * middle] < key { low = middle + 1 } else { high = middle }
        }
        if low < self.count() && self.0[BODY + 2 * low] == key { Ok(low) } else { Err(low) }
    }

    /// Returns the word of a key of a leaf.
    pub(crate) fn get(&self, key: u64) -> Option<u64> {
        self.find(key).ok().map(|at| self.0[BODY + 2 * at + 1])
    }

    /// Changes a key of a leaf.
    pub(crate) fn apply(&mut self, key: u64, change: Change, guard: Guard) -> Applied {
        let (place, count) = (self.find(key), self.count());
        let old = place.ok().map(|at| self.0[BODY + 2 * at + 1]);
        if !guard.holds_for(old) {
            return Applied::Refused(old);
        }
        let end = BODY + 2 * count;
        match (change, place) {
            (Change::Put(value), Ok(at)) => self.0[BODY + 2 * at + 1] = value,
            (Change::Put(_), Err(_)) if count == ENTRIES_MAX => return Applied::Full,
            (Change::Put(value), Err(at)) => {
                let at = BODY + 2 * at;
                self.0.copy_within(at..end, at + 2);
                (self.0[at], self.0[at + 1]) = (key, value);
                self.set_count(count + 1);
            }
            (Change::Remove, Ok(at)) => {
                let at = BODY + 2 * at;
                self.0.copy_within(at + 2..end, at);
                self.0[end - 2..end].fill(0);
                self.set_count(count - 1);
            }
            (Change::Remove, Err(_)) => {}
        }
        Applied::Done(old)
    }

    /// Adds an entry with a greater key than all others, to a leaf that has room.
    pub(crate) fn push(&mut self, key: u64, value: u64) {
        let at = BODY + 2 * self.count();
        (self.0[at], self.0[at + 1]) = (key, value);
        self.set_count(self.count() + 1);
    }

    /// Returns a child of an inner node.
    pub(crate) fn child(&self, at: usize) -> GlobalAddr {
        GlobalAddr::from_bits(self.0[BODY + at])
    }

    fn key_of(&self, child: usize) -> u64 {
        self.0[KEYS + child]
    }

    /// Returns the keys of a child.
    pub(crate) fn range(&self, at: usize) -> Fences {
        let low = if at == 0 { self.0[LOW] } else { self.key_of(at - 1) };
        Fences { low, high: self.key_of(at) }
    }

    /// Returns the child that holds a key, which is between the fences.
    pub(crate) fn child_for(&self, key: u64) -> usize {
        let keys = &self.0[KEYS..KEYS + self.count()];
        keys.partition_point(|&high| high < key).min(self.count().saturating_sub(1))
    }

    /// Adds a child after all others, to an inner node that has room. The last child's high fence
    /// must be the node's.
    pub(crate) fn push_child(&mut self, child: GlobalAddr, high: u64) {
        let at = self.count();
        (self.0[BODY + at], self.0[KEYS + at]) = (child.bits(), high);
        self.set_count(at + 1);
    }

    /// Divides a child's range at a key: the child keeps the keys up to it, and `right` takes the
    /// others. The node must have room.
    pub(crate) fn divide(&mut self, at: usize, key: u64, right: GlobalAddr) {
        let count = self.count();
        self.0.copy_within(BODY + at + 1..BODY + count, BODY + at + 2);
        self.0.copy_within(KEYS + at..KEYS + count, KEYS + at + 1);
        (self.0[BODY + at + 1], self.0[KEYS + at]) = (right.bits(), key);
        self.set_count(count + 1);
    }

    /// Moves the upper half to a new page at an address; its low fence is the key that divides them.
    /// `is_shared` decides by a page's keys.
    pub(crate) fn split(&mut self, addr: GlobalAddr, is_shared: impl Fn(Fences) -> bool) -> Self {
        let (half, count, level) = (self.count() / 2, self.count(), self.level());
        let middle = if level == 0 { self.0[BODY + 2 * half - 2] } else { self.key_of(half - 1) };
        let high = Fences { low: middle, high: self.0[HIGH] };
        let mut right = Self::new(addr, level, high, is_shared(high));
        let mut cut = |from: usize, to: usize, start: usize| {
            right.0[start..start + to - from].copy_from_slice(&self.0[from..to]);
            self.0[from..to].fill(0);
        };
        if level == 0 {
            cut(BODY + 2 * half, BODY + 2 * count, BODY);
        } else {
            cut(BODY + half, BODY + count, BODY);
            cut(KEYS + half, KEYS + count, KEYS);
        }
        right.set_count(count - half);
        self.0[HIGH] = middle;
        self.set_meta(level, half, is_shared(self.fences()));
        right
    }

    /// Moves everything from the root to a new page at an address, whose parent the root becomes.
    pub(crate) fn grow(&mut self, addr: GlobalAddr) -> Self {
        let mut left = self.clone();
        left.0[ADDR] = addr.bits();
        left.set_version(0);
        let mut root = Self::new(self.addr(), self.level() + 1, self.fences(), self.is_shared());
        root.set_version(self.version());
        root.push_child(addr, self.0[HIGH]);
        *self = root;
        left
    }

    /// Changes the fences of a page whose parent says that its keys are others, because the owner
    /// died between writing the two. Entries outside are dropped; the dropped or missing keys are
    /// lost, unless another page holds them.
    pub(crate) fn clamp(&mut self, fences: Fences) {
        let old = std::mem::replace(self, Self::new(self.addr(), self.level(), fences, self.is_shared()));
        self.set_version(old.version());
        if old.level() == 0 {
            old.entries()
                .filter(|entry| fences.contains(entry.0))
                .for_each(|entry| self.push(entry.0, entry.1));
            return;
        }
        let meets = |range: Fences| range.high >= fences.first() && range.first() <= fences.high;
        for at in (0..old.count()).filter(|&at| meets(old.range(at))) {
            self.push_child(old.child(at), old.key_of(at).min(fences.high));
        }
        if self.count() == 0 {
            // None of its children is in the range: the nearest one is emptied in turn.
            self.push_child(old.child(old.count() - 1), fences.high);
        }
        let last = self.count() - 1;
        self.0[KEYS + last] = fences.high;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: GlobalAddr = GlobalAddr::new(0, 4096);
    const NEW: GlobalAddr = GlobalAddr::new(0, 8192);

    fn leaf(keys: impl Iterator<Item = u64>, fences: Fences) -> Node {
        let mut node = Node::new(AT, 0, fences, false);
        keys.for_each(|key| node.push(key, key + 1));
        node
    }

    fn inner(children: u64) -> Node {
        let mut node = Node::new(AT, 1, Fences { low: 5, high: 10 * children }, false);
        (1..=children).for_each(|at| node.push_child(GlobalAddr::new(1, at * 1024), 10 * at));
        node
    }

    #[test]
    fn images_round_trip_and_mixtures_are_refused() {
        for mut node in [leaf(1..40, Fences::ALL), inner(59)] {
            let old = *node.sealed();
            assert_eq!(Node::from_words(AT, &old).as_ref(), Some(&node));
            assert_eq!(Node::from_words(NEW, &old), None);
            let new = *node.sealed();
            assert_eq!(node.version(), 2);
            for cut in 1..NODE_WORDS {
                let mixed = [&new[..cut], &old[cut..]].concat();
                let is_whole = mixed == old || mixed == new;
                assert_eq!(Node::from_words(AT, &mixed).is_some(), is_whole, "{cut}");
            }
        }
        assert_eq!(Node::from_words(AT, &[0; NODE_WORDS]), None);
        assert_eq!(Node::from_words(AT, &[0; 5]), None);
    }

    #[test]
    fn leaves_change_by_guards() {
        let mut node = leaf([10, 20, 30].into_iter(), Fences::ALL);
        assert_eq!(node.apply(20, Change::Put(7), Guard::Absent), Applied::Refused(Some(21)));
        assert_eq!(node.apply(20, Change::Put(7), Guard::Equals(21)), Applied::Done(Some(21)));
        assert_eq!(node.apply(15, Change::Put(8), Guard::Present), Applied::Refused(None));
        assert_eq!(node.apply(15, Change::Put(8), Guard::Any), Applied::Done(None));
        assert_eq!(node.apply(10, Change::Remove, Guard::Present), Applied::Done(Some(11)));
        assert_eq!(node.entries().collect::<Vec<_>>(), [(15, 8), (20, 7), (30, 31)]);
        assert_eq!((node.get(20), node.get(21)), (Some(7), None));
        (100..155).for_each(|key| node.push(key, 0));
        assert!(node.is_full());
        assert_eq!(node.apply(1, Change::Put(1), Guard::Any), Applied::Full);
        assert_eq!(node.apply(30, Change::Put(1), Guard::Any), Applied::Done(Some(31)));
    }

    #[test]
    fn halves_meet_at_a_fence() {
        let mut left = leaf(1..59, Fences { low: 0, high: 99 });
        let right = left.split(NEW, |_| false);
        assert_eq!((left.count(), right.count()), (29, 29));
        assert_eq!(left.fences(), Fences { low: 0, high: 29 });
        assert_eq!(right.fences(), Fences { low: 29, high: 99 });
        assert!(left.fences().contains(0) && !right.fences().contains(29));
        let mut left = inner(59);
        assert!(left.is_full());
        let right = left.split(NEW, |fences| fences.low > 5);
        assert_eq!((left.count(), right.count()), (29, 30));
        assert_eq!((left.is_shared(), right.is_shared()), (false, true));
        assert_eq!((left.range(28).high, right.range(0)), (290, Fences { low: 290, high: 300 }));
        assert_eq!((right.child_for(300), right.child_for(301), right.child_for(590)), (0, 1, 29));
    }

    #[test]
    fn children_are_divided_and_roots_grow() {
        let mut node = inner(3);
        node.divide(1, 15, NEW);
        let ranges: Vec<_> = (0..4).map(|at| (node.range(at).low, node.range(at).high)).collect();
        assert_eq!(ranges, [(5, 10), (10, 15), (15, 20), (20, 30)]);
        assert_eq!((node.child(2), node.child(3)), (NEW, GlobalAddr::new(1, 3072)));
        let before = node.clone();
        let left = node.grow(NEW);
        assert_eq!((node.level(), node.count(), node.child(0), node.range(0)), (2, 1, NEW, before.fences()));
        assert_eq!((left.addr(), left.count(), left.range(2)), (NEW, 4, before.range(2)));
    }

    #[test]
    fn clamped_pages_have_the_parent_s_fences() {
        let mut node = leaf(10..50, Fences { low: 5, high: 60 });
        let narrow = Fences { low: 5, high: 19 };
        node.clamp(narrow);
        assert_eq!((node.fences(), node.count()), (narrow, 10));
        for fences in
            [Fences { low: 5, high: 25 }, Fences { low: 12, high: 400 }, Fences { low: 300, high: 400 }]
        {
            let mut node = inner(10);
            node.clamp(fences);
            assert_eq!(node.fences(), fences);
            assert!(Node::from_words(AT, &node.sealed()[..]).is_some());
            assert!((0..node.count()).all(|at| node.range(at).low < node.range(at).high));
        }
    }
}
