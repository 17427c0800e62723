//! The provider without a network: memory nodes are regions of one mapping, verbs are loads, stores
//! and atomics.
//!
//! [`Local::memory`] keeps the pool in this process. [`Local::file_create`] and
//! [`Local::file_open`] keep it in a file that any number of processes map; `/dev/shm` makes that
//! shared memory, a DAX device makes it CXL or persistent memory; with [`FileOptions::flush`] the
//! writes of a batch are on that medium when it completes (`flush/`). In both, region `i` lies at
//! `i * bytes_per_node`:
//!
//! ```text
//! 0                bytes_per_node     2 * bytes_per_node          nodes * bytes_per_node
//! +----------------+------------------+---- ... ------------------+
//! | region, node 0 | region, node 1   |                           |
//! +----------------+------------------+---- ... ------------------+
//! ```
//!
//! All futures of this provider are ready at once. When they return, their verbs have completed and
//! are visible to all clients.
//!
//! A client proves that it is alive by holding a lock that the kernel releases when the process
//! ends for any reason (`identity.rs`); nothing here relies on a clock.

mod bus_error;
mod endpoint;
mod file;
mod flush;
#[cfg(feature = "tcp")]
mod frames;
mod identity;
mod mapping;
mod memory;
mod notes;
mod order;
mod snapshot;
mod stamp;

pub use bus_error::exit_on_bus_error;
pub use endpoint::LocalEndpoint;
pub use file::{FileOptions, Space};
pub use flush::Persistence;
#[cfg(feature = "tcp")]
pub use frames::FrameObserver;
#[cfg(feature = "checker")]
pub use memory::hook;
pub use memory::{Memory, Words};

use crate::call::NodeProcedures;
use crate::files::{Draft, Sharing};
use crate::fork;
use crate::{
    Capabilities, Durability, Fabric, FabricError, FenceOutcome, GlobalAddr, Identity, Membership,
    Procedures, Suspect,
};
use crate::{NODES_MAX, OFFSET_LIMIT, SUPERBLOCK_BYTES};
use endpoint::Regions;
use file::{Opened, PoolFile};
use flush::{Flushing, TABLE_BYTES};
use identity::{FileIdentity, MemoryIdentities};
use mapping::Mapping;
use snapshot::Snapshot;
use stamp::Stamp;
use std::path::Path;
use std::sync::Arc;
#[cfg(feature = "tcp")]
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Memory nodes in this process's memory or in a mapped file. Clones reach the same pool.
#[derive(Clone, Debug)]
pub struct Local {
    pool: Arc<LocalPool>,
    /// The procedures that can be called through this handle and its clones.
    procedures: NodeProcedures,
}

/// State shared by clones and endpoints. The memory lives until the last of them is dropped.
#[derive(Debug)]
struct LocalPool {
    /// Dropped first: unmapped before the file's lock is released.
    regions: Regions,
    source: Source,
    /// When it was opened, for [`fork::check`].
    forks: u32,
    /// Whether the memory ends with this process, and is trusted to hold what was written.
    is_transient: bool,
    /// How words are made durable, if it is persistent memory.
    flushing: Option<Flushing>,
}

/// Where the regions are kept, with the client slots claimed there.
#[derive(Debug)]
enum Source {
    Memory(MemoryIdentities),
    File(PoolFile),
    Snapshot(Snapshot),
}

impl Local {
    /// Returns a pool of `nodes` regions of `bytes_per_node` zero bytes each, in this process's
    /// memory. Memory is taken from the system only when it is accessed.
    ///
    /// # Errors
    /// [`FabricError::Geometry`] if the shape is impossible: `nodes` outside 1 to 256,
    /// `bytes_per_node` not a multiple of 4 KiB, zero or above 1 TiB, or more than this process can
    /// address.
    pub fn memory(bytes_per_node: u64, nodes: usize) -> Result<Self, FabricError> {
        let bytes = total_bytes(bytes_per_node, nodes)?;
        let mapping = Mapping::anonymous(bytes)?;
        Ok(Self::over(mapping, bytes_per_node, nodes, Source::Memory(MemoryIdentities::default())))
    }

    /// [`Local::memory`] that is treated as a medium, which can damage what it holds: clients that
    /// load its words verify them. For tests.
    ///
    /// # Errors
    /// Fails as [`Local::memory`] does.
    pub fn memory_as_medium(bytes_per_node: u64, nodes: usize) -> Result<Self, FabricError> {
        let mut memory = Self::memory(bytes_per_node, nodes)?;
        if let Some(pool) = Arc::get_mut(&mut memory.pool) {
            pool.is_transient = false;
        }
        Ok(memory)
    }

    /// [`Local::memory`] that is treated as persistent memory with caches: `persistence` is called
    /// for every line that clients flush, and for every fence. For tests and for counting.
    ///
    /// # Errors
    /// Fails as [`Local::memory`] does.
    pub fn memory_flushed(
        bytes_per_node: u64,
        nodes: usize,
        persistence: Arc<dyn Persistence>,
    ) -> Result<Self, FabricError> {
        let bytes = total_bytes(bytes_per_node, nodes)?;
        let mapping = Mapping::anonymous(bytes + TABLE_BYTES)?;
        let source = Source::Memory(MemoryIdentities::default());
        let flushing = Flushing::new(persistence, bytes);
        Ok(Self::flushed(mapping, bytes_per_node, nodes, source, Some(flushing)))
    }

    /// [`Local::memory`] in huge pages of 2 MiB that the system's operator has reserved, all of
    /// them taken at once.
    ///
    /// # Errors
    /// Fails as [`Local::memory`] does, and if the total is not a multiple of 2 MiB or the system
    /// has too few such pages.
    pub fn memory_reserved(bytes_per_node: u64, nodes: usize) -> Result<Self, FabricError> {
        let mapping = Mapping::reserved(total_bytes(bytes_per_node, nodes)?)?;
        Ok(Self::over(mapping, bytes_per_node, nodes, Source::Memory(MemoryIdentities::default())))
    }

    /// Returns one region of `bytes` bytes in a file that is exclusive to this process, for a
    /// memory node to serve. The file is created, with the permissions of `sharing`, if it is
    /// absent or empty. Otherwise it must have exactly this size, and its contents are kept. Also
    /// returns whether it is new.
    ///
    /// # Errors
    /// [`FabricError::Geometry`] as for [`Local::memory`], and if the file has another size or is
    /// in use; [`FabricError::DiskFull`] if its file system has no room for it; [`FabricError::Io`]
    /// if the system refuses.
    pub fn file_region(
        path: impl AsRef<Path>,
        bytes: u64,
        space: Space,
        sharing: &Sharing,
    ) -> Result<(Self, bool), FabricError> {
        let total = total_bytes(bytes, 1)?;
        let (file, mapping, is_new) = PoolFile::region(path.as_ref(), total, space, sharing)?;
        Ok((Self::over(mapping, bytes, 1, Source::File(file)), is_new))
    }

    /// Creates a pool file of `nodes` regions of `bytes_per_node` zero bytes each, and reserves its
    /// disk space. If the file system cannot reserve it, [`Fabric::notes`] warns if there is less
    /// than the pool may need.
    ///
    /// # Errors
    /// [`FabricError::Geometry`] as for [`Local::memory`], and if the file exists and is not empty,
    /// is in use, or is a device too small; [`FabricError::DiskFull`] if its file system has no
    /// room for it; [`FabricError::Io`] if the file is another user's or the system refuses.
    pub fn file_create(
        path: impl AsRef<Path>,
        bytes_per_node: u64,
        nodes: usize,
    ) -> Result<Self, FabricError> {
        Self::file_create_with(path, bytes_per_node, nodes, &FileOptions::default())
    }

    /// [`Local::file_create`] with options for old contents and disk space.
    ///
    /// # Errors
    /// Fails as [`Local::file_create`] does.
    pub fn file_create_with(
        path: impl AsRef<Path>,
        bytes_per_node: u64,
        nodes: usize,
        options: &FileOptions,
    ) -> Result<Self, FabricError> {
        let open = || PoolFile::to_fill(path.as_ref(), &options.sharing);
        Self::file_fill(open, bytes_per_node, nodes, options)
    }

    /// [`Local::file_create_with`] in a file that does not have its name yet.
    ///
    /// # Errors
    /// Fails as [`Local::file_create`] does.
    pub fn file_create_in(
        draft: &Draft,
        bytes_per_node: u64,
        nodes: usize,
        options: &FileOptions,
    ) -> Result<Self, FabricError> {
        Self::file_fill(|| PoolFile::of_draft(draft), bytes_per_node, nodes, options)
    }

    fn file_fill(
        open: impl FnOnce() -> Result<PoolFile, FabricError>,
        bytes_per_node: u64,
        nodes: usize,
        options: &FileOptions,
    ) -> Result<Self, FabricError> {
        let bytes = total_bytes(bytes_per_node, nodes)?;
        if options.flush {
            flush::require()?;
        }
        let (file, mapping) = open()?.fill(bytes, options)?;
        let flushing = options.flush.then(|| Flushing::of_file(file.description(), &mapping, bytes));
        if let Some(flushing) = &flushing {
            flushing.mark(&mapping, file.is_device());
        }
        Ok(Self::flushed(mapping, bytes_per_node, nodes, Source::File(file), flushing))
    }

    /// Returns whether a path leads to a DAX device that is empty at its beginning, where a pool
    /// has its superblock: creating a pool there destroys nothing.
    ///
    /// # Errors
    /// [`FabricError::Io`] if the system refuses; [`FabricError::Geometry`] if a device does not
    /// report its size.
    pub fn is_blank_device(path: impl AsRef<Path>) -> Result<bool, FabricError> {
        PoolFile::is_blank_device(path.as_ref())
    }

    /// Opens a pool file, and reads its shape from its superblock. Nothing is written.
    ///
    /// # Errors
    /// [`FabricError::Geometry`] if the file is empty, truncated, not a pool, or of an impossible
    /// shape; [`FabricError::Io`] if the system refuses.
    pub fn file_open(path: impl AsRef<Path>) -> Result<Self, FabricError> {
        let Opened { file, mapping, bytes_per_node, nodes } = PoolFile::open(path.as_ref(), false)?;
        Ok(Self::over(mapping, bytes_per_node, nodes, Source::File(file)))
    }

    /// [`Local::file_open`] for a file that was created with [`FileOptions::flush`]: a batch
    /// completes when all that it wrote and read is on the medium.
    ///
    /// # Errors
    /// Fails as [`Local::file_open`] does; with [`FabricError::Geometry`] if the file was not
    /// created with that option, does not lie in persistent memory, or the processor's instructions
    /// are unknown.
    pub fn file_open_flushed(path: impl AsRef<Path>) -> Result<Self, FabricError> {
        flush::require()?;
        let Opened { file, mapping, bytes_per_node, nodes } = PoolFile::open(path.as_ref(), true)?;
        let bytes = mapping.words().len() * 8 - TABLE_BYTES;
        let flushing = Flushing::of_file(file.description(), &mapping, bytes);
        Ok(Self::flushed(mapping, bytes_per_node, nodes, Source::File(file), Some(flushing)))
    }

    /// Opens a snapshot of a pool file without write permission: writes stay in this process and
    /// end with it. [`Fabric::verify`] reports whether the file has changed since.
    ///
    /// # Errors
    /// Fails as [`Local::file_open`] does, and if another process has the file open.
    pub fn file_snapshot(path: impl AsRef<Path>) -> Result<Self, FabricError> {
        let Opened { file, mapping, bytes_per_node, nodes } = PoolFile::open_snapshot(path.as_ref())?;
        Ok(Self::over(mapping, bytes_per_node, nodes, Source::Snapshot(Snapshot::of(file)?)))
    }

    fn over(mapping: Mapping, bytes_per_node: u64, nodes: usize, source: Source) -> Self {
        Self::flushed(mapping, bytes_per_node, nodes, source, None)
    }

    fn flushed(
        mapping: Mapping,
        bytes_per_node: u64,
        nodes: usize,
        source: Source,
        flushing: Option<Flushing>,
    ) -> Self {
        let regions = Regions::new(mapping, bytes_per_node, nodes);
        let is_transient = matches!(source, Source::Memory(_));
        let pool = Arc::new(LocalPool { regions, source, forks: fork::watch(), is_transient, flushing });
        Self { pool, procedures: NodeProcedures::default() }
    }

    /// Returns the same pool with procedures at a node, which endpoints of the returned handle and
    /// its clones can call: they run in the calling task.
    ///
    /// # Errors
    /// [`FabricError::OutOfBounds`] if the node does not exist.
    pub fn with_procedures(&self, node: u8, procedures: Procedures) -> Result<Self, FabricError> {
        if usize::from(node) >= self.nodes() {
            return Err(FabricError::out_of_bounds(GlobalAddr::new(node, 0), 0, 0));
        }
        let mut served = self.clone();
        served.procedures.set(node, procedures);
        Ok(served)
    }

    /// Fails if the pool's file belongs to another user, lies in a folder that every user can write
    /// to, such as `/tmp`, and does not belong to the group that `sharing` names. For a pool that
    /// would have been created if it did not exist: another user must not get its data by creating
    /// the file first.
    ///
    /// # Errors
    /// [`FabricError::Io`] in that case, and if the system refuses to report it.
    pub fn check_found(&self, sharing: &Sharing) -> Result<(), FabricError> {
        match &self.pool.source {
            Source::File(file) if !file.is_device() => file.check_found(sharing),
            _ => Ok(()),
        }
    }

    /// Returns whether the pool's file is a copy: it was last opened in another file, whose
    /// contents it has. Copies are not detected on file systems that may renumber files.
    pub fn is_copy(&self) -> bool {
        let (Source::File(file) | Source::Snapshot(Snapshot { file, .. })) = &self.pool.source else {
            return false;
        };
        match (Stamp::of(file), Stamp::read(self.pool.regions.mapping())) {
            (Some(own), Some(found)) => !own.is_same_file(found),
            _ => false,
        }
    }

    /// Returns the inode number of the pool's file and the time of its creation in nanoseconds
    /// since 1970, which distinguish it from its copies. Returns `None` for memory, and if the file
    /// system may renumber files.
    pub fn file_numbers(&self) -> Option<[u64; 2]> {
        match &self.pool.source {
            Source::File(file) => Stamp::of(file).map(Stamp::numbers),
            _ => None,
        }
    }

    /// Records in the pool that it is opened in this file, so that the file no longer counts as a
    /// copy.
    ///
    /// # Errors
    /// [`FabricError::Io`] if the system refuses to write it back.
    pub fn adopt_file(&self) -> Result<(), FabricError> {
        let Source::File(file) = &self.pool.source else { return Ok(()) };
        let mapping = self.pool.regions.mapping();
        match Stamp::of(file) {
            Some(own) if Stamp::read(mapping) != Some(own) => own.write(mapping, file),
            _ => Ok(()),
        }
    }

    /// Returns a warning if the pool's file does not occupy all of its space yet, and its file
    /// system has less free space than the remainder: a process that finds it full ends
    /// ([`exit_on_bus_error`]).
    pub fn missing_space(&self) -> Option<String> {
        match &self.pool.source {
            Source::Memory(_) | Source::Snapshot(_) => None,
            Source::File(file) => {
                notes::missing_space(file, self.pool.regions.mapping().words().len() as u64 * 8)
            }
        }
    }

    /// Returns the pool's file; `None` for memory.
    pub fn path(&self) -> Option<&Path> {
        match &self.pool.source {
            Source::Memory(_) => None,
            Source::File(file) => Some(file.path()),
            Source::Snapshot(snapshot) => Some(snapshot.file().path()),
        }
    }
}

#[cfg(feature = "tcp")]
impl Local {
    /// Returns the words of all regions.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.pool.regions.mapping().words()
    }

    /// Checks that a device can pin the memory.
    ///
    /// # Errors
    /// Fails if it is an ordinary file, whose pages the system writes back and reclaims.
    pub(crate) fn check_pinnable(&self) -> Result<(), FabricError> {
        if self.pool.flushing.is_some() {
            return Err(FabricError::geometry(
                "an RDMA device bypasses the flushes of `durability=flush`; use a pool without it",
            ));
        }
        let is_pinnable = match &self.pool.source {
            Source::Memory(_) => true,
            Source::File(file) => file.is_memory()?,
            Source::Snapshot(_) => false,
        };
        if is_pinnable {
            return Ok(());
        }
        Err(FabricError::geometry(
            "an RDMA device cannot pin an ordinary file; keep the region in memory, in huge pages, in a file in \
             /dev/shm, or on a DAX device",
        ))
    }
}

/// Returns the total size of all regions in bytes, if such a pool is possible.
fn total_bytes(bytes_per_node: u64, nodes: usize) -> Result<usize, FabricError> {
    if !(1..=NODES_MAX).contains(&nodes) {
        return Err(FabricError::geometry(format!("{nodes} memory nodes; a pool has 1 to {NODES_MAX}")));
    }
    let whole = bytes_per_node.is_multiple_of(SUPERBLOCK_BYTES);
    if !whole || !(SUPERBLOCK_BYTES..=OFFSET_LIMIT).contains(&bytes_per_node) {
        return Err(FabricError::geometry(format!(
            "{bytes_per_node} bytes for each memory node; choose a multiple of {SUPERBLOCK_BYTES}, 1 TiB at most"
        )));
    }
    // At most 2^8 * 2^40, which fits.
    Ok(bytes_per_node as usize * nodes)
}

/// Returns the free bytes of a file system.
fn free_bytes(report: &libc::statfs) -> u64 {
    report.f_bavail.saturating_mul(u64::try_from(report.f_bsize).unwrap_or(0))
}

impl Membership for Local {
    fn claim(&self, slot: u32) -> Result<Box<dyn Identity>, FabricError> {
        fork::check(self.pool.forks)?;
        match &self.pool.source {
            Source::Memory(identities) => Ok(Box::new(identities.claim(slot)?)),
            Source::File(file) => Ok(Box::new(FileIdentity::claim(file, slot)?)),
            Source::Snapshot(snapshot) => Ok(Box::new(snapshot.identities.claim(slot)?)),
        }
    }

    fn fence(&self, suspect: Suspect) -> Result<FenceOutcome, FabricError> {
        fork::check(self.pool.forks)?;
        match &self.pool.source {
            Source::Memory(identities) => Ok(identities.fence(suspect.slot)),
            Source::File(file) => FileIdentity::fence(file, suspect.slot),
            // No other process had the file open, so all other clients are dead.
            Source::Snapshot(snapshot) => Ok(snapshot.identities.fence(suspect.slot)),
        }
    }
}

impl Fabric for Local {
    type Endpoint = LocalEndpoint;

    fn endpoint(&self) -> Result<LocalEndpoint, FabricError> {
        fork::check(self.pool.forks)?;
        Ok(LocalEndpoint::new(Arc::clone(&self.pool), self.procedures.clone()))
    }

    #[inline]
    fn nodes(&self) -> usize {
        self.pool.regions.nodes()
    }

    #[inline]
    fn node_bytes(&self, node: u8) -> u64 {
        if usize::from(node) < self.nodes() { self.pool.regions.node_bytes() } else { 0 }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered_batches: true,
            pure_cas: true,
            global_atomics: true,
            on_chip_bytes: 0,
            persistent: matches!(self.pool.source, Source::File(_)),
            durability: match self.pool.flushing {
                Some(_) => Durability::OnCompletion,
                None => Durability::Never,
            },
            inline_bytes: u32::MAX,
            calls: true,
            reads_only: false,
            failover: Duration::ZERO,
        }
    }

    fn notes(&self) -> Vec<String> {
        let file = match &self.pool.source {
            Source::Memory(_) => None,
            Source::File(file) => Some(file),
            Source::Snapshot(_) => {
                return vec!["this is a snapshot of the file: writes are not kept".to_owned()];
            }
        };
        notes::collect(self.pool.regions.mapping(), file)
    }

    fn verify(&self) -> Result<(), FabricError> {
        fork::check(self.pool.forks)?;
        match &self.pool.source {
            Source::Memory(_) | Source::File(_) => Ok(()),
            Source::Snapshot(snapshot) => snapshot.verify(),
        }
    }

    fn persist(&self) -> Result<(), FabricError> {
        match &self.pool.source {
            Source::Memory(_) | Source::Snapshot(_) => Ok(()),
            Source::File(file) => self
                .pool
                .regions
                .mapping()
                .write_back()
                .map_err(|source| file.error("write it back to its medium", source)),
        }
    }
}
