//! Opening a store by its pool's name.

use crate::into_pool_url::IntoPoolUrl;
use crate::{AsyncStore, Error, Store, StoreOptions, blocking, engine};

impl Store {
    /// Opens the pool that `url` names with default options; see [`StoreOptions::open`].
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// let store = darter::Store::open("mem:64M")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`StoreOptions::open`] does.
    pub fn open(url: impl IntoPoolUrl) -> Result<Self, Error> {
        Self::options().open(url)
    }

    /// Returns the default options, to change them and open a store with them.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// let store = darter::Store::options().cache_bytes(8 << 20).open("mem:64M")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn options() -> StoreOptions {
        StoreOptions::default()
    }
}

impl StoreOptions {
    /// Opens the pool that `url` names. By default, a pool is created if the name is `mem:`, or if
    /// the file is absent or empty and the name has `?size=`. An existing pool keeps its size.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// let options = darter::Store::options().cache_bytes(8 << 20);
    /// let (first, second) = (options.open("mem:16M")?, options.open("mem:16M")?);
    /// first.put("pear", "green")?;
    /// assert!(second.is_empty()?, "each `mem:` pool is new");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the name is malformed, the pool does not exist and may not be created, the pool is
    /// damaged, its memory does not match the options, or the system refuses the memory or the file.
    pub fn open(&self, url: impl IntoPoolUrl) -> Result<Store, Error> {
        engine::open_as(self, &url.into_pool_url()?, self.index, std::convert::identity)
    }

    /// As [`StoreOptions::open`], for tasks. A separate thread connects and maps memory, which
    /// blocks.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// let store = darter::Store::options().cache_bytes(8 << 20).open_async("mem:16M").await?;
    /// store.put("pear", "green").await?;
    /// assert!(store.contains_key("pear").await?);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`StoreOptions::open`] does.
    pub async fn open_async(&self, url: impl IntoPoolUrl) -> Result<AsyncStore, Error> {
        let (options, url) = (self.clone(), url.into_pool_url()?);
        blocking::on_a_thread(move || options.open(url)).await.map(AsyncStore::from)
    }
}
