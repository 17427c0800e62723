//! The medium with the log's files: a directory of a file system, or in tests a simulated one that
//! loses power.
//!
//! Data written to a file is durable after a successful sync of that file, and a change of names
//! (creation, renaming or removal) after a sync of the names. After a power failure everything else
//! may be present, absent or partial.

use darter_fabric::files::{Sharing, open_own};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A set of named files.
pub(super) trait Medium: Send + Sync + std::fmt::Debug {
    /// Returns the names of all files.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Creates an empty file, and replaces an existing file of the name.
    fn create(&self, name: &str) -> io::Result<Box<dyn MediumFile>>;
    /// Opens a file.
    fn open(&self, name: &str) -> io::Result<Box<dyn MediumFile>>;
    /// Renames a file, and replaces an existing file of the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file, if it exists.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Waits until all names are durable.
    fn sync_names(&self) -> io::Result<()>;
    /// Returns the path of a file, for messages.
    fn path(&self, name: &str) -> PathBuf;
}

/// An open file of a medium.
pub(super) trait MediumFile: Send + std::fmt::Debug {
    /// Returns its size in bytes.
    fn size(&self) -> io::Result<u64>;
    /// Allocates disk space for this number of bytes from its beginning, which read as zeros.
    fn reserve(&self, bytes: u64) -> io::Result<()>;
    /// Fills a buffer from this offset on. Bytes beyond the file's end read as zeros.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Writes bytes at this offset.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes the next reads read the medium, and not a copy that the system has.
    fn forget(&self) -> io::Result<()> {
        Ok(())
    }
    /// Waits until its content is durable. After an error it is unknown which part is: the system
    /// may have dropped data that it could not write, and a second call would report success.
    fn sync(&self) -> io::Result<()>;
}

/// A directory.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// The directory itself, locked because it belongs to one node.
    handle: File,
    /// The users that can read and write new files.
    sharing: Sharing,
}

impl Directory {
    /// Opens a directory for this process alone; creates it if it is absent.
    pub(super) fn open(path: &Path, sharing: Sharing) -> io::Result<Arc<dyn Medium>> {
        let is_new = sharing.create_directory(path)?;
        let handle = File::open(path)?;
        handle.try_lock().map_err(|error| match error {
            std::fs::TryLockError::WouldBlock => {
                io::Error::new(io::ErrorKind::ResourceBusy, "it is open in another process")
            }
            std::fs::TryLockError::Error(error) => error,
        })?;
        if is_new {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
        }
        Ok(Arc::new(Self { path: path.to_owned(), handle, sharing }))
    }
}

impl Medium for Directory {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn MediumFile>> {
        let (file, is_new) = self.sharing.open_or_create(&self.path(name))?;
        if !is_new {
            file.set_len(0)?;
            self.sharing.apply(&file)?;
        }
        Ok(Box::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn MediumFile>> {
        Ok(Box::new(open_own(&self.path(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match std::fs::remove_file(self.path(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn sync_names(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl MediumFile for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let mode = rustix::fs::FallocateFlags::empty();
        match rustix::fs::fallocate(self, mode, 0, bytes) {
            // On a file system without reservations, space is allocated as it is written.
            Err(rustix::io::Errno::OPNOTSUPP) if self.size()? < bytes => self.set_len(bytes),
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            reserved => Ok(reserved?),
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            match FileExt::read_at(self, &mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        buffer[filled..].fill(0);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn forget(&self) -> io::Result<()> {
        // Only a hint: a file system without such copies refuses it.
        let _ = rustix::fs::fadvise(self, 0, None, rustix::fs::Advice::DontNeed);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
