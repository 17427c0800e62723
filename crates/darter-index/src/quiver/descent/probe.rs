//! The search for a key in its page: the record at its rank, and the leaves that may be its own.

use super::{
    Descent, Found, Head, HotLeaf, Image, Lookup, PageRef, PageSearchEnd, Print, Probe, Purpose, Shape,
    Shared, Stage, State, Word, image_in, leaf, nibbles, page, standing, standing_whole,
};
use crate::{IndexError, Result};
use darter_fabric::{Batch, GlobalAddr};
use smallvec::SmallVec;

impl Descent<'_> {
    /// Continues with a page's head: reads the record at the key's rank, and leaves that may be the
    /// key's.
    pub(super) fn probe(
        &mut self,
        shared: &Shared,
        head: Head,
        foreseen: Option<(usize, Image)>,
        beside: Option<HotLeaf<'_>>,
    ) -> Result<Option<PageSearchEnd>> {
        let rank = head.shape.rank(&head.map, self.key.bytes());
        let record =
            foreseen.or_else(|| self.seen.take().map(|seen| *seen)).filter(|(seen, _)| Some(*seen) == rank);
        let record_read = rank.filter(|_| record.is_none()).map(|rank| (rank, None));
        let print = head.shape.leaf_print(head.page.addr, self.key.bytes(), self.print);
        let may_be = |(_, word): &(usize, &Word)| word.may_be_leaf_of(print);
        let mut leaves: SmallVec<_> =
            head.delta.iter().enumerate().filter(may_be).map(|(at, _)| (at, None)).collect();
        let (mut in_delta, mut damage, record_leaf) = (None, None, None);
        if let Some((hot, words)) = beside
            && let Some(at) = hot.slot.place_in_delta().filter(|at| head.delta.get(*at) == Some(&hot.word))
        {
            leaves.retain(|(other, _)| *other != at);
            match leaf::parse(head.page.addr, words) {
                Ok(pair) if pair.key == self.key.bytes() => in_delta = Some((at, words.into())),
                Ok(other) => damage = self.stranger(shared, &head, at, other.key),
                Err(error) => damage = Some(error),
            }
        }
        let probe = Box::new(Probe { head, record, record_read, leaves, in_delta, damage, record_leaf });
        if probe.record_read.is_none() && probe.leaves.is_empty() {
            return self.judge(probe);
        }
        self.stage = Stage::Probe(probe);
        Ok(None)
    }

    /// What is wrong with a delta slot that may be the key's, if its leaf has this other key.
    fn stranger(&self, shared: &Shared, head: &Head, at: usize, key: &[u8]) -> Option<IndexError> {
        let print = head.shape.leaf_print(head.page.addr, key, Print::new(shared.keys, key));
        let fits = head.shape.may_have(key, self.key.bytes())
            && nibbles(key) >= head.shape.depth
            && head.delta[at].may_be_leaf_of(print);
        (!fits).then(|| IndexError::corrupt(head.page.addr, "delta slot names another key's leaf"))
    }

    pub(super) fn absorb_probe(
        &mut self,
        shared: &Shared,
        mut probe: Box<Probe>,
        done: &Batch,
    ) -> Result<Option<PageSearchEnd>> {
        if let Some((rank, Some(read))) = probe.record_read.take() {
            probe.record = Some((rank, done.words(read).into()));
        }
        for &(at, read) in &probe.leaves {
            let (Some(read), Some((addr, ..))) = (read, probe.head.delta[at].leaf_object()) else { continue };
            let words = done.words(read);
            match leaf::parse(addr, words) {
                Ok(leaf) if leaf.key == self.key.bytes() => probe.in_delta = Some((at, words.into())),
                Ok(other) => {
                    let damage = self.stranger(shared, &probe.head, at, other.key);
                    probe.damage = damage.or(probe.damage.take());
                }
                Err(damage) => probe.damage = Some(damage),
            }
        }
        self.judge(probe)
    }

    /// Decides whether the record at the key's rank is the key's.
    fn judge(&mut self, probe: Box<Probe>) -> Result<Option<PageSearchEnd>> {
        let Some((rank, record)) = &probe.record else { return self.elsewhere(probe).map(Some) };
        let (addr, word, head) = (probe.head.record_addr(*rank), Word(record[0]), &probe.head);
        let own = standing(addr, record).map(|leaf| leaf.key == self.key.bytes());
        // The value of an INLINE is verified when it is used.
        if own != Some(true) || word.state() != State::Inline {
            let other = standing_whole(head.page.addr, record)?.filter(|_| own != Some(true));
            other.map_or(Ok(()), |other| self.verify_other_key(head, *rank, other.key))?;
        }
        if own != Some(false) {
            page::verify_word(addr, word, head.shape.born, own.map(|_| self.print))?;
        }
        match (own, word.state()) {
            (Some(false), State::Inline | State::Tomb | State::Leaf { .. }) => {
                self.elsewhere(probe).map(Some)
            }
            (Some(true), State::Inline) => {
                let value = image_in(head.page.addr, record);
                Ok(Some(self.at_record(probe, addr, word, Some(value))))
            }
            (None, State::Tomb) if !word.is_erased_by(addr, self.print) => self.elsewhere(probe).map(Some),
            (_, State::Tomb) => Ok(Some(self.at_record(probe, addr, word, None))),
            // The key is there, unless the leaf may belong to another key because of a CAS or
            // damage.
            (Some(true), State::Leaf { .. }) if self.may_overwrite(head, word) => {
                Ok(Some(self.at_record(probe, addr, word, None)))
            }
            (_, State::Leaf { .. }) => {
                self.stage = Stage::RecordLeaf(probe);
                Ok(None)
            }
            _ => Err(IndexError::corrupt(addr, "record of unknown kind")),
        }
    }

    /// Whether the leaf of the key's own record need not be read: an intent must be.
    fn may_overwrite(&self, head: &Head, word: Word) -> bool {
        let print = head.shape.leaf_print(head.page.addr, self.key.bytes(), self.print);
        self.purpose == Purpose::Overwrite && word.may_be_leaf_of(print) && !word.is_intent()
    }

    /// Verifies that a page may have another key at a rank.
    fn verify_other_key(&self, head: &Head, rank: usize, other: &[u8]) -> Result<()> {
        if head.shape.may_stand_at(rank, &head.map, other, self.key.bytes()) {
            return Ok(());
        }
        Err(IndexError::corrupt(head.record_addr(rank), "record of another page's key"))
    }

    /// Fails unless a leaf's key is one that a blind CAS may have put in the key's record.
    pub(super) fn verify_twin(&self, shared: &Shared, addr: GlobalAddr, other: &[u8]) -> Result<()> {
        if Print::new(shared.keys, other).is_twin_of(self.print) {
            return Ok(());
        }
        Err(IndexError::corrupt(addr, "leaf's key does not match its record"))
    }

    /// Fails if a word of a page names the leaf of another key than the word is for.
    pub(super) fn verify_named(
        &self,
        shared: &Shared,
        (page, shape): (PageRef, &Shape),
        word: Word,
        key: &[u8],
    ) -> Result<()> {
        let print = if key == self.key.bytes() { self.print } else { Print::new(shared.keys, key) };
        let is_named = word.may_be_leaf_of(shape.leaf_print(page.addr, key, print));
        if is_named {
            return Ok(());
        }
        Err(IndexError::corrupt(page.addr, "leaf's key does not match its word"))
    }

    pub(super) fn absorb_record_leaf(
        &mut self,
        shared: &Shared,
        probe: Box<Probe>,
        words: &[u64],
    ) -> Result<Option<PageSearchEnd>> {
        let Some((rank, record)) = &probe.record else { return self.elsewhere(probe).map(Some) };
        let (addr, word) = (probe.head.record_addr(*rank), Word(record[0]));
        let (leaf_addr, ..) = word.leaf_object().unwrap_or((addr, 0, 0));
        let leaf = leaf::parse(leaf_addr, words)?;
        self.verify_named(shared, (probe.head.page, &probe.head.shape), word, leaf.key)?;
        let is_own = leaf.key == self.key.bytes();
        if is_own {
            self.learn_hot_word(shared, &probe.head, addr, word);
        }
        if is_own {
            return Ok(Some(self.at_record(probe, addr, word, Some(words.into()))));
        }
        // A leaf with another key than the record's: the value is still in the record.
        if standing(addr, record).is_some() {
            self.verify_twin(shared, leaf_addr, leaf.key)?;
            let value = image_in(probe.head.page.addr, record);
            return Ok(Some(self.at_record(probe, addr, word, Some(value))));
        }
        self.verify_other_key(&probe.head, *rank, leaf.key)?;
        self.elsewhere(probe).map(Some)
    }

    fn at_record(
        &mut self,
        probe: Box<Probe>,
        addr: GlobalAddr,
        word: Word,
        value: Option<Image>,
    ) -> PageSearchEnd {
        let is_inline = probe.record.as_ref().is_some_and(|(_, record)| standing(addr, record).is_some());
        let spot = Lookup::Record { addr, word, is_inline, value };
        PageSearchEnd::Page(Box::new(Found { print: self.print, head: probe.head, spot, from: self.from }))
    }

    /// The key is not static: it is in the delta, or absent.
    pub(super) fn elsewhere(&mut self, probe: Box<Probe>) -> Result<PageSearchEnd> {
        let Probe { head, in_delta, damage, .. } = *probe;
        let spot = match (in_delta, damage) {
            (Some((at, value)), _) => {
                Lookup::Delta { addr: head.delta_addr(at), word: head.delta[at], value }
            }
            (None, None) => Lookup::absent(&head, self.print),
            (None, Some(damage)) => return Err(damage),
        };
        Ok(PageSearchEnd::Page(Box::new(Found { print: self.print, head, spot, from: self.from })))
    }
}
