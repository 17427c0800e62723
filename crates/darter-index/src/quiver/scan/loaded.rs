//! Scans in memory that this process can load from: the pairs of one page after another.
//!
//! The slots of a page's node are loaded from the position's own edge downwards, and then upwards to
//! the next slot other than EMPTY. If the page is responsible for exactly the edges in between, it
//! was responsible for each of them during the scan: when the slots before the edge were EMPTY, no
//! part of the page that contains the edge was linked (L5 in `docs/quiver.md`). A page that is being
//! parted, and everything rare, is left to the scan by verbs.

use super::cursor::Cursor;
use super::rows::ends_sector;
use crate::ScanRange;
use crate::quiver::direct::{Page, Sure, Unsure, Way, way_to};
use crate::quiver::nibble::{EdgeRange, LAST};
use crate::quiver::node::{Content, HEAD_WORDS, SLOTS_END, Slot};
use crate::quiver::page::{IDENTITY_AT, verify_word};
use crate::quiver::pair::INLINE_WORDS_MAX;
use crate::quiver::shared::Shared;
use crate::quiver::word::{Print, State, Word};
use crate::radix::compare;
use crate::radix::leaf::{self, Leaf};
use crate::radix::sink::Sink;
use darter_fabric::GlobalAddr;
use darter_fabric::local::{Memory, Words};
use std::cmp::Ordering;
use std::ops::Range;

/// Words of the largest leaf that is copied.
const LEAF_WORDS_MAX: usize = 512;

/// A pair in a buffer of words.
#[derive(Clone, Copy)]
struct Row {
    /// The byte at which the key begins; the value follows.
    at: usize,
    key: usize,
    value: usize,
}

impl Row {
    fn of(words: &[u64], Row { at, key, value }: Self) -> Leaf<'_> {
        let (key, rest) = bytemuck::cast_slice(&words[at / 8..])[at % 8..].split_at(key);
        Leaf { key, value: &rest[..value] }
    }
}

/// A scan by loads, with its buffers.
#[derive(Default)]
pub(super) struct Loaded {
    /// Images of records and leaves.
    words: Vec<u64>,
    /// The pairs of a page, in the walk's direction.
    rows: Vec<Row>,
    /// Those of its delta.
    delta: Vec<Row>,
    /// Leaves read so far whose pairs could be stored in pages.
    pub(super) moved_out: i32,
}

impl Loaded {
    /// The bytes that the last visit has copied.
    pub(super) fn bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// Hands on the pairs of the page that a position leads to. Returns the position after it. The
    /// scan by verbs must continue if the result is [`Unsure`]; then no pair was handed on.
    pub(super) fn visit(
        &mut self,
        (shared, memory): (&Shared, Memory<'_>),
        range: &ScanRange,
        at: &Cursor,
        sink: &mut Sink<'_>,
    ) -> Sure<Option<Cursor>> {
        self.words.clear();
        let way = way_to(shared, memory, &at.key)?;
        let Way { node, identity, lo, own, content } = way;
        if at.falls_short_of(node.depth) || !way.is_of(shared, &at.key) {
            return Err(Unsure);
        }
        let words = memory.words(node.addr, SLOTS_END).ok_or(Unsure)?;
        let slot = |edge: u8| Slot::loaded(words.load(HEAD_WORDS + usize::from(edge)), identity, edge);
        let next = (own + 1..=LAST).find(|edge| slot(*edge).content() != Content::Empty);
        let edges = EdgeRange { lo, hi: next.map_or(LAST, |next| next - 1) };
        match content {
            Content::None { hi } if hi == edges.hi => {}
            Content::Page { .. } => {
                let page = way.page(memory, &at.key)?;
                if (page.shape.edges, page.shape.depth, page.words.load(IDENTITY_AT))
                    != (edges, node.depth, identity)
                {
                    return Err(Unsure);
                }
                self.take(shared, &page, range, (&at.key, sink.left))?;
                let words = &self.words;
                sink.take_ordered(self.rows.iter().map(|row| Row::of(words, *row)));
            }
            _ => return Err(Unsure),
        }
        Ok(Cursor::past(&at.key, node.depth, edges, range.reverse))
    }

    /// Copies the pairs of a page that are in the range, at least the first `limit` of them.
    fn take(
        &mut self,
        shared: &Shared,
        page: &Page<'_>,
        range: &ScanRange,
        (path, limit): (&[u8], usize),
    ) -> Sure<()> {
        self.rows.clear();
        self.delta.clear();
        if !page.memory.is_transient() {
            page.head()?;
        }
        let is_before =
            |key: &[u8]| if range.reverse { range.ends_before(key) } else { range.begins_behind(key) };
        let is_after =
            |key: &[u8]| if range.reverse { range.begins_behind(key) } else { range.ends_before(key) };
        for word in page.delta().take_while(|word| !word.is_empty()) {
            if let State::Leaf { .. } = word.state() {
                let row = self.leaf(shared, page, word)?;
                let key = Row::of(&self.words, row).key;
                if !page.shape.may_have(key, path) {
                    return Err(Unsure);
                }
                if !is_before(key) && !is_after(key) {
                    self.delta.push(row);
                }
            }
        }
        let order_of = |a: &[u8], b: &[u8]| if range.reverse { compare(b, a) } else { compare(a, b) };
        let records = page.shape.records;
        let mut at = self.first(page, &is_before, range.reverse)?;
        let (mut last, mut has_begun): (Option<Row>, _) = (None, false);
        'records: while at < records && self.rows.len() < limit {
            let steps = (limit - self.rows.len()).min(records - at);
            let first = if range.reverse { records - at - steps } else { at };
            let copied = self.copy(page.records(first, steps)?);
            self.rows.reserve(steps);
            for step in 0..steps {
                let within = if range.reverse { steps - 1 - step } else { step };
                let record = copied + within * page.shape.record_words;
                let Some((row, is_present)) = self.record(shared, page, first + within, record)? else {
                    continue;
                };
                let key = Row::of(&self.words, row).key;
                let follows = match last.replace(row) {
                    Some(last) => order_of(Row::of(&self.words, last).key, key) == Ordering::Less,
                    None => page.shape.may_have(key, path),
                };
                if !follows {
                    return Err(Unsure);
                }
                if is_after(key) {
                    break 'records;
                }
                // Keys are in order.
                has_begun = has_begun || !is_before(key);
                if is_present && has_begun {
                    self.rows.push(row);
                }
            }
            at += steps;
        }
        if last.is_some_and(|last| !page.shape.may_have(Row::of(&self.words, last).key, path)) {
            return Err(Unsure);
        }
        if !self.delta.is_empty() {
            self.rows.append(&mut self.delta);
            let words = &self.words;
            self.rows.sort_by(|a, b| order_of(Row::of(words, *a).key, Row::of(words, *b).key));
            let is_twice = |rows: &[Row]| Row::of(words, rows[0]).key == Row::of(words, rows[1]).key;
            if self.rows.windows(2).any(is_twice) {
                return Err(Unsure);
            }
        }
        Ok(())
    }

    /// The number of records to pass over in the walk's direction: all of them are before the range,
    /// if those after them are in order.
    fn first(&mut self, page: &Page<'_>, is_before: &dyn Fn(&[u8]) -> bool, reverse: bool) -> Sure<usize> {
        let (mut low, mut high) = (0, page.shape.records);
        let kept = self.words.len();
        // Of the pages after the first one, all records are in the range.
        let mut middle = 0;
        while low < high {
            let rank = if reverse { page.shape.records - 1 - middle } else { middle };
            let record = self.copy(page.records(rank, 1)?);
            // The records are passed over one by one if one of them has no pair.
            let Some(row) = self.own_pair(page, record)? else { return Ok(low) };
            if is_before(Row::of(&self.words, row).key) {
                low = middle + 1;
            } else {
                high = middle;
            }
            self.words.truncate(kept);
            middle = low + (high - low) / 2;
        }
        Ok(low)
    }

    /// The pair stored in a record whose words begin at a word of the buffer, whatever the record's
    /// word; `None` if there is none.
    fn own_pair(&mut self, page: &Page<'_>, record: usize) -> Sure<Option<Row>> {
        let image = record + 1..record + page.shape.record_words;
        match self.words.get_mut(image.start) {
            Some(header) if !image.is_empty() && *header != 0 => *header = leaf::bind(*header, page.at.addr),
            _ => return Ok(None),
        }
        self.row(page, page.at.addr, image).map(Some)
    }

    /// The pair of a record whose words begin at a word of the buffer; a leaf is copied. Returns it,
    /// and whether it is present; `None` if the record has no key.
    fn record(
        &mut self,
        shared: &Shared,
        page: &Page<'_>,
        rank: usize,
        record: usize,
    ) -> Sure<Option<(Row, bool)>> {
        let word = Word(self.words[record]);
        let addr = page.at.addr.plus(page.shape.record_at(rank) as u64 * 8);
        let own = self.own_pair(page, record)?;
        let is_stored = !page.memory.is_transient();
        match (word.state(), own) {
            (State::Inline | State::Tomb, Some(own)) if word.is_of_life(page.shape.born) => {
                if is_stored && ends_sector(addr) {
                    let print = Print::new(shared.keys, Row::of(&self.words, own).key);
                    verify_word(addr, word, page.shape.born, Some(print)).map_err(|_| Unsure)?;
                }
                Ok(Some((own, word.state() == State::Inline)))
            }
            (State::Tomb, None) if word.is_erased_at(addr) => Ok(None),
            (State::Leaf { .. }, own) => {
                let row = self.leaf(shared, page, word)?;
                // A leaf of another key than the record's does not count.
                let is_own =
                    own.is_none_or(|own| Row::of(&self.words, own).key == Row::of(&self.words, row).key);
                if is_own { Ok(Some((row, true))) } else { Err(Unsure) }
            }
            _ => Err(Unsure),
        }
    }

    /// Copies the leaf that a word names.
    fn leaf(&mut self, shared: &Shared, page: &Page<'_>, word: Word) -> Sure<Row> {
        let (addr, words) = page.leaf_words(word, LEAF_WORDS_MAX)?;
        let at = self.copy(words);
        let row = self.row(page, addr, at..self.words.len())?;
        self.moved_out += i32::from(words.len() <= INLINE_WORDS_MAX);
        if !page.memory.is_transient() {
            let key = Row::of(&self.words, row).key;
            if !word.may_be_leaf_of(page.leaf_print(key, Print::new(shared.keys, key))) {
                return Err(Unsure);
            }
        }
        Ok(row)
    }

    fn copy(&mut self, words: Words<'_>) -> usize {
        let at = self.words.len();
        words.append_to(&mut self.words);
        at
    }

    /// The pair of an image in the buffer.
    fn row(&self, page: &Page<'_>, addr: GlobalAddr, image: Range<usize>) -> Sure<Row> {
        let at = image.start;
        let image = &self.words[image];
        let Leaf { key, value } = page.parse(addr, image)?;
        let (header, _) = leaf::key_place(image).ok_or(Unsure)?;
        Ok(Row { at: at * 8 + header, key: key.len(), value: value.len() })
    }
}
