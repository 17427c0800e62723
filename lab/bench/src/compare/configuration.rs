//! All settings that determine a measurement, in one canonical form with a hash, by which figures
//! of two files can be matched.
//!
//! The canonical form is a line: [`FORM`], a space, and the configuration as JSON with its fields
//! in the order given here. To add, remove or rename a field, or to change its meaning, increment
//! the number in [`FORM`].

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// The name and version of the canonical form.
const FORM: &str = "darter-compare/1";

/// The settings of a measurement. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// The program's version.
    pub program: String,
    /// The index variant's name.
    pub index: String,
    /// `load` or `a` to `f`.
    pub workload: String,
    /// The dataset's name.
    pub dataset: String,
    /// Records loaded before the workloads.
    pub records: u64,
    /// Operations of each workload except `load`.
    pub ops: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Zipf exponent; 0 is uniform.
    pub theta: f64,
    /// Compute nodes, each with its own index handle and cache.
    pub compute_nodes: usize,
    /// Threads of each compute node.
    pub threads: usize,
    /// Operations in flight per thread.
    pub in_flight: usize,
    /// Bytes each compute node may cache.
    pub cache_bytes: u64,
    /// The location of the pool.
    pub pool: String,
    /// Memory nodes of the pool.
    pub memnodes: usize,
    /// Unmeasured searches before the measurement.
    pub warm_up: u64,
    /// Rounds; the median counts.
    pub rounds: u32,
    /// Seed of keys and operations.
    pub seed: u64,
}

impl Configuration {
    /// Returns the canonical form.
    pub fn canonical(&self) -> String {
        let json = serde_json::to_string(self);
        // Strings and finite numbers can always be written as JSON.
        format!("{FORM} {}", json.unwrap_or_else(|error| unreachable!("{error}")))
    }

    /// Returns the SHA-256 of the canonical form, in hexadecimal.
    pub fn hash(&self) -> String {
        hash(&self.canonical())
    }
}

/// Returns the SHA-256 of a text, in hexadecimal.
pub(crate) fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
        // Writing to a string does not fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::HashSet;

    pub(crate) fn configuration() -> Configuration {
        Configuration {
            program: "0.1.0".into(),
            index: "dart".into(),
            workload: "c".into(),
            dataset: "randint".into(),
            records: 1000,
            ops: 100,
            value_bytes: 64,
            theta: 0.99,
            compute_nodes: 1,
            threads: 2,
            in_flight: 3,
            cache_bytes: 1 << 20,
            pool: "local".into(),
            memnodes: 1,
            warm_up: 50,
            rounds: 3,
            seed: 42,
        }
    }

    #[test]
    fn the_canonical_form_and_its_hash_stay_what_they_are() {
        let one = configuration();
        assert_eq!(
            one.canonical(),
            "darter-compare/1 {\"program\":\"0.1.0\",\"index\":\"dart\",\"workload\":\"c\",\"dataset\":\"randint\",\
             \"records\":1000,\"ops\":100,\"value_bytes\":64,\"theta\":0.99,\"compute_nodes\":1,\"threads\":2,\
             \"in_flight\":3,\"cache_bytes\":1048576,\"pool\":\"local\",\"memnodes\":1,\"warm_up\":50,\"rounds\":3,\
             \"seed\":42}"
        );
        assert_eq!(one.hash(), configuration().hash());
        assert_eq!(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn every_option_changes_the_hash() {
        let base = configuration();
        let Value::Object(fields) = serde_json::to_value(&base).unwrap() else { panic!("an object") };
        let mut hashes = HashSet::from([base.hash()]);
        for name in fields.keys() {
            let mut changed = fields.clone();
            let value = changed.get_mut(name).unwrap();
            *value = match &*value {
                Value::String(text) => format!("{text}+").into(),
                Value::Number(number) if number.is_f64() => 0.5.into(),
                number => (number.as_u64().unwrap() + 1).into(),
            };
            let changed: Configuration = serde_json::from_value(Value::Object(changed)).unwrap();
            assert_ne!(changed, base, "{name}");
            assert!(hashes.insert(changed.hash()), "{name} is not in the hash");
        }
        assert_eq!(hashes.len(), fields.len() + 1);
    }
}
