//! Leaves that are hopscotch hash tables, as in CHIME (SOSP 2024, section 4.1): the layout of their
//! words, the checks between them, and the choice of slots for entries.
//!
//! ```text
//! leaf       header and fences (`page`) | vacancy: a bit for every slot, 1 if empty | groups of 8 slots
//! group      replica: the leaf's sibling link | 4 pairs of slots
//! pair       entry | metadata of both | entry           entry: key, then value or pointer to the pair
//! metadata   1 | dead 1 | odd slot 31 | even slot 31    slot: neighbourhood check 18 | entry check 13
//! ```
//!
//! *Neighbourhood.* A key's hash determines its home, and its entry is in the home or one of the
//! seven slots after it, cyclically. The home's neighbourhood check covers those of the eight
//! entries whose home it is, with slots and values: the xor of a keyed hash of each. So if the
//! check matches, the eight slots hold all keys of that home and are not a mixture of several
//! states of the leaf, up to a chance of 2^-18. It replaces the published layout's bitmap of the
//! neighbourhood and versions.
//!
//! *Entry check*: a keyed hash of one entry and its slot, 0 if the slot is empty. It verifies a
//! READ of one entry.
//!
//! *Replica.* Any eight slots from a home on, read as one run of words or, if the table wraps, two,
//! hold a replica. All hashes are keyed by address, birth tag and sibling, so the entries found
//! belong to the expected leaf, at a time when this was its sibling.

use super::entry::{Entry, EntryState};
use super::format::{Format, mix};
use super::hopscotch_layout::GROUP_SLOTS;
pub(crate) use super::hopscotch_layout::{Layout, NEIGHBOURHOOD, Run};
use super::link::Link;
use darter_fabric::GlobalAddr;
use smallvec::SmallVec;
use std::borrow::Cow;

const ENTRY_BITS: u32 = 13;
const HOME_BITS: u32 = 18;
const SLOT_BITS: u32 = ENTRY_BITS + HOME_BITS;
const ENTRY_MASK: u64 = (1 << ENTRY_BITS) - 1;
const HOME_MASK: u64 = (1 << HOME_BITS) - 1;
/// The leaf is no longer in the tree; set in every word of metadata.
const DEAD_FLAG: u64 = 1 << 62;
/// Set in every word of metadata, so that zeros are invalid.
const METADATA_MARK: u64 = 1 << 63;

/// Returns the home of a key, by the key's words in an entry.
pub(crate) fn home_of(format: &Format, layout: Layout, key: &[u64]) -> usize {
    // A digest's order part differs between leaves; its hash is the same.
    let hash = match format.key {
        Some(_) => key.iter().fold(format.seed, |hash, &word| mix(hash, word)),
        None => mix(format.seed, key[0] & 0xff_ffff),
    };
    (mix(hash, 0x686f_6d65) >> 40) as usize % layout.span
}

/// The content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    Empty,
    Live,
    /// Entry and check do not match.
    Torn,
}

/// The words of a leaf; words that were not read are 0.
#[derive(Clone, Debug)]
pub(crate) struct Table<'f> {
    format: &'f Format,
    pub(crate) layout: Layout,
    addr: GlobalAddr,
    /// The initial state of all hashes.
    base: u64,
    sibling: Link,
    words: Cow<'f, [u64]>,
    /// The pending writes, in this order.
    writes: Vec<(usize, SmallVec<[u64; 4]>)>,
}

impl<'f> Table<'f> {
    /// Creates a table of the leaf that a link leads to, while it has this sibling.
    pub(crate) fn new(
        format: &'f Format,
        layout: Layout,
        link: Link,
        sibling: Link,
        words: Cow<'f, [u64]>,
    ) -> Self {
        let base = mix(mix(mix(format.seed, link.addr().bits()), u64::from(link.tag())), sibling.word());
        Self { format, layout, addr: link.addr(), base, sibling, words, writes: Vec::new() }
    }

    /// Creates a table of the leaf that a link leads to, without any words read.
    pub(crate) fn unread(format: &'f Format, layout: Layout, link: Link, sibling: Link) -> Self {
        Self::new(format, layout, link, sibling, vec![0; format.leaf_words()].into())
    }

    /// Stores a run that was read.
    pub(crate) fn take(&mut self, (at, _): Run, words: &[u64]) {
        self.words.to_mut()[at..at + words.len()].copy_from_slice(words);
    }

    /// Returns the words of a slot's entry.
    pub(crate) fn entry(&self, slot: usize) -> &[u64] {
        &self.words[self.layout.entry_at(slot)..][..self.layout.entry]
    }

    /// Returns the key's words of a slot's entry.
    pub(crate) fn key(&self, slot: usize) -> &[u64] {
        &self.entry(slot)[..self.format.key_words()]
    }

    pub(crate) fn home(&self, slot: usize) -> usize {
        home_of(self.format, self.layout, self.key(slot))
    }

    fn metadata(&self, slot: usize) -> u64 {
        self.words[self.layout.metadata_at(slot)] >> (slot as u32 % 2 * SLOT_BITS)
    }

    fn set_metadata(&mut self, slot: usize, bits: u64, mask: u64) {
        let shift = slot as u32 % 2 * SLOT_BITS;
        let word = &mut self.words.to_mut()[self.layout.metadata_at(slot)];
        *word = *word & !(mask << shift) | bits << shift | METADATA_MARK;
    }

    fn hash(&self, domain: u64, slot: usize, words: &[u64]) -> u64 {
        let start = mix(self.base, domain << 8 | slot as u64);
        mix(words.iter().fold(start, |hash, &word| mix(hash, word)), domain)
    }

    /// Returns the check of an entry in a slot; never 0.
    fn entry_check(&self, slot: usize, entry: &[u64]) -> u64 {
        (self.hash(1, slot, entry) >> (64 - ENTRY_BITS)).max(1)
    }

    /// Returns the part of its home's check that an entry in a slot adds; never 0, so that the
    /// check alone decides whether an entry counts ([`Table::members`]).
    fn member(&self, slot: usize, entry: &[u64]) -> u64 {
        (self.hash(2, slot, entry) >> (64 - HOME_BITS)).max(1)
    }

    /// Returns the check of a home without entries.
    fn home_base(&self, home: usize) -> u64 {
        self.hash(3, home, &[]) >> (64 - HOME_BITS)
    }

    fn stored_home_check(&self, home: usize) -> u64 {
        self.metadata(home) >> ENTRY_BITS & HOME_MASK
    }

    fn set_entry_check(&mut self, slot: usize, check: u64) {
        self.set_metadata(slot, check, ENTRY_MASK);
        self.note_metadata(slot);
    }

    fn change_home_check(&mut self, home: usize, difference: u64) {
        let check = self.stored_home_check(home) ^ difference;
        self.set_metadata(home, check << ENTRY_BITS, HOME_MASK << ENTRY_BITS);
        self.note_metadata(home);
    }

    /// Schedules a write of a slot's metadata. Two consecutive changes of a word are combined.
    fn note_metadata(&mut self, slot: usize) {
        let at = self.layout.metadata_at(slot);
        if self.writes.last().is_some_and(|(last, words)| *last == at && words.len() == 1) {
            self.writes.pop();
        }
        self.note(at, 1);
    }

    fn note(&mut self, at: usize, len: usize) {
        self.writes.push((at, SmallVec::from_slice(&self.words[at..at + len])));
    }

    /// Returns the state of a slot whose metadata was read.
    pub(crate) fn state(&self, slot: usize) -> SlotState {
        match self.metadata(slot) & ENTRY_MASK {
            0 => SlotState::Empty,
            check if check == self.entry_check(slot, self.entry(slot)) => SlotState::Live,
            _ => SlotState::Torn,
        }
    }

    /// Returns whether the metadata of a slot belongs to a leaf in the tree.
    pub(crate) fn is_in_tree(&self, slot: usize) -> bool {
        self.words[self.layout.metadata_at(slot)] & (METADATA_MARK | DEAD_FLAG) == METADATA_MARK
    }

    /// Returns the replica in a run of slots from this one on.
    pub(crate) fn replica(&self, first: usize) -> Link {
        let group = first.div_ceil(GROUP_SLOTS) % (self.layout.span / GROUP_SLOTS);
        Link::from_word(self.words[self.layout.replica_at(group)])
    }

    /// Returns the live entries of a home, by slot, if its neighbourhood check matches; `None` if
    /// it is torn. The metadata of the last slot need not have been read.
    pub(crate) fn members(&self, home: usize, has_last: bool) -> Option<SmallVec<[usize; NEIGHBOURHOOD]>> {
        let mut members = SmallVec::new();
        let mut check = self.home_base(home);
        for offset in 0..NEIGHBOURHOOD {
            let slot = self.layout.behind(home, offset);
            if self.home(slot) != home {
                continue;
            }
            let difference = self.member(slot, self.entry(slot));
            if offset + 1 == NEIGHBOURHOOD && slot.is_multiple_of(2) && !has_last {
                if check != self.stored_home_check(home) {
                    check ^= difference;
                    members.push(slot);
                }
                continue;
            }
            match self.state(slot) {
                SlotState::Empty => {}
                SlotState::Live => {
                    check ^= difference;
                    members.push(slot);
                }
                SlotState::Torn => return None,
            }
        }
        let holds = check == self.stored_home_check(home) && self.is_in_tree(home);
        holds.then_some(members)
    }

    /// Returns all words of the leaf.
    pub(crate) fn into_words(self) -> Vec<u64> {
        self.words.into_owned()
    }

    /// Returns whether the vacancy bitmap matches the entries.
    pub(crate) fn has_right_vacancy(&self) -> bool {
        self.words[self.layout.vacancy_at()] == self.vacancy()
    }

    /// Returns the entry of a slot.
    pub(crate) fn parse(&self, slot: usize) -> EntryState {
        match self.state(slot) {
            SlotState::Empty => EntryState::Empty,
            SlotState::Torn => EntryState::Torn,
            SlotState::Live => {
                let (key, payload) = self.entry(slot).split_at(self.format.key_words());
                EntryState::Holds(Entry { key: key.into(), payload: payload.into(), lost: false })
            }
        }
    }

    /// Returns whether replicas, entries and neighbourhoods are all consistent.
    pub(crate) fn is_sound(&self) -> bool {
        let groups = 0..self.layout.span / GROUP_SLOTS;
        let replicas = groups.map(|group| self.words[self.layout.replica_at(group)]);
        let mut checks: SmallVec<[u64; 64]> =
            (0..self.layout.span).map(|home| self.home_base(home)).collect();
        for slot in 0..self.layout.span {
            match self.state(slot) {
                SlotState::Empty => {}
                SlotState::Live => checks[self.home(slot)] ^= self.member(slot, self.entry(slot)),
                SlotState::Torn => return false,
            }
        }
        let is_held = |(home, check): (usize, &u64)| self.stored_home_check(home) == *check;
        replicas.into_iter().all(|word| word == self.sibling.word()) && checks.iter().enumerate().all(is_held)
    }

    /// Returns the vacancy bitmap of the entries.
    pub(crate) fn vacancy(&self) -> u64 {
        let is_empty = |slot: &usize| self.state(*slot) == SlotState::Empty;
        (0..self.layout.span).filter(is_empty).fold(0, |bitmap, slot| bitmap | 1 << slot)
    }

    /// Writes an empty table's metadata and replicas; the slots' words stay but no longer count.
    fn clear_all(&mut self) {
        for group in 0..self.layout.span / GROUP_SLOTS {
            self.words.to_mut()[self.layout.replica_at(group)] = self.sibling.word();
        }
        for slot in 0..self.layout.span {
            self.words.to_mut()[self.layout.metadata_at(slot)] = 0;
        }
        for home in 0..self.layout.span {
            let check = self.home_base(home);
            self.set_metadata(home, check << ENTRY_BITS, HOME_MASK << ENTRY_BITS);
        }
    }

    /// Fills an empty table with entries; `false` if they do not fit.
    pub(crate) fn fill(&mut self, entries: &[Entry]) -> bool {
        let homes: Vec<usize> =
            entries.iter().map(|entry| home_of(self.format, self.layout, &entry.key)).collect();
        let Some(slots) = places(self.layout, &homes) else { return false };
        self.words.to_mut()[self.layout.area..].fill(0);
        self.clear_all();
        for (entry, slot) in entries.iter().zip(slots) {
            let words: SmallVec<[u64; 4]> = entry.key.iter().chain(&entry.payload).copied().collect();
            self.insert(slot, &words);
        }
        self.words.to_mut()[self.layout.vacancy_at()] = self.vacancy();
        self.writes.clear();
        true
    }

    /// Recomputes all checks from the entries, under the lock of a leaf whose writer died. Live
    /// entries are whole, since an entry's words change only while it is empty, and a value changes
    /// by one word. If a key was being moved, one copy is removed. Replicas are written too: a
    /// power failure can lose any of the leaf's words, and an inconsistent leaf would be repaired
    /// at every visit.
    pub(crate) fn repair(&mut self) {
        let is_live = |table: &Self, slot: usize| table.metadata(slot) & ENTRY_MASK != 0;
        let mut live: Vec<(usize, SmallVec<[u64; 4]>)> = Vec::new();
        for slot in 0..self.layout.span {
            let entry = self.entry(slot);
            let is_new = |other: &(usize, SmallVec<[u64; 4]>)| other.1[..] != *entry;
            if is_live(self, slot) && live.iter().all(is_new) {
                live.push((slot, SmallVec::from_slice(entry)));
            }
        }
        self.clear_all();
        for (slot, entry) in live {
            self.insert(slot, &entry);
        }
        self.words.to_mut()[self.layout.vacancy_at()] = self.vacancy();
        self.writes.clear();
    }

    /// Puts an entry into an empty slot: it counts once its check is written.
    pub(crate) fn insert(&mut self, slot: usize, entry: &[u64]) {
        let at = self.layout.entry_at(slot);
        self.words.to_mut()[at..at + entry.len()].copy_from_slice(entry);
        self.note(at, entry.len());
        self.set_entry_check(slot, self.entry_check(slot, entry));
        let difference = self.member(slot, entry);
        self.change_home_check(self.home(slot), difference);
    }

    /// Replaces an entry's value, or its pointer.
    pub(crate) fn replace(&mut self, slot: usize, payload: &[u64]) {
        let before = self.member(slot, self.entry(slot));
        let at = self.layout.entry_at(slot) + self.format.key_words();
        self.words.to_mut()[at..at + payload.len()].copy_from_slice(payload);
        self.note(at, payload.len());
        self.set_entry_check(slot, self.entry_check(slot, self.entry(slot)));
        let after = self.member(slot, self.entry(slot));
        self.change_home_check(self.home(slot), before ^ after);
    }

    /// Empties a slot.
    pub(crate) fn clear(&mut self, slot: usize) {
        let (home, difference) = (self.home(slot), self.member(slot, self.entry(slot)));
        self.set_entry_check(slot, 0);
        self.change_home_check(home, difference);
    }

    /// Moves an entry to an empty slot of its neighbourhood: it is in both before it leaves the old
    /// one.
    fn hop(&mut self, from: usize, to: usize) {
        let entry: SmallVec<[u64; 4]> = SmallVec::from_slice(self.entry(from));
        let home = self.home(from);
        let at = self.layout.entry_at(to);
        self.words.to_mut()[at..at + entry.len()].copy_from_slice(&entry);
        self.note(at, entry.len());
        self.set_entry_check(to, self.entry_check(to, &entry));
        let difference = self.member(from, &entry) ^ self.member(to, &entry);
        self.change_home_check(home, difference);
        self.set_entry_check(from, 0);
    }

    /// Puts an entry into its neighbourhood, after moving others until one of its slots is empty,
    /// and updates `vacancy`. Returns `false` if no slot is empty or the others cannot be moved;
    /// then the table must not be used any further.
    pub(crate) fn insert_with_hops(&mut self, home: usize, entry: &[u64], vacancy: &mut u64) -> bool {
        let layout = self.layout;
        let Some(mut offset) = first_vacant(layout, home, *vacancy) else { return false };
        let taken = layout.behind(home, offset);
        while offset >= NEIGHBOURHOOD {
            let to = layout.behind(home, offset);
            let can_hop = |back: &usize| {
                let from = layout.behind(home, offset - back);
                layout.offset(self.home(from), to) < NEIGHBOURHOOD
            };
            let Some(back) = (1..NEIGHBOURHOOD).rev().find(can_hop) else { return false };
            self.hop(layout.behind(home, offset - back), to);
            offset -= back;
        }
        self.insert(layout.behind(home, offset), entry);
        *vacancy &= !(1 << taken);
        true
    }

    /// Adds the pending WRITEs to a batch, in their order.
    pub(crate) fn post(&self, batch: &mut darter_fabric::Batch) {
        for (at, words) in &self.writes {
            batch.write(self.addr.plus(*at as u64 * 8), words);
        }
    }
}

/// Returns the distance from a home to the first vacant slot.
pub(crate) fn first_vacant(layout: Layout, home: usize, vacancy: u64) -> Option<usize> {
    (0..layout.span).find(|&offset| vacancy >> layout.behind(home, offset) & 1 == 1)
}

/// Marks all metadata of a leaf that is no longer in the tree; its contents stay.
pub(crate) fn mark_dead(layout: Layout, words: &mut [u64]) {
    for slot in (0..layout.span).step_by(2) {
        words[layout.metadata_at(slot)] |= DEAD_FLAG;
    }
}

/// Returns slots for entries with these homes, each in its neighbourhood and as near to its home as
/// possible; `None` if there is no solution. Finds a solution whenever one exists: a maximum
/// matching, by augmenting paths.
pub(crate) fn places(layout: Layout, homes: &[usize]) -> Option<Vec<usize>> {
    if homes.len() > layout.span {
        return None;
    }
    let mut owners = vec![None; layout.span];
    for entry in 0..homes.len() {
        if !settle(layout, homes, entry, &mut owners, &mut 0) {
            return None;
        }
    }
    let mut slots = vec![0; homes.len()];
    for (slot, owner) in owners.iter().enumerate() {
        if let Some(owner) = *owner {
            slots[owner] = slot;
        }
    }
    Some(slots)
}

/// Finds a slot for an entry; entries in the slots that it needs move to others.
fn settle(
    layout: Layout,
    homes: &[usize],
    entry: usize,
    owners: &mut [Option<usize>],
    seen: &mut u64,
) -> bool {
    let slots = (0..NEIGHBOURHOOD).map(|offset| layout.behind(homes[entry], offset));
    let slots: SmallVec<[usize; NEIGHBOURHOOD]> = slots.collect();
    if let Some(&slot) = slots.iter().find(|&&slot| owners[slot].is_none()) {
        owners[slot] = Some(entry);
        return true;
    }
    for slot in slots {
        if *seen >> slot & 1 == 1 {
            continue;
        }
        *seen |= 1 << slot;
        let moves = owners[slot].is_none_or(|owner| settle(layout, homes, owner, owners, seen));
        if moves {
            owners[slot] = Some(entry);
            return true;
        }
    }
    false
}

/// Returns the position to split ordered entries so that both sides fit in a table, as near to the
/// middle as possible.
pub(crate) fn middle(layout: Layout, homes: &[usize]) -> usize {
    let half = homes.len() / 2;
    let around = (0..homes.len()).flat_map(|away| [half.checked_sub(away), Some(half + away)]);
    let inside = around.flatten().filter(|at| (1..homes.len()).contains(at));
    let fits =
        |at: &usize| places(layout, &homes[..*at]).is_some() && places(layout, &homes[*at..]).is_some();
    // If entries that fitted get one more, those before it or those after it fit together with it:
    // otherwise neighbourhoods on both sides would be full, which are the same slots.
    inside.into_iter().find(fits).unwrap_or(half)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sherman::format::Shape;

    /// A search reads the last slot of a neighbourhood without its metadata if that comes after it.
    /// One entry in 2^18 has a hash of 0 there, and was not found.
    #[test]
    fn the_last_entry_of_a_neighbourhood_is_found_whatever_its_hash() {
        let shape = Shape { node_words: 64, key: Some(8), value: Some(8), redo: true, span: Some(16) };
        let format = Format::new(shape, [1, 2, 3, 4]);
        let layout = format.layout().unwrap();
        let mut table = Table::unread(&format, layout, Link::new(GlobalAddr::new(0, 4096), 1), Link::NONE);
        table.clear_all();
        let home = 1;
        let last = layout.behind(home, NEIGHBOURHOOD - 1);
        let key = (0..u64::MAX).find(|&key| home_of(&format, layout, &[key]) == home).unwrap();
        let has_no_hash = |entry: &[u64; 2]| table.hash(2, last, entry) >> (64 - HOME_BITS) == 0;
        let entry = (0..1 << 24).map(|value| [key, value]).find(has_no_hash).unwrap();
        assert!(last.is_multiple_of(2) && table.members(home, false).unwrap().is_empty());
        table.insert(last, &entry);
        assert_eq!(table.members(home, false).unwrap()[..], [last]);
        table.clear(last);
        assert!(table.members(home, false).unwrap().is_empty(), "cleared entries do not count");
    }
}
