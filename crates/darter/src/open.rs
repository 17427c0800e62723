//! Opening stores: by a pool's name, or over a fabric that the program made.

use crate::membership::Reopen;
use crate::open_index::OpenIndex;
use crate::{DefaultFabric, Error, Store, StoreOptions, blocking, provision, store};
use darter_fabric::{Fabric, PoolUrl, block_on};
use darter_index::{AnyIndex, ErasedIndex, OrderedIndex};
use darter_pool::Pool;
use std::sync::Arc;

impl Store {
    /// Opens the pool that `url` names with default options; see [`StoreOptions::open`].
    ///
    /// # Errors
    /// Fails as [`StoreOptions::open`] does.
    pub fn open(url: &str) -> Result<Self, Error> {
        Self::options().open(url)
    }

    /// [`Store::open`] for tasks; see [`StoreOptions::open_async`].
    ///
    /// # Errors
    /// Fails as [`StoreOptions::open`] does.
    pub async fn open_async(url: &str) -> Result<Self, Error> {
        Self::options().open_async(url).await
    }

    /// Returns the default options, to be changed and then opened with.
    pub fn options() -> StoreOptions {
        StoreOptions::default()
    }
}

impl StoreOptions {
    /// Opens the pool that `url` names, creating it when it is `mem:`, or an absent or empty file
    /// with `?size=`. The size of an existing file stands, whatever the name says.
    ///
    /// # Errors
    /// Fails if the name is none, the pool is absent or damaged or no pool, it must be durable and
    /// is not, or the system refuses memory or the file.
    pub fn open(&self, url: &str) -> Result<Store, Error> {
        self.open_url(&url.parse()?)
    }

    /// [`StoreOptions::open`] for tasks: connecting and mapping block, so a thread of its own does
    /// that.
    ///
    /// # Errors
    /// Fails as [`StoreOptions::open`] does.
    pub async fn open_async(&self, url: &str) -> Result<Store, Error> {
        let (options, url) = (self.clone(), url.parse()?);
        blocking::on_a_thread(move || options.open_url(&url)).await
    }

    /// [`StoreOptions::open`] for a name already read.
    ///
    /// # Errors
    /// Fails as [`StoreOptions::open`] does.
    pub fn open_url(&self, url: &PoolUrl) -> Result<Store, Error> {
        self.open_with(url, self.index, std::convert::identity)
    }

    /// [`StoreOptions::open_url`] over another index, with options of its own in place of those here.
    ///
    /// # Errors
    /// Fails as [`StoreOptions::open`] does.
    pub fn open_url_over<I: OrderedIndex<DefaultFabric>>(
        &self,
        url: &PoolUrl,
        index: I::Options,
    ) -> Result<Store, Error> {
        self.open_with::<I>(url, index, other)
    }

    fn open_with<I: OrderedIndex<DefaultFabric>>(
        &self,
        url: &PoolUrl,
        index: I::Options,
        as_any: fn(I) -> AnyIndex<DefaultFabric>,
    ) -> Result<Store, Error> {
        let again: Reopen<DefaultFabric> = {
            let (options, url, index) = (self.existing(), url.clone(), index.clone());
            Arc::new(move || options.open_index(&url, index.clone(), as_any))
        };
        Store::over(self.open_index(url, index, as_any)?, self, Some(url.clone()), Some(again))
    }

    pub(crate) fn open_index<I: OrderedIndex<DefaultFabric>>(
        &self,
        url: &PoolUrl,
        index: I::Options,
        as_any: fn(I) -> AnyIndex<DefaultFabric>,
    ) -> Result<OpenIndex<DefaultFabric>, Error> {
        let pool = provision::open_or_create::<I>(url, self, &index)?;
        Ok(OpenIndex::new(as_any(store::index_of(&pool, self, index)?), pool))
    }

    /// Returns the same options for a pool that must be there already.
    fn existing(&self) -> Self {
        self.clone().must_exist(true).create(false).overwrite(false)
    }

    /// Opens the pool that `url` names, which must be there, with its fabric wrapped by `decorate`:
    /// for delays, records and failures of a real pool's verbs.
    ///
    /// # Errors
    /// Fails as [`StoreOptions::open`] does; fails for `mem:` pools, which are never there.
    pub fn open_decorated<F: Fabric>(
        &self,
        url: &PoolUrl,
        decorate: impl FnOnce(DefaultFabric) -> F,
    ) -> Result<Store<F>, Error> {
        self.open_decorated_with(url, decorate, self.index, std::convert::identity)
    }

    /// [`StoreOptions::open_decorated`] over another index, with options of its own in place of those
    /// here.
    ///
    /// # Errors
    /// Fails as [`StoreOptions::open_decorated`] does.
    pub fn open_decorated_over<F: Fabric, I: OrderedIndex<F>>(
        &self,
        url: &PoolUrl,
        decorate: impl FnOnce(DefaultFabric) -> F,
        index: I::Options,
    ) -> Result<Store<F>, Error> {
        self.open_decorated_with::<F, I>(url, decorate, index, other)
    }

    fn open_decorated_with<F: Fabric, I: OrderedIndex<F>>(
        &self,
        url: &PoolUrl,
        decorate: impl FnOnce(DefaultFabric) -> F,
        index: I::Options,
        as_any: fn(I) -> AnyIndex<F>,
    ) -> Result<Store<F>, Error> {
        let options = self.existing();
        let pool = provision::open_existing(url, &options, decorate)?;
        let index = as_any(store::index_of(&pool, &options, index)?);
        // The decorator is the program's, and may not be there twice.
        Store::over(OpenIndex::new(index, pool), &options, Some(url.clone()), None)
    }

    /// Makes a new pool over any fabric and opens it: for decorated and other providers.
    ///
    /// # Errors
    /// Fails if the fabric is too small or fails.
    pub fn create_on<F: Fabric>(&self, fabric: F) -> Result<Store<F>, Error> {
        let fabric = self.admit(&"of this fabric", fabric)?;
        self.over_fabric(block_on(Pool::create(fabric, &self.pool))?)
    }

    /// Opens the pool that a fabric holds: for decorated and other providers.
    ///
    /// # Errors
    /// Fails if it holds none, or a damaged one, or fails.
    pub fn open_on<F: Fabric>(&self, fabric: F) -> Result<Store<F>, Error> {
        let fabric = self.admit(&"of this fabric", fabric)?;
        self.over_fabric(block_on(Pool::open(fabric))?)
    }

    fn over_fabric<F: Fabric>(&self, pool: Pool<F>) -> Result<Store<F>, Error> {
        let index: AnyIndex<F> = store::index_of(&pool, self, self.index)?;
        Store::over(OpenIndex::new(index, pool), self, None, None)
    }
}

/// An index other than those that a store opens by itself.
fn other<F: Fabric, I: OrderedIndex<F>>(index: I) -> AnyIndex<F> {
    AnyIndex::Other(ErasedIndex::new(index))
}
