//! A new file that gets its name when it is complete.
//!
//! On most file systems the file has no name until then (`O_TMPFILE`), so a process that is killed
//! leaves nothing. On the others it is named `.NAME.darter-new-PID-N` until then, and its process
//! holds a lock on it, which the kernel releases when the process ends for any reason. The next
//! draft of the same NAME removes such files that are not locked.

use super::locks::{DRAFT_LOCK, LockKind, try_lock};
use super::{folder, own_user};
use std::ffi::{CString, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A file that is removed when dropped, unless it was given its name.
#[derive(Debug)]
pub struct Draft {
    file: File,
    /// The final name.
    path: PathBuf,
    /// The interim name, on file systems that do not support unnamed files.
    interim: Option<Interim>,
}

/// A name that is removed when dropped.
#[derive(Debug)]
struct Interim(PathBuf);

impl Drop for Interim {
    fn drop(&mut self) {
        // Absent after a rename. The next draft removes files that cannot be removed here.
        let _ = fs::remove_file(&self.0);
    }
}

impl Draft {
    /// Creates an empty file in the folder of `path`, with this mode less the umask, and removes
    /// drafts for the same path whose processes have ended.
    ///
    /// # Errors
    /// Fails if the system refuses to create a file in that folder.
    pub fn create(path: &Path, mode: u32) -> io::Result<Self> {
        sweep(path);
        let mut how = OpenOptions::new();
        how.read(true).write(true).mode(mode).custom_flags(libc::O_TMPFILE);
        match how.open(folder(path)) {
            Ok(file) => {
                // A file system without locks has no drafts that could be recognized by a missing
                // lock.
                let _ = try_lock(&file, DRAFT_LOCK, LockKind::Exclusive);
                Ok(Self { file, path: path.to_owned(), interim: None })
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {
                Self::create_named(path, mode)
            }
            Err(error) => Err(error),
        }
    }

    /// [`Draft::create`] for a file system that does not support unnamed files.
    fn create_named(path: &Path, mode: u32) -> io::Result<Self> {
        loop {
            let interim = interim_name(path);
            let mut how = OpenOptions::new();
            how.read(true).write(true).create_new(true).mode(mode);
            let file = match how.open(&interim) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                opened => opened?,
            };
            // Another creator may have found it before it was locked, and removed it.
            let locked = try_lock(&file, DRAFT_LOCK, LockKind::Exclusive);
            if !matches!(locked, Ok(false)) && file.metadata()?.nlink() > 0 {
                return Ok(Self { file, path: path.to_owned(), interim: Some(Interim(interim)) });
            }
        }
    }

    /// Returns the file's final name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its name. Returns `false` if a file of that name exists.
    ///
    /// # Errors
    /// Fails if the system refuses.
    pub fn publish(self) -> io::Result<bool> {
        match self.link(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => match &self.interim {
                // Some file systems do not support links. On them, a concurrent creator can replace
                // another's file, but never by an incomplete one.
                Some(interim) if fs::symlink_metadata(&self.path).is_err() => {
                    fs::rename(&interim.0, &self.path).map(|()| true)
                }
                _ => Err(error),
            },
        }
    }

    /// Gives the file its name, replacing any file that has it. At every moment the name leads to
    /// one of the two, also after a power failure.
    ///
    /// # Errors
    /// Fails if the system refuses.
    pub fn replace(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        if self.interim.is_none() {
            self.interim = Some(loop {
                let interim = interim_name(&self.path);
                match self.link(&interim) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    linked => break linked.map(|()| Interim(interim))?,
                }
            });
        }
        let Some(interim) = &self.interim else { return Ok(()) };
        fs::rename(&interim.0, &self.path)?;
        sync_folder(&self.path)
    }

    /// Adds a name to the file.
    fn link(&self, to: &Path) -> io::Result<()> {
        if let Some(interim) = &self.interim {
            return fs::hard_link(&interim.0, to);
        }
        let from = CString::new(format!("/proc/self/fd/{}", self.file.as_raw_fd()))?;
        let to = CString::new(to.as_os_str().as_bytes())?;
        let (here, how) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
        // SAFETY: both names are terminated and outlive the call, which only reads them.
        if unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), how) } == 0 {
            return Ok(());
        }
        Err(io::Error::last_os_error())
    }
}

/// Makes the names in a path's folder durable, if the system can.
fn sync_folder(path: &Path) -> io::Result<()> {
    match File::open(folder(path)).and_then(|folder| folder.sync_all()) {
        // Some file systems cannot sync folders, and a folder need not be readable.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EACCES)) => Ok(()),
        synced => synced,
    }
}

/// Returns the prefix of the interim names of drafts of `path`.
fn interim_prefix(path: &Path) -> Vec<u8> {
    let name = path.file_name().unwrap_or_default();
    [b".", name.as_bytes(), b".darter-new-"].concat()
}

fn interim_name(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut name = interim_prefix(path);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    name.extend(format!("{}-{number}", std::process::id()).into_bytes());
    folder(path).join(OsString::from_vec(name))
}

/// Removes drafts of `path` whose processes have ended, as far as possible.
fn sweep(path: &Path) {
    let prefix = interim_prefix(path);
    let entries = fs::read_dir(folder(path)).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().as_bytes().starts_with(&prefix)) {
        let _ = remove_if_over(&entry.path());
    }
}

/// Removes a draft that no process holds.
fn remove_if_over(path: &Path) -> io::Result<()> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if found.is_file() && found.uid() == own_user() && try_lock(&file, DRAFT_LOCK, LockKind::Exclusive)? {
        fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    #[cfg_attr(miri, ignore)] // Miri does not support such files
    fn a_draft_has_no_name_until_it_is_published() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for create in [Draft::create, Draft::create_named] {
            drop(create(&path, 0o600).unwrap());
            assert!(names(folder.path()).is_empty());
            let draft = create(&path, 0o600).unwrap();
            draft.file().write_all(b"one").unwrap();
            assert!(!path.exists());
            assert!(draft.publish().unwrap());
            assert!(!create(&path, 0o600).unwrap().publish().unwrap());
            assert_eq!(fs::read(&path).unwrap(), b"one");
            let draft = create(&path, 0o600).unwrap();
            draft.file().write_all(b"two").unwrap();
            draft.replace().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"two");
            assert_eq!(names(folder.path()), ["file"]);
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    #[cfg_attr(miri, ignore)] // Miri does not support such files
    fn a_draft_of_a_dead_process_is_removed_and_one_of_a_live_process_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let live = Draft::create_named(&path, 0o600).unwrap();
        let live_name = names(folder.path());
        // As left by a killed process: the lock is gone with the description, the name remains.
        let mut dead = Draft::create_named(&path, 0o600).unwrap();
        std::mem::forget(dead.interim.take());
        drop(dead);
        fs::write(folder.path().join("file.new-1-2"), "a user's own").unwrap();
        assert_eq!(names(folder.path()).len(), 3);
        drop(Draft::create(&path, 0o600).unwrap());
        assert_eq!(names(folder.path()), [live_name[0].as_str(), "file.new-1-2"]);
        drop(live);
    }
}
