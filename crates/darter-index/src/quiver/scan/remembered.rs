//! Pages that the process remembers: a scan reads them without reading their nodes, and reads only
//! the wanted records of the first and the last page.
//!
//! An unsealed guard of the remembered life shows that a page was still responsible for its range
//! (L2). The map determines which records lie in the range, so this is only a guess: the walk reads
//! one more record on the near side, whose key shows that no wanted record lies before it. If that
//! key or the last record's shows that the guess is wrong, or is not stored in its record, the walk
//! reads the whole page again.

use super::cursor::Cursor;
use super::rows::{Part, Rows, Source};
use crate::checker::note;
use crate::quiver::cache::HotOf;
use crate::quiver::hint::{HotLeaf, HotWords, NodeHint, PageHint};
use crate::quiver::nibble::NibbleKey;
use crate::quiver::operation::Operation;
use crate::quiver::page::{FIXED_WORDS, IDENTITY_AT, standing_whole};
use crate::quiver::situations;
use crate::radix::sink::Sink;
use crate::{IndexError, Result, ScanRange};
use darter_fabric::{Batch, Fabric, ReadId};
use smallvec::SmallVec;
use std::ops::Range;
use std::pin::pin;

/// Most pages read in one round trip.
pub(super) const PAGES_MAX: usize = 16;
/// Records are read rather than left out if they are less than one part in this many of a page.
const LEFT_OUT: usize = 16;
/// One extra record is read for this many wanted records, in case some have no value.
const SPARE: usize = 16;

/// A remembered page that the walk goes through.
struct RememberedPage {
    hint: PageHint,
    /// The identity that its node is remembered under.
    identity: u64,
    /// The position that led to it.
    at: Cursor,
    /// The records to be read.
    ranks: Range<usize>,
    /// The page's hot words among the records that are read, and in the delta.
    hot: HotWords,
}

/// The READs of a step.
struct Reads {
    /// The page's first words, if they are read separately from the records.
    head: Option<ReadId>,
    records: ReadId,
    /// The leaves of the hot words.
    leaves: SmallVec<[ReadId; 2]>,
}

/// How far the records of a page that were read reach, in the walk's direction.
enum Reach<'w> {
    /// To the end of the page.
    End,
    /// To this key.
    Key(&'w [u8]),
    /// The keys do not show it.
    Unknown,
}

/// The pages that the process remembers from a position on.
pub(super) struct Ahead {
    /// Adjacent pages.
    steps: Vec<RememberedPage>,
    /// The position after them.
    next: Option<Cursor>,
    /// The node remembered for that position, if no page is.
    pub(super) node: Option<NodeHint>,
}

impl Ahead {
    /// Whether no page is remembered.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

/// The result of a visit.
pub(super) struct Visited {
    /// Where to continue; `None` at the end.
    pub(super) next: Option<Cursor>,
    /// Whether that is a new position.
    pub(super) is_ahead: bool,
    /// Whether the page there must be read whole.
    pub(super) is_whole: bool,
}

impl RememberedPage {
    fn is_cut(&self, at_front: bool) -> bool {
        if at_front { self.ranks.start > 0 } else { self.ranks.end < self.hint.shape.records }
    }

    fn post(&self, batch: &mut Batch) -> Reads {
        let PageHint { page, shape, .. } = &self.hint;
        let head = self.is_cut(true).then(|| batch.read(page.addr, FIXED_WORDS + shape.delta));
        let first = if head.is_some() { shape.record_at(self.ranks.start) } else { 0 };
        let words = shape.record_at(self.ranks.end) - first;
        let records = batch.read(page.addr.plus(first as u64 * 8), words);
        // These come after the words that protect the leaves.
        let leaves = self.hot.iter().filter_map(|hot| hot.post_leaf(batch)).collect();
        Reads { head, records, leaves }
    }

    fn part<'w>(&self, reads: &Reads, done: &'w Batch) -> Part<'w> {
        let records = done.words(reads.records);
        match reads.head {
            Some(head) => Part { head: done.words(head), records, first: self.ranks.start },
            None => Part { head: records, records: &records[self.hint.shape.head_words()..], first: 0 },
        }
    }

    /// The hot words with their leaves as read.
    fn hot<'w>(&self, reads: &Reads, done: &'w Batch) -> SmallVec<[HotLeaf<'w>; 2]> {
        let leaves = reads.leaves.iter().map(|leaf| done.words(*leaf));
        self.hot.iter().copied().zip(leaves).collect()
    }

    /// Verifies the part of a live page's head that was read.
    fn verify(&self, part: Part<'_>) -> Result<()> {
        let PageHint { page, shape, .. } = &self.hint;
        if part.head[IDENTITY_AT] != self.identity {
            return Err(IndexError::corrupt(page.addr, "page's prefix differs from its node's"));
        }
        if part.head.len() < shape.head_words() {
            return page.verify_delta(shape, part.head);
        }
        page.verified(part.head).map(drop)
    }

    /// Whether no wanted record lies before the records read, in the walk's direction.
    fn has_the_near_ones(&self, part: Part<'_>, reverse: bool) -> Result<bool> {
        if !self.is_cut(!reverse) {
            return Ok(true);
        }
        let first = standing_whole(self.hint.page.addr, part.record(&self.hint.shape, reverse))?;
        Ok(first.is_some_and(|leaf| self.at.has_passed(leaf.key, reverse)))
    }

    /// How far the records that were read reach.
    fn reach<'w>(&self, part: Part<'w>, reverse: bool) -> Result<Reach<'w>> {
        if !self.has_the_near_ones(part, reverse)? {
            return Ok(Reach::Unknown);
        }
        if !self.is_cut(reverse) {
            return Ok(Reach::End);
        }
        let last = standing_whole(self.hint.page.addr, part.record(&self.hint.shape, !reverse))?;
        // If all records that were read lie before the bound, the walk would go back.
        let last = last.filter(|leaf| !self.at.has_passed(leaf.key, reverse));
        Ok(last.map_or(Reach::Unknown, |leaf| Reach::Key(leaf.key)))
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Visits pages that the process remembers.
    pub(super) async fn visit_remembered(
        &mut self,
        range: &ScanRange,
        Ahead { steps, mut next, .. }: Ahead,
        sink: &mut Sink<'_>,
    ) -> Result<Visited> {
        let mut batch = self.client.batch();
        let reads: Vec<_> = steps.iter().map(|step| step.post(&mut batch)).collect();
        let done = self.client.submit(batch).await?;
        let (mut rows, mut is_ahead, mut is_whole) = (Rows::default(), false, false);
        for (step, reads) in steps.iter().zip(reads) {
            let (hint, part) = (&step.hint, step.part(&reads, &done));
            if !hint.is_proved_by(part.head) {
                note(situations::PAGE_HINT_STALE);
                self.shared.cache.forget_page(step.identity, hint);
                next = Some(step.at.clone());
                break;
            }
            step.verify(part)?;
            match step.reach(part, range.reverse)? {
                Reach::End => {}
                Reach::Key(key) => {
                    rows.end = Some(key);
                    next = Cursor::behind(key, range.reverse);
                }
                Reach::Unknown => {
                    note(situations::PART_OF_PAGE_TOO_SMALL);
                    (next, is_whole) = (Some(step.at.clone()), true);
                    break;
                }
            }
            let (page, identity) = (hint.page, Some(step.identity));
            let from = Source { page, shape: hint.shape, part, identity, path: &step.at.key };
            rows.take(from, hint.shape.edges, &step.hot(&reads, &done), self.shared.keys)?;
            is_ahead = true;
        }
        let moved_out = pin!(rows.hand_on((self.shared, &mut self.client), range, sink)).await?;
        self.client.recycle(done);
        if let Some(key) = moved_out {
            self.has_read_a_leaf(&key).await?;
        }
        Ok(Visited { next, is_ahead, is_whole })
    }

    /// The pages that the process remembers from a position on, until they have about `wanted`
    /// pairs. If `is_whole` is true, all of the first page is read.
    pub(super) fn remembered(
        &self,
        range: &ScanRange,
        from: &Cursor,
        wanted: usize,
        is_whole: bool,
    ) -> Ahead {
        let (mut steps, mut next, mut node, mut pairs) = (Vec::new(), Some(from.clone()), None, 0);
        while steps.len() < PAGES_MAX && pairs < wanted {
            let Some(at) = next.take_if(|at| at.is_within(range)) else { break };
            let (is_first, most) = (steps.is_empty(), wanted - pairs);
            let look = |hint: &PageHint, hot: HotOf<'_>| {
                let rank = if is_first { hint.shape.rank(&hint.map, &at.key) } else { None };
                let (ranks, found) = ranks(hint.shape.records, rank, most, range.reverse);
                let ranks = if is_whole && is_first { 0..hint.shape.records } else { ranks };
                let hot = hot.of_records(ranks.clone());
                (ranks, found, hot)
            };
            let hit = self.shared.cache.find_with(&mut NibbleKey::new(self.shared.keys, &at.key), look);
            node = hit.as_ref().map(|(hit, _)| hit.node);
            let found = hit.and_then(|(hit, seen)| Some((hit.identity, hit.page?, seen?)));
            let usable = found.filter(|(_, hint, _)| !at.falls_short_of(hint.shape.depth));
            let Some((identity, hint, (ranks, found, hot))) = usable else {
                next = Some(at);
                break;
            };
            pairs += found;
            next = Cursor::past(&at.key, hint.shape.depth, hint.shape.edges, range.reverse);
            steps.push(RememberedPage { hint, identity, at, ranks, hot });
        }
        Ahead { steps, next, node }
    }
}

/// The ranks, of `count`, to read for `wanted` pairs from a rank on, or from the beginning in the
/// walk's direction; and the number of pairs in the page from there on.
fn ranks(count: usize, rank: Option<usize>, wanted: usize, reverse: bool) -> (Range<usize>, usize) {
    let wanted = wanted.saturating_add(wanted / SPARE + 1);
    // Counted in the walk's direction, beginning one before the first wanted rank.
    let before = rank.map_or(0, |rank| if reverse { count - 1 - rank } else { rank });
    let (mut first, mut last) = (before.saturating_sub(1), before.saturating_add(wanted).min(count));
    if first * LEFT_OUT < count {
        first = 0;
    }
    if (count - last) * LEFT_OUT < count {
        last = count;
    }
    let ranks = if reverse { count - last..count - first } else { first..last };
    (ranks, count - before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_from_one_before_the_first_to_some_after_the_last() {
        assert_eq!(ranks(64, None, 1000, false), (0..64, 64));
        assert_eq!(ranks(64, None, 16, false), (0..18, 64));
        assert_eq!(ranks(64, None, 16, true), (46..64, 64));
        assert_eq!(ranks(64, Some(20), 16, false), (19..38, 44));
        assert_eq!(ranks(64, Some(24), 16, true), (7..26, 25));
        assert_eq!(ranks(64, Some(3), 60, false), (0..64, 61));
        assert_eq!(ranks(64, Some(63), usize::MAX, false), (62..64, 1));
        assert_eq!(ranks(0, None, 5, true), (0..0, 0));
    }
}
