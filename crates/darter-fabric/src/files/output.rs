//! Files that commands write: exports, pictures, tables, pages.
//!
//! A regular file is replaced as a whole when its contents are complete, and keeps its permissions
//! and its group; a symbolic link continues to lead to it. Anything else (a device, a FIFO,
//! `/dev/stdout`) is written directly. Pools, files of other users, and links and FIFOs of other
//! users in a folder that every user can write to are refused.

use super::locks::{MAPPED_LOCK, is_locked};
use super::sharing::{check_trust, follow_links, foreign};
use super::{Draft, folder, own_user};
use crate::SUPERBLOCK_MAGIC;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Read permissions of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Its owner only: the file contains keys or values of a pool.
    Owner,
    /// As set by the umask: the file contains none.
    Umask,
}

impl Access {
    fn mode(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::Umask => 0o666,
        }
    }
}

/// A file that is being written. If it is dropped without [`OutputFile::finish`], a regular file is
/// left unchanged.
#[derive(Debug)]
pub struct OutputFile(Kind);

#[derive(Debug)]
enum Kind {
    /// Replaces the file at this path, or creates it.
    Draft { draft: Draft, path: PathBuf },
    /// Written directly.
    Through(File),
}

/// Target of a name.
enum Place {
    /// A path; the file need not exist.
    Path(PathBuf),
    /// A descriptor of this process, such as `/dev/stdout`.
    Descriptor(i32),
}

impl OutputFile {
    /// Opens the file that `path` leads to for writing, or creates one with these permissions.
    /// Opening a FIFO blocks until it has a reader.
    ///
    /// # Errors
    /// Fails if it is a pool, a directory or another user's file, or the system refuses.
    pub fn create(path: &Path, access: Access) -> io::Result<Self> {
        let path = match place(path)? {
            Place::Descriptor(number) => return Self::over_descriptor(number).map(Self),
            Place::Path(path) => path,
        };
        let kind = match existing(&path)? {
            None => Kind::Draft { draft: Draft::create(&path, access.mode())?, path },
            Some(old) if old.is_file() => {
                // This also checks whether this user may write it.
                OpenOptions::new().write(true).open(&path)?;
                let draft = Draft::create(&path, old.mode() & 0o777)?;
                keep_permissions(draft.file(), &old)?;
                Kind::Draft { draft, path }
            }
            // Not truncated: it may be another process's output.
            Some(_) => {
                Kind::Through(OpenOptions::new().append(true).custom_flags(libc::O_NOCTTY).open(&path)?)
            }
        };
        Ok(Self(kind))
    }

    /// Returns whether the contents replace a regular file when they are complete; until then the
    /// file is unchanged.
    pub fn replaces(&self) -> bool {
        matches!(self.0, Kind::Draft { .. })
    }

    /// Shares an open descriptor, and so its position.
    fn over_descriptor(number: i32) -> io::Result<Kind> {
        let name = PathBuf::from(format!("/proc/self/fd/{number}"));
        check_kind(&name, &fs::metadata(&name)?)?;
        // SAFETY: the descriptor was open a moment ago; if it is closed now, the call fails.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        Ok(Kind::Through(descriptor.try_clone_to_owned()?.into()))
    }

    /// Publishes the contents as the file, and waits until they are on its medium.
    ///
    /// # Errors
    /// Fails if the system refuses, or a pool has been created under the name; a regular file is
    /// then unchanged.
    pub fn finish(self) -> io::Result<()> {
        match self.0 {
            Kind::Draft { draft, path } => {
                existing(&path)?;
                draft.replace()
            }
            Kind::Through(file) => match file.sync_all() {
                // A pipe or a terminal has no medium.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EROFS)) => Ok(()),
                synced => synced,
            },
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Draft { draft, .. } => draft.file().write(bytes),
            Kind::Through(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a whole file, as [`OutputFile`] does.
///
/// # Errors
/// Fails as [`OutputFile::create`] and [`OutputFile::finish`] do.
pub fn write_output(path: &Path, access: Access, contents: &[u8]) -> io::Result<()> {
    let mut file = OutputFile::create(path, access)?;
    file.write_all(contents)?;
    file.finish()
}

/// Checks that a file can be written, without changing anything.
///
/// # Errors
/// Fails as [`OutputFile::create`] does.
pub fn check_output(path: &Path) -> io::Result<()> {
    match place(path)? {
        Place::Descriptor(number) => OutputFile::over_descriptor(number).map(drop),
        Place::Path(path) => match existing(&path)? {
            Some(other) if !other.is_file() => {
                // Opening a FIFO would wait for a reader.
                rustix::fs::access(&path, rustix::fs::Access::WRITE_OK).map_err(io::Error::from)
            }
            _ => OutputFile::create(&path, Access::Owner).map(drop),
        },
    }
}

/// Returns whether an error of an output means that another name is needed: its folder does not
/// exist or may not be written, or it is a directory or another user's.
pub fn is_wrong_name(error: &io::Error) -> bool {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | NotADirectory | IsADirectory | PermissionDenied)
}

/// Follows the symbolic links at the end of a path; the last one may lead to nothing.
fn place(path: &Path) -> io::Result<Place> {
    Ok(match follow_links(path, |link| Ok(own_descriptor(link)))? {
        (_, Some(descriptor)) => Place::Descriptor(descriptor),
        (path, None) => Place::Path(path),
    })
}

/// Returns the number of the descriptor of this process that a link under `/proc` refers to.
fn own_descriptor(path: &Path) -> Option<i32> {
    let folder = fs::canonicalize(folder(path)).ok()?;
    let mut parts = folder.strip_prefix("/proc").ok()?.iter().map(|part| part.to_str());
    let is_own = parts.next()?? == std::process::id().to_string() && folder.ends_with("fd");
    if is_own { path.file_name()?.to_str()?.parse().ok() } else { None }
}

/// Returns the metadata of a path without links at its end, if it may be written to; `None` if
/// nothing is there.
fn existing(path: &Path) -> io::Result<Option<Metadata>> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    if found.is_file() && found.uid() != own_user() {
        return Err(foreign("a file", found.uid()));
    }
    if found.file_type().is_fifo() {
        check_trust(path, &found, "a FIFO")?;
    }
    check_kind(path, &found)?;
    Ok(Some(found))
}

/// Checks that output can be written to a file.
fn check_kind(path: &Path, found: &Metadata) -> io::Result<()> {
    let kind = found.file_type();
    if kind.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory; name a file in it"));
    }
    if kind.is_socket() {
        return Err(io::Error::other("it is a socket; name a file"));
    }
    if kind.is_char_device() && is_dax_device(found.rdev()) {
        return Err(io::Error::other("it is a DAX device, which can hold a pool; name a file"));
    }
    if kind.is_file() && is_pool(path)? {
        return Err(io::Error::other("it is a darter pool; name another file, or remove the pool first"));
    }
    Ok(())
}

/// Returns whether a character device is memory: only such devices have a size.
fn is_dax_device(device: u64) -> bool {
    Path::new(&format!("/sys/dev/char/{}:{}/size", libc::major(device), libc::minor(device))).exists()
}

/// Returns whether a regular file begins like a pool, or a process has it open as one.
fn is_pool(path: &Path) -> io::Result<bool> {
    let file = match OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path) {
        // A pool that cannot be read cannot be opened.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(false),
        file => file?,
    };
    let mut head = [0; 8];
    let begins_so = file.read_exact_at(&mut head, 0).is_ok() && u64::from_le_bytes(head) == SUPERBLOCK_MAGIC;
    Ok(begins_so || is_locked(&file, MAPPED_LOCK).unwrap_or(false))
}

/// Gives a new file the permissions and, if possible, the group of the file that it replaces.
fn keep_permissions(file: &File, old: &Metadata) -> io::Result<()> {
    let is_in_group =
        file.metadata()?.gid() == old.gid() || std::os::unix::fs::fchown(file, None, Some(old.gid())).is_ok();
    // Another group must not get the rights of the old one.
    let mode = old.mode() & if is_in_group { 0o777 } else { 0o707 };
    file.set_permissions(Permissions::from_mode(mode))
}
