//! A counter in redb: each thread opens the map by itself, as another process does.

use redb::{ConcurrencyMode, Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::error::Error;
use std::path::Path;
use std::thread;

const COUNTERS: TableDefinition<&str, u64> = TableDefinition::new("counters");

fn open_counters(directory: &Path) -> Result<Database, redb::Error> {
    let mut builder = Database::builder();
    builder.set_concurrency_mode(ConcurrencyMode::MultiWriter);
    Ok(builder.create(directory.join("counters.redb"))?)
}

fn count_visits(directory: &Path) -> Result<(), redb::Error> {
    let database = open_counters(directory)?;
    for _ in 0..25 {
        let transaction = database.begin_write()?;
        {
            let mut counters = transaction.open_table(COUNTERS)?;
            let visits = counters.get("visits")?.map_or(0, |visits| visits.value());
            counters.insert("visits", visits + 1)?;
        }
        transaction.commit()?;
    }
    Ok(())
}

pub(crate) fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| count_visits(directory).expect("counts"));
        }
    });
    let counters = open_counters(directory)?.begin_read()?.open_table(COUNTERS)?;
    assert_eq!(counters.get("visits")?.map(|visits| visits.value()), Some(100));
    Ok(())
}
