//! A store whose operations are futures.

use crate::inspect::{Check, Stats};
use crate::workers::{Lease, Workers};
use crate::{AsyncSession, Error, Store, blocking};
use darter_pool::PoolUsage;

/// A [`Store`] whose operations are futures, for any executor. Clones are the same store.
///
/// The operations of one store can be in progress at the same time, in one task or in many.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # darter::block_on(async {
/// let store = darter::AsyncStore::open("mem:16M").await?;
/// store.put("pear", "green").await?;
/// let mut pairs = store.range("a".."z");
/// while let Some(pair) = pairs.next().await {
///     let (key, value) = pair?;
///     println!("{} is {}", key.escape_ascii(), value.escape_ascii());
/// }
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AsyncStore(Store);

impl AsyncStore {
    /// Opens the pool that `url` names with default options. A separate thread connects and maps
    /// memory, which blocks.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// let store = darter::AsyncStore::open("mem:16M").await?;
    /// assert!(store.is_empty().await?);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::open`] does.
    pub async fn open(url: impl crate::IntoPoolUrl) -> Result<Self, Error> {
        Store::options().open_async(url).await
    }

    /// Opens a session for one task: the same operations, with its own connections and counts.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// let session = store.session()?;
    /// session.put("pear", "green").await?;
    /// assert!(store.contains_key("pear").await?, "the same keys");
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a memory node cannot be reached.
    pub fn session(&self) -> Result<AsyncSession, Error> {
        self.0.async_session()
    }

    /// Returns the same store for threads: its calls block.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// store.put("pear", "green").await?;
    /// let blocking = store.blocking().clone();
    /// let thread = std::thread::spawn(move || blocking.remove("pear"));
    /// assert_eq!(thread.join().unwrap()?, Some(b"green".to_vec()));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn blocking(&self) -> &Store {
        &self.0
    }

    /// As [`Store::stats`], in a separate thread.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// store.put("pear", "green").await?;
    /// assert_eq!(store.stats().await?.index.keys, 1);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::stats`] does.
    pub async fn stats(&self) -> Result<Stats, Error> {
        self.on_a_thread(Store::stats).await
    }

    /// As [`Store::usage`], in a separate thread.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// let usage = store.usage().await?;
    /// assert!(usage.used_bytes() < usage.bytes());
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::usage`] does.
    pub async fn usage(&self) -> Result<PoolUsage, Error> {
        self.on_a_thread(Store::usage).await
    }

    /// As [`Store::check`], in a separate thread.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// store.put("pear", "green").await?;
    /// assert!(store.check().await?.is_sound());
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::check`] does.
    pub async fn check(&self) -> Result<Check, Error> {
        self.on_a_thread(Store::check).await
    }

    /// As [`Store::repair`], in a separate thread.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// let repaired = store.repair().await?;
    /// assert!(repaired.is_sound() && repaired.repaired_bytes == 0);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::repair`] does.
    pub async fn repair(&self) -> Result<Check, Error> {
        self.on_a_thread(Store::repair).await
    }

    async fn on_a_thread<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        let store = self.0.clone();
        blocking::on_a_thread(move || work(&store)).await
    }

    pub(crate) fn workers(&self) -> &Workers {
        self.0.workers()
    }

    #[inline]
    pub(crate) fn worker(&self) -> Result<Lease<'_>, Error> {
        self.workers().lease()
    }
}

impl From<Store> for AsyncStore {
    fn from(store: Store) -> Self {
        Self(store)
    }
}

impl From<AsyncStore> for Store {
    fn from(store: AsyncStore) -> Self {
        store.0
    }
}
