//! Pages whose pairs are stored elsewhere: an update puts a pair's new value in a separate leaf, an
//! insert puts its pair there, and reads take another round trip for it. So a client that changes
//! many records checks the page of the last one, and rebuilds it if a sixth of its pairs have moved
//! out, or half of them if the pool is in memory that this process loads from. A client that has taken many round trips for leaves rebuilds the page of the last one.
//!
//! A rebuild costs about as much as four such round trips. Each of them is a ticket in a lottery
//! for its page, so a page is rebuilt when it has cost about as much, unless it is being changed:
//! each change by this process takes as many tickets away, down to a bound.
//!
//! The pool counts neither changes nor reads: how often a client checks depends on how often a
//! check has paid off. It checks rarely if few records are ever changed, if the same few change
//! again and again, or if values are too long to be stored in pages.

use super::descent::{Lookup, PageSearchEnd};
use super::nibble::NibbleKey;
use super::operation::Operation;
use super::pace::Pace;
use super::page::{FIXED_WORDS, PageRef, Shape};
use super::pair::{INLINE_WORDS_MAX, Pair, record_words};
use super::parent_slot::ParentSlot;
use super::rebuild::Old;
use super::situations;
use super::word::{State, Word};
use crate::checker::note;
use crate::{IndexError, Result};
use darter_fabric::Fabric;

/// A page is rebuilt if a sixth of its pairs have moved out, where a leaf costs a round trip.
const PART_TO_READ: usize = 6;
/// The same where a leaf costs a cache miss: half of its pairs.
const PART_TO_LOAD: usize = 2;

/// Whether a read took a round trip for a leaf whose pair could be stored in a page.
pub(super) fn took_a_trip(end: &PageSearchEnd) -> bool {
    let value = match end {
        PageSearchEnd::Value(value) => value.as_ref(),
        PageSearchEnd::Page(found) => match &found.spot {
            Lookup::Delta { value, .. } => Some(value),
            Lookup::Record { word, value, .. } => {
                value.as_ref().filter(|_| matches!(word.state(), State::Leaf { .. }))
            }
            Lookup::Absent { .. } => None,
        },
        _ => None,
    };
    value.is_some_and(|image| image.len() <= INLINE_WORDS_MAX)
}

impl<F: Fabric> Operation<'_, F> {
    /// Counts a pair that is no longer stored in its record, and now and then rebuilds its page.
    /// The change stands even if the rebuild fails.
    pub(super) async fn has_changed(&mut self, key: &[u8], page: PageRef) -> Result<()> {
        self.has_changed_again();
        let Some(folding) = self.shared.folding.as_ref().filter(|folding| folding.changes.is_due(1)) else {
            return Ok(());
        };
        let least = if self.shared.is_direct { PART_TO_LOAD } else { PART_TO_READ };
        let pays = move |moved_out: usize, records: usize| moved_out > 0 && moved_out * least >= records;
        Box::pin(self.fold(&folding.changes, key, Some(page), pays)).await
    }

    /// Counts a pair that received another leaf, or its first one in a page's delta.
    pub(super) fn has_changed_again(&self) {
        if let Some(folding) = &self.shared.folding {
            folding.trips.put_off();
        }
    }

    /// Counts a round trip that a read took for a key's leaf, and now and then rebuilds the key's
    /// page.
    pub(super) async fn has_read_a_leaf(&mut self, key: &[u8]) -> Result<()> {
        self.has_read_leaves(key, 1).await
    }

    /// As [`Self::has_read_a_leaf`], for several.
    pub(super) async fn has_read_leaves(&mut self, key: &[u8], leaves: i32) -> Result<()> {
        if leaves == 0 {
            return Ok(());
        }
        let Some(folding) = self.shared.folding.as_ref().filter(|folding| folding.trips.is_due(leaves))
        else {
            return Ok(());
        };
        match Box::pin(self.fold(&folding.trips, key, None, |moved_out, _| moved_out > 0)).await {
            // Another pair of the page is damaged: a client that reads that pair gets the error.
            Err(IndexError::Corrupt { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// Rebuilds the page of a key, which may be known, if that pays off: `pays` decides by the
    /// number of pairs that have moved out and the number of records. If the pool is out of space,
    /// leaves the page as it is.
    async fn fold(
        &mut self,
        pace: &Pace,
        key: &[u8],
        page: Option<PageRef>,
        pays: impl Fn(usize, usize) -> bool + Send,
    ) -> Result<()> {
        let remembered = || self.shared.cache.find(&mut NibbleKey::new(self.shared.keys, key))?.page;
        let page = page.or_else(|| remembered().map(|hint| hint.page));
        let Some((parent, page, (shape, words))) = self.read_page_of(key, page).await? else { return Ok(()) };
        let mut old = None;
        if pays(moved_out(&shape, &words), shape.records) {
            let read = self.old_page(parent, page, shape, &words).await?;
            let pays = pays(read.moved_out(), shape.records);
            old = Some(read).filter(|_| pays);
        }
        pace.note(old.is_some());
        let Some(old) = old else { return Ok(()) };
        note(situations::FOLDED);
        match self.replace(old, words).await {
            Err(error) if !error.is_out_of_space() => Err(error),
            _ => Ok(()),
        }
    }

    /// The slot that points to a key's page, the page, and its words; `None` if the key's page is
    /// no longer the known one.
    pub(super) async fn read_page_of(
        &mut self,
        key: &[u8],
        known: Option<PageRef>,
    ) -> Result<Option<(ParentSlot, PageRef, (Shape, Vec<u64>))>> {
        if let Some(page) = known
            && let Some((parent, words)) = self.read_remembered(key, page).await?
        {
            return Ok(Some((parent, page, page.parse(words)?)));
        }
        let mut descent = self.descent_by_nodes(key);
        let PageSearchEnd::Page(found) = self.run(&mut descent).await? else { return Ok(None) };
        let page = found.head.page;
        let is_it = known.is_none_or(|known| known.addr == page.addr);
        let Some(parent) = found.from.filter(|_| is_it) else { return Ok(None) };
        Ok(Some((parent, page, self.read_page(page).await?)))
    }
}

/// The number of leaves that a page's words name.
fn moved_out(shape: &Shape, words: &[u64]) -> usize {
    let delta = FIXED_WORDS..FIXED_WORDS + shape.delta;
    let slots = delta.chain((0..shape.records).map(|rank| shape.record_at(rank)));
    slots.filter(|&at| Word(words[at]).leaf_object().is_some()).count()
}

impl Old {
    /// The number of pairs in leaves that would be stored in a new page.
    fn moved_out(&self) -> usize {
        let room = record_words(&self.pairs.pairs) - 1;
        let fits = |pair: &&Pair| pair.image.as_ref().is_some_and(|image| image.len() <= room);
        self.pairs.pairs.iter().filter(|pair| pair.leaf.is_some()).filter(fits).count()
    }
}
