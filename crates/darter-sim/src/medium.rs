//! What of a simulated node's words is on its medium, and what a power failure leaves.
//!
//! Reaching the medium is an event of its own, which the scheduler lets happen as it likes. What
//! waits for it is the rule of a provider ([`Medium`]). Positions count the words that a node's
//! verbs have stored: a batch has *needs*, the positions that must be on the medium before it
//! completes.
//!
//! What a power failure leaves is a *choice*, and there are many: each word that was pending may
//! hold what the medium has, or any later value. Most of these words nobody ever looks at. So a
//! choice is made when a verb first reads the word, which leaves few enough to try all of them
//! (Gorjiara et al., Jaaru, ASPLOS 2021).

use darter_fabric::VerbKind;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// Words in a cache line.
pub(super) const LINE_WORDS: u32 = 8;

/// When what verbs write is on the medium, and what waits for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Medium {
    /// At an unknown time, in any order; only [`darter_fabric::Fabric::persist`] makes sure.
    #[default]
    Never,
    /// As a memory node with a log: in the order in which verbs execute, node by node. A batch
    /// completes when all that it wrote and all that it read is there.
    Log,
    /// As persistent memory behind caches: each line on its own, in any order. A batch completes as
    /// above. A verb that may change words executes when all WRITEs before it in its batch to its
    /// node are there, and a fenced one when all changes are.
    Flush,
}

/// Their names.
const NAMES: [(&str, Medium); 3] = [("never", Medium::Never), ("log", Medium::Log), ("flush", Medium::Flush)];

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = NAMES.iter().find(|(_, medium)| medium == self);
        f.write_str(named.map_or("never", |(name, _)| name))
    }
}

impl FromStr for Medium {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = NAMES.iter().find(|(name, _)| *name == text);
        named.map(|&(_, medium)| medium).ok_or_else(|| format!("'{text}' is none of never, log, flush"))
    }
}

/// What a batch waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub node: u8,
    /// The word, where each reaches the medium on its own.
    word: u32,
    /// The position of the store that must be there.
    at: u64,
    /// The verb that has read or stored it.
    pub by: VerbKind,
}

/// Words that a power failure has left with any of some values, the newest last.
pub(super) type Unsettled = BTreeMap<u32, Vec<u64>>;

/// A word of which the medium lacks something.
#[derive(Debug)]
struct Pending {
    /// The position of the first store that it lacks, and of the last one that somebody waits for;
    /// 0 if nobody does.
    first: u64,
    last: u64,
    /// What the medium has, and all that was stored since.
    values: Vec<u64>,
}

/// What one node's medium lacks.
#[derive(Debug, Default)]
pub(super) struct Volatile {
    medium: Medium,
    /// The position of the last store.
    last: u64,
    words: BTreeMap<u32, Pending>,
    /// With a log: the stores that it lacks, in their order, and what the words held before.
    stores: VecDeque<(u32, u64)>,
}

impl Volatile {
    pub(super) fn of(medium: Medium) -> Self {
        Self { medium, ..Self::default() }
    }

    /// Notes that a word which held `old` now holds `new`. If that `is_volatile`, nobody waits for it.
    pub(super) fn store(&mut self, word: u32, old: u64, new: u64, is_volatile: bool) {
        self.last += 1;
        let at = self.last;
        let pending =
            self.words.entry(word).or_insert_with(|| Pending { first: at, last: 0, values: vec![old] });
        if !is_volatile {
            pending.last = at;
        }
        if self.medium == Medium::Log {
            self.stores.push_back((word, old));
        } else {
            pending.values.push(new);
        }
    }

    /// Adds what a batch needs of which a verb has read these words, or stored them.
    pub(super) fn add_needs(&self, node: u8, words: Range<usize>, by: VerbKind, needs: &mut Vec<Need>) {
        if self.medium == Medium::Never {
            return;
        }
        let words = words.start as u32..words.end as u32;
        let pending = self.words.range(words).filter(|(_, pending)| pending.last > 0);
        if self.medium == Medium::Log {
            let last = pending.map(|(_, pending)| pending.last).max();
            needs.extend(last.map(|at| Need { node, word: 0, at, by }));
        } else {
            needs.extend(pending.map(|(&word, it)| Need { node, word, at: it.last, by }));
        }
    }

    /// Returns whether the medium has what a batch needs.
    pub(super) fn meets(&self, need: &Need) -> bool {
        match self.medium {
            Medium::Never => true,
            Medium::Log => need.at <= self.last - self.stores.len() as u64,
            Medium::Flush => self.words.get(&need.word).is_none_or(|pending| pending.first > need.at),
        }
    }

    /// Calls `offer` with each thing that may reach the medium next: its first word, and in how many
    /// pieces it may come.
    pub(super) fn offer(&self, mut offer: impl FnMut(u32, u32)) {
        match self.medium {
            Medium::Never => {}
            Medium::Log => {
                if let Some(&(word, _)) = self.stores.front() {
                    offer(word, self.stores.len() as u32);
                }
            }
            // Lines beside each other are one thing, as those of an object are.
            Medium::Flush => {
                let mut run: Option<Range<u32>> = None;
                for line in self.words.keys().map(|word| word / LINE_WORDS) {
                    match &mut run {
                        Some(run) if line < run.end => {}
                        Some(run) if line == run.end => run.end += 1,
                        _ => {
                            if let Some(run) = run.replace(line..line + 1) {
                                offer(run.start * LINE_WORDS, run.len() as u32);
                            }
                        }
                    }
                }
                if let Some(run) = run {
                    offer(run.start * LINE_WORDS, run.len() as u32);
                }
            }
        }
    }

    /// Something that was offered reaches the medium: so many pieces of it, the last ones first if
    /// `descending` and the rule leaves that open.
    pub(super) fn reach(&mut self, word: u32, pieces: u32, most: u32, descending: bool) {
        let pieces = pieces.clamp(1, most);
        match self.medium {
            Medium::Never => {}
            Medium::Log => {
                for _ in 0..pieces {
                    let Some((word, _)) = self.stores.pop_front() else { break };
                    let durable = self.last - self.stores.len() as u64;
                    if self.words.get(&word).is_some_and(|pending| pending.last <= durable) {
                        self.words.remove(&word);
                    }
                }
            }
            Medium::Flush => {
                let first = if descending { most - pieces } else { 0 };
                let lines = word / LINE_WORDS + first..word / LINE_WORDS + first + pieces;
                let words = lines.start * LINE_WORDS..lines.end * LINE_WORDS;
                let reached: Vec<u32> = self.words.range(words).map(|(&word, _)| word).collect();
                for word in reached {
                    self.words.remove(&word);
                }
            }
        }
    }

    /// All of it reaches the medium.
    pub(super) fn reach_all(&mut self) {
        self.words.clear();
        self.stores.clear();
    }

    /// How many choices a power failure leaves now, at most.
    pub(super) fn choices_max(&self) -> usize {
        if self.medium == Medium::Log { 1 } else { self.words.len() }
    }

    /// The power fails. Returns the words to set at once, and those of which nothing is decided.
    pub(super) fn lose_power(&mut self, choices: &mut Choices) -> (Vec<(u32, u64)>, Unsettled) {
        if self.medium == Medium::Log {
            // Any more of the log may be there than was waited for.
            let lost = choices.choose(self.stores.len() + 1);
            let undone = self.stores.drain(..).rev().take(lost).collect();
            self.words.clear();
            return (undone, BTreeMap::new());
        }
        let words = std::mem::take(&mut self.words);
        (Vec::new(), words.into_iter().map(|(word, pending)| (word, pending.values)).collect())
    }
}

/// What a power failure has left, choice by choice.
#[derive(Debug, Default)]
pub(super) struct Choices {
    /// What is to be chosen: how far back from the newest, modulo what there is.
    script: VecDeque<u16>,
    made: Vec<(usize, usize)>,
}

impl Choices {
    pub(super) fn of(script: Vec<u16>) -> Self {
        Self { script: script.into(), made: Vec::new() }
    }

    /// Chooses one of so many possibilities, counted back from the newest.
    pub(super) fn choose(&mut self, possibilities: usize) -> usize {
        let back = usize::from(self.script.pop_front().unwrap_or(0)) % possibilities.max(1);
        self.made.push((back, possibilities));
        back
    }

    /// Returns what was chosen, and of how many possibilities.
    pub(super) fn made(&self) -> &[(usize, usize)] {
        &self.made
    }
}
