//! Stores the pairs of a file, batch by batch, and counts them.
//!
//! A thread reads one batch ahead. A signal ends the work between two pairs, and also while it
//! waits for input. A batch that was interrupted by a failure or a signal is stored again: storing
//! a pair twice has no further effect. So the first line that may not have been stored is the first
//! of the current batch, and the message names it.

use super::{Pair, Record, Records};
use crate::failure::{Failure, complain};
use crate::notation::printable;
use crate::signals::{Interrupt, in_a_thread};
use darter::{PutOutcome, Session};
use darter_fabric::counted;
use indicatif::ProgressBar;
use std::io::Write;
use std::sync::mpsc::{self, SyncSender};

/// Maximum bytes of keys and values in a batch, which the last pair may exceed.
const BATCH_BYTES: usize = 16 << 20;
/// Maximum number of bad lines shown; the others are only counted.
const SHOWN_MAX: u64 = 20;

/// Options of loading.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct HowArgs {
    /// Stop at the first bad line
    #[arg(long)]
    pub(super) strict: bool,
    /// First line to load; the message of an interrupted load names it
    #[arg(long, value_name = "LINE", default_value_t = 1)]
    pub(super) from_line: u64,
    /// Number of pairs that are sorted and stored together
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(super) batch: u64,
}

/// Records that are stored together.
#[derive(Debug, Default)]
struct Batch {
    pairs: Vec<Pair>,
    bytes: usize,
    bad: Vec<(u64, String)>,
    /// The first line of the next batch.
    next_line: u64,
}

impl Batch {
    /// Adds a record.
    fn add(&mut self, record: Record) {
        match record {
            Record::Bad(line, why) => {
                self.next_line = line + 1;
                self.bad.push((line, why));
            }
            Record::Pair(pair) => {
                self.next_line = pair.line + 1;
                self.bytes += pair.key.len() + pair.value.len();
                self.pairs.push(pair);
            }
        }
    }

    fn is_full(&self, how: HowArgs) -> bool {
        let records = (self.pairs.len() + self.bad.len()) as u64;
        records >= how.batch || self.bytes >= BATCH_BYTES || how.strict && !self.bad.is_empty()
    }
}

/// Reads batches until the end, the first failure, or until the receiver is dropped.
fn read_batches(mut records: Box<dyn Records>, how: HowArgs, send: &SyncSender<Result<Batch, Failure>>) {
    let mut batch = Batch::default();
    loop {
        let failure = match records.next() {
            Ok(Some(record)) if record.line() < how.from_line => continue,
            Ok(Some(record)) => {
                batch.add(record);
                if batch.is_full(how) && send.send(Ok(std::mem::take(&mut batch))).is_err() {
                    return;
                }
                continue;
            }
            Ok(None) => None,
            Err(failure) => Some(failure),
        };
        // Lines before a cut are complete. Lines right before another failure are uncertain: the
        // file may have been changed there. If the receiver was dropped, it has reported why.
        if failure.is_none() || records.is_cut() {
            let _ = send.send(Ok(batch));
        }
        if let Some(failure) = failure {
            let _ = send.send(Err(failure));
        }
        return;
    }
}

/// Stores batches and counts pairs and bad lines.
pub(super) struct Loader {
    session: Session,
    bar: ProgressBar,
    file: String,
    new: u64,
    replaced: u64,
    /// Number of pairs overridden by a later line of the same batch.
    overridden: u64,
    bad: u64,
    /// All lines before this one have been processed.
    next_line: u64,
}

impl Loader {
    pub(super) fn new(session: Session, bar: ProgressBar, file: &str, how: HowArgs) -> Self {
        let file = printable(file);
        Self { session, bar, file, new: 0, replaced: 0, overridden: 0, bad: 0, next_line: how.from_line }
    }

    /// Loads all records, and always reports the counts. Returns the number of bad lines.
    pub(super) fn load(
        mut self,
        records: Box<dyn Records>,
        how: HowArgs,
        interrupt: &Interrupt,
    ) -> Result<u64, Failure> {
        let (send, receive) = mpsc::sync_channel(1);
        in_a_thread("reader", move || read_batches(records, how, &send))?;
        let outcome = loop {
            match interrupt.receive(&receive) {
                Some(Ok(batch)) => {
                    if let Err(failure) = self.take(batch, how, interrupt) {
                        break Err(failure);
                    }
                }
                Some(Err(failure)) => break Err(failure.within(&self.file)),
                None if interrupt.has_come() => break Err(self.interrupted()),
                None => break Ok(self.bad),
            }
        };
        self.summarize();
        outcome
    }

    /// Stores a batch, reports its bad lines, and returns whether to go on.
    fn take(&mut self, mut batch: Batch, how: HowArgs, interrupt: &Interrupt) -> Result<(), Failure> {
        let bad_before = self.bad;
        for (line, why) in &batch.bad {
            self.report(*line, why);
        }
        self.store(&mut batch.pairs, interrupt)?;
        self.next_line = self.next_line.max(batch.next_line);
        self.bar.set_message(counted(self.new + self.replaced, "pair"));
        if how.strict && self.bad > bad_before {
            let what = format!(
                "{}: stopped at a bad line because of --strict; {}",
                self.file,
                self.where_to_go_on()
            );
            return Err(Failure::Failed(what));
        }
        Ok(())
    }

    /// Stores pairs in the order of their keys.
    fn store(&mut self, pairs: &mut Vec<Pair>, interrupt: &Interrupt) -> Result<(), Failure> {
        // The sort is stable: the last line of equal keys stays last, and wins.
        pairs.sort_by(|one, other| one.key.cmp(&other.key));
        let mut pairs = pairs.drain(..).peekable();
        while let Some(pair) = pairs.next() {
            if interrupt.has_come() {
                return Err(self.interrupted());
            }
            if pairs.peek().is_some_and(|next| next.key == pair.key) {
                self.overridden += 1;
                continue;
            }
            match self.session.put(&pair.key, &pair.value) {
                Ok(PutOutcome::Replaced) => self.replaced += 1,
                Ok(_) => self.new += 1,
                Err(error) if error.is_too_long() => self.report(pair.line, &error.to_string()),
                Err(error) => {
                    let (file, line, then) = (&self.file, pair.line, self.where_to_go_on());
                    return Err(Failure::Failed(format!(
                        "{file}: stopped storing at line {line}: {error}; {then}"
                    )));
                }
            }
        }
        Ok(())
    }

    fn interrupted(&self) -> Failure {
        Failure::Interrupted(format!("{}: interrupted; {}", self.file, self.where_to_go_on()))
    }

    fn where_to_go_on(&self) -> String {
        let next = self.next_line;
        match next {
            0 | 1 => "no line was stored for certain, so load the file again".to_owned(),
            _ => format!("the lines before {next} were processed, so go on with `--from-line {next}`"),
        }
    }

    /// Reports a bad line, above the progress bar if there is one.
    fn report(&mut self, line: u64, why: &str) {
        self.bad += 1;
        if self.bad <= SHOWN_MAX {
            let (file, why) = (&self.file, printable(why));
            self.bar.suspend(|| {
                // If stderr is closed, the message cannot be reported.
                let _ = writeln!(std::io::stderr(), "{file}:{line}: {why}");
            });
        }
    }

    /// Reports the counts.
    fn summarize(&self) {
        self.bar.finish_and_clear();
        let hidden = self.bad.saturating_sub(SHOWN_MAX);
        if hidden > 0 {
            complain(format_args!("{}: {}, not shown", self.file, counted(hidden, "more bad line")));
        }
        let overridden = match self.overridden {
            0 => String::new(),
            n => format!(", {n} overridden by later lines"),
        };
        let (new, bad) = (counted(self.new, "new key"), counted(self.bad, "bad line"));
        complain(format_args!("{}: {new}, {} replaced{overridden}, {bad}", self.file, self.replaced));
    }
}
