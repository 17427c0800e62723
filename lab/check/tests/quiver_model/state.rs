//! A state of the miniature: the pool, the progress of each client's operation, and the histories.

use crate::memory::{CLIENTS, DELTAS, EDGES, FRAMES, Frame, KEYS, Kind, Life, Word};

/// One operation on one key. Values are 1 to 7; 0 means absent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Op {
    Get(u8),
    /// Writes unconditionally; returns whether the key was present.
    Put(u8, u8),
    /// Writes if the key is absent; returns whether it was present.
    Insert(u8, u8),
    /// Returns whether the key was present.
    Delete(u8),
    /// Rebuilds the page of the key though its delta may not be full, like a client that finds half
    /// of the records dead. Returns 0.
    Rebuild(u8),
}

impl Op {
    pub(crate) fn key(self) -> u8 {
        match self {
            Self::Get(key)
            | Self::Put(key, _)
            | Self::Insert(key, _)
            | Self::Delete(key)
            | Self::Rebuild(key) => key,
        }
    }

    /// Returns the value after the operation, and its result.
    pub(crate) fn apply(self, value: u8) -> (u8, u8) {
        let was = u8::from(value != 0);
        match self {
            Self::Get(_) => (value, value),
            Self::Put(_, new) => (new, was),
            Self::Insert(_, new) => (if value == 0 { new } else { value }, was),
            Self::Delete(_) => (0, was),
            Self::Rebuild(_) => (value, 0),
        }
    }
}

/// A client's hint to a key: the page, its born, and the rank that the map gives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Hint {
    pub(crate) frame: u8,
    pub(crate) born: u8,
    pub(crate) rank: u8,
}

/// The purpose of a new page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Job {
    /// To replace NONE in `slot`, with one pair.
    Fill { slot: u8, hi: u8 },
    /// To become a part of the sealed page in `frame`; `whole` if the plan is a copy of the whole
    /// page.
    Part { frame: u8, part: u8, whole: bool },
}

/// The progress of a client's operation. A step reads or changes one word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Pc {
    Idle,
    /// The batch of a hint: `got` has a bit for each word read, and for the blind CAS.
    Record {
        got: u8,
        slot: Word,
        key: u8,
        value: u8,
        guard: Word,
        swapped: bool,
    },
    /// A LEAF by hint, whose guard must be read. `value` is the record's own.
    LeafGuard {
        slot: Word,
        value: u8,
    },
    /// The blind CAS hit another key's record, whose INLINE must be put back.
    Undo {
        inline: Word,
    },
    /// Another key's record: guard, delta and map must be read.
    Head {
        got: u8,
        guard: Word,
        map: Word,
        delta: [Word; DELTAS],
    },
    /// The node's slots, up to the key's edge, must be read.
    Route {
        got: u8,
        slots: [Word; EDGES],
    },
    /// A page found by the node: guard and delta must be read.
    Page {
        frame: u8,
        got: u8,
        guard: Word,
        delta: [Word; DELTAS],
    },
    /// A page found by the node, in which the key is static: its record must be read.
    Static {
        frame: u8,
        rank: u8,
    },
    /// A CAS of the word at `at`, with the operation's result if it succeeds.
    Swap {
        frame: u8,
        at: u8,
        expect: Word,
        put: Word,
        result: u8,
    },
    /// The words of a page from `at` on must be sealed.
    Seal {
        frame: u8,
        at: u8,
    },
    /// The node's slot of a part must be read.
    Part {
        frame: u8,
        part: u8,
        whole: bool,
    },
    /// The words of a new page with a bit in `left` must be written, then linked by one CAS.
    Draft {
        job: Job,
        draft: u8,
        left: u16,
    },
}

impl Pc {
    pub(crate) const ROUTE: Self = Self::Route { got: 0, slots: [Word::EMPTY; EDGES] };
    pub(crate) const RECORD: Self =
        Self::Record { got: 0, slot: Word::EMPTY, key: 0, value: 0, guard: Word::EMPTY, swapped: false };
    pub(crate) const HEAD: Self =
        Self::Head { got: 0, guard: Word::EMPTY, map: Word::EMPTY, delta: [Word::EMPTY; DELTAS] };

    pub(crate) const fn page(frame: u8) -> Self {
        Self::Page { frame, got: 0, guard: Word::EMPTY, delta: [Word::EMPTY; DELTAS] }
    }
}

/// One client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Client {
    pub(crate) pc: Pc,
    /// Number of operations begun.
    pub(crate) begun: u8,
    pub(crate) hints: [Option<Hint>; KEYS],
    /// Copy number of its leaf: the number of leaves it has lost to a page in this operation.
    pub(crate) copy: u8,
}

/// One state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    pub(crate) frames: [Frame; FRAMES],
    pub(crate) slots: [Word; EDGES],
    pub(crate) clients: [Client; CLIENTS],
    /// For each key, the number that the judge assigned to its set of configurations.
    pub(crate) judged: [u16; KEYS],
    /// A bit for each leaf that is retired.
    pub(crate) retired: u32,
}

impl State {
    /// Returns whether a hint of any client other than `client` names this frame.
    pub(crate) fn is_hinted(&self, frame: u8, client: usize) -> bool {
        let names = |hint: &Option<Hint>| hint.is_some_and(|hint| hint.frame == frame);
        self.clients.iter().enumerate().any(|(other, state)| other != client && state.hints.iter().any(names))
    }

    /// Takes a free frame for a draft: the first, so that memory is used again soon.
    pub(crate) fn allocate(&mut self) -> u8 {
        let free = self.frames.iter().position(|frame| frame.life == Life::Free);
        let frame = free.expect("the scenario has enough frames");
        self.frames[frame].life = Life::Draft;
        frame as u8
    }

    /// Unlinks a page: its frame is free when all operations now in progress have ended.
    pub(crate) fn retire(&mut self, frame: u8, grace: bool) {
        let mut pinned = 0;
        for (index, client) in self.clients.iter().enumerate() {
            pinned |= u8::from(client.pc != Pc::Idle) << index;
        }
        self.frames[frame as usize].life = Life::Retired(if grace { pinned } else { 0 });
        self.free_retired();
    }

    /// Whether a LEAF word's leaf is retired.
    pub(crate) fn is_retired(&self, leaf: Word) -> bool {
        self.retired & Self::leaf_bit(leaf) != 0
    }

    /// Retires the leaf of a word that was replaced, if it has one. Returns whether this is
    /// allowed.
    #[must_use]
    pub(crate) fn retire_leaf(&mut self, word: Word) -> bool {
        if !word.is(Kind::Leaf) {
            return true;
        }
        let fresh = !self.is_retired(word);
        self.retired |= Self::leaf_bit(word);
        fresh
    }

    fn leaf_bit(leaf: Word) -> u32 {
        assert!(leaf.value() < 8 && leaf.first() < 4, "a scenario has few leaves");
        1 << (leaf.value() * 4 + leaf.first())
    }

    /// Ends the pin of a client.
    pub(crate) fn unpin(&mut self, client: usize) {
        for frame in &mut self.frames {
            if let Life::Retired(pinned) = frame.life {
                frame.life = Life::Retired(pinned & !(1 << client));
            }
        }
        self.free_retired();
    }

    fn free_retired(&mut self) {
        for frame in &mut self.frames {
            if frame.life == Life::Retired(0) {
                frame.life = Life::Free;
                frame.born += 1;
                assert!(frame.born < 15, "the scenario ends before born wraps");
            }
        }
    }

    /// Makes states equal that differ only in free frames to which no client has a hint.
    pub(crate) fn forget_unreachable(&mut self) {
        for frame in 0..FRAMES {
            if self.frames[frame].life == Life::Free && !self.is_hinted(frame as u8, CLIENTS) {
                self.frames[frame] = Frame::FREE;
            }
        }
    }
}
