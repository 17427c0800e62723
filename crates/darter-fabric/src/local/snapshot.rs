//! A snapshot of a pool file, for a process that may not write it.
//!
//! A process that reads a pool must announce it, or memory may be reused during the read: it takes
//! a line in the member table and publishes epochs, which are writes. Here these go to a copy in
//! this process, which no other process sees. So a snapshot is taken only of a file that no other
//! process has open, and [`Snapshot::verify`] reports afterwards whether a process has opened it
//! since: a new member changes the table near the beginning of the file.

use super::file::PoolFile;
use super::identity::MemoryIdentities;
use crate::FabricError;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes at the beginning of the file that are compared: superblock, members and more.
const HEAD_BYTES: usize = 1 << 20;

/// A file opened for reading, with the client slots of this process.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) file: PoolFile,
    pub(super) identities: MemoryIdentities,
    head: Vec<u8>,
}

impl Snapshot {
    pub(super) fn of(file: PoolFile) -> Result<Self, FabricError> {
        let head = head(&file)?;
        Ok(Self { file, identities: MemoryIdentities::default(), head })
    }

    pub(super) fn file(&self) -> &PoolFile {
        &self.file
    }

    /// Fails if another process has opened the file since.
    pub(super) fn verify(&self) -> Result<(), FabricError> {
        if self.file.is_in_use()? || head(&self.file)? != self.head {
            return Err(FabricError::geometry(format!(
                "{} was opened by another process while it was read, so the data read may mix two states of it; read \
                 it again",
                self.file.path().display()
            )));
        }
        Ok(())
    }
}

/// Reads the beginning of the file.
fn head(file: &PoolFile) -> Result<Vec<u8>, FabricError> {
    let mut head = vec![0; HEAD_BYTES];
    let mut filled = 0;
    while filled < head.len() {
        match file.description().read_at(&mut head[filled..], filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(file.error("read it", source)),
        }
    }
    head.truncate(filled);
    Ok(head)
}

#[cfg(test)]
mod tests {
    use crate::local::FileOptions;
    use crate::{
        Fabric, Local, Membership, SUPERBLOCK_MAGIC, SUPERBLOCK_NODE_BYTES_WORD, SUPERBLOCK_NODES_WORD,
    };
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    const BYTES: u64 = 1 << 20;

    /// Creates a file that begins like a pool of one node.
    fn pool_at(path: &Path) -> File {
        let file = File::create(path).unwrap();
        file.set_len(BYTES).unwrap();
        for (word, value) in
            [(0, SUPERBLOCK_MAGIC), (SUPERBLOCK_NODES_WORD, 1), (SUPERBLOCK_NODE_BYTES_WORD, BYTES)]
        {
            file.write_all_at(&value.to_le_bytes(), word as u64 * 8).unwrap();
        }
        file
    }

    #[test]
    #[cfg_attr(miri, ignore)] // Miri cannot map files
    fn many_processes_read_an_unwritten_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool");
        drop(pool_at(&path));
        let (one, other) = (Local::file_snapshot(&path).unwrap(), Local::file_snapshot(&path).unwrap());
        one.claim(3).map(drop).unwrap();
        other.verify().unwrap();
        // Readers protect the file from truncation; a writer may open it, and is detected.
        let how = FileOptions { overwrite: true, ..FileOptions::default() };
        let cut = Local::file_create_with(&path, BYTES, 1, &how).map(drop).unwrap_err().to_string();
        assert!(cut.contains("is being read by another process"), "{cut}");
        let writer = Local::file_open(&path).unwrap();
        assert!(one.verify().unwrap_err().to_string().contains("opened by another process"));
        let refused = Local::file_snapshot(&path).unwrap_err().to_string();
        assert!(refused.contains("is open in another process"), "{refused}");
        drop(writer);
        one.verify().unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore)] // Miri cannot map files
    fn a_writer_that_came_and_went_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool");
        let file = pool_at(&path);
        let snapshot = Local::file_snapshot(&path).unwrap();
        file.write_all_at(&[1], 8192).unwrap();
        assert!(snapshot.verify().is_err());
        Local::file_snapshot(&path).unwrap().verify().unwrap();
    }
}
