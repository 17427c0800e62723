//! The interface that `bench` needs of a target, and its implementation for darter's store.

use crate::BenchError;
use crate::report::Sizes;
use crate::store_target::StoreTarget;
use crate::target::{Target, TargetSession as _};
use darter::engine::{Engine, KeySpace};
use darter::report::PoolUsage;
use darter::{IndexKind, block_on};

/// A target that `bench` can describe and check.
#[allow(async_fn_in_trait)] // each future runs in the thread that made it
#[allow(clippy::missing_errors_doc)] // all methods fail if the pool or the index fails
pub trait BenchTarget: Target {
    /// Returns remarks on how the pool's memory was allocated, and on how searches read it.
    fn notes(&self) -> Vec<String>;

    /// Returns whether the pool holds any key.
    fn holds_keys(&self) -> Result<bool, BenchError> {
        Ok(block_on(self.session()?.scan(b"", 1, &mut Vec::new()))? > 0)
    }

    /// Returns the pool's usage.
    fn usage(&self) -> Result<PoolUsage, BenchError>;

    /// Returns the bytes in use, counted by a walk of the index.
    fn sizes(&self) -> Result<Sizes, BenchError>;

    /// Returns the prefix list, if the index has one.
    fn prefix_list(&self) -> Option<Vec<u8>>;

    /// Adjusts the index to the searches it has seen, if it can. Returns whether it did.
    fn adjust(&self) -> Result<bool, BenchError>;

    /// Walks the index and the pool. Returns broken invariants and the bytes leaked.
    fn check(&self) -> Result<(Vec<String>, u64), BenchError>;

    /// Removes a key. Returns whether it was there.
    async fn delete(&self, session: &mut Self::Session<'_>, key: &[u8]) -> Result<bool, BenchError>;
}

/// Work that is the same for every target.
pub trait TargetWork {
    /// The result.
    type Output;

    /// Does the work on one target.
    ///
    /// # Errors
    /// Fails if the target fails, or the work finds a wrong result.
    fn on<T: BenchTarget>(self, target: &T) -> Result<Self::Output, BenchError>;
}

impl BenchTarget for StoreTarget {
    fn notes(&self) -> Vec<String> {
        let mut notes = self.store.notes();
        if self.store.index().is_direct() {
            notes
                .push("searches load from this pool and make no round trips; --verbs posts verbs".to_owned());
        }
        notes
    }

    fn holds_keys(&self) -> Result<bool, BenchError> {
        // Keys of gateways count too.
        Ok(!self.store.session_in(KeySpace::Whole)?.is_empty()?)
    }

    fn usage(&self) -> Result<PoolUsage, BenchError> {
        Ok(self.store.usage()?)
    }

    fn sizes(&self) -> Result<Sizes, BenchError> {
        let stats = self.store.stats()?;
        Ok(Sizes {
            keys: stats.index.keys,
            index: stats.index.index_bytes,
            kv: stats.index.kv_bytes,
            pool_used: stats.pool.used_bytes(),
            cache_used: stats.cache_used_bytes,
        })
    }

    fn prefix_list(&self) -> Option<Vec<u8>> {
        // Only DART's list is available without a READ.
        let index = self.store.index();
        (index.kind() == Some(IndexKind::Dart)).then(|| index.prefix_list())
    }

    fn adjust(&self) -> Result<bool, BenchError> {
        self.store.adjust()?;
        Ok(true)
    }

    fn check(&self) -> Result<(Vec<String>, u64), BenchError> {
        let found = self.store.check()?;
        Ok((found.violations, found.leaked_bytes))
    }

    async fn delete(&self, session: &mut Self::Session<'_>, key: &[u8]) -> Result<bool, BenchError> {
        session.delete(key).await
    }
}
