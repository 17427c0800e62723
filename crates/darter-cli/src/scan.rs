//! `scan`: prints the pairs of a key range, one per line.

use crate::Answer;
use crate::arguments::NotationArgs;
use crate::failure::Failure;
use crate::named_table::{Omitted, TableArgs};
use crate::pool::PoolArgs;
use crate::range::RangeArgs;
use crate::signals::Interrupt;
use darter::Store;
use std::io::{BufWriter, Write};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter scan --prefix user:
  darter scan --from 2026-01 --to 2026-02 --limit 10 --reverse
  darter scan --keys-only | wc -l

`export` writes what `import` reads back.")]
pub struct ScanCommand {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    scan: ScanArgs,
}

/// The pairs to print, and their format.
#[derive(clap::Args)]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    notation: NotationArgs,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    range: RangeArgs,
    /// Maximum number of pairs to print
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Print in descending key order
    #[arg(long)]
    reverse: bool,
    /// Print only the keys
    #[arg(long)]
    keys_only: bool,
    /// Print one JSON object per line, with `key` and `value` in the selected notation; `load
    /// --escaped` reads it
    #[arg(long)]
    json: bool,
}

impl ScanCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        self.pool.read(|store| self.scan.run(store))
    }
}

impl ScanArgs {
    /// Prints the pairs of an open pool.
    pub(crate) fn run(&self, store: &Store) -> Result<Answer, Failure> {
        let mut range = self.range.range(self.notation.notation())?;
        range.reverse = self.reverse;
        let mut table = self.table.open(store)?;
        let (mut out, mut omitted) = (BufWriter::new(std::io::stdout().lock()), Omitted::default());
        table.visit(&range, self.limit, |key, value| {
            if Interrupt::of_shell().is_some_and(Interrupt::has_come) {
                return Err(Failure::Interrupted("interrupted".to_owned()));
            }
            match value {
                Err(found) if !self.keys_only => omitted.count(found),
                value => self.print(&mut out, key, value.unwrap_or_default())?,
            }
            Ok(true)
        })?;
        out.flush()?;
        Ok(omitted.complain())
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
