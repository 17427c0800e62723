//! Opening stores: by a pool's name, or over a fabric that the program made.

use crate::open_store::Reopen;
use crate::{DefaultFabric, Error, Store, StoreOptions, blocking, provision, store};
use darter_fabric::{Fabric, PoolUrl, block_on};
use darter_index::{AnyIndex, ErasedIndex, OrderedIndex};
use darter_pool::Pool;

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
        self.open_url_over(url, self.index)
    }

    /// [`StoreOptions::open_url`] over any index, with options of its own in place of those here.
    ///
    /// # Errors
    /// Fails as [`StoreOptions::open`] does.
    pub fn open_url_over<I: OrderedIndex<DefaultFabric>>(
        &self,
        url: &PoolUrl,
        index: I::Options,
    ) -> Result<Store<DefaultFabric, I>, Error> {
        let pool: Pool<DefaultFabric> = provision::open_or_create::<I>(url, self, &index)?;
        let again: Reopen<DefaultFabric, I> = {
            let (options, url, index) = (self.existing(), url.clone(), index.clone());
            Box::new(move || options.open_url_over(&url, index.clone()).map(Store::into_inner))
        };
        Store::over_pool(pool, self, index, Some((url.clone(), again)))
    }

    /// Returns the same options for a pool that must be there already.
    fn existing(&self) -> Self {
        self.clone().must_exist(true).create(false).overwrite(false)
    }

    /// [`StoreOptions::open_url_over`], with the index behind a pointer: for programs that are
    /// compiled once, over [`Store`] as it is, and are told at their start which index to work on.
    ///
    /// # Errors
    /// Fails as [`StoreOptions::open`] does.
    pub fn open_url_erased<I: OrderedIndex<DefaultFabric>>(
        &self,
        url: &PoolUrl,
        index: I::Options,
    ) -> Result<Store, Error> {
        let pool = provision::open_or_create::<I>(url, self, &index)?;
        let again: Reopen<DefaultFabric, AnyIndex<DefaultFabric>> = {
            let (options, url, index) = (self.existing(), url.clone(), index.clone());
            Box::new(move || options.open_url_erased::<I>(&url, index.clone()).map(Store::into_inner))
        };
        let index = store::index_of::<_, I>(&pool, self, index)?;
        let index = AnyIndex::Other(ErasedIndex::new(index));
        Store::over_index(pool, index, self, Some((url.clone(), again)))
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
        self.open_decorated_over(url, decorate, self.index)
    }

    /// [`StoreOptions::open_decorated`] over any index, with options of its own in place of those
    /// here.
    ///
    /// # Errors
    /// Fails as [`StoreOptions::open_decorated`] does.
    pub fn open_decorated_over<F: Fabric, I: OrderedIndex<F>>(
        &self,
        url: &PoolUrl,
        decorate: impl FnOnce(DefaultFabric) -> F,
        index: I::Options,
    ) -> Result<Store<F, I>, Error> {
        let options = self.existing();
        let pool = provision::open_existing(url, &options, decorate)?;
        // The decorator is the program's, and may not be there twice.
        let again: Reopen<F, I> = Box::new(|| Err(Error::NotNamed));
        Store::over_pool(pool, &options, index, Some((url.clone(), again)))
    }

    /// Makes a new pool over any fabric and opens it: for decorated and other providers.
    ///
    /// # Errors
    /// Fails if the fabric is too small or fails.
    pub fn create_on<F: Fabric>(&self, fabric: F) -> Result<Store<F>, Error> {
        let fabric = self.admit(&"of this fabric", fabric)?;
        Store::over_pool(block_on(Pool::create(fabric, &self.pool))?, self, self.index, None)
    }

    /// Opens the pool that a fabric holds: for decorated and other providers.
    ///
    /// # Errors
    /// Fails if it holds none, or a damaged one, or fails.
    pub fn open_on<F: Fabric>(&self, fabric: F) -> Result<Store<F>, Error> {
        let fabric = self.admit(&"of this fabric", fabric)?;
        Store::over_pool(block_on(Pool::open(fabric))?, self, self.index, None)
    }
}
