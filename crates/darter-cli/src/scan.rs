//! `scan`: the pairs of a key range, one a line.

use crate::Answer;
use crate::failure::Failure;
use crate::notation::NotationArgs;
use crate::pool::PoolArgs;
use darter::ScanRange;
use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::ops::Bound;

#[derive(clap::Args)]
pub(crate) struct ScanCommand {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    notation: NotationArgs,
    /// The least key
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// The key to end before
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// Only keys that begin so
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
    /// At most so many pairs
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// From the greatest key down
    #[arg(long)]
    reverse: bool,
    /// Print keys without values
    #[arg(long)]
    keys_only: bool,
    /// Print a JSON object a line, with `key` and `value` in the notation chosen; `load --escaped`
    /// reads it back
    #[arg(long)]
    json: bool,
}

impl ScanCommand {
    fn range(&self) -> Result<ScanRange, Failure> {
        let bytes = |key: &Option<OsString>| {
            key.as_ref().map(|key| self.notation.notation().argument(key)).transpose()
        };
        let mut range = match bytes(&self.prefix)? {
            Some(prefix) => ScanRange::prefix(&prefix),
            None => ScanRange {
                from: bytes(&self.from)?.map_or(Bound::Unbounded, Bound::Included),
                to: bytes(&self.to)?.map_or(Bound::Unbounded, Bound::Excluded),
                reverse: false,
            },
        };
        range.reverse = self.reverse;
        Ok(range)
    }

    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let range = self.range()?;
        let mut session = self.pool.existing()?.session()?;
        let mut out = BufWriter::new(std::io::stdout().lock());
        let pairs = session.scan(range);
        for pair in if let Some(limit) = self.limit { pairs.limit(limit) } else { pairs } {
            let (key, value) = pair?;
            self.print(&mut out, &key, &value)?;
        }
        out.flush()?;
        Ok(Answer::Done)
    }

    fn print(&self, out: &mut impl Write, key: &[u8], value: &[u8]) -> std::io::Result<()> {
        let notation = self.notation.notation();
        let key = notation.write(key);
        match (self.json, self.keys_only) {
            (false, true) => writeln!(out, "{key}"),
            (false, false) => writeln!(out, "{key}\t{}", notation.write(value)),
            (true, true) => writeln!(out, "{}", serde_json::json!({ "key": key })),
            (true, false) => {
                writeln!(out, "{}", serde_json::json!({ "key": key, "value": notation.write(value) }))
            }
        }
    }
}
