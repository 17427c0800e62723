//! Steps of an operation that remembers its key's place: the batch at the record, then perhaps the
//! guard, the page's head, or the undoing of a blind CAS (L2 to L4).

use crate::memory::{DELTA, Frame, GUARD, KEY, Kind, MAP, SLOT, VALUE, Word};
use crate::scenario::Flaw;
use crate::situation::Situation;
use crate::state::{Op, Pc, State};
use crate::turn::Turn;

/// Parts of the batch at a record.
const READ_SLOT: u8 = 1;
const READ_KEY: u8 = 2;
const READ_VALUE: u8 = 4;
const READ_GUARD: u8 = 8;
const BLIND_CAS: u8 = 16;

impl Turn<'_> {
    /// Executes one remaining part of the batch at the record.
    pub(crate) fn record(&mut self) {
        let wanted = match self.op() {
            Op::Get(_) => READ_SLOT | READ_KEY | READ_VALUE,
            Op::Put(..) => READ_GUARD | READ_KEY | BLIND_CAS,
            Op::Insert(..) | Op::Delete(_) | Op::Rebuild(_) => READ_GUARD | READ_KEY | READ_SLOT,
        };
        let hint = self.hint();
        let Pc::Record { got: before, .. } = self.state.clients[self.client].pc else { unreachable!() };
        for part in [READ_SLOT, READ_KEY, READ_VALUE, READ_GUARD, BLIND_CAS] {
            if wanted & !before & part == 0 {
                continue;
            }
            let mut state = self.state;
            let words = &self.frame(hint.frame).words;
            let rank = hint.rank as usize;
            let mut cas = None;
            let pc = &mut state.clients[self.client].pc;
            let Pc::Record { got, slot, key, value, guard, swapped } = pc else { unreachable!() };
            *got |= part;
            match part {
                READ_SLOT => *slot = words[SLOT + rank],
                READ_KEY => *key = words[KEY + rank].0 as u8,
                READ_VALUE => *value = words[VALUE + rank].0 as u8,
                READ_GUARD => *guard = words[GUARD],
                _ => {
                    *slot = words[SLOT + rank];
                    cas = self.blind(*slot);
                    *swapped = cas.is_some();
                }
            }
            if let Some(leaf) = cas {
                state.frames[hint.frame as usize].words[SLOT + rank] = leaf;
            }
            self.judge_record(state, wanted);
        }
    }

    /// Returns the leaf that the blind CAS puts in place of `slot`, if it succeeds: INLINE,
    /// unsealed, with the remembered born and the key's hash.
    fn blind(&self, slot: Word) -> Option<Word> {
        let Op::Put(key, value) = self.op() else { return None };
        let matches = slot.is(Kind::Inline)
            && !slot.is_sealed()
            && (slot.first() == self.hint().born || self.has(Flaw::BornOfCas))
            && slot.second() == self.scenario.hashes[key as usize];
        matches.then(|| self.leaf(key, value))
    }

    /// Continues after a part of the batch.
    fn judge_record(&mut self, state: State, wanted: u8) {
        let Pc::Record { got, slot, key, value, guard, swapped } = state.clients[self.client].pc else {
            unreachable!()
        };
        let hint = self.hint();
        if got != wanted {
            return self.push(state);
        }
        if swapped {
            return self.after_blind(state, key, slot);
        }
        if key != self.key() {
            return self.go(state, Pc::HEAD);
        }
        if wanted & READ_SLOT != 0 && !self.may_trust(slot) {
            if matches!(slot.kind(), Kind::Inline | Kind::Tomb) && !slot.is_sealed() {
                self.met.meet(Situation::OtherLife);
            }
            return self.again(state, None);
        }
        if let Op::Get(_) = self.op() {
            return match slot.kind() {
                Kind::Inline => self.finish(state, value),
                Kind::Tomb => self.finish(state, 0),
                _ if self.has(Flaw::LeafWithoutGuard) => self.judge_leaf(state, slot, value),
                _ => self.go(state, Pc::LeafGuard { slot, value }),
            };
        }
        if slot.is_sealed() || !self.proves_life(guard) {
            return self.again(state, None);
        }
        if let Op::Put(..) = self.op() {
            // The CAS found LEAF, TOMB, or an INLINE that it did not expect.
            if slot.is(Kind::Inline) {
                return self.again(state, None);
            }
            self.met.meet(Situation::SecondCas);
        }
        self.judge_static(state, hint.frame, hint.rank, slot);
    }

    /// Whether a record's slot that was read by a hint may belong to the remembered life.
    fn may_trust(&self, slot: Word) -> bool {
        if slot.is_sealed() && !self.has(Flaw::SealedTrusted) {
            return false;
        }
        match slot.kind() {
            Kind::Inline | Kind::Tomb => slot.first() == self.hint().born || self.has(Flaw::BornOfRecord),
            Kind::Leaf => true,
            _ => false,
        }
    }

    /// Continues after the blind CAS succeeded on the record of `key`.
    fn after_blind(&mut self, state: State, key: u8, inline: Word) {
        if key == self.key() || self.has(Flaw::UndoMissing) {
            self.finish(state, 1);
        } else {
            self.met.meet(Situation::WrongLeaf);
            self.go(state, Pc::Undo { inline });
        }
    }

    /// Puts INLINE back in another key's record, by a CAS that expects the client's own leaf. If
    /// that fails, the leaf belongs to the client that replaced it, or that replaces the sealed
    /// page.
    pub(crate) fn undo(&mut self, inline: Word) {
        let hint = self.hint();
        let Op::Put(key, value) = self.op() else { unreachable!() };
        let own = self.leaf(key, value);
        let mut state = self.state;
        let word = &mut state.frames[hint.frame as usize].words[SLOT + hint.rank as usize];
        if *word != own {
            let sealed = word.is_sealed();
            self.met.meet(if sealed { Situation::UndoOnSealed } else { Situation::UndoOnChanged });
        }
        if *word == own || self.has(Flaw::UndoOverwrites) {
            *word = inline;
        } else if self.has(Flaw::LostLeafFreed) && !state.retire_leaf(own) {
            return self.wrong(state, "a leaf is retired twice");
        } else if !self.has(Flaw::LostLeafReused) {
            state.clients[self.client].copy += 1;
        }
        self.go(state, Pc::HEAD);
    }

    /// Reads the guard in addition to a LEAF, which has no room for born.
    pub(crate) fn leaf_guard(&mut self, slot: Word, value: u8) {
        let guard = self.frame(self.hint().frame).words[GUARD];
        if self.proves_life(guard) {
            self.judge_leaf(self.state, slot, value);
        } else {
            self.again(self.state, None);
        }
    }

    /// Continues after reading a LEAF: another key's leaf in the record means INLINE.
    fn judge_leaf(&mut self, state: State, slot: Word, value: u8) {
        let own = slot.second() == self.key() || self.has(Flaw::WrongLeafBelieved);
        if !own {
            self.met.meet(Situation::WrongLeafRead);
        }
        self.finish(state, if own { slot.value() } else { value });
    }

    /// Reads one remaining word of the head, after the record turned out to be another key's.
    pub(crate) fn head(&mut self) {
        let hint = self.hint();
        let Pc::Head { got: before, .. } = self.state.clients[self.client].pc else { unreachable!() };
        let all = (1 << (2 + self.scenario.deltas)) - 1;
        for bit in 0..2 + self.scenario.deltas {
            if before >> bit & 1 != 0 {
                continue;
            }
            let mut state = self.state;
            let words = &self.frame(hint.frame).words;
            let pc = &mut state.clients[self.client].pc;
            let Pc::Head { got, guard, map, delta } = pc else { unreachable!() };
            *got |= 1 << bit;
            match bit {
                0 => *guard = words[GUARD],
                1 => *map = words[MAP],
                _ => delta[bit - 2] = words[DELTA + bit - 2],
            }
            let (got, guard, map, delta) = (*got, *guard, *map, *delta);
            if got & 1 != 0 && !self.proves_life(guard) {
                if guard.is(Kind::Guard) && !guard.is_sealed() {
                    self.met.meet(Situation::GuardOfOtherLife);
                }
                self.again(state, None);
            } else if got != all {
                self.push(state);
            } else {
                let rank = Frame::rank(map, self.key());
                if rank == hint.rank || self.has(Flaw::HintedAbsence) {
                    self.judge_delta(state, hint.frame, delta, false);
                } else {
                    self.met.meet(Situation::OtherRank);
                    self.again(state, Some(rank));
                }
            }
        }
    }
}
