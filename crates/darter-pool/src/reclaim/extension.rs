//! Parts of a membership that other crates add and that upkeep serves.
//!
//! A lock-based index names a lock's holder by words that a process hands out and, after an
//! operation has died with a lock, takes back. The pool is not involved in that; the index only
//! needs a place that lives as long as the membership, and verbs that every round of upkeep posts
//! for it.

use darter_fabric::{Batch, Endpoint, FabricError};
use std::any::Any;
use std::sync::{Arc, Mutex, OnceLock};

use crate::round_trip::submit;
use crate::sync::lock;

/// Most extensions of a membership.
const EXTENSIONS_MAX: usize = 8;

/// A part of a membership that another crate defines. There is one of each type
/// ([`crate::Pool::extension`]).
pub trait Extension: Any + Send + Sync {
    /// Adds verbs for a round of upkeep to an empty batch. Returns the work to do once they have
    /// completed, or `None` if there is nothing to post. If the round is cancelled, that work is
    /// not done, although the verbs may have landed.
    fn upkeep(&self, batch: &mut Batch) -> Option<Box<dyn FnOnce() + Send>>;
}

/// The extensions of a membership.
#[derive(Default)]
pub(super) struct Extensions {
    /// Filled from the beginning; filled slots never change.
    slots: [OnceLock<Arc<dyn Extension>>; EXTENSIONS_MAX],
    adding: Mutex<()>,
}

impl Extensions {
    fn all(&self) -> impl Iterator<Item = &Arc<dyn Extension>> {
        self.slots.iter().map_while(OnceLock::get)
    }

    fn find<T: Extension>(&self) -> Option<Arc<T>> {
        let is_it = |extension: &&Arc<dyn Extension>| {
            let any: &dyn Any = extension.as_ref();
            any.is::<T>()
        };
        let any: Arc<dyn Any + Send + Sync> = Arc::<dyn Extension>::clone(self.all().find(is_it)?);
        any.downcast().ok()
    }

    /// Returns the extension of type `T`, which the first call creates.
    pub(super) fn get<T: Extension + Default>(&self) -> Arc<T> {
        if let Some(found) = self.find() {
            return found;
        }
        let _adding = lock(&self.adding);
        self.find().unwrap_or_else(|| {
            let added = Arc::<T>::default();
            let as_extension: Arc<dyn Extension> = Arc::<T>::clone(&added);
            let slot = self.slots.iter().find(|slot| slot.get().is_none());
            let slot = slot.expect("a membership has at most eight extensions");
            assert!(slot.set(as_extension).is_ok(), "slots are filled under a lock");
            added
        })
    }

    /// Posts the verbs of all extensions.
    ///
    /// # Errors
    /// The fabric's.
    pub(super) async fn upkeep<E: Endpoint>(&self, endpoint: &mut E) -> Result<(), FabricError> {
        for extension in self.all() {
            let mut batch = endpoint.batch();
            let Some(completed) = extension.upkeep(&mut batch) else {
                endpoint.recycle(batch);
                continue;
            };
            submit(endpoint, batch).await?;
            completed();
        }
        Ok(())
    }
}
