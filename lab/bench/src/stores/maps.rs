//! The maps that the comparison of stores runs on, each opened in its fastest configuration that
//! keeps what a killed process has acknowledged.

use super::{StoreName, VALUE_BYTES};
use darter::{ScanRange, Session, Store};
use darter_bench::BenchError;
use std::ops::Bound;
use std::path::Path;

/// A key.
pub(super) type Key = [u8; 8];
/// A pair.
pub(super) type Pair = (Key, [u8; VALUE_BYTES]);

/// An ordered map in files, as one thread of one process uses it.
pub(super) trait Map {
    /// Stores one pair, in a separate transaction if the map has transactions.
    fn put(&mut self, key: Key, value: [u8; VALUE_BYTES]) -> Result<(), BenchError> {
        self.put_all(&[(key, value)])
    }
    /// Stores several pairs, in one transaction if the map has transactions.
    fn put_all(&mut self, pairs: &[Pair]) -> Result<(), BenchError>;
    /// Copies a key's value to `value`. Returns whether the key is present.
    fn get(&mut self, key: Key, value: &mut [u8; VALUE_BYTES]) -> Result<bool, BenchError>;
    /// Appends the pairs of those keys that are present to `found`, in one transaction if the map
    /// has transactions.
    fn get_all(&mut self, keys: &[Key], found: &mut Vec<Pair>) -> Result<(), BenchError>;
    /// Appends the first `limit` pairs at or after a key to `found`.
    fn range(&mut self, from: Key, limit: usize, found: &mut Vec<Pair>) -> Result<(), BenchError>;
}

/// Opens the map at `path`, which is a directory that exists, and creates it if it is absent.
/// `records` determines the size of maps that need one.
pub(super) fn open(name: StoreName, path: &Path, records: u64) -> Result<Box<dyn Map>, BenchError> {
    Ok(match name {
        StoreName::Darter => Box::new(DarterMap::open(path, records)?),
        StoreName::Lmdb => Box::new(LmdbMap::open(path, records).map_err(failed)?),
        StoreName::Redb => Box::new(RedbMap::open(path).map_err(failed)?),
        StoreName::Fjall => Box::new(FjallMap::open(path).map_err(failed)?),
    })
}

/// Turns another library's error into one of the benchmark.
#[allow(clippy::needless_pass_by_value)] // the form that `map_err` takes
fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::Process(error.to_string())
}

/// Bytes reserved for `records` pairs: several times their size, for pages that are half full and
/// for versions that are still in use.
fn reserved_bytes(records: u64) -> u64 {
    (records * 512).max(256 << 20)
}

/// Returns a pair of copies.
fn pair(key: &[u8], value: &[u8]) -> Result<Pair, BenchError> {
    let mut copied = [0; VALUE_BYTES];
    copy(value, &mut copied)?;
    Ok((key.try_into().map_err(|_| failed(format!("a key has {} bytes", key.len())))?, copied))
}

/// Copies a value, which must have the length that this comparison stores.
fn copy(from: &[u8], to: &mut [u8; VALUE_BYTES]) -> Result<(), BenchError> {
    *to = from.try_into().map_err(|_| failed(format!("a value has {} bytes", from.len())))?;
    Ok(())
}

/// darter over a pool file.
struct DarterMap {
    session: Session,
}

impl DarterMap {
    fn open(path: &Path, records: u64) -> Result<Self, BenchError> {
        let pool = path.join("pool");
        let url = format!("file:{}?size={}", pool.display(), reserved_bytes(records));
        Ok(Self { session: Store::open(url)?.session()? })
    }
}

impl Map for DarterMap {
    fn put(&mut self, key: Key, value: [u8; VALUE_BYTES]) -> Result<(), BenchError> {
        self.session.put(key, value)?;
        Ok(())
    }

    fn put_all(&mut self, pairs: &[Pair]) -> Result<(), BenchError> {
        self.session.put_many(pairs)?;
        Ok(())
    }

    fn get(&mut self, key: Key, value: &mut [u8; VALUE_BYTES]) -> Result<bool, BenchError> {
        self.session.get_with(key, |found| copy(found, value))?.transpose().map(|found| found.is_some())
    }

    fn get_all(&mut self, keys: &[Key], found: &mut Vec<Pair>) -> Result<(), BenchError> {
        for (key, value) in keys.iter().zip(self.session.get_many(keys)?) {
            found.extend(value.map(|value| pair(key, &value)).transpose()?);
        }
        Ok(())
    }

    fn range(&mut self, from: Key, limit: usize, found: &mut Vec<Pair>) -> Result<(), BenchError> {
        let mut result = Ok(());
        let range = ScanRange { from: Bound::Included(from.to_vec()), ..ScanRange::all() };
        self.session.scan_with(&range, limit, |key, value| match pair(key, value) {
            Ok(pair) => found.push(pair),
            Err(error) => result = Err(error),
        })?;
        result
    }
}

/// LMDB: writes go to the mapping, and commits do not wait for the disk.
struct LmdbMap {
    env: heed::Env,
    map: heed::Database<heed::types::Bytes, heed::types::Bytes>,
}

impl LmdbMap {
    fn open(path: &Path, records: u64) -> Result<Self, heed::Error> {
        let mut options = heed::EnvOpenOptions::new();
        options.map_size(usize::try_from(reserved_bytes(records)).unwrap_or(usize::MAX));
        // SAFETY: without syncs a power failure can damage the file, which the run deletes anyway.
        // Nothing but these processes, all through LMDB, writes to the mapped file.
        let env = unsafe {
            options.flags(heed::EnvFlags::WRITE_MAP | heed::EnvFlags::NO_SYNC);
            options.open(path)?
        };
        let mut transaction = env.write_txn()?;
        let map = env.create_database(&mut transaction, None)?;
        transaction.commit()?;
        Ok(Self { env, map })
    }

    fn write(&self, pairs: &[Pair]) -> Result<(), heed::Error> {
        let mut transaction = self.env.write_txn()?;
        for (key, value) in pairs {
            self.map.put(&mut transaction, key, value)?;
        }
        transaction.commit()
    }
}

impl Map for LmdbMap {
    fn put_all(&mut self, pairs: &[Pair]) -> Result<(), BenchError> {
        self.write(pairs).map_err(failed)
    }

    fn get(&mut self, key: Key, value: &mut [u8; VALUE_BYTES]) -> Result<bool, BenchError> {
        let transaction = self.env.read_txn().map_err(failed)?;
        let found = self.map.get(&transaction, &key).map_err(failed)?;
        found.map(|found| copy(found, value)).transpose().map(|found| found.is_some())
    }

    fn get_all(&mut self, keys: &[Key], found: &mut Vec<Pair>) -> Result<(), BenchError> {
        let transaction = self.env.read_txn().map_err(failed)?;
        for key in keys {
            let value = self.map.get(&transaction, key).map_err(failed)?;
            found.extend(value.map(|value| pair(key, value)).transpose()?);
        }
        Ok(())
    }

    fn range(&mut self, from: Key, limit: usize, found: &mut Vec<Pair>) -> Result<(), BenchError> {
        let transaction = self.env.read_txn().map_err(failed)?;
        let range = (Bound::Included(&from[..]), Bound::Unbounded);
        for next in self.map.range(&transaction, &range).map_err(failed)?.take(limit) {
            let (key, value) = next.map_err(failed)?;
            found.push(pair(key, value)?);
        }
        Ok(())
    }
}

const REDB_TABLE: redb::TableDefinition<'static, &[u8], &[u8]> = redb::TableDefinition::new("map");

/// redb in `MultiWriter` mode, in which every commit is synced; on a memory file system that is
/// cheap.
struct RedbMap {
    database: redb::Database,
}

impl RedbMap {
    fn open(path: &Path) -> Result<Self, redb::Error> {
        let mut builder = redb::Database::builder();
        builder.set_concurrency_mode(redb::ConcurrencyMode::MultiWriter);
        let database = builder.create(path.join("map.redb"))?;
        let map = Self { database };
        map.write(&[])?;
        Ok(map)
    }

    fn write(&self, pairs: &[Pair]) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut table = transaction.open_table(REDB_TABLE)?;
            for (key, value) in pairs {
                table.insert(&key[..], &value[..])?;
            }
        }
        Ok(transaction.commit()?)
    }

    /// Opens the table in a new transaction.
    fn read(&self) -> Result<redb::ReadOnlyTable<&'static [u8], &'static [u8]>, BenchError> {
        use redb::ReadableDatabase;
        let transaction = self.database.begin_read().map_err(failed)?;
        transaction.open_table(REDB_TABLE).map_err(failed)
    }
}

impl Map for RedbMap {
    fn put_all(&mut self, pairs: &[Pair]) -> Result<(), BenchError> {
        self.write(pairs).map_err(failed)
    }

    fn get(&mut self, key: Key, value: &mut [u8; VALUE_BYTES]) -> Result<bool, BenchError> {
        let found = self.read()?.get(&key[..]).map_err(failed)?;
        found.map(|found| copy(found.value(), value)).transpose().map(|found| found.is_some())
    }

    fn get_all(&mut self, keys: &[Key], found: &mut Vec<Pair>) -> Result<(), BenchError> {
        let table = self.read()?;
        for key in keys {
            let value = table.get(&key[..]).map_err(failed)?;
            found.extend(value.map(|value| pair(key, value.value())).transpose()?);
        }
        Ok(())
    }

    fn range(&mut self, from: Key, limit: usize, found: &mut Vec<Pair>) -> Result<(), BenchError> {
        for next in self.read()?.range(&from[..]..).map_err(failed)?.take(limit) {
            let (key, value) = next.map_err(failed)?;
            found.push(pair(key.value(), value.value())?);
        }
        Ok(())
    }
}

/// fjall, whose writes reach the system's buffers before they return.
struct FjallMap {
    database: fjall::Database,
    map: fjall::Keyspace,
}

impl FjallMap {
    fn open(path: &Path) -> Result<Self, fjall::Error> {
        let database = fjall::Database::builder(path).open()?;
        let map = database.keyspace("map", fjall::KeyspaceCreateOptions::default)?;
        Ok(Self { database, map })
    }
}

impl Map for FjallMap {
    fn put(&mut self, key: Key, value: [u8; VALUE_BYTES]) -> Result<(), BenchError> {
        self.map.insert(key, value).map_err(failed)
    }

    fn put_all(&mut self, pairs: &[Pair]) -> Result<(), BenchError> {
        let mut batch = self.database.batch();
        for (key, value) in pairs {
            batch.insert(&self.map, key, value);
        }
        batch.commit().map_err(failed)
    }

    fn get(&mut self, key: Key, value: &mut [u8; VALUE_BYTES]) -> Result<bool, BenchError> {
        let found = self.map.get(key).map_err(failed)?;
        found.map(|found| copy(&found, value)).transpose().map(|found| found.is_some())
    }

    fn get_all(&mut self, keys: &[Key], found: &mut Vec<Pair>) -> Result<(), BenchError> {
        for key in keys {
            let value = self.map.get(key).map_err(failed)?;
            found.extend(value.map(|value| pair(key, &value)).transpose()?);
        }
        Ok(())
    }

    fn range(&mut self, from: Key, limit: usize, found: &mut Vec<Pair>) -> Result<(), BenchError> {
        for next in self.map.range(from..).take(limit) {
            let (key, value) = next.into_inner().map_err(failed)?;
            found.push(pair(&key, &value)?);
        }
        Ok(())
    }
}
