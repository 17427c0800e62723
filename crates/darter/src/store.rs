//! An open pool with its index, shared by every session of the process.

use crate::inspect::{self, Check, Stats};
use crate::key_space::KeySpace;
use crate::open_index::OpenIndex;
use crate::open_store::{OpenStore, Reopen};
use crate::sweeper::Sweeper;
use crate::upkeep::Upkeep;
use crate::{AsyncSession, DefaultFabric, Error, Session, StoreOptions};
use darter_fabric::{Fabric, PoolUrl, block_on};
use darter_index::{AdjustReport, AnyIndex, Census, IndexStats, OrderedIndex, TreeView};
use darter_pool::{Pool, PoolUsage};
use std::sync::Arc;
use std::time::Duration;

/// An ordered key-value map in a memory pool. Clones are the same store.
///
/// When its last clone and session are dropped, the upkeep thread ends and the pool is closed
/// cleanly, which can take up to a second when other processes hold garbage back. A process that
/// ends without that, by any signal, does no harm: others notice its death and go on.
pub struct Store<F: Fabric = DefaultFabric, I: OrderedIndex<F> = AnyIndex<F>> {
    inner: Arc<OpenStore<F, I>>,
}

impl<F: Fabric, I: OrderedIndex<F>> Clone for Store<F, I> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<F: Fabric, I: OrderedIndex<F>> std::fmt::Debug for Store<F, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let url = self.inner.url.as_ref().map(ToString::to_string);
        f.debug_struct("Store").field("url", &url).finish_non_exhaustive()
    }
}

impl<F: Fabric, I: OrderedIndex<F>> Store<F, I> {
    pub(crate) fn over_pool(
        pool: Pool<F>,
        options: &StoreOptions,
        index: I::Options,
        name: Option<(PoolUrl, Reopen<F, I>)>,
    ) -> Result<Self, Error> {
        let index = index_of(&pool, options, index)?;
        Self::over_index(pool, index, options, name)
    }

    pub(crate) fn over_index(
        pool: Pool<F>,
        index: I,
        options: &StoreOptions,
        name: Option<(PoolUrl, Reopen<F, I>)>,
    ) -> Result<Self, Error> {
        let open = Arc::new(OpenIndex::new(index, pool));
        let auto_adjust = options.auto_adjust;
        let sweeper = (options.maintenance && options.sweep).then(|| Sweeper::new(Arc::clone(&open)));
        let upkeep = if options.maintenance {
            Some(Upkeep::start(Arc::clone(&open), auto_adjust, sweeper.clone())?)
        } else {
            None
        };
        let (url, reopen) = name.unzip();
        Ok(Self { inner: Arc::new(OpenStore { upkeep, sweeper, open, url, auto_adjust, reopen }) })
    }

    /// Opens the pool again as this store was opened, as a new member of the pool: after an
    /// operation has failed with [`Error::is_shut_out`], and whenever [`Store::is_shut_out`] returns
    /// true. This store, its clones and their sessions stay shut out; drop them. What they had
    /// allocated and not yet used is given back by a sweep.
    ///
    /// # Errors
    /// Fails as [`StoreOptions::open`] does, for instance while a memory node is still away: try
    /// again. Fails for a `mem:` pool, and for a store over a fabric of the program.
    pub fn reopen(&self) -> Result<Self, Error> {
        let inner = self.inner.reopen.as_ref().ok_or(Error::NotNamed)?()?;
        Ok(Self { inner })
    }

    /// Returns what all clones share.
    pub(crate) fn into_inner(self) -> Arc<OpenStore<F, I>> {
        self.inner
    }

    /// Returns whether the pool refuses all operations of this store, as far as its upkeep has found
    /// out; see [`Error::is_shut_out`]. Costs no round trip.
    pub fn is_shut_out(&self) -> bool {
        self.inner.open.is_shut_out()
    }

    /// Returns the length in bytes of the largest value that this pool can store, under an empty
    /// key; a key of `n` bytes leaves `n` bytes less. It depends on the pool's blocks: about
    /// 0.9 of `PoolOptions::block_bytes`, or of a 64th of the smallest memory node (from 2 to
    /// 16 MiB).
    pub fn max_value_bytes(&self) -> usize {
        darter_index::value_bytes_max(self.pool().object_bytes_max())
    }

    /// Opens a session for one thread: every call returns when its operation is done.
    ///
    /// # Errors
    /// Fails if a memory node cannot be reached.
    pub fn session(&self) -> Result<Session<F, I>, Error> {
        self.session_in(KeySpace::Program)
    }

    /// Opens a session for one task: the same calls as futures, for any executor.
    ///
    /// # Errors
    /// Fails if a memory node cannot be reached.
    pub fn async_session(&self) -> Result<AsyncSession<F, I>, Error> {
        self.async_session_in(KeySpace::Program)
    }

    /// Opens a session for one thread that works on other keys than the program's own: for gateways,
    /// and for tools that copy or show whole pools.
    ///
    /// # Errors
    /// Fails as [`Store::session`] does.
    #[doc(hidden)]
    pub fn session_in(&self, space: KeySpace) -> Result<Session<F, I>, Error> {
        self.async_session_in(space).map(Session::new)
    }

    /// As [`Store::session_in`], for one task.
    ///
    /// # Errors
    /// Fails as [`Store::session`] does.
    #[doc(hidden)]
    pub fn async_session_in(&self, space: KeySpace) -> Result<AsyncSession<F, I>, Error> {
        AsyncSession::open(&self.inner, space)
    }

    /// Counts and sizes, by a walk of the whole index.
    ///
    /// # Errors
    /// Fails if the pool is damaged or fails.
    pub fn stats(&self) -> Result<Stats, Error> {
        let mut client = self.pool().client()?;
        block_on(inspect::stats(self.open_index(), &mut client))
    }

    /// Returns how much of the pool each member uses. Cheap: it reads tables, not the index.
    ///
    /// # Errors
    /// Fails if the pool fails.
    pub fn usage(&self) -> Result<PoolUsage, Error> {
        let mut client = self.pool().client()?;
        let mut usage = block_on(self.pool().usage(&mut client))?;
        for node in &mut usage.nodes {
            node.replicas = self.pool().fabric().replicas(node.node);
        }
        Ok(usage)
    }

    /// Walks index and pool, verifies every invariant, and counts what is leaked. Operations of
    /// this process must rest meanwhile, or what they have in hand counts as leaked; other
    /// processes may go on. What dead processes left is swept before, unless the store was opened
    /// without that.
    ///
    /// # Errors
    /// Fails if a walk cannot go on. What it merely finds wrong is in the result.
    pub fn check(&self) -> Result<Check, Error> {
        let mut client = self.pool().client()?;
        block_on(async {
            if let Some(sweeper) = self.sweeper() {
                sweeper.finish().await;
            }
            inspect::check(self.open_index(), &mut client).await
        })
    }

    /// Gives back what dead processes left behind, then checks. Does nothing but report when an
    /// invariant is broken.
    ///
    /// # Errors
    /// Fails as [`Store::check`] does. What was not given back stays leaked, and another repair can
    /// be tried.
    pub fn repair(&self) -> Result<Check, Error> {
        let mut client = self.pool().client()?;
        block_on(async {
            if let Some(sweeper) = self.sweeper() {
                sweeper.rest().await;
            }
            inspect::repair(self.open_index(), &mut client).await
        })
    }

    /// Makes everything stored so far survive a power failure, where the medium does.
    ///
    /// # Errors
    /// Fails if the medium refuses.
    pub fn persist(&self) -> Result<(), Error> {
        Ok(self.pool().fabric().persist()?)
    }

    /// Says whether all that was read is of one state of the pool. That is always so but for a
    /// [snapshot](crate::StoreOptions::snapshot) of a file, where it is so unless another process
    /// has opened the file since.
    ///
    /// # Errors
    /// Fails if it is not so: read again.
    pub fn verify(&self) -> Result<(), Error> {
        Ok(self.pool().fabric().verify()?)
    }

    /// Adds the memory node at `address` (`host:port`) to a pool of memory nodes, for every process
    /// that has it open, and waits up to `patience` until all of them use it. Returns the node's
    /// number and how many members do not yet reach it.
    ///
    /// # Errors
    /// Fails if the node cannot be reached, is too small or in a pool already, or pools of this
    /// kind cannot grow: the pool is then as it was.
    pub fn add_node(&self, address: &str, patience: Duration) -> Result<(u8, usize), Error> {
        let mut client = self.pool().client()?;
        let node = block_on(self.pool().add_node(&mut client, address))?;
        let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        let behind = block_on(self.pool().await_nodes(&mut client, patience_ms))?;
        Ok((node, behind.len()))
    }

    /// Remarks an operator should see: huge pages not in use, upkeep failing, and the like.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.pool().fabric().notes();
        let trouble = self.inner.open.upkeep_trouble();
        notes.extend(trouble.map(|what| format!("upkeep fails and will try again: {what}")));
        notes
    }

    /// Returns the pool's name, when it was opened by one.
    pub fn url(&self) -> Option<&PoolUrl> {
        self.inner.url.as_ref()
    }

    /// Returns the index itself, for calls with a client of one's own.
    pub fn index(&self) -> &I {
        &self.inner.open.index
    }

    pub(crate) fn open_index(&self) -> &OpenIndex<F, I> {
        &self.inner.open
    }

    pub(crate) fn sweeper(&self) -> Option<&Arc<Sweeper<F, I>>> {
        self.inner.sweeper.as_ref()
    }

    /// Returns the pool itself.
    pub fn pool(&self) -> &Pool<F> {
        &self.inner.open.pool
    }
}

impl<F: Fabric> Store<F> {
    /// Adjusts the prefix list to the accesses sampled so far (DART, section 3.1), now.
    ///
    /// # Errors
    /// Fails if the pool is full or fails; the old list then stands. Fails if the index has none.
    pub fn adjust(&self) -> Result<AdjustReport, Error> {
        let mut client = self.pool().client()?;
        Ok(block_on(self.index().adjust(&mut client))?)
    }

    /// Returns the top of the tree below `prefix`: at most `levels` levels, at most `width`
    /// children of a node.
    ///
    /// # Errors
    /// Fails if the pool is damaged or fails, or if the index does not show its nodes.
    pub fn tree(&self, prefix: &[u8], levels: usize, width: usize) -> Result<TreeView, Error> {
        let mut client = self.pool().client()?;
        Ok(block_on(self.index().tree(&mut client, prefix, levels, width))?)
    }

    /// Counts one more part of the index, a few thousand inner nodes; returns the sums after the
    /// last part. So a large index can be counted again and again beside everything else.
    ///
    /// # Errors
    /// Fails as [`Store::stats`] does; the same part is then counted again.
    pub fn count_some(&self, census: &mut Census) -> Result<Option<IndexStats>, Error> {
        let mut client = self.pool().client()?;
        Ok(block_on(self.index().count_some(&mut client, census))?)
    }
}

/// Opens a pool's index, or makes it if the options allow.
pub(crate) fn index_of<F: Fabric, I: OrderedIndex<F>>(
    pool: &Pool<F>,
    options: &StoreOptions,
    index: I::Options,
) -> Result<I, Error> {
    let mut client = pool.client()?;
    let opened = block_on(async {
        if options.must_exist {
            I::open(&mut client, index).await
        } else {
            I::open_or_create(&mut client, index).await
        }
    });
    Ok(opened?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IndexKind;

    /// Spread, so that there are more inner nodes than one step counts.
    fn key(number: u64) -> [u8; 8] {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
    }

    fn with_keys(kind: IndexKind) -> Store {
        let store = Store::options().index(kind).open("mem:64M").unwrap();
        let session = store.session().unwrap();
        for number in 0..60_000 {
            session.put(key(number), b"value").unwrap();
        }
        store
    }

    fn count_in_steps(kind: IndexKind) {
        let store = with_keys(kind);
        let (mut census, mut steps) = (Census::default(), 1);
        let counted = loop {
            if let Some(stats) = store.count_some(&mut census).unwrap() {
                break stats;
            }
            assert!(census.nodes() > 0);
            steps += 1;
        };
        assert!(steps > 1 && census.nodes() == 0, "{steps} steps");
        let whole = store.stats().unwrap().index;
        assert_eq!(
            (counted.keys, counted.kv_bytes, &counted.levels),
            (60_000, whole.kv_bytes, &whole.levels)
        );
        let bytes =
            |stats: &IndexStats| stats.nodes.iter().map(|node| (node.count, node.bytes)).collect::<Vec<_>>();
        assert_eq!(bytes(&counted), bytes(&whole));
    }

    #[test]
    fn an_index_is_counted_in_steps_as_at_once() {
        IndexKind::ALL.into_iter().for_each(count_in_steps);
    }

    #[test]
    fn the_largest_value_is_stored_and_a_larger_one_refused() {
        for (url, kind) in
            [("mem:8M", IndexKind::Quiver), ("mem:64M", IndexKind::Dart), ("mem:64M", IndexKind::Quiver)]
        {
            let store = Store::options().index(kind).open(url).unwrap();
            let (session, most) = (store.session().unwrap(), store.max_value_bytes());
            for key in ["", "a key"] {
                let value = vec![7; most - key.len()];
                session.put(key, &value).unwrap();
                assert_eq!(session.get(key).unwrap().unwrap(), value, "{url}");
                let error = session.put(key, vec![7; value.len() + 1]).unwrap_err();
                assert!(error.is_too_long() && error.is_unsent(), "{error}");
            }
        }
    }

    #[test]
    fn a_store_that_cannot_be_opened_again_says_so() {
        let store = Store::open("mem:16M").unwrap();
        assert!(!store.is_shut_out());
        assert!(store.reopen().unwrap_err().to_string().contains("always new"));
    }

    #[test]
    fn searches_of_dart_are_sampled() {
        let store = with_keys(IndexKind::Dart);
        let session = store.session().unwrap();
        let before = store.index().samples();
        for number in 0..6_400 {
            session.get(key(number)).unwrap();
        }
        let after = store.index().samples();
        let (searches, express) = (after.searches - before.searches, after.express - before.express);
        assert!(searches >= 99, "one of 64: {searches}");
        assert!(express * 2 > searches && express <= searches, "{express} of {searches} led past the root");
    }
}
