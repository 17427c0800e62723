//! Typed values in darter: a table of structures that serde serializes.

use darter::{Store, Table};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::path::Path;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Account {
    owner: String,
    cents: u64,
}

pub(crate) fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    let store = Store::open(format!("file:{}/pool?size=16M", directory.display()))?;
    let accounts: Table<u64, Account> = store.table("accounts")?;
    let ada = Account { owner: "Ada".to_owned(), cents: 100 };
    let emmy = Account { owner: "Emmy".to_owned(), cents: 250 };
    accounts.put(&7, &ada)?;
    accounts.put(&1000, &emmy)?;
    assert_eq!(accounts.get(&7)?, Some(ada));
    assert_eq!(accounts.last()?, Some((1000, emmy)));
    Ok(())
}
