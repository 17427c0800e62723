//! `del`: one key, or all keys of a range.
//!
//! A range is counted first. On a terminal the command asks; elsewhere it deletes nothing without
//! `--yes`, so that a script must mean it. `--dry-run` only counts.

use crate::Answer;
use crate::arguments::NotationArgs;
use crate::failure::{Failure, complain};
use crate::named_table::{Keys, TableArgs};
use crate::pool::PoolArgs;
use crate::range::RangeArgs;
use crate::signals::Interrupt;
use darter::{ScanRange, Store};
use darter_fabric::counted;
use std::ffi::OsString;
use std::io::{BufRead, IsTerminal, Write};
use std::ops::Bound;

/// Keys that are fetched, and then deleted, at a time.
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

/// What to delete.
#[derive(clap::Args)]
pub(crate) struct DelArgs {
    #[command(flatten)]
    notation: NotationArgs,
    #[command(flatten)]
    table: TableArgs,
    /// The key
    #[arg(required_unless_present_any = ["from", "to", "prefix"], conflicts_with_all = ["from", "to", "prefix"])]
    key: Option<OsString>,
    #[command(flatten)]
    range: RangeArgs,
    /// Delete a range without asking
    #[arg(long, short, conflicts_with = "key")]
    yes: bool,
    /// Print how many keys the range has, and delete none
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
                complain("no key is in this range");
                return Ok(Answer::No);
            }
            if !is_confirmed(keys)? {
                complain("nothing was deleted");
                return Ok(Answer::No);
            }
        }
        let deleted = delete_all(table, range)?;
        writeln!(out, "deleted {}", counted(deleted, "key"))?;
        Ok(if deleted == 0 { Answer::No } else { Answer::Done })
    }
}

/// Returns how many keys a range has.
fn count(table: &mut Keys, range: &ScanRange) -> Result<u64, Failure> {
    let mut keys = 0;
    table.visit(range, None, |_, _| {
        keys += 1;
        Ok(true)
    })?;
    Ok(keys)
}

/// Asks on a terminal.
///
/// # Errors
/// Fails if there is nobody to ask.
fn is_confirmed(keys: u64) -> Result<bool, Failure> {
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    let keys = counted(keys, "key");
    if !stdin.is_terminal() || !stderr.is_terminal() {
        return Err(Failure::usage(format_args!("this would delete {keys}; add --yes to have it done")));
    }
    let mut answer = String::new();
    write!(stderr, "delete {keys}? [y/N] ").and_then(|()| stderr.flush()).map_err(Failure::failed)?;
    stdin.lock().read_line(&mut answer).map_err(Failure::failed)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

/// Deletes the keys of a range, in order. Returns how many were there.
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
                return Err(Failure::Interrupted(format!(
                    "interrupted: {keys} deleted, the others are left"
                )));
            }
            deleted += u64::from(table.delete(key)?);
        }
        // What others add meanwhile behind this place stays.
        range.from = Bound::Excluded(last.clone());
    }
}
