//! The context of one client's step: the state before it, the scenario, the planted error, and the
//! list for the states after it.

use crate::judge::Judge;
use crate::memory::{Frame, Kind, MAP, NOTHING, RECORDS, Word};
use crate::scenario::{Flaw, Scenario};
use crate::situation::Situations;
use crate::state::{Hint, Op, Pc, State};

/// A state after a step, and the violation, if there is one.
pub(crate) type Next = (State, Option<&'static str>);

/// One client's turn.
pub(crate) struct Turn<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) flaw: Option<Flaw>,
    pub(crate) judge: &'a mut Judge,
    pub(crate) client: usize,
    pub(crate) met: &'a mut Situations,
    /// Before the step.
    pub(crate) state: State,
    pub(crate) out: &'a mut Vec<Next>,
}

impl Turn<'_> {
    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Returns the current operation of the client.
    pub(crate) fn op(&self) -> Op {
        self.scenario.clients[self.client][self.state.clients[self.client].begun as usize - 1]
    }

    pub(crate) fn key(&self) -> u8 {
        self.op().key()
    }

    pub(crate) fn edge(&self) -> u8 {
        self.scenario.edges[self.key() as usize]
    }

    /// Returns the operation's leaf.
    pub(crate) fn leaf(&self, key: u8, value: u8) -> Word {
        Word::leaf(key, value, self.state.clients[self.client].copy)
    }

    /// Returns the operations that the client has not begun.
    pub(crate) fn later(&self) -> &[Op] {
        &self.scenario.clients[self.client][self.state.clients[self.client].begun as usize..]
    }

    /// Returns the client's hint to the key.
    pub(crate) fn hint(&self) -> Hint {
        self.state.clients[self.client].hints[self.key() as usize].expect("a hint is followed")
    }

    pub(crate) fn frame(&self, frame: u8) -> &Frame {
        &self.state.frames[frame as usize]
    }

    /// Whether a guard that was read by a hint shows that the remembered life continues.
    pub(crate) fn proves_life(&self, guard: Word) -> bool {
        let same = guard.first() == self.hint().born || self.has(Flaw::BornOfGuard);
        let sealed = guard.is_sealed() && !(self.has(Flaw::SealedTrusted) && matches!(self.op(), Op::Get(_)));
        guard.is(Kind::Guard) && same && !sealed
    }

    /// Adds `state` to the results of the step.
    pub(crate) fn push(&mut self, mut state: State) {
        if !self.has(Flaw::NoGrace) {
            state.forget_unreachable();
        }
        self.out.push((state, None));
    }

    /// Adds a state in which the step violates a property.
    pub(crate) fn wrong(&mut self, state: State, what: &'static str) {
        self.out.push((state, Some(what)));
    }

    /// Adds `state`, with the client at `pc`.
    pub(crate) fn go(&mut self, mut state: State, pc: Pc) {
        state.clients[self.client].pc = pc;
        self.push(state);
    }

    /// Drops the client's hint and continues in the node, or starts over with a better rank.
    pub(crate) fn again(&mut self, mut state: State, rank: Option<u8>) {
        let key = self.key() as usize;
        let client = &mut state.clients[self.client];
        if let (Some(rank), Some(hint)) = (rank, &mut client.hints[key]) {
            hint.rank = rank;
            client.pc = Pc::RECORD;
        } else {
            client.hints[key] = None;
            client.pc = Pc::ROUTE;
        }
        self.push(state);
    }

    /// Lets the operation return.
    pub(crate) fn finish(&mut self, mut state: State, result: u8) {
        let key = self.key() as usize;
        let judged = self.judge.returns(state.judged[key], self.client, result);
        state.unpin(self.client);
        let hints = &mut state.clients[self.client].hints;
        for (key, hint) in hints.iter_mut().enumerate() {
            if !self.later().iter().any(|op| op.key() as usize == key) {
                *hint = None;
            }
        }
        state.clients[self.client].pc = Pc::Idle;
        state.clients[self.client].copy = 0;
        match judged {
            Some(judged) => {
                state.judged[key] = judged;
                self.push(state);
            }
            None => self.wrong(state, "no order of the operations explains a result"),
        }
    }

    /// Lets the client remember the map of a page whose guard it has read unsealed.
    pub(crate) fn learn(&self, state: &mut State, frame: u8, guard: Word) {
        if guard.is_sealed() {
            return;
        }
        let page = *self.frame(frame);
        for op in self.later() {
            let edge = self.scenario.edges[op.key() as usize];
            if (page.lo..=page.hi).contains(&edge) {
                let rank = Frame::rank(page.words[MAP], op.key());
                let hint = Hint { frame, born: guard.first(), rank };
                state.clients[self.client].hints[op.key() as usize] = Some(hint);
            }
        }
    }

    /// One CAS of a page's word, and the operation's result if it succeeds.
    pub(crate) fn swap(&mut self, frame: u8, at: u8, expect: Word, put: Word, result: u8) {
        let mut state = self.state;
        let word = &mut state.frames[frame as usize].words[at as usize];
        if *word != expect {
            return self.again(state, None);
        }
        *word = put;
        if !state.retire_leaf(expect) {
            self.wrong(state, "a leaf is retired twice");
        } else if put.is(Kind::Leaf) && state.is_retired(put) {
            self.wrong(state, "a retired leaf is linked");
        } else {
            self.finish(state, result);
        }
    }

    /// Returns the number of records of the page in `frame`.
    pub(crate) fn records(&self, frame: u8) -> usize {
        let map = self.frame(frame).words[MAP];
        (0..RECORDS as u8).filter(|&rank| Frame::mapped(map, rank) != NOTHING).count()
    }
}
