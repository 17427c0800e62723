//! The keys of a pool's gateways, for a program that opens the pool itself. It reads, sets and
//! removes strings as a client's `GET`, `SET` and `DEL` do, and moves keys of any type as `DUMP` and
//! `RESTORE` do, whether or not a gateway is running.
//!
//! Every call blocks its thread. It reads this machine's clock once, so that keys expire as they do
//! for a gateway on this machine.

use crate::clock::now_ms;
use crate::fault::Fault;
use crate::keyspace::{Change, Chunk, DATABASES, Head, KeyRange, Keyspace, Kind, Walked};
use crate::payload::{self, Dumped, Limits};
use crate::rdb::Payload;
use darter::{Condition, ScanRange, Store, block_on};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

/// A type of keys with elements, which [`Database`] does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Collection {
    /// A hash.
    Hash,
    /// A sorted set.
    SortedSet,
    /// A set.
    Set,
    /// A list.
    List,
    /// A stream.
    Stream,
}

impl Collection {
    /// Returns the name of the type, as in replies of `TYPE`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hash => Kind::Hash.name(),
            Self::SortedSet => Kind::SortedSet.name(),
            Self::Set => Kind::Set.name(),
            Self::List => Kind::List.name(),
            Self::Stream => Kind::Stream.name(),
        }
    }

    /// Returns the command that reads a whole key of the type.
    #[must_use]
    pub fn command(self) -> &'static str {
        match self {
            Self::Hash => "HGETALL",
            Self::SortedSet => "ZRANGE",
            Self::Set => "SMEMBERS",
            Self::List => "LRANGE",
            Self::Stream => "XRANGE",
        }
    }
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisValue {
    /// A string.
    String(Vec<u8>),
    /// Elements.
    Elements(Collection),
}

impl RedisValue {
    fn of(head: &Head<'_>) -> Result<Self, Fault> {
        Ok(match head.kind {
            Kind::String => Self::String(head.string()?.to_vec()),
            Kind::Hash | Kind::TimedHash => Self::Elements(Collection::Hash),
            Kind::SortedSet => Self::Elements(Collection::SortedSet),
            Kind::Set => Self::Elements(Collection::Set),
            Kind::List => Self::Elements(Collection::List),
            Kind::Stream => Self::Elements(Collection::Stream),
        })
    }

    /// Returns the bytes of a string.
    ///
    /// # Errors
    /// [`DatabaseError::WrongType`] if it is not a string.
    pub fn string(self) -> Result<Vec<u8>, DatabaseError> {
        match self {
            Self::String(value) => Ok(value),
            Self::Elements(found) => Err(DatabaseError::WrongType { found }),
        }
    }
}

/// The reason why a key cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// The key is not a string.
    #[error("holds a {}, not a string; read it through a gateway, with {}", found.name(), found.command())]
    WrongType {
        /// The key's type.
        found: Collection,
    },
    /// The key's record was not written by a gateway of this version, or is damaged.
    #[error("{0}")]
    Refused(Cow<'static, str>),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] darter::Error),
}

impl From<Fault> for DatabaseError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Store(error) => Self::Store(error),
            // Without the error code for clients.
            Fault::Said(Cow::Borrowed(text)) | Fault::Ended(Cow::Borrowed(text)) => {
                Self::Refused(text.split_once(' ').map_or(text, |(_, text)| text).into())
            }
            Fault::Said(Cow::Owned(text)) | Fault::Ended(Cow::Owned(text)) => {
                let said = text.split_once(' ').map(|(_, said)| said.to_owned());
                Self::Refused(said.unwrap_or(text).into())
            }
        }
    }
}

/// The effect of [`Database::restore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Restored {
    /// The key has the value.
    Stored,
    /// The key existed, and was kept.
    Kept,
    /// The expiry time has passed, and nothing was stored.
    Expired,
}

/// Access to a database of a pool's gateways.
///
/// ```
/// use darter::{Condition, Store};
/// use darter_gateway::Database;
///
/// # fn main() -> Result<(), darter_gateway::DatabaseError> {
/// let mut database = Database::new(Store::open("mem:16M")?);
/// assert!(database.set(b"pear", b"green", Condition::Always)?);
/// assert_eq!(database.get(b"pear")?.as_deref(), Some(&b"green"[..]));
/// assert!(database.remove(b"pear")?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Database {
    keys: Keyspace,
    limits: Limits,
}

impl Database {
    /// The number of databases of a pool.
    pub const COUNT: u8 = DATABASES;

    /// Opens database 0 of a pool. The databases of an empty pool are empty.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { limits: Limits::of(&store), keys: Keyspace::new(store, Arc::default()) }
    }

    /// Opens a database of a pool by its number; `None` if gateways have no such database.
    ///
    /// ```
    /// use darter::{Condition, Store};
    /// use darter_gateway::Database;
    ///
    /// # fn main() -> Result<(), darter_gateway::DatabaseError> {
    /// let store = Store::open("mem:16M")?;
    /// let mut other = Database::numbered(store.clone(), 15)?.expect("there are 16 databases");
    /// assert!(other.set(b"pear", b"green", Condition::Always)?);
    /// assert_eq!(Database::new(store.clone()).get(b"pear")?, None);
    /// assert!(Database::numbered(store, 16)?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn numbered(store: Store, number: u8) -> Result<Option<Self>, DatabaseError> {
        if number >= DATABASES {
            return Ok(None);
        }
        let mut database = Self::new(store);
        database.keys.select(number)?;
        Ok(Some(database))
    }

    fn now(&mut self) -> &mut Keyspace {
        self.keys.now = now_ms();
        &mut self.keys
    }

    /// Returns the value of a string, as `GET`; `None` if the key is absent or has expired.
    ///
    /// # Errors
    /// Fails if the key is not a string, or if the store fails.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, DatabaseError> {
        let look = self.now().look(key, |head| head.as_ref().map(RedisValue::of).transpose());
        block_on(look)??.map(RedisValue::string).transpose()
    }

    /// Sets a key to a string without an expiry time if a condition holds, as `SET`, `SET … NX` and
    /// `SET … XX` do. Returns whether the key was set.
    ///
    /// # Errors
    /// Fails if the condition compares values and the key is not a string, or if the store fails.
    pub fn set(&mut self, key: &[u8], value: &[u8], condition: Condition<'_>) -> Result<bool, DatabaseError> {
        let keys = self.now();
        if condition == Condition::Always {
            block_on(keys.set(key, value, None))?;
            return Ok(true);
        }
        let change = keys.change(key, |head, record| {
            let holds = match (condition, head.as_ref()) {
                (Condition::Equals(expected), Some(head)) => match RedisValue::of(head)? {
                    RedisValue::String(value) => value == expected,
                    RedisValue::Elements(found) => return Ok(Change::Keep(Err(found))),
                },
                (Condition::Always, _) | (Condition::Absent, None) | (Condition::Present, Some(_)) => true,
                (Condition::Absent, Some(_)) | (Condition::Present | Condition::Equals(_), None) => false,
            };
            if !holds {
                return Ok(Change::Keep(Ok(false)));
            }
            Head::begin(record, Kind::String, None);
            record.extend_from_slice(value);
            Ok(Change::Put(Ok(true)))
        });
        block_on(change)?.map_err(|found| DatabaseError::WrongType { found })
    }

    /// Removes a key of any type, as `DEL` does. Returns whether it existed.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, DatabaseError> {
        Ok(block_on(self.now().remove(key))?)
    }

    /// Returns the value of a key of any type, as `DUMP` does; `None` if the key is absent. A value of more than `bytes_max` bytes is refused.
    ///
    /// ```
    /// use darter::{Condition, Store};
    /// use darter_gateway::{Database, Payload, Restored};
    ///
    /// # fn main() -> Result<(), darter_gateway::DatabaseError> {
    /// let mut database = Database::new(Store::open("mem:16M")?);
    /// database.set(b"pear", b"green", Condition::Always)?;
    /// let pear = database.dump(b"pear", 1 << 20)?.expect("the key exists");
    /// let payload = Payload::of_dump(pear.payload).expect("it is valid");
    /// assert_eq!(database.restore(b"fig", &payload, None, false, 1 << 20)?, Restored::Stored);
    /// assert_eq!(database.restore(b"fig", &payload, None, false, 1 << 20)?, Restored::Kept);
    /// assert_eq!(database.get(b"fig")?.as_deref(), Some(&b"green"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the value is too long, if other clients keep changing the key, or if the store fails.
    pub fn dump(&mut self, key: &[u8], bytes_max: usize) -> Result<Option<Dumped>, DatabaseError> {
        Ok(block_on(payload::dump(self.now(), key, bytes_max))?)
    }

    /// Sets a key to a value, as `RESTORE` does. The key appears whole. It expires at a time in ms since
    /// the Unix epoch, if that is given. An existing key is kept unless `replaces` is set. The value may
    /// take `memory_max` bytes of memory.
    ///
    /// # Errors
    /// Fails if the value is damaged or belongs to a module, if the pool cannot hold it, or if the store
    /// fails. Nothing has changed then.
    pub fn restore(
        &mut self,
        key: &[u8],
        payload: &Payload,
        expiry: Option<u64>,
        replaces: bool,
        memory_max: usize,
    ) -> Result<Restored, DatabaseError> {
        let limits = self.limits;
        let keys = self.now();
        if expiry.is_some_and(|end| end <= keys.now) {
            return Ok(Restored::Expired);
        }
        if !replaces && block_on(keys.look(key, |head| head.is_some()))? {
            return Ok(Restored::Kept);
        }
        let value = payload.value(memory_max).map_err(|why| DatabaseError::Refused(why.into()))?;
        let is_stored = block_on(payload::restore(keys, limits, key, value, expiry, replaces))?;
        Ok(if is_stored { Restored::Stored } else { Restored::Kept })
    }

    /// Returns the existing keys of a range with their values, in the order of the range.
    pub fn scan(&mut self, range: &ScanRange) -> DatabaseScan<'_> {
        let (from, to) = (range.from.as_ref(), range.to.as_ref());
        let part = KeyRange::between(from.map(Vec::as_slice), to.map(Vec::as_slice));
        let left = if range.reverse { part.reversed() } else { part };
        DatabaseScan {
            keys: &mut self.keys,
            left: Some(left),
            chunk: Chunk::default(),
            read: VecDeque::new(),
        }
    }
}

/// The keys of a range, read in chunks; made by [`Database::scan`].
#[derive(Debug)]
#[must_use = "a scan does nothing until its next key is requested"]
pub struct DatabaseScan<'d> {
    keys: &'d mut Keyspace,
    /// The rest of the range; `None` at its end or after an error.
    left: Option<KeyRange>,
    chunk: Chunk,
    read: VecDeque<(Vec<u8>, RedisValue)>,
}

impl DatabaseScan<'_> {
    /// Reads the next chunk, which may contain no existing key.
    fn advance(&mut self, mut left: KeyRange) -> Result<(), DatabaseError> {
        self.keys.now = now_ms();
        let (asked, mut bytes, read) = (self.chunk.of(usize::MAX), 0, &mut self.read);
        let walked = self.keys.walk(&mut left, asked, |key, head| {
            bytes += key.len() + head.body.len();
            // The head was parsed before.
            read.extend(RedisValue::of(head).ok().map(|value| (key.to_vec(), value)));
        });
        if block_on(walked)? == Walked::Paused {
            self.left = Some(left);
        }
        self.chunk = self.chunk.after(asked, bytes);
        Ok(())
    }
}

impl Iterator for DatabaseScan<'_> {
    type Item = Result<(Vec<u8>, RedisValue), DatabaseError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.read.is_empty() {
            let left = self.left.take()?;
            if let Err(error) = self.advance(left) {
                return Some(Err(error));
            }
        }
        self.read.pop_front().map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter::engine::Engine;

    fn database() -> (Store, Database) {
        let store = Store::open("mem:32M").unwrap();
        (store.clone(), Database::new(store))
    }

    /// Sets strings, of which some have expired and the others expire much later.
    fn strings(database: &mut Database, count: u32) {
        let now = now_ms();
        for key in 0..count {
            let expiry = [None, Some(now - 1000), Some(now + 3_600_000)][key as usize % 3];
            let key = format!("{key:05}");
            block_on(database.keys.set(key.as_bytes(), key.as_bytes(), expiry)).unwrap();
        }
    }

    #[test]
    fn a_scan_passes_what_exists_in_either_direction_in_chunks() {
        let (_, mut database) = database();
        strings(&mut database, 2000);
        let expected: Vec<_> =
            (0..2000_u32).filter(|key| key % 3 != 1).map(|key| format!("{key:05}")).collect();
        let mut range = ScanRange::prefix(b"");
        for reverse in [false, true] {
            range.reverse = reverse;
            let mut found: Vec<_> = database.scan(&range).map(|pair| pair.unwrap()).collect();
            if reverse {
                found.reverse();
            }
            let held =
                |key: &String| (key.clone().into_bytes(), RedisValue::String(key.clone().into_bytes()));
            assert!(found == expected.iter().map(held).collect::<Vec<_>>(), "reverse: {reverse}");
        }
        let part = ScanRange { reverse: true, ..ScanRange::prefix(b"0000") };
        let keys: Vec<_> = database.scan(&part).map(|pair| pair.unwrap().0).collect();
        assert_eq!(keys, [b"00009", b"00008", b"00006", b"00005", b"00003", b"00002", b"00000"]);
    }

    #[test]
    fn conditions_count_keys_that_have_expired_as_absent() {
        let (_, mut database) = database();
        strings(&mut database, 3);
        assert_eq!(database.get(b"00001").unwrap(), None);
        strings(&mut database, 3);
        assert!(!database.set(b"00001", b"x", Condition::Present).unwrap());
        strings(&mut database, 3);
        assert!(!database.set(b"00001", b"x", Condition::Equals(b"00001")).unwrap());
        strings(&mut database, 3);
        assert!(database.set(b"00001", b"x", Condition::Absent).unwrap());
        assert!(!database.set(b"00001", b"y", Condition::Absent).unwrap());
        assert!(!database.set(b"00001", b"y", Condition::Equals(b"y")).unwrap());
        assert!(database.set(b"00001", b"y", Condition::Equals(b"x")).unwrap());
        assert_eq!(database.get(b"00001").unwrap().unwrap(), b"y");
        assert!(database.remove(b"00001").unwrap() && !database.remove(b"00001").unwrap());
    }

    #[test]
    fn a_set_takes_the_expiry_time_off() {
        let (_, mut database) = database();
        for condition in [Condition::Always, Condition::Present, Condition::Equals(b"00002")] {
            strings(&mut database, 3);
            assert!(database.set(b"00002", b"x", condition).unwrap());
            let look = database.keys.look(b"00002", |head| head.unwrap().expiry);
            assert_eq!(block_on(look).unwrap(), None, "{condition:?}");
        }
    }

    #[test]
    fn a_hash_is_named_and_not_taken_for_a_string() {
        let (_, mut database) = database();
        let keys = database.now();
        let hash = block_on(keys.open(b"h", Kind::Hash)).unwrap();
        // A hash without fields counts as absent.
        assert_eq!(database.get(b"h").unwrap(), None);
        let keys = database.now();
        block_on(keys.set_field(&hash, b"f", b"v")).unwrap();
        assert!(block_on(keys.confirm(&hash)).unwrap());
        let error = database.get(b"h").unwrap_err();
        assert_eq!(error.to_string(), "holds a hash, not a string; read it through a gateway, with HGETALL");
        assert!(database.set(b"h", b"x", Condition::Equals(b"v")).is_err());
        assert!(!database.set(b"h", b"x", Condition::Absent).unwrap());
        let held: Vec<_> = database.scan(&ScanRange::prefix(b"")).map(|pair| pair.unwrap().1).collect();
        assert_eq!(held, [RedisValue::Elements(Collection::Hash)]);
        assert!(database.set(b"h", b"x", Condition::Present).unwrap());
        assert_eq!(database.get(b"h").unwrap().unwrap(), b"x");
    }

    #[test]
    fn what_no_gateway_wrote_is_refused() {
        let (store, mut database) = database();
        store.session_in(darter::engine::KeySpace::Gateway).unwrap().put("kpear", b"\x7fgreen").unwrap();
        let error = database.get(b"pear").unwrap_err().to_string();
        assert_eq!(error, "the record of this key was not written by a gateway of this version");
        assert!(database.remove(b"pear").unwrap());
    }
}
