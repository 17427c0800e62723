//! An open pool with its index, shared by every session of the process.

use crate::open_index::OpenIndex;
use crate::open_store::OpenStore;
use crate::upkeep::Upkeep;
use crate::{AsyncSession, DefaultFabric, Error, Session, StoreOptions};
use darter_fabric::{Fabric, PoolUrl, block_on};
use darter_index::{AdjustReport, Dart, TreeView};
use darter_pool::Pool;
use std::sync::Arc;
use std::time::Duration;

/// An ordered key-value map in a memory pool. Clones are the same store.
///
/// When its last clone and session are dropped, the upkeep thread ends and the pool is closed
/// cleanly, which can take up to a second when other processes hold garbage back. A process that
/// ends without that, by any signal, does no harm: others notice its death and go on.
pub struct Store<F: Fabric = DefaultFabric> {
    inner: Arc<OpenStore<F>>,
}

impl<F: Fabric> Clone for Store<F> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<F: Fabric> std::fmt::Debug for Store<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let url = self.inner.url.as_ref().map(ToString::to_string);
        f.debug_struct("Store").field("url", &url).finish_non_exhaustive()
    }
}

impl<F: Fabric> Store<F> {
    pub(crate) fn over_pool(
        pool: Pool<F>,
        options: &StoreOptions,
        url: Option<PoolUrl>,
    ) -> Result<Self, Error> {
        let mut client = pool.client()?;
        let index = block_on(async {
            if options.must_exist {
                Dart::open(&mut client, options.index).await
            } else {
                Dart::open_or_create(&mut client, options.index).await
            }
        })?;
        drop(client);
        let open = Arc::new(OpenIndex::new(index, pool));
        let auto_adjust = options.auto_adjust;
        let upkeep = if options.maintenance {
            Some(Upkeep::start(Arc::clone(&open), auto_adjust, options.sweep)?)
        } else {
            None
        };
        Ok(Self { inner: Arc::new(OpenStore { upkeep, open, url, auto_adjust }) })
    }

    /// Opens a session for one thread: every call returns when its operation is done.
    ///
    /// # Errors
    /// Fails if a memory node cannot be reached.
    pub fn session(&self) -> Result<Session<F>, Error> {
        self.async_session().map(Session::new)
    }

    /// Opens a session for one task: the same calls as futures, for any executor.
    ///
    /// # Errors
    /// Fails if a memory node cannot be reached.
    pub fn async_session(&self) -> Result<AsyncSession<F>, Error> {
        let client = self.pool().client()?;
        Ok(AsyncSession::new(client, Arc::clone(&self.inner)))
    }

    /// Adjusts the prefix list to the accesses sampled so far (DART, section 3.1), now.
    ///
    /// # Errors
    /// Fails if the pool is full or fails; the old list then stands.
    pub fn adjust(&self) -> Result<AdjustReport, Error> {
        let mut client = self.pool().client()?;
        Ok(block_on(self.index().adjust(&mut client))?)
    }

    /// Returns the top of the tree below `prefix`: at most `levels` levels, at most `width`
    /// children of a node.
    ///
    /// # Errors
    /// Fails if the pool is damaged or fails.
    pub fn tree(&self, prefix: &[u8], levels: usize, width: usize) -> Result<TreeView, Error> {
        let mut client = self.pool().client()?;
        Ok(block_on(self.index().tree(&mut client, prefix, levels, width))?)
    }

    /// Makes everything stored so far survive a power failure, where the medium does.
    ///
    /// # Errors
    /// Fails if the medium refuses.
    pub fn persist(&self) -> Result<(), Error> {
        Ok(self.pool().fabric().persist()?)
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
    pub fn index(&self) -> &Dart<F> {
        &self.inner.open.index
    }

    pub(crate) fn open_index(&self) -> &OpenIndex<F> {
        &self.inner.open
    }

    /// Returns the pool itself.
    pub fn pool(&self) -> &Pool<F> {
        &self.inner.open.pool
    }
}
