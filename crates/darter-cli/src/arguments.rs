//! Keys, values and times as arguments of a command.

use crate::Failure;
use crate::notation::Notation;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use darter::IndexKind;
use std::ffi::OsStr;
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
    /// holds, and `quiver` in a new one
    #[arg(long, value_name = "NAME", value_parser = index_names())]
    pub(crate) index: Option<IndexKind>,
}

/// Reads the name of an index that a store can work on.
fn index_names() -> impl TypedValueParser<Value = IndexKind> {
    PossibleValuesParser::new(IndexKind::ALL.map(IndexKind::name)).try_map(|name| name.parse::<IndexKind>())
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
