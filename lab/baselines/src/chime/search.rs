//! Search and multi-get: one neighbourhood of a leaf (CHIME, section 4.2), or one entry if a hot
//! spot names it (section 4.4), and the pair's block if pairs are in blocks.
//!
//! The leaf is the right one if its sibling is the one that the node above names (section 4.2.3): a
//! leaf's range ends where its sibling's begins, and changes only together with the sibling. If the
//! node above does not name it, header and fences are read too, in the same round trip.
//!
//! An inconsistent result is handled as in Sherman: the whole leaf is read, and repaired if its
//! writer died.

use super::hot_spots::HotSpots;
use super::{Chime, situations};
use crate::sherman::entry::{Block, key_words};
use crate::sherman::format::{Format, mix};
use crate::sherman::hopscotch::{NEIGHBOURHOOD, Run, SlotState, Table, home_of};
use crate::sherman::page::{Aim, Link, Page, Position};
use crate::sherman::search::{Found, KeySearch};
use crate::sherman::walk::{Walk, WalkEnd};
use crate::sherman::{Operation, Shared};
use darter_fabric::{Batch, Fabric, OpKind, ReadId};
use darter_index::Result;
use darter_index::checker::note;
use darter_index::radix::leaf as pair;
use darter_index::radix::search::{self, Search};
use darter_pool::Client;
use smallvec::SmallVec;

/// The place of a key's leaf according to the node above: its link, and its sibling if known.
pub(super) type Place = (Link, Option<Link>);

/// Returns a hash of a key for the hot spots.
fn hash_of(format: &Format, key: &[u8]) -> u64 {
    key_words(format, key, 0).iter().fold(format.seed, |hash, &word| mix(hash, word))
}

/// A neighbourhood that is being read, with the header if the sibling is unknown.
#[derive(Debug)]
struct Window {
    place: Place,
    header: Option<ReadId>,
    runs: SmallVec<[(Run, ReadId); 2]>,
}

#[derive(Debug)]
enum Stage<'k> {
    Walking(Walk<'k>),
    /// The leaf is known; none of it was read.
    At(Place),
    /// One entry.
    Slot(Place, usize, ReadId),
    Window(Window),
    /// The blocks of matching entries: of all in a neighbourhood, or of one named by a hot spot.
    Blocks(Place, bool, SmallVec<[(Block, Option<ReadId>); 2]>),
    /// Sherman's search.
    Whole(KeySearch<'k>),
}

/// State of the compute node.
pub(super) struct Known<'s> {
    shared: &'s Shared,
    hot_spots: &'s HotSpots,
}

/// A search in progress.
#[derive(Debug)]
struct TableSearch<'k> {
    key: &'k [u8],
    stage: Stage<'k>,
    repaired: u32,
}

impl<'k> TableSearch<'k> {
    fn new(key: &'k [u8]) -> Self {
        Self { key, stage: Stage::Walking(Walk::above_leaf(Aim::At(key), false)), repaired: 0 }
    }

    fn whole(key: &'k [u8], fresh: bool, repaired: u32) -> Self {
        Self { key, stage: Stage::Whole(KeySearch::new(key, fresh, repaired)), repaired }
    }

    /// Continues by reading the whole leaf.
    fn read_whole(&mut self) {
        self.stage = Stage::Whole(KeySearch::new(self.key, false, self.repaired));
    }

    fn post_at(&mut self, known: &Known<'_>, batch: &mut Batch, (link, sibling): Place) {
        let format = &known.shared.format;
        let Some(layout) = format.layout() else { return self.read_whole() };
        let at = |at: usize| link.addr().plus(at as u64 * 8);
        let slot = known.hot_spots.find(link.addr(), hash_of(format, self.key));
        if let Some(slot) = slot.filter(|&slot| sibling.is_some() && slot < layout.span) {
            let (start, len) = layout.slot_run(slot);
            self.stage = Stage::Slot((link, sibling), slot, batch.read(at(start), len));
            return;
        }
        let header = sibling.is_none().then(|| batch.read(at(0), layout.vacancy_at()));
        let home = home_of(format, layout, &key_words(format, self.key, 0));
        let runs = layout.runs(home, NEIGHBOURHOOD, false);
        let runs = runs.into_iter().map(|run| (run, batch.read(at(run.0), run.1))).collect();
        self.stage = Stage::Window(Window { place: (link, sibling), header, runs });
    }

    /// Processes one entry; the key for which it was recorded may have moved.
    fn absorb_slot(&mut self, known: &Known<'_>, place: Place, slot: usize, words: &[u64]) -> Option<Found> {
        let format = &known.shared.format;
        let ((link, Some(sibling)), Some(layout)) = (place, format.layout()) else { return None };
        let mut table = Table::unread(format, layout, link, sibling);
        table.take(layout.slot_run(slot), words);
        let is_key = table.key(slot) == &key_words(format, self.key, 0)[..];
        let is_live = table.state(slot) == SlotState::Live;
        if is_key && is_live && table.is_in_tree(slot) {
            note(situations::HOT_SPOT_HIT);
            known.hot_spots.remember(link.addr(), hash_of(format, self.key), slot);
            return self.take_entries(format, &table, place, &[slot], false);
        }
        note(situations::HOT_SPOT_MISLED);
        self.stage = Stage::Window(Window { place, header: None, runs: SmallVec::new() });
        None
    }

    /// Processes entries of the key: returns a value, or starts to read blocks.
    fn take_entries(
        &mut self,
        format: &Format,
        table: &Table<'_>,
        place: Place,
        slots: &[usize],
        are_all: bool,
    ) -> Option<Found> {
        let payload = |slot: usize| &table.entry(slot)[format.key_words()..];
        if let (Some(bytes), Some(&slot)) = (format.value, slots.first()) {
            let value: &[u8] = bytemuck::cast_slice(payload(slot));
            return Some(Found::Value(Some(value[..bytes].to_vec())));
        }
        let blocks = slots.iter().map(|&slot| (Block::from_word(payload(slot)[0]), None)).collect();
        self.stage = Stage::Blocks(place, are_all, blocks);
        None
    }

    fn absorb_window(&mut self, known: &Known<'_>, window: &Window, done: &Batch) -> Option<Found> {
        let shared = known.shared;
        let format = &shared.format;
        let layout = format.layout()?;
        let (link, expected) = window.place;
        let by_header = || {
            let header = Page::parse_header(format, link, done.words(window.header?))?;
            (header.place(Aim::At(self.key)) == Some(Position::Within)).then_some(header.sibling)
        };
        let Some(sibling) = expected.or_else(by_header) else {
            self.read_whole();
            return None;
        };
        let mut table = Table::unread(format, layout, link, sibling);
        for (run, read) in &window.runs {
            table.take(*run, done.words(*read));
        }
        let words = key_words(format, self.key, 0);
        let home = home_of(format, layout, &words);
        let found = table.replica(home);
        if found != sibling {
            note(situations::SIBLING_DIFFERS);
            shared.drop_copy_above(self.key, 0);
            self.read_whole();
            return None;
        }
        let Some(members) = table.members(home, false) else {
            note(situations::NEIGHBOURHOOD_TORN);
            self.read_whole();
            return None;
        };
        let matches: SmallVec<[usize; 2]> =
            members.into_iter().filter(|&slot| *table.key(slot) == words[..]).collect();
        if let [slot] = matches[..]
            && expected.is_some()
        {
            known.hot_spots.remember(link.addr(), hash_of(format, self.key), slot);
        }
        if matches.is_empty() {
            return Some(Found::Value(None));
        }
        self.take_entries(format, &table, window.place, &matches, true)
    }
}

impl<'s> Search<Known<'s>> for TableSearch<'_> {
    type End = Found;

    fn post(&mut self, known: &Known<'s>, batch: &mut Batch) -> Result<()> {
        if let Stage::Walking(walk) = &mut self.stage {
            match walk.post(known.shared, batch)? {
                Some(WalkEnd::Link(link)) => self.stage = Stage::At((link, walk.sibling())),
                _ => return Ok(()),
            }
        }
        if let Stage::At(place) = self.stage {
            self.post_at(known, batch, place);
        }
        match &mut self.stage {
            Stage::Window(window) if window.runs.is_empty() => {
                let (place, format) = (window.place, &known.shared.format);
                let Some(layout) = format.layout() else { return Ok(()) };
                let home = home_of(format, layout, &key_words(format, self.key, 0));
                let runs = layout.runs(home, NEIGHBOURHOOD, false).into_iter();
                window.runs =
                    runs.map(|run| (run, batch.read(place.0.addr().plus(run.0 as u64 * 8), run.1))).collect();
                Ok(())
            }
            Stage::Blocks(_, _, blocks) => {
                for (block, read) in blocks {
                    *read = Some(batch.read(block.addr, block.words()));
                }
                Ok(())
            }
            Stage::Whole(search) => search.post(known.shared, batch),
            _ => Ok(()),
        }
    }

    fn absorb(&mut self, known: &Known<'s>, done: &Batch) -> Result<Option<Found>> {
        match std::mem::replace(&mut self.stage, Stage::At((Link::NONE, None))) {
            Stage::Walking(mut walk) => {
                match walk.absorb(known.shared, done)? {
                    Some(WalkEnd::Link(link)) => self.stage = Stage::At((link, walk.sibling())),
                    Some(WalkEnd::Stuck(link)) => return Ok(Some(Found::Stuck(link))),
                    Some(WalkEnd::Page(page)) => {
                        let mut search = KeySearch::new(self.key, false, self.repaired);
                        let found = search.in_page(known.shared, page)?;
                        self.stage = Stage::Whole(search);
                        return Ok(found);
                    }
                    _ => self.stage = Stage::Walking(walk),
                }
                Ok(None)
            }
            Stage::Slot(place, slot, read) => Ok(self.absorb_slot(known, place, slot, done.words(read))),
            Stage::Window(window) => Ok(self.absorb_window(known, &window, done)),
            Stage::Blocks(place, are_all, blocks) => {
                for (block, read) in blocks {
                    let Some(read) = read else { continue };
                    let found = pair::parse(block.addr, done.words(read))?;
                    if found.key == self.key {
                        return Ok(Some(Found::Value(Some(found.value.to_vec()))));
                    }
                }
                if are_all {
                    return Ok(Some(Found::Value(None)));
                }
                self.stage = Stage::Window(Window { place, header: None, runs: SmallVec::new() });
                Ok(None)
            }
            Stage::Whole(mut search) => {
                let found = search.absorb(known.shared, done);
                self.stage = Stage::Whole(search);
                found
            }
            Stage::At(place) => {
                self.stage = Stage::At(place);
                Ok(None)
            }
        }
    }
}

impl<F: Fabric> Chime<F> {
    /// Returns the values of several keys, in their order, with shared round trips.
    pub(super) async fn find_values(
        &self,
        client: &mut Client<F>,
        keys: &[&[u8]],
        kind: OpKind,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let shared = &*self.tree.shared;
        let known = Known { shared, hot_spots: &self.hot_spots };
        let mut operation: Operation<'_, F> = Operation::pin(shared, client, kind).await?;
        let mut values = vec![None; keys.len()];
        let mut searches: Vec<_> =
            keys.iter().enumerate().map(|(at, key)| (at, TableSearch::new(key))).collect();
        while !searches.is_empty() {
            let mut stuck = Vec::new();
            search::step(&mut operation.client, &known, &mut searches, |at, search, found, _| {
                match found {
                    Found::Value(value) => values[at] = value,
                    Found::Stuck(link) => stuck.push((at, search.key, search.repaired, link)),
                }
                Ok(())
            })
            .await?;
            for (at, key, mut repaired, link) in stuck {
                operation.repair_stuck(link, &mut repaired).await?;
                searches.push((at, TableSearch::whole(key, true, repaired)));
            }
        }
        Ok(values)
    }
}
