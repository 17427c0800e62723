//! Scenarios: the pages at the start, the clients' hints and their operations; and the errors that
//! can be planted in the protocol.

use crate::judge::Judge;
use crate::memory::{
    CLIENTS, DELTA, DELTAS, EDGES, FRAMES, Frame, GUARD, KEY, KEYS, Life, MAP, NOTHING, RECORDS, SLOT, VALUE,
    Word,
};
use crate::state::{Client, Hint, Op, Pc, State};

/// Key of delta slots that are taken from the start, by a TOMB. It is not used by any operation.
const FOREIGN: u8 = 7;

/// An error in the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    /// A search does not compare its edge with *hi* of the slot that it found.
    HiUnchecked,
    /// A hint's user does not compare the born of INLINE and TOMB.
    BornOfRecord,
    /// The blind CAS accepts any born.
    BornOfCas,
    /// A hint's user does not compare the born of the guard.
    BornOfGuard,
    /// The new page is written before the last words of the old one are sealed.
    EarlyCopy,
    /// A rebuild seals all words except the guard.
    GuardNotSealed,
    /// The guard is sealed before the other words.
    GuardSealedFirst,
    /// A search by a hint takes sealed words for current ones.
    SealedTrusted,
    /// A helper may copy the whole page where the plan has parts.
    PlanFree,
    /// Parts are linked from the first to the last.
    FirstPartFirst,
    /// An insert reuses another key's TOMB in the delta.
    ForeignTomb,
    /// A search by a hint takes a LEAF without reading the guard.
    LeafWithoutGuard,
    /// Readers take a LEAF's value whatever key the leaf has.
    WrongLeafBelieved,
    /// A rebuild copies a LEAF's value whatever key the leaf has.
    WrongLeafCopied,
    /// The updater does not compare the record's key with its own after a blind CAS.
    UndoMissing,
    /// The updater puts INLINE back without reading the word.
    UndoOverwrites,
    /// After an undo that failed, the updater continues with the leaf that it lost.
    LostLeafReused,
    /// After an undo that failed, the updater retires the leaf that it lost.
    LostLeafFreed,
    /// A page's frame is freed as soon as it is unlinked.
    NoGrace,
    /// A miss trusts the rank that the client remembered.
    HintedAbsence,
}

impl Flaw {
    pub(crate) const ALL: [Self; 20] = [
        Self::HiUnchecked,
        Self::BornOfRecord,
        Self::BornOfCas,
        Self::BornOfGuard,
        Self::EarlyCopy,
        Self::GuardNotSealed,
        Self::GuardSealedFirst,
        Self::SealedTrusted,
        Self::PlanFree,
        Self::FirstPartFirst,
        Self::ForeignTomb,
        Self::LeafWithoutGuard,
        Self::WrongLeafBelieved,
        Self::WrongLeafCopied,
        Self::UndoMissing,
        Self::UndoOverwrites,
        Self::LostLeafReused,
        Self::LostLeafFreed,
        Self::NoGrace,
        Self::HintedAbsence,
    ];
}

/// One scenario.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) clients: Vec<Vec<Op>>,
    /// The edge of each key, in the order of keys.
    pub(crate) edges: [u8; KEYS],
    /// The hash of each key that INLINE and TOMB words have.
    pub(crate) hashes: [u8; KEYS],
    /// Maximum number of pairs in a part of a plan.
    pub(crate) room: usize,
    /// Number of delta slots of a page.
    pub(crate) deltas: usize,
    frames: [Frame; FRAMES],
    slots: [Word; EDGES],
    hints: [[Option<Hint>; KEYS]; CLIENTS],
    values: [u8; KEYS],
    used: usize,
}

impl Scenario {
    /// Two keys of edge 0, one of edge 1, one of edge 2, and nothing in the pool.
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            clients: Vec::new(),
            edges: [0, 0, 1, 2],
            hashes: [0, 1, 2, 3],
            room: RECORDS,
            deltas: DELTAS,
            frames: [Frame::FREE; FRAMES],
            slots: [Word::EMPTY; EDGES],
            hints: [[None; KEYS]; CLIENTS],
            values: [0; KEYS],
            used: 0,
        }
    }

    pub(crate) fn edges(mut self, edges: [u8; KEYS]) -> Self {
        self.edges = edges;
        self
    }

    /// Limits the parts of plans to `room` pairs.
    pub(crate) fn room(mut self, room: usize) -> Self {
        self.room = room;
        self
    }

    /// Gives pages one delta slot.
    pub(crate) fn one_delta(mut self) -> Self {
        self.deltas = 1;
        self
    }

    /// Gives `other` the hash of `key`.
    pub(crate) fn collision(mut self, key: usize, other: usize) -> Self {
        self.hashes[other] = self.hashes[key];
        self
    }

    /// Puts a page for the edges from `lo` to `hi` in the next frame.
    pub(crate) fn page(mut self, lo: u8, hi: u8, pairs: &[(u8, u8)]) -> Self {
        let frame = &mut self.frames[self.used];
        let born = frame.born;
        let mut keys = [NOTHING; RECORDS];
        frame.words[GUARD] = Word::guard(born, pairs.len() as u8);
        for (rank, &(key, value)) in pairs.iter().enumerate() {
            keys[rank] = key;
            frame.words[SLOT + rank] = Word::inline(born, self.hashes[key as usize]);
            frame.words[KEY + rank] = Word(u16::from(key));
            frame.words[VALUE + rank] = Word(u16::from(value));
            self.values[key as usize] = value;
        }
        frame.words[MAP] = Frame::map(keys);
        (frame.lo, frame.hi, frame.life) = (lo, hi, Life::Linked);
        self.slots[lo as usize] = Word::page(hi, self.used as u8);
        self.used += 1;
        self
    }

    /// Adds a range without keys, for the edges from `lo` to `hi`.
    pub(crate) fn none(mut self, lo: u8, hi: u8) -> Self {
        self.slots[lo as usize] = Word::none(hi);
        self
    }

    /// Takes the last page's first delta slots.
    pub(crate) fn taken(mut self, deltas: usize) -> Self {
        self.frames[self.used - 1].words[DELTA..DELTA + deltas].fill(Word::delta_tomb(FOREIGN));
        self
    }

    /// Puts a pair in delta slot `at` of the last page.
    pub(crate) fn later(mut self, at: usize, key: u8, value: u8) -> Self {
        self.frames[self.used - 1].words[DELTA + at] = Word::leaf(key, value, 0);
        self.values[key as usize] = value;
        self
    }

    /// Updates a record of the last page.
    pub(crate) fn updated(mut self, rank: usize, key: u8, value: u8) -> Self {
        self.frames[self.used - 1].words[SLOT + rank] = Word::leaf(key, value, 0);
        self.values[key as usize] = value;
        self
    }

    /// Rebuilds the last page to one of `pairs` in the next frame. Its own frame is free and still
    /// has its sealed words; hints made before are stale.
    pub(crate) fn rebuilt(mut self, pairs: &[(u8, u8)]) -> Self {
        let old = &mut self.frames[self.used - 1];
        let (lo, hi) = (old.lo, old.hi);
        for word in &mut old.words[DELTA..KEY] {
            *word = word.sealed();
        }
        old.words[GUARD] = old.words[GUARD].sealed();
        old.life = Life::Free;
        old.born += 1;
        for (value, edge) in self.values.iter_mut().zip(self.edges) {
            if (lo..=hi).contains(&edge) {
                *value = 0;
            }
        }
        self.page(lo, hi, pairs)
    }

    /// Adds a client that begins without hints.
    pub(crate) fn client(mut self, ops: &[Op]) -> Self {
        self.clients.push(ops.to_vec());
        self
    }

    /// Adds a client that remembers the last page so far.
    pub(crate) fn knowing(mut self, ops: &[Op]) -> Self {
        let frame = self.used - 1;
        let page = &self.frames[frame];
        for key in 0..KEYS as u8 {
            if (page.lo..=page.hi).contains(&self.edges[key as usize]) {
                let rank = Frame::rank(page.words[MAP], key);
                let hint = Hint { frame: frame as u8, born: page.words[GUARD].first(), rank };
                self.hints[self.clients.len()][key as usize] = Some(hint);
            }
        }
        self.client(ops)
    }

    /// Gives the last client's map a wrong rank for `key`.
    pub(crate) fn misled(mut self, key: u8, rank: u8) -> Self {
        let last = self.clients.len() - 1;
        if let Some(hint) = &mut self.hints[last][key as usize] {
            hint.rank = rank;
        }
        self
    }

    /// Returns the state at the start.
    pub(crate) fn start(&self, judge: &mut Judge) -> State {
        let mut clients = [Client { pc: Pc::Idle, begun: 0, hints: [None; KEYS], copy: 0 }; CLIENTS];
        for (client, ops) in self.clients.iter().enumerate() {
            for op in ops {
                let key = op.key() as usize;
                clients[client].hints[key] = self.hints[client][key];
            }
        }
        let judged = self.values.map(|value| judge.initial(value));
        let mut state = State { frames: self.frames, slots: self.slots, clients, judged, retired: 0 };
        state.forget_unreachable();
        state
    }
}
