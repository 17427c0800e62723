//! `load` and `import`: the pairs of a file into a pool.
//!
//! Nothing is lost silently: a line whose meaning is in doubt (another number of fields, a JSON
//! null, a key that is too long) is bad. It is reported with its number, and the others go on; at
//! the end the exit code is 1 if there was one. An export is checked by its first and last line
//! (`envelope.rs`): before the first pair is stored if it is a regular file, while it is stored if
//! it comes through a pipe, which cannot be read twice. Pairs are stored in batches sorted by key, which
//! keeps neighbours together; of equal keys in a batch the last wins, as it does between batches.

#[cfg(test)]
mod damage_tests;
mod delimited;
mod input;
mod json_lines;
mod lines;
mod loader;

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
use std::io;
use std::path::{Path, PathBuf};

/// How a file holds its pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Comma-separated, fields quoted with `"` where need be
    Csv,
    /// Tab-separated, without quoting
    Tsv,
    /// A JSON object a line
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

/// What to load, and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LoadArgs {
    /// The file, `-` for standard input; it may be compressed by gzip or zstd
    file: PathBuf,
    /// Its format; by default told from its name
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// The column (or JSON field) that holds the keys: a name, or a number from 1 with --no-header
    #[arg(long, value_name = "COLUMN", default_value = "key")]
    key: String,
    /// The column (or JSON field) that holds the values: a name, or a number from 1 with
    /// --no-header
    #[arg(long, value_name = "COLUMN", default_value = "value")]
    value: String,
    /// The first line is a pair already; columns are numbers, by default 1 and 2
    #[arg(long)]
    no_header: bool,
    /// Keys and values are hexadecimal in the file
    #[arg(long, conflicts_with = "escaped")]
    hex: bool,
    /// Keys and values have the escapes \n \t \r \\ \xNN in the file, as `scan` prints them
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
  darter export --all | darter import --all - --pool tcp://10.0.0.1:7000")]
pub struct ImportCommand {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    import: ImportArgs,
}

/// What to import, and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ImportArgs {
    /// What `export` has written, `-` for standard input
    file: PathBuf,
    /// The file is of `export --all`
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    how: HowArgs,
}

/// A pair with the number of the line it began in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    line: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// What a source of pairs brings next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Pair(Pair),
    /// A line that holds none, and why.
    Bad(u64, String),
}

impl Record {
    /// Returns the line it began in.
    fn line(&self) -> u64 {
        match self {
            Self::Pair(pair) => pair.line,
            Self::Bad(line, _) => *line,
        }
    }
}

/// Where pairs come from.
pub(crate) trait Records: Send {
    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// Fails if the file cannot be read on.
    fn next(&mut self) -> Result<Option<Record>, Failure>;

    /// Returns whether it failed because the input ended too early, as in [`Lines::is_cut`].
    fn is_cut(&self) -> bool;
}

/// The records of an opened file, and the bar that shows how far it was read.
type Opened = (Box<dyn Records>, ProgressBar);

impl LoadCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        // Until the file is open, which a FIFO may never be, a signal ends the process at once.
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

    /// Opens the file, and reads what names its columns.
    fn open(&self) -> Result<Opened, Failure> {
        let format = self.format()?;
        let (input, bar) = input::open(&self.file)?;
        let mut lines = Lines::new(input);
        if lines.extent()? == Some(Extent::Places) {
            return Err(Failure::usage(format_args!(
                "{}: `export --all` has written it; use `import --all`",
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
            // Without a header each default name means its place.
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
                "{}: its name does not tell the format; add `--format csv`, `tsv` or `jsonl`",
                self.file.display()
            ))),
        }
    }
}

impl ImportCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let opened = self.import.open()?;
        self.import.store(opened, &self.pool.open_or_create()?, &Interrupt::on_signals()?)
    }
}

impl ImportArgs {
    /// Imports into an open pool.
    pub(crate) fn run(&self, store: &Store) -> Result<Answer, Failure> {
        let args = self.clone();
        let opened = unless_interrupted(move || args.open())?;
        self.store(opened, store, &Interrupt::on_signals()?)
    }

    fn store(&self, opened: Opened, store: &Store, interrupt: &Interrupt) -> Result<Answer, Failure> {
        let space = if self.all { KeySpace::Whole } else { KeySpace::Program };
        store_all(opened, &self.file, self.how, store.session_in(space)?, interrupt)
    }

    /// Checks the file if it can be read twice, and opens it. A signal ends the process at once while
    /// a FIFO has no writer.
    fn open(&self) -> Result<Opened, Failure> {
        let within = |failure: Failure| failure.within(self.file.display());
        if self.file.is_file() {
            let interrupt = Interrupt::on_signals()?;
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
        }
        let (input, bar) = input::open(&self.file)?;
        Ok((self.records(input)?, bar))
    }

    /// Reads what comes before the first pair: the format, and whether the file is an export.
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
                    "`export --all` has written it, and its keys are places of the index; add `--all`",
                )));
            }
            (Some(Extent::Keys), true) => {
                return Err(within(Failure::usage(
                    "`export` has written it without `--all`; leave out `--all` here too",
                )));
            }
        }
        if first == Some(b'{') {
            return Ok(Box::new(JsonLines::new(lines, "key", "value", Notation::Escaped)));
        }
        let columns = Columns::Named { key: "key", value: "value" };
        let delimited = Delimited::tsv(lines, columns, Notation::Escaped).map_err(|failure| match failure {
            Failure::Usage(why) => Failure::usage(format_args!(
                "{}: `darter export` has not written it ({why}); other files are for `darter load`",
                self.file.display()
            )),
            other => within(other),
        });
        Ok(Box::new(delimited?.refusing_open_end(true)))
    }

    /// Says that the file cannot be checked, which `--strict` refuses.
    fn warn_of_foreign(&self) -> Result<(), Failure> {
        let what =
            "it does not begin as an export of this version does, so a cut or a change would go unnoticed";
        if self.how.strict {
            return Err(Failure::failed(format_args!(
                "{}: {what}; leave out `--strict` to import it all the same",
                self.file.display()
            )));
        }
        complain(format_args!("{}: note: {what}", self.file.display()));
        Ok(())
    }
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

/// Returns the first byte of a file without taking it.
fn first_byte(input: &mut Input) -> Result<Option<u8>, Failure> {
    loop {
        match input.fill_buf() {
            Ok(bytes) => return Ok(bytes.first().copied()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
}

/// The failure to read the file.
#[allow(clippy::needless_pass_by_value)] // for `map_err`
fn unreadable(error: io::Error) -> Failure {
    Failure::failed(format_args!("cannot read on: {error}"))
}
