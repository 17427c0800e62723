//! The log of one thread of a worker: a file of fixed-size records, written such that after a
//! SIGKILL the file is a valid prefix.
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
//! An operation is a *begin* record before it and an *end* record after it, each in one unbuffered
//! `write`; an operation that reads several keys ends with a record for each. A begin without an
//! end is an operation without an outcome. Records never straddle a page, and a `write` that is cut
//! short is cut at a page: a file that a kill ended therefore holds whole records, and one cut by
//! anything else loses only its last record. Anything else wrong with a file is reported as damage.

use super::clock::now_ns;
use crate::dice::mix;
use crate::history::{Action, Outcome};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

/// Bytes of a record.
pub const RECORD_BYTES: usize = 64;
const WORDS: usize = RECORD_BYTES / 8;
const MAGIC: u32 = 0xda27_e10c;

/// The call of an operation.
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
    /// A transaction that reads lists and appends `value` to some of them. What is expected holds
    /// the lists appended to, as bits above 32, and their generation. It ends with a record for each
    /// element found, and one of `Replaced`; or with `Refused`, without effect.
    Append,
    /// A transaction that moves money between accounts, and finds the sum of all.
    Transfer,
    /// A search for a list, outside of transactions. It and the next three are recorded like
    /// [`Call::Append`].
    ListGet,
    /// An upsert of a list of one element.
    ListPut,
    /// An append to a list, by a put if the list is as it was found before.
    ListReplace,
    /// A scan of all lists of a generation.
    ListScan,
}

impl Call {
    /// All calls, by code.
    pub const ALL: [Self; 14] = [
        Self::Get,
        Self::Put,
        Self::Insert,
        Self::Update,
        Self::Replace,
        Self::Delete,
        Self::MultiGet,
        Self::Scan,
        Self::Append,
        Self::Transfer,
        Self::ListGet,
        Self::ListPut,
        Self::ListReplace,
        Self::ListScan,
    ];

    /// Returns its name in summaries.
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
            Self::Append => "append",
            Self::Transfer => "transfer",
            Self::ListGet => "list_get",
            Self::ListPut => "list_put",
            Self::ListReplace => "list_replace",
            Self::ListScan => "list_scan",
        }
    }

    /// Whether it reads several keys, and ends with a record for each.
    pub(super) fn reads_several(self) -> bool {
        matches!(self, Self::MultiGet | Self::Scan) || self.is_on_lists()
    }

    /// Whether it is on lists, in a transaction or not.
    pub(super) fn is_on_lists(self) -> bool {
        matches!(self, Self::Append | Self::ListGet | Self::ListPut | Self::ListReplace | Self::ListScan)
    }

    /// Whether it is on the keys of transactions, and belongs to no key's history.
    pub(super) fn is_transaction(self) -> bool {
        self.is_on_lists() || self == Self::Transfer
    }

    pub(super) fn action(self, value: u64, expected: u64) -> Action {
        match self {
            Self::Put => Action::Put(value),
            Self::Insert => Action::Insert(value),
            Self::Update => Action::Update(value),
            Self::Replace => Action::Replace { expected, value },
            Self::Delete => Action::Delete,
            // Others read, or belong to no key's history.
            _ => Action::Get,
        }
    }
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// The pool was full.
    OutOfSpace,
    /// Others had declared the process dead.
    ShutOut,
    /// A memory node could not be reached.
    Disconnected,
    /// Any other error, which must not happen on a sound pool.
    Unexpected,
}

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An operation is about to begin.
    Begin {
        /// The call.
        call: Call,
        /// The value to be written, or 0.
        value: u64,
        /// The expected value, or 0.
        expected: u64,
    },
    /// The operation ended with an outcome, for this record's key.
    End(Outcome),
    /// The operation ended with an error. Its effect is unknown, except that after a lack of space
    /// it had none.
    Failed(Refusal),
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The client.
    pub client: u32,
    /// The key's rank; 0 if several keys are read.
    pub key: u32,
    /// The number of the operation among its client's, from 1 on.
    pub sequence: u64,
    /// Nanoseconds of the shared clock.
    pub time: u64,
    /// The event.
    pub entry: Entry,
}

const BEGIN: u8 = 1;
const END: u8 = 2;
const FAILED: u8 = 3;

impl Record {
    /// Returns the record's bytes.
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

    /// Parses a record. Returns `None` if the bytes are not a record.
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
        // This checks the reserved bits, the magic number and the checksum at once: only bytes that
        // `to_bytes` writes are a record.
        (record.to_bytes() == *bytes).then_some(record)
    }
}

fn check_sum(words: &[u64; WORDS]) -> u64 {
    words[..WORDS - 1].iter().fold(0, |sum, word| mix(sum ^ word).wrapping_add(*word))
}

/// A log cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The operating system refused the file.
    #[error("{}: cannot {action} the log: {source}; free space there, or use another directory", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The attempted action.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// A record other than the last one is invalid.
    #[error(
        "{}: record {record}: {what}; the log is damaged and cannot be checked: repeat the run",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The record, counted from 0.
        record: u64,
        /// The fault of the record.
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
    /// Creates a log.
    ///
    /// # Errors
    /// Fails if there is one already, or if the system refuses.
    pub fn create(path: PathBuf, client: u32) -> Result<Self, LogError> {
        match OpenOptions::new().append(true).create_new(true).open(&path) {
            Ok(file) => Ok(Self { path, file, client, sequence: 0, buffer: Vec::new() }),
            Err(source) => Err(LogError::Io { path, action: "create", source }),
        }
    }

    /// Records that an operation begins now.
    ///
    /// # Errors
    /// Fails if the system refuses.
    pub fn begin(&mut self, call: Call, key: u32, value: u64, expected: u64) -> Result<(), LogError> {
        self.sequence += 1;
        self.buffer.clear();
        self.push(now_ns(), key, Entry::Begin { call, value, expected });
        self.write()
    }

    /// Records that the operation has ended with `entry`.
    ///
    /// # Errors
    /// Fails if the system refuses.
    pub fn end(&mut self, key: u32, entry: Entry) -> Result<(), LogError> {
        self.buffer.clear();
        self.push(now_ns(), key, entry);
        self.write()
    }

    /// Records that the operation has ended, and the value it read of each key. There must be at
    /// least one key.
    ///
    /// # Errors
    /// Fails if the system refuses.
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
        // This is one `write` unless the system cuts it short.
        self.file.write_all(&self.buffer).map_err(|source| LogError::Io {
            path: self.path.clone(),
            action: "write",
            source,
        })
    }
}
