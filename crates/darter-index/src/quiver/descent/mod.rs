//! The path from a key to its place, the first half of every point operation (`docs/quiver.md`,
//! "Protocol").
//!
//! A [`Descent`] is a state machine without a fabric ([`Search`]). It starts at the page or the
//! node that the process remembers for the key, otherwise at the root. Remembered pages and nodes
//! must prove that they are alive (L2); if not, they are forgotten and the descent restarts at the
//! root. Below the root, or a live node, every page and node was linked at some moment of the
//! operation, so its words count as they are, sealed or not (L5).

mod hot;
mod machine;
mod probe;
mod record;

#[cfg(test)]
pub(super) use self::hot::post as hot_reads;
use super::cache::{Hit, KnownNode};
use super::hint::{HotLeaf, HotWord, NodeHint, PageHint};
use super::map_copy;
use super::nibble::{NibbleKey, edge, nibbles};
pub(super) use super::node::NodeAt;
use super::node::{self, Content};
pub(super) use super::outcome::{Found, Image, Lookup, PageSearchEnd, Purpose};
use super::page::{self, Head, PageRef, Shape, image_in, standing, standing_whole};
use super::parent_slot::{ParentSlot, SlotAt};
use super::shared::Shared;
use super::situations;
use super::skip::Guide;
use super::word::{LeafPrint, Print, State, Word};
use crate::checker::note;
use crate::radix::leaf;
use crate::{IndexError, Result};
use darter_fabric::{Batch, GlobalAddr, ReadId};
use smallvec::SmallVec;

/// The part of a page that is read after its head.
struct Probe {
    head: Head,
    /// The record at the key's rank, once it is read.
    record: Option<(usize, Image)>,
    record_read: Option<(usize, Option<ReadId>)>,
    /// Delta slots that may be the key's, with the READs of their leaves.
    leaves: SmallVec<[(usize, Option<ReadId>); 2]>,
    /// The key's pair in the delta.
    in_delta: Option<(usize, Image)>,
    /// What is wrong with one of these leaves, which may be the key's.
    damage: Option<IndexError>,
    /// The READ of the record's leaf.
    record_leaf: Option<ReadId>,
}

enum Stage {
    /// The root word, and that of the skip table.
    RootWord(Option<[ReadId; 2]>),
    /// The skip table's buckets for the key.
    Skip,
    Node {
        read: Option<ReadId>,
        hint: Option<NodeHint>,
    },
    /// The first words of a page's head, and the record at the rank given by a known map.
    Head {
        page: PageRef,
        words: usize,
        read: Option<ReadId>,
        foreseen: Option<(usize, Option<ReadId>)>,
    },
    Probe(Box<Probe>),
    RecordLeaf(Box<Probe>),
    /// For readers that know the page's map: only a record.
    Record {
        rank: usize,
        /// With the page's first words if the rank comes from a copy of the map.
        reads: Option<(ReadId, Option<ReadId>)>,
    },
    /// … and its leaf, with the page's first words.
    Leaf {
        leaf: PageRef,
        reads: Option<(ReadId, ReadId)>,
    },
    /// For readers that remember a word with the key's leaf: the word, the page's first words, and
    /// the leaf, in this order.
    Hot {
        hot: HotWord,
        reads: Option<[ReadId; 3]>,
    },
}

/// What is known of the next page.
struct Lead {
    hint: PageHint,
    /// The identity that the page's node is remembered under, if the process remembers the page.
    /// Otherwise the page was found by its node: it was linked when its slot was read.
    remembered: Option<u64>,
}

/// A key's way through a remembered page.
#[derive(Clone, Copy)]
struct Way {
    /// Its rank if it is static.
    rank: Option<usize>,
    print: LeafPrint,
    /// The word that may name the key's leaf.
    hot: Option<HotWord>,
}

impl Way {
    fn of(hint: &PageHint, key: &[u8], print: Print) -> Self {
        let rank = hint.shape.rank(&hint.map, key);
        Self { rank, print: hint.shape.leaf_print(hint.page.addr, key, print), hot: None }
    }
}

/// The descent for one key.
pub(super) struct Descent<'k> {
    pub(super) key: NibbleKey<'k>,
    pub(super) print: Print,
    purpose: Purpose,
    stage: Stage,
    node: NodeAt,
    /// The current node as the process remembers it.
    known: Option<KnownNode>,
    /// The slot that points to the current node; `None` at the root and at a remembered node.
    pub(super) incoming: Option<ParentSlot>,
    /// The slot that points to the current page.
    from: Option<ParentSlot>,
    lead: Option<Lead>,
    /// The record that a remembered page led to, with its rank.
    seen: Option<Box<(usize, Image)>>,
    /// A leaf that a writer reads with the head of the remembered page.
    beside: Option<hot::Beside>,
    epoch: u64,
    /// A slot that covered the key's edge but whose own range ends before it.
    gap: Option<SlotAt>,
    /// The work with the skip table, for a descent that found too little remembered.
    guide: Option<Box<Guide>>,
    /// Whether the descent may begin where the skip table leads.
    may_skip: bool,
    /// Nodes read so far.
    pub(super) nodes_read: u32,
}

impl<'k> Descent<'k> {
    /// A descent that begins at the remembered node or page, in the epoch at which the client is
    /// pinned.
    pub(super) fn new(shared: &Shared, key: &'k [u8], purpose: Purpose, epoch: u64) -> Self {
        let mut descent = Self::from_root(shared, key, purpose, epoch);
        descent.may_skip = true;
        shared.cache.enter(epoch);
        let print = descent.print;
        let hit = shared.cache.find_with(&mut descent.key, |hint, mut hot| {
            let way = Way::of(hint, key, print);
            let own = hot.for_key(way.rank, way.print);
            if let (Some(own), Purpose::Read) = (own, purpose) {
                hot.touch(own.slot);
            }
            Way { hot: own, ..way }
        });
        match hit {
            Some((Hit { page: Some(page), identity, node }, Some(way))) => {
                descent.node = node.into();
                descent.enter_remembered(page, identity, way);
            }
            Some((Hit { node, .. }, _)) => descent.enter_node(node),
            None => descent.enter_root(shared),
        }
        descent
    }

    /// A descent that begins at this node, if it is still what the hint says, or else at the deepest
    /// node that the process remembers.
    pub(super) fn by_nodes(
        shared: &Shared,
        key: &'k [u8],
        purpose: Purpose,
        epoch: u64,
        node: Option<NodeHint>,
    ) -> Self {
        let mut descent = Self::from_root(shared, key, purpose, epoch);
        descent.may_skip = true;
        match node.or_else(|| shared.cache.find(&mut descent.key).map(|hit| hit.node)) {
            Some(node) => descent.enter_node(node),
            None => descent.enter_root(shared),
        }
        descent
    }

    /// A descent that begins at the root word.
    pub(super) fn from_root(shared: &Shared, key: &'k [u8], purpose: Purpose, epoch: u64) -> Self {
        let mut key = NibbleKey::new(shared.keys, key);
        Self {
            print: Print::of(&mut key),
            key,
            purpose,
            stage: Stage::RootWord(None),
            node: NodeAt { addr: shared.words.root, depth: 0 },
            known: None,
            incoming: None,
            from: None,
            lead: None,
            seen: None,
            beside: None,
            epoch,
            gap: None,
            guide: None,
            may_skip: false,
            nodes_read: 0,
        }
    }

    /// Goes to a remembered page: to the key's leaf if one of its hot words may name it, otherwise
    /// with the page's head if the key may be in the delta.
    fn enter_remembered(&mut self, hint: PageHint, identity: u64, way: Way) {
        let is_static = !hint.delta.may_have(way.print);
        self.enter_lead(Lead { hint, remembered: Some(identity) }, way.rank, is_static);
        match self.purpose {
            Purpose::Read => {
                if let Some(hot) = way.hot {
                    self.stage = Stage::Hot { hot, reads: None };
                }
            }
            Purpose::Write => self.beside = way.hot.map(hot::Beside::new),
            // A record's leaf need not be read.
            Purpose::Overwrite => {
                let in_delta = way.hot.filter(|hot| hot.slot.place_in_delta().is_some());
                self.beside = in_delta.map(hot::Beside::new);
            }
        }
    }

    /// Goes to the record at the rank known for the key, without the head if a reader probably
    /// needs only the record.
    fn enter_lead(&mut self, lead: Lead, rank: Option<usize>, is_likely: bool) {
        self.stage = match (rank, self.purpose) {
            (Some(rank), Purpose::Read) if is_likely => Stage::Record { rank, reads: None },
            _ => Stage::Head {
                page: lead.hint.page,
                words: lead.hint.shape.head_words(),
                read: None,
                foreseen: rank.map(|rank| (rank, None)),
            },
        };
        self.lead = Some(lead);
    }

    /// Goes to the head of a page whose shape is unknown; `words` is the number of words to read.
    fn enter_page(&mut self, page: PageRef, words: usize) {
        self.stage = Stage::Head { page, words, read: None, foreseen: None };
    }

    /// The copy of the page's map was of no use: reads the page's own map.
    fn enter_without_copy(&mut self, shared: &Shared, page: PageRef) {
        note(situations::MAP_COPY_WRONG);
        self.lead = None;
        self.enter_page(page, page.head_words(shared.geometry.delta));
    }

    /// Whether the next page is a remembered one.
    fn is_by_memory(&self) -> bool {
        self.lead.as_ref().is_some_and(|lead| lead.remembered.is_some())
    }

    /// The record at the rank given by a remembered page, the page, and its shape.
    pub(super) fn foreseen(&self) -> Option<(GlobalAddr, PageRef, Shape)> {
        match (&self.stage, &self.lead) {
            (Stage::Head { foreseen: Some((rank, _)), .. }, Some(Lead { hint, remembered: Some(_) })) => {
                Some((hint.page.addr.plus(hint.shape.record_at(*rank) as u64 * 8), hint.page, hint.shape))
            }
            _ => None,
        }
    }

    /// The key stored in that record, which `done` has read.
    pub(super) fn foreseen_key<'w>(&self, done: &'w Batch) -> Option<&'w [u8]> {
        let Stage::Head { foreseen: Some((_, Some(read))), page, .. } = &self.stage else { return None };
        standing(page.addr, done.words(*read)).map(|leaf| leaf.key)
    }

    /// What was remembered is no longer valid: restarts where the skip table leads, and finally at
    /// the root.
    fn restart(&mut self, shared: &Shared) {
        if let Some(Lead { hint, remembered: Some(identity) }) = self.lead.take() {
            note(situations::PAGE_HINT_STALE);
            shared.cache.forget_page(identity, &hint);
        }
        self.seen = None;
        self.beside = None;
        self.known = None;
        self.incoming = None;
        self.stage = Stage::RootWord(None);
        self.enter_by_table(shared);
    }

    fn enter_node(&mut self, hint: NodeHint) {
        self.node = hint.into();
        self.stage = Stage::Node { read: None, hint: Some(hint) };
    }

    /// Continues where the skip table leads, if it leads anywhere.
    fn enter_by_table(&mut self, shared: &Shared) {
        if let Some(guide) = &mut self.guide {
            if let Some(node) = guide.next() {
                note(situations::SKIP_BEGUN);
                self.enter_node(node);
            }
        } else if self.may_skip {
            self.guide = Guide::of(&shared.skip, &shared.keys, &mut self.key, self.epoch);
            if self.guide.is_some() {
                self.incoming = None;
                self.stage = Stage::Skip;
            }
        }
    }

    /// Begins where the skip table leads, otherwise at the root node if it was read in this epoch:
    /// it is not freed before the pin ends.
    fn enter_root(&mut self, shared: &Shared) {
        self.enter_by_table(shared);
        if matches!(self.stage, Stage::RootWord(_))
            && let Some(root) = shared.root(self.epoch)
        {
            self.enter_node(root);
        }
    }

    fn absorb_root_word(&mut self, shared: &Shared, word: u64, skip: u64) -> Result<Option<PageSearchEnd>> {
        let parent = ParentSlot::root(shared, word);
        self.node = parent.root_node()?;
        self.incoming = Some(parent);
        self.stage = Stage::Node { read: None, hint: None };
        if self.may_skip && self.guide.is_none() {
            self.guide = Guide::for_word(&shared.skip, skip, self.epoch);
            self.enter_by_table(shared);
        }
        Ok(None)
    }

    fn own_edge(&self, depth: usize) -> u8 {
        edge(self.key.bytes(), depth)
    }

    fn absorb_node(
        &mut self,
        shared: &Shared,
        words: &[u64],
        hint: Option<NodeHint>,
    ) -> Result<Option<PageSearchEnd>> {
        self.nodes_read += 1;
        let identity = self.key.identity(self.node.depth);
        let is_by_table = self.guide.is_some() && hint.is_some_and(|hint| hint.depth > 0);
        let is_own = words[0] == identity;
        if let Some(hint) = hint
            && !(is_own && node::proves(words[node::GUARD_AT], hint.born))
        {
            note(if is_by_table { situations::SKIP_STALE } else { situations::NODE_HINT_STALE });
            shared.cache.forget_node(&mut self.key, hint);
            self.restart(shared);
            return Ok(None);
        }
        if hint.is_none() {
            node::verify_head(self.node, words)?;
        }
        if !is_own {
            let above = self.incoming.filter(|parent| !parent.is_root());
            let Some(parent) = above.filter(|parent| parent.node.depth + 1 < self.node.depth) else {
                return Err(IndexError::corrupt(self.node.addr, "node's identity does not match its place"));
            };
            return Ok(Some(PageSearchEnd::Diverged { parent, child: self.node }));
        }
        if node::is_sealed(words) && self.purpose != Purpose::Read {
            return Ok(Some(PageSearchEnd::Sealed { node: self.node }));
        }
        let above = self.known.zip(self.incoming.map(|parent| parent.edges.lo));
        self.known = shared.learn(hint, above, self.node, words, self.epoch);
        if let (Some(guide), Some(parent), Some((_, node))) = (&mut self.guide, self.incoming, self.known)
            && !parent.is_root()
            && !shared.reads_only
        {
            guide.passed(&shared.keys, parent.node.depth, node, self.epoch);
        }
        self.follow(shared, words)
    }

    /// Follows the slot that is responsible for the key's edge.
    fn follow(&mut self, shared: &Shared, words: &[u64]) -> Result<Option<PageSearchEnd>> {
        let NodeAt { addr, depth } = self.node;
        let own = self.own_edge(depth);
        let (lo, slot) = node::responsible(addr, &node::slots(words), own)?;
        let parent = ParentSlot::of(self.node, words, lo);
        let at = parent.at;
        match slot.content() {
            Content::None { hi } if own <= hi => Ok(Some(PageSearchEnd::Vacant { parent })),
            Content::Page { class, addr, .. } => {
                let page = PageRef { addr, class };
                let delta = shared.geometry.delta;
                match map_copy::page_for(
                    node::copies(words),
                    (page, parent.edges),
                    depth,
                    delta,
                    self.key.bytes(),
                ) {
                    Some(map_copy::CopiedPage { hint, is_whole, rank }) => {
                        self.enter_lead(Lead { hint, remembered: None }, Some(rank), is_whole);
                    }
                    None => self.enter_page(page, page.head_words(delta)),
                }
                self.from = Some(parent);
                Ok(None)
            }
            Content::Node { skip, addr } if lo == own => {
                let child = NodeAt { addr, depth: depth + 1 + skip };
                self.node = child;
                self.incoming = Some(parent);
                if child.depth > nibbles(self.key.bytes()) {
                    return Ok(Some(PageSearchEnd::Diverged { parent, child }));
                }
                self.stage = Stage::Node { read: None, hint: None };
                Ok(None)
            }
            // A higher slot was read before it was set, and this one after.
            Content::None { .. } | Content::Node { .. } => self.read_again(at),
            Content::Empty | Content::Invalid => Err(IndexError::corrupt(at.addr, "slot of unknown kind")),
        }
    }

    /// Reads the current node once more, because the slot that should be responsible for the key's
    /// edge says that it is not. The slot that is responsible was set earlier, but read before
    /// that: another READ must find it.
    fn read_again(&mut self, at: SlotAt) -> Result<Option<PageSearchEnd>> {
        note(situations::OUT_OF_BOUNDS);
        if self.gap.replace(at) == Some(at) {
            return Err(node::without_slot(at.addr));
        }
        self.stage = Stage::Node { read: None, hint: None };
        Ok(None)
    }

    fn absorb_head(&mut self, shared: &Shared, page: PageRef, words: &[u64]) -> Result<Option<Head>> {
        if let Some(Lead { hint, remembered: Some(_) }) = &self.lead
            && !page::proves(words[0], hint.shape.born)
        {
            self.restart(shared);
            return Ok(None);
        }
        let head = match Head::parse(page, words)? {
            Ok(head) => head,
            Err(words) => {
                self.enter_page(page, words);
                return Ok(None);
            }
        };
        let depth = head.shape.depth;
        if depth > nibbles(self.key.bytes()) || head.identity != self.key.identity(depth) {
            return Err(IndexError::corrupt(page.addr, "page's prefix differs from its node's"));
        }
        if !head.shape.edges.contains(self.own_edge(depth)) {
            match self.from {
                Some(parent) if !self.is_by_memory() => self.read_again(parent.at)?,
                _ => {
                    self.restart(shared);
                    None
                }
            };
            return Ok(None);
        }
        if head.is_sealed {
            note(situations::READ_SEALED);
        } else {
            self.learn_page(shared, &head);
        }
        Ok(Some(head))
    }

    /// Remembers a page whose head was read, unless it is already remembered.
    fn learn_page(&mut self, shared: &Shared, head: &Head) {
        let hint = PageHint::new(head.page, head.shape, &head.map).with_delta(head.delta.iter().copied());
        match (&self.lead, self.known) {
            (Some(Lead { hint: known, remembered: Some(identity) }), _)
                if self.purpose == Purpose::Read && known.delta != hint.delta =>
            {
                shared.cache.renew_page(*identity, self.node.addr, &hint, self.epoch);
            }
            (Some(Lead { remembered: Some(_), .. }), _) => {}
            (Some(_), Some(known)) => shared.cache.offer_page(known, &hint, self.epoch),
            (None, Some(known)) => shared.cache.learn_page(known, &hint, self.epoch),
            _ => {}
        }
    }
}
