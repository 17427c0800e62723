//! A counter in darter: each thread opens the map by itself, as another process does.

use darter::{Change, Store, Table};
use std::error::Error;
use std::path::Path;
use std::thread;

fn open_counters(directory: &Path) -> Result<Table<String, u64>, darter::Error> {
    Store::open(format!("file:{}/pool?size=16M", directory.display()))?.table("counters")
}

fn count_visits(directory: &Path) -> Result<(), darter::Error> {
    let counters = open_counters(directory)?;
    for _ in 0..25 {
        counters.update("visits", |visits| Change::Put(visits.unwrap_or(0) + 1))?;
    }
    Ok(())
}

pub(crate) fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| count_visits(directory).expect("counts"));
        }
    });
    assert_eq!(open_counters(directory)?.get("visits")?, Some(100));
    Ok(())
}
