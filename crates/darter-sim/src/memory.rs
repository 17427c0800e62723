//! The simulated memory nodes' words: bounds, and snapshots to start from again.
//!
//! An explorer runs hundreds of thousands of short schedules from the same beginning. So a memory
//! knows which pages were written since it was last restored, and restores only those.
//!
//! It also keeps a *shadow* of the allocator's state of each word ([`darter_fabric::Fabric::note_object`]),
//! as address and memory sanitizers do: a verb that touches a free word, or reads an object before
//! it is written, is a [`Misuse`], whether or not its result would have shown. So is a verb that
//! touches what was retired before its client's pin: the memory need not be free yet, but nothing
//! keeps it from being freed.

use super::WordOrder;
use super::medium::{Choices, Medium, Need, Unsettled, Volatile};
use bytemuck::Zeroable;
use darter_fabric::{Batch, FabricError, GlobalAddr, ObjectState, Verb, VerbKind};
use std::ops::Range;

const PAGE_WORDS: usize = 512;

/// What is known of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Zeroable)]
#[repr(transparent)]
pub(super) struct Shadow(u32);

impl Shadow {
    /// No allocator manages it.
    const UNMANAGED: Self = Self(0);
    /// Part of an object, written since its allocation.
    const WRITTEN: Self = Self(1);
    /// Part of an object, not written since its allocation.
    const UNWRITTEN: Self = Self(2);
    /// Free.
    const FREE: Self = Self(3);

    /// Part of a retired object with this stamp.
    fn retired(stamp: u64) -> Self {
        Self(Self::FREE.0 + 1 + stamp as u32)
    }

    fn is_used(self) -> bool {
        !matches!(self, Self::UNMANAGED | Self::FREE)
    }

    /// Returns the stamp of a retired object.
    fn stamp(self) -> Option<u64> {
        self.0.checked_sub(Self::FREE.0 + 1).map(u64::from)
    }

    /// Returns whether the word may be touched by a client with this pin.
    fn admits(self, pin: Option<u64>) -> bool {
        self.stamp().is_none_or(|stamp| pin.is_some_and(|pin| pin <= stamp))
    }
}

/// A verb that no correct client posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misuse {
    /// What was done, in words.
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
    /// Pages that were ever written; the others are as they were made.
    used: Vec<bool>,
    dirty_pages: Vec<u32>,
    /// When power may fail: what the medium lacks.
    volatile: Option<Volatile>,
    /// After it has failed: words that nobody has looked at, and what they may hold, the newest
    /// last.
    unsettled: Unsettled,
}

/// The words of all nodes at one moment.
#[derive(Debug)]
pub struct Snapshot {
    pub(super) id: u64,
    pub(super) regions: Vec<Pages>,
}

/// A region's words and their shadow, untouched pages left out.
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

    /// Returns what is there now, which is what [`Memory::restore`] expects to bring back from here
    /// on.
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

    /// Goes back to what was kept, from which only pages written since can differ, unless `all`
    /// may.
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

    /// From now on remembers what is not on the medium.
    pub(super) fn watch(&mut self, medium: Medium) {
        self.volatile = Some(Volatile::of(medium));
    }

    /// Returns what the medium lacks, where that is watched.
    pub(super) fn volatile(&mut self) -> Option<&mut Volatile> {
        self.volatile.as_mut()
    }

    /// Returns the same to look at.
    pub(super) fn lacks(&self) -> Option<&Volatile> {
        self.volatile.as_ref()
    }

    /// Everything written so far survives a power failure.
    pub(super) fn flush(&mut self) {
        if let Some(volatile) = &mut self.volatile {
            volatile.reach_all();
        }
    }

    /// Loses power. From now on what is written is there.
    pub(super) fn lose_power(&mut self, choices: &mut Choices) {
        let Some(mut volatile) = self.volatile.take() else { return };
        let (undone, unsettled) = volatile.lose_power(choices);
        for (word, old) in undone {
            self.set(word, old);
        }
        self.unsettled = unsettled;
    }

    /// Settles what words hold that a verb is about to read. What they held is of no interest if it
    /// overwrites them.
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

    /// Takes words that were stored elsewhere, in objects that are written there.
    pub(super) fn set_words(&mut self, words: &[u64]) {
        for (at, &word) in words.iter().enumerate().take(self.words.len()) {
            if self.words[at] != word || self.shadow[at] == Shadow::UNWRITTEN {
                self.store(at, word, false);
            }
        }
    }

    /// Makes a word what a power failure has left; the allocator's state of it is another matter.
    fn set(&mut self, word: u32, value: u64) {
        self.touch(word as usize / PAGE_WORDS);
        self.words[word as usize] = value;
    }

    /// Adds what a batch needs of which a verb has read these words, or stored them.
    pub(super) fn add_needs(&self, node: u8, words: Range<usize>, by: VerbKind, needs: &mut Vec<Need>) {
        if let Some(volatile) = &self.volatile {
            volatile.add_needs(node, words, by, needs);
        }
    }

    /// Returns the stamp of the retired object at an address.
    pub(super) fn stamp(&self, addr: GlobalAddr) -> Option<u64> {
        self.shadow.get((addr.offset() / 8) as usize)?.stamp()
    }

    /// Records an allocator's state of a range. Returns a misuse: an object freed twice, or
    /// allocated twice.
    pub(super) fn note(&mut self, addr: GlobalAddr, bytes: u64, state: ObjectState) -> Option<Misuse> {
        let start = (addr.offset() / 8) as usize;
        let end = (start + (bytes / 8) as usize).min(self.words.len());
        let range = self.shadow.get(start..end)?;
        let is_free = |shadow: &Shadow| *shadow == Shadow::FREE;
        let misuse = match state {
            ObjectState::Free if range.iter().any(is_free) => {
                Some(Misuse { what: "memory was freed that is free", addr })
            }
            ObjectState::Allocated if range.iter().any(|it| it.is_used()) => {
                Some(Misuse { what: "memory was allocated that is in use", addr })
            }
            ObjectState::Retired(_) if range.iter().any(is_free) => {
                Some(Misuse { what: "memory was retired that is free", addr })
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
            // Unused memory is as good as free, and its page stays clean.
            if state == ObjectState::Reclaimed && !self.shadow[within.clone()].iter().any(|it| it.is_used()) {
                continue;
            }
            self.touch(page);
            self.shadow[within].fill(shadow);
        }
        misuse
    }

    /// Returns what is wrong with a verb executing words `from..to`, counted from its start, given
    /// what is known of them.
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
                what: "memory is used that the user's pin does not protect",
                addr: addr_of(at),
            });
        }
        // The ends of objects may be read unwritten: a size class is larger than what is in it.
        let is_blind = verb.kind != VerbKind::Write && self.shadow[start] == Shadow::UNWRITTEN;
        (is_blind && words.contains(&start))
            .then(|| Misuse { what: "an object is used that nobody has written", addr: addr_of(start) })
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
        if self.shadow[at] == Shadow::UNWRITTEN {
            self.shadow[at] = Shadow::WRITTEN;
        }
        if let Some(volatile) = &mut self.volatile {
            volatile.store(at as u32, self.words[at], word, is_volatile);
        }
        self.words[at] = word;
    }

    /// Returns the first word of a verb, when all of them are here.
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
    /// word to store in the second half, whether the word changes by that, and what was wrong.
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

    /// Executes the second half of a CAS or FAA. Returns what was wrong with it.
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

    /// Executes words `from..to` of a READ or WRITE, counted in the order given, which begins at
    /// word `start` of the region. Returns what was wrong with it.
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
