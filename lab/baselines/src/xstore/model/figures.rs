//! The quality of models, in the figures of the paper and of the public code.

use super::sub::SubModel;
use super::top::difference;
use super::train::{LeafView, Scope, Trained};

/// Sums over sub-models.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// Sub-models that predict something.
    pub(crate) submodels: u64,
    /// Sub-models that predict nothing: their keys need calls.
    pub(crate) silent: u64,
    /// Entries of all tables.
    pub(crate) entries: u64,
    errors: u64,
    keys: u64,
    leaves: u64,
}

impl Figures {
    /// Adds a sub-model with its leaves.
    pub(crate) fn add<'a>(
        &mut self,
        trained: &Trained,
        scope: Scope,
        leaves: impl Iterator<Item = LeafView<'a>>,
    ) {
        if trained.entries.is_empty() {
            self.silent += 1;
            return;
        }
        self.submodels += 1;
        self.entries += trained.entries.len() as u64;
        self.errors += u64::from(trained.model.error());
        let keys = leaves.flat_map(|leaf| leaf.keys);
        for &key in keys.filter(|&key| (scope.interval.0..=scope.interval.1).contains(key)) {
            self.keys += 1;
            self.leaves += trained.leaves(scope, key);
        }
    }

    /// Returns the average width of a prediction over the sub-models, in slots: the public code's
    /// error.
    pub(crate) fn error(&self) -> f64 {
        self.errors as f64 / self.submodels.max(1) as f64
    }

    /// Returns the average number of leaves that a GET reads, over keys of sub-models that predict
    /// something.
    pub(crate) fn leaves_per_get(&self) -> f64 {
        self.leaves as f64 / self.keys.max(1) as f64
    }

    /// Returns the bytes of a cache that holds all of it except the top model.
    pub(crate) fn bytes(&self) -> u64 {
        (self.submodels + self.silent) * SubModel::BYTES + self.entries * super::entry::Entry::BYTES
    }
}

impl Trained {
    /// Returns the number of leaves predicted for a key.
    fn leaves(&self, scope: Scope, key: u64) -> u64 {
        let last = self.entries.len() as u64 - 1;
        let (start, end) = self.model.pages(difference(key, scope.base));
        end.min(last) - start.min(last) + 1
    }
}
