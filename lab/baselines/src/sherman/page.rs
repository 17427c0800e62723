//! Nodes: their header, the words of a WRITE, and how a reader verifies that the words of a READ
//! belong together.
//!
//! ```text
//! word 0   state: 0 alive | address of a redo image + 1 | dead
//! word 1   check: keyed hash of address and words 2.., of an inner node to its end, of a leaf up to its entries
//! word 2   stamp: another with every WRITE of the whole node
//! word 3   sibling to the right, a link
//! word 4   level 8 | birth tag 22 | children 16 | prefix 17 | 1 if there is an upper fence
//! word 5   codes of the fences, 8 each
//! ...      lower fence, upper fence, each padded to words
//! leaf     entries (`entry`), to the end
//! inner    links, one word a child | codes of the separators, a byte each | the separators
//! ```
//!
//! *Link.* 42 bits of address, in units of 64 bytes, and the 22-bit birth tag of the node it leads
//! to. A node's memory can be reused; a cached link that outlived its node then leads to a node
//! with another tag.
//!
//! *The result of a READ* can be a mixture of any states that the words had during it: nothing
//! orders the words of a READ or of a WRITE. So a version written first and last proves nothing
//! (SIGMOD 2023, 3589276). The check words prove it, up to a chance of 2^-62: words that hash to
//! the check were written together, and entries with the header's stamp belong to this image of the
//! node. `lab/docs/sherman.md` has the argument.

use super::bound::Bound;
use super::entry::{Entry, EntryState};
use super::format::{Format, HEADER_WORDS, mix};
use super::hopscotch::Table;
pub(crate) use super::link::Link;
use super::link::TAG_BITS;
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::Pool;
use std::cmp::Ordering;

const STATE: usize = 0;
const CHECK: usize = 1;
const STAMP: usize = 2;
const SIBLING: usize = 3;
const KIND: usize = 4;
const CODES: usize = 5;
/// The state of a node that is no longer in the tree. Its contents stay, for a client that has to
/// finish its removal.
pub(crate) const DEAD: u64 = 1 << 63;
/// The code of a missing upper fence.
const NO_FENCE: u8 = 254;
/// Maximum height of a tree.
pub(crate) const LEVELS_MAX: u8 = 32;

/// Returns the check of a node's words: of all in an inner node, of those before the entries in a
/// leaf.
fn check(format: &Format, addr: GlobalAddr, words: &[u64]) -> u64 {
    words[STAMP..].iter().fold(mix(format.seed, addr.bits()), |state, &word| mix(state, word))
}

/// Returns a tag for a new node, from random bits.
pub(crate) fn tag_of(random: u64) -> u32 {
    (random >> (64 - TAG_BITS)) as u32
}

/// Returns a tag that encodes whether the node has the size of a leaf, if leaves have another size.
pub(crate) fn tag_with_size(format: &Format, random: u64, has_leaf_size: bool) -> u32 {
    let tag = tag_of(random);
    if format.span.is_some() { tag & !1 | u32::from(has_leaf_size) } else { tag }
}

/// Returns whether a node can be at an address.
pub(crate) fn is_plausible<F: Fabric>(pool: &Pool<F>, addr: GlobalAddr, bytes: u64) -> bool {
    let fabric = pool.fabric();
    usize::from(addr.node()) < fabric.nodes()
        && addr.offset().is_multiple_of(64)
        && !addr.is_null()
        && addr.offset() + bytes <= fabric.node_bytes(addr.node())
}

/// A node from a READ that passed its check.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) addr: GlobalAddr,
    pub(crate) words: Box<[u64]>,
    pub(crate) level: u8,
    pub(crate) tag: u32,
    pub(crate) stamp: u64,
    pub(crate) sibling: Link,
    /// Length of the prefix that all keys of a leaf share and that its digests omit.
    pub(crate) prefix: usize,
    pub(crate) low: Bound,
    pub(crate) high: Option<Bound>,
    /// The first word of the entries or links.
    body: usize,
    /// Of an inner node: its children, and the start of each separator except the first, in bytes
    /// from the start of the node.
    children: usize,
    offsets: Box<[u16]>,
    /// The long separators, by child.
    longs: Vec<(usize, Bound)>,
}

/// The position of a key relative to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    Below,
    Within,
    Beyond,
}

/// The target of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim<'k> {
    /// The node whose range holds a key.
    At(&'k [u8]),
    /// The node whose range holds the keys right below one.
    Below(&'k [u8]),
    /// The last node.
    Last,
}

/// Returns whether a node's header words show that a link leads to it and that it is in the tree.
pub(crate) fn is_alive(header: &[u64], link: Link) -> bool {
    header[STATE] & DEAD == 0 && (header[KIND] >> 8) as u32 & ((1 << TAG_BITS) - 1) == link.tag()
}

/// Returns the state word in the words of a node.
pub(crate) fn state_of(words: &[u64]) -> u64 {
    words[STATE]
}

/// Returns the state word that names a redo image.
pub(crate) fn redo_state(image: GlobalAddr) -> u64 {
    image.bits() | 1
}

/// Returns the redo image that a state word names.
pub(crate) fn redo_image(state: u64) -> Option<GlobalAddr> {
    (state & 1 == 1 && state & DEAD == 0).then(|| GlobalAddr::from_bits(state & !1))
}

impl Page {
    /// Parses the words of a READ of `addr`; `None` if they are inconsistent.
    pub(crate) fn parse(format: &Format, addr: GlobalAddr, words: &[u64]) -> Option<Self> {
        if words.len() != format.node_words && words.len() != format.leaf_words() {
            return None;
        }
        let (kind, codes) = (words[KIND], words[CODES]);
        let (low_code, high_code) = (codes as u8, (codes >> 8) as u8);
        let low_words = Bound::stored_bytes(low_code)?.div_ceil(8);
        let high_words = match high_code {
            NO_FENCE => 0,
            code => Bound::stored_bytes(code)?.div_ceil(8),
        };
        let body = HEADER_WORDS + low_words + high_words;
        if body > words.len() {
            return None;
        }
        let level = kind as u8;
        if let Some(layout) = format.layout().filter(|_| level == 0)
            && (words.len() != format.leaf_words() || body > layout.vacancy_at())
        {
            return None;
        }
        let checked = if level == 0 { body } else { words.len() };
        if check(format, addr, &words[..checked]) != words[CHECK] || level > LEVELS_MAX {
            return None;
        }
        let fences: &[u8] = bytemuck::cast_slice(&words[HEADER_WORDS..body]);
        let low = Bound::parse(low_code, fences)?;
        let high = match high_code {
            NO_FENCE => None,
            code => Some(Bound::parse(code, &fences[low_words * 8..])?),
        };
        let mut page = Self {
            addr,
            words: words.into(),
            level,
            tag: (kind >> 8 & ((1 << TAG_BITS) - 1)) as u32,
            stamp: words[STAMP],
            sibling: Link::from_word(words[SIBLING]),
            prefix: (kind >> 46 & 0x1_ffff) as usize,
            low,
            high,
            body,
            children: (kind >> 30 & 0xffff) as usize,
            offsets: Box::default(),
            longs: Vec::new(),
        };
        if level > 0 {
            page.parse_separators()?;
        }
        Some(page)
    }

    /// Parses the sibling and the fences of a hopscotch leaf from its header and fences alone;
    /// `None` if they are inconsistent, or if the leaf is not in the tree or not the one that the
    /// link leads to.
    pub(crate) fn parse_header(format: &Format, link: Link, header: &[u64]) -> Option<Self> {
        if !is_alive(header, link) || header[KIND] as u8 != 0 {
            return None;
        }
        let mut words = vec![0; format.leaf_words()];
        words[..header.len()].copy_from_slice(header);
        Self::parse(format, link.addr(), &words)
    }

    fn parse_separators(&mut self) -> Option<()> {
        let links_end = (self.body + self.children) * 8;
        let bytes: &[u8] = bytemuck::cast_slice(&self.words);
        let codes = bytes.get(links_end..links_end + self.children.checked_sub(1)?)?;
        let mut at = links_end + codes.len();
        let mut offsets = Vec::with_capacity(codes.len());
        for (child, &code) in (1..).zip(codes) {
            offsets.push(at as u16);
            let stored = bytes.get(at..at + Bound::stored_bytes(code)?)?;
            if code == u8::MAX {
                self.longs.push((child, Bound::parse(code, stored)?));
            }
            at += stored.len();
        }
        self.offsets = offsets.into();
        Some(())
    }

    /// Returns the position of a target relative to the fences; `None` if that needs bytes of a
    /// long fence.
    pub(crate) fn place(&self, aim: Aim<'_>) -> Option<Position> {
        let (key, below) = match aim {
            Aim::At(key) => (key, false),
            Aim::Below(key) => (key, true),
            Aim::Last => return Some(if self.high.is_some() { Position::Beyond } else { Position::Within }),
        };
        let to_low = self.low.place(key)?;
        if to_low == Ordering::Less || below && to_low == Ordering::Equal && !self.low.bytes().is_empty() {
            return Some(Position::Below);
        }
        let Some(high) = &self.high else { return Some(Position::Within) };
        let to_high = high.place(key)?;
        let within = to_high == Ordering::Less || below && to_high == Ordering::Equal;
        Some(if within { Position::Within } else { Position::Beyond })
    }

    /// Returns the child that a target leads to.
    pub(crate) fn towards(&self, aim: Aim<'_>) -> usize {
        match aim {
            Aim::At(key) => self.last_child(|low| low <= key),
            Aim::Below(key) => self.last_child(|low| low < key),
            Aim::Last => self.children().saturating_sub(1),
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.words[STATE] & DEAD != 0
    }

    pub(crate) fn is_leaf(&self) -> bool {
        self.level == 0
    }

    pub(crate) fn link(&self) -> Link {
        Link::new(self.addr, self.tag)
    }

    /// Returns the bytes of a copy in memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let longs: usize = self.longs.iter().map(|(_, bound)| size_of_val(bound) + bound.bytes().len()).sum();
        (size_of::<Self>() + self.words.len() * 8 + self.offsets.len() * 2 + longs) as u64
    }

    /// Returns the fences and separators that may have unknown bytes.
    pub(crate) fn bounds_mut(&mut self) -> impl Iterator<Item = &mut Bound> {
        std::iter::once(&mut self.low)
            .chain(&mut self.high)
            .chain(self.longs.iter_mut().map(|(_, bound)| bound))
    }

    /// Returns the long bounds whose blocks belong to this node.
    pub(crate) fn bounds(&self) -> impl Iterator<Item = &Bound> {
        std::iter::once(&self.low).chain(&self.high).chain(self.longs.iter().map(|(_, bound)| bound))
    }

    /// Returns the number of children of an inner node.
    pub(crate) fn children(&self) -> usize {
        if self.level == 0 { 0 } else { self.children }
    }

    pub(crate) fn child(&self, at: usize) -> Link {
        Link::from_word(self.words[self.body + at])
    }

    /// Returns the lower bound of child `at`; for the first child that is the lower fence.
    pub(crate) fn child_low(&self, at: usize) -> &[u8] {
        if at == 0 {
            return self.low.bytes();
        }
        let bytes: &[u8] = bytemuck::cast_slice(&self.words);
        let code = bytes[(self.body + self.children) * 8 + at - 1];
        if code == u8::MAX {
            let long = self.longs.iter().find(|(child, _)| *child == at);
            return long.map_or(&[], |(_, bound)| bound.bytes());
        }
        let start = usize::from(self.offsets[at - 1]);
        &bytes[start..start + usize::from(code)]
    }

    /// Returns the last child whose lower bound satisfies `goes_on`, or the first child if none
    /// does.
    pub(crate) fn last_child(&self, goes_on: impl Fn(&[u8]) -> bool) -> usize {
        let (mut from, mut to) = (0, self.children.saturating_sub(1));
        while from < to {
            let middle = (from + to).div_ceil(2);
            if goes_on(self.child_low(middle)) { from = middle } else { to = middle - 1 }
        }
        from
    }

    /// Returns a leaf's entries as a hopscotch table, if they are one.
    pub(crate) fn table<'p>(&'p self, format: &'p Format) -> Option<Table<'p>> {
        let layout = format.layout()?;
        Some(Table::new(format, layout, self.link(), self.sibling, (&self.words[..]).into()))
    }

    /// Returns the number of entries for which a leaf has room.
    pub(crate) fn slots(&self, format: &Format) -> usize {
        if let Some(span) = format.span {
            return span;
        }
        (self.words.len() - self.body) / format.entry_words()
    }

    /// Returns the address of a leaf's entry.
    pub(crate) fn slot_addr(&self, format: &Format, slot: usize) -> GlobalAddr {
        self.addr.plus((self.body + slot * format.entry_words()) as u64 * 8)
    }

    /// Returns the words of a leaf's entry.
    pub(crate) fn slot(&self, format: &Format, slot: usize) -> &[u64] {
        let packed = self.body + slot * format.entry_words();
        let at = format.layout().map_or(packed, |layout| layout.entry_at(slot));
        &self.words[at..][..format.entry_words()]
    }

    /// Sets a leaf's entry to the words that were written.
    pub(crate) fn set_slot(&mut self, format: &Format, slot: usize, words: &[u64]) {
        let at = self.body + slot * format.entry_words();
        self.words[at..at + words.len()].copy_from_slice(words);
    }

    /// Returns a leaf's entry.
    pub(crate) fn entry(&self, format: &Format, slot: usize) -> EntryState {
        if let Some(table) = self.table(format) {
            return table.parse(slot);
        }
        EntryState::parse(format, (self.addr, self.stamp, slot), self.slot(format, slot))
    }

    /// Returns the entries of a leaf that hold keys.
    pub(crate) fn entries(&self, format: &Format) -> impl Iterator<Item = Entry> {
        (0..self.slots(format)).filter_map(|slot| self.entry(format, slot).entry())
    }

    /// Returns whether a leaf has no entries.
    pub(crate) fn is_empty(&self, format: &Format) -> bool {
        (0..self.slots(format)).all(|slot| self.entry(format, slot) == EntryState::Empty)
    }

    /// Returns the node's contents for a change and a rewrite.
    pub(crate) fn draft(&self, format: &Format) -> Draft {
        let body = if self.level == 0 {
            Body::Leaf { prefix: self.prefix, entries: self.entries(format).collect() }
        } else {
            let low = |at| match self.longs.iter().find(|(child, _)| *child == at) {
                Some((_, bound)) => bound.clone(),
                None if at == 0 => self.low.clone(),
                None => Bound::short(self.child_low(at)),
            };
            Body::Inner((0..self.children).map(|at| (low(at), self.child(at))).collect())
        };
        let (low, high) = (self.low.clone(), self.high.clone());
        Draft { level: self.level, low, high, sibling: self.sibling, body }
    }
}

/// A node's contents.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) level: u8,
    pub(crate) low: Bound,
    pub(crate) high: Option<Bound>,
    pub(crate) sibling: Link,
    pub(crate) body: Body,
}

/// A node's contents without its header.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// Entries, with the length of the prefix that their digests omit.
    Leaf { prefix: usize, entries: Vec<Entry> },
    /// Children, each with its lower bound. The first child's is the lower fence and is not stored
    /// again.
    Inner(Vec<(Bound, Link)>),
}

impl Draft {
    /// Returns the words to write; `None` if they do not fit.
    pub(crate) fn image(&self, format: &Format, addr: GlobalAddr, tag: u32, stamp: u64) -> Option<Vec<u64>> {
        let mut bytes = Vec::with_capacity(format.node_words * 8);
        self.low.store(&mut bytes);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        if let Some(high) = &self.high {
            high.store(&mut bytes);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
        let link = Link::new(addr, tag);
        let len = format.words_of(link);
        let mut words = vec![0; len];
        let body = HEADER_WORDS + bytes.len() / 8;
        let (mut children, mut common, mut checked) = (0, 0, len);
        match &self.body {
            Body::Leaf { entries, .. } if format.span.is_some() => {
                checked = body;
                let layout = format.layout()?;
                let mut table = Table::new(format, layout, link, self.sibling, words.into());
                if body > layout.vacancy_at() || !table.fill(entries) {
                    return None;
                }
                words = table.into_words();
            }
            Body::Leaf { prefix, entries } => {
                (common, checked) = (*prefix, body);
                let slots = format.node_words.checked_sub(body)? / format.entry_words();
                if entries.len() > slots {
                    return None;
                }
                for slot in 0..slots {
                    let at = body + slot * format.entry_words();
                    let image = Entry::image(format, (addr, stamp, slot), entries.get(slot));
                    words[at..at + image.len()].copy_from_slice(&image);
                }
            }
            Body::Inner(list) => {
                children = list.len();
                bytes.extend(list.iter().flat_map(|(_, link)| link.word().to_le_bytes()));
                bytes.extend(list.iter().skip(1).map(|(low, _)| low.code()));
                for (low, _) in list.iter().skip(1) {
                    low.store(&mut bytes);
                }
                bytes.resize(bytes.len().next_multiple_of(8), 0);
            }
        }
        if HEADER_WORDS * 8 + bytes.len() > len * 8 {
            return None;
        }
        for (word, chunk) in words[HEADER_WORDS..].iter_mut().zip(bytes.chunks_exact(8)) {
            *word = chunk.first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk));
        }
        words[STAMP] = stamp;
        words[SIBLING] = self.sibling.word();
        words[KIND] = u64::from(self.level)
            | u64::from(tag) << 8
            | (children as u64) << 30
            | (common as u64) << 46
            | u64::from(self.high.is_some()) << 63;
        let high_code = self.high.as_ref().map_or(NO_FENCE, Bound::code);
        words[CODES] = u64::from(self.low.code()) | u64::from(high_code) << 8;
        words[CHECK] = check(format, addr, &words[..checked]);
        Some(words)
    }
}
