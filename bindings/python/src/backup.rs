//! Backups to files, and restoring them.

use crate::errors;
use crate::handle::Handle;
use darter::{BackupError, BackupReport, Error};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

/// Writes a backup to a file, which is created or replaced.
pub(crate) fn backup<'py>(handle: &Handle, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyDict>> {
    let file = File::create(&path).map_err(|error| errors::of_file(py, &error, &path))?;
    let report = handle.run_long(py, move |store| {
        let mut out = BufWriter::new(file);
        let report = store.backup(&mut out)?;
        let synced = out.flush().and_then(|()| out.get_ref().sync_all());
        match synced {
            // A pipe has no medium.
            Err(error) if error.kind() != std::io::ErrorKind::InvalidInput => {
                Err(Error::Backup(BackupError::Io(error)))
            }
            _ => Ok(report),
        }
    })?;
    described(py, report)
}

/// Restores a backup from a file.
pub(crate) fn restore<'py>(handle: &Handle, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyDict>> {
    let file = BufReader::new(File::open(&path).map_err(|error| errors::of_file(py, &error, &path))?);
    let report = handle.run_long(py, move |store| store.restore(file))?;
    described(py, report)
}

fn described(py: Python<'_>, report: BackupReport) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("pairs", report.pairs)?;
    dict.set_item("bytes", report.bytes)?;
    let since = report.taken_at.duration_since(UNIX_EPOCH);
    let since = since.map_err(|_| errors::usage("the backup is from before 1970".to_owned()))?;
    dict.set_item("taken_at", since.as_secs_f64())?;
    dict.set_item("pool_id", report.pool_id)?;
    Ok(dict)
}
