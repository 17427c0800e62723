//! Hot words: what words of remembered pages said when they named leaves, so that a read gets the
//! leaf in the round trip that shows the word unchanged.
//!
//! A table of entries, found by a page and eight of its slots, each in one of 24 places. They take what
//! room blocks leave, and yield to them. Where all places are taken, what was not used since that was
//! last so is forgotten.
//!
//! ```text
//! entry, 20 bytes   place, 8 | word, 8 | born, 4
//! place   63      62     50   44 43             0
//!        | taken | used | slot 7 | address / 16 |     slot: a record's rank, or 64 + a delta slot
//! ```

use crate::quiver::hint::{HotWord, HotWords, PageSlot};
use crate::quiver::word::Word;
use darter_fabric::GlobalAddr;
use std::mem::size_of;
use std::ops::Range;

/// Places that an entry may take, next to each other.
const PLACES: usize = 24;
/// Entries of the smallest table.
const ENTRIES_MIN: usize = 2 * PLACES;
/// The table grows when all places of an entry are taken, and one of so many in all.
const CROWDED: usize = 3;

/// Slots of a page that share their places.
const GROUP: usize = 8;

const SLOT_AT: u32 = 44;
const USED: u64 = 1 << 62;
const TAKEN: u64 = 1 << 63;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    place: [u32; 2],
    word: [u32; 2],
    born: u32,
}

const _: () = assert!(size_of::<Entry>() == 20);

fn halves(whole: u64) -> [u32; 2] {
    [whole as u32, (whole >> 32) as u32]
}

fn whole([low, high]: [u32; 2]) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Which slots of a page share this one's places.
fn group(slot: PageSlot) -> usize {
    usize::from(slot.0) / GROUP
}

/// What an entry of a page's slot has for its place, but for the use.
fn place(page: GlobalAddr, slot: PageSlot) -> u64 {
    TAKEN | u64::from(slot.0) << SLOT_AT | page.bits() >> 4
}

impl Entry {
    fn is_taken(&self) -> bool {
        whole(self.place) & TAKEN != 0
    }

    fn is_at(&self, place: u64) -> bool {
        whole(self.place) & !USED == place
    }

    fn page(&self) -> GlobalAddr {
        GlobalAddr::from_bits((whole(self.place) & ((1 << SLOT_AT) - 1)) << 4)
    }

    fn is_of(&self, page: GlobalAddr, born: u32) -> bool {
        self.is_taken() && self.born == born && self.page() == page
    }

    fn slot(&self) -> PageSlot {
        PageSlot((whole(self.place) >> SLOT_AT & 127) as u8)
    }

    fn hot(&self) -> HotWord {
        HotWord { slot: self.slot(), word: Word(whole(self.word)) }
    }
}

/// The hot words of a part of the cache.
#[derive(Debug, Default)]
pub(super) struct HotTable {
    entries: Vec<Entry>,
    taken: usize,
    /// Where the next entry is looked for that is to be forgotten.
    hand: usize,
}

impl HotTable {
    /// Bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    /// The places of a page's slot.
    fn places(&self, page: GlobalAddr, slot: PageSlot) -> Range<usize> {
        let starts = self.entries.len().saturating_sub(PLACES - 1) as u64;
        let seed = page.bits() >> 4 | (group(slot) as u64) << SLOT_AT;
        let hash = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let first = ((hash * starts) >> 32) as usize;
        first..(first + PLACES).min(self.entries.len())
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// Returns the hot words of a page of this life: of these records, and of so many delta slots.
    pub(super) fn of_page(
        &self,
        (page, born): (GlobalAddr, u32),
        ranks: Range<usize>,
        delta: usize,
    ) -> HotWords {
        let mut hot = HotWords::new();
        if self.is_empty() {
            return hot;
        }
        let is_wanted = |slot: PageSlot| slot.rank().is_none_or(|rank| ranks.contains(&rank));
        let records = (ranks.start / GROUP..ranks.end.div_ceil(GROUP)).map(|at| PageSlot::record(at * GROUP));
        for first in records.chain((0..delta).step_by(GROUP).map(PageSlot::delta)) {
            let is_it = |entry: &&Entry| {
                let slot = entry.slot();
                entry.is_of(page, born) && group(slot) == group(first) && is_wanted(slot)
            };
            hot.extend(self.entries[self.places(page, first)].iter().filter(is_it).map(Entry::hot));
        }
        hot
    }

    /// Marks a word as used.
    pub(super) fn touch(&mut self, page: GlobalAddr, slot: PageSlot) {
        let (places, place) = (self.places(page, slot), place(page, slot));
        if let Some(entry) = self.entries[places].iter_mut().find(|entry| entry.is_at(place)) {
            entry.place = halves(place | USED);
        }
    }

    /// Remembers a word of a page of this life, in at most so many bytes for all.
    pub(super) fn learn(&mut self, page: GlobalAddr, born: u32, hot: HotWord, most_bytes: usize) {
        let place = place(page, hot.slot);
        let entry = Entry { place: halves(place), word: halves(hot.word.0), born };
        loop {
            let places = self.places(page, hot.slot);
            let known = self.entries[places.clone()].iter().position(|other| other.is_at(place));
            let free = || self.entries[places.clone()].iter().position(|other| !other.is_taken());
            if let Some(at) = known.or_else(free) {
                self.taken += usize::from(known.is_none());
                self.entries[places.start + at] = entry;
                return;
            }
            let entries = self.entries.len();
            let more = (entries + entries / 2).max(ENTRIES_MIN);
            if self.taken * CROWDED < entries || more * size_of::<Entry>() > most_bytes {
                break;
            }
            self.resize(more);
        }
        self.replace(entry);
    }

    /// Puts an entry in the place of one that was not used since the hand last came by.
    fn replace(&mut self, entry: Entry) {
        let places = self.places(entry.page(), entry.slot());
        if places.is_empty() {
            return;
        }
        loop {
            self.hand = (self.hand + 1) % PLACES;
            let victim = &mut self.entries[places.start + self.hand];
            let place = whole(victim.place);
            if place & USED == 0 {
                *victim = entry;
                return;
            }
            victim.place = halves(place & !USED);
        }
    }

    /// Forgets a word of a page.
    pub(super) fn forget(&mut self, page: GlobalAddr, slot: PageSlot) {
        let (places, place) = (self.places(page, slot), place(page, slot));
        if let Some(entry) = self.entries[places].iter_mut().find(|entry| entry.is_at(place)) {
            *entry = Entry::default();
            self.taken -= 1;
        }
    }

    /// Forgets words until the others take at most so many bytes.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        if self.bytes() > bytes {
            self.resize((bytes / size_of::<Entry>()).min(self.entries.len() / 2));
        }
    }

    /// Makes the table anew, with what has room among so many entries.
    fn resize(&mut self, entries: usize) {
        let entries = if entries < ENTRIES_MIN { 0 } else { entries };
        let old = std::mem::replace(&mut self.entries, vec![Entry::default(); entries]);
        self.taken = 0;
        for entry in old.into_iter().filter(Entry::is_taken) {
            let places = self.places(entry.page(), entry.slot());
            if let Some(free) = self.entries[places].iter_mut().find(|other| !other.is_taken()) {
                *free = entry;
                self.taken += 1;
            }
        }
    }
}
