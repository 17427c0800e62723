//! Reads logs: watches them as they grow, and turns them into histories when they are whole.

use super::collect::Collected;
use super::log::{Call, Entry, LogError, RECORD_BYTES, Record, Refusal};
use crate::history::{Action, Operation, Outcome};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Records that are read at a time.
const CHUNK_RECORDS: usize = 4096;

/// The logs of a round: watched as they grow, read when they are whole.
#[derive(Debug)]
pub(super) struct LogSet {
    logs: Vec<Log>,
}

#[derive(Debug)]
struct Log {
    path: PathBuf,
    /// Open while it may grow and once it is there.
    file: Option<File>,
    grows: bool,
    operations: u64,
}

impl Log {
    fn look(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = match File::open(&self.path) {
                Ok(file) => Some(file),
                // Its writer has not come so far, or died before it did.
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

    /// Watches these from now on.
    pub(super) fn follow(&mut self, paths: Vec<PathBuf>) {
        let logs = paths.into_iter().map(|path| Log { path, file: None, grows: true, operations: 0 });
        self.logs.extend(logs);
    }

    /// How many operations have begun.
    pub(super) fn operations(&mut self) -> Result<u64, LogError> {
        for log in self.logs.iter_mut().filter(|log| log.grows) {
            log.look().map_err(|source| LogError::Io { path: log.path.clone(), action: "read", source })?;
        }
        Ok(self.logs.iter().map(|log| log.operations).sum())
    }

    /// Looks at these no more: their writer is dead.
    pub(super) fn end(&mut self, paths: &[PathBuf]) -> Result<(), LogError> {
        self.operations()?;
        for log in self.logs.iter_mut().filter(|log| paths.contains(&log.path)) {
            (log.file, log.grows) = (None, false);
        }
        Ok(())
    }

    /// Reads them all, about `keys` keys, when nobody writes any more.
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

/// Adds what a log says to `collected`, when nobody writes it any more. An operation that was never
/// answered is pending; one that found no space is left out, since it must have changed nothing: if
/// others find its value, nobody wrote it. A last record that is torn is counted and left out. A
/// log that is not there says nothing: its writer died before it began.
///
/// # Errors
/// When the file cannot be read or is damaged.
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
                None => Err("it is no record"),
            };
            accepted.map_err(|what| LogError::Damaged { path: path.to_owned(), record: index, what })?;
        }
    }
    if let Some(open) = reader.open.filter(|open| !open.ended) {
        collected.leave_pending(open.operation(open.begin.key, None));
    }
    Ok(())
}

/// How many operations have begun by a log that may be growing: the number of the last one.
///
/// # Errors
/// When the file cannot be read.
fn operations_begun(file: &File) -> io::Result<u64> {
    let records = file.metadata()?.len() / RECORD_BYTES as u64;
    let mut bytes = [0; RECORD_BYTES];
    if records > 0 {
        file.read_exact_at(&mut bytes, (records - 1) * RECORD_BYTES as u64)?;
    }
    Ok(Record::from_bytes(&bytes).map_or(0, |record| record.sequence))
}

/// What has been understood of a log so far.
#[derive(Debug, Default)]
struct Reader {
    /// The last record's.
    time: u64,
    open: Option<Open>,
}

impl Reader {
    /// Takes a record in, or says what is wrong with it.
    fn accept(&mut self, record: Record, collected: &mut Collected) -> Result<(), &'static str> {
        if record.key >= collected.keys() {
            return Err("it names a key that is none");
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
            }
            (_, None) => return Err("an operation ends that did not begin"),
            (_, Some(open))
                if open.begin.sequence != record.sequence || open.begin.client != record.client =>
            {
                return Err("another operation ends than has begun");
            }
            (_, Some(open)) if open.ended && !open.call.reads_several() => {
                return Err("an operation ends twice");
            }
            (Entry::End(outcome), Some(open)) => {
                if !answers(outcome, open.action) {
                    return Err("its outcome answers another kind of operation");
                }
                if !open.call.reads_several() && open.begin.key != record.key {
                    return Err("an operation ends on another key than it began");
                }
                open.ended = true;
                collected.add(open.operation(record.key, Some((record.time, outcome))));
            }
            (Entry::Failed(refusal), Some(open)) => {
                open.ended = true;
                collected.refuse(refusal);
                // An operation that found no room has changed nothing, and told nothing: it is in
                // no history.
                if refusal != Refusal::OutOfSpace {
                    collected.leave_pending(open.operation(open.begin.key, None));
                }
            }
        }
        self.time = record.time;
        Ok(())
    }
}

/// Whether an outcome is of the kind that an action is answered with.
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
