//! Keys, values, times and sizes as arguments of a command.

use crate::Failure;
use crate::indexes::IndexChoice;
use crate::notation::Notation;
use darter::{ByteSize, PoolUrl, Store, StoreOptions};
use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// The notation of arguments and output.
#[derive(Clone, Copy, clap::Args)]
pub(crate) struct NotationArgs {
    /// Keys and values are hexadecimal, instead of text with the escapes \n \t \r \\ \xNN
    #[arg(long)]
    hex: bool,
}

impl NotationArgs {
    pub(crate) fn notation(self) -> Notation {
        if self.hex { Notation::Hex } else { Notation::Escaped }
    }
}

impl Notation {
    /// The bytes that a command-line argument stands for.
    pub(crate) fn argument(self, argument: &OsStr) -> Result<Vec<u8>, Failure> {
        self.read(argument.as_bytes())
            .map_err(|why| Failure::usage(format_args!("`{}`: {why}", argument.to_string_lossy())))
    }
}

/// Which index a pool is to be opened with.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct IndexArgs {
    /// Open a pool with this index only, and give it to a new one; by default the one that the pool
    /// holds if that is `quiver` or `dart`, and `quiver` in a new one. An unknown name lists those that
    /// there are
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

    /// Returns the name of the index that was asked for.
    pub(crate) fn name(self) -> Option<&'static str> {
        self.index.map(|choice| choice.0.name())
    }
}

/// Reads a size within a range, which `rule` names.
pub(crate) fn sized(text: &str, range: RangeInclusive<u64>, rule: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    if range.contains(&size.0) { Ok(size) } else { Err(rule.to_owned()) }
}

/// Reads a number of seconds, up to a year.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|error: std::num::ParseFloatError| error.to_string())?;
    // A year is as good as for ever, and can be added to any time.
    if (0.0..=31_536_000.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("from 0 to a year".to_owned())
    }
}
