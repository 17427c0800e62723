//! A medium whose unsynced bytes are lost when the process is killed, for tests: a kill alone loses
//! nothing, since the system goes on writing what it was given. Here the system is given a file's
//! bytes when the file is synced, and not before.

use super::medium::{Medium, MediumFile};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// A medium over another one.
#[derive(Debug)]
pub(super) struct Withholding(pub(super) Arc<dyn Medium>);

#[derive(Debug)]
struct WithholdingFile {
    file: Box<dyn MediumFile>,
    /// Offsets and bytes, in the order in which they were written.
    withheld: Mutex<Vec<(u64, Vec<u8>)>>,
}

fn withholding(file: Box<dyn MediumFile>) -> Box<dyn MediumFile> {
    Box::new(WithholdingFile { file, withheld: Mutex::default() })
}

impl Medium for Withholding {
    fn names(&self) -> io::Result<Vec<String>> {
        self.0.names()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn MediumFile>> {
        self.0.create(name).map(withholding)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn MediumFile>> {
        self.0.open(name).map(withholding)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.0.sync_names()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
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
        let withheld = std::mem::take(&mut *self.withheld.lock().unwrap_or_else(PoisonError::into_inner));
        withheld.iter().try_for_each(|(offset, bytes)| self.file.write_at(*offset, bytes))?;
        self.file.sync()
    }
}
