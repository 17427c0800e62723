//! Training of a sub-model over the leaves of its keys (sections 5.1 and 5.2.3).
//!
//! The line is fitted to the first key of each leaf. The error is that of the first and the last
//! key, both as in the public code: a prediction within the key's own leaf has no error; any other
//! has the distance between the slots. A leaf that two sub-models share is trained by both and is
//! in both tables; each counts the errors of the keys for which it is responsible.
//!
//! *Data augmentation.* An absent key must also be predicted to the leaf that would hold it. So the
//! bounds of each leaf, within the sub-model's interval, count like keys, with the slot of their
//! leaf that is nearest to their prediction. Since predictions never decrease with increasing keys,
//! this holds for all keys between them:
//!
//! - every key that a sub-model is responsible for is predicted to a range of positions that
//!   includes its leaf, whether or not the index has the key.
//!
//! A prediction beyond the last leaf leads to that leaf ([`Trained::table_words`]). So its upper
//! bound does not count, and its keys have an error of at most 16 slots there.

use super::entry::Entry;
use super::regression::Regression;
use super::sub::{LEAF_SLOTS, SubModel, TableRef};
use super::top::{TopModel, difference};

/// The data of a leaf that training needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafView<'a> {
    pub(crate) number: u32,
    pub(crate) incarnation: u32,
    /// Its model keys, sorted.
    pub(crate) keys: &'a [u64],
    /// The least model key that a key within its bounds can have.
    pub(crate) low: u64,
    /// The greatest such model key. The next leaf may begin with the same.
    pub(crate) high: u64,
}

impl LeafView<'_> {
    /// Returns the entry that leads to it.
    pub(crate) fn entry(&self) -> Entry {
        Entry::new(self.number, self.incarnation, self.keys.len().min(u8::MAX.into()) as u8)
    }

    /// Returns whether a key of an interval can be in it.
    pub(super) fn overlaps(&self, (low, high): (u64, u64)) -> bool {
        self.low <= high && self.high >= low
    }
}

/// The base of a sub-model, and the keys that it is responsible for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    pub(crate) base: u64,
    /// The first and the last key.
    pub(crate) interval: (u64, u64),
}

impl Scope {
    /// Returns the scope of a sub-model. `None` if it is responsible for no key.
    pub(crate) fn of(top: &TopModel, submodel: u32, submodels: u32) -> Option<Self> {
        let interval = top.interval(submodel, submodels)?;
        Some(Self { base: top.base_of(interval.0), interval })
    }
}

/// A sub-model and the entries of its table, which has no address yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Trained {
    pub(super) model: SubModel,
    /// Empty if the model predicts nothing.
    pub(super) entries: Vec<Entry>,
}

impl Trained {
    /// Returns a sub-model that predicts nothing.
    pub(crate) fn none() -> Self {
        Self { model: SubModel::NONE, entries: Vec::new() }
    }

    /// Returns the size of its table in entries of 8 bytes. `None` if it needs no table, because it
    /// predicts nothing.
    pub(crate) fn room(&self) -> Option<u32> {
        TableRef::room(self.entries.len()).filter(|_| !self.entries.is_empty())
    }

    /// Returns the words of its table. The last entry fills the rest, so that predictions beyond
    /// the last leaf lead to that leaf.
    pub(crate) fn table_words(&self) -> impl Iterator<Item = u64> {
        let room = self.room().unwrap_or(0) as usize;
        let last = self.entries.last().copied().into_iter().cycle();
        self.entries.iter().copied().chain(last).map(Entry::word).take(room)
    }

    /// Returns the model with a table that holds these words. Without a table it predicts nothing.
    pub(crate) fn placed(&self, table: Option<TableRef>) -> SubModel {
        let table = table.filter(|table| Some(table.entries()) == self.room());
        table.map_or(SubModel::NONE, |table| self.model.with_table(table))
    }
}

/// Trains a sub-model over all leaves that overlap its interval, in order; others are skipped.
///
/// The result predicts nothing if there are no leaves, or if an error does not fit in a byte: if
/// many keys share a model key, or if no line is near the keys.
pub(crate) fn train_sub<'a>(scope: Scope, leaves: impl Iterator<Item = LeafView<'a>> + Clone) -> Trained {
    let leaves = leaves.filter(|leaf| leaf.overlaps(scope.interval));
    let mut regression = Regression::default();
    let mut entries = Vec::new();
    for (page, leaf) in (0_u64..).zip(leaves.clone()) {
        let first = leaf.keys.first().copied().unwrap_or(leaf.low.max(scope.interval.0));
        regression.add(difference(first, scope.base), (page * LEAF_SLOTS) as f64);
        entries.push(leaf.entry());
    }
    let mut errors = Errors {
        model: SubModel::new(regression.line()),
        base: scope.base,
        last_page: (entries.len() as u64).saturating_sub(1),
        min: 0,
        max: 0,
    };
    for (page, leaf) in (0..).zip(leaves) {
        errors.add_leaf(page, &leaf, scope.interval);
    }
    let is_placeable = !entries.is_empty() && TableRef::room(entries.len()).is_some();
    match errors.model.with_errors(errors.min, errors.max) {
        Some(model) if is_placeable => Trained { model, entries },
        _ => Trained::none(),
    }
}

/// The errors of a model's predictions, in slots.
struct Errors {
    model: SubModel,
    base: u64,
    last_page: u64,
    min: u64,
    max: u64,
}

impl Errors {
    fn add_leaf(&mut self, page: u64, leaf: &LeafView<'_>, interval: (u64, u64)) {
        // Keys are sorted, and there are few of them.
        let own = |key: &u64| (interval.0..=interval.1).contains(key);
        let ends = [leaf.keys.iter().position(own), leaf.keys.iter().rposition(own)];
        for slot in ends.into_iter().flatten() {
            let label = page * LEAF_SLOTS + slot as u64;
            self.add(leaf.keys[slot], page, label, label);
        }
        let (first, last) = (page * LEAF_SLOTS, (page + 1) * LEAF_SLOTS - 1);
        self.add(leaf.low.max(interval.0), page, first, last);
        if page < self.last_page {
            self.add(leaf.high.min(interval.1), page, first, last);
        }
    }

    /// Adds a key of a leaf that covers the slots from `from` to `to`.
    fn add(&mut self, key: u64, page: u64, from: u64, to: u64) {
        let slot = self.model.slot(difference(key, self.base));
        if slot / LEAF_SLOTS > page {
            let is_last = page == self.last_page;
            self.min = self.min.max(if is_last { (slot - to).min(LEAF_SLOTS) } else { slot - to });
        } else if slot / LEAF_SLOTS < page {
            self.max = self.max.max(from - slot);
        }
    }
}
