//! An open pool with its index, shared by every session of the process.

use crate::inspect::{self, Check, Stats};
use crate::key_space::KeySpace;
use crate::link::{Link, Repeat, attempted};
use crate::membership::{Membership, Reopen};
use crate::open_index::OpenIndex;
use crate::worker::Worker;
use crate::workers::Workers;
use crate::{AsyncSession, Error, Session, StoreOptions};
use darter_fabric::{Fabric, PoolUrl, block_on};
use darter_index::{AdjustReport, IncrementalStats, IndexStats, TreeView};
use darter_pool::PoolUsage;
use std::sync::Arc;
use std::time::Duration;

/// Number of threads whose idle workers a store keeps separate.
const SLOTS: usize = 16;

/// An ordered key-value map in a memory pool. Clones are the same store.
///
/// The calls of a store work from any thread. Each borrows a connection to the pool for one
/// operation; a [`Session`] has its own. [`AsyncStore`](crate::AsyncStore) has the same calls as
/// futures.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// let store = darter::Store::open("mem:64M")?; // or file:/dev/shm/fruit.pool?size=64M
/// store.put("pear", "green")?;
/// assert_eq!(store.get("pear")?.as_deref(), Some(&b"green"[..]));
/// assert_eq!(store.remove("pear")?, Some(b"green".to_vec()));
/// # Ok(())
/// # }
/// ```
///
/// When the last clone, session and range of a store are dropped, its threads end and the pool is
/// closed. This takes up to a second if other processes hold back freed memory, and a few seconds
/// if a memory group cannot be reached. A process that ends without closing the pool, by any
/// signal, does no harm: other processes detect its death and go on.
#[derive(Clone)]
pub struct Store {
    workers: Arc<Workers>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let url = self.url().map(ToString::to_string);
        f.debug_struct("Store").field("url", &url).finish_non_exhaustive()
    }
}

impl Store {
    pub(crate) fn over(
        open: OpenIndex,
        options: &StoreOptions,
        url: Option<PoolUrl>,
        reopen: Option<Reopen>,
    ) -> Result<Self, Error> {
        let membership = Membership::new(open, options, url, reopen)?;
        Ok(Self { workers: Arc::new(Workers::new(membership, KeySpace::Program, SLOTS)) })
    }

    /// Returns whether the pool has ended this store's membership, as far as the store has
    /// detected, and the store has not joined the pool again yet; see [`Error::is_shut_out`]. Needs
    /// no round trip.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// assert!(!store.is_shut_out());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_shut_out(&self) -> bool {
        self.membership().current().open.is_shut_out()
    }

    pub(crate) fn membership(&self) -> &Arc<Membership> {
        self.workers.membership()
    }

    pub(crate) fn workers(&self) -> &Workers {
        &self.workers
    }

    /// Runs an operation with a worker that no other thread uses.
    #[inline]
    pub(crate) fn run<R>(&self, operation: impl FnOnce(&mut Worker) -> Result<R, Error>) -> Result<R, Error> {
        operation(&mut *self.workers.lease()?)
    }

    /// Returns the number of times that the store has joined its pool again since it was opened.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// assert_eq!(store.joins(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn joins(&self) -> u64 {
        self.membership().joins()
    }

    /// Returns the length in bytes of the largest value that this pool can store, under an empty
    /// key; a key of `n` bytes leaves `n` bytes less. It depends on the pool's blocks: about
    /// 0.9 of `PoolOptions::block_bytes`, or of a 64th of the smallest memory node (from 2 to
    /// 16 MiB).
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// let value = vec![7; store.max_value_bytes()];
    /// store.put("", &value)?;
    /// assert!(store.put("a", &value).unwrap_err().is_too_long());
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_value_bytes(&self) -> usize {
        darter_index::value_bytes_max(self.membership().current().open.pool.object_bytes_max())
    }

    /// Opens a session for one thread; its calls block.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// std::thread::scope(|scope| {
    ///     for thread in [1, 2] {
    ///         let session = store.session()?;
    ///         scope.spawn(move || session.put([thread], "value").expect("a write"));
    ///     }
    ///     Ok::<_, darter::Error>(())
    /// })?;
    /// assert_eq!(store.range(..).count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a memory node cannot be reached.
    pub fn session(&self) -> Result<Session, Error> {
        Session::open(self.membership(), KeySpace::Program)
    }

    /// Opens a session for one task: the same calls as futures, for any executor.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// let session = store.async_session()?;
    /// darter::block_on(session.put("pear", "green"))?;
    /// assert!(store.contains_key("pear")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a memory node cannot be reached.
    pub fn async_session(&self) -> Result<AsyncSession, Error> {
        AsyncSession::open(self.membership(), KeySpace::Program)
    }

    /// Returns counts and sizes, by a walk of the whole index.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// store.put_many(&[("pear", "green"), ("plum", "blue")])?;
    /// assert_eq!(store.stats()?.index.keys, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the pool is damaged or fails.
    pub fn stats(&self) -> Result<Stats, Error> {
        self.read(async |link| inspect::stats(&link.open, &mut link.client).await)
    }

    /// Returns how much of the pool each member uses. Cheap: it reads tables, not the index.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// let usage = store.usage()?;
    /// assert_eq!((usage.nodes.len(), usage.members.len()), (1, 1));
    /// assert!(usage.used_bytes() < usage.bytes());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the pool fails.
    pub fn usage(&self) -> Result<PoolUsage, Error> {
        self.read(async |link| {
            let pool = &link.open.pool;
            let mut usage = pool.usage(&mut link.client).await?;
            for node in &mut usage.nodes {
                node.replicas = pool.fabric().replica_groups().replicas(node.node);
            }
            Ok(usage)
        })
    }

    /// Walks index and pool, verifies every invariant, and counts leaked bytes. Operations of this
    /// process must pause during the call, or their uncommitted objects count as leaked; other
    /// processes may go on. The memory of dead processes is swept before, unless the store was
    /// opened without sweeps.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// store.put("pear", "green")?;
    /// let check = store.check()?;
    /// assert!(check.is_sound(), "{:?}", check.violations);
    /// assert_eq!((check.stats.keys, check.leaked_bytes), (1, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a walk cannot be completed. Violations are in the result instead.
    pub fn check(&self) -> Result<Check, Error> {
        self.read(async |link| {
            if let Some(sweeper) = &link.store.sweeper {
                sweeper.finish().await;
            }
            inspect::check(&link.open, &mut link.client).await
        })
    }

    /// Frees the memory left by dead processes, then checks. If an invariant is violated, only
    /// reports it.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// store.put("pear", "green")?;
    /// let repaired = store.repair()?;
    /// assert!(repaired.is_sound());
    /// assert_eq!(repaired.repaired_bytes, 0, "no process has died");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::check`] does. Memory that was not freed stays leaked; repair can be called
    /// again.
    pub fn repair(&self) -> Result<Check, Error> {
        self.read(async |link| {
            if let Some(sweeper) = &link.store.sweeper {
                sweeper.rest().await;
            }
            inspect::repair(&link.open, &mut link.client).await
        })
    }

    /// Makes everything stored so far survive a power failure, if the medium can.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("pool");
    /// # let name = format!("file:{}?size=16M", path.display());
    /// let store = darter::Store::open(&name)?;
    /// store.put("pear", "green")?;
    /// store.persist()?; // returns when the file's contents are on its device
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the medium refuses.
    pub fn persist(&self) -> Result<(), Error> {
        Ok(self.membership().current().open.pool.fabric().persist()?)
    }

    /// Verifies that everything read so far belongs to one state of the pool. This can fail only if
    /// the store was opened with [`read_only`](crate::StoreOptions::read_only).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("pool");
    /// # let name = format!("file:{}?size=16M", path.display());
    /// # darter::Store::open(&name)?.put("pear", "green")?;
    /// let snapshot = darter::Store::options().read_only(true).open(&name)?;
    /// let pear = snapshot.get("pear")?;
    /// snapshot.verify()?; // no other process has opened the file
    /// assert_eq!(pear.as_deref(), Some(&b"green"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if another process has opened the file since: read again.
    pub fn verify(&self) -> Result<(), Error> {
        Ok(self.membership().current().open.pool.fabric().verify()?)
    }

    /// Adds the memory node at `address` (`host:port`) to a pool of memory nodes, for every process
    /// that has it open, and waits up to `patience` until all of them use it. Returns the node's
    /// number and the number of members that do not reach it yet. Objects that exist stay where they
    /// are, until [`Store::rebalance`].
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), darter::Error> {
    /// let store = darter::Store::open("tcp://10.0.0.5:7411,10.0.0.6:7411")?;
    /// let (node, behind) = store.add_node("10.0.0.7:7411", Duration::from_secs(10))?;
    /// println!("node {node}; {behind} processes do not reach it yet");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the node cannot be reached, is too small or in a pool already, or if pools of this
    /// kind cannot grow. The pool is then unchanged.
    pub fn add_node(&self, address: &str, patience: Duration) -> Result<(u8, usize), Error> {
        let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        block_on(async {
            let link = &mut Link::open(self.membership())?;
            let adds =
                attempted!(link, Repeat::IfUnsent, link.open.pool.add_node(&mut link.client, address).await);
            let node = adds?;
            let behind = link.open.pool.await_nodes(&mut link.client, patience_ms).await?;
            Ok((node, behind.len()))
        })
    }

    /// Returns remarks for operators: huge pages not in use, failing upkeep, and the like.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// for note in store.notes() {
    ///     eprintln!("note: {note}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.membership().current().open.pool.fabric().notes();
        if self.is_shut_out() && self.membership().rejoins() {
            let why = self
                .membership()
                .failure()
                .map_or(String::new(), |why| format!("; the last attempt failed: {why}"));
            notes.push(format!(
                "the pool has ended this process's membership, and the store is trying to join it again{why}"
            ));
        }
        let trouble = self.membership().current().open.upkeep_trouble();
        notes.extend(trouble.map(|what| format!("upkeep failed and will be retried: {what}")));
        notes
    }

    /// Returns the pool's name, if it was opened by name.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// let store = darter::Store::open("mem:16M")?;
    /// assert_eq!(store.url(), Some(&"mem:16M".parse()?));
    /// # Ok(())
    /// # }
    /// ```
    pub fn url(&self) -> Option<&PoolUrl> {
        self.membership().url.as_ref()
    }

    /// Runs an operation that may be repeated, with a new client.
    fn read<R>(&self, mut operation: impl AsyncFnMut(&mut Link) -> Result<R, Error>) -> Result<R, Error> {
        block_on(async {
            let link = &mut Link::open(self.membership())?;
            attempted!(link, Repeat::Always, operation(link).await)
        })
    }

    /// Adjusts the prefix list to the accesses sampled so far (DART, section 3.1).
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// for number in 0..1000_u32 {
    ///     store.put(number.to_be_bytes(), "value")?;
    /// }
    /// let adjusted = store.adjust()?;
    /// assert!(adjusted.rebuilt || adjusted.before == adjusted.after);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the pool is full or fails; the old list is then kept. Fails if the index has none.
    pub fn adjust(&self) -> Result<AdjustReport, Error> {
        self.read(async |link| Ok(link.open.index.adjust(&mut link.client).await?))
    }

    /// Returns the top of the tree below `prefix`: at most `levels` levels, at most `width`
    /// children of a node.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// store.put_many(&[("pear", "green"), ("plum", "blue")])?;
    /// let top = store.tree(b"", 1, 10)?;
    /// println!("{} at {}, {} children", top.label, top.addr, top.children.len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the pool is damaged or fails, or if the index does not show its nodes.
    pub fn tree(&self, prefix: &[u8], levels: usize, width: usize) -> Result<TreeView, Error> {
        self.read(async |link| Ok(link.open.index.tree(&mut link.client, prefix, levels, width).await?))
    }

    /// Counts the next part of the index, a few thousand inner nodes; returns the sums after the
    /// last part. So a large index can be counted repeatedly while other operations run.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// store.put_many(&[("pear", "green"), ("plum", "blue")])?;
    /// let mut progress = darter::report::IncrementalStats::default();
    /// let stats = loop {
    ///     if let Some(stats) = store.count_some(&mut progress)? {
    ///         break stats;
    ///     }
    /// };
    /// assert_eq!(stats.keys, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::stats`] does; the next call counts the same part again.
    pub fn count_some(&self, progress: &mut IncrementalStats) -> Result<Option<IndexStats>, Error> {
        let open = Arc::clone(&self.membership().current().open);
        let mut client = open.pool.client()?;
        Ok(block_on(open.index.count_some(&mut client, progress))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IndexKind;
    use crate::engine::Engine;

    /// Spreads the keys, so that there are more inner nodes than one step counts.
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
        let (mut progress, mut steps) = (IncrementalStats::default(), 1);
        let counted = loop {
            if let Some(stats) = store.count_some(&mut progress).unwrap() {
                break stats;
            }
            assert!(progress.nodes() > 0);
            steps += 1;
        };
        assert!(steps > 1 && progress.nodes() == 0, "{steps} steps");
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
