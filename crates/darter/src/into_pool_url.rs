//! The forms of a pool's name that open a store.

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
