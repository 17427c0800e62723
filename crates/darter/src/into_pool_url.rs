//! The forms of a pool's name that open a store.

use darter_fabric::{PoolUrl, UrlError};

/// A pool's name: a string such as `mem:64M` or `file:/dev/shm/fruit.pool?size=64M`, or a
/// [`PoolUrl`].
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// use darter::{IntoPoolUrl, PoolUrl, Store};
///
/// fn open_empty(url: impl IntoPoolUrl) -> Result<Store, darter::Error> {
///     let store = Store::open(url)?;
///     store.clear()?;
///     Ok(store)
/// }
/// let url: PoolUrl = "mem:16M".parse()?;
/// open_empty(&url)?;
/// open_empty("mem:16M")?;
/// # Ok(())
/// # }
/// ```
pub trait IntoPoolUrl {
    /// Returns the name in its parsed form.
    ///
    /// ```
    /// use darter::IntoPoolUrl;
    ///
    /// assert_eq!("mem:16M".into_pool_url().unwrap().to_string(), "mem:16M");
    /// assert!("memory".into_pool_url().is_err());
    /// ```
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
