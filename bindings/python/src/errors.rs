//! The Python exceptions of the library's errors; `darter._errors` defines them.

use darter::{Error, FabricError, IndexError, PoolError, TransactionError};
use pyo3::prelude::*;

/// Declares the classes of `darter._errors`, in a module since they are public structs.
mod classes {
    macro_rules! classes {
        ($($name:ident)*) => { $(pyo3::import_exception!(darter._errors, $name);)* };
    }
    classes!(Error UsageError MissingError ExistsError ReadOnlyError TooLongError FullError HeldBackError);
    classes!(DisconnectedError ShutOutError InterruptedError ConflictError DamagedError VersionError);
    classes!(TableError ForkedError ClosedError);
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

fn of_pool(error: &PoolError) -> Option<fn((String, bool)) -> PyErr> {
    Some(match error {
        PoolError::WrongVersion { .. } => classes::VersionError::new_err,
        PoolError::Damaged { .. } | PoolError::NotAPool { .. } | PoolError::NodeMismatch { .. } => {
            classes::DamagedError::new_err
        }
        PoolError::TooLarge { .. } => classes::TooLongError::new_err,
        PoolError::Options(_) | PoolError::TooSmall { .. } | PoolError::Fabric(FabricError::Geometry(_)) => {
            classes::UsageError::new_err
        }
        PoolError::Fabric(FabricError::Forked) => classes::ForkedError::new_err,
        PoolError::Fabric(error) if error.is_bad_address() => classes::DamagedError::new_err,
        _ => return None,
    })
}

/// Returns the class of an error's exception.
fn class(error: &Error) -> fn((String, bool)) -> PyErr {
    let special = match error {
        Error::Missing { .. } | Error::NeverExists { .. } => {
            Some(classes::MissingError::new_err as fn(_) -> _)
        }
        Error::Exists { .. } => Some(classes::ExistsError::new_err as _),
        Error::ReadOnly => Some(classes::ReadOnlyError::new_err as _),
        Error::Interrupted(_) => Some(classes::InterruptedError::new_err as _),
        Error::Transaction(TransactionError::Conflict) => Some(classes::ConflictError::new_err as _),
        Error::Transaction(_) => Some(classes::TooLongError::new_err as _),
        Error::CopyOfOpen { .. }
        | Error::Index(IndexError::Corrupt { .. } | IndexError::LostInWrite { .. }) => {
            Some(classes::DamagedError::new_err as _)
        }
        Error::Index(IndexError::NoIndex { .. }) => Some(classes::VersionError::new_err as _),
        Error::Table { .. } => Some(classes::TableError::new_err as _),
        Error::Fabric(FabricError::Geometry(_)) => Some(classes::UsageError::new_err as _),
        Error::Fabric(FabricError::Forked) => Some(classes::ForkedError::new_err as _),
        Error::Fabric(error) if error.is_bad_address() => Some(classes::DamagedError::new_err as _),
        Error::Pool(error) | Error::Open { source: error, .. } => of_pool(error),
        _ => None,
    };
    match error {
        _ if special.is_some() => special.unwrap_or(classes::Error::new_err),
        _ if error.is_too_long() => classes::TooLongError::new_err,
        _ if error.is_held_back() => classes::HeldBackError::new_err,
        _ if error.is_out_of_space() => classes::FullError::new_err,
        _ if error.is_disconnected() => classes::DisconnectedError::new_err,
        _ if error.is_shut_out() => classes::ShutOutError::new_err,
        _ if error.is_usage() => classes::UsageError::new_err,
        _ => classes::Error::new_err,
    }
}

/// Returns the exception of an error.
#[cold]
pub(crate) fn raise(error: Error) -> PyErr {
    class(&error)((error.to_string(), error.is_unsent()))
}
