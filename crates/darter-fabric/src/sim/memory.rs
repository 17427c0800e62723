//! The simulated memory nodes' words: bounds, snapshots to start from again, and what a power failure leaves.
//!
//! An explorer runs hundreds of thousands of short schedules from the same beginning. So a memory knows which pages were
//! written since it was last restored, and restores only those.

use super::WordOrder;
use crate::{Batch, FabricError, Verb, VerbKind};
use std::collections::BTreeMap;

const PAGE_WORDS: usize = 512;

/// One node's region.
#[derive(Debug)]
pub(super) struct Memory {
    words: Vec<u64>,
    dirty: Vec<bool>,
    dirty_pages: Vec<u32>,
    /// When power may fail: each word written since the last flush with all it has held since, the flushed value first.
    volatile: Option<BTreeMap<u32, Vec<u64>>>,
}

/// The words of all nodes at one moment.
#[derive(Debug)]
pub struct Snapshot {
    pub(super) id: u64,
    pub(super) regions: Vec<Pages>,
}

/// A region's words, pages of zeros left out.
pub(super) type Pages = Vec<Option<Box<[u64]>>>;

impl Memory {
    pub(super) fn new(bytes: u64) -> Self {
        let words = (bytes / 8) as usize;
        Self {
            words: vec![0; words],
            dirty: vec![false; words.div_ceil(PAGE_WORDS)],
            dirty_pages: Vec::new(),
            volatile: None,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    /// What is there now, which is what [`Memory::restore`] expects to bring back from here on.
    pub(super) fn keep(&mut self) -> Pages {
        self.mark_clean();
        let pages = self.words.chunks(PAGE_WORDS);
        pages.map(|page| page.iter().any(|&word| word != 0).then(|| page.into())).collect()
    }

    fn mark_clean(&mut self) {
        for page in self.dirty_pages.drain(..) {
            self.dirty[page as usize] = false;
        }
    }

    /// Goes back to what was kept, from which only pages written since can differ, unless `all` may.
    pub(super) fn restore(&mut self, pages: &Pages, all: bool) {
        if all {
            self.dirty_pages = (0..pages.len() as u32).collect();
        }
        for page in std::mem::take(&mut self.dirty_pages) {
            let start = page as usize * PAGE_WORDS;
            let end = (start + PAGE_WORDS).min(self.words.len());
            match &pages[page as usize] {
                Some(words) => self.words[start..end].copy_from_slice(words),
                None => self.words[start..end].fill(0),
            }
            self.dirty[page as usize] = false;
        }
        self.volatile = None;
    }

    /// From now on remembers what is not flushed.
    pub(super) fn watch_flushes(&mut self) {
        self.volatile.get_or_insert_default();
    }

    /// Everything written so far survives a power failure.
    pub(super) fn flush(&mut self) {
        if let Some(volatile) = &mut self.volatile {
            volatile.clear();
        }
    }

    /// Loses power: each word written since the last flush holds what it was flushed with, or anything it held since, as
    /// `choose` says, which is given the number of possibilities. Answers how many words went back.
    pub(super) fn lose_power(&mut self, choose: &mut dyn FnMut(usize) -> usize) -> u64 {
        let mut lost = 0;
        for (word, values) in std::mem::take(&mut self.volatile).unwrap_or_default() {
            let now = values.len() - 1;
            let kept = choose(values.len()).min(now);
            if kept != now {
                lost += 1;
                self.store(word as usize, values[kept]);
            }
        }
        lost
    }

    #[inline]
    fn store(&mut self, at: usize, word: u64) {
        let page = at / PAGE_WORDS;
        if !self.dirty[page] {
            self.dirty[page] = true;
            self.dirty_pages.push(page as u32);
        }
        if let Some(volatile) = &mut self.volatile {
            let old = self.words[at];
            volatile.entry(at as u32).or_insert_with(|| vec![old]).push(word);
        }
        self.words[at] = word;
    }

    /// The first word of a verb, when all of them are here.
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

    /// Executes words `from..to` of a verb, counted in the order given, which begins at word `start` of the region.
    pub(super) fn execute(
        &mut self,
        batch: &mut Batch,
        verb: Verb,
        start: usize,
        (from, to): (u32, u32),
        order: WordOrder,
    ) {
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
                    self.store(start + word, data[at + word]);
                }
            }
            VerbKind::Cas => {
                let (expected, desired) = (data[at], data[at + 1]);
                let found = self.words[start];
                if found == expected {
                    self.store(start, desired);
                }
                data[at] = found;
            }
            VerbKind::Faa => {
                let found = self.words[start];
                self.store(start, found.wrapping_add(data[at]));
                data[at] = found;
            }
        }
    }
}
