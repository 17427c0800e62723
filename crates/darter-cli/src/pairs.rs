//! `put` and `get`: store and print one pair.

use crate::Answer;
use crate::arguments::NotationArgs;
use crate::failure::{Failure, complain};
use crate::named_table::TableArgs;
use crate::pool::PoolArgs;
use crate::signals::unless_interrupted;
use darter::{Condition, Store};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::PathBuf;

/// Maximum bytes of a value read from a file: far above the largest value of any pool.
const VALUE_FILE_BYTES_MAX: u64 = 1 << 30;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter put pear green
  darter put picture --value-file pear.png
  darter put counter 2 --if-equal 1 || echo 'another client was faster'")]
pub struct PutCommand {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    put: PutArgs,
}

/// The pair to store.
#[derive(clap::Args)]
pub(crate) struct PutArgs {
    #[command(flatten)]
    notation: NotationArgs,
    #[command(flatten)]
    table: TableArgs,
    /// Key to store the value under
    key: OsString,
    /// Value to store
    #[arg(required_unless_present = "value_file")]
    value: Option<OsString>,
    /// Read the value from a file, unchanged; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    value_file: Option<PathBuf>,
    /// Store only if the key is absent; otherwise exit code 1
    #[arg(long, group = "condition")]
    if_absent: bool,
    /// Store only if the key is present; otherwise exit code 1
    #[arg(long, group = "condition")]
    if_present: bool,
    /// Store only if the key has this value; otherwise exit code 1
    #[arg(long, value_name = "VALUE", group = "condition")]
    if_equal: Option<OsString>,
}

impl PutCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let operation = self.put.operation()?;
        operation.run(&self.pool.open_or_create()?)
    }
}

/// The arguments of a put, parsed.
struct Put {
    table: TableArgs,
    key: Vec<u8>,
    value: Vec<u8>,
    expected: Option<Vec<u8>>,
    if_absent: bool,
    if_present: bool,
}

impl PutArgs {
    /// Stores into an open pool.
    pub(crate) fn run(&self, store: &Store) -> Result<Answer, Failure> {
        self.operation()?.run(store)
    }

    fn operation(&self) -> Result<Put, Failure> {
        let notation = self.notation.notation();
        let key = notation.argument(&self.key)?;
        let value = match (&self.value, &self.value_file) {
            (_, Some(path)) => {
                let path = path.clone();
                unless_interrupted(move || read_value(&path))?
            }
            (Some(value), None) => notation.argument(value)?,
            (None, None) => Vec::new(),
        };
        let expected = self.if_equal.as_ref().map(|text| notation.argument(text)).transpose()?;
        let Self { table, if_absent, if_present, .. } = *self;
        Ok(Put { table, key, value, expected, if_absent, if_present })
    }
}

impl Put {
    fn run(&self, store: &Store) -> Result<Answer, Failure> {
        let condition = match (&self.expected, self.if_absent, self.if_present) {
            (Some(expected), ..) => Condition::Equals(expected),
            (None, true, _) => Condition::Absent,
            (None, false, true) => Condition::Present,
            (None, false, false) => Condition::Always,
        };
        if self.table.open(store)?.put_if(&self.key, &self.value, condition)? {
            return Ok(Answer::Done);
        }
        complain(match condition {
            Condition::Absent => "the key is present; nothing was stored",
            Condition::Present => "the key is absent; nothing was stored",
            Condition::Equals(_) | Condition::Always => {
                "the key has another value, or none; nothing was stored"
            }
        });
        Ok(Answer::No)
    }
}

/// Reads a value from a file or standard input.
fn read_value(path: &PathBuf) -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin().lock().take(VALUE_FILE_BYTES_MAX + 1).read_to_end(&mut value)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(VALUE_FILE_BYTES_MAX + 1).read_to_end(&mut value))
    };
    match read {
        Err(error) => Err(Failure::usage(format_args!("{}: {error}", path.display()))),
        Ok(bytes) if bytes as u64 > VALUE_FILE_BYTES_MAX => Err(Failure::usage(format_args!(
            "{}: larger than 1 GiB, which is too large for a value",
            path.display()
        ))),
        Ok(_) => Ok(value),
    }
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter get pear
  darter get picture --raw > pear.png
  darter get --table redis:0 session:7")]
pub struct GetCommand {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    get: GetArgs,
}

/// The key to print the value of.
#[derive(clap::Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    notation: NotationArgs,
    #[command(flatten)]
    table: TableArgs,
    /// Key to print the value of
    key: OsString,
    /// Write the bytes of the value unchanged, without a line end
    #[arg(long)]
    raw: bool,
}

impl GetCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        // Invalid arguments are refused before a pool is opened.
        self.get.notation.notation().argument(&self.get.key)?;
        self.pool.read(|store| self.get.run(store))
    }
}

impl GetArgs {
    /// Prints the value in an open pool.
    pub(crate) fn run(&self, store: &Store) -> Result<Answer, Failure> {
        let notation = self.notation.notation();
        let key = notation.argument(&self.key)?;
        let Some(value) = self.table.open(store)?.get(&key)? else {
            complain(format_args!("no such key: {}", notation.write(&key)));
            return Ok(Answer::No);
        };
        let mut out = std::io::stdout().lock();
        if self.raw {
            out.write_all(&value)?;
        } else {
            writeln!(out, "{}", notation.write(&value))?;
        }
        out.flush()?;
        Ok(Answer::Done)
    }
}
