//! `backup`, `restore` and `backups`: copies of a pool as of one moment, and their way back.
//!
//! A backup goes to standard output as one stream, or to a folder of backups (`folder.rs`), in which
//! they share the parts that they have in common.

mod folder;

use crate::Answer;
use crate::failure::{Failure, complain};
use crate::pool::PoolArgs;
use crate::rate;
use crate::signals::Interrupt;
use crate::tables::bytes_text;
use darter::backup::{BackupReader, Parts, write_backup};
use darter::engine::{Engine, KeySpace};
use darter::{BackupError, BackupReport, ByteSize, Error, Store};
use darter_fabric::counted;
use folder::{Folder, Saved};
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};
use std::fmt::Display;
use std::io::{self, BufReader, IsTerminal, Read, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter backup /var/backups/fruit
  darter backup /var/backups/fruit --rate 50MiB --keep 14
  darter backup - | zstd > fruit.backup.zst")]
pub struct BackupCommand {
    #[command(flatten)]
    pool: PoolArgs,
    /// Folder of backups, which is created if absent, or `-` for standard output. Parts that an
    /// earlier backup in the folder has are not written again
    to: PathBuf,
    /// Most bytes a second to write
    #[arg(long, value_name = "SIZE")]
    rate: Option<ByteSize>,
    /// Then remove the oldest backups of this pool from the folder, so that N are left
    #[arg(long, value_name = "N")]
    keep: Option<NonZeroUsize>,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter restore /var/backups/fruit --pool 'file:/data/fruit.pool?size=8G' --verify
  darter restore /var/backups/fruit --backup 2026-11-28T03-00-00Z --pool tcp://10.0.0.1:7000
  darter restore /var/backups/fruit --at 2026-11-28T12:00:00Z --pool tcp://10.0.0.1:7000
  zstdcat fruit.backup.zst | darter restore - --pool 'file:/data/fruit.pool?size=8G'")]
pub struct RestoreCommand {
    #[command(flatten)]
    pool: PoolArgs,
    /// Folder of backups, or `-` for standard input
    from: PathBuf,
    /// Name of the backup, as printed by `darter backups`; by default the newest
    #[arg(long, value_name = "NAME")]
    backup: Option<String>,
    /// Restores the newest backup that was taken at this time or before, in UTC: 2026-11-28T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_rfc3339_weak, conflicts_with = "backup")]
    at: Option<SystemTime>,
    /// Then read the pool, and compare each pair with the backup
    #[arg(long)]
    verify: bool,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter backups /var/backups/fruit
  darter backups /var/backups/fruit --verify")]
pub struct BackupsCommand {
    /// Folder of backups
    folder: PathBuf,
    /// Read all parts, and verify their checksums; exit code 1 if one is damaged
    #[arg(long)]
    verify: bool,
}

impl BackupCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let is_stream = self.to.as_os_str() == "-";
        if is_stream && self.keep.is_some() {
            return Err(Failure::usage("--keep removes backups from a folder; name one instead of `-`"));
        }
        if is_stream && io::stdout().is_terminal() {
            return Err(Failure::usage("a backup is not text; name a folder, or redirect stdout to a file"));
        }
        let store = self.pool.existing()?;
        let interrupt = Interrupt::on_signals()?;
        let mut pace = Pace::new(self.rate, &store, interrupt)?;
        if is_stream {
            let mut out = pace.paced(io::stdout().lock());
            let report = back_up(&store, |report, parts| write_backup(report, parts, &mut out));
            complain(format_args!("backed up {}", text_of(&pace.ended(report)?)));
            return Ok(Answer::Done);
        }
        let folder = Folder::create(&self.to).map_err(|error| of_folder(&self.to, error))?;
        let saved = back_up(&store, |report, parts| folder.save(report, parts, |bytes| pace.step(bytes)));
        let Saved { report, name, written, parts } = pace.ended(saved)?;
        complain(format_args!(
            "{}: backed up {}; {} of {} written, {}",
            self.to.join(&name).display(),
            text_of(&report),
            parts.0,
            counted(parts.1, "part"),
            bytes_text(written),
        ));
        if let Some(keep) = self.keep {
            let removed =
                folder.keep(keep.get(), report.pool_id).map_err(|error| of_folder(&self.to, error))?;
            complain(format_args!(
                "{}: removed {}",
                self.to.display(),
                counted(removed as u64, "older backup")
            ));
        }
        Ok(Answer::Done)
    }
}

/// Takes a snapshot, and lets `save` write it.
fn back_up<T>(
    store: &Store,
    save: impl FnOnce(BackupReport, Parts<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut snapshot = store.snapshot_in(KeySpace::Whole)?;
    let (taken_at, pool_id) = (snapshot.taken_at(), store.pool().id());
    let saved = save(BackupReport { pairs: 0, bytes: 0, taken_at, pool_id }, Parts::new(&mut snapshot))?;
    snapshot.end()?;
    Ok(saved)
}

impl RestoreCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let mut source: Box<dyn Read + Send> = if self.from.as_os_str() == "-" {
            if self.backup.is_some() || self.at.is_some() {
                return Err(Failure::usage(
                    "--backup and --at choose a backup of a folder; name one instead of `-`",
                ));
            }
            Box::new(BufReader::new(io::stdin()))
        } else {
            let folder = Folder::open(&self.from).map_err(|error| of_folder(&self.from, error))?;
            let taken_before = self.at.map(|at| folder.name_at(at)).transpose();
            let name = taken_before.map_err(|error| of_folder(&self.from, error))?;
            let name = name.as_deref().or(self.backup.as_deref());
            Box::new(folder.read(name).map_err(|error| of_folder(&self.from, error))?)
        };
        let store = self.pool.open_or_create()?;
        let mut sum = Sha256::new();
        let from = self.from.display();
        let summed = Summed { from: &mut source, sum: &mut sum };
        let report = store.restore(summed).map_err(|error| Failure::from(error).within(&from))?;
        complain(format_args!("{from}: restored {}", text_of(&report)));
        if self.verify {
            let mut again = Sha256::new();
            back_up(&store, |_, parts| {
                // With the header and the end of the backup.
                let taken = BackupReport { pairs: 0, bytes: 0, ..report };
                write_backup(taken, parts, &mut Hashed(&mut again))
            })?;
            if sum.finalize() != again.finalize() {
                return Err(Failure::failed(format_args!(
                    "{from}: the pool has other pairs than the backup; did another process change them?"
                )));
            }
            complain("verified: the pool has the backup's pairs");
        }
        Ok(Answer::Done)
    }
}

impl BackupsCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let fail = |error| of_folder(&self.folder, error);
        let folder = Folder::open(&self.folder).map_err(fail)?;
        let mut answer = Answer::Done;
        for name in folder.names().map_err(fail)? {
            let line = match self.line_of(&folder, &name) {
                Ok(line) => line,
                Err(error) => {
                    answer = Answer::No;
                    complain(format_args!("{name}: {error}"));
                    continue;
                }
            };
            io::stdout().write_all(line.as_bytes())?;
        }
        Ok(answer)
    }

    /// Describes a backup. With `--verify` it is read first.
    fn line_of(&self, folder: &Folder, name: &str) -> Result<String, BackupError> {
        let mut report = folder.report(name)?;
        let mut verified = "";
        if self.verify {
            let mut reader = BackupReader::new(folder.read(Some(name))?)?;
            while reader.next_part()?.is_some() {}
            (report, verified) = (reader.report(), ", verified");
        }
        Ok(format!("{name}  {}, pool {:016x}{verified}\n", text_of(&report), report.pool_id))
    }
}

/// What a backup holds, for people.
fn text_of(report: &BackupReport) -> String {
    let taken_at = humantime::format_rfc3339_millis(report.taken_at);
    let pairs = counted(report.pairs, "pair");
    format!("{pairs}, {}, as of {taken_at}", bytes_text(report.bytes))
}

fn of_folder(path: &Path, error: BackupError) -> Failure {
    let what = format!("{}: {error}", path.display());
    match error {
        BackupError::Io(error) if error.kind() == io::ErrorKind::NotFound => Failure::Usage(what),
        BackupError::NotABackup => Failure::Usage(what),
        _ => Failure::Failed(what),
    }
}

/// Holds a backup at its rate, and shows its progress on a terminal.
struct Pace {
    rate: Option<ByteSize>,
    begin: Instant,
    bytes: u64,
    bar: ProgressBar,
    interrupt: Interrupt,
}

impl Pace {
    fn new(rate: Option<ByteSize>, store: &Store, interrupt: Interrupt) -> Result<Self, Failure> {
        rate::verify(rate)?;
        let style = ProgressStyle::with_template(
            "{spinner} {bytes} of about {total_bytes} written, {binary_bytes_per_sec}",
        );
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = ProgressBar::new(store.usage()?.used_bytes()).with_style(style);
        Ok(Self { rate, begin: Instant::now(), bytes: 0, bar, interrupt })
    }

    /// Notes that bytes were written or skipped, and waits as the rate demands. Fails after a signal.
    fn step(&mut self, bytes: u64) -> io::Result<()> {
        self.bytes += bytes;
        self.bar.inc(bytes);
        if rate::keeps_to(self.rate, self.begin, self.bytes, &self.interrupt) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted by a signal"))
    }

    /// Returns a writer that is held at the rate.
    fn paced<W: Write>(&mut self, out: W) -> Paced<'_, W> {
        Paced { pace: self, out }
    }

    fn ended<T>(&self, result: Result<T, Error>) -> Result<T, Failure> {
        self.bar.finish_and_clear();
        result.map_err(|error| match error {
            _ if self.interrupt.has_come() => {
                Failure::Interrupted("interrupted; there is no backup of this run".to_owned())
            }
            Error::Backup(BackupError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                Failure::failed("the reader of the backup has closed it before its end")
            }
            error => error.into(),
        })
    }
}

/// A writer held at a rate.
struct Paced<'p, W> {
    pace: &'p mut Pace,
    out: W,
}

impl<W: Write> Write for Paced<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        // `write_all` would repeat a call that fails with `Interrupted`.
        self.pace.step(written as u64).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A reader whose bytes are hashed.
struct Summed<'s> {
    from: &'s mut (dyn Read + Send),
    sum: &'s mut Sha256,
}

impl Read for Summed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.sum.update(&buffer[..read]);
        Ok(read)
    }
}

/// A writer that only hashes.
struct Hashed<'s>(&'s mut Sha256);

impl Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Names a place in an error.
fn at(place: impl Display) -> impl FnOnce(io::Error) -> BackupError {
    move |error| BackupError::Io(io::Error::new(error.kind(), format!("{place}: {error}")))
}
