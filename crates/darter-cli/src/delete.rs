//! `del`: removes one key, or all keys of a range.
//!
//! The keys of a range are counted first. On a terminal the command asks for confirmation;
//! otherwise it requires `--yes`, so that a script cannot delete a range by mistake. `--dry-run`
//! only counts.

use crate::Answer;
use crate::arguments::NotationArgs;
use crate::confirmation::is_confirmed;
use crate::failure::{Failure, complain};
use crate::named_table::{Keys, TableArgs};
use crate::pool::PoolArgs;
use crate::range::RangeArgs;
use crate::signals::Interrupt;
use darter::{ScanRange, Store};
use darter_fabric::counted;
use std::ffi::OsString;
use std::io::Write;
use std::ops::Bound;

/// Number of keys that are read, and then deleted, at a time.
const CHUNK_KEYS: usize = 512;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter del pear
  darter del --prefix session: --dry-run
  darter del --from 2025-01 --to 2026-01 --yes")]
pub struct DelCommand {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    del: DelArgs,
}

/// The keys to delete.
#[derive(clap::Args)]
pub(crate) struct DelArgs {
    #[command(flatten)]
    notation: NotationArgs,
    #[command(flatten)]
    table: TableArgs,
    /// Key to remove
    #[arg(required_unless_present_any = ["from", "to", "prefix"], conflicts_with_all = ["from", "to", "prefix"])]
    key: Option<OsString>,
    #[command(flatten)]
    range: RangeArgs,
    /// Delete a range without confirmation
    #[arg(long, short, conflicts_with = "key")]
    yes: bool,
    /// Print the number of keys in the range, and delete none
    #[arg(long, conflicts_with_all = ["key", "yes"])]
    dry_run: bool,
}

impl DelCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        self.del.run(&self.pool.existing()?)
    }
}

impl DelArgs {
    /// Deletes from an open pool.
    pub(crate) fn run(&self, store: &Store) -> Result<Answer, Failure> {
        let notation = self.notation.notation();
        let mut keys = self.table.open(store)?;
        let Some(key) = &self.key else { return self.delete_range(&mut keys) };
        let key = notation.argument(key)?;
        if keys.delete(&key)? {
            return Ok(Answer::Done);
        }
        complain(format_args!("no such key: {}", notation.write(&key)));
        Ok(Answer::No)
    }

    fn delete_range(&self, table: &mut Keys) -> Result<Answer, Failure> {
        let range = self.range.range(self.notation.notation())?;
        let mut out = std::io::stdout().lock();
        if self.dry_run {
            writeln!(out, "{}", counted(count(table, &range)?, "key"))?;
            return Ok(Answer::Done);
        }
        if !self.yes {
            let keys = count(table, &range)?;
            if keys == 0 {
                complain("there are no keys in this range");
                return Ok(Answer::No);
            }
            if !is_confirmed("delete", &counted(keys, "key"))? {
                complain("nothing was deleted");
                return Ok(Answer::No);
            }
        }
        let deleted = delete_all(table, range)?;
        writeln!(out, "deleted {}", counted(deleted, "key"))?;
        Ok(if deleted == 0 { Answer::No } else { Answer::Done })
    }
}

/// Returns the number of keys in a range.
fn count(table: &mut Keys, range: &ScanRange) -> Result<u64, Failure> {
    let mut keys = 0;
    table.visit(range, None, |_, _| {
        keys += 1;
        Ok(true)
    })?;
    Ok(keys)
}

/// Deletes the keys of a range, in order. Returns the number of keys deleted.
fn delete_all(table: &mut Keys, mut range: ScanRange) -> Result<u64, Failure> {
    let interrupt = Interrupt::on_signals()?;
    let mut deleted = 0;
    loop {
        let mut chunk = Vec::new();
        table.visit(&range, Some(CHUNK_KEYS), |key, _| {
            chunk.push(key.to_vec());
            Ok(true)
        })?;
        let Some(last) = chunk.last() else { return Ok(deleted) };
        for key in &chunk {
            if interrupt.has_come() {
                let keys = counted(deleted, "key");
                return Err(Failure::Interrupted(format!("interrupted: {keys} deleted, the others remain")));
            }
            deleted += u64::from(table.delete(key)?);
        }
        // Keys that others add before this position are not deleted.
        range.from = Bound::Excluded(last.clone());
    }
}
