//! `load` and `import`: store the pairs of a file in a pool, or the keys of Redis (`redis`).
//!
//! No data is lost silently: a line with an uncertain meaning (another number of fields, a JSON
//! null, a key that is too long) is bad. It is reported with its number, and the other lines are
//! stored; the exit code is then 1. An export is checked by its first and last line
//! (`envelope.rs`): before the first pair is stored if it is a regular file, or while it is stored
//! if it comes through a pipe, which cannot be read twice. Pairs are stored in batches sorted by
//! key, which groups neighbours; of equal keys the last wins, within a batch and between batches.

#[cfg(test)]
mod damage_tests;
mod delimited;
mod input;
mod json_lines;
mod lines;
mod loader;
mod redis;

use crate::Answer;
use crate::envelope::Extent;
use crate::failure::{Failure, complain};
use crate::notation::Notation;
use crate::pool::PoolArgs;
use crate::signals::{Interrupt, unless_interrupted};
use clap::ValueEnum;
use darter::engine::{Engine, KeySpace};
use darter::{Session, Store};
use delimited::{Columns, Delimited};
use indicatif::ProgressBar;
use input::Input;
use json_lines::JsonLines;
use lines::Lines;
use loader::{HowArgs, Loader};
use redis::{RedisArgs, ServerUrl};
use std::io;
use std::path::{Path, PathBuf};

/// Format of a file with pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Comma-separated, with fields quoted by `"` if necessary
    Csv,
    /// Tab-separated, without quoting
    Tsv,
    /// One JSON object per line
    Jsonl,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter load fruit.csv
  darter load people.csv.gz --key id --value name --strict
  zcat log.jsonl.gz | darter load - --format jsonl --key at --value event")]
pub struct LoadCommand {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    load: LoadArgs,
}

/// The file to load, and its format.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LoadArgs {
    /// Input file; `-` is standard input. It may be compressed by gzip or zstd
    file: PathBuf,
    /// Format of the file; by default taken from its name
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Column or JSON field with the keys: a name, or with --no-header a number from 1
    #[arg(long, value_name = "COLUMN", default_value = "key")]
    key: String,
    /// Column or JSON field with the values: a name, or with --no-header a number from 1
    #[arg(long, value_name = "COLUMN", default_value = "value")]
    value: String,
    /// Read the first line as a pair, not as a header; columns are then numbers [default: 1 and 2]
    #[arg(long)]
    no_header: bool,
    /// Read keys and values as hexadecimal
    #[arg(long, conflicts_with = "escaped")]
    hex: bool,
    /// Read the escapes \n \t \r \\ \xNN in keys and values, as printed by `scan`
    #[arg(long)]
    escaped: bool,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter export --pool file:/data/old.pool all.tsv.gz
  darter import --pool 'file:/data/new.pool?size=8G' all.tsv.gz
  darter export --all | darter import --all - --pool tcp://10.0.0.1:7000
  darter import redis://10.0.0.5:6379 --pool tcp://10.0.0.1:7000
  darter import /var/lib/redis/dump.rdb --replace")]
pub struct ImportCommand {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    import: ImportArgs,
}

/// The file to import, and its kind.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ImportArgs {
    /// File written by `export`; or for the keys of gateways an RDB file of Redis, or the URL of a
    /// Redis server, `redis://[user:password@]host[:port][/database]`; `-` is standard input
    #[arg(value_name = "SOURCE")]
    file: PathBuf,
    /// Import a file written by `export --all`
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    redis: RedisArgs,
    #[command(flatten)]
    how: HowArgs,
}

/// A source that is open.
enum Source {
    /// A file of pairs.
    Pairs(Opened),
    /// An RDB file.
    Rdb(Input, ProgressBar),
    /// A Redis server.
    Server(ServerUrl),
}

/// A pair, with the number of its first line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    line: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// The next item of a source of pairs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Pair(Pair),
    /// A line without a pair, and the reason.
    Bad(u64, String),
}

impl Record {
    /// Returns the number of its first line.
    fn line(&self) -> u64 {
        match self {
            Self::Pair(pair) => pair.line,
            Self::Bad(line, _) => *line,
        }
    }
}

/// A source of pairs.
pub(crate) trait Records: Send {
    /// Returns the next record; `None` at the end.
    ///
    /// # Errors
    /// Fails if the file cannot be read further.
    fn next(&mut self) -> Result<Option<Record>, Failure>;

    /// Returns whether `next` failed because the input ended too early, as in [`Lines::is_cut`].
    fn is_cut(&self) -> bool;
}

/// The records of an opened file, and its progress bar.
type Opened = (Box<dyn Records>, ProgressBar);

impl LoadCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        // Until the file is open, which for a FIFO can take for ever, a signal ends the process at
        // once.
        let opened = self.load.open()?;
        self.load.store(opened, &self.pool.open_or_create()?, &Interrupt::on_signals()?)
    }
}

impl LoadArgs {
    /// Loads into an open pool.
    pub(crate) fn run(&self, store: &Store) -> Result<Answer, Failure> {
        let args = self.clone();
        let opened = unless_interrupted(move || args.open())?;
        self.store(opened, store, &Interrupt::on_signals()?)
    }

    fn store(&self, opened: Opened, store: &Store, interrupt: &Interrupt) -> Result<Answer, Failure> {
        store_all(opened, &self.file, self.how, store.session()?, interrupt)
    }

    /// Opens the file, and reads the names of its columns.
    fn open(&self) -> Result<Opened, Failure> {
        let format = self.format()?;
        let (input, bar) = input::open(&self.file)?;
        let mut lines = Lines::new(input);
        if lines.extent()? == Some(Extent::Places) {
            return Err(Failure::usage(format_args!(
                "{}: written by `export --all`; use `import --all`",
                self.file.display()
            )));
        }
        let delimited = |reader: Delimited<Input>| Box::new(reader.refusing_open_end(self.how.strict));
        let records: Box<dyn Records> = match format {
            Format::Csv => delimited(Delimited::csv(lines, self.columns(), self.notation())?),
            Format::Tsv => delimited(Delimited::tsv(lines, self.columns(), self.notation())?),
            Format::Jsonl => Box::new(JsonLines::new(lines, &self.key, &self.value, self.notation())),
        };
        Ok((records, bar))
    }

    fn notation(&self) -> Notation {
        match (self.hex, self.escaped) {
            (true, _) => Notation::Hex,
            (false, true) => Notation::Escaped,
            (false, false) => Notation::Raw,
        }
    }

    fn columns(&self) -> Columns<'_> {
        match (self.no_header, self.key.as_str(), self.value.as_str()) {
            (false, key, value) => Columns::Named { key, value },
            (true, "key", "value") => Columns::Both,
            // Without a header, a default name means its position.
            (true, key, value) => Columns::Numbered {
                key: if key == "key" { "1" } else { key },
                value: if value == "value" { "2" } else { value },
            },
        }
    }

    fn format(&self) -> Result<Format, Failure> {
        if let Some(format) = self.format {
            return Ok(format);
        }
        match input::extension(input::plain_name(&self.file)).as_str() {
            "csv" => Ok(Format::Csv),
            "tsv" | "tab" => Ok(Format::Tsv),
            "jsonl" | "ndjson" | "json" => Ok(Format::Jsonl),
            _ if self.file.is_dir() => input::open(&self.file).map(|_| Format::Csv),
            _ => Err(Failure::usage(format_args!(
                "{}: unknown format for this name; add `--format csv`, `tsv` or `jsonl`",
                self.file.display()
            ))),
        }
    }
}

impl ImportCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let source = self.import.open()?;
        self.import.store(source, &self.pool.open_or_create()?, &Interrupt::on_signals()?)
    }
}

impl ImportArgs {
    /// Imports into an open pool.
    pub(crate) fn run(&self, store: &Store) -> Result<Answer, Failure> {
        let args = self.clone();
        let source = unless_interrupted(move || args.open())?;
        self.store(source, store, &Interrupt::on_signals()?)
    }

    fn store(&self, source: Source, store: &Store, interrupt: &Interrupt) -> Result<Answer, Failure> {
        let is_strict = self.how.strict;
        match source {
            Source::Pairs(opened) => {
                let space = if self.all { KeySpace::Whole } else { KeySpace::Program };
                store_all(opened, &self.file, self.how, store.session_in(space)?, interrupt)
            }
            Source::Rdb(input, bar) => {
                self.redis.import_file((input, &bar), &self.file, store, is_strict, interrupt)
            }
            Source::Server(url) => self.redis.import_server(&url, store, is_strict, interrupt),
        }
    }

    /// Checks the file if it can be read twice, and opens it. A signal ends the process at once
    /// while a FIFO has no writer.
    fn open(&self) -> Result<Source, Failure> {
        if let Some(url) = self.file.to_str().and_then(ServerUrl::parse) {
            refuse_options("a Redis server", self.all || self.how.from_line > 1)?;
            return url.map(Source::Server);
        }
        let (input, bar) = input::open(&self.file)?;
        let (is_rdb, input) = redis::is_rdb(input).map_err(|failure| failure.within(self.file.display()))?;
        if !self.file.is_file() {
            return self.source(is_rdb, input, bar);
        }
        drop(input);
        bar.finish_and_clear();
        let interrupt = Interrupt::on_signals()?;
        if is_rdb {
            self.redis.check(&self.file, &interrupt)?;
        } else {
            self.check_pairs(&interrupt)?;
        }
        let (input, bar) = input::open(&self.file)?;
        self.source(is_rdb, input, bar)
    }

    fn source(&self, is_rdb: bool, input: Input, bar: ProgressBar) -> Result<Source, Failure> {
        if is_rdb {
            refuse_options("an RDB file", self.all || self.how.from_line > 1)?;
            return Ok(Source::Rdb(input, bar));
        }
        refuse_options("a file written by `export`", self.redis.are_given())?;
        Ok(Source::Pairs((self.records(input)?, bar)))
    }

    /// Checks a file of pairs.
    fn check_pairs(&self, interrupt: &Interrupt) -> Result<(), Failure> {
        let within = |failure: Failure| failure.within(self.file.display());
        let (input, bar) = input::open(&self.file)?;
        bar.set_message("checking");
        let mut lines = Lines::new(input);
        while lines.next().map_err(within)?.is_some() {
            if interrupt.has_come() {
                let what = format!("{}: interrupted; nothing was stored", self.file.display());
                return Err(Failure::Interrupted(what));
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Reads the start of the file up to the first pair: its format, and whether it is an export.
    fn records(&self, mut input: Input) -> Result<Box<dyn Records>, Failure> {
        let within = |failure: Failure| failure.within(self.file.display());
        let first = first_byte(&mut input)?;
        if first.is_none() {
            return Err(within(Failure::failed("the file is empty; an export has a first and a last line")));
        }
        let mut lines = Lines::new(input);
        match (lines.extent().map_err(within)?, self.all) {
            (None, _) => self.warn_of_foreign()?,
            (Some(Extent::Keys), false) | (Some(Extent::Places), true) => {}
            (Some(Extent::Places), false) => {
                return Err(within(Failure::usage(
                    "written by `export --all`, so its keys are places of the index; add `--all`",
                )));
            }
            (Some(Extent::Keys), true) => {
                return Err(within(Failure::usage(
                    "written by `export` without `--all`; leave out `--all` here too",
                )));
            }
        }
        if first == Some(b'{') {
            return Ok(Box::new(JsonLines::new(lines, "key", "value", Notation::Escaped)));
        }
        let columns = Columns::Named { key: "key", value: "value" };
        let delimited = Delimited::tsv(lines, columns, Notation::Escaped).map_err(|failure| match failure {
            Failure::Usage(why) => Failure::usage(format_args!(
                "{}: not written by `darter export` ({why}); use `darter load` for other files",
                self.file.display()
            )),
            other => within(other),
        });
        Ok(Box::new(delimited?.refusing_open_end(true)))
    }

    /// Warns that the file cannot be verified; with `--strict`, fails.
    fn warn_of_foreign(&self) -> Result<(), Failure> {
        let what =
            "it does not begin like an export of this version, so a cut or a change would not be detected";
        if self.how.strict {
            return Err(Failure::failed(format_args!(
                "{}: {what}; leave out `--strict` to import it anyway",
                self.file.display()
            )));
        }
        complain(format_args!("{}: note: {what}", self.file.display()));
        Ok(())
    }
}

/// Fails if options are given that have no meaning for a source.
fn refuse_options(source: &str, are_given: bool) -> Result<(), Failure> {
    if are_given {
        let why =
            format_args!("an option that is given does not go with {source}; see `darter import --help`");
        return Err(Failure::usage(why));
    }
    Ok(())
}

/// Stores all records of an opened file.
fn store_all(
    (records, bar): Opened,
    file: &Path,
    how: HowArgs,
    session: Session,
    interrupt: &Interrupt,
) -> Result<Answer, Failure> {
    let loader = Loader::new(session, bar, &file.display().to_string(), how);
    let bad = loader.load(records, how, interrupt)?;
    Ok(if bad == 0 { Answer::Done } else { Answer::No })
}

/// Returns the first byte of a file without consuming it.
fn first_byte(input: &mut Input) -> Result<Option<u8>, Failure> {
    loop {
        match input.fill_buf() {
            Ok(bytes) => return Ok(bytes.first().copied()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
}

/// Returns the failure to read the file.
#[allow(clippy::needless_pass_by_value)] // for `map_err`
fn unreadable(error: io::Error) -> Failure {
    Failure::failed(format_args!("cannot read further: {error}"))
}
