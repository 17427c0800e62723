//! A range of keys as options of a command.

use crate::failure::Failure;
use crate::notation::Notation;
use darter::ScanRange;
use std::ffi::OsString;
use std::ops::Bound;

/// The range of keys.
#[derive(clap::Args)]
pub(crate) struct RangeArgs {
    /// First key of the range (inclusive)
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// End of the range (exclusive)
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// Only keys with this prefix
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
}

impl RangeArgs {
    /// Returns the range; without bounds, all keys.
    pub(crate) fn range(&self, notation: Notation) -> Result<ScanRange, Failure> {
        let bytes = |key: &Option<OsString>| key.as_ref().map(|key| notation.argument(key)).transpose();
        Ok(match bytes(&self.prefix)? {
            Some(prefix) => ScanRange::prefix(&prefix),
            None => ScanRange {
                from: bytes(&self.from)?.map_or(Bound::Unbounded, Bound::Included),
                to: bytes(&self.to)?.map_or(Bound::Unbounded, Bound::Excluded),
                reverse: false,
            },
        })
    }
}
