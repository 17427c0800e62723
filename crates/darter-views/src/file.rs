//! A file, for groups whose replicas all run on one machine. A lock on a second file makes each
//! call atomic; a rename replaces the old file by the new one, so that a process that dies leaves
//! either the old view or the new one.

use crate::StoreError;
use crate::engine::{Engine, Revision, Stored};
use darter_fabric::files::{Access, Sharing, write_output};
use std::fs::File;
use std::io::{Error, ErrorKind, Read as _};
use std::path::PathBuf;

/// Maximum bytes of a file with a view.
const BYTES_MAX: u64 = 64 << 10;

/// One file.
pub(crate) struct FileEngine {
    path: PathBuf,
}

impl FileEngine {
    /// Creates the engine for a file, which need not exist.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(ending);
        name.into()
    }

    /// Waits for the lock. The system releases it when the file is closed.
    fn lock(&self) -> Result<File, Error> {
        let (file, _) = Sharing::default().open_or_create(&self.beside(".lock"))?;
        file.lock()?;
        Ok(file)
    }

    fn load(&self) -> Result<Option<String>, Error> {
        let mut text = String::new();
        match File::open(&self.path) {
            Ok(file) => drop(file.take(BYTES_MAX).read_to_string(&mut text)?),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
        Ok(Some(text))
    }

    fn store(&self, text: &str) -> Result<(), Error> {
        write_output(&self.path, Access::Owner, text.as_bytes())
    }

    fn fault(&self, why: Error) -> StoreError {
        StoreError::File { path: self.path.display().to_string(), why }
    }
}

/// The text is its own revision, since a view's number is never reused.
fn revision(text: Option<&String>) -> Revision {
    text.map_or(Revision::Absent, |text| Revision::At(text.clone()))
}

impl Engine for FileEngine {
    fn name(&self) -> String {
        format!("file {}", self.path.display())
    }

    fn read(&mut self) -> Result<Stored, StoreError> {
        let text = self.load().map_err(|why| self.fault(why))?;
        Ok(Stored { revision: revision(text.as_ref()), text })
    }

    fn compare_and_set(&mut self, expected: Revision, text: &str) -> Result<bool, StoreError> {
        let set = || {
            let _lock = self.lock()?;
            if revision(self.load()?.as_ref()) != expected {
                return Ok(false);
            }
            self.store(text).map(|()| true)
        };
        set().map_err(|why| self.fault(why))
    }
}
