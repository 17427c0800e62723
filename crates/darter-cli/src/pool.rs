//! The pool that a command works on.

use crate::Answer;
use crate::arguments::IndexArgs;
use crate::credentials::ClientArgs;
use crate::failure::{Failure, complain};
use crate::tables::bytes_text;
use darter::engine::{self, Engine};
use darter::{Error, PoolUrl, Scheme, Store, StoreOptions};
use darter_fabric::{Fabric, Provider, counted};
use std::fs::File;
use std::io::ErrorKind;

pub mod commands;

/// The pool to work on.
#[derive(clap::Args)]
pub(crate) struct PoolArgs {
    /// Pool: `file:PATH`, or `file:PATH?size=SIZE[&nodes=N]` to create it if absent, or
    /// `tcp://HOST:PORT,…`, or `rdma://HOST:PORT,…?device=DEVICE`
    #[arg(long, value_name = "URL", env = "DARTER_POOL")]
    pool: PoolUrl,
    #[command(flatten)]
    index: IndexArgs,
    #[command(flatten)]
    credentials: ClientArgs,
}

impl PoolArgs {
    /// Returns a pool as if named and opened by the options of that name.
    pub(crate) fn new(pool: PoolUrl, index: IndexArgs, credentials: ClientArgs) -> Self {
        Self { pool, index, credentials }
    }

    fn options(&self) -> Result<StoreOptions, Failure> {
        usable(&self.pool)?;
        self.credentials.store_options(&self.pool)
    }

    fn open(&self, options: StoreOptions) -> Result<Store, Failure> {
        Ok(self.index.open(options, &self.pool)?)
    }

    /// Opens an existing pool.
    pub(crate) fn existing(&self) -> Result<Store, Failure> {
        let store = self.open(self.options()?.create(false))?;
        self.remark(&store);
        Ok(store)
    }

    /// Opens an existing pool to repair it. A copy of an open pool is refused unless a snapshot of
    /// it is sound.
    pub(crate) fn to_repair(&self) -> Result<Store, Failure> {
        let options = self.options()?.create(false);
        let opened = self.index.open(options.clone(), &self.pool);
        let Err(refused @ Error::CopyOfOpen { .. }) = opened else { return Ok(opened?) };
        let options = options.accept_copy(true);
        let snapshot = self.index.open(engine::snapshot(options.clone()).maintenance(false), &self.pool);
        let found = snapshot.and_then(|snapshot| snapshot.repair());
        let check = found.map_err(|error| Failure::failed(format_args!("{refused}; it is not: {error}")))?;
        if let Some(violation) = check.violations.first() {
            let found = counted(check.violations.len() as u64, "violation");
            return Err(Failure::failed(format_args!("{refused}; it is not: {found}, such as: {violation}")));
        }
        complain("note: this copy of an open pool is sound, and is a separate pool from now on");
        self.open(options)
    }

    /// Opens an existing pool, lets a command read it, and checks whether the command read one
    /// state of the pool. If this user may not write the pool's file, reads a snapshot of it.
    pub(crate) fn read(
        &self,
        command: impl FnOnce(&Store) -> Result<Answer, Failure>,
    ) -> Result<Answer, Failure> {
        let store = if self.may_write() {
            self.existing()?
        } else {
            let store = self.open(self.options()?.create(false).read_only(true).maintenance(false))?;
            self.remark(&store);
            store
        };
        let answer = command(&store)?;
        store.verify()?;
        Ok(answer)
    }

    /// Returns whether this user may write the pool's file, if it is in one.
    fn may_write(&self) -> bool {
        let Scheme::File(path) = self.pool.scheme() else { return true };
        let refused = File::options().read(true).write(true).open(path).err().map(|error| error.kind());
        !matches!(refused, Some(ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem))
    }

    /// Opens a pool, or creates it if its URL has a size.
    pub(crate) fn open_or_create(&self) -> Result<Store, Failure> {
        self.open_or_create_with(self.options()?)
    }

    /// Opens or creates a pool for a gateway. A gateway keeps no state of a lost pool, so it also
    /// serves the pool that replaces it.
    pub(crate) fn open_to_serve(
        &self,
        limit: impl FnOnce(StoreOptions) -> StoreOptions,
    ) -> Result<Store, Failure> {
        self.open_or_create_with(limit(self.options()?.accept_new_pool(true)))
    }

    fn open_or_create_with(&self, options: StoreOptions) -> Result<Store, Failure> {
        let store = self.open(options)?;
        self.remark(&store);
        if *self.pool.scheme() == Scheme::Memory {
            complain("note: a `mem:` pool ends with this command; use `file:PATH?size=SIZE` to keep it");
        }
        Ok(store)
    }
}

impl PoolArgs {
    /// Warns about an open pool whose disk may fill up, or whose size differs from the size in its
    /// URL, which has an effect only when a pool is created.
    fn remark(&self, store: &Store) {
        warn_of_missing_space(store);
        let pool = store.pool();
        let fabric = pool.fabric();
        let (nodes, node_bytes) = (fabric.nodes(), fabric.node_bytes(0));
        if self.pool.node_bytes().is_some_and(|bytes| bytes != node_bytes) || self.pool.nodes() > nodes {
            let has = bytes_text(node_bytes * nodes as u64);
            complain(format_args!(
                "note: this pool exists already, with {has} in {}; `?size=` and `nodes=` have an effect only when a pool is \
                 created",
                counted(nodes as u64, "memory node")
            ));
        }
    }
}

/// Adds to the failure to open a pool of which memory nodes are lost that node 0 is needed.
pub(crate) fn without_first_node(failure: Failure) -> Failure {
    match failure {
        Failure::Failed(what) => Failure::failed(format_args!(
            "{what}; without memory node 0, which has the pool's members and root words, nothing of the pool can be read: \
             if it is lost, create a new pool and restore the last backup"
        )),
        other => other,
    }
}

/// Warns if a pool's file system has less free space than the pool may come to need.
fn warn_of_missing_space(store: &Store) {
    if let Provider::Local(local) = store.pool().fabric().inner()
        && let Some(warning) = local.missing_space()
    {
        complain(format_args!("warning: {warning}"));
    }
}

/// Checks that a pool's path is not a directory.
pub fn usable(pool: &PoolUrl) -> Result<(), Failure> {
    match pool.scheme() {
        Scheme::File(path) if path.is_dir() => Err(Failure::usage(format_args!(
            "{}: it is a directory; name a file in it, for example `file:{}`",
            path.display(),
            path.join("fruit.pool").display()
        ))),
        _ => Ok(()),
    }
}
