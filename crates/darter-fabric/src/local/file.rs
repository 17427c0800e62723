//! Pool files: creating them, opening them, and refusing what is no pool before anything is mapped
//! or written.
//!
//! A shared mapping has two ways to kill its process that no error code announces: touching a page
//! beyond the file's end, and touching a hole that a full disk cannot fill. So the file's length is
//! compared with the superblock's geometry first, and space can be reserved at creation
//! ([`Space::Reserved`]); otherwise [`super::notes`] warns.
//!
//! Each process that has the file mapped holds a shared lock on it; a creator needs the lock alone.
//! So a file in use cannot be truncated under its users.

use super::locks::{LockKind, MAPPED_LOCK, try_lock};
use super::mapping::Mapping;
use super::total_bytes;
use crate::{
    ByteSize, FabricError, SUPERBLOCK_BYTES, SUPERBLOCK_MAGIC, SUPERBLOCK_NODE_BYTES_WORD,
    SUPERBLOCK_NODES_WORD,
};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Bytes mapped to look at a device's superblock: devices map in huge pages only.
const DEVICE_PAGE_BYTES: u64 = 2 << 20;

/// How a new pool file gets its disk space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Space {
    /// When it is touched. A full disk then ends the process that touches it, with SIGBUS.
    #[default]
    Sparse,
    /// At once, or not at all. A device has its space anyway.
    Reserved,
}

/// How to create a pool file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileOptions {
    /// Replaces a file that has contents. Without it such a file is refused.
    pub overwrite: bool,
    /// How it gets its disk space.
    pub space: Space,
}

/// A pool file that this process has open.
#[derive(Debug)]
pub(super) struct PoolFile {
    file: File,
    path: PathBuf,
    /// A character device: no length of its own, no holes.
    is_device: bool,
}

impl PoolFile {
    /// Creates a file of `bytes` zero bytes and maps it.
    pub(super) fn create(
        path: &Path,
        bytes: usize,
        options: FileOptions,
    ) -> Result<(Self, Mapping), FabricError> {
        let pool = Self::opened(path, true)?;
        pool.lock(LockKind::Exclusive)?;
        let held = pool.held_bytes()?;
        if !options.overwrite && pool.has_contents(held)? {
            return Err(pool.refusal(
                "exists and has contents; open it, choose another path, or ask for it to be overwritten",
            ));
        }
        if pool.is_device {
            if held < bytes as u64 {
                let what = format!("has {}, but the pool needs {}", ByteSize(held), ByteSize(bytes as u64));
                return Err(pool.refusal(&what));
            }
        } else {
            pool.file.set_len(0).map_err(|source| pool.error("empty it", source))?;
            pool.file.set_len(bytes as u64).map_err(|source| pool.error("extend it", source))?;
            if options.space == Space::Reserved {
                pool.reserve(bytes as u64)?;
            }
        }
        let mapping = Mapping::shared(&pool.file, path, bytes)?;
        if pool.is_device {
            // A device cannot be cut to zero length; a pool must begin with zeros all the same.
            for word in mapping.words() {
                word.store(0, Ordering::Release);
            }
        }
        pool.lock(LockKind::Shared)?;
        Ok((pool, mapping))
    }

    /// Opens and maps a file. Also returns the bytes of a node and the number of nodes.
    pub(super) fn open(path: &Path) -> Result<(Self, Mapping, u64, usize), FabricError> {
        let pool = Self::opened(path, false)?;
        pool.lock(LockKind::Shared)?;
        let held = pool.held_bytes()?;
        if held < SUPERBLOCK_BYTES {
            return Err(pool.refusal(if held == 0 {
                "is empty; create a pool in it by giving its size"
            } else {
                "is too short to be a pool; choose another file"
            }));
        }
        let (bytes_per_node, nodes) = pool.geometry(held)?;
        let bytes = total_bytes(bytes_per_node, nodes).map_err(|error| {
            pool.refusal(&format!("has a damaged superblock: {error}; restore it from a copy"))
        })?;
        if held < bytes as u64 {
            return Err(pool.refusal(&format!(
                "was cut short: it has {held} of the pool's {bytes} bytes; restore it from a copy"
            )));
        }
        let mapping = Mapping::shared(&pool.file, path, bytes)?;
        Ok((pool, mapping, bytes_per_node, nodes))
    }

    /// Opens a memory node's region, or makes it of zeros, and keeps the file for this process
    /// alone. Also returns whether it was made.
    pub(super) fn region(path: &Path, bytes: usize) -> Result<(Self, Mapping, bool), FabricError> {
        let pool = Self::opened(path, true)?;
        pool.lock(LockKind::Exclusive)?;
        let held = pool.held_bytes()?;
        let is_new = held == 0;
        if is_new {
            pool.file.set_len(bytes as u64).map_err(|source| pool.error("extend it", source))?;
        } else if held != bytes as u64 && !(pool.is_device && held > bytes as u64) {
            let (held, bytes) = (ByteSize(held), ByteSize(bytes as u64));
            return Err(pool.refusal(&format!("has {held}, not {bytes}; give its own size or another file")));
        }
        let mapping = Mapping::shared(&pool.file, path, bytes)?;
        Ok((pool, mapping, is_new))
    }

    fn opened(path: &Path, create: bool) -> Result<Self, FabricError> {
        let io = |action| move |source| FabricError::io(path, action, source);
        let mut how = OpenOptions::new();
        how.read(true).write(true).create(create).truncate(false);
        let file = how.open(path).map_err(io(if create { "create it" } else { "open it" }))?;
        let kind = file.metadata().map_err(io("look at it"))?.file_type();
        let pool = Self { file, path: path.to_owned(), is_device: kind.is_char_device() };
        if kind.is_file() || pool.is_device {
            Ok(pool)
        } else {
            Err(pool.refusal("is neither a plain file nor a DAX device; choose another path"))
        }
    }

    /// Takes or changes this process's share of the file.
    fn lock(&self, kind: LockKind) -> Result<(), FabricError> {
        match try_lock(&self.file, MAPPED_LOCK, kind) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.refusal(match kind {
                LockKind::Exclusive => "is in use by another process; close the pool there first",
                LockKind::Shared | LockKind::Unlocked => {
                    "is being created by another process; try again in a moment"
                }
            })),
            Err(source) => Err(self.error("lock it", source)),
        }
    }

    /// Returns the file's length, or the device's size.
    fn held_bytes(&self) -> Result<u64, FabricError> {
        let metadata = self.file.metadata().map_err(|source| self.error("look at it", source))?;
        if !self.is_device {
            return Ok(metadata.len());
        }
        let device = metadata.rdev();
        let entry = format!("/sys/dev/char/{}:{}/size", libc::major(device), libc::minor(device));
        std::fs::read_to_string(entry).ok().and_then(|text| text.trim().parse().ok()).ok_or_else(|| {
            self.refusal("is a device that does not tell its size; choose a DAX device or a file")
        })
    }

    /// Returns whether there is anything that creating a pool would destroy.
    fn has_contents(&self, held: u64) -> Result<bool, FabricError> {
        if !self.is_device || held < DEVICE_PAGE_BYTES {
            return Ok(held > 0);
        }
        let head = Mapping::shared(&self.file, &self.path, DEVICE_PAGE_BYTES as usize)?;
        Ok(head.words().iter().any(|word| word.load(Ordering::Acquire) != 0))
    }

    /// Reads the bytes of a node and the number of nodes from the first superblock.
    fn geometry(&self, held: u64) -> Result<(u64, usize), FabricError> {
        let page = if self.is_device { DEVICE_PAGE_BYTES } else { SUPERBLOCK_BYTES };
        let head = Mapping::shared(&self.file, &self.path, page.min(held) as usize)?;
        let word = |index: usize| head.words()[index].load(Ordering::Acquire);
        match word(0) {
            SUPERBLOCK_MAGIC => {}
            0 => {
                return Err(self.refusal(
                    "holds no pool, or one whose creation was not finished; create it again, overwriting the file",
                ));
            }
            _ => return Err(self.refusal("holds no pool (its first word is foreign); choose another file")),
        }
        let nodes = word(SUPERBLOCK_NODES_WORD);
        if nodes >> 32 != 0 {
            return Err(self.refusal("begins with another node's superblock; restore it from a copy"));
        }
        Ok((word(SUPERBLOCK_NODE_BYTES_WORD), nodes as usize))
    }

    /// Reserves disk space for the whole file.
    fn reserve(&self, bytes: u64) -> Result<(), FabricError> {
        let length = libc::off_t::try_from(bytes).unwrap_or(libc::off_t::MAX);
        // SAFETY: the descriptor is open; the call touches no memory of this process.
        let code = unsafe { libc::posix_fallocate(self.file.as_raw_fd(), 0, length) };
        if code == 0 {
            return Ok(());
        }
        // What was reserved is given back; the error to report is the first one.
        let _ = self.file.set_len(0);
        Err(self.error("reserve its disk space", io::Error::from_raw_os_error(code)))
    }

    /// Returns a new description of the same file, whatever became of its name.
    pub(super) fn reopen(&self) -> Result<File, FabricError> {
        let entry = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(entry)
            .map_err(|source| self.error("open it again through /proc", source))
    }

    pub(super) fn description(&self) -> &File {
        &self.file
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_device(&self) -> bool {
        self.is_device
    }

    /// Returns an error of the operating system about this file.
    pub(super) fn error(&self, action: &'static str, source: io::Error) -> FabricError {
        FabricError::io(&self.path, action, source)
    }

    /// Returns a refusal of this file as it is.
    fn refusal(&self, what: &str) -> FabricError {
        FabricError::geometry(format!("{} {what}", self.path.display()))
    }
}

impl Drop for PoolFile {
    fn drop(&mut self) {
        // Should it fail, closing the description still unlocks.
        let _ = try_lock(&self.file, MAPPED_LOCK, LockKind::Unlocked);
    }
}
