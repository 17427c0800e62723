//! Hot words on the way to a key: the leaf is read in the round trip that shows that the word still
//! names it (`docs/quiver.md`, "Hot words").

use super::{Descent, Found, Lead, Lookup, PageSearchEnd, Probe, Purpose, Stage, Way};
use crate::Result;
use crate::checker::note;
use crate::quiver::hint::{HotLeaf, HotWord, PageHint, PageSlot};
use crate::quiver::page::{self, Head};
use crate::quiver::shared::Shared;
use crate::quiver::situations;
use crate::quiver::word::Word;
use crate::radix::leaf;
use darter_fabric::{Batch, GlobalAddr, ReadId};

/// A leaf that a writer reads with its page's head because of a hot word.
pub(super) struct Beside {
    hot: HotWord,
    read: Option<ReadId>,
}

impl Beside {
    pub(super) fn new(hot: HotWord) -> Self {
        Self { hot, read: None }
    }

    /// Posts the READ of the leaf, after those of the words that may name it.
    pub(super) fn post(&mut self, batch: &mut Batch) {
        self.read = self.hot.post_leaf(batch);
    }

    /// The leaf as read.
    pub(super) fn leaf(self, done: &Batch) -> Option<HotLeaf<'_>> {
        Some((self.hot, done.words(self.read?)))
    }
}

/// Posts the READs: the leaf comes last, so the word that was read before it protects it.
pub(in crate::quiver) fn post(hint: &PageHint, hot: HotWord, batch: &mut Batch) -> Option<[ReadId; 3]> {
    let at = hint.page.addr.plus(hot.slot.word_at(&hint.shape) as u64 * 8);
    let (word, head) = (batch.read(at, 1), batch.read(hint.page.addr, page::FIXED_WORDS));
    Some([word, head, hot.post_leaf(batch)?])
}

impl Descent<'_> {
    /// The identity that the next page's node is remembered under.
    pub(in crate::quiver) fn remembered_under(&self) -> Option<u64> {
        self.lead.as_ref().and_then(|lead| lead.remembered)
    }

    /// Evaluates a reader's READs of a leaf and of the word that should name it.
    pub(super) fn absorb_hot(
        &mut self,
        shared: &Shared,
        hot: HotWord,
        [word, head, leaf]: [ReadId; 3],
        done: &Batch,
    ) -> Result<Option<PageSearchEnd>> {
        let Some(Lead { hint, remembered: Some(identity) }) = &self.lead else {
            self.restart(shared);
            return Ok(None);
        };
        let (page, shape, identity) = (hint.page, hint.shape, *identity);
        if !hint.is_proved_by(done.words(head)) {
            self.restart(shared);
            return Ok(None);
        }
        let found = Word(done.words(word)[0]);
        if found == hot.word {
            let is_own = leaf::parse(page.addr, done.words(leaf))?.key == self.key.bytes();
            if is_own {
                note(situations::HOT_WORD);
                return Ok(Some(PageSearchEnd::Hot(leaf)));
            }
        } else {
            note(situations::HOT_WORD_STALE);
            shared.cache.forget_hot(identity, page.addr, hot.slot);
            let print = shape.leaf_print(page.addr, self.key.bytes(), self.print);
            let other = HotWord::of(page, hot.slot, found).filter(|other| other.word.may_be_leaf_of(print));
            if let Some(other) = other {
                // A slot keeps its key, so this is the key's leaf if the other one was.
                shared.cache.learn_hot(identity, (page.addr, shape.born), other);
                self.stage = Stage::Hot { hot: other, reads: None };
                return Ok(None);
            }
        }
        match self.lead.take() {
            Some(Lead { hint, .. }) => {
                let way = Way { hot: None, ..Way::of(&hint, self.key.bytes(), self.print) };
                self.enter_remembered(hint, identity, way);
            }
            None => self.restart(shared),
        }
        Ok(None)
    }

    /// Continues with the leaf of the key's record, if it was read together with the head.
    pub(super) fn absorb_beside(
        &mut self,
        shared: &Shared,
        beside: Option<HotLeaf<'_>>,
    ) -> Result<Option<PageSearchEnd>> {
        let Some((hot, words)) = beside else { return Ok(None) };
        let is_it = |probe: &Probe| {
            let record = probe.record.as_ref().map(|(rank, record)| (Some(*rank), Word(record[0])));
            record == Some((hot.slot.rank(), hot.word))
        };
        match std::mem::replace(&mut self.stage, Stage::RootWord(None)) {
            Stage::RecordLeaf(probe) if is_it(&probe) => self.absorb_record_leaf(shared, probe, words),
            stage => {
                self.stage = stage;
                Ok(None)
            }
        }
    }

    /// Remembers the word of the delta that named the key's leaf at the end of a reader's descent.
    pub(super) fn learn_hot_delta(&self, shared: &Shared, found: &Found) {
        if let Lookup::Delta { addr, word, .. } = found.spot {
            self.learn_hot_word(shared, &found.head, addr, word);
        }
    }

    /// Remembers a word of a page that a reader found to name the key's leaf.
    pub(super) fn learn_hot_word(&self, shared: &Shared, head: &Head, addr: GlobalAddr, word: Word) {
        if self.purpose == Purpose::Read && !head.is_sealed {
            shared.learn_hot_at(head.identity, (head.page, &head.shape), addr, word);
        }
    }

    /// Remembers the word of the record that was read before its leaf, and its page.
    pub(super) fn learn_hot_record(&self, shared: &Shared) {
        let (Some(Lead { hint, remembered }), Some(seen)) = (&self.lead, &self.seen) else { return };
        if let (None, Some(known)) = (remembered, self.known) {
            shared.cache.offer_page(known, hint, self.epoch);
        }
        if let Some(identity) = remembered.or(self.known.map(|(identity, _)| identity)) {
            let slot = PageSlot::record(seen.0);
            shared.learn_hot(identity, (hint.page, &hint.shape), slot, Word(seen.1[0]));
        }
    }
}
