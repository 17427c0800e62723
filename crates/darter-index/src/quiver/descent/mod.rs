//! The way from a key to its place: every point operation's first half (`docs/quiver.md`,
//! "Protocol").
//!
//! A [`Descent`] is a machine without a fabric ([`Search`]). It starts at the page or the node that
//! the process remembers for the key, else at the root. What is remembered must prove that it lives
//! (L2), or it is forgotten and the way begins at the root. Below the root, or a node that lives,
//! every page and node was linked at some moment of the operation, so its words count as they
//! stand, sealed or not (L5).

mod hot;
mod machine;
mod record;

#[cfg(test)]
pub(super) use self::hot::post as hot_reads;
use super::cache::{Hit, KnownNode};
use super::hint::{HotLeaf, HotWord, NodeHint, PageHint};
use super::holes::QuiverHole;
use super::map_copy;
use super::nibble::{NibbleKey, edge, nibbles};
pub(super) use super::node::NodeAt;
use super::node::{self, Content};
pub(super) use super::outcome::{End, Found, Image, Purpose, Spot};
use super::page::{self, Head, PageRef, Shape, image_in, standing, standing_whole};
use super::shared::Shared;
use super::situations;
use super::skip::Guide;
use super::via::{SlotAt, Via};
use super::word::{LeafPrint, Print, State, Word};
use crate::checker::note;
use crate::radix::leaf;
use crate::radix::seal::SEAL;
use crate::{IndexError, Result};
use darter_fabric::{Batch, GlobalAddr, ReadId, mutant};
use smallvec::SmallVec;

/// The part of a page that is read after its head.
struct Probe {
    head: Head,
    /// The record at the key's rank, once it is read.
    record: Option<(usize, Image)>,
    record_read: Option<(usize, Option<ReadId>)>,
    /// Delta slots that may be the key's, with what their leaves hold.
    leaves: SmallVec<[(usize, Option<ReadId>); 2]>,
    /// The key's pair in the delta.
    in_delta: Option<(usize, Image)>,
    /// What is wrong with one of these leaves, which may be the key's.
    damage: Option<IndexError>,
    /// The leaf of the record, to be read.
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
    /// A page's head, with so many words, and the record that a map has foreseen.
    Head {
        page: PageRef,
        words: usize,
        read: Option<ReadId>,
        foreseen: Option<(usize, Option<ReadId>)>,
    },
    Probe(Box<Probe>),
    RecordLeaf(Box<Probe>),
    /// For readers who know the page's map: a record alone.
    Record {
        rank: usize,
        /// With the page's first words if it is foreseen by a copy.
        reads: Option<(ReadId, Option<ReadId>)>,
    },
    /// … and its leaf, with the page's first words.
    Leaf {
        leaf: PageRef,
        reads: Option<(ReadId, ReadId)>,
    },
    /// For readers who remember a word with the key's leaf: the word, the page's first words, and the
    /// leaf, in this order.
    Hot {
        hot: HotWord,
        reads: Option<[ReadId; 3]>,
    },
}

/// What is known of the page ahead.
struct Lead {
    hint: PageHint,
    /// What the page's node is remembered under, if the process remembers the page. Else the node has
    /// told: the page was linked when its slot was read.
    remembered: Option<u64>,
}

/// A key's way through a page that the process remembers.
#[derive(Clone, Copy)]
struct Way {
    /// Its rank if it is static.
    rank: Option<usize>,
    print: LeafPrint,
    /// The word that may name its leaf.
    hot: Option<HotWord>,
}

impl Way {
    fn of(hint: &PageHint, key: &[u8], print: Print) -> Self {
        let rank = hint.shape.rank(&hint.map, key);
        Self { rank, print: hint.shape.leaf_print(key, print), hot: None }
    }
}

/// One key's way down.
pub(super) struct Descent<'k> {
    pub(super) key: NibbleKey<'k>,
    pub(super) print: Print,
    purpose: Purpose,
    stage: Stage,
    node: NodeAt,
    /// The current node as the process remembers it.
    known: Option<KnownNode>,
    /// The slot that points to the current node; none at the root and at a remembered node.
    pub(super) incoming: Option<Via>,
    /// The slot that points to the current page.
    from: Option<Via>,
    lead: Option<Lead>,
    /// The record that a remembered page led to, by its rank.
    seen: Option<Box<(usize, Image)>>,
    /// A writer's leaf to be read with the head of the remembered page.
    beside: Option<hot::Beside>,
    epoch: u64,
    /// A slot that was responsible for the key's edge and said that it is not.
    gap: Option<SlotAt>,
    /// What there is to do with the skip table, for a descent that found too little remembered.
    guide: Option<Box<Guide>>,
    /// Whether the descent may begin where the skip table leads.
    may_skip: bool,
    /// Nodes read so far.
    pub(super) nodes_read: u32,
}

impl<'k> Descent<'k> {
    /// A descent that begins where the process remembers, in the epoch that the client is pinned
    /// at.
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

    /// A descent that begins at the deepest node that the process remembers.
    pub(super) fn by_nodes(shared: &Shared, key: &'k [u8], purpose: Purpose, epoch: u64) -> Self {
        let mut descent = Self::from_root(shared, key, purpose, epoch);
        descent.may_skip = true;
        let hit = shared.cache.find(&mut descent.key);
        match hit {
            Some(hit) => descent.enter_node(hit.node),
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

    /// Goes to a remembered page: to the key's leaf if one of its hot words may name it, else with its
    /// head if the key may be in the delta.
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

    /// Goes to the record that a page is known to have for the key: without the head if a reader is
    /// likely to be content with it.
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

    /// Goes on with the head of a page of which no more is known than what it may be long.
    fn enter_page(&mut self, page: PageRef, words: usize) {
        self.stage = Stage::Head { page, words, read: None, foreseen: None };
    }

    /// The copy of the page's map was of no use: reads the page's own.
    fn enter_without_copy(&mut self, shared: &Shared, page: PageRef) {
        note(situations::MAP_COPY_WRONG);
        self.lead = None;
        self.enter_page(page, page.head_words(shared.geometry.delta));
    }

    /// Whether the page ahead is one that the process remembers.
    fn is_by_memory(&self) -> bool {
        self.lead.as_ref().is_some_and(|lead| lead.remembered.is_some())
    }

    /// The record that a remembered page has foreseen, the page, and its shape.
    pub(super) fn foreseen(&self) -> Option<(GlobalAddr, PageRef, Shape)> {
        match (&self.stage, &self.lead) {
            (Stage::Head { foreseen: Some((rank, _)), .. }, Some(Lead { hint, remembered: Some(_) })) => {
                Some((hint.page.addr.plus(hint.shape.record_at(*rank) as u64 * 8), hint.page, hint.shape))
            }
            _ => None,
        }
    }

    /// The key that stands in that record, which `done` has read.
    pub(super) fn foreseen_key<'w>(&self, done: &'w Batch) -> Option<&'w [u8]> {
        let Stage::Head { foreseen: Some((_, Some(read))), page, .. } = &self.stage else { return None };
        standing(page.addr, done.words(*read)).map(|leaf| leaf.key)
    }

    /// What was remembered is no more: begins where the skip table leads, at last at the root.
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

    /// Goes on where the skip table leads, if it does.
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

    /// Begins where the skip table leads, else at the root node if it was read in this epoch: it is
    /// not freed before the pin ends.
    fn enter_root(&mut self, shared: &Shared) {
        self.enter_by_table(shared);
        if matches!(self.stage, Stage::RootWord(_))
            && let Some(root) = shared.root(self.epoch)
        {
            self.enter_node(root);
        }
    }

    fn absorb_root_word(&mut self, shared: &Shared, word: u64, skip: u64) -> Result<Option<End>> {
        let via = Via::root(shared, word);
        self.node = via.root_node()?;
        self.incoming = Some(via);
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

    fn absorb_node(&mut self, shared: &Shared, words: &[u64], hint: Option<NodeHint>) -> Result<Option<End>> {
        self.nodes_read += 1;
        let identity = self.key.identity(self.node.depth);
        let is_by_table = self.guide.is_some() && hint.is_some_and(|hint| hint.depth > 0);
        let is_own = words[0] == identity || is_by_table && mutant!("quiver-skip-identity-not-compared");
        let is_any_life = is_by_table && mutant!("quiver-skip-born-not-compared");
        if let Some(hint) = hint
            && !(is_own && node::proves(words[node::GUARD_AT], hint.born))
            && !(is_own && is_any_life && words[node::GUARD_AT] & SEAL == 0)
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
            let above = self.incoming.filter(|via| !via.is_root());
            let Some(via) = above.filter(|via| via.node.depth + 1 < self.node.depth) else {
                return Err(IndexError::corrupt(
                    self.node.addr,
                    "node with another identity than its place has",
                ));
            };
            return Ok(Some(End::Diverged { via, child: self.node }));
        }
        if node::is_sealed(words) && self.purpose != Purpose::Read {
            return Ok(Some(End::Sealed { node: self.node }));
        }
        let above = self.known.zip(self.incoming.map(|via| via.edges.lo));
        self.known = shared.learn(hint, above, self.node, words, self.epoch);
        if let (Some(guide), Some(via), Some((_, node))) = (&mut self.guide, self.incoming, self.known)
            && !via.is_root()
        {
            guide.passed(&shared.keys, via.node.depth, node, self.epoch);
        }
        self.follow(shared, words)
    }

    /// Goes on by the slot that is responsible for the key's edge.
    fn follow(&mut self, shared: &Shared, words: &[u64]) -> Result<Option<End>> {
        let NodeAt { addr, depth } = self.node;
        let own = self.own_edge(depth);
        let (lo, slot) = node::responsible(addr, &node::slots(words), own)?;
        let via = Via::of(self.node, words, lo);
        let at = via.at;
        match slot.content() {
            Content::None { hi } if own <= hi => Ok(Some(End::Vacant { via })),
            Content::Page { class, addr, .. } => {
                let page = PageRef { addr, class };
                let delta = shared.geometry.delta;
                match map_copy::page_for(
                    node::copies(words),
                    (page, via.edges),
                    depth,
                    delta,
                    self.key.bytes(),
                ) {
                    Some(map_copy::CopiedPage { hint, is_whole, rank }) => {
                        self.enter_lead(Lead { hint, remembered: None }, Some(rank), is_whole);
                    }
                    None => self.enter_page(page, page.head_words(delta)),
                }
                self.from = Some(via);
                Ok(None)
            }
            Content::Node { skip, addr } if lo == own => {
                let child = NodeAt { addr, depth: depth + 1 + skip };
                self.node = child;
                self.incoming = Some(via);
                if child.depth > nibbles(self.key.bytes()) {
                    return Ok(Some(End::Diverged { via, child }));
                }
                self.stage = Stage::Node { read: None, hint: None };
                Ok(None)
            }
            // A slot above was read before it was taken, and this one after.
            Content::None { .. } | Content::Node { .. } => self.look_again(at),
            Content::Empty | Content::Invalid => Err(IndexError::corrupt(at.addr, "slot of no known kind")),
        }
    }

    /// Reads the current node once more, because the slot that is responsible for the key's edge
    /// says that it is not. The slot that is was taken earlier, and read earlier still: another READ
    /// must bring it.
    fn look_again(&mut self, at: SlotAt) -> Result<Option<End>> {
        note(situations::OUT_OF_BOUNDS);
        if self.gap.replace(at) == Some(at) {
            return Err(node::without_slot(at.addr));
        }
        self.stage = Stage::Node { read: None, hint: None };
        Ok(None)
    }

    fn absorb_head(&mut self, shared: &Shared, page: PageRef, words: &[u64]) -> Result<Option<Head>> {
        if let Some(Lead { hint, remembered: Some(_) }) = &self.lead {
            let trusts = shared.holes.has(QuiverHole::TrustSealed) && self.purpose == Purpose::Read;
            let guard = if trusts { words[0] & !SEAL } else { words[0] };
            let lives = page::proves(guard, hint.shape.born) || shared.holes.has(QuiverHole::IgnoreLife);
            if !lives {
                self.restart(shared);
                return Ok(None);
            }
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
            return Err(IndexError::corrupt(page.addr, "page of another prefix than its node's"));
        }
        if !head.shape.edges.contains(self.own_edge(depth)) {
            match self.from {
                Some(via) if !self.is_by_memory() => self.look_again(via.at)?,
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

    /// Remembers a page whose head was read, unless it is remembered as that.
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

    /// Goes on with a page's head: the record at the key's rank, and leaves that may be the key's.
    fn probe(
        &mut self,
        shared: &Shared,
        head: Head,
        foreseen: Option<(usize, Image)>,
        beside: Option<HotLeaf<'_>>,
    ) -> Result<Option<End>> {
        let rank = head.shape.rank(&head.map, self.key.bytes());
        let record =
            foreseen.or_else(|| self.seen.take().map(|seen| *seen)).filter(|(seen, _)| Some(*seen) == rank);
        let record_read = rank.filter(|_| record.is_none()).map(|rank| (rank, None));
        let print = head.shape.leaf_print(self.key.bytes(), self.print);
        let may_be = |(_, word): &(usize, &Word)| word.may_be_leaf_of(print);
        let mut leaves: SmallVec<_> =
            head.delta.iter().enumerate().filter(may_be).map(|(at, _)| (at, None)).collect();
        let (mut in_delta, mut damage, record_leaf) = (None, None, None);
        if let Some((hot, words)) = beside
            && let Some(at) = hot.slot.place_in_delta().filter(|at| head.delta.get(*at) == Some(&hot.word))
        {
            leaves.retain(|(other, _)| *other != at);
            match leaf::parse(head.page.addr, words) {
                Ok(pair) if pair.key == self.key.bytes() => in_delta = Some((at, words.into())),
                Ok(other) => damage = self.stranger(shared, &head, other.key),
                Err(error) => damage = Some(error),
            }
        }
        let probe = Box::new(Probe { head, record, record_read, leaves, in_delta, damage, record_leaf });
        if probe.record_read.is_none() && probe.leaves.is_empty() {
            return self.judge(probe);
        }
        self.stage = Stage::Probe(probe);
        Ok(None)
    }

    /// What is wrong with a delta slot that may be the key's, if its leaf has this other key.
    fn stranger(&self, shared: &Shared, head: &Head, key: &[u8]) -> Option<IndexError> {
        let Shape { depth, .. } = head.shape;
        let print = |key, print| head.shape.leaf_print(key, print);
        let fits = head.shape.may_have(key, self.key.bytes())
            && nibbles(key) >= depth
            && print(key, Print::new(shared.keys, key)) == print(self.key.bytes(), self.print);
        (!fits).then(|| IndexError::corrupt(head.page.addr, "delta slot with another key's leaf"))
    }

    fn absorb_probe(&mut self, shared: &Shared, mut probe: Box<Probe>, done: &Batch) -> Result<Option<End>> {
        if let Some((rank, Some(read))) = probe.record_read.take() {
            probe.record = Some((rank, done.words(read).into()));
        }
        for &(at, read) in &probe.leaves {
            let (Some(read), Some((addr, ..))) = (read, probe.head.delta[at].leaf_object()) else { continue };
            let words = done.words(read);
            match leaf::parse(addr, words) {
                Ok(leaf) if leaf.key == self.key.bytes() => probe.in_delta = Some((at, words.into())),
                Ok(other) => {
                    let damage = self.stranger(shared, &probe.head, other.key);
                    probe.damage = damage.or(probe.damage.take());
                }
                Err(damage) => probe.damage = Some(damage),
            }
        }
        self.judge(probe)
    }

    /// Whether the record at the key's rank is the key's.
    fn judge(&mut self, probe: Box<Probe>) -> Result<Option<End>> {
        let Some((rank, record)) = &probe.record else { return self.elsewhere(probe).map(Some) };
        let (addr, word) = (probe.head.record_addr(*rank), Word(record[0]));
        let own = standing(addr, record).map(|leaf| leaf.key == self.key.bytes());
        // The value of an INLINE is verified when it is used, another key's pair below.
        if own == Some(true) && word.state() != State::Inline {
            standing_whole(probe.head.page.addr, record)?;
        }
        match (own, word.state()) {
            (Some(true), State::Inline) => {
                let value = image_in(probe.head.page.addr, record);
                Ok(Some(self.at_record(probe, addr, word, Some(value))))
            }
            (Some(true), State::Tomb) if word.is_tomb_of(probe.head.shape.born) => {
                Ok(Some(self.at_record(probe, addr, word, None)))
            }
            // Whosever leaf it is: the key is there.
            (Some(true), State::Leaf { .. }) if self.purpose == Purpose::Overwrite => {
                Ok(Some(self.at_record(probe, addr, word, None)))
            }
            (None, State::Tomb) if word.is_erased_by(self.print) => {
                Ok(Some(self.at_record(probe, addr, word, None)))
            }
            (Some(false), State::Inline | State::Tomb | State::Leaf { .. }) => {
                self.verify_other(&probe)?;
                self.elsewhere(probe).map(Some)
            }
            (None, State::Tomb) if word.is_erased() => {
                self.verify_other(&probe)?;
                self.elsewhere(probe).map(Some)
            }
            (_, State::Leaf { .. }) => {
                self.stage = Stage::RecordLeaf(probe);
                Ok(None)
            }
            _ => Err(IndexError::corrupt(addr, "record of no known kind")),
        }
    }

    /// Verifies the record at the key's rank, in which another key stands or none.
    fn verify_other(&self, Probe { head, record, .. }: &Probe) -> Result<()> {
        let Some((rank, record)) = record else { return Ok(()) };
        match standing_whole(head.page.addr, record)? {
            Some(other) => self.verify_other_key(head, *rank, other.key),
            None => Ok(()),
        }
    }

    /// Verifies that a page may have another key at a rank.
    fn verify_other_key(&self, head: &Head, rank: usize, other: &[u8]) -> Result<()> {
        if head.shape.may_stand_at(rank, &head.map, other, self.key.bytes()) {
            return Ok(());
        }
        Err(IndexError::corrupt(head.record_addr(rank), "record of another page's key"))
    }

    /// Fails if a leaf's key is not one that a CAS before the look may have put in the key's record.
    fn verify_twin(&self, shared: &Shared, addr: GlobalAddr, other: &[u8]) -> Result<()> {
        if Print::new(shared.keys, other).is_twin_of(self.print) {
            return Ok(());
        }
        Err(IndexError::corrupt(addr, "leaf of another key than its record's"))
    }

    fn absorb_record_leaf(
        &mut self,
        shared: &Shared,
        probe: Box<Probe>,
        words: &[u64],
    ) -> Result<Option<End>> {
        let Some((rank, record)) = &probe.record else { return self.elsewhere(probe).map(Some) };
        let (addr, word) = (probe.head.record_addr(*rank), Word(record[0]));
        let (leaf_addr, ..) = word.leaf_object().unwrap_or((addr, 0, 0));
        let leaf = leaf::parse(leaf_addr, words)?;
        let is_own = leaf.key == self.key.bytes();
        if is_own || mutant!("quiver-hot-word-with-another-keys-leaf") {
            self.learn_hot_word(shared, &probe.head, addr, word);
        }
        if is_own {
            return Ok(Some(self.at_record(probe, addr, word, Some(words.into()))));
        }
        // A leaf with another key than the record's: the value still stands in the record.
        if standing(addr, record).is_some() && !mutant!("quiver-record-lost-under-another-keys-leaf") {
            self.verify_twin(shared, leaf_addr, leaf.key)?;
            let value = image_in(probe.head.page.addr, record);
            return Ok(Some(self.at_record(probe, addr, word, Some(value))));
        }
        self.verify_other_key(&probe.head, *rank, leaf.key)?;
        self.elsewhere(probe).map(Some)
    }

    fn at_record(&mut self, probe: Box<Probe>, addr: GlobalAddr, word: Word, value: Option<Image>) -> End {
        let stands = probe.record.as_ref().is_some_and(|(_, record)| standing(addr, record).is_some());
        let spot = Spot::Record { addr, word, stands, value };
        End::Page(Box::new(Found { head: probe.head, spot, from: self.from }))
    }

    /// The key is not static: it is in the delta, or nowhere.
    fn elsewhere(&mut self, probe: Box<Probe>) -> Result<End> {
        let Probe { head, in_delta, damage, .. } = *probe;
        let spot = match (in_delta, damage) {
            (Some((at, value)), _) => Spot::Delta { addr: head.delta_addr(at), word: head.delta[at], value },
            (None, None) => Spot::absent(&head, self.print),
            (None, Some(damage)) => return Err(damage),
        };
        Ok(End::Page(Box::new(Found { head, spot, from: self.from })))
    }
}
