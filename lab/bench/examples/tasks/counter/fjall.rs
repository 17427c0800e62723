//! A counter in fjall: threads of one process share it, since no second process can open the map.

use fjall::{KeyspaceCreateOptions, SingleWriterTxDatabase, SingleWriterTxKeyspace, Slice};
use std::error::Error;
use std::path::Path;
use std::thread;

fn number(bytes: &Slice) -> u64 {
    u64::from_be_bytes(bytes[..].try_into().expect("eight bytes"))
}

fn count_visits(counters: &SingleWriterTxKeyspace) -> Result<(), fjall::Error> {
    for _ in 0..25 {
        counters
            .update_fetch("visits", |visits| Some((visits.map_or(0, number) + 1).to_be_bytes().into()))?;
    }
    Ok(())
}

pub(crate) fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    let database = SingleWriterTxDatabase::builder(directory).open()?;
    let counters = database.keyspace("counters", KeyspaceCreateOptions::default)?;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| count_visits(&counters).expect("counts"));
        }
    });
    assert_eq!(counters.get("visits")?.as_ref().map(number), Some(100));
    Ok(())
}
