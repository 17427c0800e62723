//! Reads logs: follows them while they grow, and turns them into histories when they are complete.

use super::collect::Collected;
use super::log::{Call, Entry, LogError, RECORD_BYTES, Record, Refusal};
use crate::history::{Action, Operation, Outcome};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Records to read at a time.
const CHUNK_RECORDS: usize = 4096;

/// The logs of a round, which are followed while they grow and read when they are complete.
#[derive(Debug)]
pub(super) struct LogSet {
    logs: Vec<Log>,
}

#[derive(Debug)]
struct Log {
    path: PathBuf,
    /// Open if the file exists and may still grow.
    file: Option<File>,
    grows: bool,
    operations: u64,
}

impl Log {
    fn look(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = match File::open(&self.path) {
                Ok(file) => Some(file),
                // Its writer has not created it yet, or died first.
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
        }
        if let Some(file) = &self.file {
            self.operations = operations_begun(file)?;
        }
        Ok(())
    }
}

impl LogSet {
    pub(super) fn new() -> Self {
        Self { logs: Vec::new() }
    }

    /// Follows these logs from now on.
    pub(super) fn follow(&mut self, paths: Vec<PathBuf>) {
        let logs = paths.into_iter().map(|path| Log { path, file: None, grows: true, operations: 0 });
        self.logs.extend(logs);
    }

    /// Returns the number of operations that have begun.
    pub(super) fn operations(&mut self) -> Result<u64, LogError> {
        for log in self.logs.iter_mut().filter(|log| log.grows) {
            log.look().map_err(|source| LogError::Io { path: log.path.clone(), action: "read", source })?;
        }
        Ok(self.logs.iter().map(|log| log.operations).sum())
    }

    /// Stops following these logs: their writer is dead.
    pub(super) fn end(&mut self, paths: &[PathBuf]) -> Result<(), LogError> {
        self.operations()?;
        for log in self.logs.iter_mut().filter(|log| paths.contains(&log.path)) {
            (log.file, log.grows) = (None, false);
        }
        Ok(())
    }

    /// Reads all logs of a set of `keys` keys after their writers have ended.
    pub(super) fn read(self, keys: u32) -> Result<Collected, LogError> {
        let mut collected = Collected::new(keys);
        for log in self.logs {
            read(&log.path, &mut collected)?;
        }
        Ok(collected)
    }
}

/// The operation that a log is in the middle of.
#[derive(Clone, Copy, Debug)]
struct Open {
    begin: Record,
    call: Call,
    action: Action,
    ended: bool,
}

impl Open {
    fn operation(&self, key: u32, returned: Option<(u64, Outcome)>) -> Operation {
        let Record { client, time, .. } = self.begin;
        Operation { client, key, action: self.action, invoked: time, returned }
    }
}

/// Adds a log to `collected` after its writer has ended. An operation without an end is pending. An
/// operation that found no space is left out, since it must have changed nothing: if others find
/// its value, it counts as never written. A torn last record is counted and left out. A missing log
/// adds nothing: its writer died before it began.
///
/// # Errors
/// Fails if the file cannot be read or is damaged.
pub fn read(path: &Path, collected: &mut Collected) -> Result<(), LogError> {
    let refused = |source| LogError::Io { path: path.to_owned(), action: "read", source };
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(refused(error)),
    };
    let length = file.metadata().map_err(refused)?.len();
    let records = length.div_ceil(RECORD_BYTES as u64);
    let (mut reader, mut chunk) = (Reader::default(), Vec::new());
    for first in (0..records).step_by(CHUNK_RECORDS) {
        chunk.clear();
        let limit = (CHUNK_RECORDS * RECORD_BYTES) as u64;
        (&mut file).take(limit).read_to_end(&mut chunk).map_err(refused)?;
        for (index, bytes) in (first..).zip(chunk.chunks(RECORD_BYTES)) {
            let record = bytes.try_into().ok().and_then(Record::from_bytes);
            let accepted = match record {
                Some(record) => reader.accept(record, collected),
                None if index + 1 == records => {
                    collected.torn += 1;
                    Ok(())
                }
                None => Err("it is not a valid record"),
            };
            accepted.map_err(|what| LogError::Damaged { path: path.to_owned(), record: index, what })?;
        }
    }
    if let Some(open) = reader.open.filter(|open| !open.ended) {
        if open.call.is_transaction() {
            collected.pending += 1;
            return Ok(());
        }
        collected.leave_pending(open.operation(open.begin.key, None));
    }
    Ok(())
}

/// Returns the number of operations begun in a log that may still grow, which is the number of the
/// last one.
///
/// # Errors
/// Fails if the file cannot be read.
fn operations_begun(file: &File) -> io::Result<u64> {
    let records = file.metadata()?.len() / RECORD_BYTES as u64;
    let mut bytes = [0; RECORD_BYTES];
    if records > 0 {
        file.read_exact_at(&mut bytes, (records - 1) * RECORD_BYTES as u64)?;
    }
    Ok(Record::from_bytes(&bytes).map_or(0, |record| record.sequence))
}

/// The part of a log parsed so far.
#[derive(Debug, Default)]
struct Reader {
    /// The time of the last record.
    time: u64,
    open: Option<Open>,
}

impl Reader {
    /// Processes a record, or returns what is wrong with it.
    fn accept(&mut self, record: Record, collected: &mut Collected) -> Result<(), &'static str> {
        if record.key >= collected.keys() {
            return Err("it names a key that does not exist");
        }
        if record.time < self.time {
            return Err("it is older than the one before it");
        }
        match (record.entry, &mut self.open) {
            (Entry::Begin { .. }, Some(open)) if !open.ended => {
                return Err("an operation begins in the middle of another");
            }
            (Entry::Begin { call, value, expected }, open) => {
                let before = open.map_or(0, |open| open.begin.sequence);
                if record.sequence != before + 1
                    || open.is_some_and(|open| open.begin.client != record.client)
                {
                    return Err("an operation is missing before it");
                }
                *open =
                    Some(Open { begin: record, call, action: call.action(value, expected), ended: false });
                collected.count(call);
                if call.is_on_lists() {
                    collected.begin_lists(call, &record, value, expected);
                }
            }
            (_, None) => return Err("it ends an operation that did not begin"),
            (_, Some(open))
                if open.begin.sequence != record.sequence || open.begin.client != record.client =>
            {
                return Err("it ends another operation than the one that began");
            }
            (_, Some(open)) if open.ended && !open.call.reads_several() => {
                return Err("an operation ends twice");
            }
            (Entry::End(outcome), Some(open)) if open.call.is_transaction() => {
                open.ended = true;
                if open.call.is_on_lists() {
                    collected.end_lists(record.key, record.time, outcome);
                } else {
                    collected.end_transfer(record.client, record.sequence, outcome);
                }
            }
            (Entry::End(outcome), Some(open)) => {
                if !answers(outcome, open.action) {
                    return Err("its outcome is of another kind of operation");
                }
                if !open.call.reads_several() && open.begin.key != record.key {
                    return Err("an operation ends on another key than the one it began on");
                }
                open.ended = true;
                collected.add(open.operation(record.key, Some((record.time, outcome))));
            }
            (Entry::Failed(refusal), Some(open)) => {
                open.ended = true;
                collected.refuse(refusal);
                // An operation that found no space changed nothing and returned nothing, so it does
                // not belong to any history.
                if open.call.is_transaction() {
                    if refusal != Refusal::OutOfSpace {
                        collected.pending += 1;
                    } else if open.call.is_on_lists() {
                        collected.end_lists(record.key, record.time, Outcome::Refused);
                    }
                } else if refusal != Refusal::OutOfSpace {
                    collected.leave_pending(open.operation(open.begin.key, None));
                }
            }
        }
        self.time = record.time;
        Ok(())
    }
}

/// Whether an outcome is a possible result of an action.
fn answers(outcome: Outcome, action: Action) -> bool {
    match outcome {
        Outcome::Found(_) => action == Action::Get,
        Outcome::Deleted(_) => matches!(action, Action::Delete | Action::DeleteIf(_)),
        Outcome::Inserted => matches!(action, Action::Put(_) | Action::Insert(_)),
        Outcome::Replaced => matches!(action, Action::Put(_) | Action::Update(_) | Action::Replace { .. }),
        Outcome::Refused => {
            matches!(
                action,
                Action::Insert(_) | Action::Update(_) | Action::Replace { .. } | Action::DeleteIf(_)
            )
        }
    }
}
