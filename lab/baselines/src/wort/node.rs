//! Inner nodes of WORT, and those shared by WOART and ART+CoW.
//!
//! ```text
//! header     word 0  compression header
//!            word 1  slot of the key that ends here
//!
//! type    bytes  lines   after the header
//! N/16      144      3   16 slots, by the half byte (WORT's; the others have the rest)
//! NODE4      56      1   slot array: 4 key bytes, 4 numbers of slots + 1; 4 slots
//! NODE16    168      3   bitmap; 16 key bytes in two words; 16 slots
//! NODE48    656     11   index of 256 bytes: number of the slot + 1, 0 for none; 48 slots
//! NODE256  2064     33   256 slots, by the byte
//! ```
//!
//! One word decides each child of a node: the slot itself if the digit determines its position,
//! otherwise the slot array, the bitmap or a byte of the index. Slots that these lead to are
//! appended: a taken slot is never reused while the node lives, so that a READ with words of
//! different moments finds no child that was not there at one of them. A slot repeats its digit,
//! and counts only if both agree.

use super::digits::Digits;
use super::header::Header;
use darter_index::radix::slot::{END, NodeCode, order_of};
use darter_pool::size_class::{class_bytes, class_of};
use smallvec::SmallVec;

/// One slot of a node, or the root word.
pub(super) type Slot = darter_index::radix::slot::Slot<NodeType>;
/// The content of a slot.
pub(super) type Content = darter_index::radix::slot::Content<NodeType>;

/// The types of inner nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum NodeType {
    Nibble,
    N4,
    N16,
    N48,
    N256,
}

/// The slot of the key that ends at the node.
pub(super) const END_AT: usize = 1;
/// The word that determines which slots of a NODE4 or NODE16 count; the start of the index of a
/// NODE48.
pub(super) const MAP_AT: usize = 2;
/// The key bytes of a NODE16.
const KEYS_AT: usize = 3;

/// WORT's only type.
pub(super) const OF_WORT: &[NodeType] = &[NodeType::Nibble];
/// The adaptive types.
pub(super) const ADAPTIVE: &[NodeType] = &[NodeType::N4, NodeType::N16, NodeType::N48, NodeType::N256];

impl NodeCode for NodeType {
    fn code(self) -> u8 {
        self as u8
    }

    fn from_code(code: u64) -> Option<Self> {
        OF_WORT.iter().chain(ADAPTIVE).nth(code as usize).copied()
    }
}

impl NodeType {
    pub(super) const fn name(self) -> &'static str {
        ["N/16", "NODE4", "NODE16", "NODE48", "NODE256"][self as usize]
    }

    /// Returns the number of slots after the header.
    pub(super) const fn capacity(self) -> usize {
        [16, 4, 16, 48, 256][self as usize]
    }

    /// Returns the first word of these slots.
    pub(super) const fn slots_at(self) -> usize {
        [2, 3, 5, 34, 2][self as usize]
    }

    pub(super) const fn words(self) -> usize {
        self.slots_at() + self.capacity()
    }

    pub(super) const fn bytes(self) -> u64 {
        self.words() as u64 * 8
    }

    /// Returns the bytes of a node in the pool.
    pub(super) fn pool_bytes(self) -> u64 {
        class_of(self.bytes()).map_or(0, class_bytes)
    }

    /// Returns whether a digit directly determines its slot.
    pub(super) const fn is_direct(self) -> bool {
        matches!(self, Self::Nibble | Self::N256)
    }

    /// Returns a tree's smallest type for this many children, not counting the key that ends there.
    pub(super) fn fit(types: &[Self], children: usize) -> Self {
        types.iter().copied().find(|ty| ty.capacity() >= children).unwrap_or(types[types.len() - 1])
    }

    /// Returns whether a node with this many children, not counting the key that ends there, should
    /// be rebuilt: at most half of the next smaller type's capacity, so that deleting and
    /// reinserting a key does not change the type twice.
    pub(super) fn is_sparse(self, types: &[Self], children: usize) -> bool {
        let at = types.iter().position(|&ty| ty == self).and_then(|at| at.checked_sub(1));
        at.is_some_and(|at| children * 2 <= types[at].capacity())
    }
}

/// Positions of words in a node.
pub(super) type Positions = SmallVec<[usize; 24]>;

/// The changes of words by which a node gains or loses a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    /// Words without effect yet, by their positions.
    pub(super) before: SmallVec<[(usize, u64); 2]>,
    /// The deciding word: its position, its current value, its new value.
    pub(super) commit: (usize, u64, u64),
}

impl Edit {
    fn of(commit: (usize, u64, u64)) -> Self {
        Self { before: SmallVec::new(), commit }
    }
}

/// A node that was read whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'a> {
    pub(super) ty: NodeType,
    pub(super) words: &'a [u64],
}

fn byte(words: &[u64], from: usize, at: usize) -> u8 {
    words[from + at / 8].to_le_bytes()[at % 8]
}

fn with_byte(word: u64, at: usize, byte: u8) -> u64 {
    let mut bytes = word.to_le_bytes();
    bytes[at % 8] = byte;
    u64::from_le_bytes(bytes)
}

/// Returns the entries of a slot array: key byte and number of the slot, in the order of the bytes.
fn entries(word: u64) -> SmallVec<[(u8, u8); 4]> {
    let bytes = word.to_le_bytes();
    (0..4).filter(|&at| bytes[4 + at] != 0).map(|at| (bytes[at], bytes[4 + at] - 1)).collect()
}

fn slot_array(mut entries: SmallVec<[(u8, u8); 4]>) -> u64 {
    entries.sort_unstable();
    let mut bytes = [0; 8];
    for (at, (key, number)) in entries.into_iter().enumerate() {
        (bytes[at], bytes[4 + at]) = (key, number + 1);
    }
    u64::from_le_bytes(bytes)
}

impl<'a> Node<'a> {
    pub(super) const fn new(ty: NodeType, words: &'a [u64]) -> Self {
        Self { ty, words }
    }

    pub(super) fn header(&self) -> Header {
        Header::from_word(self.words[0])
    }

    fn slot(&self, at: usize) -> Slot {
        Slot::from_word(self.words[at])
    }

    /// Returns the numbers of the slots that the deciding words give for an edge: one in a sound
    /// node.
    fn numbers(&self, edge: u16) -> SmallVec<[usize; 2]> {
        let digit = usize::from(edge);
        match self.ty {
            NodeType::Nibble | NodeType::N256 => {
                (digit < self.ty.capacity()).then_some(digit).into_iter().collect()
            }
            NodeType::N4 => {
                let found = entries(self.words[MAP_AT]).into_iter();
                found.filter(|&(key, _)| u16::from(key) == edge).map(|(_, number)| number.into()).collect()
            }
            NodeType::N16 => {
                let (bitmap, words) = (self.words[MAP_AT], self.words);
                let is_of =
                    |&at: &usize| bitmap >> at & 1 == 1 && u16::from(byte(words, KEYS_AT, at)) == edge;
                (0..16).filter(is_of).collect()
            }
            NodeType::N48 => {
                let number = byte(self.words, MAP_AT, digit);
                number.checked_sub(1).map(usize::from).into_iter().collect()
            }
        }
    }

    /// Returns the slot of an edge that has a child, and its position.
    pub(super) fn find(&self, edge: u16) -> Option<(usize, Slot)> {
        if edge == END {
            let slot = self.slot(END_AT);
            return (slot.is_of(END) && slot.is_live()).then_some((END_AT, slot));
        }
        let first = self.ty.slots_at();
        let mut places = self.numbers(edge).into_iter().filter(|&at| at < self.ty.capacity());
        places
            .find(|&at| self.slot(first + at).is_of(edge) && self.slot(first + at).is_live())
            .map(|at| (first + at, self.slot(first + at)))
    }

    /// Returns the positions of the words that [`Node::find`] needs, and of the header, ascending.
    pub(super) fn words_for(&self, edge: u16) -> Positions {
        let map = match self.ty {
            _ if edge == END => END_AT..END_AT + 1,
            NodeType::Nibble | NodeType::N256 => 0..0,
            NodeType::N4 => MAP_AT..KEYS_AT,
            NodeType::N16 => MAP_AT..self.ty.slots_at(),
            NodeType::N48 => {
                let at = MAP_AT + usize::from(edge) / 8;
                at..at + 1
            }
        };
        let numbers = if edge == END { SmallVec::new() } else { self.numbers(edge) };
        let slots = numbers.into_iter().map(|number| self.ty.slots_at() + number);
        std::iter::once(0).chain(map).chain(slots).collect()
    }

    /// Returns the positions of the words needed to list all children, and of the header,
    /// ascending.
    pub(super) fn words_for_all(&self) -> Positions {
        if self.ty.is_direct() {
            return (0..self.ty.words()).collect();
        }
        let mut slots: Positions = self.children().iter().map(|&(at, _)| at).collect();
        slots.retain(|at| *at != END_AT);
        slots.sort_unstable();
        (0..self.ty.slots_at()).chain(slots).collect()
    }

    /// Returns the positions of the words needed to find the first child, and of the header,
    /// ascending.
    pub(super) fn words_for_first(&self) -> Positions {
        let children = self.children();
        let Some(&(at, slot)) = children.first() else { return self.words_for_all() };
        let edge = usize::from(slot.edge().unwrap_or(END));
        let map_end = match self.ty {
            _ if at == END_AT => return (0..=END_AT).collect(),
            NodeType::Nibble | NodeType::N256 => at,
            NodeType::N4 | NodeType::N16 => self.ty.slots_at(),
            NodeType::N48 => MAP_AT + edge / 8 + 1,
        };
        (0..map_end).chain([at]).collect()
    }

    /// Returns the children with their positions, in key order, the key that ends here first.
    pub(super) fn children(&self) -> SmallVec<[(usize, Slot); 16]> {
        let mut edges: SmallVec<[u16; 16]> = match self.ty {
            NodeType::Nibble => (0..16).collect(),
            NodeType::N4 => entries(self.words[MAP_AT]).iter().map(|&(key, _)| key.into()).collect(),
            NodeType::N16 => {
                let used = (0..16).filter(|at| self.words[MAP_AT] >> at & 1 == 1);
                used.map(|at| byte(self.words, KEYS_AT, at).into()).collect()
            }
            NodeType::N48 | NodeType::N256 => (0..256).collect(),
        };
        edges.push(END);
        edges.sort_unstable_by_key(|&edge| order_of(edge));
        edges.dedup();
        edges.into_iter().filter_map(|edge| self.find(edge)).collect()
    }

    /// Checks for a state that no writer leaves: a deciding word that leads to no child.
    pub(super) fn violation(&self) -> Option<&'static str> {
        let live = self.children();
        let counted = match self.ty {
            NodeType::Nibble | NodeType::N256 => {
                let slots = &self.words[self.ty.slots_at()..];
                slots.iter().filter(|&&word| word != 0).count()
            }
            NodeType::N4 => entries(self.words[MAP_AT]).len(),
            NodeType::N16 => self.words[MAP_AT].count_ones() as usize,
            NodeType::N48 => (0..256).filter(|&at| byte(self.words, MAP_AT, at) != 0).count(),
        };
        let below = live.iter().filter(|(at, _)| *at != END_AT).count();
        if counted != below {
            return Some("a slot counts but holds no child of its digit");
        }
        let has_end = live.len() > below;
        if (self.words[END_AT] != 0) != has_end {
            return Some("the slot of the key that ends here holds another child");
        }
        None
    }

    /// Returns the edit that adds a child to an edge without one; `None` if no slot is unused.
    pub(super) fn addition(&self, edge: u16, child: Slot) -> Option<Edit> {
        let (first, word) = (self.ty.slots_at(), child.word());
        if edge == END {
            return Some(Edit::of((END_AT, self.words[END_AT], word)));
        }
        let digit = usize::from(edge);
        if self.ty.is_direct() {
            let at = first + digit;
            return (digit < self.ty.capacity()).then(|| Edit::of((at, self.words[at], word)));
        }
        let number = (0..self.ty.capacity()).find(|&at| self.words[first + at] == 0)?;
        let mut before = SmallVec::from_iter([(first + number, word)]);
        let old = self.words[MAP_AT];
        let commit = match self.ty {
            NodeType::N4 => {
                let mut entries = entries(old);
                if entries.len() == 4 {
                    return None;
                }
                entries.push((edge as u8, number as u8));
                (MAP_AT, old, slot_array(entries))
            }
            NodeType::N16 => {
                let at = KEYS_AT + number / 8;
                before.insert(0, (at, with_byte(self.words[at], number, edge as u8)));
                (MAP_AT, old, old | 1 << number)
            }
            _ => {
                let at = MAP_AT + digit / 8;
                (at, self.words[at], with_byte(self.words[at], digit, number as u8 + 1))
            }
        };
        Some(Edit { before, commit })
    }

    /// Returns the edit that removes the child of an edge: one word.
    pub(super) fn removal(&self, edge: u16, at: usize) -> Edit {
        let (old, digit) = (self.words[MAP_AT], usize::from(edge));
        let number = at.saturating_sub(self.ty.slots_at());
        Edit::of(match self.ty {
            _ if edge == END || self.ty.is_direct() => (at, self.words[at], 0),
            NodeType::N4 => {
                let mut entries = entries(old);
                entries.retain(|(key, _)| u16::from(*key) != edge);
                (MAP_AT, old, slot_array(entries))
            }
            NodeType::N16 => (MAP_AT, old, old & !(1 << number)),
            _ => {
                let at = MAP_AT + digit / 8;
                (at, self.words[at], with_byte(self.words[at], digit, 0))
            }
        })
    }
}

/// Returns the words of a node with these children under their edges, which must fit in `ty`.
pub(super) fn image(ty: NodeType, header: Header, children: &[Slot]) -> Vec<u64> {
    let mut words = vec![0; ty.words()];
    words[0] = header.word();
    for &child in children {
        let edit = child.edge().and_then(|edge| Node::new(ty, &words).addition(edge, child));
        debug_assert!(edit.is_some(), "{ty:?} has no room for {children:?}");
        let Some(Edit { before, commit: (at, _, word) }) = edit else { continue };
        for (at, word) in before {
            words[at] = word;
        }
        words[at] = word;
    }
    words
}

/// Returns the number of children other than the key that ends at the node.
pub(super) fn beside_end(children: &[Slot]) -> usize {
    children.iter().filter(|slot| slot.edge() != Some(END)).count()
}

/// The format of a tree's nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    pub(super) digits: Digits,
    pub(super) types: &'static [NodeType],
    /// Whether NODE4 and NODE16 gain children, and nodes other paths, only in copies.
    pub(super) copies: bool,
}

const _: () = assert!(NodeType::Nibble.bytes() == 144 && NodeType::N4.bytes() == 56);
const _: () = assert!(NodeType::N16.bytes() == 168 && NodeType::N48.bytes() == 656);
const _: () = assert!(NodeType::N256.bytes() == 2064);

#[cfg(test)]
mod tests {
    use super::*;
    use darter_fabric::GlobalAddr;

    fn leaf(edge: u16) -> Slot {
        Slot::leaf(edge, 4, GlobalAddr::new(0, 4096 + u64::from(edge) * 16))
    }

    fn apply(words: &mut [u64], edit: &Edit) {
        for &(at, word) in &edit.before {
            words[at] = word;
        }
        assert_eq!(words[edit.commit.0], edit.commit.1);
        words[edit.commit.0] = edit.commit.2;
    }

    /// Children are added and removed; uncommitted children are invisible.
    #[test]
    fn children_come_and_go_by_one_word() {
        for ty in OF_WORT.iter().chain(ADAPTIVE).copied() {
            let most = ty.capacity() as u16;
            let mut words = image(ty, Header::default(), &[]);
            for edge in (0..most).rev().chain([END]) {
                let edit = Node::new(ty, &words).addition(edge, leaf(edge)).unwrap();
                let mut half = words.clone();
                for &(at, word) in &edit.before {
                    half[at] = word;
                    assert_eq!(Node::new(ty, &half).find(edge), None);
                }
                apply(&mut words, &edit);
                assert_eq!(Node::new(ty, &words).find(edge).map(|found| found.1), Some(leaf(edge)));
                assert_eq!(Node::new(ty, &words).violation(), None);
            }
            let children: Vec<u16> =
                Node::new(ty, &words).children().iter().filter_map(|(_, slot)| slot.edge()).collect();
            assert_eq!(children, [END].into_iter().chain(0..most).collect::<Vec<_>>());
            if !ty.is_direct() {
                assert!(Node::new(ty, &words).addition(200, leaf(200)).is_none());
            }
            for edge in (0..most).chain([END]) {
                let node = Node::new(ty, &words);
                let (at, _) = node.find(edge).unwrap();
                let edit = node.removal(edge, at);
                apply(&mut words, &edit);
                assert_eq!(Node::new(ty, &words).find(edge), None);
                assert_eq!(Node::new(ty, &words).violation(), None);
                if edge != END && !ty.is_direct() {
                    assert!(Node::new(ty, &words).addition(edge, leaf(edge)).is_none(), "slots are appended");
                }
            }
            assert!(Node::new(ty, &words).children().is_empty());
        }
    }

    /// As in the table of formats: the words that a search reads, and those needed to list a node.
    #[test]
    fn words_that_are_looked_at() {
        let node = |ty, edges: &[u16]| {
            image(ty, Header::default(), &edges.iter().map(|&edge| leaf(edge)).collect::<Vec<_>>())
        };
        let nibble = node(NodeType::Nibble, &[3, 9]);
        let nibble = Node::new(NodeType::Nibble, &nibble);
        assert_eq!(nibble.words_for(9)[..], [0, 11]);
        assert_eq!(nibble.words_for(4)[..], [0, 6], "an empty slot is read");
        assert_eq!(nibble.words_for(END)[..], [0, 1]);
        assert_eq!(nibble.words_for_first()[..], [0, 1, 2, 3, 4, 5]);
        assert_eq!(nibble.words_for_all().len(), 18);
        let four = node(NodeType::N4, &[7, 5]);
        assert_eq!(Node::new(NodeType::N4, &four).words_for(5)[..], [0, 2, 4]);
        assert_eq!(Node::new(NodeType::N4, &four).words_for(6)[..], [0, 2]);
        let sixteen = node(NodeType::N16, &[70, 50, 60]);
        let sixteen = Node::new(NodeType::N16, &sixteen);
        assert_eq!(sixteen.words_for(60)[..], [0, 2, 3, 4, 7]);
        assert_eq!(sixteen.words_for_first()[..], [0, 1, 2, 3, 4, 6]);
        assert_eq!(sixteen.words_for_all()[..], [0, 1, 2, 3, 4, 5, 6, 7]);
        let large = node(NodeType::N48, &[200, 8, END]);
        let large = Node::new(NodeType::N48, &large);
        assert_eq!(large.words_for(200)[..], [0, 27, 34]);
        assert_eq!(large.words_for(201)[..], [0, 27]);
        assert_eq!(large.words_for_first()[..], [0, 1], "the key that ends here is the first");
        assert_eq!(large.words_for_all()[..], (0..36).collect::<Vec<_>>());
        let full = node(NodeType::N256, &[255]);
        assert_eq!(Node::new(NodeType::N256, &full).words_for(255)[..], [0, 257]);
    }

    #[test]
    fn types_that_fit() {
        for (children, ty) in [(0, NodeType::N4), (4, NodeType::N4), (5, NodeType::N16), (49, NodeType::N256)]
        {
            assert_eq!(NodeType::fit(ADAPTIVE, children), ty);
        }
        assert_eq!(NodeType::fit(OF_WORT, 16), NodeType::Nibble);
        assert!(NodeType::N16.is_sparse(ADAPTIVE, 2) && !NodeType::N16.is_sparse(ADAPTIVE, 3));
        assert!(!NodeType::N4.is_sparse(ADAPTIVE, 0) && !NodeType::Nibble.is_sparse(OF_WORT, 1));
    }
}
