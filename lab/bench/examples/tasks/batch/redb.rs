//! Many writes in redb, in one transaction.

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::error::Error;
use std::path::Path;

const SQUARES: TableDefinition<u64, u64> = TableDefinition::new("squares");

pub(crate) fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    let database = Database::create(directory.join("squares.redb"))?;
    let transaction = database.begin_write()?;
    {
        let mut squares = transaction.open_table(SQUARES)?;
        for n in 0..1000 {
            squares.insert(n, n * n)?;
        }
    }
    transaction.commit()?;
    let squares = database.begin_read()?.open_table(SQUARES)?;
    let last = squares.last()?.map(|(n, square)| (n.value(), square.value()));
    assert_eq!(last, Some((999, 998_001)));
    Ok(())
}
