//! RDB files, read one key at a time.
//!
//! ```text
//! REDIS | version, 4 digits | records | ff | checksum of all before, 8 bytes, little-endian
//! a record:  fe, database | fd or fc, expiry time of the next key | type, key, value | others
//! ```
//!
//! The bytes of a value are copied as they are, without their meaning: `mod.rs` reads them as the body
//! of a payload. A checksum of zero means that the server computed none.

use super::{CHECKSUM, Payload, STREAM_OF_REDIS_5, STREAM_OF_REDIS_7_2, Table, VERSION_MAX};
use crc::Digest;
use std::io::{self, BufRead};

/// The first bytes of a file.
const MAGIC: &[u8; 5] = b"REDIS";
/// The first version with a checksum.
const VERSION_WITH_CHECKSUM: u16 = 5;
/// Bytes that are read at a time.
const STEP_BYTES: usize = 64 << 10;

/// The codes that are not types of values.
const SLOT_INFO: u8 = 0xf4;
const LIBRARY: u8 = 0xf5;
const MODULE_AUX: u8 = 0xf7;
const IDLE_TIME: u8 = 0xf8;
const FREQUENCY: u8 = 0xf9;
const AUX: u8 = 0xfa;
const SIZES: u8 = 0xfb;
const EXPIRY_MS: u8 = 0xfc;
const EXPIRY: u8 = 0xfd;
const DATABASE: u8 = 0xfe;
const END: u8 = 0xff;

/// Values of modules.
const MODULE_OF_REDIS_4_RC: u8 = 6;
pub(super) const MODULE: u8 = 7;

/// A part of a file that was read.
#[derive(Debug)]
#[non_exhaustive]
pub enum RdbItem {
    /// A key.
    Key(RdbKey),
    /// A library of functions, with its code.
    Library(Vec<u8>),
}

/// A key in a file.
#[derive(Debug)]
#[non_exhaustive]
pub struct RdbKey {
    /// The number of its database.
    pub database: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// When it expires, in ms since the Unix epoch.
    pub expiry: Option<u64>,
    /// The position of its value in the file.
    pub offset: u64,
    /// Its value, or the name of the module to which it belongs.
    pub value: Result<Payload, String>,
}

/// The reason why a file cannot be read further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RdbError {
    /// The bytes are not those of an RDB file.
    #[error("damaged at byte {offset}: {what}")]
    Damaged {
        /// The position of the first byte that is wrong.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// The file ends too early.
    #[error("ends at byte {0}, before its end: it was cut, or is still being written")]
    Cut(u64),
    /// The file is of a later version.
    #[error("an RDB file of version {0}; versions up to {VERSION_MAX} can be read (Redis 8)")]
    Version(u16),
    /// A key's value takes more memory than is allowed.
    #[error("the value of key {key} at byte {offset} takes more than {most} bytes")]
    TooLong {
        /// The position of the value.
        offset: u64,
        /// The key, with escapes.
        key: String,
        /// Most bytes of a value.
        most: usize,
    },
    /// The file cannot be read.
    #[error("cannot read further after byte {0}: {1}")]
    Unreadable(u64, io::Error),
}

/// A file that is read from its beginning.
///
/// ```
/// use darter_gateway::{RdbFile, RdbItem};
///
/// # fn main() -> Result<(), darter_gateway::RdbError> {
/// // A file with one key, written without a checksum.
/// let bytes = b"REDIS0011\xfe\x00\x00\x04pear\x05green\xff\0\0\0\0\0\0\0\0";
/// let mut file = RdbFile::open(&bytes[..], 1 << 20)?;
/// let Some(RdbItem::Key(key)) = file.next()? else { panic!("there is a key") };
/// assert_eq!((key.database, &key.name[..], key.expiry), (0, &b"pear"[..], None));
/// assert!(file.next()?.is_none() && !file.has_checksum());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RdbFile<R> {
    input: R,
    /// The position of the next byte.
    offset: u64,
    digest: Sum,
    version: u16,
    database: u64,
    /// Most bytes of a value.
    most: usize,
    /// The bytes of the value that is being read.
    value: Vec<u8>,
    /// The name of the key that is being read.
    key: Vec<u8>,
    has_checksum: bool,
    is_over: bool,
}

/// The checksum so far.
struct Sum(Digest<'static, u64, Table<16>>);

impl std::fmt::Debug for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Sum").field(&self.0.clone().finalize()).finish()
    }
}

/// A length, or the number of a special encoding of a string.
enum Length {
    Plain(u64),
    Special(u8),
}

impl<R: BufRead> RdbFile<R> {
    /// Begins to read a file. Values may have up to `value_bytes_max` bytes.
    ///
    /// # Errors
    /// Fails if it is not an RDB file, or is of a later version.
    pub fn open(input: R, value_bytes_max: usize) -> Result<Self, RdbError> {
        let mut file = Self {
            input,
            offset: 0,
            digest: Sum(CHECKSUM.digest()),
            version: 0,
            database: 0,
            most: value_bytes_max,
            value: Vec::new(),
            key: Vec::new(),
            has_checksum: false,
            is_over: false,
        };
        let head = file.chunk::<9>()?;
        let digits = head.strip_prefix(MAGIC).and_then(|digits| std::str::from_utf8(digits).ok());
        let Some(version) = digits.and_then(|digits| digits.parse().ok()).filter(|version| *version > 0)
        else {
            return Err(RdbError::Damaged { offset: 0, what: "not the beginning of an RDB file".to_owned() });
        };
        file.version = version;
        if version > VERSION_MAX {
            return Err(RdbError::Version(version));
        }
        Ok(file)
    }

    /// Returns the number of bytes read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns whether the file ended with a checksum, which was right.
    pub fn has_checksum(&self) -> bool {
        self.has_checksum
    }

    /// Returns the next key or library; `None` at the end, when the checksum has been verified.
    ///
    /// # Errors
    /// Fails if the file is damaged, cut, or cannot be read.
    #[expect(clippy::should_implement_trait, reason = "an iterator of results is less clear")]
    pub fn next(&mut self) -> Result<Option<RdbItem>, RdbError> {
        let mut expiry = None;
        while !self.is_over {
            let at = self.offset;
            self.value.clear();
            let [code] = self.chunk()?;
            match code {
                END => self.end()?,
                DATABASE => self.database = self.length()?,
                EXPIRY => expiry = Some(i64::from(i32::from_le_bytes(self.chunk()?)).saturating_mul(1000)),
                EXPIRY_MS => expiry = Some(i64::from_le_bytes(self.chunk()?)),
                SIZES => drop((self.length()?, self.length()?)),
                SLOT_INFO => drop((self.length()?, self.length()?, self.length()?)),
                AUX => drop((self.text()?, self.text()?)),
                IDLE_TIME => drop(self.length()?),
                FREQUENCY => drop(self.chunk::<1>()?),
                LIBRARY => return self.text().map(RdbItem::Library).map(Some),
                MODULE_AUX => drop(self.module()?),
                0..=30 => {
                    let expiry = expiry.map(|end| u64::try_from(end).unwrap_or(0));
                    return self.key(code, expiry).map(RdbItem::Key).map(Some);
                }
                _ => return Err(damaged(at, format!("no record begins with the code {code}"))),
            }
        }
        Ok(None)
    }

    /// Reads a key and its value.
    fn key(&mut self, kind: u8, expiry: Option<u64>) -> Result<RdbKey, RdbError> {
        let at = self.offset - 1;
        self.key = self.text()?;
        let offset = self.offset;
        let value = if kind == MODULE {
            Err(self.module()?)
        } else {
            self.value.push(kind);
            self.value_of(kind, at)?;
            Ok(Payload(std::mem::take(&mut self.value)))
        };
        let name = std::mem::take(&mut self.key);
        Ok(RdbKey { database: self.database, name, expiry, offset, value })
    }

    /// Copies a value of a type, whose code is at a position.
    fn value_of(&mut self, kind: u8, at: u64) -> Result<(), RdbError> {
        match kind {
            0 | 9..=13 | 16 | 17 | 20 => self.string(),
            1 | 2 | 14 => self.times(Self::string),
            3 => self.times(|file| {
                file.string()?;
                let [length] = file.chunk()?;
                let length = if length > 252 { 0 } else { length };
                file.copy(length.into())
            }),
            4 => self.times(|file| file.string().and_then(|()| file.string())),
            5 => self.times(|file| file.string().and_then(|()| file.copy(8))),
            18 => self.times(|file| file.length().and_then(|_| file.string())),
            STREAM_OF_REDIS_5 | 19 | STREAM_OF_REDIS_7_2 => self.stream(kind),
            // Hashes whose fields may expire.
            24 => {
                self.copy(8)?;
                self.times(|file| {
                    file.length()?;
                    file.string().and_then(|()| file.string())
                })
            }
            25 => self.copy(8).and_then(|()| self.string()),
            MODULE_OF_REDIS_4_RC => Err(damaged(at, "a module's value of an early form".to_owned())),
            _ => Err(damaged(at, format!("no values have the type {kind}"))),
        }
    }

    fn times(&mut self, read: impl Fn(&mut Self) -> Result<(), RdbError>) -> Result<(), RdbError> {
        for _ in 0..self.length()? {
            read(self)?;
        }
        Ok(())
    }

    fn lengths(&mut self, count: usize) -> Result<(), RdbError> {
        (0..count).try_for_each(|_| self.length().map(drop))
    }

    fn stream(&mut self, kind: u8) -> Result<(), RdbError> {
        let is_old = kind == STREAM_OF_REDIS_5;
        self.times(|file| file.string().and_then(|()| file.string()))?;
        self.lengths(if is_old { 3 } else { 8 })?;
        self.times(|file| {
            file.string()?;
            file.lengths(if is_old { 2 } else { 3 })?;
            file.times(|file| file.copy(24).and_then(|()| file.lengths(1)))?;
            file.times(|file| {
                file.string()?;
                file.copy(if kind == STREAM_OF_REDIS_7_2 { 16 } else { 8 })?;
                file.times(|file| file.copy(16))
            })
        })
    }

    /// Skips the value of a module. Returns the module's name.
    fn module(&mut self) -> Result<String, RdbError> {
        let id = self.length()?;
        loop {
            let at = self.offset;
            self.value.clear();
            match self.length()? {
                0 => return Ok(module_name(id)),
                1 | 2 => drop(self.length()?),
                3 => self.copy(4)?,
                4 => self.copy(8)?,
                5 => self.string()?,
                code => {
                    return Err(damaged(at, format!("no part of a module's value has the code {code}")));
                }
            }
        }
    }

    /// Verifies the checksum, and that nothing follows.
    fn end(&mut self) -> Result<(), RdbError> {
        self.is_over = true;
        if self.version >= VERSION_WITH_CHECKSUM {
            let (at, sum) = (self.offset, self.digest.0.clone().finalize());
            let expected = u64::from_le_bytes(self.chunk()?);
            self.has_checksum = expected != 0;
            if self.has_checksum && expected != sum {
                let what = format!("the checksum is {expected:016x}, and that of the bytes {sum:016x}");
                return Err(damaged(at, what));
            }
        }
        if !self.filled()?.is_empty() {
            return Err(damaged(self.offset, "bytes follow the end".to_owned()));
        }
        Ok(())
    }

    /// Returns the next bytes of the input; none at its end.
    fn filled(&mut self) -> Result<&[u8], RdbError> {
        while let Err(error) = self.input.fill_buf() {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(RdbError::Unreadable(self.offset, error));
            }
        }
        self.input.fill_buf().map_err(|error| RdbError::Unreadable(self.offset, error))
    }

    /// Reads bytes, which become part of the value.
    fn copy(&mut self, count: u64) -> Result<(), RdbError> {
        let most = self.most;
        let room = most.saturating_sub(self.value.len());
        let Some(mut left) = usize::try_from(count).ok().filter(|count| *count <= room) else {
            let (offset, key) = (self.offset, self.key.escape_ascii().to_string());
            return Err(RdbError::TooLong { offset, key, most });
        };
        while left > 0 {
            self.filled()?;
            let bytes = self.input.fill_buf().map_err(|error| RdbError::Unreadable(self.offset, error))?;
            if bytes.is_empty() {
                return Err(RdbError::Cut(self.offset));
            }
            let taken = bytes.len().min(left).min(STEP_BYTES);
            self.value.extend_from_slice(&bytes[..taken]);
            self.digest.0.update(&bytes[..taken]);
            self.input.consume(taken);
            self.offset += taken as u64;
            left -= taken;
        }
        Ok(())
    }

    fn chunk<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], RdbError> {
        self.copy(COUNT as u64)?;
        Ok(self.value.last_chunk().copied().unwrap_or([0; COUNT]))
    }

    fn any_length(&mut self) -> Result<Length, RdbError> {
        let at = self.offset;
        let [first] = self.chunk()?;
        let low = first & 0x3f;
        Ok(match first {
            ..0x40 => Length::Plain(low.into()),
            0x40..0x80 => {
                let [second] = self.chunk()?;
                Length::Plain(u64::from(low) << 8 | u64::from(second))
            }
            0x80 => Length::Plain(u32::from_be_bytes(self.chunk()?).into()),
            0x81 => Length::Plain(u64::from_be_bytes(self.chunk()?)),
            0xc0.. => Length::Special(low),
            _ => return Err(damaged(at, format!("no length begins with the byte {first:#04x}"))),
        })
    }

    fn length(&mut self) -> Result<u64, RdbError> {
        let at = self.offset;
        match self.any_length()? {
            Length::Plain(length) => Ok(length),
            Length::Special(_) => Err(damaged(at, "an encoded string in place of a length".to_owned())),
        }
    }

    /// Reads a string, which becomes part of the value in its encoding.
    fn string(&mut self) -> Result<(), RdbError> {
        let at = self.offset;
        match self.any_length()? {
            Length::Plain(length) => self.copy(length),
            Length::Special(0) => self.copy(1),
            Length::Special(1) => self.copy(2),
            Length::Special(2) => self.copy(4),
            Length::Special(3) => {
                let (compressed, _) = (self.length()?, self.length()?);
                self.copy(compressed)
            }
            Length::Special(code) => Err(damaged(at, format!("no string has the encoding {code}"))),
        }
    }

    /// Reads a string that is not part of a value.
    fn text(&mut self) -> Result<Vec<u8>, RdbError> {
        let at = self.offset;
        self.value.clear();
        self.string()?;
        let text = super::Reader::new(&self.value, self.most).string().map(std::borrow::Cow::into_owned);
        self.value.clear();
        text.ok_or_else(|| damaged(at, "a compressed string that is damaged".to_owned()))
    }
}

fn damaged(offset: u64, what: String) -> RdbError {
    RdbError::Damaged { offset, what }
}

/// Returns the name of a module, which its id contains.
pub(super) fn module_name(id: u64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..9).rev().map(|at| char::from(LETTERS[(id >> (10 + 6 * at) & 0x3f) as usize])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sealed(records: &[u8]) -> Vec<u8> {
        let mut file = [b"REDIS0011", records, b"\xff"].concat();
        let sum = CHECKSUM.checksum(&file);
        file.extend_from_slice(&sum.to_le_bytes());
        file
    }

    /// Reads a whole file. Returns the number of items.
    fn read(bytes: &[u8]) -> Result<usize, RdbError> {
        let mut file = RdbFile::open(bytes, 1 << 16)?;
        let mut items = 0;
        while file.next()?.is_some() {
            items += 1;
        }
        assert_eq!(file.offset(), bytes.len() as u64);
        Ok(items)
    }

    /// Records of all kinds.
    const RECORDS: &[u8] = b"\xfa\x03ver\x057.0.0\xfa\x04bits\xc0\x40\xf5\x03lib\
        \xf7\x81\0\0\0\0\0\0\0\x01\x02\x02\x05\x02ab\x03\0\0\0\0\x00\
        \xfe\x00\xfb\x05\x02\xf4\x01\x02\x03\xf9\x07\xf8\x40\xff\xfc\x01\0\0\0\0\0\0\0\
        \x00\x01a\x01x\xfd\x02\0\0\0\x04\x01b\x01\x01f\xc1\x01\x02\
        \xfe\x0f\x05\x01c\x01\x01m12345678\x03\x01d\x01\x01m\xfe\x12\x01e\x01\x02\x01y";

    #[test]
    fn keys_are_read_with_their_databases_and_ends() {
        let bytes = sealed(RECORDS);
        let mut file = RdbFile::open(&bytes[..], 1 << 16).unwrap();
        assert!(matches!(file.next(), Ok(Some(RdbItem::Library(code))) if code == b"lib"));
        for (database, name, expiry, value) in [
            (0, "a", Some(1), &b"\x00\x01x"[..]),
            (0, "b", Some(2000), b"\x04\x01\x01f\xc1\x01\x02"),
            (15, "c", None, b"\x05\x01\x01m12345678"),
            (15, "d", None, b"\x03\x01\x01m\xfe"),
            (15, "e", None, b"\x12\x01\x02\x01y"),
        ] {
            let Ok(Some(RdbItem::Key(key))) = file.next() else { panic!("{name}") };
            assert_eq!((key.database, &key.name[..], key.expiry), (database, name.as_bytes(), expiry));
            assert_eq!(key.value.unwrap().0, value, "{name}");
        }
        assert!(file.next().unwrap().is_none() && file.has_checksum());
    }

    #[test]
    fn damaged_and_cut_files_are_refused() {
        let bytes = sealed(RECORDS);
        assert_eq!(read(&bytes).unwrap(), 6);
        for at in 0..bytes.len() {
            assert!(matches!(read(&bytes[..at]), Err(RdbError::Cut(end)) if end == at as u64), "{at}");
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let read = read(&changed);
            // Without a checksum there is nothing to compare, and it has eight bytes.
            assert!(read.is_err(), "{at}: {read:?}");
        }
        // A list that announces more elements than the file has bytes.
        let long = sealed(b"\x01\x01k\x81\xff\xff\xff\xff\xff\xff\xff\xff\x01x");
        assert!(matches!(read(&long), Err(RdbError::Damaged { .. } | RdbError::Cut(_))));
        let large = sealed(b"\x00\x01k\x80\xff\xff\xff\xffx");
        assert!(matches!(read(&large), Err(RdbError::TooLong { offset: 17, most: 65_536, .. })));
        assert!(matches!(read(b"REDIS0013\xff"), Err(RdbError::Version(13))));
        assert!(matches!(read(b"REDIS-001\xff"), Err(RdbError::Damaged { offset: 0, .. })));
    }

    proptest! {
        #[test]
        fn any_records_are_read_or_refused(records in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&sealed(&records));
        }
    }
}
