//! More sets of keys: those of `darter-bench`, e-mail addresses and clustered integers.

mod clustered;
mod email;

pub use clustered::Clustered;
pub use darter_bench::datasets::{Dataset, Dense, KeyFile, KeySource, RECORDS_MAX, RandInt};
pub use email::Email;

use darter_bench::BenchError;
use darter_bench::datasets::sorted_integers;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A dataset, as named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatasetSpec {
    /// [`RandInt`].
    RandInt,
    /// [`Email`].
    Email,
    /// [`Dense`].
    Dense,
    /// [`Clustered`].
    Clustered,
    /// [`KeyFile`] read from this path.
    File(PathBuf),
}

impl KeySource for DatasetSpec {
    fn open(&self, seed: u64) -> Result<Box<dyn Dataset>, BenchError> {
        Ok(match self {
            Self::RandInt => Box::new(RandInt::new(seed)),
            Self::Email => Box::new(Email::new(seed)),
            Self::Dense => Box::new(Dense),
            Self::Clustered => Box::new(Clustered::new(seed)),
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
            Self::Email => f.write_str("email"),
            Self::Dense => f.write_str("dense"),
            Self::Clustered => f.write_str("clustered"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

impl FromStr for DatasetSpec {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "randint" => Ok(Self::RandInt),
            "email" => Ok(Self::Email),
            "dense" => Ok(Self::Dense),
            "clustered" => Ok(Self::Clustered),
            _ => match name.strip_prefix("file:") {
                Some(path) if !path.is_empty() => Ok(Self::File(path.into())),
                _ => Err("choose randint, email, dense, clustered, or file:PATH (one key a line)".to_owned()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Checks the guarantees of a dataset.
    fn assert_is_a_dataset(dataset: &dyn Dataset, records: u64) {
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
        for spec in [DatasetSpec::Email, DatasetSpec::Clustered] {
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
            assert_ne!(keys(&*dataset), keys(&*other), "{spec}");
            let mut far = Vec::new();
            dataset.key(dataset.capacity() - 1, &mut far);
            assert!(!far.is_empty());
        }
    }

    #[test]
    fn names_survive_parsing() {
        for name in ["randint", "email", "dense", "clustered", "file:/tmp/a b"] {
            assert_eq!(name.parse::<DatasetSpec>().unwrap().to_string(), name);
        }
        for name in ["", "file:", "uniform", "Email"] {
            assert!(name.parse::<DatasetSpec>().unwrap_err().contains("choose"));
        }
    }
}
