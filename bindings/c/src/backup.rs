//! Backups to files, and restoring them.

use crate::arguments::{Output, handle, text};
use crate::status::darter_status::DARTER_OK;
use crate::status::{Failure, call, darter_status};
use crate::store::darter_store;
use darter::{BackupError, BackupReport, Error};
use std::ffi::c_char;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

/// What a backup holds.
#[repr(C)]
pub struct darter_backup_report {
    /// Number of pairs.
    pub pairs: u64,
    /// Bytes of all keys and values.
    pub bytes: u64,
    /// The moment as of which it shows the pool, in milliseconds since 1970.
    pub taken_at_ms: u64,
    /// The id of the pool.
    pub pool_id: u64,
}

impl From<BackupReport> for darter_backup_report {
    fn from(report: BackupReport) -> Self {
        let since = report.taken_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let taken_at_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        Self { pairs: report.pairs, bytes: report.bytes, taken_at_ms, pool_id: report.pool_id }
    }
}

/// Returns a path.
///
/// # Safety
/// `path` is NULL or a string that is valid during the call.
unsafe fn path_of(path: *const c_char) -> Result<PathBuf, Failure> {
    // SAFETY: as promised to this function.
    let path = unsafe { text("path", path)? };
    path.map(PathBuf::from).ok_or_else(|| Failure::argument("path is NULL"))
}

fn at(path: PathBuf, action: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Io { path, action, source }
}

/// Writes all pairs of the pool as of this moment, those of gateways included, to a file, which is
/// created or truncated, while other processes go on changing them. Sets `*report` unless it is NULL.
/// Only if it returns DARTER_OK the file is a backup. `darter restore - < FILE` reads it too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_backup(
    store: *const darter_store,
    path: *const c_char,
    report: *mut darter_backup_report,
) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe {
        let (output, path) = (Output::optional(report), path_of(path)?);
        let store = &handle("store", store)?.store;
        let mut out = BufWriter::new(File::create(&path).map_err(at(path.clone(), "create it"))?);
        let taken = store.backup(&mut out)?;
        out.flush().map_err(at(path.clone(), "write it"))?;
        match out.get_ref().sync_all() {
            // A pipe has no medium.
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => {
                return Err(Error::Backup(BackupError::Io(error)).into());
            }
            _ => {}
        }
        if let Some(output) = output {
            output.set(taken.into());
        }
        Ok(DARTER_OK)
    })
}

/// Stores all pairs of a backup in this pool, which must be empty: DARTER_ERROR_USAGE if it is not. The
/// pool may have another size and index than the one that was backed up. The pairs appear at one
/// moment, when all have been read and verified. Sets `*report` unless it is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn darter_restore(
    store: *const darter_store,
    path: *const c_char,
    report: *mut darter_backup_report,
) -> darter_status {
    // SAFETY: the caller keeps to the header: each pointer is NULL or valid during the call.
    call(|| unsafe {
        let (output, path) = (Output::optional(report), path_of(path)?);
        let store = &handle("store", store)?.store;
        let file = File::open(&path).map_err(at(path.clone(), "read it"))?;
        let restored = store.restore(BufReader::new(file))?;
        if let Some(output) = output {
            output.set(restored.into());
        }
        Ok(DARTER_OK)
    })
}
