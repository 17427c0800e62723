//! The memory that a node serves: of this process, or of a file that outlives it.

use crate::error::MemNodeError;
use crate::ledger::{Ledger, Remembered};
use darter_fabric::{Fabric, Local, random_word};
use std::path::Path;

/// One region, and what is known about it from earlier.
#[derive(Debug)]
pub struct Region {
    pub(crate) memory: Local,
    pub(crate) ledger: Option<Ledger>,
    pub(crate) remembered: Remembered,
}

impl Region {
    /// Zeroed memory of this process, granted by the system as it is touched. It ends with the process: a node that is
    /// started again serves another memory, and clients of the old one notice.
    ///
    /// # Errors
    /// When the size cannot be had.
    pub fn memory(bytes: u64) -> Result<Self, MemNodeError> {
        Self::of(Local::memory(bytes, 1)?)
    }

    /// [`Region::memory`] in huge pages of 2 MiB that the system has reserved, all of them taken at once.
    ///
    /// # Errors
    /// When the size is no multiple of them or the system has too few.
    pub fn huge_pages(bytes: u64) -> Result<Self, MemNodeError> {
        Self::of(Local::memory_reserved(bytes, 1)?)
    }

    /// A pool of one node that this process has already, as memory of this process.
    ///
    /// # Errors
    /// When it has another number of nodes.
    pub fn of(memory: Local) -> Result<Self, MemNodeError> {
        if memory.nodes() != 1 {
            return Err(MemNodeError::Regions { nodes: memory.nodes() });
        }
        let remembered = Remembered { boot_id: random_word(), fenced: Vec::new() };
        Ok(Self { memory, ledger: None, remembered })
    }

    /// A file of so many bytes, made when it is absent, and beside it `….node`, where the node keeps whom it has shut
    /// out. A node that is started again with them offers the same memory.
    ///
    /// # Errors
    /// When a file has another size, is in use, or is refused by the system.
    pub fn file(path: &Path, bytes: u64) -> Result<Self, MemNodeError> {
        let (memory, is_new) = Local::file_region(path, bytes)?;
        let (ledger, remembered) = Ledger::open(path, is_new)?;
        Ok(Self { memory, ledger: Some(ledger), remembered })
    }

    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.memory.node_bytes(0)
    }
}
