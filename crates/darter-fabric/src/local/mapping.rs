//! The bytes of a pool as mapped in this process: one mapping, the regions one after another.
//!
//! Other threads and, for files, other processes write these bytes at any time. So they are
//! accessed only as [`AtomicU64`], never through `&[u8]`, and the code never assumes that a word
//! keeps its value.

use super::bus_error::{self, Listed};
#[cfg(not(miri))]
use crate::ByteSize;
use crate::{FabricError, SUPERBLOCK_BYTES};
use std::fs::File;
use std::io;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Size of a huge page; mappings are aligned to it so that the kernel can use them.
#[cfg(not(miri))]
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Alignment of a mapping that is too small for huge pages.
#[cfg(miri)]
const PAGE_BYTES: usize = 4096;

/// Origin of a mapping's memory, which determines how it is written back and released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backing {
    /// The heap, under Miri.
    #[cfg(miri)]
    Heap,
    /// An anonymous mapping.
    #[cfg(not(miri))]
    Anonymous,
    /// An anonymous mapping of huge pages that the system had reserved.
    #[cfg(not(miri))]
    Reserved,
    /// A shared mapping of a file.
    File,
    /// A private mapping of a file: changes stay in this process.
    Copy,
}

/// A range of words that lives until dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<AtomicU64>,
    bytes: usize,
    backing: Backing,
    /// Of a file.
    listed: Option<Listed>,
}

// SAFETY: the memory is owned by this value, and reached only as `AtomicU64`, which is `Sync`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Returns zeroed memory of this process, which is backed only after it is accessed.
    #[cfg(not(miri))]
    pub(super) fn anonymous(bytes: usize) -> Result<Self, FabricError> {
        let refused = |error: io::Error| {
            FabricError::geometry(format!(
                "cannot map {bytes} bytes of memory ({error}); request a smaller pool"
            ))
        };
        let spare = if bytes >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { 0 };
        let span = bytes.checked_add(spare).ok_or_else(|| refused(io::ErrorKind::OutOfMemory.into()))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let start = map(span, flags, None).map_err(refused)?;
        let head = if spare == 0 { 0 } else { start.as_ptr().align_offset(HUGE_PAGE_BYTES).min(spare) };
        // The parts before the first and after the last huge page are released.
        unmap(start, head);
        // SAFETY: `head <= spare`, so this stays inside the `span` bytes just mapped.
        let base = unsafe { start.add(head) };
        // SAFETY: `head + bytes <= span`, as above; at most one past the end.
        unmap(unsafe { base.add(bytes) }, span - head - bytes);
        advise_huge(base, bytes);
        Ok(Self { base: base.cast(), bytes, backing: Backing::Anonymous, listed: None })
    }

    /// Returns zeroed memory of this process in huge pages that the system has reserved. All of
    /// them are taken at once: this fails if the system lacks pages, so that no later access can.
    #[cfg(not(miri))]
    pub(super) fn reserved(bytes: usize) -> Result<Self, FabricError> {
        if !bytes.is_multiple_of(HUGE_PAGE_BYTES) {
            return Err(FabricError::geometry(format!(
                "{} do not fill huge pages; request a multiple of {}",
                ByteSize(bytes as u64),
                ByteSize(HUGE_PAGE_BYTES as u64)
            )));
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
        let base = map(bytes, flags, None).map_err(|error| {
            let (free, wanted) = (free_huge_pages(), bytes / HUGE_PAGE_BYTES);
            FabricError::geometry(format!(
                "cannot map {wanted} huge pages ({error}); the system has {free} of them reserved and free; reserve more \
                 with `sysctl vm.nr_hugepages=N`, best at boot, or do without"
            ))
        })?;
        Ok(Self { base: base.cast(), bytes, backing: Backing::Reserved, listed: None })
    }

    /// Miri does not support huge pages.
    #[cfg(miri)]
    pub(super) fn reserved(bytes: usize) -> Result<Self, FabricError> {
        Self::anonymous(bytes)
    }

    /// Returns whether all of it lies in reserved huge pages.
    pub(super) fn is_reserved(&self) -> bool {
        #[cfg(not(miri))]
        return self.backing == Backing::Reserved;
        #[cfg(miri)]
        return false;
    }

    /// Returns zeroed memory of this process.
    #[cfg(miri)]
    pub(super) fn anonymous(bytes: usize) -> Result<Self, FabricError> {
        let refused = || {
            FabricError::geometry(format!("cannot allocate {bytes} bytes of memory; request a smaller pool"))
        };
        let layout = std::alloc::Layout::from_size_align(bytes, PAGE_BYTES).map_err(|_| refused())?;
        // SAFETY: the callers request at least one page, so the layout is not empty.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        let base = NonNull::new(base.cast()).ok_or_else(refused)?;
        Ok(Self { base, bytes, backing: Backing::Heap, listed: None })
    }

    /// Returns the first `bytes` bytes of a file, shared with every process that maps it. The
    /// caller must have checked that the file has them: an access beyond its end raises SIGBUS. The
    /// file must stay open as long as the mapping exists.
    pub(super) fn shared(file: &File, path: &Path, bytes: usize) -> Result<Self, FabricError> {
        let base = map(bytes, libc::MAP_SHARED, Some(file))
            .map_err(|source| FabricError::io(path, "map it", source))?;
        advise_huge(base, bytes);
        Ok(Self::of_file(base, bytes, Backing::File, file, path))
    }

    /// [`Mapping::shared`] of a file on persistent memory, whose bytes are on the medium as soon as
    /// the processor's caches are flushed: the file system makes their location durable before a
    /// store takes effect.
    pub(super) fn synced(file: &File, path: &Path, bytes: usize) -> Result<Self, FabricError> {
        let flags = libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC;
        let base = map(bytes, flags, Some(file)).map_err(|source| match source.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::EINVAL) => FabricError::geometry(format!(
                "{} does not lie in persistent memory ({source}), so no flush of a cache makes it durable: choose a file \
                 of a file system that is mounted with `-o dax`, or a DAX device; or serve the memory by `darter memnode \
                 --durability log --log DIR`, and name the pool `tcp://HOST:PORT?durability=log`",
                path.display()
            )),
            _ => FabricError::io(path, "map it", source),
        })?;
        advise_huge(base, bytes);
        Ok(Self::of_file(base, bytes, Backing::File, file, path))
    }

    /// Returns the first `bytes` bytes of a file, with their content at the time of the first
    /// access. Writes by this process go to a private copy. The caller must have checked the length
    /// as for [`Mapping::shared`].
    pub(super) fn copy(file: &File, path: &Path, bytes: usize) -> Result<Self, FabricError> {
        let base = map(bytes, libc::MAP_PRIVATE | libc::MAP_NORESERVE, Some(file))
            .map_err(|source| FabricError::io(path, "map it", source))?;
        Ok(Self::of_file(base, bytes, Backing::Copy, file, path))
    }

    fn of_file(base: NonNull<u8>, bytes: usize, backing: Backing, file: &File, path: &Path) -> Self {
        let listed = Some(bus_error::list(base.as_ptr().addr(), bytes, file, path));
        Self { base: base.cast(), bytes, backing, listed }
    }

    /// Returns the words.
    #[inline]
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: `base` is page-aligned and points to `bytes` mapped bytes that live as long as
        // `self`; every bit pattern is a valid `AtomicU64`, and shared mutation of one is allowed.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.bytes / 8) }
    }

    /// Waits until a file's bytes are on its medium. Does nothing for memory.
    pub(super) fn write_back(&self) -> io::Result<()> {
        self.write_back_part(self.bytes)
    }

    /// [`Mapping::write_back`] for the page with the first superblock.
    pub(super) fn write_back_head(&self) -> io::Result<()> {
        self.write_back_part(self.bytes.min(SUPERBLOCK_BYTES as usize))
    }

    fn write_back_part(&self, bytes: usize) -> io::Result<()> {
        if self.backing != Backing::File {
            return Ok(());
        }
        // SAFETY: the range lies in this mapping; `msync` does not change what the process sees.
        if unsafe { libc::msync(self.base.as_ptr().cast(), bytes, libc::MS_SYNC) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Returns the start address in this process, to identify the mapping in the kernel's reports.
    pub(super) fn address(&self) -> usize {
        self.base.as_ptr().addr()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[cfg(miri)]
        if self.backing == Backing::Heap {
            // SAFETY: allocated in `anonymous` with the same layout, which was valid there.
            unsafe {
                let layout = std::alloc::Layout::from_size_align_unchecked(self.bytes, PAGE_BYTES);
                std::alloc::dealloc(self.base.as_ptr().cast(), layout);
            }
            return;
        }
        // Its addresses may be reused by another mapping at once.
        self.listed = None;
        unmap(self.base.cast(), self.bytes);
    }
}

/// Maps `bytes` bytes, readable and writable.
fn map(bytes: usize, flags: libc::c_int, file: Option<&File>) -> io::Result<NonNull<u8>> {
    use std::os::fd::AsRawFd;
    let descriptor = file.map_or(-1, AsRawFd::as_raw_fd);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice disturbs no existing one.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, descriptor, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Returns the number of free reserved huge pages that the kernel reports; 0 if it has none.
#[cfg(not(miri))]
fn free_huge_pages() -> usize {
    let path = format!("/sys/kernel/mm/hugepages/hugepages-{}kB/free_hugepages", HUGE_PAGE_BYTES >> 10);
    std::fs::read_to_string(path).ok().and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Releases part of a mapping. The callers own that part and no longer use it.
fn unmap(start: NonNull<u8>, bytes: usize) {
    if bytes > 0 {
        // SAFETY: page-aligned, inside a mapping that the caller created and will not access there
        // again.
        let result = unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
        debug_assert_eq!(result, 0, "munmap of an own mapping");
    }
}

/// Requests huge pages. A refusal only costs speed; [`super::notes`] reports it.
fn advise_huge(start: NonNull<u8>, bytes: usize) {
    // SAFETY: advice on a mapping of this process; it changes no contents.
    unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
}
