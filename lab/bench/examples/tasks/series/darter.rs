//! A time series in darter: the newest readings of a sensor.

use darter::{Store, Table};
use std::error::Error;
use std::path::Path;

pub(crate) fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    let store = Store::open(format!("file:{}/pool?size=16M", directory.display()))?;
    let readings: Table<(String, u64), f64> = store.table("readings")?;
    for second in 0..60 {
        readings.put(&("cellar".to_owned(), second), &12.5)?;
        readings.put(&("roof".to_owned(), second), &31.5)?;
    }
    let cellar = ("cellar".to_owned(), 0)..=("cellar".to_owned(), u64::MAX);
    let mut newest = Vec::new();
    for pair in readings.range(cellar).limit(3).rev() {
        let ((_, second), celsius) = pair?;
        newest.push((second, celsius));
    }
    assert_eq!(newest, [(59, 12.5), (58, 12.5), (57, 12.5)]);
    Ok(())
}
