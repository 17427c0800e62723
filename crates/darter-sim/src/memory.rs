//! The simulated memory nodes' words: bounds, and snapshots to restore.
//!
//! An explorer runs hundreds of thousands of short schedules from the same start. So a memory
//! tracks the pages written since it was last restored, and restores only those.
//!
//! It also keeps a *shadow* of the allocator's state of each word
//! ([`darter_fabric::Fabric::note_object`]), as address and memory sanitizers do: a verb that
//! accesses a free word, or reads an object before it is written, is a [`Misuse`], even if its
//! result would not have shown it. So is a verb that accesses an object that was retired before its
//! client's pin: the memory may not be free yet, but nothing prevents it from being freed.

use super::WordOrder;
use super::medium::{Choices, Medium, Need, Unsettled, Volatile};
use bytemuck::Zeroable;
use darter_fabric::{Batch, FabricError, GlobalAddr, ObjectState, Verb, VerbKind};
use std::ops::Range;

const PAGE_WORDS: usize = 512;

/// Allocator state of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Zeroable)]
#[repr(transparent)]
pub(super) struct Shadow(u32);

impl Shadow {
    /// Not managed by any allocator.
    const UNMANAGED: Self = Self(0);
    /// Part of an object, written since its allocation.
    const WRITTEN: Self = Self(1);
    /// Part of an object, not written since its allocation.
    const UNWRITTEN: Self = Self(2);
    /// The first word of an object, not written since its allocation.
    const UNWRITTEN_START: Self = Self(3);
    /// Free.
    const FREE: Self = Self(4);

    /// Part of a retired object with this stamp.
    fn retired(stamp: u64) -> Self {
        Self(Self::FREE.0 + 1 + stamp as u32)
    }

    fn is_used(self) -> bool {
        !matches!(self, Self::UNMANAGED | Self::FREE)
    }

    fn is_unwritten(self) -> bool {
        matches!(self, Self::UNWRITTEN | Self::UNWRITTEN_START)
    }

    /// Returns the stamp of a retired object.
    fn stamp(self) -> Option<u64> {
        self.0.checked_sub(Self::FREE.0 + 1).map(u64::from)
    }

    /// Returns whether a client with this pin may access the word.
    fn admits(self, pin: Option<u64>) -> bool {
        self.stamp().is_none_or(|stamp| pin.is_some_and(|pin| pin <= stamp))
    }
}

/// An access that a correct client never makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misuse {
    /// Description of the misuse.
    pub what: &'static str,
    /// The first word concerned.
    pub addr: GlobalAddr,
}

impl std::fmt::Display for Misuse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}", self.what, self.addr)
    }
}

/// One node's region.
#[derive(Debug)]
pub(super) struct Memory {
    words: Vec<u64>,
    shadow: Vec<Shadow>,
    dirty: Vec<bool>,
    /// Pages that were ever written; the others have their initial content.
    used: Vec<bool>,
    dirty_pages: Vec<u32>,
    /// Stores that the medium lacks, if power may fail.
    volatile: Option<Volatile>,
    /// After a power failure: words that no verb has read yet, and their possible values, the
    /// newest last.
    unsettled: Unsettled,
}

/// The words of all nodes at one moment.
#[derive(Debug)]
pub struct Snapshot {
    pub(super) id: u64,
    pub(super) regions: Vec<Pages>,
}

/// A region's words and their shadow, without untouched pages.
pub(super) type Pages = Vec<Option<(Box<[u64]>, Box<[Shadow]>)>>;

impl Memory {
    pub(super) fn new(bytes: u64) -> Self {
        let words = (bytes / 8) as usize;
        Self {
            words: vec![0; words],
            shadow: bytemuck::zeroed_vec(words),
            dirty: vec![false; words.div_ceil(PAGE_WORDS)],
            used: vec![false; words.div_ceil(PAGE_WORDS)],
            dirty_pages: Vec::new(),
            volatile: None,
            unsettled: Unsettled::new(),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    /// Returns the current pages, and marks all pages clean relative to them for
    /// [`Memory::restore`].
    pub(super) fn keep(&mut self) -> Pages {
        self.mark_clean();
        let pages = self.words.chunks(PAGE_WORDS).zip(self.shadow.chunks(PAGE_WORDS));
        pages
            .zip(&self.used)
            .map(|((words, shadow), used)| used.then(|| (words.into(), shadow.into())))
            .collect()
    }

    fn mark_clean(&mut self) {
        for page in self.dirty_pages.drain(..) {
            self.dirty[page as usize] = false;
        }
    }

    /// Restores the kept pages. Only pages written since can differ from them, unless `all` is set.
    pub(super) fn restore(&mut self, pages: &Pages, all: bool) {
        if all {
            self.dirty_pages = (0..pages.len() as u32).filter(|&page| self.used[page as usize]).collect();
        }
        for page in std::mem::take(&mut self.dirty_pages) {
            let start = page as usize * PAGE_WORDS;
            let end = (start + PAGE_WORDS).min(self.words.len());
            if let Some((words, shadow)) = &pages[page as usize] {
                self.words[start..end].copy_from_slice(words);
                self.shadow[start..end].copy_from_slice(shadow);
            } else {
                self.words[start..end].fill(0);
                self.shadow[start..end].fill(Shadow::UNMANAGED);
            }
            self.dirty[page as usize] = false;
        }
        self.volatile = None;
        self.unsettled.clear();
    }

    /// From now on tracks the stores that the medium lacks.
    pub(super) fn watch(&mut self, medium: Medium) {
        self.volatile = Some(Volatile::of(medium));
    }

    /// Returns the stores that the medium lacks, if they are tracked.
    pub(super) fn volatile(&mut self) -> Option<&mut Volatile> {
        self.volatile.as_mut()
    }

    /// Like [`Memory::volatile`], but read-only.
    pub(super) fn lacks(&self) -> Option<&Volatile> {
        self.volatile.as_ref()
    }

    /// Makes all stores so far survive a power failure.
    pub(super) fn flush(&mut self) {
        if let Some(volatile) = &mut self.volatile {
            volatile.reach_all();
        }
    }

    /// Loses power. From now on stores are durable at once.
    pub(super) fn lose_power(&mut self, choices: &mut Choices) {
        let Some(mut volatile) = self.volatile.take() else { return };
        let (undone, unsettled) = volatile.lose_power(choices);
        for (word, old) in undone {
            self.set(word, old);
        }
        self.unsettled = unsettled;
    }

    /// Settles the values of words that a verb is about to access. Values that it overwrites need
    /// no choice.
    pub(super) fn settle(&mut self, words: Range<usize>, kind: VerbKind, choices: &mut Choices) {
        if self.unsettled.is_empty() {
            return;
        }
        let range = words.start as u32..words.end as u32;
        while let Some((&word, _)) = self.unsettled.range(range.clone()).next() {
            let Some(values) = self.unsettled.remove(&word) else { return };
            if kind != VerbKind::Write {
                let back = choices.choose(values.len());
                self.set(word, values[values.len() - 1 - back]);
            }
        }
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Replaces all words with words that were stored elsewhere, in objects that count as written.
    pub(super) fn set_words(&mut self, words: &[u64]) {
        for (at, &word) in words.iter().enumerate().take(self.words.len()) {
            if self.words[at] != word || self.shadow[at].is_unwritten() {
                self.store(at, word, false);
            }
        }
    }

    /// Sets a word to a value that a power failure has left, without changing its allocator state.
    fn set(&mut self, word: u32, value: u64) {
        self.touch(word as usize / PAGE_WORDS);
        self.words[word as usize] = value;
    }

    /// Adds a batch's needs for these words, which a verb of it has read or stored.
    pub(super) fn add_needs(&self, node: u8, words: Range<usize>, by: VerbKind, needs: &mut Vec<Need>) {
        if let Some(volatile) = &self.volatile {
            volatile.add_needs(node, words, by, needs);
        }
    }

    /// Returns the stamp of the retired object at an address.
    pub(super) fn stamp(&self, addr: GlobalAddr) -> Option<u64> {
        self.shadow.get((addr.offset() / 8) as usize)?.stamp()
    }

    /// Records an allocator's state of a range. Returns a misuse if an object is freed twice or
    /// allocated twice.
    pub(super) fn note(&mut self, addr: GlobalAddr, bytes: u64, state: ObjectState) -> Option<Misuse> {
        let start = (addr.offset() / 8) as usize;
        let end = (start + (bytes / 8) as usize).min(self.words.len());
        let range = self.shadow.get(start..end)?;
        let is_free = |shadow: &Shadow| *shadow == Shadow::FREE;
        let misuse = match state {
            ObjectState::Free if range.iter().any(is_free) => {
                Some(Misuse { what: "free memory was freed", addr })
            }
            ObjectState::Allocated if range.iter().any(|it| it.is_used()) => {
                Some(Misuse { what: "memory in use was allocated", addr })
            }
            ObjectState::Retired(_) if range.iter().any(is_free) => {
                Some(Misuse { what: "free memory was retired", addr })
            }
            _ => None,
        };
        let shadow = match state {
            ObjectState::Allocated => Shadow::UNWRITTEN,
            ObjectState::Retired(stamp) => Shadow::retired(stamp),
            ObjectState::Free | ObjectState::Reclaimed => Shadow::FREE,
            ObjectState::Unmanaged => Shadow::UNMANAGED,
        };
        for page in start / PAGE_WORDS..end.div_ceil(PAGE_WORDS) {
            let within = start.max(page * PAGE_WORDS)..end.min((page + 1) * PAGE_WORDS);
            // Unused memory is equivalent to free memory, and its page stays clean.
            if state == ObjectState::Reclaimed && !self.shadow[within.clone()].iter().any(|it| it.is_used()) {
                continue;
            }
            self.touch(page);
            self.shadow[within].fill(shadow);
        }
        if state == ObjectState::Allocated && start < end {
            self.shadow[start] = Shadow::UNWRITTEN_START;
        }
        misuse
    }

    /// Returns the misuse of a verb that executes words `from..to`, counted from its start, given
    /// their allocator state.
    fn misuse(
        &self,
        verb: Verb,
        start: usize,
        (from, to): (u32, u32),
        order: WordOrder,
        pin: Option<u64>,
    ) -> Option<Misuse> {
        let words = order.piece(start, verb.words, (from, to));
        let addr_of = |at: usize| GlobalAddr::new(verb.addr.node(), at as u64 * 8);
        if let Some(at) = words.clone().find(|&at| self.shadow[at] == Shadow::FREE) {
            let what = match verb.kind {
                VerbKind::Read => "a READ of free memory",
                VerbKind::Write => "a WRITE to free memory",
                VerbKind::Cas => "a CAS on free memory",
                VerbKind::Faa => "an FAA on free memory",
            };
            return Some(Misuse { what, addr: addr_of(at) });
        }
        if let Some(at) = words.clone().find(|&at| !self.shadow[at].admits(pin)) {
            return Some(Misuse {
                what: "memory is used without the protection of a pin",
                addr: addr_of(at),
            });
        }
        let is_blind = verb.kind != VerbKind::Write && words.contains(&start) && self.is_blind(start);
        is_blind.then(|| Misuse { what: "an object is used before it is written", addr: addr_of(start) })
    }

    /// Returns whether a word, and all words before it in its object, are unwritten. The ends of
    /// objects may be read unwritten: a size class is larger than its object.
    fn is_blind(&self, at: usize) -> bool {
        let before = self.shadow[..=at].iter().rev().find(|&&shadow| shadow != Shadow::UNWRITTEN);
        before == Some(&Shadow::UNWRITTEN_START)
    }

    #[inline]
    fn touch(&mut self, page: usize) {
        if !self.dirty[page] {
            self.dirty[page] = true;
            self.used[page] = true;
            self.dirty_pages.push(page as u32);
        }
    }

    #[inline]
    fn store(&mut self, at: usize, word: u64, is_volatile: bool) {
        self.touch(at / PAGE_WORDS);
        if self.shadow[at].is_unwritten() {
            self.shadow[at] = Shadow::WRITTEN;
        }
        if let Some(volatile) = &mut self.volatile {
            volatile.store(at as u32, self.words[at], word, is_volatile);
        }
        self.words[at] = word;
    }

    /// Returns the index of a verb's first word, if all its words lie in the region.
    pub(super) fn locate(&self, verb: &Verb) -> Result<usize, FabricError> {
        let offset = verb.addr.offset();
        if !offset.is_multiple_of(8) {
            return Err(FabricError::Misaligned { addr: verb.addr });
        }
        let bytes = u64::from(verb.words) * 8;
        if offset + bytes > self.bytes() {
            return Err(FabricError::out_of_bounds(verb.addr, bytes, self.bytes()));
        }
        Ok((offset / 8) as usize)
    }

    /// Executes the first half of a CAS or FAA: it reads the word, which is its result. Returns the
    /// word to store in the second half, whether that changes the word, and the misuse, if any.
    pub(super) fn begin_atomic(
        &self,
        batch: &mut Batch,
        verb: Verb,
        start: usize,
        pin: Option<u64>,
    ) -> (u64, bool, Option<Misuse>) {
        let misuse = self.misuse(verb, start, (0, 1), WordOrder::Ascending, pin);
        let (_, data) = batch.parts_mut();
        let at = verb.at as usize;
        let found = self.words[start];
        let operand = std::mem::replace(&mut data[at], found);
        let (word, takes_effect) = match verb.kind {
            VerbKind::Cas if found == operand => (data[at + 1], true),
            VerbKind::Faa => (found.wrapping_add(operand), true),
            _ => (found, false),
        };
        (word, takes_effect, misuse)
    }

    /// Executes the second half of a CAS or FAA. Returns the misuse, if any.
    pub(super) fn end_atomic(
        &mut self,
        verb: Verb,
        start: usize,
        word: u64,
        pin: Option<u64>,
    ) -> Option<Misuse> {
        let misuse = self.misuse(verb, start, (0, 1), WordOrder::Ascending, pin);
        self.store(start, word, verb.is_volatile);
        misuse
    }

    /// Executes words `from..to` of a READ or WRITE, counted in the given order; the verb begins at
    /// word `start` of the region. Returns the misuse, if any.
    pub(super) fn execute(
        &mut self,
        batch: &mut Batch,
        verb: Verb,
        start: usize,
        (from, to): (u32, u32),
        order: WordOrder,
        pin: Option<u64>,
    ) -> Option<Misuse> {
        let misuse = self.misuse(verb, start, (from, to), order, pin);
        let (_, data) = batch.parts_mut();
        let at = verb.at as usize;
        match verb.kind {
            VerbKind::Read if (from, to) == (0, verb.words) => {
                data[at..at + to as usize].copy_from_slice(&self.words[start..start + to as usize]);
            }
            VerbKind::Read => {
                for step in from..to {
                    let word = order.nth(step, verb.words);
                    data[at + word] = self.words[start + word];
                }
            }
            VerbKind::Write => {
                for step in from..to {
                    let word = order.nth(step, verb.words);
                    self.store(start + word, data[at + word], verb.is_volatile);
                }
            }
            VerbKind::Cas | VerbKind::Faa => {}
        }
        misuse
    }
}
