//! The options to open a store, from keyword arguments.

use crate::errors;
use darter::{IndexKind, Secrets, StoreOptions, TcpOptions};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::time::Duration;

/// The names of the options, for the message about an unknown one.
const NAMES: &str = "create, create_new, truncate, read_only, durable, index, cache_bytes, lease, block_bytes, sweep, \
                     rejoin, accept_new_pool, accept_copy, token, token_file";

/// Returns options from keyword arguments.
///
/// # Errors
/// Fails if a name is unknown or a value has the wrong type.
pub(crate) fn from_arguments(arguments: &Bound<'_, PyDict>) -> PyResult<StoreOptions> {
    let mut options = StoreOptions::default();
    for (name, value) in arguments {
        let name: String = name.extract()?;
        options = with(options, &name, &value).map_err(|error| {
            PyErr::from_type(
                error.get_type(value.py()),
                format!("option `{name}`: {}", error.value(value.py())),
            )
        })?;
    }
    Ok(options)
}

fn with(options: StoreOptions, name: &str, value: &Bound<'_, PyAny>) -> PyResult<StoreOptions> {
    Ok(match name {
        "create" if value.is_none() => options,
        "create" => options.create(value.extract()?),
        "create_new" => options.create_new(value.extract()?),
        "truncate" => options.truncate(value.extract()?),
        "read_only" => options.read_only(value.extract()?),
        "durable" => options.durable(value.extract()?),
        "index" => match &*value.extract::<String>()? {
            "quiver" => options.index(IndexKind::Quiver),
            "dart" => options.index(IndexKind::Dart),
            other => return Err(PyValueError::new_err(format!("no index `{other}`; use quiver or dart"))),
        },
        "cache_bytes" => options.cache_bytes(value.extract()?),
        "lease" => options.lease(lease(value.extract()?)?),
        "block_bytes" => options.block_bytes(value.extract()?),
        "sweep" => options.sweep(value.extract()?),
        "rejoin" => options.rejoin(value.extract()?),
        "accept_new_pool" => options.accept_new_pool(value.extract()?),
        "accept_copy" => options.accept_copy(value.extract()?),
        "token" => {
            let Ok(token) = value.extract::<Vec<u8>>() else {
                let found = value.get_type().name()?;
                return Err(PyTypeError::new_err(format!(
                    "a token is bytes, not {found}; `token_file` names a file with it"
                )));
            };
            options.tcp(TcpOptions { token: token.into(), ..TcpOptions::default() })
        }
        "token_file" => {
            let token = Secrets::from_file(&value.extract::<PathBuf>()?, "token");
            let token = token.map_err(|error| PyValueError::new_err(error.to_string()))?;
            options.tcp(TcpOptions { token, ..TcpOptions::default() })
        }
        _ => return Err(PyTypeError::new_err(format!("there is no such option; there are {NAMES}"))),
    })
}

fn lease(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|why| PyValueError::new_err(format!("{seconds}: {why}")))
}

/// Returns the options that open the same pool in another process, or again.
///
/// # Errors
/// Fails if Python is out of memory.
pub(crate) fn existing<'py>(arguments: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    let existing = arguments.copy()?;
    for name in ["create_new", "truncate"] {
        if existing.contains(name)? {
            existing.del_item(name)?;
        }
    }
    existing.set_item("create", false)?;
    Ok(existing)
}

/// Returns a pool's name with an absolute path, so that it stays valid in another directory.
///
/// # Errors
/// Fails if the name is malformed, or a relative path cannot be resolved.
pub(crate) fn absolute(url: &str) -> PyResult<darter::PoolUrl> {
    if url.contains('\0') {
        return Err(errors::usage(format!("pool `{}`: a name has no NUL", url.escape_debug())));
    }
    let parse = |url: &str| url.parse::<darter::PoolUrl>().map_err(|error| errors::raise(error.into()));
    let parsed = parse(url)?;
    let Some(path) = parsed.path().filter(|path| path.is_relative()) else { return Ok(parsed) };
    let (Some(relative), Some(absolute)) =
        (path.to_str(), std::path::absolute(path)?.to_str().map(str::to_owned))
    else {
        return Ok(parsed);
    };
    parse(&url.replacen(relative, &absolute, 1))
}
