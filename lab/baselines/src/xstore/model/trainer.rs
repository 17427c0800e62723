//! Training of all sub-models, in one walk over the leaves.
//!
//! A server trains all sub-models when it starts and when their number changes: first the top model
//! over a sample of the keys, then the sub-models. The walk keeps the leaves of one sub-model at a
//! time. Its result reflects the leaves as they were read; if a leaf is split in between, the
//! sub-model is retrained later, as after any split.

use super::sub::LEAF_SLOTS;
use super::top::TopModel;
use super::train::{LeafView, Scope, Trained, train_sub};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Keys per sub-model above which the number of sub-models is doubled (section 5.3.2).
pub(crate) const KEYS_MAX: u64 = 200;
/// Keys per sub-model below which the number of sub-models is halved. Doubling leaves twice this
/// number, so that one change does not soon cause the other.
const KEYS_MIN: u64 = KEYS_MAX / 4;

/// Returns the number of sub-models for an index with this many keys.
pub(crate) fn submodels_for(keys: u64, keys_each: u64) -> u32 {
    u32::try_from(keys.div_ceil(keys_each.max(1)).max(1)).unwrap_or(u32::MAX)
}

/// Returns the number of sub-models that an index should have instead. `None` if the number is
/// right.
pub(crate) fn resized(keys: u64, submodels: u32) -> Option<u32> {
    let count = u64::from(submodels);
    if keys > count.saturating_mul(KEYS_MAX) {
        return submodels.checked_mul(2).filter(|&doubled| doubled > submodels);
    }
    (submodels > 1 && keys < count.saturating_mul(KEYS_MIN)).then_some(submodels / 2)
}

/// A leaf that further sub-models may need.
#[derive(Debug)]
struct Leaf {
    number: u32,
    incarnation: u32,
    keys: SmallVec<[u64; LEAF_SLOTS as usize]>,
    low: u64,
    high: u64,
}

impl Leaf {
    fn view(&self) -> LeafView<'_> {
        LeafView {
            number: self.number,
            incarnation: self.incarnation,
            keys: &self.keys,
            low: self.low,
            high: self.high,
        }
    }
}

/// A training in progress.
#[derive(Debug)]
pub(crate) struct Trainer {
    top: TopModel,
    submodels: u32,
    /// The next sub-model and its scope. `None` after the last.
    next: Option<(u32, Scope)>,
    window: VecDeque<Leaf>,
}

impl Trainer {
    pub(crate) fn new(top: TopModel, submodels: u32) -> Self {
        let mut trainer = Self { top, submodels, next: None, window: VecDeque::new() };
        trainer.seek(Some(0));
        trainer
    }

    /// Proceeds to the sub-model that is responsible for a key.
    fn seek(&mut self, key: Option<u64>) {
        self.next = key.and_then(|key| {
            let submodel = self.top.predict(key, self.submodels);
            Some((submodel, Scope::of(&self.top, submodel, self.submodels)?))
        });
    }

    /// Adds the next leaf in order. Calls `emit` for each sub-model whose leaves are complete, in
    /// ascending order of their numbers, except for sub-models responsible for no key.
    pub(crate) fn push(&mut self, leaf: &LeafView<'_>, mut emit: impl FnMut(u32, Trained)) {
        let LeafView { number, incarnation, keys, low, high } = *leaf;
        // A leaf that begins with the key at which an interval ends still belongs to it.
        while let Some((_, scope)) = self.next.filter(|(_, scope)| scope.interval.1 < low) {
            self.emit(scope, &mut emit);
        }
        self.window.push_back(Leaf { number, incarnation, keys: keys.into(), low, high });
    }

    /// Ends the walk.
    pub(crate) fn finish(mut self, mut emit: impl FnMut(u32, Trained)) {
        while let Some((_, scope)) = self.next {
            self.emit(scope, &mut emit);
        }
    }

    fn emit(&mut self, scope: Scope, emit: &mut impl FnMut(u32, Trained)) {
        if let Some((submodel, _)) = self.next {
            emit(submodel, train_sub(scope, self.window.iter().map(Leaf::view)));
        }
        self.seek(scope.interval.1.checked_add(1));
        let low = self.next.map_or(u64::MAX, |(_, scope)| scope.interval.0);
        while self.window.front().is_some_and(|leaf| leaf.high < low) {
            self.window.pop_front();
        }
    }
}
