//! Steps of an operation that descends by the node: its slots, the page's head, the record (L5);
//! and the decisions made on a record or a delta, however it was found (L6, L7).

use crate::memory::{DELTA, DELTAS, GUARD, Kind, SLOT, VALUE, Word};
use crate::scenario::Flaw;
use crate::situation::Situation;
use crate::state::{Job, Op, Pc, State};
use crate::turn::Turn;

impl Turn<'_> {
    /// Reads one remaining slot of the node, up to the key's edge.
    pub(crate) fn route(&mut self) {
        let Pc::Route { got: before, .. } = self.state.clients[self.client].pc else { unreachable!() };
        let edge = self.edge() as usize;
        let all = (1 << (edge + 1)) - 1;
        for slot in (0..=edge).filter(|slot| before >> slot & 1 == 0) {
            let mut state = self.state;
            let pc = &mut state.clients[self.client].pc;
            let Pc::Route { got, slots } = pc else { unreachable!() };
            *got |= 1 << slot;
            slots[slot] = self.state.slots[slot];
            if *got != all {
                self.push(state);
                continue;
            }
            let found = (0..=edge).rev().find(|&slot| !slots[slot].is(Kind::Empty));
            let found = found.expect("slot 0 is never EMPTY");
            let word = slots[found];
            if word.first() < edge as u8 && !self.has(Flaw::HiUnchecked) {
                self.met.meet(Situation::SlotReadEarly);
                self.again(state, None);
            } else if word.is(Kind::None) {
                self.at_none(state, found as u8, word);
            } else {
                self.at_page(state, word.second());
            }
        }
    }

    /// Continues after finding that there is no key in the range of `slot`.
    fn at_none(&mut self, state: State, slot: u8, word: Word) {
        match self.op() {
            Op::Get(_) | Op::Delete(_) | Op::Rebuild(_) => self.finish(state, 0),
            Op::Put(..) | Op::Insert(..) => self.draft(state, Job::Fill { slot, hi: word.first() }),
        }
    }

    /// Chooses what to read of the page. Its map is of the pinned life, so that no step is needed
    /// to know which keys are static.
    fn at_page(&mut self, state: State, frame: u8) {
        if let Op::Rebuild(_) = self.op() {
            return self.seal_from(state, frame, 0);
        }
        match self.frame(frame).static_rank(self.key()) {
            Some(rank) if self.later().is_empty() => self.go(state, Pc::Static { frame, rank }),
            _ => self.go(state, Pc::page(frame)),
        }
    }

    /// Reads one remaining word of a page's head: the guard if there is something to remember for
    /// later, the delta if the key is not static.
    pub(crate) fn page(&mut self, frame: u8) {
        let Pc::Page { got: before, .. } = self.state.clients[self.client].pc else { unreachable!() };
        let rank = self.frame(frame).static_rank(self.key());
        let mut all = u8::from(!self.later().is_empty());
        if rank.is_none() {
            all |= ((1 << self.scenario.deltas) - 1) << 1;
        }
        for bit in (0..=DELTAS).filter(|bit| all & !before & 1 << bit != 0) {
            let mut state = self.state;
            let words = &self.frame(frame).words;
            let pc = &mut state.clients[self.client].pc;
            let Pc::Page { got, guard, delta, .. } = pc else { unreachable!() };
            *got |= 1 << bit;
            if bit == 0 {
                *guard = words[GUARD];
            } else {
                delta[bit - 1] = words[DELTA + bit - 1];
            }
            let (got, guard, delta) = (*got, *guard, *delta);
            if got != all {
                self.push(state);
                continue;
            }
            if guard.is(Kind::Guard) {
                self.learn(&mut state, frame, guard);
            }
            match rank {
                Some(rank) => self.go(state, Pc::Static { frame, rank }),
                None => self.judge_delta(state, frame, delta, true),
            }
        }
    }

    /// Reads the record of a static key.
    pub(crate) fn read_static(&mut self, frame: u8, rank: u8) {
        let words = self.frame(frame).words;
        let slot = words[SLOT + rank as usize];
        if let Op::Get(_) = self.op() {
            let own = slot.second() == self.key() || self.has(Flaw::WrongLeafBelieved);
            if slot.is(Kind::Leaf) && !own {
                self.met.meet(Situation::WrongLeafMet);
            }
            let value = match slot.kind() {
                Kind::Tomb => 0,
                Kind::Leaf if own => slot.value(),
                _ => words[VALUE + rank as usize].0 as u8,
            };
            self.finish(self.state, value);
        } else {
            self.judge_static(self.state, frame, rank, slot);
        }
    }

    /// Continues a write after it has read the word of its key's record.
    pub(crate) fn judge_static(&mut self, state: State, frame: u8, rank: u8, slot: Word) {
        let live = !slot.is(Kind::Tomb);
        let born = self.frame(frame).words[GUARD].first();
        let (put, result) = match self.op() {
            Op::Insert(..) if live => return self.finish(state, 1),
            Op::Delete(_) if !live => return self.finish(state, 0),
            Op::Delete(key) => (Word::tomb(born, self.scenario.hashes[key as usize]), 1),
            Op::Put(key, value) | Op::Insert(key, value) => (self.leaf(key, value), u8::from(live)),
            Op::Get(_) | Op::Rebuild(_) => unreachable!(),
        };
        if slot.is_sealed() {
            self.seal_from(state, frame, 0);
        } else {
            self.go(state, Pc::Swap { frame, at: SLOT as u8 + rank, expect: slot, put, result });
        }
    }

    /// Continues after reading the delta, since the key is not static. By a hint (`routed` is
    /// false) the page is not replaced, since its node is not known.
    pub(crate) fn judge_delta(&mut self, state: State, frame: u8, delta: [Word; DELTAS], routed: bool) {
        let key = self.key();
        let used = &delta[..self.scenario.deltas];
        let is_home = |word: &&Word| matches!(word.kind(), Kind::Leaf | Kind::Tomb) && word.second() == key;
        let mut place = used.iter().position(|word| is_home(&word));
        let live = place.is_some_and(|place| used[place].is(Kind::Leaf));
        let (put, result) = match self.op() {
            Op::Get(_) => {
                let value = if live { used[place.unwrap_or(0)].value() } else { 0 };
                return self.finish(state, value);
            }
            Op::Insert(..) if live => return self.finish(state, 1),
            Op::Delete(_) if !live => return self.finish(state, 0),
            Op::Delete(key) => (Word::delta_tomb(key), 1),
            Op::Put(key, value) | Op::Insert(key, value) => (self.leaf(key, value), u8::from(live)),
            Op::Rebuild(_) => unreachable!(),
        };
        if self.has(Flaw::ForeignTomb) {
            place = place.or_else(|| used.iter().position(|word| word.is(Kind::Tomb)));
        }
        let place = place.or_else(|| used.iter().position(|word| word.is(Kind::Empty)));
        match place {
            Some(place) if !used[place].is_sealed() => {
                let at = (DELTA + place) as u8;
                self.go(state, Pc::Swap { frame, at, expect: used[place], put, result });
            }
            _ if routed => self.seal_from(state, frame, 0),
            _ => self.again(state, None),
        }
    }
}
