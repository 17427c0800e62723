//! The memory that a node serves: anonymous memory of its process, with or without a log on disk,
//! or a mapped file that outlives the process.

use crate::error::MemNodeError;
use crate::ledger::{Ledger, Remembered};
use crate::redo_log::{self, LogOptions, OpenLog, SessionFacts};
use darter_fabric::files::Sharing;
use darter_fabric::local::Space;
use darter_fabric::{Fabric, Local, random_word};
use darter_group::Logged;
use std::path::Path;

/// One region of memory, with its ledger and log.
#[derive(Debug)]
pub struct Region {
    pub(crate) memory: Local,
    pub(crate) ledger: Option<Ledger>,
    pub(crate) log: Option<OpenLog>,
    /// The state of the replica whose log it is.
    pub(crate) replica: Option<Logged>,
    pub(crate) remembered: Remembered,
}

/// How a region's file is opened or created.
#[derive(Clone, Debug, Default)]
pub struct FileRegionOptions {
    /// How disk space for the file is allocated.
    pub space: Space,
    /// The users that can access new files.
    pub sharing: Sharing,
    /// Opens a copy of a region whose node had not ended when it was copied; otherwise it is
    /// refused.
    pub accept_copy: bool,
}

impl Region {
    /// Allocates zeroed memory of this process, which the system provides as it is used. It ends
    /// with the process: a restarted node serves other memory, and clients of the old one detect
    /// it.
    ///
    /// # Errors
    /// Fails if the system refuses the size.
    pub fn memory(bytes: u64) -> Result<Self, MemNodeError> {
        Self::of(Local::memory(bytes, 1)?)
    }

    /// Allocates memory as [`Region::memory`] does, in huge pages of 2 MiB that the system has
    /// reserved.
    ///
    /// # Errors
    /// Fails if the size is not a multiple of 2 MiB, or too few pages are reserved.
    pub fn huge_pages(bytes: u64) -> Result<Self, MemNodeError> {
        Self::of(Local::memory_reserved(bytes, 1)?)
    }

    /// Serves a local fabric of one node that this process already has.
    ///
    /// # Errors
    /// Fails if the fabric has another number of nodes.
    pub fn of(memory: Local) -> Result<Self, MemNodeError> {
        if memory.nodes() != 1 {
            return Err(MemNodeError::Regions { nodes: memory.nodes() });
        }
        let remembered = Remembered { boot_id: random_word(), ..Remembered::default() };
        Ok(Self { memory, ledger: None, log: None, replica: None, remembered })
    }

    /// Keeps a log of the region in a directory, so that acknowledged writes survive the end of the
    /// process and a power failure: a node restarted with the same directory and size serves the
    /// same memory. The directory is created if it is absent. The region must be zeroed memory of
    /// this process.
    ///
    /// # Errors
    /// Fails if the region is a file, or the directory cannot be used, is in use, belongs to a
    /// region of another size, or was damaged.
    pub fn logged(self, directory: &Path, options: LogOptions) -> Result<Self, MemNodeError> {
        self.open_log(directory, options, false)
    }

    /// [`Region::logged`], for a replica of a memory group ([`crate::MemNodeOptions::group`]): what
    /// the group has acknowledged survives the end of all its replicas. If the log was damaged, the
    /// replica starts with an empty one, and copies the region of another replica; the damaged files
    /// are kept in `damaged-N` in the directory.
    ///
    /// # Errors
    /// Fails as [`Region::logged`] does, and if the directory has the log of a node that was not a
    /// replica.
    pub fn logged_replica(self, directory: &Path, options: LogOptions) -> Result<Self, MemNodeError> {
        self.open_log(directory, options, true)
    }

    fn open_log(self, directory: &Path, options: LogOptions, is_replica: bool) -> Result<Self, MemNodeError> {
        if self.memory.path().is_some() {
            return Err(MemNodeError::LogOptions {
                what: "a region in a file cannot have a log: the system would write the file back before the log",
            });
        }
        let (log, node) = redo_log::open(directory, &self.memory, options, is_replica)?;
        let SessionFacts { fenced, known, .. } = node.sessions;
        let (forgotten, replica) = (node.forgotten, node.replica);
        let remembered =
            Remembered { boot_id: node.boot_id, fenced, known, forgotten, ..Remembered::default() };
        Ok(Self { log: Some(log), replica, remembered, ..self })
    }

    /// Maps a file of this size, creating it if it does not exist, and reserves its disk space, so
    /// that a full disk cannot end the node later. In `….node` next to it, the node records the
    /// sessions that it has fenced. A node restarted with both files serves the same memory.
    ///
    /// # Errors
    /// Fails if a file has another size, is in use, belongs to another user, or is a copy made
    /// while a node served it; if its file system is full; or if the system refuses it.
    pub fn file(path: &Path, bytes: u64) -> Result<Self, MemNodeError> {
        Self::file_with(path, bytes, &FileRegionOptions::default())
    }

    /// [`Region::file`] with options.
    ///
    /// # Errors
    /// Fails as [`Region::file`] does.
    pub fn file_with(path: &Path, bytes: u64, options: &FileRegionOptions) -> Result<Self, MemNodeError> {
        let (memory, is_new) = Local::file_region(path, bytes, options.space, &options.sharing)?;
        let (mut ledger, remembered) = Ledger::open(path, is_new, &options.sharing)?;
        let numbers = memory.file_numbers();
        if remembered.is_copy(numbers) && !options.accept_copy {
            return Err(MemNodeError::CopyOfServed { path: path.to_owned() });
        }
        ledger.serving(numbers)?;
        Ok(Self { memory, ledger: Some(ledger), log: None, replica: None, remembered })
    }

    /// Returns the region as its own process accesses it, for procedures. Changes made there bypass
    /// the log ([`Region::logged`]): procedures of a node with a log change the region as a client
    /// does, through [`darter_fabric::Tcp`].
    pub fn fabric(&self) -> &Local {
        &self.memory
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.memory.node_bytes(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_fabric::block_on;
    use darter_pool::{Pool, PoolOptions};
    use std::fs;

    #[test]
    fn a_copy_of_a_served_region_is_refused_until_it_is_accepted() {
        const BYTES: u64 = 4 << 20;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("region");
        let copied_to = |name: &str| {
            let copy = directory.path().join(name);
            fs::copy(&path, &copy).unwrap();
            fs::copy(directory.path().join("region.node"), directory.path().join(format!("{name}.node")))
                .unwrap();
            copy
        };
        let region = Region::file(&path, BYTES).unwrap();
        block_on(Pool::create(region.memory.clone(), &PoolOptions::default())).unwrap();
        let copy = copied_to("copy");
        let refused = Region::file(&copy, BYTES).unwrap_err();
        assert!(matches!(&refused, MemNodeError::CopyOfServed { path } if *path == copy), "{refused}");
        let accepting = FileRegionOptions { accept_copy: true, ..FileRegionOptions::default() };
        drop(Region::file_with(&copy, BYTES, &accepting).unwrap());
        drop(Region::file(&copy, BYTES).unwrap());
        // Leaves the files as a killed node does.
        std::mem::forget(region.ledger);
        drop(region.memory);
        drop(Region::file(&path, BYTES).unwrap());
        drop(Region::file(&copied_to("ended"), BYTES).unwrap());
    }
}
