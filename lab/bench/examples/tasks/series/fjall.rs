//! A time series in fjall: the newest readings of a sensor.

use fjall::{Database, KeyspaceCreateOptions};
use std::error::Error;
use std::path::Path;

fn key(sensor: &str, second: u64) -> Vec<u8> {
    [sensor.as_bytes(), b"\0", &second.to_be_bytes()].concat()
}

pub(crate) fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    let database = Database::builder(directory).open()?;
    let readings = database.keyspace("readings", KeyspaceCreateOptions::default)?;
    for second in 0..60 {
        readings.insert(key("cellar", second), 12.5_f64.to_be_bytes())?;
        readings.insert(key("roof", second), 31.5_f64.to_be_bytes())?;
    }
    let mut newest = Vec::new();
    for pair in readings.prefix("cellar\0").rev().take(3) {
        let (key, celsius) = pair.into_inner()?;
        let second = u64::from_be_bytes(key["cellar\0".len()..].try_into()?);
        newest.push((second, f64::from_be_bytes(celsius[..].try_into()?)));
    }
    assert_eq!(newest, [(59, 12.5), (58, 12.5), (57, 12.5)]);
    Ok(())
}
