//! The learned models (OSDI 2020, section 5): what the server trains and writes to the pool, and
//! what clients read and cache. Nothing here touches a fabric.
//!
//! - [`key`]: what the models see of a key: its first 8 bytes.
//! - [`top`], [`sub`], [`entry`]: the words in the pool, and predictions from them. Any words
//!   predict within bounds, or are known as no model.
//! - [`train`], [`trainer`]: training of a sub-model over its leaves, and of all of them in one
//!   walk; how many sub-models an index ought to have.
//! - [`cache`]: what a process remembers, within a budget, and the way from a key to its leaves.
//! - [`figures`]: error and leaves a GET, as the public code computes them.
//!
//! *The server* trains a top model, then runs a [`Trainer`] over all leaves, and writes for each
//! [`Trained`] its table and then its sub-model. Sub-models that are not emitted are responsible
//! for no key; their words are never read. After a split it trains the sub-models of the keys
//! between the bounds of both leaves again ([`Scope::of`], [`train_sub`]): a table elsewhere first,
//! then the two words of the sub-model. When [`resized`] says so it trains everything anew for
//! another number, beside what is in use, and changes the descriptor, with another generation.
//!
//! *A client* has read [`View`] in its epoch, and follows a [`Route`]. When a leaf has another
//! incarnation than its entry, but bounds around the key, it renews the entry. When the answer of a
//! call brings a sub-model that was trained again, it learns that. When the key is within the
//! bounds of no predicted leaf, nor of a sibling, it forgets the sub-model.
//!
//! Sub-models and tables are hints. A client may meet an old sub-model with a table that another
//! has taken over since. Each entry that it reads leads to a leaf as long as tables stay tables
//! within one generation, and the leaf's bounds decide. The generation must change before a leaf
//! that any table of the present or the past names is given back: caches keep neither sub-models
//! nor entries over that, so it is enough that no table of a present sub-model names the leaf.

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
pub(crate) use cache::{Cache, Leaves, NoModel, Route, Step, View};
pub(crate) use entry::Entry;
pub(crate) use key::{last_below, least_key, model_key};
pub(crate) use sub::{SubModel, TableRef};
pub(crate) use top::TopModel;
pub(crate) use train::{LeafView, Scope, Trained, train_sub};
pub(crate) use trainer::{KEYS_MAX, Trainer, resized, submodels_for};
