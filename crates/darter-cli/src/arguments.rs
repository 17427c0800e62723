//! Keys, values, durations and sizes as command-line arguments.

use crate::Failure;
use crate::indexes::IndexChoice;
use crate::notation::Notation;
use darter::{ByteSize, PoolUrl, Store, StoreOptions};
use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// The notation of keys and values in arguments and output.
#[derive(Clone, Copy, clap::Args)]
pub(crate) struct NotationArgs {
    /// Read and print keys and values as hexadecimal, not as text with the escapes \n \t \r \\ \xNN
    #[arg(long)]
    hex: bool,
}

impl NotationArgs {
    pub(crate) fn notation(self) -> Notation {
        if self.hex { Notation::Hex } else { Notation::Escaped }
    }
}

impl Notation {
    /// Returns the bytes that a command-line argument denotes.
    pub(crate) fn argument(self, argument: &OsStr) -> Result<Vec<u8>, Failure> {
        self.read(argument.as_bytes())
            .map_err(|why| Failure::usage(format_args!("`{}`: {why}", argument.to_string_lossy())))
    }
}

/// The index to open a pool with.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct IndexArgs {
    /// Index of the pool: `quiver` or `dart`. An existing pool is opened only if it has this index;
    /// by default, with the one it has. A new pool gets this index [default for a new pool: quiver]
    #[arg(long, value_name = "NAME")]
    index: Option<IndexChoice>,
}

impl IndexArgs {
    /// Opens a pool.
    pub(crate) fn open(self, options: StoreOptions, url: &PoolUrl) -> Result<Store, darter::Error> {
        match self.index {
            Some(choice) => choice.0.open(options, url),
            None => options.open(url),
        }
    }

    /// Returns the name given by `--index`, if any.
    pub(crate) fn name(self) -> Option<&'static str> {
        self.index.map(|choice| choice.0.name())
    }
}

/// Parses a size; `rule` is the error message for a size out of range.
pub(crate) fn sized(text: &str, range: RangeInclusive<u64>, rule: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    if range.contains(&size.0) { Ok(size) } else { Err(rule.to_owned()) }
}

/// Parses a number of seconds, up to a year.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|error: std::num::ParseFloatError| error.to_string())?;
    // A year is as good as no limit, and adding it to a time cannot overflow.
    if (0.0..=31_536_000.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("must be from 0 seconds to a year (31536000)".to_owned())
    }
}
