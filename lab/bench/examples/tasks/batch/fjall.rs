//! Many writes in fjall, in one atomic batch.

use fjall::{Database, KeyspaceCreateOptions};
use std::error::Error;
use std::path::Path;

pub(crate) fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    let database = Database::builder(directory).open()?;
    let squares = database.keyspace("squares", KeyspaceCreateOptions::default)?;
    let mut batch = database.batch();
    for n in 0..1000_u64 {
        batch.insert(&squares, n.to_be_bytes(), (n * n).to_be_bytes());
    }
    batch.commit()?;
    let (n, square) = squares.last_key_value().ok_or("no squares")?.into_inner()?;
    assert_eq!(u64::from_be_bytes(n[..].try_into()?), 999);
    assert_eq!(u64::from_be_bytes(square[..].try_into()?), 998_001);
    Ok(())
}
