//! The learned models (OSDI 2020, section 5): what the server trains and writes to the pool, and
//! what clients read and cache. Nothing here accesses a fabric.
//!
//! - [`key`]: the part of a key that the models use: its first 8 bytes.
//! - [`top`], [`sub`], [`entry`]: the words in the pool, and predictions from them. Any words
//!   predict within bounds or are rejected.
//! - [`train`], [`trainer`]: training of a sub-model over its leaves, and of all in one walk; the
//!   number of sub-models that an index should have.
//! - [`cache`]: the models that a process keeps, within a budget, and the way from a key to its
//!   leaves.
//! - [`figures`]: error and leaves per GET, computed as in the public code.
//!
//! *The server* trains a top model, then runs a [`Trainer`] over all leaves, and writes for each
//! [`Trained`] its table and then its sub-model. Sub-models that are not emitted are responsible
//! for no key; their words are never read. After a split it retrains the sub-models of the keys
//! between the bounds of both leaves ([`Scope::of`], [`train_sub`]): it writes a table at another
//! place first, then the two words of the sub-model. If [`resized`] returns another number of
//! sub-models, it trains everything for that number, separately from the models in use, and changes
//! the descriptor together with the generation.
//!
//! *A client* reads a [`View`] in its epoch and follows a [`Route`]. If a leaf's bounds include the
//! key but its incarnation differs from the entry's, the client updates the entry. If the reply to
//! a call includes a retrained sub-model, the client caches it. If no predicted leaf and no sibling
//! holds the key, the client drops the sub-model.
//!
//! Sub-models and tables are hints. A client may use an old sub-model with a table that now belongs
//! to another one. Each entry that it reads still leads to a leaf, as long as tables stay tables
//! within one generation, and the leaf's bounds decide. The generation must change before a leaf
//! that any current or former table names is freed. Caches keep neither sub-models nor entries
//! across that change, so it is enough that no table of a current sub-model names the leaf.

mod cache;
mod entry;
#[cfg(test)]
mod figures;
mod key;
mod regression;
mod sub;
#[cfg(test)]
mod tests;
mod top;
mod train;
mod trainer;

pub(super) use cache::Hits;
pub(crate) use cache::{Cache, Leaves, NoModel, Route, RouteStep, View};
pub(crate) use entry::Entry;
pub(crate) use key::{last_below, least_key, model_key};
pub(crate) use sub::{SubModel, TableRef};
pub(crate) use top::TopModel;
pub(crate) use train::{LeafView, Scope, Trained, train_sub};
pub(crate) use trainer::{KEYS_MAX, Trainer, resized, submodels_for};
