//! Hot words: the last known content of those words of remembered pages that name leaves. With them
//! a read gets the leaf in the same round trip that shows that the word is unchanged.
//!
//! The table consists of lines of three entries. A page's delta, and each group of four of its
//! records, have a home line, where the search for their entries begins. The search ends at the
//! first line that no entry with an earlier or equal home lies beyond. The home line of the delta
//! also says which of the page's records may have entries. Hot words take the room that blocks
//! leave, and yield to them. If all lines that an entry may lie in are full, an entry is forgotten
//! that was not used since they were last full.
//!
//! ```text
//! line, 64 bytes    entry | entry | entry | groups, 2 | entries passed, 2
//! entry, 20 bytes   place, 8 | word, 8 | born, 4
//! place   63      62     50   44 43             0
//!        | taken | used | slot 7 | address / 16 |     slot: a record's rank, or 64 + a delta slot
//! ```
//!
//! *Groups* has a bit for each group of four records of the pages whose delta has its home here;
//! bits stay when entries are removed. *Entries passed* is the number of entries that lie after
//! this line and have their home in this line or before it.

use crate::quiver::hint::{HotWord, HotWords, PageSlot};
use crate::quiver::page::RECORDS_MAX;
use crate::quiver::word::{LeafPrint, Word};
use darter_fabric::GlobalAddr;
use std::mem::size_of;
use std::ops::Range;

/// Entries of a line.
const WIDTH: usize = 3;
/// Adjacent lines that an entry may lie in.
const REACH: usize = 8;
/// Lines of the smallest table.
const LINES_MIN: usize = 2 * REACH;
/// The table grows when all places of an entry are taken, and at least one place in this many
/// overall.
const CROWDED: usize = 3;

/// Records of a page that share their lines.
const GROUP: usize = 4;

const SLOT_AT: u32 = 44;
const USED: u64 = 1 << 62;
const TAKEN: u64 = 1 << 63;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    place: [u32; 2],
    word: [u32; 2],
    born: u32,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Line {
    entries: [Entry; WIDTH],
    groups: u16,
    /// Entries passed.
    passed: u16,
}

const _: () = assert!(size_of::<Entry>() == 20 && size_of::<Line>() == 64);
const _: () = assert!(RECORDS_MAX / GROUP <= u16::BITS as usize);

fn halves(whole: u64) -> [u32; 2] {
    [whole as u32, (whole >> 32) as u32]
}

fn whole([low, high]: [u32; 2]) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// The group of records that shares a home line; `None` for the delta.
fn group(slot: PageSlot) -> Option<usize> {
    slot.rank().map(|rank| rank / GROUP)
}

/// The *place* of the entry of a page's slot, without the bits *taken* and *used*.
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

/// The hot words of a shard.
#[derive(Debug, Default)]
pub(super) struct HotTable {
    lines: Vec<Line>,
    taken: usize,
    /// Where the search for the next entry to forget begins.
    hand: usize,
}

impl HotTable {
    /// Bytes in use.
    pub(super) fn bytes(&self) -> usize {
        self.lines.capacity() * size_of::<Line>()
    }

    /// Whether there are no entries.
    pub(super) fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// The home line of a group of a page's records, or of its delta.
    fn home(&self, page: GlobalAddr, group: Option<usize>) -> usize {
        let starts = self.lines.len().saturating_sub(REACH - 1) as u64;
        let seed = page.bits() >> 4 | (group.map_or(0, |group| group as u64 + 1)) << SLOT_AT;
        let hash = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((hash * starts) >> 32) as usize
    }

    /// The groups of a page that may have entries, one bit each.
    pub(super) fn groups(&self, page: GlobalAddr) -> u16 {
        self.lines.get(self.home(page, None)).map_or(0, |line| line.groups)
    }

    fn home_of(&self, entry: &Entry) -> usize {
        self.home(entry.page(), group(entry.slot()))
    }

    /// The lines that may hold an entry with this home.
    fn reach(&self, home: usize) -> Range<usize> {
        home..(home + REACH).min(self.lines.len())
    }

    /// A sequence of entries that includes all with this home.
    fn with_home(&self, home: usize) -> impl Iterator<Item = &Entry> {
        let mut lines = self.lines[self.reach(home)].iter();
        let mut is_last = false;
        let until_last = std::iter::from_fn(move || {
            let line = if is_last { None } else { lines.next() };
            is_last = line.is_some_and(|line| line.passed == 0);
            line
        });
        until_last.flat_map(|line| &line.entries)
    }

    /// The position of the entry of a page's slot.
    fn position(&self, page: GlobalAddr, slot: PageSlot) -> Option<(usize, usize)> {
        let (home, place) = (self.home(page, group(slot)), place(page, slot));
        let at = self.with_home(home).position(|entry| entry.is_at(place))?;
        Some((home + at / WIDTH, at % WIDTH))
    }

    /// Returns the word of a page of this life, with these groups, that may name the leaf of the
    /// key with this rank and print.
    pub(super) fn for_key(
        &self,
        (page, born): (GlobalAddr, u32),
        groups: u16,
        rank: Option<usize>,
        print: LeafPrint,
    ) -> Option<HotWord> {
        if self.is_empty() {
            return None;
        }
        // Searches in the record with a rank, or in the delta.
        let find = |rank: Option<usize>| {
            let is_it = |entry: &&Entry| {
                entry.is_of(page, born)
                    && entry.slot().rank() == rank
                    && entry.hot().word.may_be_leaf_of(print)
            };
            let home = self.home(page, rank.map(|rank| rank / GROUP));
            self.with_home(home).find(is_it).map(Entry::hot)
        };
        let has_any = |rank: &usize| groups >> (rank / GROUP) & 1 == 1;
        rank.filter(has_any).and_then(|rank| find(Some(rank))).or_else(|| find(None))
    }

    /// Returns the hot words of these records, and of the delta, of a page of this life.
    pub(super) fn of_page(&self, (page, born): (GlobalAddr, u32), ranks: Range<usize>) -> HotWords {
        let mut hot = HotWords::new();
        if self.is_empty() {
            return hot;
        }
        let is_wanted = |slot: PageSlot| slot.rank().is_none_or(|rank| ranks.contains(&rank));
        let groups = self.groups(page);
        let records =
            (ranks.start / GROUP..ranks.end.div_ceil(GROUP)).filter(|group| groups >> group & 1 == 1);
        for of in records.map(Some).chain([None]) {
            let is_it = |entry: &&Entry| {
                let slot = entry.slot();
                entry.is_of(page, born) && group(slot) == of && is_wanted(slot)
            };
            hot.extend(self.with_home(self.home(page, of)).filter(is_it).map(Entry::hot));
        }
        hot
    }

    /// Marks a word as used.
    pub(super) fn touch(&mut self, page: GlobalAddr, slot: PageSlot) {
        if let Some((line, at)) = self.position(page, slot) {
            self.lines[line].entries[at].place = halves(place(page, slot) | USED);
        }
    }

    /// Remembers a word of a page of this life. The table takes at most `most_bytes` bytes.
    pub(super) fn learn(&mut self, page: GlobalAddr, born: u32, hot: HotWord, most_bytes: usize) {
        let entry = Entry { place: halves(place(page, hot.slot)), word: halves(hot.word.0), born };
        if let Some((line, at)) = self.position(page, hot.slot) {
            self.lines[line].entries[at] = entry;
            return;
        }
        while !self.put(entry) {
            let more = (self.lines.len() + self.lines.len() / 2).max(LINES_MIN);
            let is_sparse = self.taken * CROWDED < self.lines.len() * WIDTH;
            if is_sparse || more * size_of::<Line>() > most_bytes {
                self.replace(entry);
                return;
            }
            self.resize(more);
        }
    }

    /// Puts an entry into the first free place that it may have. Returns whether there is one.
    fn put(&mut self, entry: Entry) -> bool {
        let home = self.home_of(&entry);
        let mut places = self.lines[self.reach(home)].iter().flat_map(|line| &line.entries);
        let Some(at) = places.position(|other| !other.is_taken()) else { return false };
        self.set(home, (home + at / WIDTH, at % WIDTH), entry);
        true
    }

    fn set(&mut self, home: usize, (line, at): (usize, usize), entry: Entry) {
        self.lines[line].entries[at] = entry;
        self.lines[home..line].iter_mut().for_each(|passed| passed.passed += 1);
        self.taken += 1;
        if let Some(group) = group(entry.slot()) {
            let summary = self.home(entry.page(), None);
            self.lines[summary].groups |= 1 << group;
        }
    }

    /// Removes an entry.
    fn take(&mut self, (line, at): (usize, usize)) {
        let entry = std::mem::take(&mut self.lines[line].entries[at]);
        let home = self.home_of(&entry);
        self.lines[home..line].iter_mut().for_each(|passed| passed.passed -= 1);
        self.taken -= 1;
    }

    /// Replaces an entry that was not used since the hand last passed it.
    fn replace(&mut self, entry: Entry) {
        let home = self.home_of(&entry);
        let lines = self.reach(home).len();
        if lines == 0 {
            return;
        }
        loop {
            self.hand = (self.hand + 1) % (lines * WIDTH);
            let (line, at) = (home + self.hand / WIDTH, self.hand % WIDTH);
            let victim = &mut self.lines[line].entries[at];
            let place = whole(victim.place);
            if place & USED == 0 {
                self.take((line, at));
                self.set(home, (line, at), entry);
                return;
            }
            victim.place = halves(place & !USED);
        }
    }

    /// Forgets a word of a page.
    pub(super) fn forget(&mut self, page: GlobalAddr, slot: PageSlot) {
        if let Some(at) = self.position(page, slot) {
            self.take(at);
        }
    }

    /// Forgets entries until the table takes at most `bytes` bytes.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        if self.bytes() > bytes {
            self.resize((bytes / size_of::<Line>()).min(self.lines.len() / 2));
        }
    }

    /// Rebuilds the table with `lines` lines and as many of its entries as fit.
    fn resize(&mut self, lines: usize) {
        let lines = if lines < LINES_MIN { 0 } else { lines };
        let old = std::mem::replace(&mut self.lines, vec![Line::default(); lines]);
        self.taken = 0;
        for entry in old.iter().flat_map(|line| &line.entries).filter(|entry| entry.is_taken()) {
            self.put(*entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn hot(number: u64) -> (GlobalAddr, HotWord) {
        let slot = if number % 5 == 4 {
            PageSlot::delta(number as usize % 8)
        } else {
            PageSlot::record(number as usize % 60)
        };
        (GlobalAddr::new(0, 64 + number % 7 * 4096), HotWord { slot, word: Word(number | 1 << 20) })
    }

    proptest! {
        /// After any sequence of changes, the table finds each entry, and its counts of passed
        /// entries are right.
        #[test]
        fn every_entry_is_found_from_its_home(
            most in 0_usize..6_000,
            steps in proptest::collection::vec((0_u8..12, 0_u64..500), 1..600),
        ) {
            let (mut table, mut learned) = (HotTable::default(), BTreeMap::new());
            for (kind, number) in steps {
                let (page, hot) = hot(number);
                match kind {
                    0 => table.forget(page, hot.slot),
                    1 => table.touch(page, hot.slot),
                    2 if number < 20 => table.shrink_to(number as usize * 100),
                    _ => {
                        table.learn(page, 1, hot, most);
                        learned.insert((page, hot.slot.0), hot.word);
                    }
                }
                prop_assert!(table.bytes() <= most.max(LINES_MIN * size_of::<Line>()));
                let mut passed = vec![0; table.lines.len()];
                let mut taken = 0;
                for (line, at) in (0..table.lines.len()).flat_map(|line| (0..WIDTH).map(move |at| (line, at))) {
                    let entry = table.lines[line].entries[at];
                    if entry.is_taken() {
                        taken += 1;
                        prop_assert_eq!(table.position(entry.page(), entry.slot()), Some((line, at)));
                        prop_assert_eq!(learned.get(&(entry.page(), entry.slot().0)), Some(&entry.hot().word));
                        passed[table.home_of(&entry)..line].iter_mut().for_each(|passed| *passed += 1);
                        let of_page = table.of_page((entry.page(), 1), 0..64);
                        prop_assert!(of_page.contains(&entry.hot()));
                    }
                }
                prop_assert_eq!(taken, table.taken);
                let found: Vec<_> = table.lines.iter().map(|line| line.passed).collect();
                prop_assert_eq!(found, passed);
            }
        }
    }
}
