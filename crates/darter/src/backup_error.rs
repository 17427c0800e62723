//! Why a backup cannot be written, read or restored.

use std::io;

/// The version of the format.
pub(crate) const VERSION: u64 = 1;

/// A backup that cannot be read.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// use darter::{BackupError, Error};
///
/// let error = store.restore(&b"pear is green"[..]).unwrap_err();
/// assert!(matches!(error, Error::Backup(BackupError::NotABackup)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The bytes are not a backup.
    #[error("this is no backup of darter: its first bytes are others; check the path")]
    NotABackup,
    /// A newer program has written the backup.
    #[error(
        "the backup has format version {0}, and this program reads version {VERSION}; use a newer program"
    )]
    Version(u64),
    /// Bytes are missing at the end.
    #[error("the backup is cut short after {at} bytes; restore another one")]
    CutShort {
        /// Number of bytes that were read.
        at: u64,
    },
    /// Bytes have changed.
    #[error("the backup is damaged in the {bytes} bytes from byte {at}: {what}; restore another one")]
    Damaged {
        /// Where the damaged part begins.
        at: u64,
        /// Its length.
        bytes: u64,
        /// What was found.
        what: &'static str,
    },
    /// The pool to restore into is not empty.
    #[error("the pool is not empty; restore a backup into a new pool, or remove all keys before")]
    NotEmpty,
    /// The backup could not be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
}
