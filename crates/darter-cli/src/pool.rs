//! The pool that a command works on.

use crate::failure::{Failure, complain};
use darter::{PoolUrl, Scheme, Store};

/// Which pool.
#[derive(clap::Args)]
pub(crate) struct PoolArgs {
    /// The pool: `file:PATH`, or `file:PATH?size=SIZE[&nodes=N]` to create it
    #[arg(long, value_name = "URL", env = "DARTER_POOL")]
    pool: PoolUrl,
}

impl PoolArgs {
    /// Opens a pool that must be there.
    pub(crate) fn existing(&self) -> Result<Store, Failure> {
        Ok(Store::options().must_exist(true).open_url(&self.pool)?)
    }

    /// Opens a pool, creating it when its name says how large.
    pub(crate) fn open_or_create(&self) -> Result<Store, Failure> {
        let store = Store::options().open_url(&self.pool)?;
        if *self.pool.scheme() == Scheme::Memory {
            complain("note: a `mem:` pool ends with this command; use `file:PATH?size=SIZE` to keep it");
        }
        Ok(store)
    }
}
