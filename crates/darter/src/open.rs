//! Opening a store by its pool's name.

use crate::{AsyncStore, Error, Store, StoreOptions, blocking, engine};
use darter_fabric::{PoolUrl, UrlError};

/// A pool's name: a string such as `mem:64M` or `file:/dev/shm/fruit.pool?size=64M`, or a
/// [`PoolUrl`].
pub trait IntoPoolUrl {
    /// Returns the name in its parsed form.
    ///
    /// # Errors
    /// Fails if the name is malformed.
    fn into_pool_url(self) -> Result<PoolUrl, UrlError>;
}

impl IntoPoolUrl for &str {
    fn into_pool_url(self) -> Result<PoolUrl, UrlError> {
        self.parse()
    }
}

impl IntoPoolUrl for String {
    fn into_pool_url(self) -> Result<PoolUrl, UrlError> {
        self.parse()
    }
}

impl IntoPoolUrl for PoolUrl {
    fn into_pool_url(self) -> Result<PoolUrl, UrlError> {
        Ok(self)
    }
}

impl<U: IntoPoolUrl + Clone> IntoPoolUrl for &U {
    fn into_pool_url(self) -> Result<PoolUrl, UrlError> {
        self.clone().into_pool_url()
    }
}

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
    /// # Errors
    /// Fails if the name is malformed, the pool does not exist and may not be created, the pool is
    /// damaged, its memory does not match the options, or the system refuses the memory or the file.
    pub fn open(&self, url: impl IntoPoolUrl) -> Result<Store, Error> {
        engine::open_as(self, &url.into_pool_url()?, self.index, std::convert::identity)
    }

    /// As [`StoreOptions::open`], for tasks. A separate thread connects and maps memory, which
    /// blocks.
    ///
    /// # Errors
    /// Fails as [`StoreOptions::open`] does.
    pub async fn open_async(&self, url: impl IntoPoolUrl) -> Result<AsyncStore, Error> {
        let (options, url) = (self.clone(), url.into_pool_url()?);
        blocking::on_a_thread(move || options.open(url)).await.map(AsyncStore::from)
    }
}
