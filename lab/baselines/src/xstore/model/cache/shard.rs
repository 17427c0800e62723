//! A part of the cache: some sub-models, and the known entries of their tables.
//!
//! Entries are stored separately from the models, so that the search for one to evict visits only
//! entries. Methods that remove something return the bytes charged for it. Methods that insert
//! something return the reserved bytes that were not needed.

use super::Place;
use crate::xstore::model::entry::Entry;
use crate::xstore::model::sub::{PREDICTED_MAX, SubModel};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// A sub-model.
#[derive(Debug)]
struct Cached {
    model: SubModel,
    is_used: bool,
    /// The position after the last leaf of its table, once two entries show it.
    end: Option<u32>,
}

/// An entry of a table.
#[derive(Clone, Copy, Debug)]
struct Known {
    position: u32,
    is_used: bool,
    entry: Entry,
}

/// The known entries at some positions; `None` if unknown.
pub(super) type Entries = SmallVec<[Option<Entry>; PREDICTED_MAX as usize]>;

#[derive(Debug, Default)]
pub(super) struct Shard {
    generation: u64,
    models: BTreeMap<u32, Cached>,
    /// By sub-model, sorted by position. None is empty or without its model.
    tables: BTreeMap<u32, Vec<Known>>,
    entries: u64,
    /// The sub-models at which the search for the next to evict starts.
    model_hand: u32,
    table_hand: u32,
}

impl Shard {
    /// Drops everything if a generation is newer.
    pub(super) fn enter(&mut self, generation: u64) -> u64 {
        if generation <= self.generation {
            return 0;
        }
        let before = self.bytes();
        *self = Self { generation, ..Self::default() };
        before - self.bytes()
    }

    /// Returns the bytes charged.
    fn bytes(&self) -> u64 {
        self.models.len() as u64 * SubModel::BYTES + self.entries * Entry::BYTES
    }

    /// Returns the sub-model, and the end of its table if known.
    pub(super) fn find_model(&mut self, generation: u64, submodel: u32) -> Option<(SubModel, Option<u32>)> {
        let known = self.models.get_mut(&submodel).filter(|_| generation == self.generation)?;
        known.is_used = true;
        Some((known.model, known.end))
    }

    /// Returns the known entries of a table.
    pub(super) fn find_entries(
        &mut self,
        generation: u64,
        place: Place,
        positions: RangeInclusive<u32>,
    ) -> Entries {
        let is_of = self.is_of(generation, place);
        let mut known = self.tables.get_mut(&place.0).filter(|_| is_of);
        positions
            .map(|position| {
                let table = known.as_mut()?;
                let at = table.binary_search_by_key(&position, |known| known.position).ok()?;
                table[at].is_used = true;
                Some(table[at].entry)
            })
            .collect()
    }

    /// Returns whether a model is cached with this table.
    fn is_of(&self, generation: u64, (submodel, table): Place) -> bool {
        let known = self.models.get(&submodel).filter(|_| generation == self.generation);
        known.is_some_and(|known| known.model.table() == Some(table))
    }

    /// Replaces the cached model. `None` if there is none to replace.
    pub(super) fn replace_model(&mut self, generation: u64, submodel: u32, model: SubModel) -> Option<u64> {
        if generation != self.generation {
            return Some(0);
        }
        let known = self.models.get_mut(&submodel)?;
        if known.model == model {
            return Some(0);
        }
        *known = Cached { model, is_used: true, end: None };
        Some(self.forget_table(submodel))
    }

    /// Adds a model.
    pub(super) fn insert_model(&mut self, generation: u64, submodel: u32, model: SubModel) -> u64 {
        if let Some(freed) = self.replace_model(generation, submodel, model) {
            return SubModel::BYTES + freed;
        }
        self.models.insert(submodel, Cached { model, is_used: false, end: None });
        0
    }

    /// Drops a model and its entries.
    pub(super) fn forget(&mut self, generation: u64, submodel: u32) -> u64 {
        if generation != self.generation || self.models.remove(&submodel).is_none() {
            return 0;
        }
        SubModel::BYTES + self.forget_table(submodel)
    }

    fn forget_table(&mut self, submodel: u32) -> u64 {
        let count = self.tables.remove(&submodel).map_or(0, |table| table.len() as u64);
        self.entries -= count;
        count * Entry::BYTES
    }

    /// Returns whether an entry would be kept: it is unknown, and does not repeat that of the last
    /// leaf.
    pub(super) fn wants_entry(&mut self, generation: u64, place: Place, position: u32, entry: Entry) -> bool {
        if !self.is_of(generation, place) {
            return false;
        }
        let Some(table) = self.tables.get(&place.0) else { return true };
        let before = table.partition_point(|known| known.position < position);
        let repeated = table[..before].last().filter(|known| known.entry.number() == entry.number());
        let end = repeated.map(|known| known.position + 1);
        let is_known = table.get(before).is_some_and(|known| known.position == position);
        if let Some(cached) = self.models.get_mut(&place.0).filter(|_| end.is_some()) {
            cached.end = end;
        }
        !is_known && end.is_none()
    }

    /// Adds an entry, and removes entries that turn out to repeat it.
    pub(super) fn insert_entry(&mut self, generation: u64, place: Place, position: u32, entry: Entry) -> u64 {
        if !self.wants_entry(generation, place, position, entry) {
            return Entry::BYTES;
        }
        let table = self.tables.entry(place.0).or_default();
        let at = table.partition_point(|known| known.position < position);
        let mut surplus = 0;
        if table.get(at).is_some_and(|known| known.entry.number() == entry.number()) {
            surplus = (table.len() - at) as u64;
            table.truncate(at);
            if let Some(cached) = self.models.get_mut(&place.0) {
                cached.end = Some(position + 1);
            }
        }
        table.insert(at, Known { position, is_used: false, entry });
        self.entries = self.entries + 1 - surplus;
        surplus * Entry::BYTES
    }

    /// Changes a known entry.
    pub(super) fn renew_entry(&mut self, generation: u64, place: Place, position: u32, entry: Entry) {
        if !self.is_of(generation, place) {
            return;
        }
        let Some(table) = self.tables.get_mut(&place.0) else { return };
        let known = table.iter_mut().find(|known| known.position == position);
        if let Some(known) = known.filter(|known| known.entry.number() == entry.number()) {
            known.entry = entry;
        }
    }

    /// Evicts the entries of one table that were not used since the last pass. Evicts none in a
    /// turn in which all were used.
    pub(super) fn evict_entries(&mut self) -> u64 {
        for _ in 0..self.tables.len() {
            let next = self.tables.range(self.table_hand..).next().or_else(|| self.tables.iter().next());
            let Some((&submodel, _)) = next else { break };
            self.table_hand = submodel.saturating_add(1);
            let Some(table) = self.tables.get_mut(&submodel) else { break };
            let before = table.len();
            table.retain_mut(|known| std::mem::take(&mut known.is_used));
            let count = (before - table.len()) as u64;
            if table.is_empty() {
                self.tables.remove(&submodel);
            }
            if count > 0 {
                self.entries -= count;
                return count * Entry::BYTES;
            }
        }
        0
    }

    /// Evicts a model that was not used since the last pass, with the entries of its table. Evicts
    /// none in a turn in which all were used.
    pub(super) fn evict_model(&mut self) -> u64 {
        for _ in 0..self.models.len() {
            let hand = self.model_hand;
            let next = match self.models.range_mut(hand..).next() {
                Some(next) => Some(next),
                None => self.models.iter_mut().next(),
            };
            let Some((&submodel, known)) = next else { break };
            self.model_hand = submodel.saturating_add(1);
            if !std::mem::take(&mut known.is_used) {
                return self.forget(self.generation, submodel);
            }
        }
        0
    }
}
