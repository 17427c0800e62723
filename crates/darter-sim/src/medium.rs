//! The part of a simulated node's words that is on its medium, and the state after a power failure.
//!
//! Reaching the medium is a separate event, which the scheduler can choose at any time. The rule of
//! a provider ([`Medium`]) defines the verbs and batches that wait for it. Positions count the
//! words that a node's verbs have stored: a batch has *needs*, the positions that must be on the
//! medium before it completes.
//!
//! The state after a power failure is a *choice* among many: each word that was pending may hold
//! the medium's value, or any later value. Most of these words are never read. So a choice is made
//! when a verb first reads the word, which leaves few enough choices to try all of them (Gorjiara
//! et al., Jaaru, ASPLOS 2021).

use darter_fabric::VerbKind;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// Words in a cache line.
pub(super) const LINE_WORDS: u32 = 8;

/// When written words reach the medium, and which verbs and batches wait for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Medium {
    /// At an unknown time, in any order; only [`darter_fabric::Fabric::persist`] ensures it.
    #[default]
    Never,
    /// Like a memory node with a log: in the order in which verbs execute, node by node. A batch
    /// completes when all that it wrote and all that it read is on the medium.
    Log,
    /// Like persistent memory with caches: each line separately, in any order. A batch completes as
    /// above. A verb that may change words executes when all WRITEs before it in its batch to its
    /// node are on the medium, and a fenced one when all changes are.
    Flush,
}

/// The names of the variants.
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
        named
            .map(|&(_, medium)| medium)
            .ok_or_else(|| format!("unknown medium '{text}': expected never, log or flush"))
    }
}

/// A store that a batch waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub node: u8,
    /// The word, if words reach the medium independently.
    word: u32,
    /// The position of the store that must be on the medium.
    at: u64,
    /// The kind of the verb that has read or stored it.
    pub by: VerbKind,
}

/// Words that a power failure has left with one of several values, the newest last.
pub(super) type Unsettled = BTreeMap<u32, Vec<u64>>;

/// A word with stores that the medium lacks.
#[derive(Debug)]
struct Pending {
    /// The position of the first store that the medium lacks, and of the last store that a batch
    /// waits for; 0 if no batch does.
    first: u64,
    last: u64,
    /// The medium's value and all values stored since.
    values: Vec<u64>,
}

/// The stores that one node's medium lacks.
#[derive(Debug, Default)]
pub(super) struct Volatile {
    medium: Medium,
    /// The position of the last store.
    last: u64,
    words: BTreeMap<u32, Pending>,
    /// With a log: the stores that the medium lacks, in order, with the words' previous values.
    stores: VecDeque<(u32, u64)>,
}

impl Volatile {
    pub(super) fn of(medium: Medium) -> Self {
        Self { medium, ..Self::default() }
    }

    /// Notes that a word which held `old` now holds `new`. No batch waits for it if it
    /// `is_volatile`.
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

    /// Adds a batch's needs for these words, which a verb of it has read or stored.
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

    /// Returns whether a need is on the medium.
    pub(super) fn meets(&self, need: &Need) -> bool {
        match self.medium {
            Medium::Never => true,
            Medium::Log => need.at <= self.last - self.stores.len() as u64,
            Medium::Flush => self.words.get(&need.word).is_none_or(|pending| pending.first > need.at),
        }
    }

    /// Calls `offer` with each store that may reach the medium next: its first word, and the number
    /// of pieces in which it may arrive.
    pub(super) fn offer(&self, mut offer: impl FnMut(u32, u32)) {
        match self.medium {
            Medium::Never => {}
            Medium::Log => {
                if let Some(&(word, _)) = self.stores.front() {
                    offer(word, self.stores.len() as u32);
                }
            }
            // Adjacent lines are offered together, like those of an object.
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

    /// Moves `pieces` pieces of an offered store to the medium, the last ones first if `descending`
    /// and the rule permits it.
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

    /// Moves all stores to the medium.
    pub(super) fn reach_all(&mut self) {
        self.words.clear();
        self.stores.clear();
    }

    /// Returns the maximum number of choices that a power failure leaves now.
    pub(super) fn choices_max(&self) -> usize {
        if self.medium == Medium::Log { 1 } else { self.words.len() }
    }

    /// Loses power. Returns the words to set at once, and those with undecided values.
    pub(super) fn lose_power(&mut self, choices: &mut Choices) -> (Vec<(u32, u64)>, Unsettled) {
        if self.medium == Medium::Log {
            // The log may hold more stores than those waited for.
            let lost = choices.choose(self.stores.len() + 1);
            let undone = self.stores.drain(..).rev().take(lost).collect();
            self.words.clear();
            return (undone, BTreeMap::new());
        }
        let words = std::mem::take(&mut self.words);
        (Vec::new(), words.into_iter().map(|(word, pending)| (word, pending.values)).collect())
    }
}

/// The choices that determine the state after a power failure.
#[derive(Debug, Default)]
pub(super) struct Choices {
    /// The prescribed choices: how far back from the newest, modulo the number of possibilities.
    script: VecDeque<u16>,
    made: Vec<(usize, usize)>,
}

impl Choices {
    pub(super) fn of(script: Vec<u16>) -> Self {
        Self { script: script.into(), made: Vec::new() }
    }

    /// Chooses one of `possibilities` possibilities, counted back from the newest.
    pub(super) fn choose(&mut self, possibilities: usize) -> usize {
        let back = usize::from(self.script.pop_front().unwrap_or(0)) % possibilities.max(1);
        self.made.push((back, possibilities));
        back
    }

    /// Returns the choices made, each with its number of possibilities.
    pub(super) fn made(&self) -> &[(usize, usize)] {
        &self.made
    }
}
