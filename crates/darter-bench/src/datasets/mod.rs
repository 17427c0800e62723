//! The sets of keys to measure with (DART, section 5.1). Each maps every record number to a key,
//! and stores no keys if it can compute them.
//!
//! A dataset is a fixed sequence of distinct keys. Records `0..n` are loaded; inserts take the
//! records after them. The keys depend only on the dataset's name and the seed.

mod dense;
mod file;
mod randint;

use crate::BenchError;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

pub use dense::Dense;
pub use file::KeyFile;
pub use randint::RandInt;

/// Records a run can name: 2^40.
pub const RECORDS_MAX: u64 = 1 << 40;

/// A fixed sequence of distinct keys.
pub trait Dataset: Send + Sync {
    /// Returns the number of distinct keys, at most [`RECORDS_MAX`].
    fn capacity(&self) -> u64;

    /// Writes the key of `record` (below [`Dataset::capacity`]) to `key`, replacing its contents.
    fn key(&self, record: u64, key: &mut Vec<u8>);

    /// Returns the keys of records `0..records` (at most [`Dataset::capacity`]) in ascending order,
    /// for bulk load.
    fn sorted(&self, records: u64) -> Box<dyn Iterator<Item = Vec<u8>> + Send + '_>;

    /// Returns whether all keys are 8-byte big-endian integers.
    fn has_integer_keys(&self) -> bool;

    /// Returns the approximate mean length of a key in bytes, which sizes the pool.
    fn key_bytes_mean(&self) -> u64;

    /// Returns a description of the keys for readers of the figures.
    fn note(&self) -> String;
}

/// A dataset, as named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatasetSpec {
    /// [`RandInt`].
    RandInt,
    /// [`Dense`].
    Dense,
    /// [`KeyFile`] read from this path.
    File(PathBuf),
}

/// Names a dataset and opens it.
pub trait KeySource: fmt::Display {
    /// Prepares the dataset.
    ///
    /// # Errors
    /// Fails if a key file cannot be read or used; the message names the line.
    fn open(&self, seed: u64) -> Result<Box<dyn Dataset>, BenchError>;

    /// Returns whether the keys come from a file, which limits their number.
    fn is_file(&self) -> bool;
}

impl KeySource for DatasetSpec {
    fn open(&self, seed: u64) -> Result<Box<dyn Dataset>, BenchError> {
        Ok(match self {
            Self::RandInt => Box::new(RandInt::new(seed)),
            Self::Dense => Box::new(Dense),
            Self::File(path) => Box::new(KeyFile::read(path, seed)?),
        })
    }

    fn is_file(&self) -> bool {
        matches!(self, Self::File(_))
    }
}

impl fmt::Display for DatasetSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RandInt => f.write_str("randint"),
            Self::Dense => f.write_str("dense"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

impl FromStr for DatasetSpec {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "randint" => Ok(Self::RandInt),
            "dense" => Ok(Self::Dense),
            _ => match name.strip_prefix("file:") {
                Some(path) if !path.is_empty() => Ok(Self::File(path.into())),
                _ => Err("choose randint, dense, or file:PATH (one key a line)".to_owned()),
            },
        }
    }
}

/// Sorts 8-byte keys as integers, which is their byte order, and returns them one by one.
pub fn sorted_integers(mut keys: Vec<u64>) -> Box<dyn Iterator<Item = Vec<u8>> + Send> {
    keys.sort_unstable();
    Box::new(keys.into_iter().map(|key| key.to_be_bytes().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Asserts the properties that every dataset must have.
    pub(super) fn assert_is_a_dataset(dataset: &dyn Dataset, records: u64) {
        let mut key = Vec::new();
        let mut expected = BTreeSet::new();
        for record in 0..records {
            dataset.key(record, &mut key);
            assert!(expected.insert(key.clone()), "record {record}: {key:?} is not distinct");
            if dataset.has_integer_keys() {
                assert_eq!(key.len(), 8);
            }
        }
        assert!(dataset.sorted(records).eq(expected), "the sorted keys differ from the single ones");
        assert_eq!(dataset.sorted(0).count(), 0);
    }

    #[test]
    fn generated_datasets_are_distinct_sorted_and_seeded() {
        for spec in [DatasetSpec::RandInt, DatasetSpec::Dense] {
            let dataset = spec.open(1).unwrap();
            assert_is_a_dataset(&*dataset, 70_001);
            let (again, other) = (spec.open(1).unwrap(), spec.open(2).unwrap());
            let keys = |set: &dyn Dataset| {
                (0..1000)
                    .map(|record| {
                        let mut key = Vec::new();
                        set.key(record, &mut key);
                        key
                    })
                    .collect::<Vec<_>>()
            };
            assert_eq!(keys(&*dataset), keys(&*again), "{spec}");
            assert_eq!(keys(&*dataset) == keys(&*other), spec == DatasetSpec::Dense, "{spec}");
            let mut far = Vec::new();
            dataset.key(dataset.capacity() - 1, &mut far);
            assert!(!far.is_empty());
        }
    }

    #[test]
    fn names_survive_parsing() {
        for name in ["randint", "dense", "file:/tmp/a b"] {
            assert_eq!(name.parse::<DatasetSpec>().unwrap().to_string(), name);
        }
        for name in ["", "file:", "uniform", "Dense"] {
            assert!(name.parse::<DatasetSpec>().unwrap_err().contains("choose"));
        }
    }
}
