//! A time series in redb: the newest readings of a sensor.

use redb::{Database, ReadableDatabase, TableDefinition};
use std::error::Error;
use std::path::Path;

const READINGS: TableDefinition<(&str, u64), f64> = TableDefinition::new("readings");

pub(crate) fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    let database = Database::create(directory.join("readings.redb"))?;
    let transaction = database.begin_write()?;
    {
        let mut readings = transaction.open_table(READINGS)?;
        for second in 0..60 {
            readings.insert(("cellar", second), 12.5)?;
            readings.insert(("roof", second), 31.5)?;
        }
    }
    transaction.commit()?;
    let readings = database.begin_read()?.open_table(READINGS)?;
    let mut newest = Vec::new();
    for pair in readings.range(("cellar", 0)..=("cellar", u64::MAX))?.rev().take(3) {
        let (key, celsius) = pair?;
        newest.push((key.value().1, celsius.value()));
    }
    assert_eq!(newest, [(59, 12.5), (58, 12.5), (57, 12.5)]);
    Ok(())
}
