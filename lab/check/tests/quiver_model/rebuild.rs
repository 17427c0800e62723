//! Steps of a rebuild: the seals, the plan, the new pages word by word, and the CASes of the node's
//! slots (L7 to L9). A NONE slot is filled in the same way.

use crate::memory::{
    DELTA, Frame, GUARD, KEY, KEYS, Kind, Life, MAP, NOTHING, RECORDS, SLOT, VALUE, WORDS, Word,
};
use crate::scenario::Flaw;
use crate::situation::Situation;
use crate::state::{Job, Op, Pc, State};
use crate::turn::Turn;

/// A part of a plan: the edges from `lo` to `hi`, and the live pairs there.
#[derive(Clone, Debug)]
struct Part {
    lo: u8,
    hi: u8,
    pairs: Vec<(u8, u8)>,
}

impl Turn<'_> {
    /// Returns the places of a page's words in the order of their seals, the guard last.
    fn seals(&self, frame: u8) -> Vec<usize> {
        let mut places: Vec<usize> = (DELTA..DELTA + self.scenario.deltas).collect();
        places.extend(SLOT..SLOT + self.records(frame));
        match self.flaw {
            Some(Flaw::GuardNotSealed) => {}
            Some(Flaw::EarlyCopy) => drop(places.pop()),
            Some(Flaw::GuardSealedFirst) => places.insert(0, GUARD),
            _ => places.push(GUARD),
        }
        places
    }

    /// Continues with the next missing seal from `at` on, or with the plan. A sealed word stays
    /// sealed, so it needs no step; a sealed guard means that all other words are sealed.
    pub(crate) fn seal_from(&mut self, state: State, frame: u8, at: usize) {
        let words = &state.frames[frame as usize].words;
        let places = self.seals(frame);
        let missing = |&next: &usize| !words[places[next]].is_sealed();
        let done = words[GUARD].is_sealed() && (at == 0 || !self.has(Flaw::GuardSealedFirst));
        if let Some(next) = (at..places.len()).find(missing).filter(|_| !done) {
            return self.go(state, Pc::Seal { frame, at: next as u8 });
        }
        let page = &state.frames[frame as usize];
        if (0..self.records(frame)).any(|rank| {
            let slot = page.words[SLOT + rank];
            slot.is(Kind::Leaf) && u16::from(slot.second()) != page.words[KEY + rank].0
        }) {
            self.met.meet(Situation::WrongLeafSealed);
        }
        let parts = plan(page, self.scenario.room, self).len();
        let first = if self.has(Flaw::FirstPartFirst) { 0 } else { parts - 1 };
        self.go(state, Pc::Part { frame, part: first as u8, whole: false });
        if self.has(Flaw::PlanFree) && parts > 1 {
            self.go(state, Pc::Part { frame, part: 0, whole: true });
        }
    }

    /// Seals one word. A failed CAS is retried with the word it found, which changes nothing, so
    /// only the successful one is a step.
    pub(crate) fn seal(&mut self, frame: u8, at: u8) {
        let place = self.seals(frame)[at as usize];
        let mut state = self.state;
        let word = &mut state.frames[frame as usize].words[place];
        *word = word.sealed();
        self.seal_from(state, frame, at as usize + 1);
    }

    /// Reads the node's slot of a part: EMPTY if the part is not linked yet.
    pub(crate) fn part(&mut self, frame: u8, part: u8, whole: bool) {
        let job = Job::Part { frame, part, whole };
        let (slot, expect, _) = self.target(job);
        let state = self.state;
        if state.slots[slot as usize] == expect {
            self.draft(state, job);
        } else if part > 0 && !self.has(Flaw::FirstPartFirst) {
            self.met.meet(Situation::PartFound);
            self.go(state, Pc::Part { frame, part: part - 1, whole });
        } else {
            self.met.meet(Situation::PageReplaced);
            self.rebuilt(state);
        }
    }

    /// Continues in the new page after this client or another has replaced the page.
    fn rebuilt(&mut self, state: State) {
        if let Op::Rebuild(_) = self.op() {
            self.finish(state, 0);
        } else {
            self.again(state, None);
        }
    }

    /// Returns the slot of a job, the word that it expects there, and the part that it links.
    fn target(&self, job: Job) -> (u8, Word, Part) {
        match job {
            Job::Fill { slot, hi } => {
                let (Op::Put(key, value) | Op::Insert(key, value)) = self.op() else { unreachable!() };
                (slot, Word::none(hi), Part { lo: slot, hi, pairs: vec![(key, value)] })
            }
            Job::Part { frame, part, whole } => {
                let page = self.frame(frame);
                let room = if whole { RECORDS } else { self.scenario.room };
                let mut parts = plan(page, room, self);
                // Only a planted error changes sealed words, and then a plan may shrink.
                let part = parts.swap_remove((part as usize).min(parts.len() - 1));
                let first = part.lo == page.lo;
                let expect = if first { Word::page(page.hi, frame) } else { Word::EMPTY };
                (part.lo, expect, part)
            }
        }
    }

    /// Takes a frame for the page, if there are pairs, and determines which words to write one by
    /// one: those to which another client's hint may lead.
    pub(crate) fn draft(&mut self, mut state: State, job: Job) {
        let (_, _, part) = self.target(job);
        if part.pairs.is_empty() {
            return self.go(state, Pc::Draft { job, draft: NOTHING, left: 0 });
        }
        let draft = state.allocate();
        let hinted = state.is_hinted(draft, self.client);
        let frame = &mut state.frames[draft as usize];
        (frame.lo, frame.hi) = (part.lo, part.hi);
        let mut left = 0;
        for (place, word) in self.page_words(frame.born, &part.pairs) {
            if !hinted {
                frame.words[place] = word;
            } else if frame.words[place] != word {
                left |= 1 << place;
            }
        }
        self.go(state, Pc::Draft { job, draft, left });
    }

    /// Returns the words of a page with these pairs, by place. The words after its last record
    /// stay.
    fn page_words(&self, born: u8, pairs: &[(u8, u8)]) -> Vec<(usize, Word)> {
        assert!(pairs.len() <= RECORDS, "the scenario keeps pages small");
        let mut keys = [NOTHING; RECORDS];
        let mut words = vec![(GUARD, Word::guard(born, pairs.len() as u8))];
        words.extend((DELTA..DELTA + self.scenario.deltas).map(|place| (place, Word::EMPTY)));
        for (rank, &(key, value)) in pairs.iter().enumerate() {
            keys[rank] = key;
            words.push((SLOT + rank, Word::inline(born, self.scenario.hashes[key as usize])));
            words.push((KEY + rank, Word(u16::from(key))));
            words.push((VALUE + rank, Word(u16::from(value))));
        }
        words.push((MAP, Frame::map(keys)));
        words
    }

    /// Writes one remaining word of the draft; after the last one, links it.
    pub(crate) fn write(&mut self, job: Job, draft: u8, left: u16) {
        if left == 0 {
            return self.link(job, draft);
        }
        let (_, _, part) = self.target(job);
        let words = self.page_words(self.frame(draft).born, &part.pairs);
        for place in (0..WORDS).filter(|place| left >> place & 1 != 0) {
            let mut state = self.state;
            if let Some(&(_, word)) = words.iter().find(|&&(at, _)| at == place) {
                state.frames[draft as usize].words[place] = word;
            }
            self.met.meet(Situation::DraftInSight);
            self.go(state, Pc::Draft { job, draft, left: left & !(1 << place) });
        }
    }

    /// The CAS of the node's slot. A draft that loses is given back at once.
    fn link(&mut self, job: Job, draft: u8) {
        let (slot, expect, part) = self.target(job);
        let mut state = self.state;
        let put = if draft == NOTHING { Word::none(part.hi) } else { Word::page(part.hi, draft) };
        let linked = state.slots[slot as usize] == expect;
        if linked {
            state.slots[slot as usize] = put;
        }
        if draft != NOTHING && !linked {
            self.met.meet(Situation::DraftLost);
        }
        if draft == NOTHING && linked {
            let behind = expect.is(Kind::Empty);
            self.met.meet(if behind { Situation::NoneBehind } else { Situation::NoneLinked });
        }
        if draft != NOTHING {
            state.frames[draft as usize].life = if linked { Life::Linked } else { Life::Free };
        }
        match job {
            Job::Fill { .. } if linked => self.finish(state, 0),
            Job::Fill { .. } => self.again(state, None),
            Job::Part { frame, part, whole } => {
                if self.has(Flaw::EarlyCopy) {
                    state.frames[frame as usize].words.iter_mut().for_each(|word| *word = word.sealed());
                }
                let first = expect.is(Kind::Page);
                if first && linked {
                    state.retire(frame, !self.has(Flaw::NoGrace));
                    let words = self.frame(frame).words;
                    if !words[DELTA..KEY].iter().all(|&word| state.retire_leaf(word)) {
                        return self.wrong(state, "a leaf is retired twice");
                    }
                }
                let parts = plan(self.frame(frame), self.scenario.room, self).len();
                if self.has(Flaw::FirstPartFirst) && usize::from(part) + 1 < parts && (linked || part > 0) {
                    self.go(state, Pc::Part { frame, part: part + 1, whole });
                } else if first || part == 0 {
                    self.rebuilt(state);
                } else {
                    self.go(state, Pc::Part { frame, part: part - 1, whole });
                }
            }
        }
    }
}

/// Returns the plan for a sealed page: its live pairs, cut at edges into parts of at most `room`
/// pairs. An edge with more pairs is a separate part, for which the full design has a child node;
/// the range after it needs a slot even if it has no pair.
fn plan(page: &Frame, room: usize, turn: &Turn<'_>) -> Vec<Part> {
    let mut parts = vec![Part { lo: page.lo, hi: page.hi, pairs: Vec::new() }];
    let mut crowded_before = false;
    for edge in page.lo..=page.hi {
        let here = (0..KEYS as u8).filter(|&key| turn.scenario.edges[key as usize] == edge);
        let pairs: Vec<_> = here.filter_map(|key| Some((key, live(page, key, turn)?))).collect();
        let crowded = pairs.len() > room;
        let last = parts.last_mut().expect("a plan has a part");
        let overflows = !pairs.is_empty() && !last.pairs.is_empty() && last.pairs.len() + pairs.len() > room;
        if edge > page.lo && (crowded || crowded_before || overflows) {
            last.hi = edge - 1;
            parts.push(Part { lo: edge, hi: page.hi, pairs });
        } else {
            last.pairs.extend(pairs);
        }
        crowded_before = crowded;
    }
    parts
}

/// Returns the value of a key in a sealed page. Another key's leaf in its record means INLINE.
fn live(page: &Frame, key: u8, turn: &Turn<'_>) -> Option<u8> {
    if let Some(rank) = page.static_rank(key) {
        let slot = page.words[SLOT + rank as usize];
        let own = slot.second() == key || turn.has(Flaw::WrongLeafCopied);
        return match slot.kind() {
            Kind::Tomb => None,
            Kind::Leaf if own => Some(slot.value()),
            _ => Some(page.words[VALUE + rank as usize].0 as u8),
        };
    }
    let delta = &page.words[DELTA..DELTA + turn.scenario.deltas];
    delta.iter().find(|word| word.is(Kind::Leaf) && word.second() == key).map(|word| word.value())
}
