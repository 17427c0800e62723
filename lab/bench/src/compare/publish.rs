//! Writes the results: tables to the output, and the requested files.

use super::chart::Chart;
use super::measurement::Measurement;
use super::page::{About, page};
use super::plots::plots;
use super::tables::Sheet;
use super::{configuration, csv_rows};
use crate::Setting;
use darter_bench::BenchError;
use darter_fabric::files::{Access, check_output, write_output};
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// The requested files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outputs {
    /// A row for each measurement.
    pub(crate) csv: Option<PathBuf>,
    /// A page with everything.
    pub(crate) html: Option<PathBuf>,
    /// A directory for plots.
    pub(crate) svg: Option<PathBuf>,
    /// The tables as text.
    pub(crate) text: Option<PathBuf>,
    /// The first table as CSV.
    pub(crate) first: Option<PathBuf>,
}

impl Outputs {
    /// Creates the directory and checks that every file can be written, without changing it: a run
    /// can take hours.
    ///
    /// # Errors
    /// Fails if a file or the directory cannot be written.
    pub(crate) fn prepare(&self) -> Result<(), BenchError> {
        for path in [&self.csv, &self.html, &self.text, &self.first].into_iter().flatten() {
            check_output(path).map_err(|source| BenchError::File { path: path.clone(), source })?;
        }
        match &self.svg {
            Some(path) => {
                fs::create_dir_all(path).map_err(|source| BenchError::File { path: path.clone(), source })
            }
            None => Ok(()),
        }
    }
}

/// The results of a run, in every form.
pub(crate) struct Results {
    pub(crate) sheets: Vec<Sheet>,
    /// A row for each measurement, with a header.
    pub(crate) csv: Vec<u8>,
    pub(crate) charts: Vec<Chart>,
    /// The hash of all settings.
    pub(crate) asked: String,
}

impl Results {
    /// Returns the results of measurements, with these tables.
    pub(crate) fn of(sheets: Vec<Sheet>, measurements: &[Measurement]) -> Result<Self, BenchError> {
        Self::with_charts(sheets, plots(measurements), measurements)
    }

    /// Returns the results of measurements, with these tables and plots.
    pub(crate) fn with_charts(
        sheets: Vec<Sheet>,
        charts: Vec<Chart>,
        measurements: &[Measurement],
    ) -> Result<Self, BenchError> {
        Ok(Self { sheets, csv: csv_rows::csv(measurements)?, charts, asked: asked_for(measurements) })
    }
}

/// Prints tables to `out`, and writes the files. A FIFO can block until it has a reader; a stop of
/// `setting` ends that.
pub(crate) fn publish(
    setting: &Setting,
    about: &About<'_>,
    results: &Results,
    outputs: &Outputs,
    out: &mut dyn Write,
) -> Result<(), BenchError> {
    let Results { sheets, csv, charts, asked } = results;
    let mut parts = vec![about.title.clone()];
    parts.extend(about.what.iter().cloned());
    parts.extend(sheets.iter().map(|sheet| format!("\n{}", sheet.text())));
    parts.push(format!("\nconfiguration: SHA-256 {asked}\n"));
    let text = parts.join("\n");
    writeln!(out, "{text}")?;
    if let Some(path) = &outputs.text {
        write_file(setting, path.clone(), text.into_bytes())?;
    }
    if let Some(path) = &outputs.csv {
        write_file(setting, path.clone(), csv.clone())?;
    }
    if let (Some(path), Some(first)) = (&outputs.first, sheets.first()) {
        write_file(setting, path.clone(), first.csv()?)?;
    }
    if let Some(directory) = &outputs.svg {
        for chart in charts {
            let path = directory.join(format!("{}.svg", chart.name));
            write_file(setting, path, chart.svg().into_bytes())?;
        }
    }
    if let Some(path) = &outputs.html {
        write_file(setting, path.clone(), page(about, asked, sheets, charts).into_bytes())?;
    }
    Ok(())
}

/// Returns the hash of all settings: of the hashes of all measurements.
fn asked_for(measurements: &[Measurement]) -> String {
    configuration::hash(&measurements.iter().map(|one| one.figures.hash.as_str()).collect::<String>())
}

pub(crate) fn write_file(setting: &Setting, path: PathBuf, content: Vec<u8>) -> Result<(), BenchError> {
    setting.or_stopped(move || {
        write_output(&path, Access::Umask, &content).map_err(|source| BenchError::File { path, source })
    })?
}
