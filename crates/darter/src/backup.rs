//! Backups: all pairs of a pool as of one moment, in a stream of bytes that does not depend on the
//! index, the shape or the format version of the pool.
//!
//! ```text
//! header  "darter backup", zeros to 16 bytes | version | taken at, ms | pool id | checksum
//! part    bytes of pairs | number of pairs << 32 | pairs, zeros to 8 bytes | checksum        any number
//! end     0 | number of pairs | bytes of pairs | checksum
//!
//! pair    key bytes (4) | value bytes (4) | key | value
//! ```
//!
//! All numbers are little-endian, of 8 bytes unless stated. A checksum is the CRC32C of all bytes of
//! its header, part or end before it. The pairs are in the order of their keys, and the keys are
//! places of the index: those of programs and those of gateways ([`crate::engine::KeySpace::Whole`]).
//!
//! ```
//! # fn main() -> Result<(), darter::Error> {
//! # let store = darter::Store::open("mem:16M")?;
//! let mut backup = Vec::new();
//! store.backup(&mut backup)?;
//! assert!(backup.starts_with(b"darter backup"));
//! # Ok(())
//! # }
//! ```

use crate::backup_error::{BackupError, VERSION};
use crate::engine::{Engine, KeySpace};
use crate::{Error, KEY_BYTES_MAX, Snapshot, Store};
use darter_index::{IndexError, KeyValue, checksum};
use std::io::{Read, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MAGIC: &[u8; 16] = b"darter backup\0\0\0";
const HEADER_BYTES: usize = 48;
/// Bytes of the two numbers in front of a pair.
const PAIR_HEAD: usize = 8;
/// Bytes of a part after which it ends at the next key that is chosen by its hash, and in any case.
const PART_BYTES: (usize, usize) = (256 << 10, 4 << 20);
/// One of this many keys is chosen, on average.
const CHOSEN_OF: u32 = 1024;
/// The largest part that a reader accepts: more than a full part and the largest pair of any pool.
const PART_BYTES_MAX: usize = 64 << 20;

/// What a backup holds.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// store.put("pear", "green")?;
/// let report = store.backup(std::io::sink())?;
/// assert_eq!((report.pairs, report.bytes), (1, 9));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupReport {
    /// Number of pairs.
    pub pairs: u64,
    /// Bytes of all keys and values.
    pub bytes: u64,
    /// The moment as of which it shows the pool, by the clock of the process that took it.
    pub taken_at: SystemTime,
    /// The id of the pool.
    pub pool_id: u64,
}

/// A part of a backup: some pairs in ascending order.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// use darter::backup::Parts;
/// use darter::engine::{Engine, KeySpace};
///
/// store.put("pear", "green")?;
/// let mut snapshot = store.snapshot_in(KeySpace::Whole)?;
/// for part in Parts::new(&mut snapshot) {
///     assert_eq!(part?.pairs, 1);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The part as stored in a backup, with its checksum.
    pub bytes: Vec<u8>,
    /// Number of pairs.
    pub pairs: u64,
    /// Bytes of their keys and values.
    pub pair_bytes: u64,
}

impl Store {
    /// Writes all pairs of the pool as of this moment, those of gateways included, while other
    /// processes go on changing them.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// store.put("pear", "green")?;
    /// let mut backup = Vec::new(); // or a file
    /// let report = store.backup(&mut backup)?;
    /// assert_eq!((report.pairs, report.bytes), (1, 9));
    ///
    /// let copy = darter::Store::open("mem:16M")?;
    /// copy.restore(&backup[..])?;
    /// assert_eq!(copy.get("pear")?.as_deref(), Some(&b"green"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::snapshot`] does, if the snapshot is given up because the pool is full, or if
    /// `out` fails.
    pub fn backup(&self, mut out: impl Write) -> Result<BackupReport, Error> {
        let mut snapshot = self.snapshot_in(KeySpace::Whole)?;
        let report =
            BackupReport { pairs: 0, bytes: 0, taken_at: snapshot.taken_at(), pool_id: self.pool().id() };
        let report = write_backup(report, Parts::new(&mut snapshot), &mut out)?;
        snapshot.end()?;
        Ok(report)
    }

    /// Stores all pairs of a backup in this pool, which must be empty. The pool may have another
    /// shape, another index and another format version than the one that was backed up. The pairs
    /// appear at one moment, when all have been read and verified.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// store.put("pear", "green")?;
    /// let mut backup = Vec::new();
    /// store.backup(&mut backup)?;
    /// let copy = darter::Store::open("mem:16M?nodes=2")?;
    /// copy.restore(&backup[..])?;
    /// assert!(copy.contains_key("pear")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`BackupError::NotEmpty`] if the pool has a key, with the other errors of
    /// [`BackupError`] if the backup is damaged or cannot be read, or if the pool is too small.
    /// The pool is then still empty.
    pub fn restore(&self, from: impl Read + Send) -> Result<BackupReport, Error> {
        let session = self.session_in(KeySpace::Whole)?;
        if !session.is_empty()? {
            return Err(BackupError::NotEmpty.into());
        }
        let mut reader = BackupReader::new(from)?;
        let mut failure = None;
        let mut part = Vec::new().into_iter();
        let pairs = std::iter::from_fn(|| {
            loop {
                if let Some(pair) = part.next() {
                    return Some(pair);
                }
                if failure.is_some() {
                    return None;
                }
                match reader.next_part() {
                    Ok(None) => return None,
                    Ok(Some(pairs)) => part = pairs.into_iter(),
                    Err(error) => {
                        failure = Some(error);
                        // A pair out of order ends the load without a change: no key is below this one.
                        part = vec![KeyValue::default(), KeyValue::default()].into_iter();
                    }
                }
            }
        });
        let loaded = session.bulk_load(pairs);
        if let Some(error) = failure {
            return Err(error.into());
        }
        match loaded {
            Err(Error::Index(IndexError::NotEmpty)) => Err(BackupError::NotEmpty.into()),
            loaded => {
                loaded?;
                Ok(reader.report)
            }
        }
    }
}

/// Writes a backup of parts. `report` says when it was taken, and of which pool.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// use darter::backup::{Parts, write_backup};
/// use darter::engine::{Engine, KeySpace};
///
/// let mut snapshot = store.snapshot_in(KeySpace::Whole)?;
/// let taken_at = snapshot.taken_at();
/// let report = darter::BackupReport { pairs: 0, bytes: 0, taken_at, pool_id: store.pool().id() };
/// let mut backup = Vec::new();
/// write_backup(report, Parts::new(&mut snapshot), &mut backup)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Fails if a part cannot be read, or `out` fails.
pub fn write_backup(
    mut report: BackupReport,
    parts: impl Iterator<Item = Result<Part, Error>>,
    out: &mut impl Write,
) -> Result<BackupReport, Error> {
    let mut write = |bytes: &[u8]| out.write_all(bytes).map_err(BackupError::Io);
    write(&header(&report))?;
    for part in parts {
        let part = part?;
        write(&part.bytes)?;
        report.pairs += part.pairs;
        report.bytes += part.pair_bytes;
    }
    write(&end(&report))?;
    out.flush().map_err(BackupError::Io)?;
    Ok(report)
}

/// Returns the bytes in front of a backup's parts.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// let mut backup = Vec::new();
/// let report = store.backup(&mut backup)?;
/// assert!(backup.starts_with(&darter::backup::header(&report)));
/// # Ok(())
/// # }
/// ```
pub fn header(report: &BackupReport) -> Vec<u8> {
    let taken_at = report.taken_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let mut header = MAGIC.to_vec();
    for word in [VERSION, taken_at, report.pool_id] {
        header.extend_from_slice(&word.to_le_bytes());
    }
    seal(&mut header);
    header
}

/// Returns the bytes behind a backup's parts.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// let mut backup = Vec::new();
/// let report = store.backup(&mut backup)?;
/// assert!(backup.ends_with(&darter::backup::end(&report)));
/// # Ok(())
/// # }
/// ```
pub fn end(report: &BackupReport) -> Vec<u8> {
    let mut end: Vec<u8> = [0, report.pairs, report.bytes].into_iter().flat_map(u64::to_le_bytes).collect();
    seal(&mut end);
    end
}

/// The parts of a backup of a snapshot. Where a part ends depends on its keys only, so that two backups
/// of nearly the same pairs have most parts in common.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// use darter::backup::Parts;
/// use darter::engine::{Engine, KeySpace};
///
/// store.put("pear", "green")?;
/// let mut snapshot = store.snapshot_in(KeySpace::Whole)?;
/// assert_eq!(Parts::new(&mut snapshot).count(), 1);
/// # Ok(())
/// # }
/// ```
pub struct Parts<'s> {
    pairs: crate::SnapshotRange<'s>,
}

impl<'s> Parts<'s> {
    /// Begins to read a snapshot of [`KeySpace::Whole`].
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// use darter::backup::Parts;
    /// use darter::engine::{Engine, KeySpace};
    ///
    /// store.put("pear", "green")?;
    /// let mut snapshot = store.snapshot_in(KeySpace::Whole)?;
    /// let part = Parts::new(&mut snapshot).next();
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(snapshot: &'s mut Snapshot) -> Self {
        Self { pairs: snapshot.range(..) }
    }

    fn read(&mut self) -> Result<Option<Part>, Error> {
        let mut part = Part { bytes: vec![0; PAIR_HEAD], pairs: 0, pair_bytes: 0 };
        for pair in self.pairs.by_ref() {
            let (key, value) = pair?;
            part.bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
            part.bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
            part.bytes.extend_from_slice(&key);
            part.bytes.extend_from_slice(&value);
            part.pairs += 1;
            part.pair_bytes += (key.len() + value.len()) as u64;
            let bytes = part.bytes.len();
            if bytes >= PART_BYTES.1 || bytes >= PART_BYTES.0 && is_chosen(&key) {
                return Ok(Some(finish(part)));
            }
        }
        Ok((part.pairs > 0).then(|| finish(part)))
    }
}

impl Iterator for Parts<'_> {
    type Item = Result<Part, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        // After an error the range has ended, and so there is nothing to read.
        self.read().transpose()
    }
}

/// Whether a part may end with this key.
fn is_chosen(key: &[u8]) -> bool {
    let mut bytes = key.to_vec();
    pad(&mut bytes);
    checksum::crc32c_of_bytes(&bytes).is_multiple_of(CHOSEN_OF)
}

/// Fills in the numbers in front of the pairs, and appends the checksum.
fn finish(mut part: Part) -> Part {
    let head = (part.bytes.len() - PAIR_HEAD) as u64 | part.pairs << 32;
    part.bytes[..PAIR_HEAD].copy_from_slice(&head.to_le_bytes());
    pad(&mut part.bytes);
    seal(&mut part.bytes);
    part
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}

/// Appends the checksum of bytes whose number is a multiple of 8.
fn seal(bytes: &mut Vec<u8>) {
    let sum = u64::from(checksum::crc32c_of_bytes(bytes));
    bytes.extend_from_slice(&sum.to_le_bytes());
}

/// Returns the bytes in front of the checksum, if it is right.
fn unseal(bytes: &[u8]) -> Option<&[u8]> {
    let (content, sum) = bytes.split_last_chunk::<8>()?;
    (u64::from_le_bytes(*sum) == u64::from(checksum::crc32c_of_bytes(content))).then_some(content)
}

/// Reads a backup, and verifies it.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = darter::Store::open("mem:16M")?;
/// # store.put("pear", "green")?;
/// # let mut backup = Vec::new();
/// # store.backup(&mut backup)?;
/// let mut reader = darter::backup::BackupReader::new(&backup[..])?;
/// while let Some(pairs) = reader.next_part()? {
///     assert_eq!(pairs, [(b"pear".to_vec(), b"green".to_vec())]);
/// }
/// assert_eq!(reader.report().pairs, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BackupReader<R> {
    from: R,
    /// Number of bytes read.
    at: u64,
    report: BackupReport,
    /// The last key read.
    last: Option<Vec<u8>>,
    is_over: bool,
}

impl<R: Read> BackupReader<R> {
    /// Reads the header of a backup.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// let mut backup = Vec::new();
    /// store.backup(&mut backup)?;
    /// let reader = darter::backup::BackupReader::new(&backup[..])?;
    /// println!("taken at {:?}", reader.report().taken_at);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the bytes are no backup, or cannot be read.
    pub fn new(from: R) -> Result<Self, BackupError> {
        let report = BackupReport { pairs: 0, bytes: 0, taken_at: UNIX_EPOCH, pool_id: 0 };
        let mut reader = Self { from, at: 0, report, last: None, is_over: false };
        let header = reader.read(HEADER_BYTES).map_err(|error| match error {
            BackupError::CutShort { .. } => BackupError::NotABackup,
            error => error,
        })?;
        if !header.starts_with(MAGIC) {
            return Err(BackupError::NotABackup);
        }
        let word = |i: usize| number(&header[8 * i..]);
        if word(2) != VERSION {
            return Err(BackupError::Version(word(2)));
        }
        if unseal(&header).is_none() {
            return Err(reader.damaged(0, "the checksum of its header is wrong"));
        }
        reader.report.taken_at = UNIX_EPOCH + Duration::from_millis(word(3));
        reader.report.pool_id = word(4);
        Ok(reader)
    }

    /// Reads the next pairs; `None` at the end, where the numbers of pairs and bytes are verified.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// let mut backup = Vec::new();
    /// store.backup(&mut backup)?;
    /// let mut reader = darter::backup::BackupReader::new(&backup[..])?;
    /// assert_eq!(reader.next_part()?, None, "an empty pool");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the backup is damaged or cut short, or cannot be read.
    pub fn next_part(&mut self) -> Result<Option<Vec<KeyValue>>, BackupError> {
        if self.is_over {
            return Ok(None);
        }
        let begin = self.at;
        let mut part = self.read(PAIR_HEAD)?;
        let head = number(&part);
        if head == 0 {
            part.append(&mut self.read(24)?);
            let is_whole = unseal(&part).is_some()
                && (number(&part[8..]), number(&part[16..])) == (self.report.pairs, self.report.bytes);
            if !is_whole {
                return Err(self.damaged(begin, "its end does not match the pairs before it"));
            }
            self.is_over = true;
            return Ok(None);
        }
        let bytes = head as u32 as usize;
        if bytes > PART_BYTES_MAX {
            return Err(self.damaged(begin, "the length of a part is too large"));
        }
        part.append(&mut self.read(bytes.next_multiple_of(8) + 8)?);
        self.pairs_of(&part).map(Some).map_err(|what| self.damaged(begin, what))
    }

    /// Parses a part.
    fn pairs_of(&mut self, part: &[u8]) -> Result<Vec<KeyValue>, &'static str> {
        let content = unseal(part).ok_or("the checksum of a part is wrong")?;
        let head = number(content);
        let mut rest =
            content.get(PAIR_HEAD..PAIR_HEAD + head as u32 as usize).ok_or("a part is too short")?;
        let mut pairs = Vec::new();
        while !rest.is_empty() {
            let (key_bytes, value_bytes) = rest
                .split_at_checked(PAIR_HEAD)
                .map(|(lengths, _)| (number(lengths) as u32 as usize, (number(lengths) >> 32) as usize))
                .ok_or("a pair is cut short")?;
            let (pair, next) = rest[PAIR_HEAD..]
                .split_at_checked(key_bytes.saturating_add(value_bytes))
                .ok_or("a pair is cut short")?;
            let (key, value) = pair.split_at(key_bytes);
            if key_bytes > KEY_BYTES_MAX {
                return Err("a key is too long");
            }
            if self.last.as_deref().is_some_and(|last| last >= key) {
                return Err("its keys are not in order");
            }
            self.last = Some(key.to_vec());
            self.report.bytes += pair.len() as u64;
            pairs.push((key.to_vec(), value.to_vec()));
            rest = next;
        }
        if pairs.len() as u64 != head >> 32 {
            return Err("a part has another number of pairs");
        }
        self.report.pairs += pairs.len() as u64;
        Ok(pairs)
    }

    /// Returns what the backup holds. The numbers are those of the pairs read so far.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// let mut backup = Vec::new();
    /// store.backup(&mut backup)?;
    /// let reader = darter::backup::BackupReader::new(&backup[..])?;
    /// assert_eq!(reader.report().pairs, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn report(&self) -> BackupReport {
        self.report
    }

    fn read(&mut self, bytes: usize) -> Result<Vec<u8>, BackupError> {
        let mut buffer = Vec::new();
        // Grows with the bytes that there are.
        let read = self.from.by_ref().take(bytes as u64).read_to_end(&mut buffer)?;
        self.at += read as u64;
        if read < bytes { Err(BackupError::CutShort { at: self.at }) } else { Ok(buffer) }
    }

    fn damaged(&self, at: u64, what: &'static str) -> BackupError {
        BackupError::Damaged { at, bytes: self.at - at, what }
    }
}

/// The number in the first 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
