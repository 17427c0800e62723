//! `load`: the pairs of a file into a pool.
//!
//! A line that cannot be read or stored is reported with its number, and the others go on; at the
//! end the exit code is 1 if there was one. Pairs are stored in batches sorted by key, which keeps
//! neighbours together; of equal keys in a batch the last wins, as it does between batches.

mod delimited;
mod json_lines;
mod lines;

use crate::Answer;
use crate::failure::{Failure, complain};
use crate::notation::Notation;
use crate::pool::PoolArgs;
use clap::ValueEnum;
use darter::{PutOutcome, Session};
use delimited::Delimited;
use indicatif::{ProgressBar, ProgressStyle};
use json_lines::JsonLines;
use lines::Lines;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::PathBuf;

/// Bytes of keys and values in a batch, at most, give or take one pair.
const BATCH_BYTES: usize = 16 << 20;

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
pub(crate) struct LoadCommand {
    #[command(flatten)]
    pool: PoolArgs,
    /// The file, `-` for standard input
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
    /// Pairs that are sorted and stored together
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    batch: u64,
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

/// Where pairs come from.
pub(crate) trait Records {
    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// Fails if the file cannot be read on.
    fn next(&mut self) -> Result<Option<Record>, Failure>;
}

impl LoadCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let format = self.format()?;
        let (input, bar) = self.input()?;
        let lines = Lines::new(BufReader::with_capacity(1 << 18, bar.wrap_read(input)));
        let (key, value) = self.columns();
        let records: Box<dyn Records> = match format {
            Format::Csv => Box::new(Delimited::csv(lines, key, value, !self.no_header, self.notation())?),
            Format::Tsv => Box::new(Delimited::tsv(lines, key, value, !self.no_header, self.notation())?),
            Format::Jsonl => Box::new(JsonLines::new(lines, key, value, self.notation())),
        };
        let store = self.pool.open_or_create()?;
        let mut loader = Loader::new(store.session()?, bar, self.file.display().to_string());
        let outcome = loader.load(records, self.batch as usize);
        loader.finish();
        outcome?;
        Ok(if loader.bad == 0 { Answer::Done } else { Answer::No })
    }

    fn notation(&self) -> Notation {
        match (self.hex, self.escaped) {
            (true, _) => Notation::Hex,
            (false, true) => Notation::Escaped,
            (false, false) => Notation::Raw,
        }
    }

    /// The columns' names. Without a header the default names mean the first two.
    fn columns(&self) -> (&str, &str) {
        let or_number = |name, default, number| if self.no_header && name == default { number } else { name };
        (or_number(self.key.as_str(), "key", "1"), or_number(self.value.as_str(), "value", "2"))
    }

    fn format(&self) -> Result<Format, Failure> {
        if let Some(format) = self.format {
            return Ok(format);
        }
        let extension = self.file.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        match extension.as_str() {
            "csv" => Ok(Format::Csv),
            "tsv" | "tab" => Ok(Format::Tsv),
            "jsonl" | "ndjson" | "json" => Ok(Format::Jsonl),
            _ => Err(Failure::usage(format_args!(
                "{}: its name does not tell the format; add `--format csv`, `tsv` or `jsonl`",
                self.file.display()
            ))),
        }
    }

    /// The file, and a progress bar that knows its length. No bar is drawn where stderr is no
    /// terminal.
    fn input(&self) -> Result<(Box<dyn Read>, ProgressBar), Failure> {
        if self.file.as_os_str() == "-" {
            let style = ProgressStyle::with_template("{spinner} {bytes} read, {binary_bytes_per_sec}  {msg}");
            return Ok((Box::new(std::io::stdin()), ProgressBar::new_spinner().with_style(style_of(style))));
        }
        let refused = |error| Failure::usage(format_args!("{}: {error}", self.file.display()));
        let file = File::open(&self.file).map_err(refused)?;
        let bytes = file.metadata().map_err(refused)?.len();
        let style = ProgressStyle::with_template(
            "{wide_bar} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left  {msg}",
        );
        Ok((Box::new(file), ProgressBar::new(bytes).with_style(style_of(style))))
    }
}

/// A style from a template of ours; a mistake in it costs the looks only.
fn style_of(style: Result<ProgressStyle, indicatif::style::TemplateError>) -> ProgressStyle {
    style.unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Stores batches and keeps the counts.
struct Loader {
    session: Session,
    bar: ProgressBar,
    file: String,
    new: u64,
    replaced: u64,
    /// Pairs that a later line of the same batch overrode.
    overridden: u64,
    bad: u64,
}

impl Loader {
    fn new(session: Session, bar: ProgressBar, file: String) -> Self {
        Self { session, bar, file, new: 0, replaced: 0, overridden: 0, bad: 0 }
    }

    fn load(&mut self, mut records: Box<dyn Records>, batch_pairs: usize) -> Result<(), Failure> {
        let mut batch = Vec::with_capacity(batch_pairs);
        let mut bytes = 0;
        loop {
            match records.next() {
                Ok(Some(Record::Bad(line, why))) => self.report(line, &why),
                Ok(Some(Record::Pair(pair))) => {
                    bytes += pair.key.len() + pair.value.len();
                    batch.push(pair);
                    if batch.len() >= batch_pairs || bytes >= BATCH_BYTES {
                        self.store(&mut batch)?;
                        bytes = 0;
                    }
                }
                Ok(None) => return self.store(&mut batch),
                // What was read before is stored all the same.
                Err(failure) => return self.store(&mut batch).and(Err(failure)),
            }
        }
    }

    /// Stores a batch and empties it.
    fn store(&mut self, batch: &mut Vec<Pair>) -> Result<(), Failure> {
        // Stable: of equal keys the last line stays last, and wins.
        batch.sort_by(|one, other| one.key.cmp(&other.key));
        let mut pairs = batch.drain(..).peekable();
        while let Some(pair) = pairs.next() {
            if pairs.peek().is_some_and(|next| next.key == pair.key) {
                self.overridden += 1;
                continue;
            }
            match self.session.put(&pair.key, &pair.value) {
                Ok(PutOutcome::Replaced) => self.replaced += 1,
                Ok(_) => self.new += 1,
                Err(error) if error.is_too_long() => {
                    report(&self.bar, &self.file, pair.line, &error.to_string());
                    self.bad += 1;
                }
                Err(error) => {
                    let what = format!("{}: stopped storing at line {}: {error}", self.file, pair.line);
                    return Err(Failure::Failed(what));
                }
            }
        }
        drop(pairs);
        self.bar.set_message(format!("{} pairs", self.new + self.replaced));
        Ok(())
    }

    fn report(&mut self, line: u64, why: &str) {
        report(&self.bar, &self.file, line, why);
        self.bad += 1;
    }

    /// Tells what was done.
    fn finish(&self) {
        self.bar.finish_and_clear();
        let overridden = match self.overridden {
            0 => String::new(),
            n => format!(", {n} overridden by later lines"),
        };
        complain(format_args!(
            "{}: {} new keys, {} replaced{overridden}, {} bad lines",
            self.file, self.new, self.replaced, self.bad
        ));
    }
}

/// Reports a bad line, above the progress bar if there is one.
fn report(bar: &ProgressBar, file: &str, line: u64, why: &str) {
    bar.suspend(|| {
        // A closed stderr leaves nobody to tell.
        let _ = writeln!(std::io::stderr(), "{file}:{line}: {why}");
    });
}
