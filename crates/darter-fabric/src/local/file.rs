//! Pool files: creating them, opening them, and refusing other files before anything is mapped or
//! written.
//!
//! Two accesses to a shared mapping end the process without an error code (`bus_error.rs`): to a
//! page beyond the file's end, and to a hole that a full disk cannot fill. So the file's length is
//! compared with the superblock's geometry first, and space is reserved at creation
//! ([`Space::Reserved`]) unless the caller declines or the file system cannot; then
//! [`super::notes`] warns.
//!
//! Each process that has the file mapped holds a shared lock on it; a creator needs an exclusive
//! one. So a file in use cannot be truncated under its users.

use super::flush::{Flushing, TABLE_BYTES};
use super::mapping::Mapping;
use super::{free_bytes, total_bytes};
use crate::files::locks::{LockKind, MAPPED_LOCK, READ_LOCK, is_locked, try_lock};
use crate::files::{Draft, Place, Sharing};
use crate::fork::{self, NotInherited};
use crate::{
    ByteSize, FabricError, SUPERBLOCK_BYTES, SUPERBLOCK_MAGIC, SUPERBLOCK_NODE_BYTES_WORD,
    SUPERBLOCK_NODES_WORD,
};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Bytes mapped to read a device's superblock: devices map only in huge pages.
const DEVICE_PAGE_BYTES: u64 = 2 << 20;

/// How a new pool file gets its disk space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Space {
    /// At once, or creation fails; on a file system that cannot reserve space, on first access. A
    /// device has its space anyway.
    #[default]
    Reserved,
    /// At once, or creation fails; if necessary by writing all of it.
    Preallocated,
    /// On first access. A full disk then ends the accessing process with SIGBUS.
    Sparse,
}

/// Options for creating a pool file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileOptions {
    /// Replaces a file that has contents. Otherwise such a file is refused.
    pub overwrite: bool,
    /// How it gets its disk space.
    pub space: Space,
    /// Its permissions. If none are named, an existing file keeps its own.
    pub sharing: Sharing,
    /// Each process that opens it makes everything durable that it writes and reads, by flushing
    /// the processor's caches. Requires persistent memory; see [`super::Local::file_open_flushed`].
    pub flush: bool,
}

/// A function that maps the given number of bytes at the beginning of a file.
type MapFile = fn(&File, &Path, usize) -> Result<Mapping, FabricError>;

/// A mapped pool file and its shape.
pub(super) struct Opened {
    pub file: PoolFile,
    /// Includes the table after the regions if the pool's clients flush.
    pub mapping: Mapping,
    pub bytes_per_node: u64,
    pub nodes: usize,
}

/// A pool file that this process has open.
#[derive(Debug)]
pub(super) struct PoolFile {
    /// Dropped first.
    _guard: NotInherited,
    file: File,
    path: PathBuf,
    /// A character device: it has no length and no holes.
    is_device: bool,
}

impl PoolFile {
    /// Opens or creates the file of a new pool.
    pub(super) fn to_fill(path: &Path, sharing: &Sharing) -> Result<Self, FabricError> {
        Self::opened_so(path, "create it", |_| Ok(sharing.open_or_create(path)?.0))
    }

    /// Returns the file of a draft as the file of a new pool.
    pub(super) fn of_draft(draft: &Draft) -> Result<Self, FabricError> {
        let path = draft.path();
        let (file, guard) = fork::keep(|| draft.file().try_clone())
            .map_err(|source| FabricError::io(path, "open it again", source))?;
        Ok(Self { _guard: guard, file, path: path.to_owned(), is_device: false })
    }

    /// Fails if the file belongs to another user, lies in a folder that every user can write to,
    /// and does not belong to the named group: another user must not be able to supply a file that
    /// this process takes for a new one.
    pub(super) fn check_found(&self, sharing: &Sharing) -> Result<(), FabricError> {
        sharing
            .check_found(&self.file, &self.path)
            .map_err(|source| self.error("use it as a new pool", source))
    }

    /// Makes it a file of `bytes` zero bytes, plus the table if its clients will flush, and maps
    /// it.
    pub(super) fn fill(self, bytes: usize, options: &FileOptions) -> Result<(Self, Mapping), FabricError> {
        let pool = self;
        let path = pool.path.as_path();
        pool.lock(LockKind::Exclusive)?;
        let held = pool.held_bytes()?;
        let mapped: MapFile = if options.flush { Mapping::synced } else { Mapping::shared };
        let bytes = if options.flush { bytes + TABLE_BYTES } else { bytes };
        if !options.overwrite && pool.has_contents(held)? {
            return Err(pool.refusal(
                "exists and has contents; open it, choose another path, or request that it is overwritten",
            ));
        }
        if options.flush {
            // The file is not emptied unless it can be mapped.
            mapped(&pool.file, path, pool.page_bytes() as usize)?;
        }
        if pool.is_device {
            if held < bytes as u64 {
                let what = format!("has {}, but the pool needs {}", ByteSize(held), ByteSize(bytes as u64));
                return Err(pool.refusal(&what));
            }
        } else {
            pool.file.set_len(0).map_err(|source| pool.error("empty it", source))?;
            if options.sharing.is_named() {
                let shared = options.sharing.apply(&pool.file);
                shared.map_err(|source| pool.error("give it its mode and group", source))?;
            }
            pool.file.set_len(bytes as u64).map_err(|source| pool.error("extend it", source))?;
            if let Err(error) = pool.reserve(bytes as u64, options.space) {
                // The reserved space is released; the first error is the one to report.
                let _ = pool.file.set_len(0);
                return Err(error);
            }
            if options.flush {
                pool.file.sync_all().map_err(|source| pool.error("write its size back", source))?;
            }
        }
        if pool.is_device {
            pool.clear((bytes as u64 + TABLE_BYTES as u64).min(held) as usize)?;
        }
        let mapping = mapped(&pool.file, path, bytes)?;
        pool.lock(LockKind::Shared)?;
        Ok((pool, mapping))
    }

    /// Stores zeros: a device cannot be truncated to length zero, but a pool must begin with zeros.
    /// The mark of an earlier pool must not remain after a new one.
    fn clear(&self, bytes: usize) -> Result<(), FabricError> {
        let page = DEVICE_PAGE_BYTES as usize;
        let all = Mapping::shared(&self.file, &self.path, (bytes / page * page).max(bytes.min(page)))?;
        all.words().iter().for_each(|word| word.store(0, Ordering::Release));
        Ok(())
    }

    /// Returns whether its bytes are memory at fixed addresses: a DAX device, or a file of a file
    /// system without a medium.
    #[cfg(feature = "tcp")]
    pub(super) fn is_memory(&self) -> Result<bool, FabricError> {
        if self.is_device {
            return Ok(true);
        }
        let Some(system) = self.file_system() else {
            return Err(self.error("read its file system", io::Error::last_os_error()));
        };
        Ok([libc::TMPFS_MAGIC as u32, libc::HUGETLBFS_MAGIC as u32].contains(&magic(&system)))
    }

    /// Opens and maps a file, whose clients must flush if `flush` is set, and must not otherwise.
    pub(super) fn open(path: &Path, flush: bool) -> Result<Opened, FabricError> {
        let pool = Self::opened(path)?;
        pool.lock(LockKind::Shared)?;
        pool.map(if flush { Mapping::synced } else { Mapping::shared }, flush)
    }

    /// Opens a file for reading, which no other process may have open, and maps a copy of it.
    pub(super) fn open_snapshot(path: &Path) -> Result<Opened, FabricError> {
        let pool = Self::opened_to_read(path)?;
        try_lock(&pool.file, READ_LOCK, LockKind::Shared).map_err(|source| pool.error("lock it", source))?;
        if pool.is_in_use()? {
            return Err(pool.refusal(
                "is open in another process, to which this one cannot announce its reads without write permission; open \
                 it as a user who may write it, or when no other process has it open",
            ));
        }
        pool.map(Mapping::copy, false)
    }

    /// Returns whether another process has the file mapped.
    pub(super) fn is_in_use(&self) -> Result<bool, FabricError> {
        is_locked(&self.file, MAPPED_LOCK).map_err(|source| self.error("read the locks on it", source))
    }

    /// Maps the file after reading its size from the superblock.
    fn map(self, mapped: MapFile, flush: bool) -> Result<Opened, FabricError> {
        let file = self;
        let pool = &file;
        let held = pool.held_bytes()?;
        if held < SUPERBLOCK_BYTES {
            return Err(pool.refusal(if held == 0 {
                "is empty; create a pool in it by giving its size"
            } else {
                "is too short to be a pool; choose another file"
            }));
        }
        let (bytes_per_node, nodes) = pool.geometry(held, mapped)?;
        let bytes = total_bytes(bytes_per_node, nodes).map_err(|error| {
            pool.refusal(&format!("has a damaged superblock: {error}; restore it from a copy"))
        })?;
        if held < bytes as u64 {
            return Err(pool.refusal(&format!(
                "was cut short: it has {held} of the pool's {bytes} bytes; restore it from a copy"
            )));
        }
        let has_table = pool.has_table(bytes, held, mapped)?;
        if has_table != flush {
            return Err(pool.refusal(if flush {
                "was not created with `durability=flush`, so other processes may write it without a flush; copy it to \
                 a pool that was: `darter export`, then `import`"
            } else {
                "is kept durable by clients that flush their writes and reads, which this one would not: name it with \
                 `?durability=flush`, and open it as a user who may write it"
            }));
        }
        let mapping = mapped(&pool.file, &pool.path, if flush { bytes + TABLE_BYTES } else { bytes })?;
        Ok(Opened { file, mapping, bytes_per_node, nodes })
    }

    /// Returns whether the file has the table of flushing clients after the regions.
    fn has_table(&self, bytes: usize, held: u64, mapped: MapFile) -> Result<bool, FabricError> {
        let all = bytes + TABLE_BYTES;
        if held < all as u64 {
            return Ok(false);
        }
        let mapping = mapped(&self.file, &self.path, all)?;
        Ok(Flushing::is_marked(&mapping, bytes))
    }

    /// Returns the smallest number of bytes that can be mapped.
    fn page_bytes(&self) -> u64 {
        if self.is_device { DEVICE_PAGE_BYTES } else { SUPERBLOCK_BYTES }
    }

    /// Opens a memory node's region, or creates it with zeros, and locks the file for this process.
    /// Also returns whether it was created.
    pub(super) fn region(
        path: &Path,
        bytes: usize,
        space: Space,
        sharing: &Sharing,
    ) -> Result<(Self, Mapping, bool), FabricError> {
        let pool = Self::to_fill(path, sharing)?;
        pool.lock(LockKind::Exclusive)?;
        let held = pool.held_bytes()?;
        let is_new = held == 0;
        if is_new {
            pool.file.set_len(bytes as u64).map_err(|source| pool.error("extend it", source))?;
        } else if held != bytes as u64 && !(pool.is_device && held > bytes as u64) {
            let (held, bytes) = (ByteSize(held), ByteSize(bytes as u64));
            return Err(pool.refusal(&format!("has {held}, not {bytes}; give its own size or another file")));
        }
        // The file's contents are kept; a sparse file gets its space now.
        if !pool.is_device
            && let Err(error) = pool.reserve(bytes as u64, space)
        {
            if is_new {
                let _ = pool.file.set_len(0);
            }
            return Err(error);
        }
        let mapping = Mapping::shared(&pool.file, path, bytes)?;
        Ok((pool, mapping, is_new))
    }

    fn opened(path: &Path) -> Result<Self, FabricError> {
        Self::opened_so(path, "open it", |place| {
            OpenOptions::new().read(true).write(true).custom_flags(place.flags()).open(&place.path)
        })
    }

    fn opened_to_read(path: &Path) -> Result<Self, FabricError> {
        Self::opened_so(path, "open it to read it", |place| {
            OpenOptions::new().read(true).custom_flags(place.flags()).open(&place.path)
        })
    }

    fn opened_so(
        path: &Path,
        action: &'static str,
        open: impl FnOnce(&Place) -> io::Result<File>,
    ) -> Result<Self, FabricError> {
        let io = |action| move |source| FabricError::io(path, action, source);
        // Before the file is opened, since opening has effects on some devices and blocks on a
        // FIFO.
        if let Ok(found) = path.metadata()
            && !found.is_file()
            && !found.file_type().is_char_device()
        {
            return Err(not_plain(path));
        }
        let place = Place::of(path).map_err(io(action))?;
        let (file, guard) = fork::keep(|| open(&place)).map_err(io(action))?;
        let kind = file.metadata().map_err(io("look at it"))?.file_type();
        let pool = Self { _guard: guard, file, path: path.to_owned(), is_device: kind.is_char_device() };
        if kind.is_file() || pool.is_device { Ok(pool) } else { Err(not_plain(path)) }
    }

    /// Takes or changes this process's lock on the file.
    fn lock(&self, kind: LockKind) -> Result<(), FabricError> {
        // A file that is read as a snapshot must not be truncated.
        let is_read = kind == LockKind::Exclusive
            && is_locked(&self.file, READ_LOCK)
                .map_err(|source| self.error("read the locks on it", source))?;
        match try_lock(&self.file, MAPPED_LOCK, kind) {
            Ok(_) if is_read => Err(self.refusal("is being read by another process; wait for that to end")),
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
            self.refusal("is a device that does not report its size; choose a DAX device or a file")
        })
    }

    /// Returns whether a path leads to a device whose beginning is empty.
    pub(super) fn is_blank_device(path: &Path) -> Result<bool, FabricError> {
        if !path.metadata().is_ok_and(|found| found.file_type().is_char_device()) {
            return Ok(false);
        }
        let pool = Self::opened(path)?;
        Ok(!pool.has_contents(pool.held_bytes()?)?)
    }

    /// Returns whether creating a pool would destroy anything.
    fn has_contents(&self, held: u64) -> Result<bool, FabricError> {
        if !self.is_device || held < DEVICE_PAGE_BYTES {
            return Ok(held > 0);
        }
        let head = Mapping::shared(&self.file, &self.path, DEVICE_PAGE_BYTES as usize)?;
        Ok(head.words().iter().any(|word| word.load(Ordering::Acquire) != 0))
    }

    /// Reads the size of a node and the number of nodes from the first superblock.
    fn geometry(&self, held: u64, mapped: MapFile) -> Result<(u64, usize), FabricError> {
        let head = mapped(&self.file, &self.path, self.page_bytes().min(held) as usize)?;
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

    /// Returns the disk space that the file occupies, in bytes.
    pub(super) fn taken_bytes(&self) -> Option<u64> {
        Some(self.file.metadata().ok()?.blocks() * 512)
    }

    /// Returns the file system's report about itself.
    pub(super) fn file_system(&self) -> Option<libc::statfs> {
        // SAFETY: an all-zero `statfs` is a valid value of that plain struct.
        let mut report: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor is open and `report` outlives the call, which fills it.
        (unsafe { libc::fstatfs(self.file.as_raw_fd(), &raw mut report) } == 0).then_some(report)
    }

    /// Reserves disk space for the whole file.
    fn reserve(&self, bytes: u64, space: Space) -> Result<(), FabricError> {
        // Some file systems use up their space before they refuse.
        let is_too_much = self
            .file_system()
            .zip(self.taken_bytes())
            .is_some_and(|(report, taken)| bytes.saturating_sub(taken) > free_bytes(&report));
        if is_too_much && space != Space::Sparse {
            return Err(FabricError::disk_full(&self.path, bytes));
        }
        let length = libc::off_t::try_from(bytes).unwrap_or(libc::off_t::MAX);
        let descriptor = self.file.as_raw_fd();
        let outcome = match space {
            Space::Sparse => Ok(()),
            Space::Preallocated => {
                // SAFETY: the descriptor is open; the call touches no memory of this process.
                match unsafe { libc::posix_fallocate(descriptor, 0, length) } {
                    0 => Ok(()),
                    code => Err(io::Error::from_raw_os_error(code)),
                }
            }
            Space::Reserved => loop {
                // SAFETY: the descriptor is open; the call touches no memory of this process.
                if unsafe { libc::fallocate(descriptor, 0, 0, length) } == 0 {
                    break Ok(());
                }
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EOPNOTSUPP | libc::ENOSYS) => break Ok(()),
                    _ => break Err(error),
                }
            },
        };
        outcome.map_err(|source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                FabricError::disk_full(&self.path, bytes)
            }
            _ => self.error("reserve its disk space", source),
        })
    }

    /// Returns a new description of the same file, even if its name has changed.
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

    /// Returns a refusal of this file in its current state.
    fn refusal(&self, what: &str) -> FabricError {
        FabricError::geometry(format!("{} {what}", self.path.display()))
    }
}

fn not_plain(path: &Path) -> FabricError {
    let what = "is neither a plain file nor a DAX device; choose another path";
    FabricError::geometry(format!("{} {what}", path.display()))
}

impl Drop for PoolFile {
    fn drop(&mut self) {
        // If this fails, closing the description still unlocks.
        let _ = try_lock(&self.file, MAPPED_LOCK, LockKind::Unlocked);
    }
}

/// The magic number of a file system's kind. Its type differs between C libraries.
pub(super) fn magic(report: &libc::statfs) -> u32 {
    report.f_type as u32
}
