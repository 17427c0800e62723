//! Time series: readings by sensor and time, in order, with windows and retention.
//!
//! `cargo run -p darter --example time_series`

use darter::{Error, Store, Table};

/// Celsius by sensor and second.
type Readings = Table<(String, u64), f64>;

/// Returns the mean of a sensor's readings in a window; `None` without readings.
fn mean(readings: &Readings, sensor: &str, from: u64, to: u64) -> Result<Option<f64>, Error> {
    let (mut sum, mut count) = (0.0, 0.0);
    for pair in readings.range((sensor.to_owned(), from)..(sensor.to_owned(), to)) {
        let (_, celsius) = pair?;
        (sum, count) = (sum + celsius, count + 1.0);
    }
    Ok((count > 0.0).then(|| sum / count))
}

/// Returns the latest reading of a sensor.
fn latest(readings: &Readings, sensor: &str) -> Result<Option<f64>, Error> {
    let all = (sensor.to_owned(), 0)..=(sensor.to_owned(), u64::MAX);
    Ok(readings.range(all).next_back().transpose()?.map(|(_, celsius)| celsius))
}

fn main() -> Result<(), Error> {
    let store = Store::open("mem:64M")?; // or a file that the writers and readers share
    let readings: Readings = store.table("readings")?;
    for sensor in ["cellar", "roof"] {
        let hour: Vec<_> = (0..3600_u32)
            .map(|second| ((sensor.to_owned(), u64::from(second)), f64::from(second) / 60.0))
            .collect();
        readings.put_many(&hour)?;
    }
    println!("roof, second half hour: {:.2}", mean(&readings, "roof", 1800, 3600)?.unwrap_or(f64::NAN));
    assert_eq!(latest(&readings, "cellar")?, Some(3599.0 / 60.0));
    // Retention: one range a sensor.
    for sensor in ["cellar", "roof"] {
        let old = (sensor.to_owned(), 0)..(sensor.to_owned(), 3000);
        assert_eq!(readings.remove_range(old)?, 3000);
    }
    assert_eq!(readings.iter().count(), 1200);
    assert_eq!(mean(&readings, "roof", 0, 3000)?, None);
    Ok(())
}
