//! Keys and values as arguments of a command.

use crate::Failure;
use crate::notation::Notation;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

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
