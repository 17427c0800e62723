//! `export`: writes pairs to a file from which `import` restores every byte.
//!
//! `envelope.rs` describes the format; `export_commands.rs` writes commands for Redis instead. The
//! file gets its name when it is complete: an earlier file of that name stays until then, and an
//! export that fails or is interrupted leaves no file.
//! Devices and FIFOs are written directly.

use crate::Answer;
use crate::envelope::{ExportFormat, ExportWriter, Extent};
use crate::export_commands;
use crate::failure::{Failure, complain};
use crate::gaps::Gaps;
use crate::named_table::{Keys, Omitted, TableArgs};
use crate::notation::Notation;
use crate::pool::{PoolArgs, without_first_node};
use crate::range::RangeArgs;
use crate::signals::{Interrupt, unless_interrupted};
use crate::stdout;
use clap::ValueEnum;
use darter::engine::{Engine, KeySpace, is_old_value};
use darter::salvage::Salvaged;
use darter::{ScanRange, Store};
use darter_fabric::counted;
use darter_fabric::files::{Access, OutputFile};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::cell::Cell;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// The form of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Key, tab and value, with the escapes \n \t \r \\ \xNN, after a line with the names of the
    /// columns
    Tsv,
    /// One JSON object per line, with the same escapes in its strings
    Jsonl,
    /// Commands for `redis-cli --pipe` that recreate all keys of gateways, or those of --table
    Resp,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter export all.tsv.gz
  darter export --format resp | redis-cli -h 10.0.0.5 --pipe
  darter export --prefix user: --format jsonl | zstd > users.jsonl.zst
  darter export --all | darter import --all - --pool 'file:/data/copy.pool?size=8G'
  darter export --skip-unreachable rest.tsv.gz")]
pub struct ExportCommand {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    export: ExportArgs,
}

/// What to write, and where.
#[derive(clap::Args)]
pub(crate) struct ExportArgs {
    /// Output file; standard output by default or if `-`. A name that ends in `.gz` is compressed
    /// by gzip
    #[arg(default_value = "-", hide_default_value = true)]
    file: PathBuf,
    /// Format of the file; by default taken from its name, or else tsv
    #[arg(long, value_enum)]
    format: Option<Form>,
    /// Read --from, --to and --prefix as hexadecimal
    #[arg(long)]
    hex: bool,
    #[command(flatten)]
    table: TableArgs,
    /// Write everything: the keys of programs and the records of gateways, as stored in the index;
    /// for `import --all`
    #[arg(long, conflicts_with_all = ["table", "from", "to", "prefix"])]
    all: bool,
    /// Leave out the keys that need a memory node that cannot be reached, and report them on stderr
    #[arg(long, conflicts_with = "table")]
    skip_unreachable: bool,
    #[command(flatten)]
    range: RangeArgs,
}

/// What an export leaves out.
#[derive(Default)]
struct LeftOut {
    /// Keys whose values are not strings.
    omitted: Omitted,
    /// Keys that cannot be read.
    gaps: Gaps,
}

impl ExportCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let is_open = Cell::new(false);
        let exported = self.pool.read(|store| {
            is_open.set(true);
            self.export.run(store)
        });
        exported.map_err(|failure| {
            if self.export.skip_unreachable && !is_open.get() { without_first_node(failure) } else { failure }
        })
    }
}

impl ExportArgs {
    /// Writes the pairs of an open pool.
    pub(crate) fn run(&self, store: &Store) -> Result<Answer, Failure> {
        let range = self.range.range(if self.hex { Notation::Hex } else { Notation::Escaped })?;
        if self.file.as_os_str() == "-" {
            let mut out = BufWriter::new(io::stdout().lock());
            let (_, left_out) = self.write_pairs(store, &range, &mut out, None)?;
            out.flush().map_err(|error| unless_closed(error.into()))?;
            return self.complain(store, &left_out);
        }
        let name = self.file.display();
        if ends_in(&self.file, "zst") {
            return Err(Failure::usage(format_args!(
                "{name}: `export` compresses by gzip only; use the ending .gz, or pipe the output through `zstd`"
            )));
        }
        let cannot = |error| Failure::of_output(&self.file, &error);
        let path = self.file.clone();
        let mut file = unless_interrupted(move || {
            OutputFile::create(&path, Access::Owner).map_err(|error| Failure::of_output(&path, &error))
        })?;
        // A FIFO can block for ever, even after it is open.
        let interrupt =
            if file.replaces() { Some(Interrupt::on_signals()?) } else { Interrupt::of_shell().cloned() };
        let (pairs, left_out) = if ends_in(&self.file, "gz") {
            let mut out = GzEncoder::new(BufWriter::new(&mut file), Compression::default());
            let written = self.write_pairs(store, &range, &mut out, interrupt.as_ref());
            let written = written.map_err(|failure| failure.within(&name))?;
            out.finish().and_then(|mut out| out.flush()).map_err(cannot)?;
            written
        } else {
            let mut out = BufWriter::new(&mut file);
            let written = self.write_pairs(store, &range, &mut out, interrupt.as_ref());
            let written = written.map_err(|failure| failure.within(&name))?;
            out.flush().map_err(cannot)?;
            written
        };
        file.finish().map_err(cannot)?;
        let what = if self.form() == Form::Resp { "key" } else { "pair" };
        complain(format_args!("{name}: {}", counted(pairs, what)));
        self.complain(store, &left_out)
    }

    /// Reports on stderr what the output omits.
    fn complain(&self, store: &Store, left_out: &LeftOut) -> Result<Answer, Failure> {
        // The data of gateways cannot be looked for if it needs the memory nodes that are away.
        if !self.all && self.form() != Form::Resp && !self.skip_unreachable {
            self.table.mention_gateways(store)?;
        }
        left_out.gaps.complain(if self.hex { Notation::Hex } else { Notation::Escaped });
        Ok(left_out.omitted.complain())
    }

    /// Writes the pairs of a range. Returns their number, and what was left out.
    fn write_pairs(
        &self,
        store: &Store,
        range: &ScanRange,
        out: &mut impl Write,
        interrupt: Option<&Interrupt>,
    ) -> Result<(u64, LeftOut), Failure> {
        self.write_export(store, range, out, interrupt).map_err(unless_closed)
    }

    fn write_export(
        &self,
        store: &Store,
        range: &ScanRange,
        out: &mut impl Write,
        interrupt: Option<&Interrupt>,
    ) -> Result<(u64, LeftOut), Failure> {
        let format = match self.form() {
            Form::Tsv => ExportFormat::Tsv,
            Form::Jsonl => ExportFormat::Jsonl,
            Form::Resp => return self.write_commands(store, range, out, interrupt),
        };
        let extent = if self.all { Extent::Places } else { Extent::Keys };
        let (mut export, mut left_out) = (ExportWriter::new(out, format, extent)?, LeftOut::default());
        if self.skip_unreachable {
            left_out.gaps = self.write_reachable(store, range, &mut export, interrupt)?;
            store.verify()?;
            return Ok((export.finish()?, left_out));
        }
        let mut table = if self.all {
            Keys::Plain(store.session_in(KeySpace::Whole)?)
        } else {
            self.table.open(store)?
        };
        table.visit(range, None, |key, value| {
            if interrupt.is_some_and(Interrupt::has_come) {
                return Err(interrupted(&counted(export.pairs(), "pair")));
            }
            match value {
                // Stored for a snapshot that is open at this moment.
                _ if self.all && is_old_value(key) => {}
                Ok(value) => export.pair(key, value)?,
                Err(found) => left_out.omitted.count(found),
            }
            Ok(true)
        })?;
        // Without its last line the export counts as incomplete.
        store.verify()?;
        Ok((export.finish()?, left_out))
    }

    /// Writes the pairs of a range that can be read. Returns the gaps.
    fn write_reachable(
        &self,
        store: &Store,
        range: &ScanRange,
        export: &mut ExportWriter<'_, impl Write>,
        interrupt: Option<&Interrupt>,
    ) -> Result<Gaps, Failure> {
        let space = if self.all { KeySpace::Whole } else { KeySpace::Program };
        let mut gaps = Gaps::default();
        for found in store.salvage_in(space, range) {
            if interrupt.is_some_and(Interrupt::has_come) {
                return Err(interrupted(&counted(export.pairs(), "pair")));
            }
            match found? {
                Salvaged::Pair(key, _) if self.all && is_old_value(&key) => {}
                Salvaged::Pair(key, value) => export.pair(&key, &value)?,
                Salvaged::Gap(gap) => gaps.add(gap),
            }
        }
        Ok(gaps)
    }

    /// Writes the commands that recreate the keys of gateways.
    fn write_commands(
        &self,
        store: &Store,
        range: &ScanRange,
        out: &mut impl Write,
        interrupt: Option<&Interrupt>,
    ) -> Result<(u64, LeftOut), Failure> {
        if self.skip_unreachable {
            return Err(Failure::usage(
                "`--format resp` reads whole values of gateways; use `--all --skip-unreachable` with another format",
            ));
        }
        if self.all {
            return Err(Failure::usage("`--format resp` writes all keys of gateways; leave out `--all`"));
        }
        let has_come = || interrupt.is_some_and(Interrupt::has_come);
        let keys = export_commands::write(store, self.table.database(), range, out, |keys| {
            if has_come() { Err(interrupted(&counted(keys, "key"))) } else { Ok(()) }
        })?;
        store.verify()?;
        Ok((keys, LeftOut::default()))
    }

    fn form(&self) -> Form {
        let name = if ends_in(&self.file, "gz") { self.file.with_extension("") } else { self.file.clone() };
        let is_json = ["jsonl", "ndjson", "json"].iter().any(|ending| ends_in(&name, ending));
        self.format.unwrap_or(match is_json {
            true => Form::Jsonl,
            false if ends_in(&name, "resp") => Form::Resp,
            false => Form::Tsv,
        })
    }
}

/// Returns the failure of an export that was interrupted.
fn interrupted(written: &str) -> Failure {
    Failure::Interrupted(format!("interrupted after {written}; no file was written"))
}

/// Converts the failure to write an export. A reader that closes it early does not have all of it.
fn unless_closed(failure: Failure) -> Failure {
    match failure {
        Failure::OutputClosed if !stdout::was_closed() => {
            Failure::failed("cannot write the output: its reader has closed it")
        }
        other => other,
    }
}

fn ends_in(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|found| found.eq_ignore_ascii_case(ending))
}
