//! The keys that a command works on: those of programs or, with `--table redis:0`, those of a
//! database of the pool's gateways, as Redis clients see them.

use crate::Answer;
use crate::failure::{Failure, complain};
use crate::notation::Notation;
use darter::engine::{Engine, KeySpace};
use darter::{Condition, PutOutcome, ScanRange, Session, Store};
use darter_fabric::counted;
use darter_gateway::{Collection, Database, DatabaseError, RedisValue};
use std::str::FromStr;

/// A named part of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableName {
    /// A database of the pool's gateways, by its number.
    Redis(u8),
}

impl FromStr for TableName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name.strip_prefix("redis:") {
            Some(number) => match number.parse::<u8>() {
                Ok(database) if database < Database::COUNT && number == database.to_string() => {
                    Ok(Self::Redis(database))
                }
                _ => {
                    Err(format!("the databases of gateways are `redis:0` to `redis:{}`", Database::COUNT - 1))
                }
            },
            None => Err(format!(
                "`redis:0` to `redis:{}` are the only tables that this program reads; a table of the library \
                 (`darter::Table`) is read by a program that knows its types",
                Database::COUNT - 1
            )),
        }
    }
}

/// The table to work on.
#[derive(Clone, Copy, clap::Args)]
pub(crate) struct TableArgs {
    /// Work on table `redis:0` to `redis:15`, the keys of a database of the pool's gateways, as GET,
    /// SET and DEL do; by default on the keys of programs
    #[arg(long, value_name = "NAME")]
    table: Option<TableName>,
}

impl TableArgs {
    /// Opens the table.
    pub(crate) fn open(self, store: &Store) -> Result<Keys, Failure> {
        Ok(match self.table {
            None => Keys::Plain(store.session()?),
            Some(TableName::Redis(number)) => {
                let database = Database::numbered(store.clone(), number)?;
                Keys::Redis(Box::new(database.ok_or_else(|| Failure::failed("there is no such database"))?))
            }
        })
    }

    /// Returns the number of the database, if the table is one of the gateways.
    pub(crate) fn database(self) -> Option<u8> {
        self.table.map(|TableName::Redis(number)| number)
    }

    /// Notes on stderr that gateways have records in the pool, unless the table is theirs.
    pub(crate) fn mention_gateways(self, store: &Store) -> Result<(), Failure> {
        if self.table.is_none() && !store.session_in(KeySpace::Gateway)?.is_empty()? {
            complain(
                "note: left out the data of gateways in this pool; `--format resp` exports it for Redis, `--table redis:0` the \
                 strings of database 0, `--all` everything",
            );
        }
        Ok(())
    }
}

/// Access to the keys of a table.
pub(crate) enum Keys {
    /// Keys of programs, or all places of the index.
    Plain(Session),
    /// Keys of the gateways.
    Redis(Box<Database>),
}

impl From<DatabaseError> for Failure {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::Store(error) => error.into(),
            error => Self::failed(error),
        }
    }
}

/// Converts the failure of an operation on one key.
fn of_key(key: &[u8], error: DatabaseError) -> Failure {
    match error {
        DatabaseError::Store(error) => error.into(),
        error => Failure::failed(error).within(Notation::Escaped.write(key)),
    }
}

impl Keys {
    /// Returns the value of a key.
    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok(match self {
            Self::Plain(session) => session.get(key)?,
            Self::Redis(database) => database.get(key).map_err(|error| of_key(key, error))?,
        })
    }

    /// Stores a pair if a condition holds. Returns whether it did.
    pub(crate) fn put_if(
        &mut self,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> Result<bool, Failure> {
        Ok(match self {
            Self::Plain(session) => session.put_if(key, value, condition)? != PutOutcome::Refused,
            Self::Redis(database) => {
                database.set(key, value, condition).map_err(|error| of_key(key, error))?
            }
        })
    }

    /// Removes a key. Returns whether it existed.
    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<bool, Failure> {
        Ok(match self {
            Self::Plain(session) => session.discard(key)?,
            Self::Redis(database) => database.remove(key)?,
        })
    }

    /// Calls `visit` with the keys of a range, in the range's order, and the values of those that
    /// are strings, until `visit` returns false; at most `limit` times.
    pub(crate) fn visit(
        &mut self,
        range: &ScanRange,
        limit: Option<usize>,
        mut visit: impl FnMut(&[u8], Result<&[u8], Collection>) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        match self {
            Self::Plain(session) => {
                let pairs = session.range(range);
                for pair in if let Some(limit) = limit { pairs.limit(limit) } else { pairs } {
                    let (key, value) = pair?;
                    if !visit(&key, Ok(&value))? {
                        break;
                    }
                }
            }
            Self::Redis(database) => {
                for pair in database.scan(range).take(limit.unwrap_or(usize::MAX)) {
                    let (key, value) = pair?;
                    let value = match &value {
                        RedisValue::String(value) => Ok(&value[..]),
                        RedisValue::Elements(found) => Err(*found),
                    };
                    if !visit(&key, value)? {
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The number of keys left out because their values are not strings, by type.
#[derive(Default)]
pub(crate) struct Omitted(Vec<(Collection, u64)>);

impl Omitted {
    /// Counts a key.
    pub(crate) fn count(&mut self, found: Collection) {
        match self.0.iter_mut().find(|(collection, _)| *collection == found) {
            Some((_, keys)) => *keys += 1,
            None => self.0.push((found, 1)),
        }
    }

    /// Reports the keys left out on stderr, if any.
    pub(crate) fn complain(&self) -> Answer {
        for &(found, keys) in &self.0 {
            let (keys, kind) = (counted(keys, "key"), found.name());
            complain(format_args!(
                "left out {keys} of the type {kind}, which {} reads through a gateway",
                found.command()
            ));
        }
        if self.0.is_empty() { Answer::Done } else { Answer::No }
    }
}
