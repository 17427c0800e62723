//! The models of an index as they are stored in a pool.

use super::tree::Tree;
use crate::xstore::model::figures::Figures;
use crate::xstore::model::sub::{SubModel, TableRef};
use crate::xstore::model::top::TopModel;
use crate::xstore::model::train::{LeafView, Scope, Trained, train_sub};
use crate::xstore::model::trainer::Trainer;
use crate::xstore::model::{RouteStep, View};
use std::collections::BTreeMap;

/// Words in memory: sub-models by number, and consecutive tables.
#[derive(Debug)]
pub(super) struct Models {
    pub(super) view: View,
    pub(super) top: TopModel,
    pub(super) subs: BTreeMap<u32, SubModel>,
    pub(super) memory: Vec<u64>,
}

pub(super) fn top_of(tree: &Tree) -> TopModel {
    let keys = tree.leaves.values().flat_map(|leaf| leaf.keys.iter().copied());
    TopModel::train(keys.zip(0..), tree.keys)
}

/// Trains all sub-models, one after another.
pub(super) fn train_all(top: TopModel, submodels: u32, views: &[LeafView<'_>]) -> Vec<(u32, Trained)> {
    let mut all = Vec::new();
    let mut trainer = Trainer::new(top, submodels);
    for leaf in views {
        trainer.push(leaf, |submodel, trained| all.push((submodel, trained)));
    }
    trainer.finish(|submodel, trained| all.push((submodel, trained)));
    all
}

/// Returns the leaves over which a sub-model is trained.
pub(super) fn overlapping<'a>(views: &'a [LeafView<'a>], scope: Scope) -> &'a [LeafView<'a>] {
    let from = views.partition_point(|leaf| leaf.high < scope.interval.0);
    let to = views.partition_point(|leaf| leaf.low <= scope.interval.1);
    &views[from..to]
}

pub(super) fn figures(tree: &Tree, keys_each: u64) -> Figures {
    let (top, views) = (top_of(tree), tree.views());
    let submodels = crate::xstore::model::submodels_for(tree.keys, keys_each);
    let mut figures = Figures::default();
    for (submodel, trained) in train_all(top, submodels, &views) {
        let scope = Scope::of(&top, submodel, submodels).unwrap();
        figures.add(&trained, scope, overlapping(&views, scope).iter().copied());
    }
    figures
}

impl Models {
    pub(super) fn of(tree: &Tree, submodels: u32) -> Self {
        let top = top_of(tree);
        let view = View { generation: 1, submodels };
        let mut models = Self { view, top, subs: BTreeMap::new(), memory: Vec::new() };
        for (submodel, trained) in train_all(top, submodels, &tree.views()) {
            models.place(submodel, &trained);
        }
        models
    }

    pub(super) fn place(&mut self, submodel: u32, trained: &Trained) {
        let offset = self.memory.len() as u64 * 8;
        let table = trained.room().and_then(|room| TableRef::new(offset, room));
        self.memory.extend(trained.table_words());
        self.subs.insert(submodel, trained.placed(table));
    }

    /// Retrains the sub-model of a key.
    pub(super) fn retrain(&mut self, tree: &Tree, key: u64) -> u32 {
        let submodel = self.top.predict(key, self.view.submodels);
        let scope = Scope::of(&self.top, submodel, self.view.submodels).unwrap();
        let views = tree.views();
        let trained = train_sub(scope, overlapping(&views, scope).iter().copied());
        self.place(submodel, &trained);
        submodel
    }

    /// Returns the keys that a sub-model is responsible for.
    pub(super) fn interval(&self, submodel: u32) -> (u64, u64) {
        Scope::of(&self.top, submodel, self.view.submodels).unwrap().interval
    }

    /// Returns the words of a step. `None` if it reads none.
    pub(super) fn read(&self, step: &RouteStep) -> Option<Vec<u64>> {
        match step {
            RouteStep::Top => Some(self.top.words().to_vec()),
            RouteStep::SubModel(submodel) => Some(self.subs[submodel].words().to_vec()),
            RouteStep::Entries(table, positions) => {
                let at = (table.offset() / 8) as usize;
                let (start, end) = (*positions.start() as usize, *positions.end() as usize);
                assert!(end < table.entries() as usize);
                Some(self.memory[at + start..=at + end].to_vec())
            }
            RouteStep::Leaves(_) | RouteStep::Call | RouteStep::Inner(_) | RouteStep::Children(_) => None,
        }
    }
}
