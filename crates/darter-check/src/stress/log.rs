//! What one thread of a worker did, as it goes on record: a file of fixed-size records, written so that whatever a SIGKILL
//! leaves is a valid beginning.
//!
//! ```text
//! word 0  magic number << 32 | what << 8 | code     little-endian, 8 words, 64 bytes
//!      1  client << 32 | key
//!      2  number of the operation, from 1 on
//!      3  when, in nanoseconds of the shared clock
//!      4  value: written (begin), found (end)
//!      5  value expected (begin of a replace)
//!      6  0
//!      7  check sum of the words before it
//! ```
//!
//! An operation is a *begin* record before it and an *end* record after it, each in one unbuffered `write`; one that reads
//! several keys ends with a record for each of them. A begin without an end is an operation of which nobody was told. Records
//! never straddle a page, and a `write` that is cut short is cut at a page: so a file that a kill ended holds whole records,
//! and one cut by anything else loses its last record only. Anything else wrong with a file is damage, and says so.

use super::clock::now_ns;
use super::collect::Collected;
use crate::dice::mix;
use crate::history::{Action, Operation, Outcome};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 64;
const WORDS: usize = RECORD_BYTES / 8;
const MAGIC: u32 = 0xda27_e10c;
/// Records read from a file at a time.
const CHUNK_RECORDS: usize = 4096;

/// What kind of call an operation was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Call {
    /// A search.
    Get,
    /// An upsert.
    Put,
    /// A put if absent.
    Insert,
    /// A put if present.
    Update,
    /// A put if the value is the one expected.
    Replace,
    /// A removal.
    Delete,
    /// A search for several keys.
    MultiGet,
    /// A scan of a range.
    Scan,
}

impl Call {
    /// All of them, by code.
    pub const ALL: [Self; 8] = [
        Self::Get,
        Self::Put,
        Self::Insert,
        Self::Update,
        Self::Replace,
        Self::Delete,
        Self::MultiGet,
        Self::Scan,
    ];

    /// Its name in summaries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Replace => "replace_if_equal",
            Self::Delete => "delete",
            Self::MultiGet => "multi_get",
            Self::Scan => "scan",
        }
    }

    /// Whether it reads several keys, and ends with a record for each.
    fn reads_several(self) -> bool {
        matches!(self, Self::MultiGet | Self::Scan)
    }

    fn action(self, value: u64, expected: u64) -> Action {
        match self {
            Self::Get | Self::MultiGet | Self::Scan => Action::Get,
            Self::Put => Action::Put(value),
            Self::Insert => Action::Insert(value),
            Self::Update => Action::Update(value),
            Self::Replace => Action::Replace { expected, value },
            Self::Delete => Action::Delete,
        }
    }
}

/// Why an operation ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// The pool was full.
    OutOfSpace,
    /// Others had declared the process dead.
    ShutOut,
    /// A memory node could not be reached.
    Disconnected,
    /// Anything else, which a sound pool never answers.
    Unexpected,
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An operation is about to begin.
    Begin {
        /// Which call.
        call: Call,
        /// The value to be written, or 0.
        value: u64,
        /// The value that must be there, or 0.
        expected: u64,
    },
    /// The operation ended with an outcome, for this record's key.
    End(Outcome),
    /// The operation ended with an error. Its effect is unknown, unless there was no space: then it
    /// had none.
    Failed(Refusal),
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Who.
    pub client: u32,
    /// The key's rank; 0 where several are read.
    pub key: u32,
    /// The number of the operation among its client's, from 1 on.
    pub sequence: u64,
    /// Nanoseconds of the shared clock.
    pub time: u64,
    /// What happened.
    pub entry: Entry,
}

const BEGIN: u8 = 1;
const END: u8 = 2;
const FAILED: u8 = 3;

impl Record {
    /// The record's bytes.
    pub fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let (what, code, value, expected) = match self.entry {
            Entry::Begin { call, value, expected } => (BEGIN, call as u8, value, expected),
            Entry::End(Outcome::Found(None)) => (END, 0, 0, 0),
            Entry::End(Outcome::Found(Some(value))) => (END, 1, value, 0),
            Entry::End(Outcome::Inserted) => (END, 2, 0, 0),
            Entry::End(Outcome::Replaced) => (END, 3, 0, 0),
            Entry::End(Outcome::Refused) => (END, 4, 0, 0),
            Entry::End(Outcome::Deleted(false)) => (END, 5, 0, 0),
            Entry::End(Outcome::Deleted(true)) => (END, 6, 0, 0),
            Entry::Failed(refusal) => (FAILED, refusal as u8, 0, 0),
        };
        let mut words = [
            u64::from(MAGIC) << 32 | u64::from(what) << 8 | u64::from(code),
            u64::from(self.client) << 32 | u64::from(self.key),
            self.sequence,
            self.time,
            value,
            expected,
            0,
            0,
        ];
        words[WORDS - 1] = check_sum(&words);
        let mut bytes = [0; RECORD_BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads a record; `None` when the bytes are none.
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let mut words = [0; WORDS];
        for (word, from) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*from);
        }
        let [head, who, sequence, time, value, expected, _, _] = words;
        let (what, code) = ((head >> 8) as u8, head as u8);
        let entry = match (what, code) {
            (BEGIN, code) => Entry::Begin { call: *Call::ALL.get(usize::from(code))?, value, expected },
            (END, 0) => Entry::End(Outcome::Found(None)),
            (END, 1) => Entry::End(Outcome::Found(Some(value))),
            (END, 2) => Entry::End(Outcome::Inserted),
            (END, 3) => Entry::End(Outcome::Replaced),
            (END, 4) => Entry::End(Outcome::Refused),
            (END, 5) => Entry::End(Outcome::Deleted(false)),
            (END, 6) => Entry::End(Outcome::Deleted(true)),
            (FAILED, 0) => Entry::Failed(Refusal::OutOfSpace),
            (FAILED, 1) => Entry::Failed(Refusal::ShutOut),
            (FAILED, 2) => Entry::Failed(Refusal::Disconnected),
            (FAILED, 3) => Entry::Failed(Refusal::Unexpected),
            _ => return None,
        };
        let record = Self { client: (who >> 32) as u32, key: who as u32, sequence, time, entry };
        // Reserved bits, the magic number and the sum at once: only what we would write is a record.
        (record.to_bytes() == *bytes).then_some(record)
    }
}

fn check_sum(words: &[u64; WORDS]) -> u64 {
    words[..WORDS - 1].iter().fold(0, |sum, word| mix(sum ^ word).wrapping_add(*word))
}

/// A log that cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The operating system refused the file.
    #[error("{}: cannot {action} the log: {source}; free space there, or use another directory", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// A record that is not the last one makes no sense.
    #[error(
        "{}: record {record}: {what}; the log is damaged and nothing can be judged by it: repeat the run",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which record, from 0 on.
        record: u64,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// The log of one client, being written.
#[derive(Debug)]
pub struct LogWriter {
    path: PathBuf,
    file: File,
    client: u32,
    sequence: u64,
    buffer: Vec<u8>,
}

impl LogWriter {
    /// A new log.
    ///
    /// # Errors
    /// When there is one already, or the system refuses.
    pub fn create(path: PathBuf, client: u32) -> Result<Self, LogError> {
        match OpenOptions::new().append(true).create_new(true).open(&path) {
            Ok(file) => Ok(Self { path, file, client, sequence: 0, buffer: Vec::new() }),
            Err(source) => Err(LogError::Io { path, action: "create", source }),
        }
    }

    /// Puts on record that an operation begins now.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn begin(&mut self, call: Call, key: u32, value: u64, expected: u64) -> Result<(), LogError> {
        self.sequence += 1;
        self.buffer.clear();
        self.push(now_ns(), key, Entry::Begin { call, value, expected });
        self.write()
    }

    /// Puts on record that the operation has ended with `entry`.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn end(&mut self, key: u32, entry: Entry) -> Result<(), LogError> {
        self.buffer.clear();
        self.push(now_ns(), key, entry);
        self.write()
    }

    /// Puts on record that the operation has ended and what it read of each key. At least one key.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn end_reads(&mut self, reads: &[(u32, Option<u64>)]) -> Result<(), LogError> {
        self.buffer.clear();
        let now = now_ns();
        for &(key, found) in reads {
            self.push(now, key, Entry::End(Outcome::Found(found)));
        }
        self.write()
    }

    fn push(&mut self, time: u64, key: u32, entry: Entry) {
        let record = Record { client: self.client, key, sequence: self.sequence, time, entry };
        self.buffer.extend_from_slice(&record.to_bytes());
    }

    fn write(&mut self) -> Result<(), LogError> {
        // One `write` unless the system cuts it short.
        self.file.write_all(&self.buffer).map_err(|source| LogError::Io {
            path: self.path.clone(),
            action: "write",
            source,
        })
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
pub(super) fn operations_begun(file: &File) -> io::Result<u64> {
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
