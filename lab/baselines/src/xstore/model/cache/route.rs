//! The way from a key to the leaves that can hold it, one READ at a time.
//!
//! [`Route::step`] returns what to read, and [`Route::absorb`] processes the words, until the
//! leaves are known or a call is due. Cached steps are skipped, so a GET takes two round trips and
//! those of its steps: none if everything is cached, one if only sub-models are, two if only the
//! top model is.
//!
//! A route keeps the words that it has read, so it ends even if the cache keeps nothing.

use super::{Cache, Entries, Place, View};
use crate::xstore::model::entry::Entry;
use crate::xstore::model::sub::{PREDICTED_MAX, SubModel, TableRef};
use crate::xstore::model::top::{TopModel, difference};
use smallvec::SmallVec;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;

/// The next step of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RouteStep {
    /// READ the words of the top model.
    Top,
    /// READ the words of this sub-model.
    SubModel(u32),
    /// READ the entries at these positions of a table.
    Entries(TableRef, RangeInclusive<u32>),
    /// READ these leaves.
    Leaves(Leaves),
    /// READ the inner node of this number (of a way through the tree, like the next step).
    Inner(u32),
    /// READ these leaves, which are at these positions of an inner node.
    Children(Vec<(u32, Entry)>),
    /// Call the server: the model predicts nothing, or more than [`PREDICTED_MAX`] leaves.
    Call,
}

/// The words that were read are not a model, or their number is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoModel;

/// The leaves that can hold a key, and following leaves if more are wanted, in key order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaves {
    pub(super) place: Place,
    /// The entries with their positions. An invalid entry is included only if the table has one.
    pub(crate) entries: SmallVec<[(u32, Entry); 4]>,
}

impl Leaves {
    /// Returns the sub-model that predicted them.
    #[cfg(test)]
    pub(crate) fn submodel(&self) -> u32 {
        self.place.0
    }
}

/// The progress of a route.
#[derive(Debug)]
enum State {
    Start,
    Top(TopModel),
    /// Some entries are known.
    Table {
        place: Place,
        first: u32,
        known: Entries,
    },
    Silent,
}

/// A route in progress.
#[derive(Debug)]
pub(crate) struct Route<'a> {
    cache: &'a Cache,
    view: View,
    key: u64,
    /// Number of leaves wanted before and after those of the key.
    more: (u32, u32),
    submodel: Option<u32>,
    state: State,
}

impl<'a> Route<'a> {
    pub(super) fn new(cache: &'a Cache, view: View, key: u64, more: (u32, u32)) -> Self {
        let view = View { submodels: view.submodels.max(1), ..view };
        let mut route = Self { cache, view, key, more, submodel: None, state: State::Start };
        if let Some(top) = cache.top(view) {
            cache.hits.top.fetch_add(1, Ordering::Relaxed);
            route.take_top(top);
        }
        route
    }

    /// Returns the sub-model that is responsible for the key once the top model is known.
    pub(crate) fn submodel(&self) -> Option<u32> {
        self.submodel
    }

    /// Returns the next step.
    pub(crate) fn step(&self) -> RouteStep {
        match &self.state {
            State::Start => RouteStep::Top,
            State::Top(_) => self.submodel.map_or(RouteStep::Top, RouteStep::SubModel),
            State::Table { place, first, known } => match missing(known) {
                Some((from, to)) => RouteStep::Entries(place.1, first + from..=first + to),
                None => RouteStep::Leaves(leaves(*place, *first, known)),
            },
            State::Silent => RouteStep::Call,
        }
    }

    /// Processes the words of the last step. Invalid words change nothing: they were torn, or their
    /// memory has changed.
    pub(crate) fn absorb(&mut self, words: &[u64]) -> Result<(), NoModel> {
        match &mut self.state {
            State::Start => {
                let top = words.try_into().ok().and_then(TopModel::from_words).ok_or(NoModel)?;
                self.cache.learn_top(self.view, top);
                self.take_top(top);
            }
            State::Top(top) => {
                let top = *top;
                let submodel = self.submodel.ok_or(NoModel)?;
                let model = words.try_into().ok().and_then(SubModel::from_words).ok_or(NoModel)?;
                self.cache.learn_submodel(self.view, submodel, model);
                self.take_model(&top, submodel, model, None);
            }
            State::Table { place, first, known } => {
                let (from, to) = missing(known).ok_or(NoModel)?;
                if words.len() != (to - from) as usize + 1 {
                    return Err(NoModel);
                }
                for (at, &word) in (from..).zip(words) {
                    let entry = Entry::from_word(word);
                    known[at as usize] = Some(entry);
                    self.cache.learn_entry(self.view, *place, *first + at, entry);
                }
            }
            State::Silent => return Err(NoModel),
        }
        Ok(())
    }

    fn take_top(&mut self, top: TopModel) {
        let submodel = top.predict(self.key, self.view.submodels);
        (self.submodel, self.state) = (Some(submodel), State::Top(top));
        let known = self.cache.shard(self.view, submodel).find_model(self.view.generation, submodel);
        if let Some((model, end)) = known {
            self.cache.hits.submodels.fetch_add(1, Ordering::Relaxed);
            self.take_model(&top, submodel, model, end);
        }
    }

    fn take_model(&mut self, top: &TopModel, submodel: u32, model: SubModel, end: Option<u32>) {
        self.state = State::Silent;
        let x = difference(self.key, top.base(submodel, self.view.submodels));
        let (Some(table), Some(positions)) = (model.table(), model.predict(x)) else { return };
        let end = end.map_or(u32::MAX, |end| end.saturating_sub(1));
        let (first, last) = (*positions.start().min(&end), *positions.end().min(&end));
        if last - first >= PREDICTED_MAX {
            return;
        }
        let first = first.saturating_sub(self.more.0);
        let last = last.saturating_add(self.more.1).min(table.entries() - 1).min(end);
        let place = (submodel, table);
        let known =
            self.cache.shard(self.view, submodel).find_entries(self.view.generation, place, first..=last);
        if missing(&known).is_none() {
            self.cache.hits.entries.fetch_add(1, Ordering::Relaxed);
        }
        self.state = State::Table { place, first, known };
    }
}

/// Returns the first and the last position whose entry is unknown.
fn missing(known: &Entries) -> Option<(u32, u32)> {
    let from = known.iter().position(Option::is_none)?;
    let to = known.iter().rposition(Option::is_none)?;
    Some((from as u32, to as u32))
}

/// Returns the leaves of entries, each once.
fn leaves(place: Place, first: u32, known: &Entries) -> Leaves {
    let mut entries: SmallVec<[(u32, Entry); 4]> = (first..).zip(known.iter().copied().flatten()).collect();
    entries.dedup_by_key(|(_, entry)| entry.number());
    Leaves { place, entries }
}
