//! The memory that a node serves: anonymous memory of its process, the same with a log on disk, or a
//! mapped file that outlives the process.

use crate::error::MemNodeError;
use crate::ledger::{Ledger, Remembered};
use crate::redo_log::{self, LogOptions, OpenLog, SessionFacts};
use darter_fabric::files::Sharing;
use darter_fabric::local::Space;
use darter_fabric::{Fabric, Local, random_word};
use std::path::Path;

/// One region of memory, and what is recorded about it.
#[derive(Debug)]
pub struct Region {
    pub(crate) memory: Local,
    pub(crate) ledger: Option<Ledger>,
    pub(crate) log: Option<OpenLog>,
    pub(crate) remembered: Remembered,
}

impl Region {
    /// Allocates zeroed memory of this process, which the system provides as it is touched. It ends
    /// with the process: a restarted node serves other memory, and clients of the old one notice.
    ///
    /// # Errors
    /// If the system refuses the size.
    pub fn memory(bytes: u64) -> Result<Self, MemNodeError> {
        Self::of(Local::memory(bytes, 1)?)
    }

    /// Allocates memory as [`Region::memory`] does, in huge pages of 2 MiB that the system has
    /// reserved.
    ///
    /// # Errors
    /// If the size is not a multiple of 2 MiB, or too few pages are reserved.
    pub fn huge_pages(bytes: u64) -> Result<Self, MemNodeError> {
        Self::of(Local::memory_reserved(bytes, 1)?)
    }

    /// Serves a local fabric of one node that this process already has.
    ///
    /// # Errors
    /// If it has another number of nodes.
    pub fn of(memory: Local) -> Result<Self, MemNodeError> {
        if memory.nodes() != 1 {
            return Err(MemNodeError::Regions { nodes: memory.nodes() });
        }
        let remembered = Remembered { boot_id: random_word(), ..Remembered::default() };
        Ok(Self { memory, ledger: None, log: None, remembered })
    }

    /// Keeps a log of the region in a directory, so that nothing acknowledged is lost when the
    /// process ends or the power fails: a node that is started with the same directory and size
    /// offers the same memory. The directory is made if it is absent. The region must be zeroed
    /// memory of this process.
    ///
    /// # Errors
    /// If the region is a file, or the directory cannot be used, is in use, belongs to a region of
    /// another size, or was damaged.
    pub fn logged(self, directory: &Path, options: LogOptions) -> Result<Self, MemNodeError> {
        if self.memory.path().is_some() {
            return Err(MemNodeError::LogOptions {
                what: "a region in a file can have no log: the system writes the file back before the log",
            });
        }
        let (log, node) = redo_log::open(directory, &self.memory, options)?;
        let SessionFacts { fenced, known } = node.sessions;
        let remembered = Remembered { boot_id: node.boot_id, fenced, known, forgotten: node.forgotten };
        Ok(Self { log: Some(log), remembered, ..self })
    }

    /// Maps a file of so many bytes, creating it if it does not exist, and reserves its disk space,
    /// so that a full disk cannot end the node later. Beside it, in `….node`, the node records the
    /// sessions that it has fenced. A node restarted with both files offers the same memory.
    ///
    /// # Errors
    /// If a file has another size, is in use or another user's, its file system has no room, or the
    /// system refuses it.
    pub fn file(path: &Path, bytes: u64) -> Result<Self, MemNodeError> {
        Self::file_with(path, bytes, Space::Reserved, &Sharing::default())
    }

    /// [`Region::file`], with the file's disk space taken as the caller says, and new files shared
    /// as the caller says.
    ///
    /// # Errors
    /// Fails as [`Region::file`] does.
    pub fn file_with(path: &Path, bytes: u64, space: Space, sharing: &Sharing) -> Result<Self, MemNodeError> {
        let (memory, is_new) = Local::file_region(path, bytes, space, sharing)?;
        let (ledger, remembered) = Ledger::open(path, is_new, sharing)?;
        Ok(Self { memory, ledger: Some(ledger), log: None, remembered })
    }

    /// Returns the region as its own process sees it, for procedures to run on. What is changed
    /// there passes the log by ([`Region::logged`]): procedures of a node with a log change the
    /// region as a client does, through [`darter_fabric::Tcp`].
    pub fn fabric(&self) -> &Local {
        &self.memory
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.memory.node_bytes(0)
    }
}
