//! A medium for tests whose unsynced bytes are lost when the process is killed. A kill alone would
//! lose nothing, since the system still writes the data that it received. Here the system receives
//! a file's bytes only when the file is synced.

use super::medium::{Medium, MediumFile};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A medium over another one.
#[derive(Debug)]
pub(super) struct Withholding {
    pub(super) medium: Arc<dyn Medium>,
    /// Minimum time of a sync, during which data acknowledged too early would be missing.
    pub(super) sync_time: Duration,
}

#[derive(Debug)]
struct WithholdingFile {
    file: Box<dyn MediumFile>,
    sync_time: Duration,
    /// Offsets and bytes, in the order in which they were written.
    withheld: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl Withholding {
    fn file(&self, file: Box<dyn MediumFile>) -> Box<dyn MediumFile> {
        Box::new(WithholdingFile { file, sync_time: self.sync_time, withheld: Mutex::default() })
    }
}

impl Medium for Withholding {
    fn names(&self) -> io::Result<Vec<String>> {
        self.medium.names()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn MediumFile>> {
        self.medium.create(name).map(|file| self.file(file))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn MediumFile>> {
        self.medium.open(name).map(|file| self.file(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.medium.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.medium.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.medium.sync_names()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.medium.path(name)
    }
}

impl MediumFile for WithholdingFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.file.reserve(bytes)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.withheld.lock().unwrap_or_else(PoisonError::into_inner).push((offset, bytes.to_vec()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        std::thread::sleep(self.sync_time);
        let withheld = std::mem::take(&mut *self.withheld.lock().unwrap_or_else(PoisonError::into_inner));
        withheld.iter().try_for_each(|(offset, bytes)| self.file.write_at(*offset, bytes))?;
        self.file.sync()
    }
}
