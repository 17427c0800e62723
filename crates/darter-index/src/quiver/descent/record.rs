//! A reader's path to one record of a page whose map it knows, and to that record's leaf.

use super::{Descent, Image, Lead, PageRef, PageSearchEnd, Stage};
use crate::Result;
use crate::quiver::page::{image_in, standing, standing_whole};
use crate::quiver::shared::Shared;
use crate::quiver::word::{State, Word};
use crate::radix::leaf;
use darter_fabric::ReadId;

impl Descent<'_> {
    /// Evaluates a reader's READ of one record of a page whose map it knows.
    pub(super) fn absorb_record(
        &mut self,
        shared: &Shared,
        rank: usize,
        (read, words): (ReadId, &[u64]),
        head: Option<&[u64]>,
    ) -> Option<PageSearchEnd> {
        let Some(Lead { hint, remembered }) = &self.lead else {
            self.restart(shared);
            return None;
        };
        let (page, shape) = (hint.page, hint.shape);
        let is_proved = head.is_none_or(|head| hint.is_proved_by(head));
        if !is_proved {
            self.enter_without_copy(shared, page);
            return None;
        }
        let word = Word(words[0]);
        let addr = hint.page.addr.plus(hint.shape.record_at(rank) as u64 * 8);
        let is_own = standing(addr, words).is_some_and(|leaf| leaf.key == self.key.bytes());
        let lives = word.proves_record_of(hint.shape.born, self.print);
        // The value of an INLINE is verified when it is used; damage to another word's key is found below.
        let is_own = is_own && (word.state() == State::Inline || standing_whole(page.addr, words).is_ok());
        match word.state() {
            State::Inline | State::Tomb if lives && is_own => {
                if let (None, Some(known)) = (remembered, self.known) {
                    shared.cache.offer_page(known, hint, self.epoch);
                }
                let is_present = word.state() == State::Inline;
                return Some(if is_present {
                    PageSearchEnd::Standing(read, page.addr)
                } else {
                    PageSearchEnd::Value(None)
                });
            }
            State::Leaf { addr, class } if is_own && !word.is_sealed() => {
                let leaf = PageRef { addr, class };
                self.seen = Some(Box::new((rank, words.into())));
                self.stage = Stage::Leaf { leaf, reads: None };
                return None;
            }
            _ => {}
        }
        self.seen = Some(Box::new((rank, words.into())));
        self.enter_page(page, shape.head_words());
        None
    }

    /// Evaluates the READ of that record's leaf.
    pub(super) fn absorb_leaf(
        &mut self,
        shared: &Shared,
        leaf: PageRef,
        words: &[u64],
        head: &[u64],
    ) -> Result<Option<PageSearchEnd>> {
        let lives = self.lead.as_ref().is_some_and(|lead| lead.hint.is_proved_by(head));
        if !lives {
            match self.lead.as_ref().filter(|lead| lead.remembered.is_none()).map(|lead| lead.hint.page) {
                Some(page) => self.enter_without_copy(shared, page),
                None => self.restart(shared),
            }
            return Ok(None);
        }
        let (addr, leaf) = (leaf.addr, leaf::parse(leaf.addr, words)?);
        let is_own = leaf.key == self.key.bytes();
        if is_own {
            self.learn_hot_record(shared);
        }
        if !is_own {
            self.verify_twin(shared, addr, leaf.key)?;
        }
        if let (Some(seen), Some(Lead { hint, .. })) = (&self.seen, &self.lead) {
            self.verify_named(shared, (hint.page, &hint.shape), Word(seen.1[0]), leaf.key)?;
        }
        let record = self.seen.take().filter(|_| !is_own).zip(self.lead.as_ref());
        let standing =
            |(record, lead): (Box<(usize, Image)>, &Lead)| image_in(lead.hint.page.addr, &record.1);
        Ok(Some(PageSearchEnd::Value(Some(record.map_or_else(|| words.into(), standing)))))
    }
}
