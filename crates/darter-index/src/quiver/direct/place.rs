//! A key's page in memory of this process, and the key's places in it.

use crate::quiver::descent::Image;
use crate::quiver::hint::NodeHint;
use crate::quiver::nibble::{edge, identity_of, nibbles};
use crate::quiver::node::{Content, GUARD_AT, HEAD_WORDS, NodeAt, SLOTS_END, Slot, born, verify_head};
use crate::quiver::page::{
    DELTA_MAX, FIXED_WORDS, Head, IDENTITY_AT, MAP_WORDS_FORESEEN, PageRef, Shape, verify_word,
};
use crate::quiver::shared::Shared;
use crate::quiver::word::{LeafPrint, Print, State, Word};
use crate::radix::leaf;
use crate::radix::seal::SEAL;
use darter_fabric::GlobalAddr;
use darter_fabric::local::{Memory, Words};
use darter_fabric::turns::PORTION_BYTES;
use smallvec::{Array, SmallVec};

/// Words of the largest leaf that is loaded: a turn cannot end before all of it is.
const LEAF_WORDS_MAX: usize = PORTION_BYTES / 8;

/// Words of a page's head.
type HeadWords = SmallVec<[u64; FIXED_WORDS + DELTA_MAX + MAP_WORDS_FORESEEN]>;
/// Words of a page's map.
type Map = SmallVec<[u64; MAP_WORDS_FORESEEN]>;

/// Loads words.
#[inline]
fn loaded<const N: usize>(words: Words<'_>) -> SmallVec<[u64; N]>
where
    [u64; N]: Array<Item = u64>,
{
    if words.len() > N {
        let mut list = vec![0; words.len()];
        words.load_into(&mut list);
        return list.into();
    }
    let mut list = [0; N];
    words.load_into(&mut list);
    SmallVec::from_buf_and_len(list, words.len())
}

/// The search by verbs must decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::quiver) struct Unsure;

/// The result of a step, if it is one of the usual cases.
pub(in crate::quiver) type Sure<T> = std::result::Result<T, Unsure>;

/// A page that is responsible for the edge of a key.
pub(in crate::quiver) struct Page<'m> {
    pub(in crate::quiver) memory: Memory<'m>,
    pub(in crate::quiver) at: PageRef,
    pub(in crate::quiver) shape: Shape,
    pub(in crate::quiver) words: Words<'m>,
}

/// The record at the rank of a key.
pub(in crate::quiver) enum Record {
    /// It is the key's: its address, its word, and its value if the word is INLINE or LEAF.
    Own { addr: GlobalAddr, word: Word, is_inline: bool, value: Option<Image> },
    /// The key is not static.
    Other,
}

/// The slot that a key leads to.
pub(in crate::quiver) struct Way {
    /// The node that has the slot, and its identity.
    pub(in crate::quiver) node: NodeAt,
    pub(in crate::quiver) identity: u64,
    /// The slot's edge, and the key's.
    pub(in crate::quiver) lo: u8,
    pub(in crate::quiver) own: u8,
    pub(in crate::quiver) content: Content,
}

/// Descends from the root word to the slot that is responsible for a key's edge, if the key has the
/// prefix of the slot's node.
#[inline]
pub(in crate::quiver) fn way_to(shared: &Shared, memory: Memory<'_>, key: &[u8]) -> Sure<Way> {
    let root = Slot::from_root_word(memory.words(shared.words.root, 1).ok_or(Unsure)?.load(0));
    let Content::Node { addr, skip: 0 } = root.content() else { return Err(Unsure) };
    let mut node = NodeAt { addr, depth: 0 };
    loop {
        if node.depth > nibbles(key) {
            return Err(Unsure);
        }
        let (words, own) = (memory.words(node.addr, SLOTS_END).ok_or(Unsure)?, edge(key, node.depth));
        let identity = words.load(0);
        if !memory.is_transient() {
            verify_head(node, &[identity, words.load(GUARD_AT)]).map_err(|_| Unsure)?;
        }
        let mut lo = own;
        let content = loop {
            let slot = Slot::loaded(words.load(HEAD_WORDS + usize::from(lo)), identity, lo);
            match slot.content() {
                Content::Empty => lo = lo.checked_sub(1).ok_or(Unsure)?,
                content => break content,
            }
        };
        match content {
            Content::Node { skip, addr } if lo == own => {
                node = NodeAt { addr, depth: node.depth + 1 + skip };
            }
            content => return Ok(Way { node, identity, lo, own, content }),
        }
    }
}

/// The node with the slot that a key leads to, as a descent may know it.
pub(in crate::quiver) fn node_of(shared: &Shared, memory: Memory<'_>, key: &[u8]) -> Sure<NodeHint> {
    let NodeAt { addr, depth } = way_to(shared, memory, key)?.node;
    let guard = memory.words(addr.plus(GUARD_AT as u64 * 8), 1).ok_or(Unsure)?.load(0);
    Ok(NodeHint { addr, born: born(guard), depth })
}

impl Way {
    /// Whether the node has a prefix of the key that led to the slot.
    pub(in crate::quiver) fn is_of(&self, shared: &Shared, key: &[u8]) -> bool {
        self.identity == identity_of(shared.keys, key, self.node.depth)
    }

    /// The slot's page, if the page is responsible for the key's edge.
    #[inline]
    pub(in crate::quiver) fn page<'m>(&self, memory: Memory<'m>, key: &[u8]) -> Sure<Page<'m>> {
        match self.content {
            Content::Page { class, addr, .. } => Page::of(memory, PageRef { addr, class }, key),
            _ => Err(Unsure),
        }
    }
}

impl<'m> Page<'m> {
    #[inline]
    fn of(memory: Memory<'m>, page: PageRef, key: &[u8]) -> Sure<Self> {
        // The guard tells where the map is: both are fetched at once.
        memory.prefetch(page.addr, FIXED_WORDS + DELTA_MAX + MAP_WORDS_FORESEEN);
        let words = memory.words(page.addr, page.words()).ok_or(Unsure)?;
        let shape = Shape::parse(page, words.load(0), words.load(2)).map_err(|_| Unsure)?;
        let is_responsible = shape.depth <= nibbles(key) && shape.edges.contains(edge(key, shape.depth));
        if is_responsible { Ok(Self { memory, at: page, shape, words }) } else { Err(Unsure) }
    }

    /// Whether the page is being replaced.
    pub(in crate::quiver) fn is_sealed(&self) -> bool {
        self.words.load(0) & SEAL != 0
    }

    /// The page's head, verified if a medium may have damaged it.
    pub(in crate::quiver) fn head(&self) -> Sure<Head> {
        let words: HeadWords = loaded(self.part(0, self.shape.head_words())?);
        if self.memory.is_transient() {
            return Ok(Head::of(self.at, self.shape, &words));
        }
        Head::parse(self.at, &words).map_err(|_| Unsure)?.map_err(|_| Unsure)
    }

    /// The record at the key's rank. If `overwrites` is true, the key's leaf is not loaded.
    pub(in crate::quiver) fn record(
        &self,
        key: &[u8],
        print: impl Fn() -> Print,
        overwrites: bool,
    ) -> Sure<Record> {
        let Some(rank) = self.rank(key)? else { return Ok(Record::Other) };
        let addr = self.at.addr.plus(self.shape.record_at(rank) as u64 * 8);
        let word = Word(self.words.load(self.shape.record_at(rank)));
        let state = word.state();
        let names = || word.may_be_leaf_of(self.leaf_print(key, print()));
        let is_trusted = self.memory.is_transient();
        let Some(image) = self.own_words(rank)? else {
            // No pair was ever stored here: the key is in the leaf.
            if !matches!(state, State::Leaf { .. }) || !(is_trusted || names()) {
                return Err(Unsure);
            }
            return Ok(match self.leaf(word, key)? {
                Some(value) => Record::Own { addr, word, is_inline: false, value: Some(value) },
                None => Record::Other,
            });
        };
        let image = self.image(image);
        if self.parse(addr, &image)?.key != key {
            return Ok(Record::Other);
        }
        let value = match state {
            State::Inline if word.is_of_life(self.shape.born) => Some(image),
            State::Tomb if word.is_of_life(self.shape.born) => None,
            State::Leaf { .. } if overwrites && !word.is_intent() && names() => None,
            State::Leaf { .. } if is_trusted || names() => Some(self.leaf(word, key)?.ok_or(Unsure)?),
            _ => return Err(Unsure),
        };
        Ok(Record::Own { addr, word, is_inline: true, value })
    }

    /// The words of the delta, loaded one after another.
    pub(in crate::quiver) fn delta(&self) -> impl Iterator<Item = Word> + use<'m> {
        let words = self.words;
        (FIXED_WORDS..FIXED_WORDS + self.shape.delta).map(move |at| Word(words.load(at)))
    }

    /// The key's pair in these words of the delta: the slot's address, its word, and the leaf's image.
    pub(in crate::quiver) fn pair_in(
        &self,
        delta: impl Iterator<Item = Word>,
        key: &[u8],
        print: Print,
    ) -> Sure<Option<(GlobalAddr, Word, Image)>> {
        let print = self.leaf_print(key, print);
        for (at, word) in (FIXED_WORDS as u64..).zip(delta).take_while(|(_, word)| !word.is_empty()) {
            if word.may_be_leaf_of(print)
                && let Some(image) = self.leaf(word, key)?
            {
                return Ok(Some((self.at.addr.plus(at * 8), word, image)));
            }
        }
        Ok(None)
    }

    /// Whether a key that is neither in its record nor in the delta is absent: the page is of the
    /// key's prefix, and no damage hides the key. Memory that a medium may have damaged needs the
    /// page's head.
    pub(in crate::quiver) fn proves_absence(&self, shared: &Shared, head: Option<&Head>, key: &[u8]) -> bool {
        self.words.load(IDENTITY_AT) == identity_of(shared.keys, key, self.shape.depth)
            && (self.memory.is_transient()
                || head.is_some_and(|head| self.is_undamaged(shared, head, key) == Ok(true)))
    }

    /// Whether the record at the key's rank rightly has another key.
    fn is_undamaged(&self, shared: &Shared, head: &Head, key: &[u8]) -> Sure<bool> {
        let Some(rank) = self.rank(key)? else { return Ok(true) };
        let image = self.image(self.own_words(rank)?.ok_or(Unsure)?);
        let (addr, other) = (head.record_addr(rank), self.parse(self.at.addr, &image)?.key);
        let (word, print) = (self.words.load(self.shape.record_at(rank)), Print::new(shared.keys, other));
        let is_own_word = verify_word(addr, Word(word), self.shape.born, Some(print)).is_ok();
        Ok(is_own_word && self.shape.may_stand_at(rank, &head.map, other, key))
    }

    /// The print of the key in this page's LEAF words.
    pub(in crate::quiver) fn leaf_print(&self, key: &[u8], print: Print) -> LeafPrint {
        self.shape.leaf_print(self.at.addr, key, print)
    }

    fn rank(&self, key: &[u8]) -> Sure<Option<usize>> {
        let words = self.shape.map_words;
        let map: Map = loaded(self.part(self.shape.head_words() - words, words)?);
        Ok(self.shape.rank(&map, key))
    }

    /// The words of some records.
    pub(in crate::quiver) fn records(&self, first: usize, records: usize) -> Sure<Words<'m>> {
        self.part(self.shape.record_at(first), records * self.shape.record_words)
    }

    fn part(&self, first: usize, words: usize) -> Sure<Words<'m>> {
        self.words.part(first, words).ok_or(Unsure)
    }

    /// The words of the pair stored in a record, whatever the record's word; `None` if there never
    /// was one.
    fn own_words(&self, rank: usize) -> Sure<Option<Words<'m>>> {
        let words = self.shape.record_words.saturating_sub(1);
        let own = self.part(self.shape.record_at(rank) + 1, words)?;
        Ok(Some(own).filter(|own| !own.is_empty() && own.load(0) != 0))
    }

    /// The image of the pair stored in a record.
    fn image(&self, own: Words<'_>) -> Image {
        let mut image: Image = loaded(own);
        image[0] = leaf::bind(image[0], self.at.addr);
        image
    }

    /// The address and the words of the leaf that a word names, unless it is an intent or has more
    /// than `words_max` words.
    pub(in crate::quiver) fn leaf_words(
        &self,
        word: Word,
        words_max: usize,
    ) -> Sure<(GlobalAddr, Words<'m>)> {
        let (addr, class, _) = word.leaf_object().filter(|_| !word.is_intent()).ok_or(Unsure)?;
        let words = Some(leaf::class_words(class)).filter(|words| *words <= words_max).ok_or(Unsure)?;
        Ok((addr, self.memory.words(addr, words).ok_or(Unsure)?))
    }

    /// The image of the leaf that a word names, if it is the key's; `None` if it is another key's.
    fn leaf(&self, word: Word, key: &[u8]) -> Sure<Option<Image>> {
        let (addr, words) = self.leaf_words(word, LEAF_WORDS_MAX)?;
        let image: Image = loaded(words);
        let is_own = self.parse(addr, &image)?.key == key;
        // Other keys rarely have the same print: on a medium, it may be damage.
        if is_own || self.memory.is_transient() { Ok(is_own.then_some(image)) } else { Err(Unsure) }
    }

    /// The pair of an image, verified if a medium may have damaged it.
    #[inline]
    pub(in crate::quiver) fn parse<'w>(&self, addr: GlobalAddr, image: &'w [u64]) -> Sure<leaf::Leaf<'w>> {
        let is_trusted = self.memory.is_transient();
        let parsed = if is_trusted { leaf::parse_again(addr, image) } else { leaf::parse(addr, image) };
        parsed.map_err(|_| Unsure)
    }
}
