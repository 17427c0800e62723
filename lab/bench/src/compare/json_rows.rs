//! Measurements as JSON: an array of objects, whose fields are the columns of the CSV form. Numbers
//! that were not measured are `null`.

use super::configuration::Configuration;
use super::measurement::{Figures, Measurement};
use darter_bench::BenchError;
use serde::Serialize;

/// The row of a measurement.
#[derive(Serialize)]
struct Row<'m> {
    #[serde(flatten)]
    configuration: &'m Configuration,
    #[serde(flatten)]
    figures: &'m Figures,
}

/// Returns the measurements as a JSON array.
pub(crate) fn json(measurements: &[Measurement]) -> Result<Vec<u8>, BenchError> {
    let rows: Vec<_> = measurements
        .iter()
        .map(|one| Row { configuration: &one.configuration, figures: &one.figures })
        .collect();
    let mut json = serde_json::to_vec_pretty(&rows).map_err(std::io::Error::from)?;
    json.push(b'\n');
    Ok(json)
}
