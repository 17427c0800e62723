//! `dense`: the integers 0, 1, 2 … as 8-byte big-endian keys, in order.

use super::{Dataset, RECORDS_MAX};

/// Consecutive integers: record and key are the same number.
#[derive(Debug)]
pub struct Dense;

impl Dataset for Dense {
    fn capacity(&self) -> u64 {
        RECORDS_MAX
    }

    fn key(&self, record: u64, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(&record.to_be_bytes());
    }

    fn sorted(&self, records: u64) -> Box<dyn Iterator<Item = Vec<u8>> + Send + '_> {
        Box::new((0..records).map(|record| record.to_be_bytes().to_vec()))
    }

    fn has_integer_keys(&self) -> bool {
        true
    }

    fn key_bytes_mean(&self) -> u64 {
        8
    }

    fn note(&self) -> String {
        "the integers from 0 on, inserted in ascending order".to_owned()
    }
}
