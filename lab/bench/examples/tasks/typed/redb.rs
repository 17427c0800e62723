//! Typed values in redb: a table of structures, by the derive macro of redb-derive.

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use redb_derive::Value;
use std::error::Error;
use std::path::Path;

#[derive(Debug, PartialEq, Value)]
struct Account {
    owner: String,
    cents: u64,
}

const ACCOUNTS: TableDefinition<u64, Account> = TableDefinition::new("accounts");

pub(crate) fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    let database = Database::create(directory.join("accounts.redb"))?;
    let ada = Account { owner: "Ada".to_owned(), cents: 100 };
    let emmy = Account { owner: "Emmy".to_owned(), cents: 250 };
    let transaction = database.begin_write()?;
    {
        let mut accounts = transaction.open_table(ACCOUNTS)?;
        accounts.insert(7, &ada)?;
        accounts.insert(1000, &emmy)?;
    }
    transaction.commit()?;
    let accounts = database.begin_read()?.open_table(ACCOUNTS)?;
    assert_eq!(accounts.get(7)?.map(|account| account.value()), Some(ada));
    let last = accounts.last()?.map(|(number, account)| (number.value(), account.value()));
    assert_eq!(last, Some((1000, emmy)));
    Ok(())
}
