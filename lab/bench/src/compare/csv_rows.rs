//! Measurements as CSV: a row each, with every column of its configuration and the hash of that.

use super::measurement::Measurement;
use super::tables::Sheet;
use darter_bench::BenchError;
use serde::Serialize;

/// The measurements' rows, with a header.
pub(crate) fn csv(measurements: &[Measurement]) -> Result<Vec<u8>, BenchError> {
    rows(measurements.iter().map(|one| (&one.configuration, &one.figures)))
}

/// Rows of anything whose fields are columns, with a header.
pub(crate) fn rows(all: impl Iterator<Item = impl Serialize>) -> Result<Vec<u8>, BenchError> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for one in all {
        writer.serialize(one).map_err(std::io::Error::from)?;
    }
    writer.into_inner().map_err(|error| BenchError::Output(error.into_error()))
}

impl Sheet {
    /// A table of words as CSV.
    pub(crate) fn csv(&self) -> Result<Vec<u8>, BenchError> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for row in [&self.headers].into_iter().chain(&self.rows) {
            writer.write_record(row).map_err(std::io::Error::from)?;
        }
        writer.into_inner().map_err(|error| BenchError::Output(error.into_error()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::measurement::tests::measurements;

    #[test]
    fn rows_have_all_columns_and_their_own_hash() {
        let all = measurements();
        let text = csv(&all).unwrap();
        let mut reader = csv::Reader::from_reader(&text[..]);
        let headers = reader.headers().unwrap().clone();
        for name in
            ["index", "cache_bytes", "theta", "seed", "hash", "modelled", "round_trips_per_op", "p99_us"]
        {
            assert!(headers.iter().any(|header| header == name), "{name} is not in {headers:?}");
        }
        let at = headers.iter().position(|header| header == "hash").unwrap();
        let rows: Vec<_> = reader.records().map(Result::unwrap).collect();
        assert_eq!(rows.len(), all.len());
        for (row, one) in rows.iter().zip(&all) {
            assert_eq!(&row[at], one.configuration.hash());
        }
    }

    #[test]
    fn rows_of_counts_without_times_leave_the_times_blank() {
        let mut all = measurements();
        for one in &mut all {
            one.figures.remove_times();
        }
        let text = csv(&all).unwrap();
        let mut reader = csv::Reader::from_reader(&text[..]);
        let headers = reader.headers().unwrap().clone();
        for row in reader.records().map(Result::unwrap) {
            for (name, cell) in headers.iter().zip(&row) {
                let is_time =
                    ["seconds", "ops_per_s", "ratio", "p50_us", "p99_us", "p999_us"].contains(&name);
                assert!(!is_time || cell.is_empty(), "{name}: {cell}");
                assert!(!name.starts_with("round_trips") || !cell.is_empty(), "{name} is blank");
            }
        }
    }
}
