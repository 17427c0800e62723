//! The Python exceptions of the library's errors; `darter._errors` defines them.

use darter::{Error, ErrorKind};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use std::path::Path;

/// Declares the classes of `darter._errors`, in a module since they are public structs.
mod classes {
    macro_rules! classes {
        ($($name:ident)*) => { $(pyo3::import_exception!(darter._errors, $name);)* };
    }
    classes!(Error UsageError MissingError ExistsError ReadOnlyError TooLongError FullError HeldBackError);
    classes!(DisconnectedError ShutOutError InterruptedError ConflictError DamagedError VersionError);
    classes!(TableError ForkedError ClosedError SnapshotError);
}

/// Returns the exception of an operation on a closed store or a transaction that has ended.
pub(crate) fn closed(message: &'static str) -> PyErr {
    classes::ClosedError::new_err((message, true))
}

/// Returns the exception of a pool in memory that the parent process has opened.
pub(crate) fn forked(url: &str) -> PyErr {
    let message = format!(
        "pool `{url}` is in the memory of the process that has forked; open a `file:` pool to share it with child \
         processes"
    );
    classes::ForkedError::new_err((message, true))
}

/// Returns the exception of a handle that cannot be pickled.
pub(crate) fn usage(message: String) -> PyErr {
    classes::UsageError::new_err((message, true))
}

/// Returns the exception of a pair whose types are not those of its table.
pub(crate) fn table(message: String) -> PyErr {
    classes::TableError::new_err((message, true))
}

/// Returns the `OSError` of a file, as Python's `open` raises it.
pub(crate) fn of_file(py: Python<'_>, error: &std::io::Error, path: &Path) -> PyErr {
    let message = || -> PyResult<Py<PyAny>> {
        Ok(py.import("os")?.call_method1("strerror", (error.raw_os_error(),))?.unbind())
    };
    match message() {
        Ok(message) => PyOSError::new_err((error.raw_os_error(), message, path.as_os_str().to_owned())),
        Err(_) => PyOSError::new_err(format!("{}: {error}", path.display())),
    }
}

/// Returns the class of an error's exception.
fn class(error: &Error) -> fn((String, bool)) -> PyErr {
    match error.kind() {
        ErrorKind::Usage | ErrorKind::NotAPool => classes::UsageError::new_err,
        ErrorKind::Missing => classes::MissingError::new_err,
        ErrorKind::Exists => classes::ExistsError::new_err,
        ErrorKind::ReadOnly => classes::ReadOnlyError::new_err,
        ErrorKind::TooLong | ErrorKind::TransactionSize => classes::TooLongError::new_err,
        ErrorKind::Full => classes::FullError::new_err,
        ErrorKind::HeldBack => classes::HeldBackError::new_err,
        ErrorKind::Conflict => classes::ConflictError::new_err,
        ErrorKind::Disconnected => classes::DisconnectedError::new_err,
        ErrorKind::ShutOut => classes::ShutOutError::new_err,
        ErrorKind::Interrupted => classes::InterruptedError::new_err,
        ErrorKind::Forked => classes::ForkedError::new_err,
        ErrorKind::Version => classes::VersionError::new_err,
        ErrorKind::Damaged => classes::DamagedError::new_err,
        ErrorKind::Snapshot => classes::SnapshotError::new_err,
        ErrorKind::Table => classes::TableError::new_err,
        _ => classes::Error::new_err,
    }
}

/// Returns the exception of an error.
#[cold]
pub(crate) fn raise(error: Error) -> PyErr {
    class(&error)((error.to_string(), error.is_unsent()))
}
